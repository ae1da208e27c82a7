"""Histories of many runs: the runs at which each metric changed, the step that broke a layer, and its recovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.comparison.bisection import bisect_pairs
from ragfault.comparison.decision_tree import TREE_METRICS
from ragfault.comparison.paired_runs import PairedRuns, check_comparable, describe_sample, pair_runs
from ragfault.comparison.records import Bisection
from ragfault.comparison.settings import BisectionSettings, HistorySettings
from ragfault.diagnosis.causes.selection import parse_causes
from ragfault.diagnosis.causes.table import CAUSES
from ragfault.diagnosis.run_table import RunTable, list_text_warnings
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.io.runs.run import AnyRun, MetricInfo, Run, open_run
from ragfault.io.runs.samples import sample_runs
from ragfault.model.causes import CauseName
from ragfault.model.errors import RunError, UsageError
from ragfault.model.printing import PrintedResult
from ragfault.model.records import Layer
from ragfault.model.settings import accept_fields
from ragfault.stats.sequences import MeanShifts, detect_mean_shifts
from ragfault.stats.significance import sign_flip_test

# of a drop that may remain where a metric is said to have recovered
RECOVERED_SHARE = 0.25

Floats = NDArray[np.float64]


class MetricShift(Struct, frozen=True, kw_only=True):
    """Shown change of the level of a metric at one run of a sequence."""

    run: str
    """The first run after the change."""
    state: Literal["dropped", "rose"]
    before: float
    """The mean over the runs since the change before it, or since the first run."""
    after: float
    """The mean over the runs until the next change, or until the last run."""
    between: tuple[str, str]
    """The first and the last run at which the change may have come, at 95 %."""
    recovered_at: str | None = None
    """Where it is a change for the worse: the run at which the metric was back; None where that is not shown."""


class MetricHistory(Struct, frozen=True, kw_only=True):
    """History of one metric over a sequence of runs, with the changes of its level."""

    metric: str
    layer: Layer
    better: Literal["higher", "lower"]
    means: tuple[float, ...]
    """Its mean in each run, over the traces that are scored in all of them."""
    n: int
    """Those traces."""
    shifts: tuple[MetricShift, ...]
    """In the order of the runs; none where no change is shown."""
    gradual: bool
    """Whether the changes are those of a drift: a straight line describes the means better than a single change."""
    adjusted: float
    """p that nothing changed, corrected for all metrics."""

    @property
    def worsenings(self) -> tuple[MetricShift, ...]:
        """Return the changes for the worse."""
        return tuple(shift for shift in self.shifts if (shift.state == "dropped") == (self.better == "higher"))

    @property
    def verdict(self) -> Literal["worse", "better", "recovered", "cannot tell"]:
        """Return what the changes come to: worse while a worsening has not recovered."""
        if not self.shifts:
            return "cannot tell"
        if not self.worsenings:
            return "better"
        return "recovered" if all(shift.recovered_at for shift in self.worsenings) else "worse"


class CauseHistory(Struct, frozen=True, kw_only=True):
    """Bad answers with one cause over a sequence of runs."""

    cause: CauseName
    title: str
    """The cause in words."""
    answers: tuple[int, ...]
    """Bad answers with this cause in each run, of the traces that are in all of them."""
    shifts: tuple[MetricShift, ...] = ()
    """Shown changes of their share, in the order of the runs; none where the cause is not followed."""


class RunStep(Struct, frozen=True, kw_only=True):
    """Bisection of two runs of a sequence in short."""

    baseline: str
    candidate: str
    verdict: Literal["fault", "no fault", "cannot tell"]
    sentence: str
    layer: str | None
    """The layer of the first fault; None where no fault is shown."""
    title: str | None
    metrics: tuple[str, ...]
    """The evidence of the first fault."""


class RunBreak(Struct, frozen=True, kw_only=True):
    """Run of a sequence at which metrics of the decision tree got worse, and the run at which they were back."""

    run: str
    """The first run that was worse; of a drift the last run."""
    layer: str | None
    """The layer that the bisection of this step names; None where it names none."""
    title: str | None
    metrics: tuple[str, ...]
    recovered_at: str | None
    """The run at which all of them were back; None where that is not shown."""
    gradual: bool = False
    """Whether it is a drift, which no single run explains."""


class RunHistory(PrintedResult, Struct, frozen=True, kw_only=True):
    """History of a sequence of runs: each step, each metric, what broke and what recovered."""

    runs: tuple[str, ...]
    """In the order of time."""
    traces: int
    """Those that are in every run."""
    alpha: float
    """Half of it is spent on the changes of the metrics, half on the bisections, divided by their number."""
    metrics: tuple[MetricHistory, ...]
    steps: tuple[RunStep, ...]
    """Each run bisected against the one before."""
    overall: RunStep
    """The last run bisected against the first."""
    breaks: tuple[RunBreak, ...]
    """In the order of the runs; a drift comes last."""
    bad: tuple[int, ...] = ()
    """Bad answers of each run, of the traces that are in all of them."""
    causes: tuple[CauseHistory, ...] = ()
    """Those of any run, or those that are followed; most answers in the last run first."""
    warnings: tuple[str, ...] = ()

    @property
    def broken_at(self) -> str | None:
        """Return the first run that broke and has not recovered, else the first that broke; None where none did."""
        sharp = [part for part in self.breaks if not part.gradual]
        lasting = [part for part in sharp if part.recovered_at is None]
        return next((part.run for part in (*lasting, *sharp)), None)

    @property
    def verdict(self) -> Literal["fault", "recovered", "no fault", "cannot tell"]:
        """Return the verdict over the sequence.

        A fault where a break has not recovered or the last run is worse than the first; recovered where every break
        has; no fault where every step and the whole are shown to have none.
        """
        if self.overall.verdict == "fault" or any(part.recovered_at is None for part in self.breaks):
            return "fault"
        if self.breaks:
            return "recovered"
        steady = all(step.verdict == "no fault" for step in (*self.steps, self.overall))
        return "no fault" if steady else "cannot tell"


@accept_fields(HistorySettings)
def history(runs: Sequence[AnyRun], settings: HistorySettings) -> RunHistory:
    """Find the runs at which each metric changed, the layer that broke there, and whether it recovered.

    Each run is bisected against the one before, and the last against the first, at half of `alpha` divided by the
    number of bisections. The other half is spent on the changes of each metric's level over the runs, on the traces
    that are in all of them; there can be several (`stats.detect_mean_shifts`). A metric of the decision tree that got
    worse has recovered at a later run where it is shown to have risen, no drop from its level before the break is
    shown any more, and at most a quarter of the drop is left. `metrics` (by their full text) selects whose level is
    followed; the other fields are those of `bisect`, and the `sample` of traces of larger runs. A trace on which a
    mismatch of two runs concerns a metric does not count for the level of that metric. Bad answers are counted by cause
    over the traces that are in all runs; the share of those with one of the `causes` is followed like a metric, each
    corrected for the others.

    Raises UsageError for fewer than three runs (two are bisected), UnknownName for a cause that there is not, RunError
    where the judges differ or no trace is in all.

    >>> import tempfile
    >>> from ragfault import Chunk, Gold, Trace, history, evaluate
    >>> def retrieve(number, chunk):
    ...     chunks, gold = (Chunk(id=chunk, text=f"Pier {chunk}."),), Gold(chunks={"a": 1.0})
    ...     return Trace(id=f"{number}", query=f"When does ferry {number} leave?", chunks=chunks, gold=gold)
    >>> old = [retrieve(number, "a") for number in range(40)]
    >>> new = [retrieve(number, "ab"[number % 2]) for number in range(40)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = [evaluate(side, f"{folder}/{at}", metrics=["recall"]) for at, side in enumerate((old, new, old))]
    ...     result = history(runs)
    >>> [(level.metric, level.means) for level in result.metrics]
    [('recall', (1.0, 0.5, 1.0))]
    """
    if len(runs) < 3:
        raise UsageError(f"a history has at least 3 runs, got {len(runs)}. Bisect two: ragfault bisect OLD NEW")
    return _follow_runs([open_run(run) for run in runs], settings)


def _follow_runs(runs: Sequence[Run], settings: HistorySettings) -> RunHistory:
    anyway, alpha, followed = settings.anyway, settings.alpha, parse_causes(settings.causes)
    runs = sample_runs(runs, settings.sample)
    warnings = [text for other in runs[1:] for text in check_comparable(runs[0], other, anyway=anyway)]
    warnings += (*list_text_warnings(*runs), *describe_sample(*runs))
    rows = _common_rows(runs)
    labels = _name_runs(runs)
    # one bisection for each step, and one over all
    terms = replace(BisectionSettings.select(settings), alpha=alpha / 2 / len(runs))
    pairs = [*pairwise(range(len(runs))), (0, len(runs) - 1)]
    clusters: NDArray[np.int64] | None = None
    bisections, left_out = list[Bisection](), dict[str, NDArray[np.bool_]]()
    for old, new in pairs:
        side = pair_runs(runs[old], runs[new], anyway=anyway, sample=0)
        if not bisections and (codes := side.matrices[0].clusters) is not None:
            clusters = codes[rows[0]]
        bisections.append(bisect_pairs(side, terms))
        _mark_incomparable(side, rows[old], left_out)
        # what was read of these runs is not held while the next ones are read
        del side
    *steps, overall = [
        _shorten(result, labels[old], labels[new]) for result, (old, new) in zip(bisections, pairs, strict=True)
    ]
    for result, (_, new) in zip(bisections, pairs[:-1], strict=False):
        named = [mismatch.sentence for mismatch in result.comparison.mismatches if mismatch.blocks]
        warnings += [f"{labels[new]} is not comparable with the run before: {'; '.join(named)}"] if named else []
    metric_histories = _follow_metrics(runs, rows, settings, left_out, clusters)
    named_causes = _read_causes(runs, rows)
    return RunHistory(
        runs=labels,
        traces=len(rows[0]),
        alpha=alpha,
        metrics=metric_histories,
        steps=tuple(steps),
        overall=overall,
        breaks=_find_breaks(labels, metric_histories, steps, bisections),
        bad=tuple(np.not_equal(named_causes, "").sum(axis=0).tolist()),
        causes=_count_causes(named_causes, followed, labels, settings, clusters),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _mark_incomparable(side: PairedRuns, rows: NDArray[np.int64], left_out: dict[str, NDArray[np.bool_]]) -> None:
    """Mark the traces of all runs, rows of the baseline, on which a metric cannot be followed over a step."""
    places = np.full(side.runs[0].manifest.traces, -1)
    places[side.pairing.baseline] = np.arange(len(side.pairing))
    at = places[rows]
    for name in side.matrices[0].metric_names:
        if name in side.matrices[1].metric_names:
            marked = side.find_incomparable(name)[at] & (at >= 0)
            left_out[name] = left_out[name] | marked if name in left_out else marked


def _name_runs(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the folder name of each run, else its path where two have the same."""
    names = [run.path.name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.path) for run in runs]
    return tuple(name if names.count(name) == 1 else f"{name} ({at})" for at, name in enumerate(names, 1))


