"""Weighing: how bad claims are, and what passages say for and against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ragfault.judges.embedded.examining import Examined, examine
from ragfault.judges.embedded.ground import Ground, foreign
from ragfault.judges.embedded.shapes import Shape, shape
from ragfault.judges.embedded.supporting import model
from ragfault.judges.embedded.vectors import Array
from ragfault.judges.entailment import Check

__all__ = ["Weighed", "weigh"]


class Weighed(NamedTuple):
    """Claims, and what some passages say for and against them."""

    texts: Sequence[str]
    ground: Ground
    features: Array
    checks: Sequence[Check | None]
    odds: Array
    """The log-odds that each is bad, before calibration."""
    whole: float
    """The log-odds that some of them is bad, before calibration."""
    shape: Shape
    strange: list[bool]
    """Whether each is in another language than the passages."""


def weigh(asked: Sequence[tuple[Sequence[str], Ground]], query: str) -> list[Weighed]:
    """Weigh bare claims against their grounds, all at once; each has claims, and each ground words."""
    seen = examine(asked, query)
    odds, strange = model().odds(seen), _strange(seen, [ground for _, ground in asked])
    ends = np.cumsum([len(claims) for claims, _ in asked]).tolist()
    parts = [slice(end - len(claims), end) for end, (claims, _) in zip(ends, asked, strict=True)]
    wholes = model().wholes([(odds[part], seen.features[part]) for part in parts])
    return [
        Weighed(
            claims,
            ground,
            seen.features[part],
            seen.checks[part],
            odds[part],
            whole,
            shape(query, claims, ground.records),
            strange[part],
        )
        for (claims, ground), part, whole in zip(asked, parts, wholes, strict=True)
    ]


def _strange(seen: Examined, grounds: Sequence[Ground]) -> list[bool]:
    """Whether each claim is in another language than its ground."""
    rows, _, values, owner = seen.states
    table = grounds[0].table
    told = np.concatenate([ground.rows[ground.tokens] for ground in grounds])
    speaker = np.arange(len(grounds)).repeat([len(ground.tokens) for ground in grounds])
    other = foreign(told, table, speaker)[seen.group]
    shared = (values[:, 1] > 0) & ~other[owner]
    found: list[bool] = (foreign(rows, table, owner, shared) != other).tolist()
    return found
