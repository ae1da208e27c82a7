"""Laws of layouts that were read wrongly when they were first met."""

from __future__ import annotations

import json

import pytest

from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import InputError

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


def test_a_key_that_stands_several_times_has_all_its_values(tmp_path):
    """A logger that writes a key for each chunk loses none of them."""
    path = tmp_path / "t.jsonl"
    texts = ", ".join(f'"context": {json.dumps(text)}' for text in TEXTS)
    path.write_text(f'{{"query": "{QUERY}", {texts}, "answer": "{ANSWER}"}}')
    assert [chunk.text for chunk in next(read_traces(path)).chunks] == TEXTS


def test_columns_parallel_to_the_texts_name_and_score_them(tmp_path):
    """Lists and numbered columns next to the texts of the chunks are their ids and scores."""
    answered = {"question": QUERY, "answer": ANSWER}
    lists = {"hit_ids": ["a", "b"], "hit_bodies": TEXTS, "hit_sims": [0.9, 0.5]}
    wide = {
        f"doc{place}_{name}": value
        for place, values in enumerate(zip("ab", TEXTS, (0.9, 0.5), strict=True), 1)
        for name, value in zip(("id", "text", "score"), values, strict=True)
    }
    for columns in (lists, wide):
        [trace] = read(tmp_path, {**answered, **columns})
        assert [(c.id, c.text, c.score) for c in trace.chunks] == [("a", TEXTS[0], 0.9), ("b", TEXTS[1], 0.5)]


def test_relevant_passages_are_gold_by_id_and_by_place(tmp_path):
    """Columns of positive passages and of relevant spans are the gold, not metadata."""
    passages = [{"pid": 7, "passage": TEXTS[0]}, {"pid": 8, "passage": TEXTS[1]}]
    [trace] = read(tmp_path, {"question": QUERY, "retrieved": passages, "positive_pids": [7], "pred": ANSWER})
    assert trace.gold.chunks == {"7": 1.0}
    span = {"doc": "a.md", "start": 0, "end": 9}
    [trace] = read(tmp_path, {"question": QUERY, "contexts": TEXTS, "response": ANSWER, "relevant_spans": [span]})
    assert [(part.document, part.start, part.end) for part in trace.gold.spans] == [("a.md", 0, 9)]


def test_contexts_in_the_prompt_of_the_system_are_chunks(tmp_path):
    """A log of requests to a model has its contexts in the first message."""
    prompt = "Answer from the context.\n\nContext:\n" + "\n".join(f"[{n}] {text}" for n, text in enumerate(TEXTS, 1))
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": QUERY}]
    reply = {"choices": [{"index": 0, "message": {"role": "assistant", "content": ANSWER}}]}
    notices = []
    [trace] = read(tmp_path, {"request": {"messages": messages}, "response": reply}, notice=notices.append)
    assert (trace.query, trace.answer, [chunk.text for chunk in trace.chunks]) == (QUERY, ANSWER, TEXTS)
    assert any("prompt of the system" in line for line in notices)


def test_several_answers_to_a_question_are_its_attempts(tmp_path):
    """A map of a list of answers gives a trace for each, and the question about them offers this map."""
    unsure = "I do not know at which time the ferry to the island leaves on Sundays."
    record = {"question": QUERY, "contexts": TEXTS, "samples": [{"text": ANSWER}, {"text": unsure}]}
    with pytest.raises(InputError) as caught:
        read(tmp_path, record)
    assert '{"answer": "samples"}' in str(caught.value)
    traces = read(tmp_path, record, map={"answer": "samples", "query": "question", "chunks": "contexts"})
    assert [(trace.answer, trace.attempt) for trace in traces] == [(ANSWER, 1), (unsure, 2)]


def test_lines_of_one_request_are_joined_by_any_code(tmp_path):
    """Lines that retrieve and answer are one trace by a code that both have, whatever it is called."""
    lines = []
    for name in ("r1", "r2"):
        lines += [{"rid": name, "stage": "retrieve", "input": QUERY, "hits": [{"snippet": text} for text in TEXTS]}]
        lines += [{"rid": name, "stage": "generate", "output": ANSWER}]
    traces = read(tmp_path, *lines)
    assert [(trace.query, len(trace.chunks), trace.answer) for trace in traces] == [(QUERY, 2, ANSWER)] * 2


def test_a_citation_that_only_quotes_names_the_chunk_that_holds_the_quote(tmp_path):
    """Bedrock cites by the text of a passage: a chunk of the trace, or one that was not retrieved."""
    cited = [TEXTS[1], "Dogs travel free."]
    output = {
        "text": ANSWER,
        "retrievedPassages": {"retrievalResults": [{"content": {"text": text}} for text in TEXTS]},
        "citations": [{"retrievedReferences": [{"content": {"text": text}}]} for text in cited],
    }
    [trace] = read(tmp_path, {"conversationTurns": [{"prompt": {"content": [{"text": QUERY}]}, "output": output}]})
    names = [citation.chunk for citation in trace.citations]
    assert names[0] == trace.chunks[1].id
    assert names[1] not in {chunk.id for chunk in trace.chunks}


def test_spans_in_files_may_have_ids_that_are_not_hex(tmp_path):
    """An id is a name: spans with the same one are a trace."""
    root = {"name": "ask", "context": {"trace_id": "turn-1", "span_id": "s1"}, "span_kind": "CHAIN", "parent_id": None}
    root["attributes"] = {"input.value": QUERY, "output.value": ANSWER}
    [trace] = read(tmp_path, root)
    assert (trace.query, trace.answer) == (QUERY, ANSWER)


def test_a_record_with_an_answer_is_not_a_list_of_its_calls(tmp_path):
    """The query of a call does not stand for the question that a record does not have."""
    calls = [{"name": "search", "args": {"query": words}, "output": "{}"} for words in ("ferry departure", "pier")]
    answer = "The ferry leaves at seven, and on Sundays at eight from the northern pier."
    with pytest.raises(InputError, match="no column for `query`"):
        read(tmp_path, {"question_id": "a", "actual_steps": calls, "actual_answer": answer})


def test_records_of_one_document_have_ids_of_their_own_by_line(tmp_path):
    """An id from the line tells the records of a document in one line apart."""
    path = tmp_path / "t.json"
    path.write_text(json.dumps({name: {"7": {"id": "7", "question": QUERY, "output": ANSWER}} for name in "ab"}))
    first, second = read_traces(path, id_from="line")
    assert first.id != second.id