def _shorten(result: Bisection, baseline: str, candidate: str) -> RunStep:
    first = result.faults[0] if result.faults else None
    return RunStep(
        baseline=baseline,
        candidate=candidate,
        verdict=result.verdict,
        sentence=result.sentence,
        layer=None if first is None else first.layer,
        title=None if first is None else first.title,
        metrics=() if first is None else tuple(change.metric for change in first.evidence),
    )


def _follow_metrics(
    runs: Sequence[Run],
    rows: Sequence[NDArray[np.int64]],
    settings: HistorySettings,
    left_out: Mapping[str, NDArray[np.bool_]],
    clusters: NDArray[np.int64] | None,
) -> tuple[MetricHistory, ...]:
    matrices = [RunTable(run) for run in runs]
    names = [set(matrix.metric_names) for matrix in matrices]
    shared = [measure for measure in matrices[-1].measures if all(measure.name in there for there in names)]
    chosen = [measure for measure in shared if settings.metrics is None or measure.name in settings.metrics]
    tables = [
        (measure, np.where(left_out[measure.name][:, None], np.nan, _values_by_run(measure, matrices, rows)))
        for measure in chosen
    ]
    tables = [(measure, table) for measure, table in tables if np.isfinite(table).all(axis=1).sum() > 1]
    labels, alpha, seed = _name_runs(runs), settings.alpha / 2, settings.seed
    detected = detect_mean_shifts([table for _, table in tables], clusters, alpha=alpha, seed=seed)
    histories = []
    for (measure, table), shifts in zip(tables, detected, strict=True):
        complete = np.isfinite(table).all(axis=1)
        values, groups = table[complete], None if clusters is None else clusters[complete]
        levels, records = _describe_shifts(values, shifts, labels)
        sign = 1.0 if measure.better == "higher" else -1.0
        histories.append(
            MetricHistory(
                metric=measure.name,
                layer=measure.layer,
                better=measure.better,
                means=tuple(values.mean(axis=0).tolist()),
                n=len(values),
                shifts=_mark_recoveries(records, sign * levels, groups, alpha, seed),
                gradual=_is_gradual(values.mean(axis=0), records),
                adjusted=shifts.p,
            )
        )
    return tuple(histories)


