"""Laws of reading the records of other tools: right, or refused with a map that works; never in part."""

import bz2
import contextlib
import json
import lzma
import re
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pyarrow
import pyarrow.ipc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragfault.io.formats.field_names import is_metadata_name, rank_fields
from ragfault.io.formats.passages import split_passages
from ragfault.io.trace_reader import explain_missing_fields, read_traces, summarize_input
from ragfault.model.errors import BadTraces, InputError
from tests.support import exported_files
from tests.support.application_logs import LOGS, QUESTIONS, build_squad_question
from tests.support.exported_files import EXPORTS
from tests.support.foreign_records import ANSWER, FIRST, QUERY, RECORDS, REFERENCE, SECOND, TABLES
from tests.support.stored_files import STORED

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check_trace(trace, expected):
    """Check the fields of a trace that its record holds."""
    assert trace.query == expected["query"]
    assert (None if trace.chunks is None else [chunk.text for chunk in trace.chunks]) == expected["chunks"]
    assert (trace.answer, trace.reference) == (expected["answer"], expected["reference"])
    assert [(turn.role, turn.text) for turn in trace.history or ()] == expected.get("history", [])


def put(path, *records):
    """Write a file of JSON Lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", RECORDS)
def test_records_of_other_tools_are_read(name, indent, tmp_path):
    """The record of a tool gives its question, contexts, answer, reference and history, on one line or on many."""
    record, expected = RECORDS[name]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(record, indent=indent))
    check_trace(next(read_traces(path)), expected)


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_read(name, tmp_path):
    """A table gives the same, however its cells are separated and its contexts written."""
    text, expected = TABLES[name]
    (tmp_path / "t.csv").write_text(text)
    check_trace(next(read_traces(tmp_path / "t.csv")), expected)


def parse_flags(message):
    """Return the map that a message proposes."""
    proposed = json.loads(re.search(r"map=(\{.*?\})", message)[1])
    return {field: column for field, column in proposed.items() if not field.startswith("metadata.")}


@pytest.mark.parametrize("name", LOGS)
def test_logs_of_applications_are_read_right_or_refused_with_a_map_that_works(name, tmp_path):
    """A log gives every field of its questions at once, or after the map of its refusal; nothing is left over."""
    build, fields = LOGS[name]
    path = put(tmp_path / "t.jsonl", *(build(number, question) for number, question in enumerate(QUESTIONS)))
    try:
        traces = list(read_traces(path))
    except InputError as refused:
        traces = list(read_traces(path, map=parse_flags(str(refused))))
    for trace, question in zip(traces, QUESTIONS, strict=True):
        check_trace(trace, {**dict.fromkeys(question), **{key: question[key] for key in fields}})


def list_events(number, question):
    """Return the lines that a service logs of a request: asked, retrieved, answered."""
    return [
        {"ts": number, "request_id": f"r{number}", "stage": "ask", "question": question["query"]},
        {"ts": number + 1, "request_id": f"r{number}", "stage": "find", "hits": [{"t": t} for t in question["chunks"]]},
        {"ts": number + 2, "request_id": f"r{number}", "stage": "write", "completion": question["answer"]},
    ]


def test_the_events_of_a_log_of_openai_evals_are_the_trace_of_their_sample(tmp_path):
    """What was sampled is the answer, what was expected the reference; settings and summary are no traces."""
    lines = [{"spec": {"eval_name": "ferry.dev.v0"}}]
    for number, question in enumerate(QUESTIONS):
        common = {"run_id": "r", "sample_id": f"ferry.dev.{number}", "created_by": "", "created_at": "2026-01-05"}
        prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question["query"]}]
        sampling = {"prompt": prompt, "sampled": [question["answer"]]}
        match = {"correct": False, "expected": "By the harbour master.", "picked": question["answer"]}
        lines.append({**common, "event_id": 2 * number, "type": "sampling", "data": sampling})
        lines.append({**common, "event_id": 2 * number + 1, "type": "match", "data": match})
    traces = list(read_traces(put(tmp_path / "log.jsonl", *lines, {"final_report": {"accuracy": 0.0}})))
    assert [(trace.id, trace.query, trace.answer, trace.reference, trace.chunks) for trace in traces] == [
        (f"ferry.dev.{number}", question["query"], question["answer"], "By the harbour master.", None)
        for number, question in enumerate(QUESTIONS)
    ]


def test_a_column_that_repeats_the_answer_is_no_reference(tmp_path):
    """`Pipeline.run` of Haystack gives the reply of the model and the answer built of it."""
    rows = [
        {
            "retriever": {"documents": [{"id": f"d{n}", "content": text} for n, text in enumerate(question["chunks"])]},
            "prompt_builder": {"prompt": f"Answer by the context. Question: {question['query']}"},
            "llm": {"replies": [question["answer"]]},
            "answer_builder": {"answers": [{"data": question["answer"], "query": question["query"], "meta": {}}]},
        }
        for question in QUESTIONS
    ]
    for trace, question in zip(read_traces(put(tmp_path / "t.jsonl", *rows)), QUESTIONS, strict=True):
        check_trace(trace, {**question, "reference": None})


@pytest.mark.parametrize(
    ("column", "value"), [("# Relevant Passages", "2"), ("n_gold", 3), ("gold_count", 1), ("expected_answer_count", 2)]
)
def test_a_number_of_passages_is_no_gold_and_no_reference(column, value, tmp_path):
    """Numbers that name no chunk of the file are metadata, whatever their column is called."""
    chunks = [{"document_id": "d1", "text": FIRST}, {"document_id": "d2", "text": SECOND}]
    rows = [{"question": q["query"], "contexts": chunks, "answer": q["answer"], column: value} for q in QUESTIONS]
    for trace in read_traces(put(tmp_path / "t.jsonl", *rows)):
        assert (trace.gold, trace.reference, trace.metadata) == (None, None, {column: value})


def test_a_number_that_names_a_chunk_is_gold(tmp_path):
    """Ids of chunks may be numbers, and so are those of the gold."""
    chunks = [{"id": 1, "text": FIRST}, {"id": 2, "text": SECOND}]
    rows = [{"question": q["query"], "docs": chunks, "bot_reply": q["answer"], "gold_ids": [2]} for q in QUESTIONS]
    for trace in read_traces(put(tmp_path / "t.jsonl", *rows)):
        assert trace.gold.chunks == {"2": 1.0}


@pytest.mark.parametrize("interleaved", [False, True])
def test_lines_of_one_request_are_one_trace(interleaved, tmp_path):
    """Steps of requests on lines of their own are joined by the id they share, also where requests overlap."""
    events = [list_events(number, question) for number, question in enumerate(QUESTIONS)]
    lines = [line for group in (zip(*events, strict=True) if interleaved else events) for line in group]
    traces = list(read_traces(put(tmp_path / "t.jsonl", *lines)))
    for trace, question in zip(traces, QUESTIONS, strict=True):
        check_trace(trace, {**question, "reference": None})


def test_questions_without_an_answer_are_unanswerable(tmp_path):
    """`is_impossible` is read as not answerable, and a plausible answer is no answer."""
    path = put(
        tmp_path / "t.jsonl", *(build_squad_question(number, question) for number, question in enumerate(QUESTIONS))
    )
    traces = list(read_traces(path))
    assert [trace.answerable for trace in traces] == [True, False, True]
    assert [trace.reference for trace in traces] == [QUESTIONS[0]["reference"], None, QUESTIONS[2]["reference"]]
    assert {trace.answer for trace in traces} == {None}


@pytest.mark.parametrize("column", ["spans", "annotations", "labels", "highlights", "feedback"])
def test_annotations_of_people_are_no_content(column, tmp_path):
    """Lists of marked stretches are neither passages nor a reference, one or several: they are not read."""
    marks = [{"start": 0, "end": 9, "label": "baseless", "text": "It leaves at noon, which is wrong."}]
    rows = [{"query": f"{QUERY} {n}", "docs": [FIRST], "answer": ANSWER, column: marks * n} for n in range(3)]
    unread = {}
    traces = list(read_traces(put(tmp_path / "t.jsonl", *rows), unread=unread))
    assert {(trace.reference, trace.gold, len(trace.chunks)) for trace in traces} == {(None, None, 1)}
    assert (traces[1].metadata, [path.partition("[")[0] for path in unread]) == ({}, [column])


def test_steps_of_another_layout_are_not_read(tmp_path):
    """The log of an agent under the name `steps` is no fault of the trace."""
    steps = [{"index": 0, "kind": "system", "text": "You are a helper."}]
    unread = {}
    [trace] = read_traces(put(tmp_path / "t.jsonl", {"query": QUERY, "answer": ANSWER, "steps": steps}), unread=unread)
    assert (trace.steps, trace.metadata, list(unread)) == (None, {}, ["steps"])


def split_columns(rows):
    """Return rows as an object of their columns."""
    return {key: [row[key] for row in rows] for key in rows[0]} if rows else {}


def natural_question(layout, marked=True):
    """Return a question of Natural Questions in one of its layouts, whose first passage holds the answer."""
    page = "<H1> Ferries </H1> <P> It leaves at six. </P> <P> Tickets cost two euros . </P>"
    words = page.split()
    passages, none = [(3, 9), (9, 16)], {"start_token": -1, "end_token": -1, "candidate_index": -1}
    rows = [{"start_token": first, "end_token": end, "top_level": True} for first, end in passages]
    short = [{"start_token": 7, "end_token": 8}] if marked else []
    note = {"yes_no_answer": "NONE", "long_answer": rows[0] if marked else none, "short_answers": short}
    record = {"example_id": 7, "question_text": "When does it leave?", "annotations": [note]}
    tokens = [{"token": word, "html_token": word[0] == "<"} for word in words]
    if layout == "columns":
        return {
            "id": "7",
            "question": {"text": "When does it leave?", "tokens": ["when"]},
            "document": {"title": "Ferry", "tokens": {"token": words, "is_html": [w[0] == "<" for w in words]}},
            "long_answer_candidates": split_columns(rows),
            "annotations": {**split_columns([note]), "short_answers": [split_columns(short)], "yes_no_answer": [-1]},
        }
    document = {"document_text": page} if layout == "text" else {"document_tokens": tokens}
    return {**record, **document, "long_answer_candidates": rows}


@pytest.mark.parametrize("layout", ["text", "tokens", "columns"])
def test_places_in_a_page_are_read_as_passages_gold_and_reference(layout, tmp_path):
    """Natural Questions give the passages of the page, the marked one as gold, and the words marked as reference."""
    path = put(tmp_path / "t.jsonl", natural_question(layout), {**natural_question(layout, False), "id": "8"})
    first, second = read_traces(path, id_from="line")
    assert [c.text for c in first.chunks] == ["It leaves at six.", "Tickets cost two euros ."]
    assert (first.query, first.reference, first.answer) == ("When does it leave?", "six.", None)
    assert (list(first.gold.chunks), first.answerable) == ([first.chunks[0].id], True)
    assert (second.gold.chunks, second.reference, second.answerable) == ({}, None, False)


def test_places_without_their_page_are_refused_with_a_map_that_works(tmp_path):
    """Annotations of a page that is not in the record stop the reading, and the proposed map reads the questions."""
    record = natural_question("text")
    del record["document_text"]
    path = put(tmp_path / "t.jsonl", record)
    with pytest.raises(InputError, match="places in a document") as refused:
        list(read_traces(path))
    assert next(read_traces(path, map=parse_flags(str(refused.value)))).query == record["question_text"]


def test_other_annotations_beside_a_question_are_not_read(tmp_path):
    """Labels of people under the names of Natural Questions make no question unanswerable."""
    notes = [{"label": "good", "by": "anna"}]
    record = {"question_text": QUERY, "docs": [FIRST], "reply": ANSWER, "annotations": notes}
    [trace] = read_traces(put(tmp_path / "t.jsonl", record))
    assert (trace.answerable, trace.answer, trace.metadata) == (None, ANSWER, {})


@pytest.mark.parametrize("mark", [" ||| ", "|", ";"])
@pytest.mark.parametrize(("column", "part"), [("sources", "document"), ("chunk_ids", "id")])
def test_names_that_are_joined_as_the_contexts_are_name_them(mark, column, part, tmp_path):
    """Ids and sources in one cell belong to the contexts that are joined in as many parts."""
    rows = [(f"{FIRST}{mark}{SECOND}", f"a.md{mark}b.md"), (f"{FIRST}{mark}{SECOND}{mark}Third.", f"c{mark}d{mark}e")]
    cells = "".join(f'"{QUERY} {n}","{texts}","{names}",{ANSWER}\n' for n, (texts, names) in enumerate(rows))
    (tmp_path / "t.csv").write_text(f"question,contexts,{column},answer\n{cells}")
    first, second = read_traces(tmp_path / "t.csv")
    assert [(chunk.text, getattr(chunk, part)) for chunk in first.chunks] == [(FIRST, "a.md"), (SECOND, "b.md")]
    assert [getattr(chunk, part) for chunk in second.chunks] == ["c", "d", "e"]


def test_joined_names_without_such_contexts_are_announced(tmp_path):
    """Names in one cell beside one text stay metadata, and the line on what was read says so."""
    (tmp_path / "t.csv").write_text(f"question,context,sources,answer\n{QUERY},{FIRST},a.md|b.md,{ANSWER}\n")
    notices = []
    [trace] = read_traces(tmp_path / "t.csv", notice=notices.append)
    assert ([chunk.text for chunk in trace.chunks], trace.metadata) == ([FIRST], {"sources": "a.md|b.md"})
    assert "`sources` joins names (a.md, b.md …), but no contexts are joined like them" in notices[-1]


LONG = f"{FIRST} {SECOND} The crew sells tickets on board, and takes cash alone, from all who ask for one in time."
OTHER_SETS = {
    "qrels.tsv": ("query-id\tcorpus-id\tscore\nq1\td3\t1\n", "ragfault run rank RUN QRELS"),
    "qrels.jsonl": ('{"qid": "1", "docid": "184", "label": 3}\n', "ragfault run rank RUN QRELS"),
    "qrels.txt": ("q1 0 d1 1\nq1 0 d2 0\n", "ragfault run rank RUN QRELS"),
    "corpus.jsonl": (
        json.dumps({"_id": "d1", "title": "", "text": LONG, "metadata": {}}),
        "ragfault tune pipeline CORPUS",
    ),
    "corpus.csv": (f'docid,content\n1,"{LONG}"\n', "ragfault tune pipeline CORPUS"),
    "notes.md": (f"# Ferries\n\n{LONG}\n", "ragfault tune pipeline CORPUS"),
    "guard.csv": ("text,label\nYou are a fool,1\nHello there my friend,0\n", "no verb takes"),
    "guard.jsonl": (json.dumps({"id": "p1", "text": LONG, "label": 1, "spans": [[0, 4]]}), "no verb takes"),
}


@pytest.mark.parametrize("name", OTHER_SETS)
def test_files_without_traces_are_named_with_the_verb_that_takes_them(name, tmp_path):
    """Judgements, a corpus and labelled texts are called so, and no column of them is offered as the question."""
    text, verb = OTHER_SETS[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=r"this is (?:not a set of traces but|a corpus)") as refused:
        list(read_traces(tmp_path / name))
    assert verb in str(refused.value)
    assert "map=" not in str(refused.value)


def test_texts_of_questions_are_offered_as_such(tmp_path):
    """A set of questions under a name without meaning is still proposed as the query, and read by it."""
    rows = [{"_id": f"q{n}", "text": f"When does ferry {n} leave?"} for n in range(3)]
    path = put(tmp_path / "t.jsonl", *rows)
    with pytest.raises(InputError) as refused:
        list(read_traces(path))
    assert [t.query for t in read_traces(path, map=parse_flags(str(refused.value)))] == [row["text"] for row in rows]


MARKDOWN = "# Ferries\n\nThey leave daily.\n---\nTickets are sold on board.\n===\n[1] Timetable\n[2] Prices"
NUMBERED = f"[1] {FIRST}\n[2] {SECOND}"


@pytest.mark.parametrize(
    ("column", "values", "counts"),
    [
        ("context", [MARKDOWN, FIRST, SECOND], [1, 1, 1]),
        ("passage", [NUMBERED, NUMBERED], [1, 1]),
        ("document_text", ["One ||| two"], [1]),
        ("contexts", [NUMBERED, f"Document 1: {FIRST}\nDocument 2: {SECOND}", FIRST], [2, 2, 1]),
        ("contexts", [[NUMBERED, MARKDOWN], [FIRST]], [2, 1]),
        ("context", [f"{FIRST} ||| {SECOND}", MARKDOWN, FIRST], [2, 1, 1]),
        ("context", ["<p>One</p><hr><p>Two</p>", FIRST], [1, 1]),
    ],
)
def test_passages_are_split_only_where_the_column_lists_them(column, values, counts, tmp_path):
    """Headings and rules split a text where most texts of the column have them, never in a list or by a single name."""
    rows = [{"question": f"{QUERY} {n}", column: value, "answer": f"{ANSWER} {n}"} for n, value in enumerate(values)]
    assert [len(trace.chunks) for trace in read_traces(put(tmp_path / "t.jsonl", *rows))] == counts


names = st.text("bcdfghjklmnpqrstvwxz", min_size=4, max_size=8).filter(
    lambda name: not is_metadata_name(name) and not rank_fields(name)
)


@st.composite
def foreign_records(draw):
    """Draw a record whose keys say nothing, with the same contents in any nesting and order."""
    keys = draw(st.lists(names, min_size=12, max_size=12, unique=True))
    passages = draw(
        st.sampled_from(
            [
                [FIRST, SECOND],
                [{keys[6]: FIRST, keys[7]: 3}, {keys[6]: SECOND, keys[7]: 4}],
                [{keys[8]: {keys[6]: FIRST}, keys[7]: "a-1"}, {keys[8]: {keys[6]: SECOND}, keys[7]: "a-2"}],
                [[FIRST, 0.5], [SECOND, 0.25]],
                json.dumps([FIRST, SECOND]),
            ]
        )
    )
    parts = [
        (keys[0], QUERY),
        (keys[1], passages),
        (keys[2], ANSWER),
        (keys[9], draw(st.sampled_from([7, "a-7", None]))),
    ]
    parts += draw(st.sampled_from([[], [(keys[3], REFERENCE)]]))
    parts = draw(st.permutations(parts))
    depth = draw(st.integers(0, 2))
    cut = draw(st.integers(0, len(parts)))
    inner = dict(parts[:cut])
    for level in range(depth if inner else 0):
        inner = {keys[10 + level]: inner}
    return {**inner, **dict(parts[cut:])}


@FEW
@given(record=foreign_records())
def test_records_of_unknown_names_are_read_right_or_refused_with_a_map_that_works(record, tmp_path):
    """Keys that say nothing stop the reading; the proposed map then gives every part, and none is lost."""
    path = put(tmp_path / "t.jsonl", record)
    with pytest.raises(InputError) as refused:
        list(read_traces(path))
    [trace] = read_traces(path, map=parse_flags(str(refused.value)))
    assert trace.query == QUERY
    assert [chunk.text for chunk in trace.chunks] == [FIRST, SECOND]
    assert {trace.answer, trace.reference} - {None} == {ANSWER, REFERENCE} & {
        text for text in (ANSWER, REFERENCE) if text in json.dumps(record)
    }


KNOWN_NAMES = {
    "query": ["question", "userQuestion", "Query Text", "user_prompt", "input"],
    "chunks": ["retrievedDocs", "Context", "top_passages", "source_documents", "search-results"],
    "answer": ["botReply", "Generated Answer", "llm_output", "final_response", "prediction"],
    "reference": ["goldAnswer", "expected response", "ground-truth", "reference_text", "target_output"],
}


@FEW
@given(
    picked=st.fixed_dictionaries({field: st.sampled_from(matches) for field, matches in KNOWN_NAMES.items()}),
    order=st.permutations(list(KNOWN_NAMES)),
    outer=st.none() | names,
)
def test_records_with_known_names_are_read(picked, order, outer, tmp_path):
    """Names that say what a column holds are understood in any spelling, order and nesting."""
    content = {"query": QUERY, "chunks": [FIRST, SECOND], "answer": ANSWER, "reference": REFERENCE}
    record = {picked[field]: content[field] for field in order}
    [trace] = read_traces(put(tmp_path / "t.jsonl", {outer: record} if outer else record))
    check_trace(trace, content)


def test_columns_that_claim_one_field_with_equal_right_are_refused(tmp_path):
    """Two answers of one rank stop the reading; the proposed map takes the first of them."""
    path = put(tmp_path / "t.jsonl", {"question": QUERY, "docs": [FIRST], "answer_a": ANSWER, "answer_b": "At ten."})
    with pytest.raises(InputError, match="`answer_a`, `answer_b` may each be the answer") as refused:
        list(read_traces(path))
    [trace] = read_traces(path, map=parse_flags(str(refused.value)))
    assert trace.answer == ANSWER


def test_a_later_record_with_other_columns_is_not_read_in_part(tmp_path):
    """A column that comes late is understood by its name, or stops the reading."""
    first = {"question": QUERY, "answer": ANSWER}
    many = [{**first, "question": f"{QUERY} {place}"} for place in range(40)]
    *_, last = read_traces(put(tmp_path / "t.jsonl", *many, {**first, "docs": [FIRST]}))
    assert [chunk.text for chunk in last.chunks] == [FIRST]
    with pytest.raises(InputError, match=r'map=\{"chunks": "zzz'):
        list(read_traces(put(tmp_path / "t.jsonl", *many, {**first, "zzz": [FIRST, SECOND]})))


def test_the_notice_names_columns(tmp_path):
    """The notice names the column of each field, the ones passed over, and what is metadata."""
    record = {"question": QUERY, "docs": [FIRST], "contexts": [SECOND], "answer": ANSWER, "topic": "ferries"}
    notices = []
    list(read_traces(put(tmp_path / "t.jsonl", record), notice=notices.append))
    assert re.fullmatch(
        r"read as Ragas \(query: question, chunks: contexts, answer\).*metadata: docs, topic", notices[0]
    )


@pytest.mark.parametrize(
    ("column", "expected"), [("messages[-1].content", ANSWER), ("input[0].text", QUERY), ("messages[0].content", QUERY)]
)
def test_paths_into_lists(column, expected, tmp_path):
    """A path takes an item of a list by its place, from the front or from the end."""
    spoken = [{"role": "user", "content": QUERY}, {"role": "assistant", "content": ANSWER}]
    path = put(tmp_path / "t.jsonl", {"q": "q?", "messages": spoken, "input": [{"text": QUERY}]})
    [trace] = read_traces(path, map={"query": "q", "answer": column})
    assert trace.answer == expected


def test_a_path_takes_a_part_of_every_item(tmp_path):
    """`docs[].text` is the list of the texts of all items, with parts beside it in the same order."""
    record = {"q": QUERY, "docs": [{"text": FIRST, "n": {"s": 1}}, {"text": SECOND, "n": {"s": 2}}]}
    how = {"query": "q", "chunks": "docs[].text", "chunks.score": "docs[].n.s"}
    [trace] = read_traces(put(tmp_path / "t.jsonl", record), map=how)
    assert [(chunk.text, chunk.score) for chunk in trace.chunks] == [(FIRST, 1.0), (SECOND, 2.0)]


def test_each_turn_of_a_conversation_is_a_trace_where_asked(tmp_path):
    """The last turn is the trace, or each turn is one of the same conversation, with the turns before it."""
    record, _ = RECORDS["deepeval conversation"]
    path = put(tmp_path / "t.jsonl", record)
    first, second = read_traces(path, turns="each")
    assert (first.query, first.answer, first.history, first.turn) == ("Hello", "Hi!", None, 1)
    assert (second.query, second.answer, len(second.history), second.turn) == (QUERY, ANSWER, 2, 2)
    assert first.conversation == second.conversation
    assert first.id != second.id


@pytest.mark.parametrize(("encoding", "named"), [("utf-16", None), ("utf-16-le", None), ("latin-1", "latin-1")])
def test_encodings(encoding, named, tmp_path):
    """UTF-16 is recognised, other encodings are named."""
    path = tmp_path / "t.csv"
    path.write_bytes(f"question,context,answer\nWann fährt sie?,{FIRST},{ANSWER}\n".encode(encoding))
    [trace] = read_traces(path, encoding=named)
    assert (trace.query, trace.chunks[0].text) == ("Wann fährt sie?", FIRST)
    if named:
        with pytest.raises(BadTraces, match="encoding="):
            list(read_traces(path))
    with pytest.raises(InputError, match="no encoding"):
        list(read_traces(path, encoding="latin-17"))


@pytest.mark.parametrize(("ending", "compress"), [(".bz2", bz2.compress), (".xz", lzma.compress)])
def test_compressed_files(ending, compress, tmp_path):
    """Files of bzip2 and xz are read as they are; one that breaks off is a fault."""
    path = tmp_path / f"t.jsonl{ending}"
    packed = compress(json.dumps({"query": QUERY, "answer": ANSWER}).encode() * 1)
    path.write_bytes(packed)
    [trace] = read_traces(path)
    assert trace.answer == ANSWER
    path.write_bytes(packed[:-12])
    with pytest.raises((BadTraces, InputError)):
        list(read_traces(path))


def test_ids_from_columns(tmp_path):
    """Ids that are not unique can be made of several columns, or of the line."""
    rows = [{"id": 1, "model": name, "query": QUERY, "answer": ANSWER} for name in ("a", "b")]
    path = put(tmp_path / "t.jsonl", *rows)
    with pytest.raises(BadTraces, match="id_from="):
        list(read_traces(path))
    assert [trace.id for trace in read_traces(path, id_from="id,model")] == ["1/a", "1/b"]
    assert [trace.id for trace in read_traces(path, id_from="line")] == ["t.jsonl:1", "t.jsonl:2"]


def test_an_empty_query_is_a_fault_of_its_line(tmp_path):
    """A query of white space is refused, in native lines and others."""
    for key in ("query", "question"):
        with pytest.raises(BadTraces, match=r"t\.jsonl:2: field `query` is empty"):
            list(read_traces(put(tmp_path / "t.jsonl", {key: QUERY, "answer": "a"}, {key: " ", "answer": "b"})))


def test_input_that_measures_nothing_is_explained(tmp_path):
    """An input without contexts and answers says so; one with either does not."""
    bare = summarize_input(put(tmp_path / "a.jsonl", {"question": QUERY, "reference": REFERENCE}))
    assert "--map chunks=COLUMN" in explain_missing_fields(bare)
    assert (
        explain_missing_fields(summarize_input(put(tmp_path / "b.jsonl", {"question": QUERY, "answer": "x"}))) is None
    )


def test_rows_of_one_query_that_stand_apart_are_a_fault(tmp_path):
    """Rows of passages are joined only where they stand together; others are named, and none is lost in silence."""
    rows = [f"{QUERY},{FIRST}", f"{QUERY},{SECOND}", f"Who?,{FIRST}", f"{QUERY},{FIRST}"]
    (tmp_path / "t.csv").write_text("\n".join(["question,passage", *rows]) + "\n")
    with pytest.raises(BadTraces, match="sort the file"):
        list(read_traces(tmp_path / "t.csv"))


def test_rows_of_passages_with_ids_of_their_own_are_joined_by_the_id_of_their_source(tmp_path):
    """Rows of one query with an id each are one trace where another id is that of the query and no answer differs."""
    rows = [
        {"id": f"r{n}", "source_id": f"s{n // 2}", "query": f"{QUERY} {n // 2}", "passage": text}
        for n, text in enumerate([FIRST, SECOND] * 2)
    ]
    assert [len(trace.chunks) for trace in read_traces(put(tmp_path / "t.jsonl", *rows))] == [2, 2]
    answered = [{**row, "answer": f"At {n}."} for n, row in enumerate(rows)]
    assert [len(trace.chunks) for trace in read_traces(put(tmp_path / "t.jsonl", *answered))] == [1] * 4


def test_every_list_of_a_document_is_read(tmp_path):
    """A document with two lists of records gives the records of both."""
    turns = [{"role": "user", "content": QUERY}, {"role": "assistant", "content": ANSWER}]
    document = {"testCases": [{"input": QUERY, "actualOutput": ANSWER}], "conversationalTestCases": [{"turns": turns}]}
    (tmp_path / "t.json").write_text(json.dumps(document, indent=1))
    assert [(trace.query, trace.answer) for trace in read_traces(tmp_path / "t.json")] == [(QUERY, ANSWER)] * 2


@pytest.mark.parametrize(
    ("header", "place"),
    [
        ("record_id,input,output,app_id,latency", "total"),
        ("input,actual_output,retrieval_context,completion_time", "generation"),
    ],
)
def test_seconds_in_cells_are_milliseconds(tmp_path, header, place):
    """A duration in seconds has the same value from a table of text as from JSON: TruLens, DeepEval."""
    cells = dict.fromkeys(header.split(","), "It opens.") | {header.rsplit(",", 1)[1]: "1.5"}
    (tmp_path / "t.csv").write_text(f"{header}\n{','.join(cells.values())}\n")
    (tmp_path / "t.json").write_text(json.dumps([{**cells, header.rsplit(",", 1)[1]: 1.5}]))
    for name in ("t.csv", "t.json"):
        [trace] = read_traces(tmp_path / name)
        assert getattr(trace.latency, place) == 1500.0


def test_the_model_of_a_run_of_langsmith_is_that_of_its_output(tmp_path):
    """A model call that names its model only in `llm_output` has it."""
    call = {"id": "r", "name": "ChatOpenAI", "run_type": "llm", "trace_id": "r", "start_time": "2026-01-02T03:04:05"}
    outputs = {"generations": [[{"text": ANSWER}]], "llm_output": {"model_name": "gpt-4o-mini"}}
    run = {**call, "inputs": {"prompts": [QUERY]}, "outputs": outputs, "parent_run_id": None}
    (tmp_path / "t.jsonl").write_text(json.dumps(run))
    assert [trace.model for trace in read_traces(tmp_path / "t.jsonl")] == ["gpt-4o-mini"]


def test_event_tables_of_trulens_are_spans(tmp_path):
    """The events of one record of TruLens are joined to its trace."""
    root = {"ai.observability.record_root.input": QUERY, "ai.observability.record_root.output": ANSWER}
    root["ai.observability.record_root.ground_truth_output"] = REFERENCE
    chunks = {"ai.observability.retrieval.retrieved_contexts": [FIRST, SECOND]}
    rows = [
        {
            "event_type": "SPAN",
            "record_attributes": json.dumps({"ai.observability.span_type": kind, **attributes}),
            "trace": json.dumps({"trace_id": "1" * 32, "span_id": span * 16, "parent_id": parent * 16}),
            "start_timestamp": "2026-01-01 10:00:00",
            "timestamp": "2026-01-01 10:00:01",
        }
        for kind, attributes, span, parent in (("record_root", root, "a", ""), ("retrieval", chunks, "b", "a"))
    ]
    [trace] = read_traces(put(tmp_path / "t.jsonl", *rows))
    assert (trace.query, trace.answer, [chunk.text for chunk in trace.chunks]) == (QUERY, ANSWER, [FIRST, SECOND])
    assert trace.reference == REFERENCE


@pytest.mark.parametrize("name", EXPORTS | STORED)
def test_exported_files_are_read_right_or_refused_with_a_map_that_works(name, tmp_path):
    """A whole file gives every field of its questions at once, or after the map of its refusal."""
    file, build, fields = (EXPORTS | STORED)[name]
    path = tmp_path / file
    path.write_bytes(build())
    try:
        traces = list(read_traces(path))
    except InputError as refused:
        traces = list(read_traces(path, map=parse_flags(str(refused))))
    for trace, question in zip(traces, exported_files.QUESTIONS, strict=True):
        spoken = [turn for turn in trace.history or () if turn.role != "system"]
        check_trace(
            msgspec.structs.replace(trace, history=tuple(spoken) or None),
            {**dict.fromkeys(question), **{key: question[key] for key in fields}},
        )


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        ("### Source 1\nIt leaves at six.\n\n### Source 2\nIt is free.", ["It leaves at six.", "It is free."]),
        ("**Document 1**\nIt leaves at six.\n**Document 2**\nIt is free.", ["It leaves at six.", "It is free."]),
        ('<doc id="1">It leaves at six.</doc>\n<doc id="2">It is free.</doc>', ["It leaves at six.", "It is free."]),
        (
            "<documents><document><source>a</source><content>It is free.</content></document></documents>",
            ["It is free."],
        ),
        ("[1] It leaves at six.", ["It leaves at six."]),
        ("[12] It leaves at six.", ["[12] It leaves at six."]),
        ("Write <source>a</source> first.", ["Write <source>a</source> first."]),
        ("See\nsource 12 and the map.", ["See\nsource 12 and the map."]),
    ],
)
def test_marks_of_passages(text, passages):
    """Headings and tags part passages and are none of their text; a mark within a sentence is."""
    assert split_passages(text) == passages


def test_calls_of_an_evaluation_are_records_of_their_own(tmp_path):
    """Calls below one that asks nothing are joined at the call that asks."""
    rows = [{"trace_id": "t", "id": "e", "parent_id": None, "inputs": {"model": "m"}, "output": None}]
    for number, question in enumerate(QUESTIONS):
        shared = {"trace_id": "t", "parent_id": "e"}
        rows.append({**shared, "id": f"p{number}", "inputs": {"question": question["query"]}, "output": "At six."})
        search = {**shared, "id": f"r{number}", "parent_id": f"p{number}", "op_name": "op/retrieve:v1"}
        rows.append({**search, "inputs": {"query": question["query"]}, "output": question["chunks"]})
    traces = list(read_traces(put(tmp_path / "t.jsonl", *rows)))
    assert [trace.query for trace in traces] == [question["query"] for question in QUESTIONS]
    assert [[chunk.text for chunk in trace.chunks] for trace in traces] == [q["chunks"] for q in QUESTIONS]


@pytest.mark.parametrize(
    ("file", "kind"), [("t.xml", "XML"), ("t.sql", "a dump in SQL"), ("t.xlsx", "an Excel workbook")]
)
def test_formats_that_are_not_read_are_named(file, kind, tmp_path):
    """A file in another format is refused with its format and what to save it as."""
    (tmp_path / file).write_text("<export><question>When?</question></export>")
    with pytest.raises(InputError, match=f"{kind} is not read: save it as"):
        list(read_traces(tmp_path / file))


def test_a_table_of_a_database_is_read_in_memory_and_its_file_is_named(tmp_path):
    """A relation of DuckDB is a frame; a file of a database is called that, also under another name."""
    duckdb = pytest.importorskip("duckdb")
    rows = duckdb.sql("SELECT 'When?' AS question, 'At nine.' AS answer")
    assert [trace.answer for trace in read_traces(rows)] == ["At nine."]
    duckdb.connect(tmp_path / "log.duckdb").close()
    with contextlib.closing(sqlite3.connect(tmp_path / "log")) as connection:
        connection.execute("CREATE TABLE t (question TEXT)")
    for name in ("log.duckdb", "log"):
        with pytest.raises(InputError, match="a database is not read: save it as JSON Lines"):
            list(read_traces(tmp_path / name))


def test_an_archive_is_refused_and_its_folder_read(tmp_path):
    """A zip is refused with what to do, and the folder that it unpacks to gives a trace for each of its files."""
    unpacked = tmp_path / "export"
    unpacked.mkdir()
    for number, question in enumerate(exported_files.QUESTIONS):
        record = {"question": question["query"], "contexts": question["chunks"], "answer": question["answer"]}
        (unpacked / f"{number}.json").write_text(json.dumps(record, indent=2), "utf-8")
    (unpacked / "README.txt").write_text("One file a trace.")
    archive = Path(shutil.make_archive(str(tmp_path / "export"), "zip", unpacked))
    with pytest.raises(InputError, match="an archive is not read: unpack it"):
        list(read_traces(archive))
    traces = list(read_traces(unpacked))
    assert [trace.answer for trace in traces] == [question["answer"] for question in exported_files.QUESTIONS]


def test_a_data_set_that_was_saved_is_read(tmp_path):
    """A folder of Arrow streams is read without the descriptions beside them."""
    table = pyarrow.table({"question": [QUERY, f"{QUERY} 2"], "contexts": [[FIRST], [SECOND]], "answer": [ANSWER] * 2})
    with pyarrow.ipc.new_stream(tmp_path / "data-00000-of-00001.arrow", table.schema) as writer:
        writer.write_table(table)
    for name in ("dataset_info.json", "state.json"):
        (tmp_path / name).write_text('{"description": "Ferries.", "_data_files": []}')
    assert [trace.chunks[0].text for trace in read_traces(tmp_path)] == [FIRST, SECOND]
    (tmp_path / "data-00000-of-00001.arrow").write_bytes(b"ARROW1 and nothing else")
    with pytest.raises(InputError, match="cannot be read as Arrow"):
        list(read_traces(tmp_path))


@pytest.mark.parametrize("cell", ["['It leaves at six.' 'It is free.' ... 'No.']", "[{'text': 'It leaves at six.'"])
def test_a_printed_list_that_is_not_complete_is_a_fault(cell, tmp_path):
    """A list of which items were left out, or whose end was, is no passage."""
    path = put(tmp_path / "t.jsonl", {"question": QUERY, "contexts": cell, "answer": ANSWER})
    with pytest.raises(BadTraces, match="a printed list that cannot be read"):
        list(read_traces(path))


@pytest.mark.parametrize("values", [("a", "b", "c"), ("us", "it", "ch")])
def test_a_column_whose_values_stand_within_words_alone_is_no_reference(values, tmp_path):
    """Letters of an experiment, and codes that only occur inside words, are metadata."""
    row = {"question": QUERY, "contexts": ["Much business in a bitter church."], "answer": ANSWER}
    rows = [{**row, "arm": value} for value in values]
    traces = list(read_traces(put(tmp_path / "t.jsonl", *rows)))
    assert [(trace.reference, trace.metadata["arm"]) for trace in traces] == [(None, value) for value in values]


def test_numbered_answers_are_not_chosen_among(tmp_path):
    """The answers of two systems in columns by their places are refused with what to say."""
    path = put(tmp_path / "t.jsonl", {"question": QUERY, "model.1.answer": ANSWER, "model.2.answer": "At nine."})
    with pytest.raises(InputError, match="may each be the answer"):
        list(read_traces(path))


@pytest.mark.parametrize("letter", ["B", "S", "N", "L", "M", "BOOL"])
def test_letters_are_ids_where_the_query_is_a_text(letter, tmp_path):
    """A chunk id or key of metadata that is a type letter of DynamoDB stays one where the query is a text."""
    record = {"query": QUERY, "gold": {"chunks": {letter: 1.0}}, "metadata": {"size": {letter: "small"}}}
    [trace] = read_traces(put(tmp_path / "t.jsonl", record))
    assert trace.gold.chunks == {letter: 1.0}
    assert trace.metadata == {"size": {letter: "small"}}


UNUSUAL_VALUES = [
    ({"L": ["a"]}, ["a"]), ({"M": {"x": 1}}, {"x": 1}), ({"L": "a"}, "a"), ({"N": 2}, 2), ({"BOOL": "true"}, "true"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), UNUSUAL_VALUES)
def test_unusual_values_of_items_are_read_with_their_item(value, expected, tmp_path):
    """A value of an item of DynamoDB that is not of its named type is taken as it is, and none is lost."""
    [trace] = read_traces(put(tmp_path / "t.jsonl", {"query": {"S": QUERY}, "answer": {"S": ANSWER}, "note": value}))
    assert (trace.query, trace.answer, trace.metadata) == (QUERY, ANSWER, {"note": expected})


def test_results_of_an_evaluator_are_no_contexts(tmp_path: Path):
    """Items of the OpenAI Evals API list what graders found under `results`, which is not read."""
    item = {"query": "When does it open?", "answer": "At ten.", "results": [{"name": "m", "passed": True, "score": 1}]}
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps(item))
    [trace] = read_traces(path)
    assert (trace.chunks, trace.metadata) == (None, {})


def test_a_saved_data_set_of_several_splits_asks_for_one(tmp_path: Path):
    """A folder of splits, as Hugging Face saves it, is refused with the folders of the splits."""
    (tmp_path / "train").mkdir()
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(InputError, match=r"holds the splits of a data set: name the folder of one \(.*train\)"):
        list(read_traces(tmp_path))


@pytest.mark.parametrize("summary", [{}, {"overall": {"length": 42.4}}])
def test_records_by_ids_below_several_names_are_read(summary, tmp_path):
    """The answers of each system are records by their ids, however deep they lie, beside a summary of numbers."""
    systems = ("one", "two")
    build = lambda name: {  # noqa: E731
        f"{name}{number}": {"question": f"{QUERY} {number}", "output": f"{ANSWER} {name}"} for number in range(30)
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"set": {f"{name}.json": {**build(name), **summary} for name in systems}}))
    traces = list(read_traces(path))
    assert [trace.answer for trace in traces] == [f"{ANSWER} {name}" for name in systems for _ in range(30)]


def test_rows_of_the_attempts_of_a_query_are_joined_apart(tmp_path):
    """Rows for each passage are one trace for each attempt, also if the passages are the same."""
    rows = [
        {"query_id": "q1", "query": QUERY, "run_index": attempt, "passage": text, "answer": ANSWER}
        for attempt in (1, 2)
        for text in (FIRST, SECOND)
    ]
    traces = list(read_traces(put(tmp_path / "t.jsonl", *rows)))
    assert [(trace.attempt, len(trace.chunks)) for trace in traces] == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("column", "value"), [("e2e_correct", "False"), ("answer_correct", True), ("__expected", "python:file://check.py")]
)
def test_verdicts_and_addresses_of_checks_are_no_reference(column, value, tmp_path):
    """What a check found, and where it lies, is metadata, also if its name has a word of a reference."""
    rows = [{"question": q["query"], "correct_answer": q["reference"], column: value} for q in QUESTIONS]
    for trace, question in zip(read_traces(put(tmp_path / "t.jsonl", *rows)), QUESTIONS, strict=True):
        assert (trace.reference, trace.metadata) == (question["reference"], {column: value})


def test_outputs_under_names_in_brackets_are_not_dropped_in_silence(tmp_path):
    """Long outputs in columns such as `[model] prompt` stop the reading, whatever the brackets are taken for."""
    row = {"user_query": QUERY, "[large] prompts.py:plain": f"{FIRST} {SECOND} " * 3, "[small] other": f"{SECOND} " * 6}
    with pytest.raises(InputError, match=r"`\[large\] prompts"):
        list(read_traces(put(tmp_path / "t.jsonl", row, {**row, "user_query": f"{QUERY} 2"})))
