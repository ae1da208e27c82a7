"""Faults that the tree alone does not name: chunks of shorter lists, and facts that left the sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ragfault.comparison.bisection import bisect
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.model.records import Chunk, Gold, Span, Trace
from remembered import LEXICAL

REFUSAL = "I cannot find that in the manual."
MACHINES = [
    f"{kind} {part}"
    for kind in ("tile", "turf", "wood", "stump", "post")
    for part in ("cutter", "grinder", "lifter", "mixer", "sander", "roller", "chipper", "trimmer")
]


def hire(number: int, name: str, *, rate: int | None = None) -> Trace:
    """Return a trace on the rate of a machine, which the second chunk of every other list states."""
    stated = f"The {name} costs {rate or 20 + number} euros a day."
    other = f"The {name} is cleaned in the yard behind the office."
    texts = (other, stated) if number % 2 else (stated, other)
    chunks = tuple(Chunk(id=f"{name}-{text is stated}", text=text, document=name) for text in texts)
    return Trace(id=name, query=f"What does the {name} cost a day?", chunks=chunks, answer=stated)


def shorten(trace: Trace) -> Trace:
    """Keep the first chunk, and refuse where it does not state the rate."""
    first = (trace.chunks or ())[:1]
    return replace(trace, chunks=first, answer=trace.answer if "euros" in first[0].text else REFUSAL)


def write_runs(folder: Path, *sides: list[Trace]) -> list[Run]:
    """Evaluate each side."""
    return [evaluate(side, folder / str(at), judge=LEXICAL) for at, side in enumerate(sides)]


@pytest.mark.long
def test_answers_that_are_worse_on_fewer_chunks_are_retrievals_where_their_passage_is_gone(tmp_path: Path):
    """Refusals where the former answer lost its passage name retrieval; refusals everywhere name no layer."""
    old = [hire(number, name) for number, name in enumerate(MACHINES * 2)]
    old = [replace(trace, id=f"{trace.id}-{at}", query=f"{trace.query} {at}") for at, trace in enumerate(old)]
    lost = [shorten(trace) for trace in old]
    refused = [replace(trace, answer=REFUSAL) for trace in lost]
    recorded = [replace(short, answer=trace.answer) for short, trace in zip(lost, old, strict=True)]
    worded = [replace(trace, answer=f"Per day: {trace.answer}") for trace in recorded]
    runs = write_runs(tmp_path, old, lost, refused, recorded, worded)
    results = [bisect(runs[0], run) for run in runs[1:]]
    assert [result.verdict for result in results] == ["fault", *["cannot tell"] * 3]
    assert results[0].faults[0].layer == "retrieval"
    assert all(decision.outcome != "ruled out" for decision in results[1].tree if decision.layer == "retrieval")


def test_facts_that_left_their_sources_are_a_fault_though_the_ranking_holds(tmp_path: Path):
    """Where some texts under the same ids no longer state the key's facts, the sources broke, whatever else holds."""
    old, new = [], []
    for number, name in enumerate(MACHINES):
        trace = replace(
            hire(number, name),
            reference=f"The {name} costs {20 + number} euros a day.",
            gold=Gold(spans=(Span(document=name, start=0, end=9, quote=f"The {name} costs"),)),
        )
        old.append(trace)
        edited = hire(number, name, rate=90 + number) if number % 4 == 0 else trace
        new.append(replace(edited, reference=trace.reference, gold=trace.gold))
    result = bisect(*write_runs(tmp_path, old, new))
    assert [fault.layer for fault in result.faults] == ["source data"]
    assert [decision.branch for decision in result.tree if decision.outcome == "fault"] == ["3 source data"]