def _describe_shifts(values: Floats, shifts: MeanShifts, labels: Sequence[str]) -> tuple[Floats, list[MetricShift]]:
    """Return the level of each trace between the changes, and the changes; values are traces × runs."""
    edges = [0, *(shift.step for shift in shifts.shifts), len(labels)]
    levels = np.stack([values[:, low:high].mean(axis=1) for low, high in pairwise(edges)], axis=1)
    means = levels.mean(axis=0).tolist()
    records = [
        MetricShift(
            run=labels[shift.step],
            state="rose" if after > before else "dropped",
            before=before,
            after=after,
            between=(labels[shift.low], labels[shift.high]),
        )
        for shift, before, after in zip(shifts.shifts, means, means[1:], strict=False)
    ]
    return levels, records


def _read_causes(runs: Sequence[Run], rows: Sequence[NDArray[np.int64]]) -> NDArray[np.str_]:
    """Return the cause of each answer, traces × runs; "" where it is not bad."""
    columns = []
    for run, own in zip(runs, rows, strict=True):
        causes = RunTable(run).causes
        columns.append([causes[row].cause or "" for row in own.tolist()])
    return np.array(columns, dtype=np.str_).T


def _count_causes(
    named: NDArray[np.str_],
    followed: Sequence[CauseName],
    labels: Sequence[str],
    settings: HistorySettings,
    clusters: NDArray[np.int64] | None,
) -> tuple[CauseHistory, ...]:
    """Count the bad answers by cause, or those with the followed causes, whose changes are found."""
    causes = followed or [name for name in CAUSES if (named == name).any()]
    tables = [(named == name).astype(np.float64) for name in causes]
    detected = detect_mean_shifts(tables if followed else [], clusters, alpha=settings.alpha / 2, seed=settings.seed)
    shifts = {
        name: _mark_recoveries(records, -levels, clusters, settings.alpha / 2, settings.seed)
        for name, table, mean_shifts in zip(causes, tables, detected, strict=False)
        for levels, records in [_describe_shifts(table, mean_shifts, labels)]
    }
    histories = [
        CauseHistory(
            cause=name,
            title=CAUSES[name].title,
            answers=tuple(table.sum(axis=0).astype(int).tolist()),
            shifts=shifts.get(name, ()),
        )
        for name, table in zip(causes, tables, strict=True)
    ]
    return tuple(sorted(histories, key=lambda entry: -entry.answers[-1]))


