"""One encoder with a head for each task."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

__all__ = ["HEADS", "Encoder"]

# The classes of each head, in the order of its outputs.
HEADS = {
    "entailment": ("supported", "contradicted", "not_stated"),
    "agreement": ("same", "different", "incomplete"),
    "relevance": ("relevant", "not_relevant"),
    "reply": ("refusal", "partial", "answer"),
}


class Encoder(nn.Module):
    """A BERT encoder whose heads see the first token and the mean and maximum over the second text."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.encoder = BertModel(config, add_pooling_layer=False)
        width = config.hidden_size
        self.join = nn.Linear(3 * width, width)
        self.heads = nn.ModuleDict({name: nn.Linear(width, len(classes)) for name, classes in HEADS.items()})

    @classmethod
    def from_base(cls, folder: Path) -> Encoder:
        """Return the encoder with the weights of a base model and new heads."""
        config = BertConfig.from_pretrained(folder)
        model = cls(config)
        model.encoder = BertModel.from_pretrained(folder, add_pooling_layer=False)
        return model

    def forward(self, tokens: Tensor, mask: Tensor, kinds: Tensor) -> dict[str, Tensor]:
        """Return the outputs of every head; `kinds` is 1 on the tokens of the second text."""
        hidden = self.encoder(input_ids=tokens, attention_mask=mask, token_type_ids=kinds).last_hidden_state
        second = (kinds * mask).unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * second).sum(1) / second.sum(1).clamp(min=1)
        largest = (hidden + (second - 1) * 1e4).amax(1)
        joined = nn.functional.gelu(self.join(torch.cat([hidden[:, 0], mean, largest], dim=-1)))
        return {name: head(joined) for name, head in self.heads.items()}
