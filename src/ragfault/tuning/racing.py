"""The race: candidates run on more and more questions, and those that are worse beyond doubt drop out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ragfault.retrieval.recipes import Recipe
from ragfault.stats import t_quantile
from ragfault.tuning.records import Outcome, Question

__all__ = ["Raced", "doubtful", "race"]

FIRST = 32
"""Questions of the first round; each next one has twice as many."""
DOUBT = 0.98
"""With this confidence a candidate is worse than the leader before it is dropped."""

Measure = Callable[[Recipe, Sequence[Question]], list[Outcome]]


class Raced(NamedTuple):
    """A candidate that came through, with its outcomes."""

    recipe: Recipe
    outcomes: list[Outcome]
    value: float


def race(
    candidates: Sequence[Recipe], questions: Sequence[Question], measure: Measure, keep: int = 1
) -> list[Raced]:
    """The best candidates over all questions, the best first: at most `keep`.

    Rounds of 32, 64, … questions, in their order. After each, candidates drop out that are worse than the leader beyond
    doubt (paired, one-sided, 98 %), and of the others the worse half, so far as more than twice `keep` are left:
    successive halving (Jamieson & Talwalkar 2016) with the races of Maron & Moore 1994. Of equal means the
    cheaper is the better.
    """
    field, sizes = list(candidates), rungs(len(questions))
    runs: dict[str, list[Outcome]] = {}
    for size in sizes:
        runs = {one.name: measure(one, questions[:size]) for one in field}
        field.sort(key=lambda one: _rank(runs[one.name]))
        if size == sizes[-1]:
            break
        values = {one.name: _values(runs[one.name]) for one in field}
        leader = values[field[0].name]
        field = [one for one in field if one is field[0] or doubtful(leader, values[one.name])]
        field = field[: max(2 * keep, -(-len(field) // 2))]
        if len(field) <= 1 and len(candidates) > 1 and keep == 1:
            runs = {one.name: measure(one, questions) for one in field}
            break
    return [Raced(one, runs[one.name], float(_values(runs[one.name]).mean())) for one in field[:keep]]


def rungs(questions: int) -> list[int]:
    """How many questions each round has.

    >>> rungs(150), rungs(20)
    ([32, 64, 150], [20])
    """
    sizes, size = [], FIRST
    while 2 * size <= questions:
        sizes.append(size)
        size *= 2
    return [*sizes, questions] if not sizes or sizes[-1] != questions else sizes


def doubtful(leader: Any, other: Any) -> bool:
    """Whether another may still be as good as the leader, by the paired differences.

    >>> import numpy as np
    >>> lead = np.linspace(0.5, 1, 40)
    >>> doubtful(lead, lead - 0.3 - 0.05 * np.sin(np.arange(40))), doubtful(lead, lead)
    (False, True)
    """
    gaps = np.asarray(other) - np.asarray(leader)
    error = float(gaps.std(ddof=1)) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.inf
    reach = t_quantile(DOUBT, max(1, len(gaps) - 1)) * error if error else 0.0
    return bool(gaps.mean() + reach >= 0) if math.isfinite(reach) else True


def _values(outcomes: Sequence[Outcome]) -> np.ndarray[Any, Any]:
    return np.array([one.value for one in outcomes])


def _rank(outcomes: Sequence[Outcome]) -> tuple[float, float, float]:
    """The better value first; among equal ones the quicker, then the one of fewer tokens."""
    found = np.array([(one.value, one.ms, one.tokens) for one in outcomes]).mean(axis=0)
    return -round(float(found[0]), 9), float(found[1]), float(found[2])
