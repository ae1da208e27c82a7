"""Laws of reading and writing traces: every format and shape gives back what was put in."""

import gzip
import json
import os
import string
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragfault.io.field_values import make_content_id
from ragfault.io.formats.arrow import TRACE_SCHEMA, table_to_traces, traces_to_table
from ragfault.io.formats.record_shapes import build_trace_schema
from ragfault.io.trace_reader import read_traces, summarize_input
from ragfault.io.trace_writer import write_traces
from ragfault.model.errors import InputError, UnknownName
from ragfault.model.records import Chunk, Citation, Gold, Latency, Span, TokenCounts, Trace

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.text(string.ascii_letters + string.digits + "-_'=", min_size=1, max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
integers = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 10**15 - 1)
spent = st.floats(0, 1e15, exclude_max=True)
values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | numbers | texts
objects = st.dictionaries(names, values | st.lists(values, max_size=2), max_size=3)
maybe = st.none()
chunks = st.builds(
    Chunk,
    id=names,
    text=texts,
    score=maybe | numbers,
    document=maybe | texts,
    start=maybe | integers,
    end=maybe | integers,
    kind=st.sampled_from(["text", "table", "image", "record"]),
    metadata=objects.map(lambda fields: {k: v for k, v in fields.items() if v is not None}),
)
quotes = dict.fromkeys(("quote", "prefix", "suffix"), maybe | texts)
spans = st.builds(Span, document=texts, start=integers, end=integers, grade=numbers, **quotes)
traces = st.builds(
    Trace,
    id=names,
    query=texts.filter(str.strip),
    chunks=maybe | st.lists(chunks, max_size=3).map(tuple),
    answer=maybe | texts,
    citations=maybe
    | st.lists(st.builds(Citation, chunk=names, quote=maybe | texts, claim=maybe | texts), max_size=2).map(tuple),
    reference=maybe | texts | st.lists(texts, min_size=2, max_size=3).map(tuple) | st.just(()),
    facts=maybe | st.lists(texts, max_size=2).map(tuple),
    gold=maybe
    | st.builds(Gold, chunks=st.dictionaries(names, numbers, max_size=2), spans=st.lists(spans, max_size=2).map(tuple)),
    route=maybe | texts,
    time=maybe | st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)),
    conversation=maybe | texts,
    turn=maybe | counts,
    model=maybe | texts,
    latency=maybe | st.builds(Latency, total=maybe | spent, retrieval=maybe | spent),
    tokens=maybe | st.builds(TokenCounts, prompt=maybe | counts),
    error=maybe | texts.filter(bool),
    metadata=objects.map(lambda fields: {k: v for k, v in fields.items() if v is not None}),
)
runs = st.lists(traces, min_size=1, max_size=4, unique_by=lambda trace: trace.id)


