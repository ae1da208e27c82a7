"""The network that reads the words of a claim in a row, trained on the words that people marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ragfault.judges.embedded.network import STATE_SIZE
from ragfault.judges.embedded.word_vectors import Array, load_vectors

__all__ = ["Claims", "arrays", "predict", "predict_words", "train"]

HIDDEN, OWN, SHARED = 64, 32, 32
EPOCHS, BATCH = 4, 128
LONGEST = 80


class Claims(NamedTuple):
    """Claims as the network takes them; all lists have one entry for each claim."""

    rows: list[Array]
    rivals: list[Array]
    values: list[Array]
    features: Array
    """Scaled."""
    marks: Array
    tokens: list[Array | None]

    def pick(self, rows: Sequence[int]) -> Claims:
        """Return some of them."""
        lists = ([values[i] for i in rows] for values in (self.rows, self.rivals, self.values))
        return Claims(*lists, self.features[rows], self.marks[rows], [self.tokens[i] for i in rows])


class Network(nn.Module):
    """Two convolutions over the words, and a small layer over what is strongest in them and the features."""

    def __init__(self, features: int) -> None:
        super().__init__()
        table = load_vectors()
        self.register_buffer("table", torch.tensor(table.table / table.norms[:, None]))
        self.own = nn.Embedding(len(table.table), OWN)
        nn.init.normal_(self.own.weight, std=0.05)
        self.shared = nn.Linear(table.table.shape[1], SHARED, bias=False)
        self.first = nn.Conv1d(OWN + 2 * SHARED + STATE_SIZE, HIDDEN, 5, padding=2)
        self.second = nn.Conv1d(HIDDEN, HIDDEN, 3, padding=1)
        self.word = nn.Linear(HIDDEN, 1)
        self.middle = nn.Linear(2 * HIDDEN + 1 + features, 64)
        self.last = nn.Linear(64, 1)

    def forward(
        self, rows: Tensor, rivals: Tensor, values: Tensor, mask: Tensor, features: Tensor
    ) -> tuple[Tensor, Tensor]:
        single, two, weight = self.shared(self.table[rows]), self.shared(self.table[rivals]), self.own(rows)
        if self.training:
            weight = weight * (torch.rand(weight.shape[:2]) > 0.15)[..., None]
        put = functional.dropout(torch.cat([weight, single * two, single - two, values], 2), 0.1, self.training)
        hidden = torch.relu(self.first((put * mask[..., None]).transpose(1, 2)))
        hidden = functional.dropout(hidden, 0.1, self.training)
        hidden = torch.relu(self.second(hidden * mask[:, None])).transpose(1, 2) * mask[..., None]
        words = self.word(hidden).squeeze(2)
        top_word = words.masked_fill(mask == 0, -9).max(1, keepdim=True)[0]
        mean = hidden.sum(1) / mask.sum(1, keepdim=True)
        features = functional.dropout(features, 0.1, self.training)
        joined = torch.relu(self.middle(torch.cat([hidden.max(1)[0], mean, top_word, features], 1)))
        return self.last(functional.dropout(joined, 0.2, self.training)).squeeze(1), words


def _batch(claims: Claims, at: Sequence[int]) -> tuple[Tensor, ...]:
    longest = min(LONGEST, max(len(claims.rows[i]) for i in at))
    blank = load_vectors().blank_row
    rows = np.full((len(at), longest), blank)
    rivals = np.full((len(at), longest), blank)
    values = np.zeros((len(at), longest, STATE_SIZE), np.float32)
    mask, marks = np.zeros((len(at), longest), np.float32), np.zeros((len(at), longest), np.float32)
    for row, i in enumerate(at):
        size = min(longest, len(claims.rows[i]))
        rows[row, :size], rivals[row, :size] = claims.rows[i][:size], claims.rivals[i][:size]
        values[row, :size], mask[row, :size] = claims.values[i][:size], 1
        tokens = claims.tokens[i]
        if tokens is not None:
            marks[row, :size] = tokens[:size]
    arrays = (rows, rivals, values, mask, claims.features[at], marks, claims.marks[at].astype(np.float32))
    return tuple(torch.tensor(array) for array in arrays)


def _batches(claims: Claims, random: np.random.Generator) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches of claims of like length, in random order."""
    sizes = np.array([len(rows) for rows in claims.rows])
    order = random.permutation(len(sizes))
    many = 40 * BATCH
    pieces = []
    for start in range(0, len(order), many):
        part = order[start : start + many]
        part = part[np.argsort(sizes[part], kind="stable")]
        pieces += [part[i : i + BATCH] for i in range(0, len(part) - BATCH + 1, BATCH)]
    for piece in random.permutation(len(pieces)):
        yield _batch(claims, pieces[piece])


def train(claims: Claims, seed: int = 0, epochs: int = EPOCHS, *, own: bool = True) -> Network:
    """Train a network on claims, with or without a vector of its own for each word."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    network = Network(claims.features.shape[1])
    if not own:
        nn.init.zeros_(network.own.weight)
        network.own.weight.requires_grad_(False)
    others = [parameter for name, parameter in network.named_parameters() if name != "own.weight"]
    rates = (3e-3, 2e-3)
    optimiser = torch.optim.AdamW(
        [{"params": [network.own.weight], "weight_decay": 1e-3}, {"params": others, "weight_decay": 1e-2}]
    )
    total, step = epochs * (len(claims.rows) // BATCH), 0
    loss_of = functional.binary_cross_entropy_with_logits
    network.train()
    for _ in range(epochs):
        for *put, marks, label in _batches(claims, random):
            share = min(1, step / total / 0.05) * max(0.02, 1 - step / total)
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * share
            logits, words = network(*put)
            inside = put[3] > 0
            loss = loss_of(logits, label) + 0.7 * loss_of(words[inside], marks[inside])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            step += 1
    return network.eval()


def predict(network: Network, claims: Claims) -> Array:
    """Return the log-odds that each claim is bad."""
    result = np.zeros(len(claims.rows))
    for rows, odds, _ in _run(network, claims):
        result[rows] = odds
    return result


def predict_words(network: Network, claims: Claims) -> list[Array]:
    """Return the log-odds that each word of each claim is bad; a long claim is cut."""
    result: list[Array] = [np.zeros(0)] * len(claims.rows)
    for rows, _, words in _run(network, claims):
        for number, row in zip(rows.tolist(), words, strict=True):
            result[number] = row[: len(claims.rows[number])]
    return result


def _run(network: Network, claims: Claims) -> Iterator[tuple[Array, Array, Array]]:
    """Yield some claims of like length, their log-odds, and those of their words."""
    order = np.argsort([len(rows) for rows in claims.rows], kind="stable")
    with torch.inference_mode():
        for start in range(0, len(order), 256):
            at = order[start : start + 256]
            odds, words = network(*_batch(claims, at)[:5])
            yield at, odds.numpy(), words.numpy()


def arrays(network: Network, used_rows: Array) -> dict[str, Array]:
    """Return the weights of a network; of the words' own vectors those of the rows that it has seen, in eight bits."""
    state: dict[str, Any] = {name: array.numpy() for name, array in network.state_dict().items()}
    weight = state.pop("own.weight")[used_rows]
    del state["table"]
    scale = np.abs(weight).max() / 127
    arrays_by_name = {name: array.astype(np.float32) for name, array in state.items()}
    return {
        **arrays_by_name,
        "own.rows": used_rows.astype(np.int32),
        "own.weight": (weight / scale).round().astype(np.int8),
        "own.scale": np.array(scale, np.float32),
    }
