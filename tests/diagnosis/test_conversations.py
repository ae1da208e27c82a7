"""The turn at which a conversation went wrong."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ragfault.diagnosis.conversations import trace_conversations
from ragfault.evaluation.evaluator import evaluate
from ragfault.model.records import Chunk, Gold, Trace
from remembered import LEXICAL

CHUNK = Chunk(id="a", text="The ferry leaves at 09:30. A bicycle costs two euros.")


def build_turn(turn: int, *, right: bool | None, error: str | None = None) -> Trace:
    return Trace(
        id=f"c-{turn}",
        query="When does the ferry leave?",
        chunks=(CHUNK,),
        conversation="c",
        turn=turn,
        error=error,
        answer={True: "The ferry leaves at 09:30.", False: "The ferry leaves at 17:45.", None: "I do not know."}[right],
        reference=None if right is None else "The ferry leaves at 09:30.",
    )


@pytest.mark.parametrize(
    ("turns", "first", "words"),
    [
        ([True, True], None, "all 2 turns are right"),
        ([True, False, False], 2, "first wrong at turn 2 of 3"),
        ([None, False], None, "wrong at turn 2, and turn 1 before it cannot be told"),
        ([True, None], None, "no turn is shown to be wrong, and not all are shown to be right"),
    ],
)
def test_the_faulty_turn_turn_is_named_only_where_all_before_it_are_right(tmp_path: Path, turns, first, words):
    traces = [build_turn(place, right=right) for place, right in enumerate(turns, 1)]
    run = evaluate(list(reversed(traces)), tmp_path / "run", judge=LEXICAL)
    [outcome] = trace_conversations(run)
    assert (outcome.faulty_turn and outcome.faulty_turn.turn, outcome.sentence) == (first, words)


def test_a_turn_whose_pipeline_failed_is_wrong(tmp_path: Path):
    run = evaluate([build_turn(1, right=None, error="timeout")], tmp_path / "run", judge=LEXICAL)
    assert trace_conversations(run)[0].faulty_turn.turn == 1


def test_traces_without_a_conversation_have_none(tmp_path: Path):
    run = evaluate([Trace(id="1", query="When?", answer="At noon.")], tmp_path / "run", judge=LEXICAL)
    assert trace_conversations(run) == ()


def test_a_turn_that_refuses_one_part_and_repeats_the_reference_is_right(tmp_path: Path):
    text = "I do not have information about dogs, but a bicycle costs two euros."
    partial = Trace(
        id="c-1",
        query="What do dogs and bicycles cost?",
        chunks=(CHUNK,),
        conversation="c",
        answer=text,
        reference=text,
        gold=Gold(chunks={"a": 1.0}),
    )
    refusing = replace(partial, id="c-2", turn=2, answer="I do not have information about that.")
    run = evaluate([partial, refusing], tmp_path / "run", judge=LEXICAL)
    [outcome] = trace_conversations(run)
    assert [turn.state for turn in outcome.turns] == ["right", "wrong"]
