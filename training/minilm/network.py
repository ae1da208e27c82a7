"""The cross-encoder as it is trained: MiniLM-L6, two logits for a pair of texts, one for each token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from training.minilm.examples import Example
from transformers import AutoModel

from ragfault.judges.minilm.encoder import (
    MAX_CLAIM_TOKENS,
    MAX_EVIDENCE_TOKENS,
    MAX_PASSAGE_TOKENS,
    MAX_QUERY_TOKENS,
    TokenPair,
    encode_pair,
)

__all__ = ["Batch", "Network", "Row", "batch", "encoded", "state"]

WIDTH = 384
KEYS = {"encoder": "m", "heads": "h", "token": "t"}
"""What `training/pack.py` calls the parts."""


class Row(NamedTuple):
    """An example in tokens."""

    pair: TokenPair
    head: int
    """Which logit it trains: 0 for support, 1 for relevance."""
    label: int
    marks: tuple[float, ...] | None
    """For each token of the claim whether people marked it; None where that is not known."""


class Batch(NamedTuple):
    """Rows as tensors, padded to the longest."""

    ids: Tensor
    mask: Tensor
    kinds: Tensor
    """1 for the second text."""
    marks: Tensor
    """-1 where nothing is known."""
    heads: Tensor
    labels: Tensor


class Network(nn.Module):
    """The published encoder with new heads; its embeddings stay as they are."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(str(folder))
        self.heads = nn.Linear(2 * WIDTH, 2)
        self.token = nn.Linear(WIDTH, 1)
        for part in (self.encoder.embeddings, self.encoder.pooler):
            for weight in part.parameters() if part is not None else ():
                weight.requires_grad = False

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the two logits of each row, and a logit for each token."""
        seen = self.encoder(input_ids=batch.ids, attention_mask=batch.mask, token_type_ids=batch.kinds)
        last = seen.last_hidden_state.float()
        own = (batch.mask * (1 - batch.kinds))[..., None].float()
        mean = (last * own).sum(1) / own.sum(1)
        return self.heads(torch.cat([mean, last[:, 0]], 1)), self.token(last).squeeze(-1)


def encoded(example: Example, split: Tokenizer) -> Row:
    """Return an example in tokens, cut as at run time; of a long passage the opening is read."""
    asked = example.kind == "relevance"
    room, rest = (MAX_QUERY_TOKENS, MAX_PASSAGE_TOKENS) if asked else (MAX_CLAIM_TOKENS, MAX_EVIDENCE_TOKENS)
    created = encode_pair(split, example.subject, example.others, room, rest)
    marks = None
    if example.spans is not None:
        marks = tuple(
            float(any(start < right and left < end for left, right in example.spans)) for start, end in created.spans
        )
    return Row(created, int(asked), example.label, marks)


def batch(rows: Sequence[Row]) -> Batch:
    """Return rows as tensors."""
    shape = len(rows), max(len(row.pair.ids) for row in rows)
    ids, mask, kinds = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    marks = torch.full(shape, -1.0)
    for place, row in enumerate(rows):
        size = len(row.pair.ids)
        ids[place, :size] = torch.tensor(row.pair.ids)
        mask[place, :size] = 1
        kinds[place, row.pair.first_length : size] = 1
        if row.marks is not None:
            marks[place, 1 : 1 + len(row.marks)] = torch.tensor(row.marks)
    labels = torch.tensor([float(row.label) for row in rows])
    return Batch(ids, mask, kinds, marks, torch.tensor([row.head for row in rows]), labels)


def state(network: Network) -> dict[str, Tensor]:
    """Return the weights under the names that `training/pack.py` reads."""
    result = {}
    for name, tensor in network.state_dict().items():
        part, _, rest = name.partition(".")
        result[f"{KEYS[part]}.{rest}"] = tensor
    return result
