"""Laws of layouts that were read wrongly when they were first met."""

from __future__ import annotations

import json

import pytest

from ragfault.io.trace_reader import read_traces

QUERY, ANSWER = "When does the ferry leave?", "The ferry leaves at seven."
TEXTS = [
    "The ferry to the island leaves the northern pier at seven every day, and at eight on Sundays.",
    "A ticket costs five euros, and children under six travel free of charge with their parents.",
]


def read(tmp_path, *records, **options):
    """Read a file of these records."""
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    return list(read_traces(path, **options))


@pytest.mark.parametrize("key", ["path", "source", "file_name"])
def test_a_search_result_without_text_is_named_by_its_document(key, tmp_path):
    """A result that has only a document and numbers is a chunk without text, whose id is the document."""
    results = [{"rank": place, key: name, "score": 0.5} for place, name in enumerate(("a.pdf", "b.pdf"))]
    [trace] = read(tmp_path, {"query": QUERY, "retrieved_docs": results, "relevant_docs": ["a.pdf"]})
    assert [(chunk.id, chunk.text, chunk.score) for chunk in trace.chunks] == [("a.pdf", "", 0.5), ("b.pdf", "", 0.5)]
    assert trace.gold.chunks == {"a.pdf": 1.0}


@pytest.mark.parametrize(("asked", "replied"), [("question_text", "actual_answer"), ("user_question", "final_answer")])
def test_a_record_is_asked_before_its_parts(asked, replied, tmp_path):
    """The query and the answer of a record are its own, not those of a step in a list, whatever the step calls them."""
    output = json.dumps([{"id": str(place), "text": text} for place, text in enumerate(TEXTS)])
    step = {"name": "retrieval", "args": {"query": "ferry departure"}, "output": output}
    [trace] = read(tmp_path, {asked: QUERY, replied: ANSWER, "steps_done": [step]})
    assert (trace.query, trace.answer) == (QUERY, ANSWER)
    assert [chunk.text for chunk in trace.chunks] == TEXTS


@pytest.mark.parametrize("name", ["events", "calls", "data"])
def test_calls_within_a_document_are_joined_to_traces(name, tmp_path):
    """A list of calls makes one trace of each root, under whatever name a document holds it."""
    calls = []
    for root in "ab":
        search = {"span_id": f"{root}2", "root_span_id": root, "span_parents": [root], "name": "retriever"}
        calls.append({"span_id": root, "root_span_id": root, "input": {"question": QUERY}, "output": ANSWER})
        calls.append({**search, "output": [{"id": str(n), "page_content": text} for n, text in enumerate(TEXTS)]})
    path = tmp_path / "t.json"
    path.write_text(json.dumps({name: calls}))
    traces = list(read_traces(path))
    assert [(trace.query, trace.answer, len(trace.chunks)) for trace in traces] == [(QUERY, ANSWER, 2)] * 2


def test_a_listed_passage_is_no_reference_answer(tmp_path):
    """The content of passages under `ref` is not compared with the answer, and counts as not read."""
    record = {
        "question": QUERY,
        "answer": ANSWER,
        "contexts": TEXTS[:1],
        "ref": [{"content": TEXTS[1], "type": "text"}],
    }
    unread = {}
    [trace] = read(tmp_path, record, unread=unread)
    assert not trace.references
    assert "ref[].content" in unread
