"""Order of the generators of labeled answers, as people and as the judge have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from ragfault.labels.judges.measurement import AgreementFigure, GeneratorOrder, GeneratorRate
from ragfault.labels.judges.units import Bools, ScoredUnits
from ragfault.labels.reading.label_columns import get_value
from ragfault.model.records import Trace
from ragfault.stats.bootstrap import FloatArray, Resampling, bootstrap_estimates, divide_or_nan

GENERATOR_COLUMNS = ("generator", "model")
"""Columns that name what wrote an answer; the first that most traces have counts."""
MIN_GENERATORS, MAX_GENERATORS, MIN_UNITS = 3, 50, 10
"""An order has so many generators, those with the most units, and a generator so many units."""


MAX_VALUES = 20
"""Orders of at most so many values of a column, those with the most units."""


def find_generator_column(traces: Sequence[Trace]) -> str | None:
    """Return the column that names the generator of most traces; None without any."""
    counts = {name: sum(isinstance(get_value(trace, name), str) for trace in traces) for name in GENERATOR_COLUMNS}
    return next((name for name, count in counts.items() if 2 * count > len(traces)), None)


def compare_rankings(
    units: ScoredUnits, groups: Sequence[str], traces: Sequence[Trace], by: Sequence[str], options: Resampling
) -> Iterator[GeneratorOrder]:
    """Yield the order of the generators on all units, and for each value of the columns `by`, where there are enough.

    `groups` and `traces` go with the units.
    """
    column = find_generator_column(traces)
    if column is None or units.unit == "chunk":
        return
    names = np.array([str(get_value(trace, column)) for trace in traces], object)
    selections: dict[tuple[str | None, str | None], Bools] = {(None, None): np.ones(len(names), bool)}
    for name in by:
        values = np.array([str(get_value(trace, name)) for trace in traces], object)
        largest = Counter(values.tolist()).most_common(MAX_VALUES)
        selections |= {(name, value): values == value for value, _ in largest}
    for (divided_by, value), mask in selections.items():
        selected = [group for group, flag in zip(groups, mask.tolist(), strict=True) if flag]
        order = _compare_order(column, units.select(mask), names[mask].tolist(), selected, options)
        if order is not None:
            yield replace(order, by=divided_by, value=value)


def _compare_order(
    column: str, units: ScoredUnits, names: Sequence[str], groups: Sequence[str], options: Resampling
) -> GeneratorOrder | None:
    counts = Counter(names)
    largest = sorted(counts, key=lambda name: (-counts[name], name))[:MAX_GENERATORS]
    generators = sorted(name for name in largest if counts[name] >= MIN_UNITS)
    if len(generators) < MIN_GENERATORS:
        return None
    member = (np.array(names, object)[:, None] == np.array(generators, object)[None, :]).astype(np.float64)

    def rates(weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        sizes = weights @ member
        return tuple(divide_or_nan(weights @ (member * row[:, None]), sizes) for row in (units.label, units.score))  # type: ignore[return-value]

    human, judge = (row[0].tolist() for row in rates(np.ones((1, len(names)))))
    (tau,) = bootstrap_estimates(
        lambda weights: kendall_tau(*rates(weights))[:, None], groups, options, limits={0: (-1.0, 1.0)}
    )
    rows = sorted(zip(human, generators, judge, strict=True))
    reason = None if tau.value is not None else "people or the judge have all generators alike"
    return GeneratorOrder(
        column=column,
        generators=tuple(
            GeneratorRate(name=name, n=counts[name], human=rate, judge=score) for rate, name, score in rows
        ),
        kendall_tau=AgreementFigure(
            name="kendall_tau", value=tau.value, low=tau.low, high=tau.high, n=len(generators), reason=reason
        ),
    )


def kendall_tau(left: FloatArray, right: FloatArray) -> FloatArray:
    """Compute Kendall's τ-b of each row of two arrays: 1 is the same order, 0 none, -1 the opposite.

    Ties count for neither. NaN where a row has no value that differs, or one that is undefined.

    >>> kendall_tau(np.array([[1.0, 2.0, 3.0]]), np.array([[0.1, 0.3, 0.2]])).round(3)
    array([0.333])
    """
    left_order, right_order = (np.sign(row[:, :, None] - row[:, None, :]) for row in (left, right))
    agreement: FloatArray = (left_order * right_order).sum(axis=(1, 2))
    pairs = (left_order**2).sum(axis=(1, 2)) * (right_order**2).sum(axis=(1, 2))
    return divide_or_nan(agreement, np.sqrt(pairs))