def _mark_recoveries(
    shifts: Sequence[MetricShift], levels: Floats, clusters: NDArray[np.int64] | None, alpha: float, seed: int
) -> tuple[MetricShift, ...]:
    """Mark each change for the worse with the run at which the metric was back; levels are traces × levels."""
    means = levels.mean(axis=0)
    marked = []
    for at, shift in enumerate(shifts):
        drop = means[at] - means[at + 1]
        back = None
        for later in range(at + 1, len(shifts)) if drop > 0 else ():
            left = means[at] - means[later + 1]
            if means[later + 1] <= means[later] or left > RECOVERED_SHARE * drop:
                continue
            test = sign_flip_test(levels[:, at], levels[:, later + 1], clusters, seed=seed)
            if left <= 0 or test.p > alpha:
                back = shifts[later].run
                break
        marked.append(replace(shift, recovered_at=back))
    return tuple(marked)


def _is_gradual(means: Floats, shifts: Sequence[MetricShift]) -> bool:
    """Return whether a straight line describes the means of the runs better than the best single change."""
    if not shifts or len({shift.state for shift in shifts}) > 1:
        return False
    steps = np.arange(len(means))
    line = np.polyval(np.polyfit(steps, means, 1), steps)
    single = min(
        float(((means[:cut] - means[:cut].mean()) ** 2).sum() + ((means[cut:] - means[cut:].mean()) ** 2).sum())
        for cut in range(1, len(means))
    )
    return float(((means - line) ** 2).sum()) < single


