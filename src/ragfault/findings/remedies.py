"""Over all traces: the worst of them, and the remedies that most of them need."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from ragfault.errors import RunError, UnknownName
from ragfault.findings.diagnosis import diagnose
from ragfault.findings.grid import SCORED, Grid, bare, open_grid, span
from ragfault.findings.health import level
from ragfault.findings.kinds import KINDS
from ragfault.findings.records import Diagnosis, Kind, Remedy
from ragfault.runs import Run

__all__ = ["diagnoses", "remedies", "worst"]

EXAMPLES = 5
"""How many traces a remedy names."""


def diagnoses(source: Run | Grid, ids: Sequence[str] | None = None) -> Iterator[Diagnosis]:
    """The diagnosis of every trace, in order, with its triad and quality level where the run has them.

    With `ids`, only those of these traces.

    Raises UnknownName for an id that no trace has.
    """
    run = source.run if isinstance(source, Grid) else source
    if ids is None:
        triads = _triads(open_grid(source))
    else:
        _known(run, ids)
        rows = [row for row in run.scores(ids) if bare(row.metric) == "triad"]
        triads = {row.trace: row.value for row in reversed(rows) if row.value is not None}
    for trace, verdicts in zip(run.traces(ids), run.verdicts(ids), strict=True):
        if trace.id != verdicts.trace:
            raise RunError(f"{run.path}: traces and verdicts are not in the same order. Evaluate again.")
        found = diagnose(trace, verdicts)
        triad = triads.get(trace.id)
        yield found if triad is None else replace(found, triad=triad, quality=level(triad).name)


def _triads(grid: Grid) -> dict[str, float]:
    """The triad of every trace that has one."""
    at = grid.base("triad")
    if at is None:
        return {}
    ids = grid.run.to_arrow("traces", ["id"])["id"].to_pylist()
    rows = np.flatnonzero(grid.status[:, at] == SCORED).tolist()
    return {ids[row]: float(grid.values[row, at]) for row in rows}


def _known(run: Run, ids: Sequence[str]) -> None:
    known = run.to_arrow("traces", ["id"])["id"].to_pylist()
    for name in set(ids) - set(known):
        raise UnknownName(f"trace in {run.path.name}", name, known)


def worst(source: Run | Grid, n: int = 10) -> tuple[Diagnosis, ...]:
    """The `n` traces with most to show, worst first; those without a problem are not among them.

    Traces whose pipeline failed come first. Else a trace is as bad as 1 − its triad, or, where it has
    none, as the share of the things looked at that are problems; then by the number of problems, then in the
    order of the run.
    """
    return Tally(diagnoses(source), n).worst()


def remedies(source: Run | Grid, examples: int = EXAMPLES) -> tuple[Remedy, ...]:
    """The kinds of problem of a run with what mends them, that on most traces first."""
    grid = open_grid(source)
    return Tally(diagnoses(grid), 0).remedies(grid, examples)


def badness(found: Diagnosis) -> float:
    """How bad a trace is, for ranking: in [0, 1], and above that where the pipeline failed."""
    if any(problem.kind == "pipeline_error" for problem in found.problems):
        return 2.0
    if found.triad is not None:
        return 1 - found.triad
    return min(1.0, len(found.problems) / found.checked) if found.checked else 0.0


class Tally:
    """One walk over the diagnoses of a run, of which only the worst are kept."""

    def __init__(self, found: Iterator[Diagnosis], n: int) -> None:
        self._heap: list[tuple[float, int, int, Diagnosis]] = []
        self._count: Counter[Kind] = Counter()
        self._rows: defaultdict[Kind, list[int]] = defaultdict(list)
        self._names: defaultdict[Kind, list[tuple[float, int, str]]] = defaultdict(list)
        for row, diagnosis in enumerate(found):
            if diagnosis.problems:
                self._take(row, diagnosis, n)

    def _take(self, row: int, found: Diagnosis, n: int) -> None:
        bad = badness(found)
        if n:
            push = heapq.heappush if len(self._heap) < n else heapq.heappushpop
            push(self._heap, (bad, len(found.problems), -row, found))
        kinds = Counter(problem.kind for problem in found.problems)
        self._count += kinds
        for kind in kinds:
            self._rows[kind].append(row)
            names = self._names[kind]
            push_name = heapq.heappush if len(names) < EXAMPLES else heapq.heappushpop
            push_name(names, (bad, -row, found.trace))

    def worst(self) -> tuple[Diagnosis, ...]:
        """The worst, worst first."""
        return tuple(entry[-1] for entry in sorted(self._heap, key=lambda entry: entry[:3], reverse=True))

    def remedies(self, grid: Grid, examples: int = EXAMPLES) -> tuple[Remedy, ...]:
        """The remedies, that of most traces first; the examples are the worst traces that show it."""
        ranked = sorted(self._rows, key=lambda kind: (-len(self._rows[kind]), -self._count[kind], kind))
        return tuple(self._remedy(kind, grid, examples) for kind in ranked)

    def _remedy(self, kind: Kind, grid: Grid, examples: int) -> Remedy:
        shows = np.zeros(grid.traces, dtype=bool)
        shows[self._rows[kind]] = True
        share = span(shows, grid.clusters)
        assert share is not None  # a run has traces
        meaning = KINDS[kind]
        return Remedy(
            kind=kind,
            layer=meaning.layer,
            title=meaning.title,
            steps=meaning.steps,
            problems=self._count[kind],
            traces=len(self._rows[kind]),
            share=share,
            examples=tuple(name for _, _, name in sorted(self._names[kind], reverse=True))[:examples],
        )
