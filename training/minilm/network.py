"""The cross-encoder as it is trained: MiniLM-L6, two logits for a pair of texts, one for each token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from training.minilm.examples import Example
from transformers import AutoModel

from ragfault.judges.minilm.encoder import (
    END_TOKEN,
    LAYER_COUNT,
    MAX_CLAIM_TOKENS,
    MAX_EVIDENCE_TOKENS,
    START_TOKEN,
    Array,
    TokenPair,
    apply_delta,
    encode_pair,
    load_base_weights,
    load_delta,
)

__all__ = ["Batch", "Network", "Row", "batch", "encoded", "packaged", "restore", "state"]

WIDTH = 384
MAX_QUERY_TOKENS, MAX_PASSAGE_TOKENS = 40, 128
"""Further tokens of a query and of a passage are cut. Relevance is trained along, and not read at run time."""
KEYS = {"encoder": "m", "heads": "h", "token": "t"}
"""What `training/pack.py` calls the parts."""


class Row(NamedTuple):
    """An example in tokens."""

    pair: TokenPair
    head: int
    """Which logit it trains: 0 for support, 1 for relevance."""
    starts: tuple[int, ...]
    """Where each subject begins among the tokens of the first text, and where the last one ends."""
    labels: tuple[int, ...]
    marks: tuple[float, ...]
    """For each token of the first text whether people marked it; -1 where that is not known."""


class Batch(NamedTuple):
    """Rows as tensors, padded to the longest."""

    ids: Tensor
    mask: Tensor
    kinds: Tensor
    """1 for the second text."""
    marks: Tensor
    """-1 where nothing is known."""
    owners: Tensor
    """The row of each subject."""
    own: Tensor
    """1 for the tokens of each subject [subjects x tokens]; of one that is alone also its opening and end."""
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
        """Return the two logits of each subject, and a logit for each token."""
        seen = self.encoder(input_ids=batch.ids, attention_mask=batch.mask, token_type_ids=batch.kinds)
        last = seen.last_hidden_state.float()
        mean = torch.einsum("st,std->sd", batch.own, last[batch.owners]) / batch.own.sum(1, keepdim=True)
        return self.heads(torch.cat([mean, last[batch.owners, 0]], 1)), self.token(last).squeeze(-1)


def encoded(example: Example, split: Tokenizer, window: int | None) -> Row:
    """Return an example in tokens, cut as at run time; of a long passage the opening is read."""
    asked = example.kind == "relevance"
    room = MAX_QUERY_TOKENS if asked else MAX_CLAIM_TOKENS
    rest = MAX_PASSAGE_TOKENS if asked else MAX_EVIDENCE_TOKENS if window is None else window
    starts, marks, ids = [0], list[float](), list[int]()
    for text, spans in zip(example.subjects, example.spans, strict=True):
        part = split.encode(text, add_special_tokens=False)
        ids += part.ids[:room]
        starts.append(len(ids))
        marks += [
            -1.0 if spans is None else float(any(start < right and left < end for left, right in spans))
            for start, end in part.offsets[:room]
        ]
    others = encode_pair(split, "", example.others, 0, rest).ids[2:]
    pair = TokenPair((START_TOKEN, *ids, END_TOKEN, *others)[: window or None], len(ids) + 2, ())
    return Row(pair, int(asked), tuple(starts), example.labels, tuple(marks))


def batch(rows: Sequence[Row]) -> Batch:
    """Return rows as tensors."""
    shape = len(rows), max(len(row.pair.ids) for row in rows)
    ids, mask, kinds = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    marks = torch.full(shape, -1.0)
    owners = [place for place, row in enumerate(rows) for _ in row.labels]
    own = torch.zeros(len(owners), shape[1])
    subject = 0
    for place, row in enumerate(rows):
        size = len(row.pair.ids)
        ids[place, :size] = torch.tensor(row.pair.ids)
        mask[place, :size] = 1
        kinds[place, row.pair.first_length : size] = 1
        marks[place, 1 : 1 + len(row.marks)] = torch.tensor(row.marks)
        if len(row.labels) == 1:
            own[subject, : row.pair.first_length] = 1
        else:
            for at, (start, end) in enumerate(pairwise(row.starts)):
                own[subject + at, 1 + start : 1 + end] = 1
        subject += len(row.labels)
    labels = torch.tensor([float(label) for row in rows for label in row.labels])
    heads = torch.tensor([row.head for row in rows for _ in row.labels])
    return Batch(ids, mask, kinds, marks, torch.tensor(owners), own, heads, labels)


def state(network: Network) -> dict[str, Tensor]:
    """Return the weights under the names that `training/pack.py` reads."""
    result = {}
    for name, tensor in network.state_dict().items():
        part, _, rest = name.partition(".")
        result[f"{KEYS[part]}.{rest}"] = tensor
    return result


def packaged(folder: Path) -> dict[str, Tensor]:
    """Return the weights that the package carries, under the names of `state`."""
    weights = apply_delta(load_base_weights(folder), load_delta())
    result: dict[str, Array] = {
        "m.embeddings.word_embeddings.weight": weights["word"],
        "m.embeddings.position_embeddings.weight": weights["place"],
        "m.embeddings.token_type_embeddings.weight": weights["kind"],
        "m.embeddings.LayerNorm.weight": weights["norm.w"],
        "m.embeddings.LayerNorm.bias": weights["norm.b"],
    }
    for name, target in (("head", "h"), ("token", "t")):
        result |= {f"{target}.weight": weights[f"{name}.w"].T, f"{target}.bias": weights[f"{name}.b"]}
    parts = {"out": "attention.output.dense", "n1": "attention.output.LayerNorm", "up": "intermediate.dense",
             "down": "output.dense", "n2": "output.LayerNorm"}  # fmt: skip
    for number in range(LAYER_COUNT):
        at = f"m.encoder.layer.{number}."
        for name, source in parts.items():
            result |= {
                f"{at}{source}.weight": weights[f"{number}.{name}.w"].T,
                f"{at}{source}.bias": weights[f"{number}.{name}.b"],
            }
        for place, name in enumerate(("query", "key", "value")):
            columns = slice(place * WIDTH, (place + 1) * WIDTH)
            result[f"{at}attention.self.{name}.weight"] = weights[f"{number}.qkv.w"][:, columns].T
            result[f"{at}attention.self.{name}.bias"] = weights[f"{number}.qkv.b"][columns]
    return {name: torch.tensor(tensor.copy()) for name, tensor in result.items()}


def restore(network: Network, weights: dict[str, Tensor]) -> None:
    """Give the network weights by the names of `state`; those of the unused pooler stay."""
    names = {short: long for long, short in KEYS.items()}
    renamed = {f"{names[name[0]]}{name[1:]}": tensor for name, tensor in weights.items()}
    missing, unknown = network.load_state_dict(renamed, strict=False)
    if unknown or any("pooler" not in name and "position_ids" not in name for name in missing):
        raise ValueError(f"not the weights of this network: {[*missing, *unknown][:5]}")
