"""Laws of records of several turns: each turn is a trace with its own chunks."""

import json

import pytest

from ragfault.io.trace_reader import read_traces

TURNS = [
    {"role": "user", "content": "Which kayak is the lightest?"},
    {
        "role": "assistant",
        "content": "The Heron.",
        "retrieval_context": ["The Heron weighs 14 kg.", "The Otter has a rudder."],
    },
    {"role": "user", "content": "Has it a rudder?"},
    {
        "role": "assistant",
        "content": "No, only the Otter has one.",
        "retrieval_context": ["Only the Otter has a rudder."],
    },
]


def read(tmp_path, record, **options):
    """Return the traces of one record."""
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(record))
    return list(read_traces(path, **options))


def test_each_turn_has_its_history_and_its_chunks(tmp_path):
    """Turns that retrieved are traces of one conversation, in order."""
    first, second = read(tmp_path, {"turns": TURNS, "context": ["Kayaks"], "expected_outcome": "The guest chooses"})
    assert (first.query, first.answer, first.history, first.turn) == (TURNS[0]["content"], "The Heron.", None, 1)
    assert [chunk.text for chunk in first.chunks] == TURNS[1]["retrieval_context"]
    assert (second.query, second.turn, len(second.history)) == (TURNS[2]["content"], 2, 2)
    assert [chunk.text for chunk in second.chunks] == TURNS[3]["retrieval_context"]
    assert first.conversation == second.conversation
    assert (second.reference, second.metadata["expected_outcome"]) == (None, "The guest chooses")


def test_the_last_turn_can_be_asked_for(tmp_path):
    """With "last", one trace a record."""
    [trace] = read(tmp_path, {"turns": TURNS}, turns="last")
    assert [chunk.text for chunk in trace.chunks] == TURNS[3]["retrieval_context"]


def test_turns_without_chunks_are_history(tmp_path):
    """A conversation of which only the last turn retrieved is one trace."""
    [trace] = read(tmp_path, {"messages": [*[{k: t[k] for k in ("role", "content")} for t in TURNS[:2]], *TURNS[2:]]})
    assert (trace.query, len(trace.history), len(trace.chunks)) == (TURNS[2]["content"], 2, 1)


@pytest.mark.parametrize("turns", ["auto", "each"])
def test_a_history_without_a_question_is_read(turns, tmp_path):
    """A greeting of the assistant comes before the first question."""
    record = {"messages": [{"role": "assistant", "content": "Hello, how can I help?"}, *TURNS[:2]]}
    [trace] = read(tmp_path, record, turns=turns)
    assert (trace.query, trace.answer) == (TURNS[0]["content"], "The Heron.")


def test_an_outcome_that_reads_like_an_answer_is_a_reference(tmp_path):
    """What should be said has its words in what was said."""
    *_, last = read(tmp_path, {"turns": TURNS, "expected_outcome": "Only the Otter has a rudder"})
    assert last.reference == "Only the Otter has a rudder"


def test_a_map_outranks_the_turns(tmp_path):
    """Chunks that the user names are those of the record."""
    [trace] = read(tmp_path, {"turns": TURNS, "context": ["Kayaks"]}, map={"chunks": "context"}, turns="last")
    assert [chunk.text for chunk in trace.chunks] == ["Kayaks"]


PARTS = [
    ("user", "docs", "bot"),
    ("question", "contexts", "answer"),
    ("user_message", "retrieved", "bot_message"),
    ("query", "retrieval", "response"),
]


@pytest.mark.parametrize("names", PARTS, ids=lambda names: names[0])
def test_turns_with_chunks_of_their_own_are_traces(names, tmp_path):
    """A turn that holds its question, chunks and answer is a trace, with the turns before it as its history."""
    asked, searched, replied = names
    spoken = [("Which tent is best in rain?", "The Storm tent is waterproof.", "The Storm tent.")]
    spoken += [("How heavy is it?", "The Storm tent weighs 3 kg.", "It weighs 3 kg.")]
    turns = [
        {asked: query, searched: [{"text": text, "score": 0.5}], replied: answer} for query, text, answer in spoken
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"id": name, "turns": turns}) + "\n" for name in "ab"))
    traces = list(read_traces(path))
    assert [(trace.id, trace.conversation, trace.turn) for trace in traces] == [
        ("a#1", "a", 1),
        ("a#2", "a", 2),
        ("b#1", "b", 1),
        ("b#2", "b", 2),
    ]
    assert [(t.query, t.chunks[0].text, t.answer) for t in traces] == spoken * 2
    assert [len(trace.history or ()) for trace in traces] == [0, 2, 0, 2]
