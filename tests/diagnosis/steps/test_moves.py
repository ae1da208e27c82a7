"""Moves of a trace."""

from ragfault.diagnosis.steps.moves import group_moves
from ragfault.model.records import Chunk, Step, Trace


def group(*steps: Step, **fields):
    trace = Trace(id="t", query="Who runs the ferry?", steps=steps, **fields)
    return [(move.step.id, [part.id for part in move.results]) for move in group_moves(trace).moves]


def test_the_calls_of_a_plan_belong_to_its_move():
    steps = (
        Step(id="1", kind="plan"),
        Step(id="2", kind="retrieve", parent="1"),
        Step(id="3", kind="tool", parent="1"),
        Step(id="4", kind="generate"),
    )
    assert group(*steps) == [("1", ["2", "3"]), ("4", [])]


def test_each_stage_of_a_pipeline_is_a_move():
    steps = [Step(id=kind, kind=kind) for kind in ("rewrite", "retrieve", "rerank", "generate")]
    assert group(*steps) == [(step.id, []) for step in steps]


def test_a_step_that_only_encloses_others_is_no_move():
    steps = (
        Step(id="agent"),
        Step(id="1", kind="retrieve", parent="agent"),
        Step(id="2", kind="generate", parent="agent"),
    )
    assert group(*steps, Step(id="3", kind=None, parent="agent")) == [("1", []), ("2", []), ("3", [])]


def test_an_answer_that_its_step_does_not_repeat_is_the_text_of_the_last_move():
    trace = Trace(id="t", query="Who?", answer="Ann.", steps=(Step(id="1", kind="generate"),))
    assert group_moves(trace).moves[-1].text == "Ann."


def test_a_move_holds_the_chunks_that_its_calls_returned():
    steps = (Step(id="1", kind="plan"), Step(id="2", kind="retrieve", parent="1", chunks=("b",)))
    chunks = (Chunk(id="a", text="no"), Chunk(id="b", text="yes"))
    moves = group_moves(Trace(id="t", query="?", steps=steps, chunks=chunks)).moves
    assert [chunk.id for chunk in moves[0].chunks] == ["b"]