def _values_by_run(measure: MetricInfo, matrices: Sequence[RunTable], rows: Sequence[NDArray[np.int64]]) -> Floats:
    """Return the values of a metric, traces × runs; NaN where it is not scored."""
    columns = []
    for matrix, places in zip(matrices, rows, strict=True):
        at = matrix.column_index(measure.name)
        assert at is not None
        columns.append(matrix.values[places, at])
    return np.stack(columns, axis=1)


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


def _find_breaks(
    labels: Sequence[str], histories: Sequence[MetricHistory], steps: Sequence[RunStep], bisections: Sequence[Bisection]
) -> tuple[RunBreak, ...]:
    """Group the worsenings of the tree's metrics by run, and add the steps whose bisection alone shows a fault."""
    place = {label: at for at, label in enumerate(labels)}
    faulty = [at for at, step in enumerate(steps, 1) if step.verdict == "fault"]
    groups: dict[int, list[tuple[str, str | None]]] = {}
    drifting: list[str] = []
    for entry in histories:
        if metric_name(entry.metric) not in TREE_METRICS or not entry.worsenings:
            continue
        if entry.gradual:
            drifting.append(entry.metric)
            continue
        for shift in entry.worsenings:
            at, low, high = (place[name] for name in (shift.run, *shift.between))
            near = sorted((abs(step - at), step) for step in faulty if low <= step <= high)
            groups.setdefault(near[0][1] if near else at, []).append((entry.metric, shift.recovered_at))
    breaks = []
    for at in sorted({*groups, *faulty}):
        step = steps[at - 1]
        evidence = groups.get(at)
        if evidence is None:
            if set(step.metrics) & set(drifting):
                continue
            evidence = [(name, _find_rise(name, labels, at, bisections)) for name in step.metrics]
        places = [None if back is None else place[back] for _, back in evidence]
        last = None if None in places else max(known for known in places if known is not None)
        breaks.append(
            RunBreak(
                run=labels[at],
                layer=step.layer,
                title=step.title,
                metrics=tuple(name for name, _ in evidence),
                recovered_at=None if last is None else labels[last],
            )
        )
    if drifting:
        names = tuple(drifting)
        drift = RunBreak(run=labels[-1], layer=None, title=None, metrics=names, recovered_at=None, gradual=True)
        breaks.append(drift)
    return tuple(breaks)


def _find_rise(metric: str, labels: Sequence[str], at: int, bisections: Sequence[Bisection]) -> str | None:
    """Return the run after `at` at which a metric is shown to have risen; None where it is worse in the end."""
    *steps, overall = (
        next((change.verdict for change in result.comparison.changes if change.metric == metric), None)
        for result in bisections
    )
    if overall == "worse":
        return None
    return next((labels[step] for step in range(at + 1, len(labels)) if steps[step - 1] == "better"), None)
