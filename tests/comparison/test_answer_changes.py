"""Laws of what happened to the answers between two runs: counted by pair, each with its cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ragfault import Chunk, Gold, Run, Trace, analyze, compare, evaluate
from ragfault.comparison.answer_changes import STAGES_AT_FAULT, order_by_harm
from ragfault.comparison.paired_runs import pair_runs
from ragfault.comparison.records import AnswerChanges, FaultLayer, LayerFault
from ragfault.diagnosis.causes.table import CAUSES
from remembered import LEXICAL

TRACES = 24
METRICS = ["recall", "groundedness"]


def answer_well(number: int) -> Trace:
    """Return a trace whose chunks hold the answer, which is right."""
    text = f"Slipway {number} closes at {number % 12 + 1}:40 each evening."
    chunks = (Chunk(id=f"s{number}", text=text), Chunk(id=f"n{number}", text=f"Rope {number} is made of hemp."))
    return Trace(
        id=f"t{number:02}",
        query=f"When does slipway {number} close?",
        chunks=chunks,
        answer=text,
        reference=f"At {number % 12 + 1}:40.",
        gold=Gold(chunks={f"s{number}": 1}),
    )


RIGHT = [answer_well(number) for number in range(TRACES)]


def lose_passage(trace: Trace) -> Trace:
    """Return a trace whose passage was not retrieved, and whose answer is wrong."""
    return replace(trace, chunks=(trace.chunks or ())[1:], answer="It closes at 23:59 on every day.")


def fail(trace: Trace) -> Trace:
    return replace(trace, answer=None, error="time-out")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("answers")


@pytest.fixture(scope="module")
def baseline(folder: Path) -> Run:
    return evaluate(RIGHT, folder / "right", judge=LEXICAL, metrics=METRICS)


def count_changes(baseline: Run, folder: Path, name: str, traces: list[Trace]) -> AnswerChanges:
    """Return what happened to the answers from the baseline to a run of other traces."""
    answers = compare(baseline, evaluate(traces, folder / name, judge=LEXICAL, metrics=METRICS)).answers
    assert answers is not None
    return answers


def test_nothing_happens_between_a_run_and_itself(baseline: Run):
    """No answer became bad or right, and the difference is 0."""
    answers = compare(baseline, baseline).answers
    assert answers is not None
    assert (answers.pairs, answers.became_bad, answers.became_right) == (TRACES, 0, 0)
    assert answers.difference.mean == 0


def test_each_answer_that_became_bad_has_one_cause(baseline: Run, folder: Path):
    """The counts of the causes sum to those of the answers, on both sides, and name what was planted."""
    traces = [lose_passage(item) if at < 9 else fail(item) if at < 12 else item for at, item in enumerate(RIGHT)]
    answers = count_changes(baseline, folder, "worse", traces)
    assert answers.became_bad == sum(cause.became_bad for cause in answers.causes) == 12
    assert answers.bad == tuple(sum(cause.bad[side] for cause in answers.causes) for side in (0, 1))
    assert [(cause.cause, cause.became_bad) for cause in answers.causes] == [("not_retrieved", 9), ("failed", 3)]
    assert answers.difference.low > 0


def test_the_other_way_round_answers_became_right(baseline: Run, folder: Path):
    """What became bad from one run to the other became right on the way back."""
    traces = [lose_passage(item) if at < 9 else item for at, item in enumerate(RIGHT)]
    worse = evaluate(traces, folder / "back", judge=LEXICAL, metrics=METRICS)
    forth, back = compare(baseline, worse).answers, compare(worse, baseline).answers
    assert forth is not None
    assert back is not None
    assert (forth.became_bad, forth.became_right) == (back.became_right, back.became_bad) == (9, 0)


def test_an_edited_answer_key_makes_no_answer_bad(baseline: Run, folder: Path):
    """The same chunks and answers beside another reference are the same answers."""
    traces = [replace(item, reference="At 23:10.") for item in RIGHT]
    assert count_changes(baseline, folder, "edited", traces).became_bad == 0


def test_a_refusal_of_what_the_other_run_answers_is_bad(folder: Path):
    """Its chunks answer it, as the other run shows, and they have the words of the query as no other chunk has."""
    keyless = [replace(item, reference=None, gold=None) for item in RIGHT]
    refused = [replace(item, answer="I do not know.") if at < 9 else item for at, item in enumerate(keyless)]
    before = evaluate(keyless, folder / "keyless", judge=LEXICAL, metrics=METRICS)
    answers = count_changes(before, folder, "refused", refused)
    assert (answers.unsure, answers.became_bad, answers.causes[0].cause) == (0, 9, "refused")
    assert analyze(folder / "refused").answers.bad == 9


def test_renamed_chunks_make_no_answer_bad(baseline: Run, folder: Path):
    """Gold that names ids of the baseline does not count against the same texts under other ids."""
    traces = [
        replace(item, chunks=tuple(replace(chunk, id=f"new-{chunk.id}") for chunk in item.chunks or ()))
        for item in RIGHT
    ]
    assert count_changes(baseline, folder, "renamed", traces).became_bad == 0


def test_the_fault_that_spoiled_most_answers_comes_first(baseline: Run, folder: Path):
    """The layer whose stages have most new bad answers comes first; equal ones stand upstream first."""
    traces = [lose_passage(item) if at < 9 else fail(item) if at < 12 else item for at, item in enumerate(RIGHT)]
    paired = pair_runs(baseline, evaluate(traces, folder / "two", judge=LEXICAL, metrics=METRICS))
    layers: list[FaultLayer] = ["generation", "source data", "pipeline", "retrieval"]
    faults = [
        LayerFault(layer=layer, branch="1", title=layer, evidence=(), suspects=(), remedies=()) for layer in layers
    ]
    ordered = order_by_harm(paired, faults, None)
    assert [(fault.layer, fault.became_bad) for fault in ordered] == [
        ("retrieval", 9),
        ("pipeline", 3),
        ("source data", 0),
        ("generation", 0),
    ]


def test_every_stage_but_undecided_belongs_to_one_layer():
    """A cause counts for one layer."""
    stages = [stage for own in STAGES_AT_FAULT.values() for stage in own]
    assert sorted(stages) == sorted({definition.stage for definition in CAUSES.values()} - {"undecided"})
