"""Failing traces: which they are, and what of their problems is the cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragfault.clustering.records import Failure
from ragfault.findings import Diagnosis, Kind, diagnoses
from ragfault.runs import Run

__all__ = ["LOW", "Whole", "common_lead", "failing", "failures", "lead", "whole"]

LOW = 0.5
"""A trace whose triad is below this fails, whatever else is said of it."""

LONG = 400
"""Characters of a problem that are kept."""

CAUSES: tuple[Kind, ...] = (
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

RANK = {kind: place for place, kind in enumerate(CAUSES)}

Array = np.ndarray[Any, Any]


class Whole(NamedTuple):
    """All traces that failures were picked from: a run, or a selection of a store."""

    name: str
    fingerprint: str
    created: str
    """When it was made, in ISO; of two, the later one is greater."""
    judge: str
    traces: int
    groups: Array | None = None
    """A code for each trace, shared by those of one conversation; None: there are none."""
    queries: Sequence[str] | None = None
    """The query of each trace, by which those of several runs belong together; None: they do not."""
    times: Array | None = None
    """Microseconds since 1970 of each trace, below 0 where not known; None: of none."""


def lead(kinds: Sequence[Kind]) -> Kind:
    """Of several kinds of problem the one that the others follow from.

    >>> lead(["irrelevant_answer", "nothing_relevant", "irrelevant_chunk"])
    'nothing_relevant'
    """
    return min(kinds, key=RANK.__getitem__)


def common_lead(kinds: Mapping[Kind, int], size: int) -> Kind:
    """What so many traces fail by: the cause among the kinds that at least half of them show, else the commonest.

    >>> common_lead({"bad_quote": 3, "nothing_relevant": 7, "unsupported_claim": 9}, 10)
    'nothing_relevant'
    """
    shared = [kind for kind, count in kinds.items() if 2 * count >= size and kind != "irrelevant_chunk"]
    if shared:
        return lead(shared)
    return min(kinds, key=lambda kind: (-kinds[kind], RANK[kind]))


def failing(found: Diagnosis) -> bool:
    """Whether a diagnosis is that of a failure: a problem other than single irrelevant chunks, or a low triad."""
    if any(problem.kind != "irrelevant_chunk" for problem in found.problems):
        return True
    return bool(found.problems) and found.triad is not None and found.triad < LOW


def failures(run: Run, place: int = 0) -> list[Failure]:
    """The failing traces of a run, in its order; `place` is that of the run among several."""
    return [of_diagnosis(found, place, row) for row, found in enumerate(diagnoses(run)) if failing(found)]


def of_diagnosis(found: Diagnosis, place: int = 0, row: int = 0) -> Failure:
    """The failure that a diagnosis tells of."""
    kinds = tuple(dict.fromkeys(problem.kind for problem in found.problems))
    kind = lead(kinds)
    first = next(problem for problem in found.problems if problem.kind == kind)
    text = f"{first.text} ({first.reason})" if first.reason else first.text
    return Failure(
        run=place,
        row=row,
        trace=found.trace,
        query=found.query,
        kind=kind,
        kinds=kinds,
        text=text[:LONG],
        triad=found.triad,
    )


def whole(run: Run) -> Whole:
    """What a run says of all its traces."""
    from ragfault.findings.grid import conversations

    made = run.manifest
    return Whole(
        name=run.path.resolve().name,
        fingerprint=fingerprint(run),
        created=made.created,
        judge=made.judge,
        traces=made.traces,
        groups=conversations(run),
        queries=run.to_arrow("traces", ["query"])["query"].to_pylist(),
        times=_times(run),
    )


def fingerprint(run: Run) -> str:
    """What names a run wherever it lies: its traces and its judge."""
    return f"{run.manifest.fingerprint} {run.manifest.judge}"


def _times(run: Run) -> Array | None:
    """When each trace was, in microseconds."""
    found = run.to_arrow("traces", ["time"])["time"].to_pylist()
    if all(time is None for time in found):
        return None
    return np.array([-1 if time is None else int(time.timestamp() * 1e6) for time in found], np.int64)


def run_of(path: str | Path | Run) -> Run:
    """A run, opened where it is a path."""
    return path if isinstance(path, Run) else Run.open(path)
