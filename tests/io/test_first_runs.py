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


def test_ids_alone_are_the_chunks_that_gold_is_compared_with(tmp_path):
    """A log that records of its chunks only ids, or only documents, has chunks without text, and gold among them."""
    row = {"question": QUERY, "answer": ANSWER}
    for retrieved, key in (("retrieved_ids", "gold_ids"), ("retrieved_sources", "expected_source")):
        gold = "b_2" if key == "expected_source" else ["b_2"]
        [trace] = read(tmp_path, {**row, retrieved: ["a_1", "b_2"], key: gold})
        assert [(chunk.id, chunk.text) for chunk in trace.chunks] == [("a_1", ""), ("b_2", "")]
        assert trace.gold.chunks == {"b_2": 1.0}


def test_a_list_with_names_of_gold_in_it_is_what_was_retrieved(tmp_path):
    """An output that lists addresses is no answer: those of the answer key among them show that it is a search."""
    places = [f"https://docs.example/{name}" for name in "abc"]
    [trace] = read(tmp_path, {"question": QUERY, "output": places, "correct_chunks": json.dumps(places[1:2])})
    assert trace.answer is None
    assert [chunk.id for chunk in trace.chunks] == places
    assert list(trace.gold.chunks) == places[1:2]


def test_the_lists_of_a_document_that_say_most_are_its_records(tmp_path):
    """Tests and settings next to results are no records; two lists of results are, each with its name."""
    path = tmp_path / "t.json"
    asked = [{"vars": {"question": QUERY}}]
    answered = [{"qid": "1", "question": QUERY, "answer": ANSWER}]
    path.write_text(json.dumps({"run": {"results": answered}, "config": {"tests": asked, "prompts": ["Answer."]}}))
    assert [(trace.id, trace.answer) for trace in read_traces(path)] == [("1", ANSWER)]
    path.write_text(json.dumps({"basic": {"per_question": answered}, "better": {"per_question": answered}}))
    traces = list(read_traces(path))
    assert [(trace.id, trace.route) for trace in traces] == [("basic/1", "basic"), ("better/1", "better")]
    path.write_text(json.dumps({"results": [{"provider": name, "queries": answered} for name in "xy"]}))
    assert [trace.id for trace in read_traces(path)] == ["x/1", "y/1"]


def test_a_grade_is_no_reference(tmp_path):
    """A number called `expected` next to an expected text grades the answer."""
    [trace] = read(tmp_path, {"input": {"input": QUERY, "output": ANSWER, "expected": "At seven."}, "expected": 1})
    assert trace.reference == "At seven."
    [trace] = read(tmp_path, {"question": QUERY, "answer": ANSWER, "expected": 1})
    assert trace.reference is None


def test_recorded_citations_of_chunks_without_names_are_positions_or_nothing(tmp_path):
    """A recorded citation that cannot name a chunk is no wrong citation: it is kept as metadata."""
    row = {"question": QUERY, "answer": ANSWER, "contexts": TEXTS}
    [trace] = read(tmp_path, {**row, "citations": [2]})
    assert [citation.chunk for citation in trace.citations] == [trace.chunks[1].id]
    [trace] = read(tmp_path, {**row, "citations": [{"doc_id": "a.md"}, {"doc_id": "b.md"}]})
    assert trace.citations is None
    assert trace.metadata["citations"] == ["a.md", "b.md"]


def test_marks_name_the_labels_that_the_chunks_have(tmp_path):
    """`[2]` is the chunk that was shown under `[2]`, wherever it stands."""
    chunks = [{"passage_id": "[2]", "text": TEXTS[0]}, {"passage_id": "[3]", "text": TEXTS[1]}]
    [trace] = read(tmp_path, {"question": QUERY, "contexts": chunks, "answer": "The ferry leaves at seven [2]."})
    assert [citation.chunk for citation in trace.citations] == [trace.chunks[0].id]


def test_a_reply_that_is_the_json_of_a_message_is_its_text_without_thoughts(tmp_path):
    """Thoughts among the parts of a message of a model are no answer."""
    reply = {"role": "model", "parts": [{"text": "The user asks.", "thought": True}, {"text": ANSWER}]}
    [trace] = read(tmp_path, {"question": QUERY, "answer": json.dumps(reply)})
    assert trace.answer == ANSWER