def put(path, *records):
    """Write a file of JSON Lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def read_single(path, **how):
    """Return the only trace of a file."""
    [trace] = read_traces(path, **how)
    return trace


# --- round trips -----------------------------------------------------------------------------------


FORMATS = ["t.jsonl", "t.jsonl.gz", "t.jsonl.zst", "t.json", "t.json.gz", "t.csv", "t.tsv.zst", "t.parquet"]


@QUICK
@given(run=runs)
def test_round_trip(run, tmp_path):
    """Whatever is written in the native shape is read back the same, with one fingerprint, in every format."""
    spelt = [json.loads(msgspec.json.encode(trace)) for trace in run]
    for chunk in (chunk for trace in spelt for chunk in trace.get("chunks") or ()):
        chunk.setdefault("kind", "text")
    fingerprints = {summarize_input(put(tmp_path / "u.jsonl", *spelt)).fingerprint}
    for name in FORMATS:
        path = tmp_path / name
        assert write_traces(run, path, force=True) == len(run), name
        assert list(read_traces(path)) == run, name
        fingerprints.add(summarize_input(path).fingerprint)
    assert len(fingerprints) == 1


@pytest.mark.parametrize("query", ["[0]", "[a]", '["a", "b"]'])
def test_a_query_in_brackets_is_a_text(query, tmp_path):
    """A cell that reads like a list of numbers or texts is the query itself."""
    run = [Trace(id="1", query=query, answer="At ten.")]
    write_traces(run, tmp_path / "t.csv")
    assert list(read_traces(tmp_path / "t.csv")) == run


@QUICK
@given(run=st.lists(traces, max_size=5))
def test_table(run):
    """A table keeps every field, and absent apart from empty, also when it is cut in two."""
    table = traces_to_table(run)
    assert table.schema == TRACE_SCHEMA
    assert list(table_to_traces(table)) == run
    assert list(table_to_traces(table.slice(1))) == run[1:]


def test_table_forms():
    """A table brings a time to UTC and a lone reference out of its tuple, and changes nothing else."""
    there = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    [trace] = table_to_traces(
        traces_to_table([Trace(id="1", query="q", time=there, reference=("a",), metadata={"n": 1.0})])
    )
    assert trace.time == there
    assert trace.time.utcoffset() == timedelta(0)
    assert trace.reference == "a"
    assert isinstance(trace.metadata["n"], float)
    [trace] = table_to_traces(traces_to_table([Trace(id="1", query="q", time=datetime(1950, 1, 1))]))
    assert trace.time == datetime(1950, 1, 1, tzinfo=UTC)


def test_table_defaults():
    """A trace out of a table is written as the trace that went in: defaults stay unwritten."""
    trace = Trace(id="1", query="q", chunks=(Chunk(id="a", text="x", score=0.0), Chunk(id="b", kind="table", start=3)))
    [returned] = table_to_traces(traces_to_table([trace]))
    assert msgspec.json.encode(returned) == msgspec.json.encode(trace)


def test_table_of_others():
    """A table without the needed columns, or with columns of other types, is refused in words."""
    with pytest.raises(InputError, match="no `query`"):
        list(table_to_traces(pa.table({"id": ["1"]})))
    with pytest.raises(InputError, match="not those of a table of traces"):
        list(table_to_traces(pa.table({"id": ["1"], "query": ["q"], "chunks": [3]})))


@pytest.mark.parametrize("shape", ["ragas", "deepeval", "ragchecker", "trulens"])
@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.csv", "t.parquet"])
def test_shapes_return(shape, name, tmp_path):
    """What a foreign shape can hold comes back from it, recognised by itself, in every format."""
    chunks = (Chunk(id=make_content_id("In 1040."), text="In 1040."), Chunk(id=make_content_id("=x"), text="=x"))
    trace = Trace(id="7", query="When?", chunks=chunks, answer="-1040", reference=None)
    if shape != "trulens":
        trace = msgspec.structs.replace(trace, reference="[1040]")
    notices = []
    write_traces([trace], tmp_path / name, shape=shape)
    assert read_single(tmp_path / name, notice=notices.append) == trace
    assert {"ragas": "Ragas", "deepeval": "DeepEval", "ragchecker": "RAGChecker", "trulens": "TruLens"}[
        shape
    ] in notices[0]


@pytest.mark.parametrize("shape", ["ragas", "deepeval", "ragchecker", "trulens", "trec"])
def test_what_a_shape_has_no_place_for_is_reported(shape, tmp_path):
    """The fields that a foreign shape leaves out are named with the number of traces; nothing is said of the native."""
    traces = [Trace(id=name, query="q", chunks=(), citations=(Citation(chunk="c"),), answer="a") for name in "12"]
    notices = []
    count = write_traces(traces, tmp_path / "t.jsonl", shape=shape, notice=notices.append)
    assert "citations (2 traces)" in notices[-1]
    assert ("answer (2 traces)" in notices[-1]) == (shape == "trec")
    assert (count, "2 traces without chunks" in notices[0]) == ((0, True) if shape == "trec" else (2, False))
    notices.clear()
    write_traces(traces, tmp_path / "all.jsonl", notice=notices.append)
    assert not notices


def test_formula_cells(tmp_path):
    """No cell of a CSV file begins as a formula, and all come back as they were."""
    trace = Trace(id="=1+1", query="@SUM(A1)", answer="-2", model="+3", route="", error="'", conversation="'=x")
    write_traces([trace], tmp_path / "t.csv")
    row = (tmp_path / "t.csv").read_text().splitlines()[1]
    assert not any(cell.strip('"')[:1] in set("=+-@") for cell in row.split(",") if cell)
    assert read_single(tmp_path / "t.csv") == trace


def test_pandas_cells(tmp_path):
    """Lists in CSV cells are read as JSON and as Python prints them; numbers as numbers."""
    (tmp_path / "t.csv").write_text(
        "user_input,retrieved_contexts,response,note\nWhen?,\"['In 1040.', 'no']\",1040,5\n"
    )
    trace = read_single(tmp_path / "t.csv")
    assert [chunk.text for chunk in trace.chunks] == ["In 1040.", "no"]
    assert (trace.answer, trace.metadata) == ("1040", {"note": "5"})
    (tmp_path / "t.csv").write_text('id,query,turn,tokens,latency\n1,q,3,"{""prompt"": 4}",2.5\n')
    trace = read_single(tmp_path / "t.csv")
    assert (trace.turn, trace.tokens, trace.latency) == (3, TokenCounts(prompt=4), Latency(total=2.5))


# --- shapes ----------------------------------------------------------------------------------------


def test_native_records_keep_unknown_keys_in_metadata(tmp_path):
    """A native line with keys that a trace has not keeps them as metadata, wherever in the file it stands."""
    plain = {"id": "1", "query": "q", "chunks": [{"id": "a", "text": "x"}]}
    other = {**plain, "id": 2, "label": 1, "chunks": [{"doc_id": 9, "content": "y", "lang": "en"}, "z"]}
    first, second = read_traces(put(tmp_path / "t.jsonl", plain, other))
    assert first.metadata == {}
    assert second.metadata == {"label": 1}
    assert second.chunks == (Chunk(id="9", text="y", metadata={"lang": "en"}), Chunk(id=make_content_id("z"), text="z"))


def test_ragas(tmp_path):
    """Ragas: contexts are texts, ids beside them name them, and ids of the reference are gold."""
    row = {
        "user_input": "When?",
        "retrieved_contexts": ["a", "b"],
        "retrieved_context_ids": [1, 2],
        "reference_context_ids": [2],
        "response": "r",
        "reference": "g",
        "rubrics": {"score1": "bad"},
    }
    trace = read_single(put(tmp_path / "t.jsonl", row))
    assert trace.id == make_content_id("When?", "q-")
    assert trace.chunks == (Chunk(id="1", text="a"), Chunk(id="2", text="b"))
    assert trace.gold == Gold(chunks={"2": 1.0})
    assert (trace.answer, trace.reference, trace.metadata) == ("r", "g", {"rubrics": {"score1": "bad"}})
    old = {"question": "When?", "contexts": ["a"], "answer": "r", "ground_truths": ["g", "h"]}
    trace = read_single(put(tmp_path / "t.jsonl", old))
    assert (trace.query, trace.answer, trace.reference) == ("When?", "r", ("g", "h"))


def test_ragchecker(tmp_path):
    """RAGChecker: a document of results, the passages of one document told apart."""
    passages = [{"doc_id": "d", "text": "a"}, {"doc_id": "d", "text": "b"}, {"doc_id": "d", "text": "a"}]
    row = {"query_id": "000", "query": "q", "gt_answer": "g", "response": "r", "retrieved_context": passages}
    (tmp_path / "t.json").write_text(json.dumps({"results": [row]}, indent=2))
    trace = read_single(tmp_path / "t.json")
    assert [(chunk.id, chunk.text) for chunk in trace.chunks] == [("d", "a"), ("d#2", "b"), ("d", "a")]
    assert (trace.id, trace.reference, trace.answer) == ("000", "g", "r")


def test_trulens(tmp_path):
    """TruLens: contexts come from the last call that retrieves, seconds become milliseconds."""
    call = {"stack": [{"path": "app", "method": {"name": "retrieve"}}], "args": {}, "rets": ["a", "b"]}
    row = {
        "record_id": "r1",
        "app_id": "app",
        "app_json": "{}",
        "input": "q",
        "output": "o",
        "record_json": json.dumps({"record_id": "r1", "main_input": "q", "calls": [call]}),
        "cost_json": json.dumps({"n_prompt_tokens": 5, "n_completion_tokens": 2}),
        "ts": "2026-01-01 10:00:00",
        "latency": 2,
    }
    trace = read_single(put(tmp_path / "t.jsonl", row))
    assert [chunk.text for chunk in trace.chunks] == ["a", "b"]
    assert (trace.query, trace.answer, trace.route) == ("q", "o", "app")
    assert (trace.tokens, trace.latency) == (TokenCounts(prompt=5, completion=2), Latency(total=2000.0))
    assert trace.time == datetime(2026, 1, 1, 10, tzinfo=UTC)


def test_ragtruth(tmp_path):
    """RAGTruth: responses join their sources, whatever the task."""
    put(
        tmp_path / "source_info.jsonl",
        {
            "source_id": "1",
            "task_type": "Summary",
            "source": "CNN",
            "source_info": "News.",
            "prompt": "Sum:\nNews.\nout",
        },
        {
            "source_id": "2",
            "task_type": "QA",
            "source_info": {"question": "Q?", "passages": "passage 1:A\n\npassage 2:B"},
        },
        {
            "source_id": "3",
            "task_type": "Data2txt",
            "source_info": {"name": "Cafe"},
            "prompt": "Tell.\nStructured data:\n",
        },
    )
    common = {"labels": [{"start": 0}], "split": "train", "quality": "good", "model": "m", "response": "r"}
    path = put(tmp_path / "response.jsonl", *({"id": str(n), "source_id": str(n), **common} for n in (1, 2, 3)))
    for where in (path, tmp_path):
        news, asked, data = read_traces(where)
        assert (news.query, [c.text for c in news.chunks]) == ("Sum:", ["News."])
        assert (asked.query, [c.text for c in asked.chunks]) == ("Q?", ["A", "B"])
        assert (data.query, data.chunks[0].text, data.chunks[0].kind) == ("Tell.", '{"name":"Cafe"}', "record")
        assert news.metadata["spans"] == [{"start": 0}]
        assert news.metadata["task"] == "Summary"
    (tmp_path / "source_info.jsonl").unlink()
    with pytest.raises(InputError, match=r"source_info\.jsonl into the same folder"):
        list(read_traces(path))


def test_column_map(tmp_path):
    """A map renames, reaches into nested objects, and takes only what it names and what the shape knows."""
    row = {
        "qid": 5,
        "question": "q",
        "retrieved": {"docs": [{"docid": 3, "text": "x"}]},
        "choices": [{"text": "a"}],
        "task": "QA",
        "ms": 12,
        "noise": "n",
    }
    path = put(tmp_path / "t.jsonl", row)
    how = {
        "id": "qid",
        "query": "question",
        "chunks": "retrieved.docs",
        "answer": "choices.0.text",
        "metadata.task": "task",
        "latency.total": "ms",
    }
    trace = read_single(path, map=how)
    assert trace == Trace(
        id="5",
        query="q",
        chunks=(Chunk(id="3", text="x"),),
        answer="a",
        metadata={"task": "QA"},
        latency=Latency(total=12.0),
    )
    toml = tmp_path / "map.toml"
    toml.write_text(
        'id = "qid"\nquery = "question"\nchunks = "retrieved.docs"\nanswer = "choices.0.text"\n'
        '[metadata]\ntask = "task"\n[latency]\ntotal = "ms"\n'
    )
    assert read_single(path, map=toml) == trace
    assert read_single(path, map=str(toml)) == trace
    parts = {"query": "question", "metadata": {"task": "task"}, "latency": {"total": "ms"}}
    assert read_single(path, map=parts).latency == trace.latency


def test_unknown_names(tmp_path):
    """A map key or shape that does not exist is refused before anything is read, with the nearest name."""
    with pytest.raises(UnknownName, match=r'no map key "chunk".*Did you mean "chunks"'):
        read_traces(tmp_path / "absent", map={"chunk": "docs"})
    with pytest.raises(UnknownName, match=r'no shape "ragaz".*"ragas"'):
        read_traces(tmp_path / "absent", shape="ragaz")
    with pytest.raises(InputError, match="is not TOML"):
        read_traces(put(tmp_path / "t.jsonl"), map=put(tmp_path / "map.toml", {"a": 1}))


@pytest.mark.parametrize("columns", [{"contexts": ["In 1040."]}, {"passage": "In 1040."}])
def test_passages_beside_a_query_are_chunks(columns, tmp_path):
    """Texts under `contexts` or `passage` beside a query are its chunks; other columns stay as metadata."""
    (tmp_path / "t.jsonl").write_text(json.dumps({"query": "When?", **columns, "label": 1}))
    results = read_single(tmp_path / "t.jsonl")
    assert [chunk.text for chunk in results.chunks] == ["In 1040."]
    assert results.metadata == {"label": 1}


def test_a_labeled_set_keeps_each_row_and_all_columns(tmp_path):
    """A labelled set keeps one trace for each row, empty queries, columns like an answer, and texts with `||`."""
    rows = [
        {"query": "", "passage": f"AB || CD in {year}.", "label": 1, "spans": [{"text": "in a long year"}]}
        for year in (1040, 1041)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "t.csv").write_text("query,passage,label\n,AB || CD,1\n,EF || GH,0\n")
    for name in ("t.jsonl", "t.csv"):
        traces = list(read_traces(tmp_path / name, labeled=True))
        assert [(trace.query, len(trace.chunks), "label" in trace.metadata) for trace in traces] == [("", 1, True)] * 2


def test_all_columns_and_locations_are_there_on_request(tmp_path):
    """With a map other columns are kept only in a labelled set; locations hold file and line of each trace."""
    path, places = tmp_path / "t.jsonl", {}
    path.write_text('{"q": "When?", "id": "a", "tag": 3}\n\n{"q": "Who?", "id": "b", "tag": 4}\n')
    results = list(read_traces(path, map={"query": "q"}, labeled=True, locations=places))
    assert [trace.metadata for trace in results] == [{"tag": 3}, {"tag": 4}]
    assert places == {"a": (str(path), 1), "b": (str(path), 3)}
    assert [trace.metadata for trace in read_traces(path, map={"query": "q"})] == [{}, {}]


def test_forced_shape(tmp_path):
    """A shape that is asked for is taken even where another would be recognised."""
    row = {"input": "in", "query": "q", "actual_output": "o", "id": "1"}
    assert read_single(put(tmp_path / "t.jsonl", row)).query == "in"
    assert read_single(tmp_path / "t.jsonl", shape="ragfault").query == "q"


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        (["a", 2], Gold(chunks={"a": 1.0, "2": 1.0})),
        ({"a": 2, "b": 0}, Gold(chunks={"a": 2.0, "b": 0.0})),
        ([{"id": "a", "grade": 3}], Gold(chunks={"a": 3.0})),
        ([{"doc_id": 4, "start": 1, "end": 2}], Gold(spans=(Span(document="4", start=1, end=2),))),
        ({"chunks": ["a"], "spans": []}, Gold(chunks={"a": 1.0})),
    ],
)
def test_gold(gold, expected, tmp_path):
    """Gold may be ids, grades by id, spans, or the native record."""
    assert read_single(put(tmp_path / "t.jsonl", {"id": "1", "query": "q", "gold": gold})).gold == expected


def test_tolerant_parts(tmp_path):
    """Citations may be bare ids, facts objects, a chunk a LangChain document or a LlamaIndex node."""
    row = {
        "id": "1",
        "query": "q",
        "citations": [3, {"id": "a", "quote": "x"}],
        "facts": [{"fact": "f"}, "g"],
        "chunks": [
            {"page_content": "p", "metadata": {"source": "s"}, "type": "Document"},
            {"node": {"id_": "n", "text": "t"}, "score": 0.5},
            {"chunk_id": "c", "doc_id": "d", "text": "u"},
        ],
    }
    trace = read_single(put(tmp_path / "t.jsonl", row))
    assert trace.citations == (Citation(chunk="3"), Citation(chunk="a", quote="x"))
    assert trace.facts == ("f", "g")
    assert trace.chunks == (
        Chunk(id=make_content_id("p"), text="p", document="s", metadata={"source": "s", "type": "Document"}),
        Chunk(id="n", text="t", score=0.5),
        Chunk(id="c", text="u", document="d"),
    )


def test_citations_keep_everything(tmp_path):
    """The quote of a citation may be called text or content; its place in the answer is read."""
    cited = [{"chunk": "x", "text": "a"}, {"doc_id": 4, "content": "b", "start": 7}, "y"]
    trace = read_single(put(tmp_path / "t.jsonl", {"id": "1", "query": "q", "citations": cited}))
    numbered = Citation(chunk="4", quote="b", start=7)
    assert trace.citations == (Citation(chunk="x", quote="a"), numbered, Citation(chunk="y"))
    assert trace.metadata == {}


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv"])
def test_times(name, tmp_path):
    """A time is text in ISO form, or seconds or milliseconds since 1970, in a table as in JSON."""
    for text in ("2024-04-03T05:06:52Z", "1712120812", "1712120812.0", "1712120812000", "1.712120812e9"):
        (tmp_path / "t.jsonl").write_text(json.dumps({"id": "1", "query": "q", "time": text}))
        (tmp_path / "t.csv").write_text(f"id,query,time\n1,q,{text}\n")
        assert read_single(tmp_path / name).time == datetime(2024, 4, 3, 5, 6, 52, tzinfo=UTC)
    (tmp_path / "t.csv").write_text("id,query,time\n1,q,20240403\n")
    assert read_single(tmp_path / "t.csv").time == datetime(2024, 4, 3, tzinfo=UTC)


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.parquet"])
def test_empty_error(name, tmp_path):
    """An error that says nothing is no error."""
    write_traces([Trace(id="1", query="q", error="")], tmp_path / name)
    assert read_single(tmp_path / name).error is None


def test_missing_ids(tmp_path):
    """Traces without an id are named by their query, and numbered where it repeats."""
    path = put(tmp_path / "t.jsonl", *({"query": query} for query in ("a", "b", "a", "a")))
    a, b = make_content_id("a", "q-"), make_content_id("b", "q-")
    assert [trace.id for trace in read_traces(path)] == [a, b, f"{a}#2", f"{a}#3"]


# --- files -----------------------------------------------------------------------------------------


def test_many_files(tmp_path):
    """A directory, a glob and a list give their files in the order of their names, or as listed."""
    (tmp_path / "sub").mkdir()
    put(tmp_path / "b.jsonl", {"id": "b", "query": "q"})
    put(tmp_path / "sub" / "a.jsonl", {"id": "a", "query": "q"})
    put(tmp_path / ".hidden.jsonl", {"id": "h", "query": "q"})
    (tmp_path / "notes.md").write_text("no traces")
    assert [trace.id for trace in read_traces(tmp_path)] == ["b", "a"]
    assert [trace.id for trace in read_traces(str(tmp_path / "**" / "*.jsonl"))] == ["b", "a"]
    assert [trace.id for trace in read_traces([tmp_path / "sub", tmp_path / "b.jsonl"])] == ["a", "b"]


def test_run_directory(tmp_path):
    """A run on disk stands for its traces, not for its scores."""
    (tmp_path / "manifest.json").write_text("{}")
    write_traces([Trace(id="1", query="q")], tmp_path / "traces.parquet")
    (tmp_path / "scores.parquet").write_bytes(b"no Parquet")
    assert read_single(tmp_path) == Trace(id="1", query="q")


def test_folder_of_runs(tmp_path):
    """In a folder, runs and the bad lines kept of an input are passed over; a run that is named gives its traces."""
    put(tmp_path / "a.jsonl", {"id": "a", "query": "q"})
    put(tmp_path / "a.bad.jsonl", {"id": "b", "query": "q"})
    put(tmp_path / "a.bad-2.jsonl", {"id": "c", "query": "q"})
    for name in ("runs/v1", "runs/v2.partial"):
        (tmp_path / name / "parts").mkdir(parents=True)
        for place in (tmp_path / name, tmp_path / name / "parts"):
            write_traces([Trace(id="1", query="q")], place / "traces.parquet")
    (tmp_path / "runs/v1/manifest.json").write_text("{}")
    assert [trace.id for trace in read_traces(tmp_path)] == ["a"]
    assert read_single(tmp_path / "runs/v1") == Trace(id="1", query="q")
    with pytest.raises(InputError, match="a run below it has to be named itself"):
        read_traces(tmp_path / "runs")


def test_sniffing(tmp_path):
    """Compression and format are told from the first bytes where the name does not tell."""
    line = b'\xef\xbb\xbf{"id": "1", "query": "q"}\n'
    (tmp_path / "plain").write_bytes(line)
    (tmp_path / "packed").write_bytes(gzip.compress(line) + gzip.compress(b'{"id": "2", "query": "q"}'))
    (tmp_path / "table.txt").write_text("id,query\n1,q\n")
    (tmp_path / "list.txt").write_text('[{"id": "1", "query": "q"}]')
    for name in ("plain", "table.txt", "list.txt"):
        assert read_single(tmp_path / name) == Trace(id="1", query="q")
    assert [trace.id for trace in read_traces(tmp_path / "packed")] == ["1", "2"]


def test_stdin(tmp_path):
    """A hyphen is standard input, packed or not."""
    import subprocess
    import sys

    code = "from ragfault.io.trace_reader import read_traces; print([t.id for t in read_traces('-')])"
    for text in (b'{"id": "1", "query": "q"}\n', gzip.compress(b'{"id": "1", "query": "q"}\n')):
        done = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, check=True)
        assert done.stdout.decode().strip() == "['1']"


def test_trec(tmp_path):
    """A TREC run and its judgements come back from what was written."""
    chunks = (Chunk(id="d1", score=2.0), Chunk(id="d2", score=1.0))
    trace = Trace(id="q1", query="q1", chunks=chunks, gold=Gold(chunks={"d2": 1.0}))
    assert write_traces([trace], tmp_path / "a.run", qrels=tmp_path / "a.qrels") == 1
    assert read_single(tmp_path / "a.run", qrels=tmp_path / "a.qrels") == trace


def test_summary(tmp_path):
    """A survey's fingerprint is of the traces, not of their file, and moves with any change or swap."""
    first, second = (Trace(id="1", query="q", metadata={"a": 1, "b": 2}), Trace(id="2", query="q", reference=("a",)))
    write_traces([first, second], tmp_path / "t.jsonl")
    write_traces([first, second], tmp_path / "t.parquet")
    write_traces([second, first], tmp_path / "u.jsonl")
    summary = summarize_input(tmp_path / "t.jsonl")
    assert summary.count == 2
    assert summary.shape.startswith("read as ragfault")
    assert summary.fingerprint == summarize_input(tmp_path / "t.parquet").fingerprint
    assert summary.fingerprint != summarize_input(tmp_path / "u.jsonl").fingerprint


