"""All findings on a run at once; what every report is made from."""

from __future__ import annotations

from collections.abc import Mapping

from ragfault.findings.chunks import open_chunks
from ragfault.findings.correcting import Asked
from ragfault.findings.grid import Grid
from ragfault.findings.health import health, quality, rag
from ragfault.findings.insights import insights
from ragfault.findings.records import Findings
from ragfault.findings.rectifying import People
from ragfault.findings.remedies import Tally, diagnoses
from ragfault.findings.scorecard import TARGETS, Bars, pairs, scorecard, segments
from ragfault.runs import Run

__all__ = ["find"]


def find(
    run: Run,
    *,
    n: int = 10,
    by: str = "route",
    targets: Bars = TARGETS,
    routes: Mapping[str, Bars] | None = None,
    corrected: Asked = False,
    people: People | None = None,
) -> Findings:
    """Everything that is found in a run, reading it once.

    `n` is the number of worst traces, `by` what the scorecard is divided by (left out where all traces are of
    one segment), `targets` and `routes` as `segments` takes them,
    `corrected` and `people` as `scorecard` does.

    Raises UnknownName for another field than there is, RunError where the run is not whole, UsageError where the
    judge has no card to correct by.
    """
    grid = Grid(run, people)
    targets = tuple(targets)
    seen = open_chunks(run)
    levels, unrated = quality(grid)
    tally = Tally(diagnoses(grid), n)
    parts = segments(grid, by, targets, routes)
    return Findings(
        run=run.path.name,
        manifest=run.manifest,
        scorecard=scorecard(grid, targets, corrected=corrected),
        health=health(grid),
        rag=rag(grid, seen),
        quality=levels,
        unrated=unrated,
        pairs=pairs(grid),
        insights=insights(run, seen),
        worst=tally.worst(),
        remedies=tally.remedies(grid),
        segments=parts if len(parts) > 1 else (),
        suspected=_suspected(run),
    )


def _suspected(run: Run) -> int:
    """How many traces hold text that looks like an order to the judge; runs of old know of none."""
    import pyarrow.compute as pc

    table = run.to_arrow("verdicts", columns=["injections"])
    if not table.num_columns:
        return 0
    return int(pc.sum(pc.greater(pc.list_value_length(table["injections"]), 0)).as_py() or 0)