def test_a_failed_assertion_is_no_failure_of_the_pipeline(tmp_path):
    """A result of promptfoo that fails a test has an `error`, and an answer all the same."""
    row = {"vars": {"question": QUERY}, "prompt": {"raw": QUERY}, "response": {"output": ANSWER}}
    [trace] = read(tmp_path, {**row, "gradingResult": {"pass": False}, "error": 'Expected output to contain "nine"'})
    assert (trace.answer, trace.error) == (ANSWER, None)


def test_ids_next_to_the_texts_are_recognised_by_the_gold_among_them(tmp_path):
    """A list as long as that of the texts, in which names of gold stand, has their ids; a longer one has not."""
    row = {"query": QUERY, "answer": ANSWER, "contexts": TEXTS, "golden_doc": ["Document_2"]}
    lists = {"docs_before": ["Document_2", "Document_1", "Document_3"], "docs_after": ["Document_1", "Document_2"]}
    [trace] = read(tmp_path, {**row, **lists})
    assert [(chunk.id, chunk.text) for chunk in trace.chunks] == [("Document_1", TEXTS[0]), ("Document_2", TEXTS[1])]


def test_passages_are_read_rather_than_lists_of_their_parts(tmp_path):
    """An object with a list of passages and lists of their titles and scores is read by its passages."""
    context = [{"title": f"The plan {n}", "score": 0.5, "chunk_preview": text} for n, text in enumerate(TEXTS)]
    retrieval = {"titles": [part["title"] for part in context], "scores": [0.5, 0.5], "context": context}
    [trace] = read(tmp_path, {"question": QUERY, "answer": ANSWER, "retrieval": retrieval})
    assert [chunk.text for chunk in trace.chunks] == TEXTS


@pytest.mark.parametrize("names", [("alpha", "beta"), ("oslo.md", "bergen.md")])
def test_texts_by_their_names_are_chunks(names, tmp_path):
    """An object of texts by name is a chunk for each, also where one text is longer than the others together."""
    texts = dict(zip(names, (TEXTS[0], "A ticket costs five euros."), strict=True))
    [trace] = read(tmp_path, {"question": QUERY, "answer": ANSWER, "contexts": texts})
    assert [(chunk.id, chunk.text) for chunk in trace.chunks] == list(texts.items())


def test_an_object_around_the_answer_is_opened(tmp_path):
    """The answer within an object is read, under whatever name of an answer it stands there."""
    [trace] = read(tmp_path, {"question": QUERY, "contexts": TEXTS, "answer": {"answerText": ANSWER, "state": "OK"}})
    assert trace.answer == ANSWER


@pytest.mark.parametrize("key", ["qid", "query_id", "sample_id"])
def test_rows_of_one_query_id_are_one_trace(key, tmp_path):
    """Rows with ids of their own are passages of one trace where another column names their query."""
    rows = [{"id": n, key: "a", "question": QUERY, "passage": text} for n, text in enumerate(TEXTS)]
    [trace] = read(tmp_path, *rows)
    assert [chunk.text for chunk in trace.chunks] == TEXTS


def test_a_text_that_is_nan_is_a_chunk_without_text(tmp_path):
    """A frame writes NaN for a missing text: the chunk stays, under the name of its document."""
    context = [{"text": TEXTS[0], "url": "https://a.example/1"}, {"text": float("nan"), "url": "https://a.example/2"}]
    [trace] = read(tmp_path, {"question": QUERY, "answer": ANSWER, "contexts": context})
    assert [(chunk.id, chunk.text) for chunk in trace.chunks][1] == ("https://a.example/2", "")


def test_a_conversation_of_the_record_is_asked_before_the_settings_of_its_parts(tmp_path):
    """The query stands in the turns of the record, not in a template of the generator; states are no history."""
    turns = [{"speaker": "user", "text": QUERY}, {"speaker": "agent", "text": ANSWER, "contexts": TEXTS}]
    settings = {"prompt": {"input": "${SPEAKER}: ${TEXT}"}, "name": "m"}
    states = [{"author": "a", "status": "new", "time": 1}, {"author": "b", "status": "done", "time": 2}]
    record = {"generator": settings, "messages": [*turns, *turns], "status_history": states}
    traces = read(tmp_path, record)
    assert [(trace.query, trace.answer, len(trace.chunks)) for trace in traces] == [(QUERY, ANSWER, 2)] * 2
