"""What the report of a run says of its level, if the questions of the run are those of a made set."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice

from ragfault.diagnosis.question_levels import describe_level, is_synthetic, measure_level
from ragfault.io.runs.run import Run
from ragfault.metrics.catalog import parse_metric
from ragfault.report.document import Block, Listing, build_section

LOOKED_AT = 200
"""First traces of a run, none of which is made in a run of live traffic."""


def build_sections(run: Run) -> list[Block]:
    """Build the section on the level of each metric of retrieval; nothing where no question is made."""
    if not any(is_synthetic(trace) for trace in islice(run.traces(), LOOKED_AT)):
        return []
    synthetic = {trace.id: is_synthetic(trace) for trace in run.traces()}
    values: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for score in run.scores():
        definition = parse_metric(score.metric).definition
        if score.value is not None and definition.layer == "retrieval" and definition.range == (0.0, 1.0):
            values[score.metric][score.trace] = score.value
    levels = [
        measure_level(name, list(column.values()), [synthetic[trace] for trace in column])
        for name, column in values.items()
    ]
    lines = tuple(describe_level(level) for level in levels if level is not None)
    return build_section("Level on made questions", Listing(lines)) if lines else []
