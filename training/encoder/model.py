"""One encoder with a head for each task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

__all__ = ["HEADS", "Encoder", "read_configuration"]

# The classes of each head, in the order of its outputs.
HEADS = {
    "entailment": ("supported", "contradicted", "not_stated"),
    "agreement": ("same", "different", "incomplete"),
    "relevance": ("relevant", "not_relevant"),
    "reply": ("refusal", "partial", "answer"),
}


def read_configuration(folder: Path) -> BertConfig:
    """Return the configuration of the base model without dropout: few pairs are seen twice, and masks cost a third.

    Attention is plain products of matrices: on processors the fused one takes five times as long backwards.
    """
    return BertConfig.from_pretrained(
        folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager"
    )


class Encoder(nn.Module):
    """A BERT encoder whose heads see the first token and the mean and maximum over the claim.

    The claim stands first.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.encoder = BertModel(config, add_pooling_layer=False)
        width = config.hidden_size
        self.join = nn.Linear(3 * width, width)
        self.heads = nn.ModuleDict({name: nn.Linear(width, len(classes)) for name, classes in HEADS.items()})

    @classmethod
    def from_start(cls, folder: Path, start: Path) -> Encoder:
        """Return the encoder with the weights of a file (`training.encoder.start`), and new heads if it has none."""
        model = cls(read_configuration(folder))
        with np.load(start) as packed:
            tensors = {name: torch.from_numpy(packed[name]) for name in packed.files}
        own = {name: tensors.pop(name) for name in list(tensors) if name.startswith(("join.", "heads."))}
        model.load_state_dict(own, strict=False)
        missing, unexpected = model.encoder.load_state_dict(tensors, strict=False)
        assert not unexpected, unexpected
        assert all("position_ids" in name for name in missing), missing
        return model

    def forward(self, tokens: Tensor, mask: Tensor, kinds: Tensor) -> dict[str, Tensor]:
        """Return the outputs of every head; `kinds` is 0 on the tokens of the claim."""
        hidden = self.encoder(input_ids=tokens, attention_mask=mask, token_type_ids=kinds).last_hidden_state
        claim = ((1 - kinds) * mask).unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * claim).sum(1) / claim.sum(1).clamp(min=1)
        largest = (hidden + (claim - 1) * 1e4).amax(1)
        joined = nn.functional.gelu(self.join(torch.cat([hidden[:, 0], mean, largest], dim=-1)))
        return {name: head(joined) for name, head in self.heads.items()}
