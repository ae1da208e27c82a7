"""Failing traces of a run, and the kind of problem that causes each failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragfault.analysis.clusters.records import FailingTrace
from ragfault.analysis.records import Diagnosis, ProblemKind
from ragfault.analysis.run_analysis import diagnose_run
from ragfault.io.runs import Run

LOW_TRIAD = 0.5
"""A trace whose triad is below this fails, whatever else is said of it."""

MAX_TEXT = 400
"""Characters of a problem that are kept."""

CAUSE_ORDER: tuple[ProblemKind, ...] = (
    "pipeline_error",
    "nothing_retrieved",
    "empty_answer",
    "wrong_refusal",
    "nothing_relevant",
    "false_claim",
    "contradicted_claim",
    "uncovered_statement",
    "contradicted_fact",
    "bad_quote",
    "unsupported_claim",
    "missed_refusal",
    "missing_context",
    "bad_citation",
    "absent_fact",
    "irrelevant_answer",
    "unanswered_aspect",
    "all_low",
    "irrelevant_chunk",
)
"""The kinds of problem, those that others follow from, and that are seen for certain, before the rest."""

CAUSE_RANK = {kind: place for place, kind in enumerate(CAUSE_ORDER)}

Array = np.ndarray[Any, Any]


class TracePopulation(NamedTuple):
    """All traces that failures were picked from: those of a run, or a selection of a store."""

    name: str
    fingerprint: str
    created: str
    """When it was made, in ISO; of two, the later one is greater."""
    judge: str
    traces: int
    clusters: Array | None = None
    """A code for each trace, shared by those of one conversation; None: there are none."""
    queries: Sequence[str] | None = None
    """The query of each trace, by which those of several runs belong together; None: they do not."""
    times: Array | None = None
    """Microseconds since 1970 of each trace, below 0 where not known; None: of none."""


def choose_cause(kinds: Sequence[ProblemKind]) -> ProblemKind:
    """Return the kind of problem that causes the others.

    >>> choose_cause(["irrelevant_answer", "nothing_relevant", "irrelevant_chunk"])
    'nothing_relevant'
    """
    return min(kinds, key=CAUSE_RANK.__getitem__)


def choose_common_cause(kinds: Mapping[ProblemKind, int], size: int) -> ProblemKind:
    """Return the cause among the kinds that at least half of the traces show, else the commonest kind.

    >>> choose_common_cause({"bad_quote": 3, "nothing_relevant": 7, "unsupported_claim": 9}, 10)
    'nothing_relevant'
    """
    shared = [kind for kind, count in kinds.items() if 2 * count >= size and kind != "irrelevant_chunk"]
    if shared:
        return choose_cause(shared)
    return min(kinds, key=lambda kind: (-kinds[kind], CAUSE_RANK[kind]))


def is_failing(diagnosis: Diagnosis) -> bool:
    """Return whether a trace fails: a problem other than single irrelevant chunks, or a low triad."""
    if any(problem.kind != "irrelevant_chunk" for problem in diagnosis.problems):
        return True
    return bool(diagnosis.problems) and diagnosis.triad is not None and diagnosis.triad < LOW_TRIAD


def collect_failures(run: Run, run_index: int = 0) -> list[FailingTrace]:
    """Collect the failing traces of a run, in its order; `run_index` is its place among several runs."""
    return [
        failure_from_diagnosis(diagnosis, run_index, row)
        for row, diagnosis in enumerate(diagnose_run(run))
        if is_failing(diagnosis)
    ]


def failure_from_diagnosis(diagnosis: Diagnosis, run_index: int = 0, row: int = 0) -> FailingTrace:
    """Build the failure record of a diagnosis."""
    kinds = tuple(dict.fromkeys(problem.kind for problem in diagnosis.problems))
    kind = choose_cause(kinds)
    first = next(problem for problem in diagnosis.problems if problem.kind == kind)
    text = f"{first.text} ({first.reason})" if first.reason else first.text
    return FailingTrace(
        run=run_index,
        row=row,
        trace=diagnosis.trace,
        query=diagnosis.query,
        kind=kind,
        kinds=kinds,
        text=text[:MAX_TEXT],
        triad=diagnosis.triad,
    )


def load_population(run: Run) -> TracePopulation:
    """Load the data of all traces of a run that clustering needs."""
    from ragfault.analysis.score_matrix import conversation_codes

    manifest = run.manifest
    return TracePopulation(
        name=run.path.resolve().name,
        fingerprint=run_fingerprint(run),
        created=manifest.created,
        judge=manifest.judge,
        traces=manifest.traces,
        clusters=conversation_codes(run),
        queries=run.to_arrow("traces", ["query"])["query"].to_pylist(),
        times=_trace_times(run),
    )


def run_fingerprint(run: Run) -> str:
    """Return the identity of a run wherever it is stored: its traces and its judge."""
    return f"{run.manifest.fingerprint} {run.manifest.judge}"


def _trace_times(run: Run) -> Array | None:
    """Return the time of each trace in microseconds, −1 where it has none; None where no trace has one."""
    times = run.to_arrow("traces", ["time"])["time"].to_pylist()
    if all(time is None for time in times):
        return None
    return np.array([-1 if time is None else int(time.timestamp() * 1e6) for time in times], np.int64)


def open_run(path: str | Path | Run) -> Run:
    """Open a run from its path; a run is returned as it is."""
    return path if isinstance(path, Run) else Run.open(path)
