"""The convolutional network over the words of a claim, trained on labels of claims and of words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ragfault.judges.embedded.network import STATE_SIZE
from ragfault.judges.embedded.word_vectors import Array, load_vectors

__all__ = ["ClaimSequences", "pack_network", "predict", "predict_words", "train"]

HIDDEN_SIZE, OWN_SIZE, SHARED_SIZE = 64, 32, 32
EPOCHS, BATCH_SIZE = 4, 128
MAX_WORDS = 80
LEARNING_RATES = (3e-3, 2e-3)
"""At most: of the vectors of words, and of all other parameters."""
WARMUP_SHARE, LEAST_RATE_SHARE = 0.05, 0.02
"""The share of the steps in which the learning rate rises, and the share of it that is left at the end."""
TOKEN_LOSS_WEIGHT = 0.7
"""The weight of the loss of words beside the loss of claims."""


class ClaimSequences(NamedTuple):
    """Claims as inputs of the network, with their labels; all lists have one entry for each claim."""

    rows: list[Array]
    """The row of each word in the table of vectors."""
    aligned_rows: list[Array]
    """The row of the word of the passages that is aligned with each word."""
    values: list[Array]
    """The state of each word."""
    features: Array
    """Of each claim, scaled."""
    marks: Array
    tokens: list[Array | None]

    def pick(self, rows: Sequence[int]) -> ClaimSequences:
        """Return the claims of some indexes."""
        lists = ([values[i] for i in rows] for values in (self.rows, self.aligned_rows, self.values))
        return ClaimSequences(*lists, self.features[rows], self.marks[rows], [self.tokens[i] for i in rows])


class WordNetwork(nn.Module):
    """Two convolutions over the words, pooled by maximum and mean, and two dense layers over these and the features."""

    def __init__(self, features: int) -> None:
        super().__init__()
        table = load_vectors()
        self.register_buffer("table", torch.tensor(table.table / table.norms[:, None]))
        self.own = nn.Embedding(len(table.table), OWN_SIZE)
        nn.init.normal_(self.own.weight, std=0.05)
        self.shared = nn.Linear(table.table.shape[1], SHARED_SIZE, bias=False)
        self.first = nn.Conv1d(OWN_SIZE + 2 * SHARED_SIZE + STATE_SIZE, HIDDEN_SIZE, 5, padding=2)
        self.second = nn.Conv1d(HIDDEN_SIZE, HIDDEN_SIZE, 3, padding=1)
        self.word = nn.Linear(HIDDEN_SIZE, 1)
        self.middle = nn.Linear(2 * HIDDEN_SIZE + 1 + features, 64)
        self.last = nn.Linear(64, 1)

    def forward(
        self, rows: Tensor, aligned_rows: Tensor, values: Tensor, mask: Tensor, features: Tensor
    ) -> tuple[Tensor, Tensor]:
        claim_vectors, aligned_vectors, own_vectors = (
            self.shared(self.table[rows]),
            self.shared(self.table[aligned_rows]),
            self.own(rows),
        )
        if self.training:
            own_vectors = own_vectors * (torch.rand(own_vectors.shape[:2]) > 0.15)[..., None]
        inputs = functional.dropout(
            torch.cat([own_vectors, claim_vectors * aligned_vectors, claim_vectors - aligned_vectors, values], 2),
            0.1,
            self.training,
        )
        hidden = torch.relu(self.first((inputs * mask[..., None]).transpose(1, 2)))
        hidden = functional.dropout(hidden, 0.1, self.training)
        hidden = torch.relu(self.second(hidden * mask[:, None])).transpose(1, 2) * mask[..., None]
        words = self.word(hidden).squeeze(2)
        top_word = words.masked_fill(mask == 0, -9).max(1, keepdim=True)[0]
        mean = hidden.sum(1) / mask.sum(1, keepdim=True)
        features = functional.dropout(features, 0.1, self.training)
        joined = torch.relu(self.middle(torch.cat([hidden.max(1)[0], mean, top_word, features], 1)))
        return self.last(functional.dropout(joined, 0.2, self.training)).squeeze(1), words


def _build_batch(claims: ClaimSequences, indexes: Sequence[int]) -> tuple[Tensor, ...]:
    length = min(MAX_WORDS, max(len(claims.rows[i]) for i in indexes))
    blank = load_vectors().blank_row
    rows = np.full((len(indexes), length), blank)
    aligned_rows = np.full((len(indexes), length), blank)
    values = np.zeros((len(indexes), length, STATE_SIZE), np.float32)
    mask, marks = np.zeros((len(indexes), length), np.float32), np.zeros((len(indexes), length), np.float32)
    for row, i in enumerate(indexes):
        size = min(length, len(claims.rows[i]))
        rows[row, :size], aligned_rows[row, :size] = claims.rows[i][:size], claims.aligned_rows[i][:size]
        values[row, :size], mask[row, :size] = claims.values[i][:size], 1
        tokens = claims.tokens[i]
        if tokens is not None:
            marks[row, :size] = tokens[:size]
    arrays = (
        rows,
        aligned_rows,
        values,
        mask,
        claims.features[indexes],
        marks,
        claims.marks[indexes].astype(np.float32),
    )
    return tuple(torch.tensor(array) for array in arrays)


def _iterate_batches(claims: ClaimSequences, random: np.random.Generator) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches of claims of similar length, in random order."""
    sizes = np.array([len(rows) for rows in claims.rows])
    order = random.permutation(len(sizes))
    window = 40 * BATCH_SIZE
    pieces = []
    for start in range(0, len(order), window):
        window_order = order[start : start + window]
        window_order = window_order[np.argsort(sizes[window_order], kind="stable")]
        pieces += [window_order[i : i + BATCH_SIZE] for i in range(0, len(window_order) - BATCH_SIZE + 1, BATCH_SIZE)]
    for piece in random.permutation(len(pieces)):
        yield _build_batch(claims, pieces[piece])


