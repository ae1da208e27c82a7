"""The network that reads the words of claims in a row, in plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ragfault.judges.embedded.states import States
from ragfault.judges.embedded.vectors import Array, Vectors

__all__ = ["Network"]

GAP = 2
"""So many blank words stand between two claims, as many as a convolution reaches."""
LONGEST = 80
"""So many words of a claim are read."""


class Network(NamedTuple):
    """Two convolutions over the words, and a small layer over what is strongest in them and the features."""

    shared: Array
    """For each word of the table its vector as the network sees it."""
    own: Array
    """For each word of the table what the network learned of it alone, in whole numbers of `scale`."""
    scale: Array
    first: tuple[Array, Array]
    second: tuple[Array, Array]
    word: tuple[Array, Array]
    middle: tuple[Array, Array]
    last: tuple[Array, Array]
    mean: Array
    deviation: Array

    @staticmethod
    def unpack(arrays: Mapping[str, Array], table: Vectors) -> Network:
        """The network in a file of weights."""
        known = {name.removeprefix("network."): part for name, part in arrays.items()}
        own = np.zeros((len(table.table), known["own.weight"].shape[1]), np.int8)
        own[known["own.rows"]] = known["own.weight"]
        unit = table.table / table.lengths[:, None]
        layers = {
            name: (_turned(known[f"{name}.weight"]), known[f"{name}.bias"])
            for name in ("first", "second", "word", "middle", "last")
        }
        mean, deviation = (known[name].astype(np.float32) for name in ("mean", "deviation"))
        shared = unit @ known["shared.weight"].T
        return Network(shared, own, known["own.scale"], **layers, mean=mean, deviation=deviation)

    def __call__(self, states: States, features: Array) -> Array:
        """The log-odds that each claim is bad."""
        owner = states.owner
        starts = owner.searchsorted(np.arange(len(features) + 1))
        rows, rivals, values = states.rows, states.rivals, states.values
        if (starts[1:] - starts[:-1]).max() > LONGEST:
            kept = np.arange(len(owner)) - starts[owner] < LONGEST
            owner, rows, rivals, values = owner[kept], rows[kept], rivals[kept], values[kept]
            starts = owner.searchsorted(np.arange(len(features) + 1))
        place = np.arange(len(owner)) + GAP * (owner + 1)
        one, two = self.shared[rows], self.shared[rivals]
        put = np.concatenate([self.own[rows] * self.scale, one * two, one - two, values], axis=1)
        held = _convolve(put, place, self.first)
        held = _convolve(held, place, self.second)
        words = held @ self.word[0] + self.word[1]
        starts, sizes = starts[:-1], (starts[1:] - starts[:-1])[:, None]
        scaled = np.minimum(np.maximum((features.astype(np.float32) - self.mean) / self.deviation, -4), 4)
        told = np.concatenate(
            [
                np.maximum.reduceat(held, starts),
                np.add.reduceat(held, starts) / sizes,
                np.maximum.reduceat(words, starts),
                scaled,
            ],
            axis=1,
        )
        middle = np.maximum(told @ self.middle[0] + self.middle[1], 0)
        odds: Array = (middle @ self.last[0] + self.last[1])[:, 0]
        return odds


def _turned(weight: Array) -> Array:
    """A layer's weights, inputs first: of a convolution [reach × inputs × outputs]."""
    return np.ascontiguousarray(weight.transpose(2, 1, 0) if weight.ndim == 3 else weight.T)


def _convolve(values: Array, place: Array, layer: tuple[Array, Array]) -> Array:
    """A convolution over words with blanks between the claims; negative sums become 0."""
    weight, bias = layer
    reach = len(weight) // 2
    row = np.zeros((int(place[-1]) + GAP + 1, values.shape[1]), np.float32)
    row[place] = values
    room = len(row) - 2 * reach
    summed = row[:room] @ weight[0]
    for step in range(1, len(weight)):
        summed += row[step : step + room] @ weight[step]
    held: Array = np.maximum(summed[place - reach] + bias, 0)
    return held
