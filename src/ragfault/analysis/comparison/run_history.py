"""Histories of many runs: the run at which each metric broke."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.analysis.comparison.compare import ALPHA
from ragfault.analysis.comparison.decision_tree import TREE_METRICS
from ragfault.analysis.comparison.paired_runs import check_comparable
from ragfault.analysis.score_matrix import ScoreMatrix, metric_name
from ragfault.errors import RunError, UsageError
from ragfault.io.runs import MetricInfo, Run
from ragfault.records import Layer
from ragfault.stats import detect_change_point, holm_adjust


class MetricHistory(Struct, frozen=True, kw_only=True):
    """History of one metric over a sequence of runs, with its change point if there is one."""

    metric: str
    layer: Layer
    better: Literal["higher", "lower"]
    means: tuple[float, ...]
    """Its mean in each run, over the traces that are scored in all of them."""
    n: int
    """Those traces."""
    state: Literal["dropped", "rose", "cannot tell"]
    run: str | None
    """The first run after the change; None where none is shown."""
    before: float | None
    """The mean over the runs before the change."""
    after: float | None
    p: float
    adjusted: float
    """Corrected by Holm for all metrics."""
    between: tuple[str, str] | None
    """The first and the last run at which the change may have come, at 95 %."""

    @property
    def worsened(self) -> bool:
        """Return whether the metric changed for the worse."""
        return self.state == ("dropped" if self.better == "higher" else "rose")


class RunHistory(Struct, frozen=True, kw_only=True):
    """History of a sequence of runs, metric by metric."""

    runs: tuple[str, ...]
    """In the order of time."""
    traces: int
    """Those that are in every run."""
    alpha: float
    metrics: tuple[MetricHistory, ...]
    warnings: tuple[str, ...] = ()

    @property
    def broken_at(self) -> str | None:
        """Return the run at which most metrics of the decision tree got worse; None where none did."""
        places = [
            s.run for s in self.metrics if s.worsened and s.run is not None and metric_name(s.metric) in TREE_METRICS
        ]
        return max(sorted(set(places)), key=places.count) if places else None


def history(
    runs: Sequence[Run], *, metrics: Sequence[str] | None = None, alpha: float = ALPHA, seed: int = 0
) -> RunHistory:
    """Find the run at which each metric broke, in a sequence of runs over the same queries.

    Of each metric the change point of its mean over the runs is sought (one change, by CUSUM, with a permutation test
    over the traces), corrected by Holm over the metrics. Traces pair by id, else by query, over all runs.

    Raises UsageError for fewer than three runs (two are bisected), RunError where the judges differ or no
    trace is in all.
    """
    if len(runs) < 3:
        raise UsageError(f"a history has at least 3 runs, got {len(runs)}. Bisect two: ragfault bisect OLD NEW")
    for other in runs[1:]:
        check_comparable(runs[0], other)
    rows = _common_rows(runs)
    grids = [ScoreMatrix(run) for run in runs]
    names = [set(matrix.metric_names) for matrix in grids]
    shared = [m for m in grids[-1].measures if all(m.name in there for there in names)]
    chosen = [m for m in shared if metrics is None or m.name in metrics]
    tables = [(measure, _values_by_run(measure, grids, rows)) for measure in chosen]
    defined = [(measure, values) for measure, values in tables if len(values) > 1]
    changes = [detect_change_point(values, seed=seed) for _, values in defined]
    adjusted = holm_adjust([change.p for change in changes]) if changes else []
    labels = tuple(run.path.name for run in runs)
    steps = []
    for (measure, values), change, p in zip(defined, changes, adjusted, strict=True):
        real = p <= alpha
        steps.append(
            MetricHistory(
                metric=measure.name,
                layer=measure.layer,
                better=measure.better,
                means=tuple(values.mean(axis=0).tolist()),
                n=len(values),
                state=("rose" if change.after > change.before else "dropped") if real else "cannot tell",
                run=labels[change.step] if real else None,
                before=change.before if real else None,
                after=change.after if real else None,
                p=change.p,
                adjusted=p,
                between=(labels[change.low], labels[change.high]) if real else None,
            )
        )
    return RunHistory(runs=labels, traces=len(rows[0]), alpha=alpha, metrics=tuple(steps))


def _values_by_run(
    measure: MetricInfo, matrices: Sequence[ScoreMatrix], rows: Sequence[NDArray[np.int64]]
) -> NDArray[np.float64]:
    """Return the values of a metric, traces × runs, on the traces that are scored in all."""
    columns = []
    for matrix, places in zip(matrices, rows, strict=True):
        at = matrix.column_index(measure.name)
        assert at is not None
        columns.append(matrix.values[places, at])
    table = np.stack(columns, axis=1)
    complete: NDArray[np.float64] = table[np.isfinite(table).all(axis=1)]
    return complete


def _common_rows(runs: Sequence[Run]) -> list[NDArray[np.int64]]:
    """Return the rows of the traces that are in every run, in one order; by id, else by query."""
    for key in ("id", "query"):
        texts = [run.to_arrow("traces", [key])[key].to_pylist() for run in runs]
        places = [{text: row for row, text in reversed(list(enumerate(keys)))} for keys in texts]
        common = set.intersection(*map(set, places))
        least = min(len(keys) for keys in places)
        if common and (key == "query" or len(common) >= least / 2):
            ordered = [text for text in places[0] if text in common]
            return [np.array([keys[text] for text in ordered], dtype=np.int64) for keys in places]
    raise RunError(f"no trace is in all of {', '.join(str(run.path) for run in runs)}, by id or by query.")