def test_schema():
    """The schema describes every field that its record describes, and is JSON."""
    schema = build_trace_schema()
    json.dumps(schema)
    assert schema["$defs"]["Chunk"]["properties"]["id"]["description"].startswith("The same id")
    assert schema["$defs"]["Gold"]["description"]
    assert os.linesep not in schema["$defs"]["Trace"]["description"]


def test_parquet_of_others(tmp_path):
    """A Parquet file of a foreign shape is read by its columns."""
    rows = [{"user_input": "q", "retrieved_contexts": ["a"], "response": None, "at": datetime(2026, 1, 1)}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    trace = read_single(tmp_path / "t.parquet")
    assert (trace.query, trace.answer, trace.metadata) == ("q", None, {"at": "2026-01-01T00:00:00"})


def test_a_function_of_the_record_extracts_a_field(tmp_path: Path):
    """In Python a column may be a function; a record that lacks what it looks for lacks the field."""
    path = tmp_path / "results.jsonl"
    records = [
        {"ask": "When?", "result": {"docs": [{"page": "At ten."}, {"page": "Dogs."}]}, "out": ["At", "ten"]},
        {"ask": "Where?", "result": {}, "out": ["There"]},
    ]
    path.write_text("\n".join(map(json.dumps, records)))

    def read_pages(record: dict) -> list[str]:
        return [document["page"] for document in record["result"]["docs"]]

    columns = {"query": "ask", "chunks": read_pages, "answer": lambda record: " ".join(record["out"])}
    first, second = read_traces(path, map=columns)
    assert [chunk.text for chunk in first.chunks] == ["At ten.", "Dogs."]
    assert (first.answer, second.answer, second.chunks) == ("At ten", "There", None)
    with pytest.raises(InputError, match=r"read_none\(\)"):
        list(read_traces(path, map={**columns, "chunks": lambda_named("read_none")}))


def lambda_named(name: str):
    """Return a function that finds nothing."""
    function = lambda record: record["nowhere"]  # noqa: E731
    function.__name__ = name
    return function