def train(claims: ClaimSequences, seed: int = 0, epochs: int = EPOCHS, *, own_vectors: bool = True) -> WordNetwork:
    """Train a network on claims, with or without a learned vector for each word beside the published one."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    network = WordNetwork(claims.features.shape[1])
    if not own_vectors:
        nn.init.zeros_(network.own.weight)
        network.own.weight.requires_grad_(False)
    other_parameters = [parameter for name, parameter in network.named_parameters() if name != "own.weight"]

    optimiser = torch.optim.AdamW(
        [{"params": [network.own.weight], "weight_decay": 1e-3}, {"params": other_parameters, "weight_decay": 1e-2}]
    )
    total, step = epochs * (len(claims.rows) // BATCH_SIZE), 0
    cross_entropy = functional.binary_cross_entropy_with_logits
    network.train()
    for _ in range(epochs):
        for *inputs, marks, label in _iterate_batches(claims, random):
            rate_factor = min(1, step / total / WARMUP_SHARE) * max(LEAST_RATE_SHARE, 1 - step / total)
            for group, rate in zip(optimiser.param_groups, LEARNING_RATES, strict=True):
                group["lr"] = rate * rate_factor
            logits, words = network(*inputs)
            inside = inputs[3] > 0
            loss = cross_entropy(logits, label) + TOKEN_LOSS_WEIGHT * cross_entropy(words[inside], marks[inside])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            step += 1
    return network.eval()


def predict(network: WordNetwork, claims: ClaimSequences) -> Array:
    """Predict the log-odds that each claim is bad."""
    result = np.zeros(len(claims.rows))
    for rows, odds, _ in _predict_batches(network, claims):
        result[rows] = odds
    return result


def predict_words(network: WordNetwork, claims: ClaimSequences) -> list[Array]:
    """Predict the log-odds that each word of each claim is bad; of a long claim the first words alone."""
    result: list[Array] = [np.zeros(0)] * len(claims.rows)
    for rows, _, words in _predict_batches(network, claims):
        for number, row in zip(rows.tolist(), words, strict=True):
            result[number] = row[: len(claims.rows[number])]
    return result


def _predict_batches(network: WordNetwork, claims: ClaimSequences) -> Iterator[tuple[Array, Array, Array]]:
    """Yield indexes of claims of similar length, the log-odds of the claims, and those of their words."""
    order = np.argsort([len(rows) for rows in claims.rows], kind="stable")
    with torch.inference_mode():
        for start in range(0, len(order), 256):
            indexes = order[start : start + 256]
            odds, words = network(*_build_batch(claims, indexes)[:5])
            yield indexes, odds.numpy(), words.numpy()


def pack_network(network: WordNetwork, used_rows: Array) -> dict[str, Array]:
    """Pack the weights of a network; of the learned vectors those of the rows that it was trained on, in eight bits."""
    state: dict[str, Any] = {name: array.numpy() for name, array in network.state_dict().items()}
    own_vectors = state.pop("own.weight")[used_rows]
    del state["table"]
    scale = np.abs(own_vectors).max() / 127
    arrays_by_name = {name: array.astype(np.float32) for name, array in state.items()}
    return {
        **arrays_by_name,
        "own.rows": used_rows.astype(np.int32),
        "own.weight": (own_vectors / scale).round().astype(np.int8),
        "own.scale": np.array(scale, np.float32),
    }
