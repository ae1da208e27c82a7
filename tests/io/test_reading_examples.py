"""Laws of the first record next to its trace: every leaf is listed, with its place and what it was recognised by."""

import json

import pytest

from ragfault.io.trace_reader import read_traces, summarize_input

RECORD = {
    "question": "When does the ferry leave?",
    "docs": ["The ferry leaves at nine.", "It is green."],
    "llm_text": "At nine.",
    "note": "Ask the crew.",
    "debug": [{"text": "12 ms"}],
}


def list_example(path, records, **options):
    """Return the leaves of the first record by their paths."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return {leaf.path: leaf for leaf in summarize_input(path, **options).example}


def test_each_leaf_has_its_place(tmp_path):
    """Fields, parts of chunks, metadata and what is not read are told apart."""
    places = {path: leaf.field for path, leaf in list_example(tmp_path / "t.jsonl", [RECORD, RECORD]).items()}
    assert places == {
        "question": "query",
        "docs[0]": "chunks[0].text",
        "docs[1]": "chunks[1].text",
        "llm_text": "answer",
        "note": "metadata.note",
        "debug[0].text": "not read",
    }


def test_each_field_has_what_it_was_recognised_by(tmp_path):
    """A name, a word of a name, a map and a format are named; metadata have nothing."""
    leaves = list_example(tmp_path / "t.jsonl", [RECORD])
    bases = {path: leaf.basis for path, leaf in leaves.items()}
    assert [bases[path] for path in ("question", "llm_text", "note")] == ["name", "word of the name", ""]
    mapped = list_example(tmp_path / "t.jsonl", [RECORD], map={"answer": "note"})
    assert (mapped["note"].basis, mapped["note"].field) == ("column map", "answer")
    shaped = list_example(tmp_path / "t.jsonl", [{"user_input": "When?", "response": "At nine."}])
    assert shaped["user_input"].basis == "format Ragas"


def test_a_conversation_names_the_turn(tmp_path):
    """The chunks of each turn are found in the trace of that turn."""
    spoken = [
        ("When does it leave?", "At nine.", "It leaves at nine."),
        ("And on Sundays?", "At ten.", "Sundays at ten."),
    ]
    turns = [
        turn
        for asked, answered, passage in spoken
        for turn in ({"role": "user", "content": asked}, {"role": "assistant", "content": answered, "context": passage})
    ]
    leaves = list_example(tmp_path / "t.jsonl", [{"messages": turns}])
    places = [leaves[f"messages[{place}].context"].field for place in (1, 3)]
    assert places == ["turn 1 chunks[0].text", "turn 2 chunks[0].text"]


@pytest.mark.parametrize("record", [RECORD, {"id": "1", "query": "When?", "answer": "At nine."}])
def test_only_the_first_record_is_reported(record, tmp_path):
    """The example is reported once, for native records, too."""
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({**record, "id": str(number)}) + "\n" for number in range(3)), "utf-8")
    reported = []
    assert len(list(read_traces(path, on_example=reported.append))) == 3
    assert len(reported) == 1
