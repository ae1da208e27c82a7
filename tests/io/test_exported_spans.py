"""What platforms export and other tools keep is read as traces: found out by its columns, joined, and nothing lost."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from ragfault import Trace, read_traces
from ragfault.io.field_values import make_content_id
from ragfault.io.trace_reader import summarize_input
from ragfault.model.errors import BadTraces
from ragfault.model.records import Gold, TokenCounts

QUERY = "When does the last ferry leave?"
ANSWER = "The last ferry leaves at 22:40."
TEXTS = ("The last ferry leaves at 22:40 from the north pier.", "Dogs travel free on every ferry.")
DOCUMENTS = [{"page_content": text, "metadata": {"source": "times.md"}} for text in TEXTS]


def read(place: Path, title: str, *more: str) -> list[Trace]:
    """Read a file or folder and return its traces."""
    notices: list[str] = []
    collected = list(read_traces(place, notice=notices.append))
    assert notices == [f"read as {title}", *more]
    assert summarize_input(place).count == len(collected)
    return collected


def write(place: Path, value: Any) -> Path:
    """Write JSON Lines, a JSON document or CSV, by the suffix."""
    if place.suffix == ".jsonl":
        text = "\n".join(json.dumps(row) for row in value) + "\n"
    elif place.suffix == ".csv":
        out = io.StringIO()
        names = list(dict.fromkeys(name for row in value for name in row))
        writer = csv.DictWriter(out, names)
        writer.writeheader()
        writer.writerows(value)
        text = out.getvalue()
    else:
        text = json.dumps(value)
    place.write_text(text, encoding="utf-8")
    return place


# --- Langfuse --------------------------------------------------------------------------------------


def observations(trace: str = "T1") -> list[dict[str, Any]]:
    """Return what Langfuse's API records of a retrieval and a model call."""
    begin = "2026-01-01T00:00:0"
    return [
        {
            "id": f"{trace}-1",
            "traceId": trace,
            "type": "RETRIEVER",
            "name": "search",
            "startTime": f"{begin}0.100Z",
            "endTime": f"{begin}0.300Z",
            "parentObservationId": None,
            "input": QUERY,
            "output": DOCUMENTS,
            "level": "DEFAULT",
        },
        {
            "id": f"{trace}-2",
            "traceId": trace,
            "type": "GENERATION",
            "name": "answer",
            "startTime": f"{begin}0.300Z",
            "endTime": f"{begin}1.300Z",
            "parentObservationId": None,
            "input": [{"role": "user", "content": f"{TEXTS[0]} {QUERY}"}],
            "output": {"role": "assistant", "content": ANSWER},
            "model": "small-1",
            "usageDetails": {"input": 60, "output": 9, "total": 69},
            "promptName": "service",
            "promptVersion": 3,
            "level": "DEFAULT",
        },
    ]


def langfuse(trace: str = "T1") -> dict[str, Any]:
    return {
        "id": trace,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "name": "ask",
        "input": {"question": QUERY},
        "output": {"answer": ANSWER},
        "sessionId": "visit-7",
        "userId": "u1",
        "tags": ["ferry"],
        "release": "v3",
        "environment": "production",
        "metadata": {"tenant": "north"},
        "latency": 1.4,
        "scores": [{"name": "thumbs", "value": 1, "comment": "right"}],
    }


def snake(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row as an export to a bucket has it: snake_case names, values as JSON texts."""
    names = {
        "traceId": "trace_id",
        "parentObservationId": "parent_observation_id",
        "startTime": "start_time",
        "endTime": "end_time",
        "sessionId": "session_id",
        "userId": "user_id",
        "usageDetails": "usage_details",
        "promptName": "prompt_name",
        "promptVersion": "prompt_version",
        "model": "provided_model_name",
    }
    times = ("startTime", "endTime", "timestamp")
    return {
        names.get(key, key): value.replace("T", " ").rstrip("Z")
        if key in times
        else json.dumps(value)
        if isinstance(value, (dict, list))
        else value
        for key, value in row.items()
    }


def right(trace: Trace) -> None:
    assert (trace.id, trace.query, trace.answer, trace.model) == ("T1", QUERY, ANSWER, "small-1")
    assert [(chunk.text, chunk.document) for chunk in trace.chunks] == [(text, "times.md") for text in TEXTS]
    assert trace.tokens == TokenCounts(prompt=60, completion=9)
    assert (trace.latency.retrieval, trace.latency.generation) == (200.0, 1000.0)
    assert [step.name for step in trace.steps if len(step.chunks or ()) == 2] == ["search"]
    assert (trace.metadata["prompt"], str(trace.metadata["prompt_version"])) == ("service", "3")


@pytest.mark.parametrize("form", ["one", "list", "download", "lines"])
def test_a_trace_of_langfuse_with_its_observations(tmp_path: Path, form: str):
    """From the API one by one or in a list, from the download of the UI, and as lines."""
    record = {**langfuse(), "observations": observations()}
    if form == "download":
        value: Any = {"trace": langfuse(), "observations": observations()}
    else:
        value = {"list": {"data": [record], "meta": {"page": 1}}, "lines": [record]}.get(form, record)
    [trace] = read(write(tmp_path / f"t.json{'l' if form == 'lines' else ''}", value), "Langfuse")
    right(trace)
    assert (trace.route, trace.conversation, trace.latency.total) == ("ask", "visit-7", 1400.0)
    assert trace.metadata | {"prompt": "", "prompt_version": 0} == {
        "user": "u1",
        "tags": ["ferry"],
        "release": "v3",
        "environment": "production",
        "tenant": "north",
        "prompt": "",
        "prompt_version": 0,
        "evaluations": [{"name": "thumbs", "score": 1, "reason": "right"}],
    }


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv"])
def test_rows_of_langfuse_are_joined_over_files(tmp_path: Path, ending: str):
    """A folder with the tables of traces and observations that were exported to a bucket."""
    trace = {key: value for key, value in langfuse().items() if key not in ("scores", "latency")}
    write(tmp_path / f"observations.{ending}", [snake(row) for row in observations()])
    write(tmp_path / f"traces.{ending}", [snake(trace)])
    [collected] = read(tmp_path, "Langfuse")
    right(collected)
    assert (collected.route, collected.conversation, collected.latency.total) == ("ask", "visit-7", 1300.0)
    assert collected.metadata["tenant"] == "north"


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_enriched_observations_of_langfuse_stand_alone(tmp_path: Path, ending: str):
    """Their rows say of the trace what its own row would."""
    around = {"trace_name": "ask", "session_id": "visit-7", "user_id": "u1", "tags": '["ferry"]', "release": "v3"}
    [trace] = read(write(tmp_path / f"o.{ending}", [{**snake(row), **around} for row in observations()]), "Langfuse")
    right(trace)
    assert (trace.route, trace.conversation, trace.latency.total) == ("ask", "visit-7", 1200.0)
    assert trace.metadata["tags"] == ["ferry"]


def test_a_trace_of_langfuse_without_observations_has_no_chunks(tmp_path: Path):
    """Question and answer are there, and chunks are not recorded, which is not none."""
    rows = [{**langfuse(), "input": json.dumps(QUERY), "output": json.dumps(ANSWER), "tags": '["ferry"]'}]
    [trace] = read(write(tmp_path / "t.csv", rows), "Langfuse")
    assert (trace.query, trace.answer, trace.chunks) == (QUERY, ANSWER, None)


def test_a_plain_span_of_langfuse_that_retrieves_is_a_retriever(tmp_path: Path):
    """By its name and the list that it gave; an error is why the trace failed."""
    first, second = observations()
    rows = [
        {**first, "type": "SPAN", "name": "VectorStoreRetriever"},
        {**second, "level": "ERROR", "statusMessage": "quota", "output": None},
    ]
    [trace] = read(write(tmp_path / "t.json", {**langfuse(), "output": None, "observations": rows}), "Langfuse")
    assert len(trace.chunks) == 2
    assert (trace.answer, trace.error) == (None, "quota")


def test_a_row_of_langfuse_without_id_is_a_fault_of_its_line(tmp_path: Path):
    """The others are read."""
    rows = [{**langfuse(), "id": None}, {**langfuse("T2"), "observations": []}]
    with pytest.raises(BadTraces, match=r"t\.jsonl:1: a trace of Langfuse without id"):
        list(read_traces(write(tmp_path / "t.jsonl", rows)))
    assert [trace.id for trace in read_traces(tmp_path / "t.jsonl", on_bad="skip")] == ["T2"]


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv"])
def test_scores_of_langfuse_in_a_bucket_rate_their_traces(tmp_path: Path, ending: str):
    """The folder `scores`, which every export to a bucket has, is read with the traces; a rating of none is named."""
    table = [{k: json.dumps(v) if isinstance(v, dict) else v for k, v in snake(row).items()} for row in observations()]
    scores = [
        {"id": "s1", "trace_id": "T1", "name": "helpful", "value": 1, "data_type": "NUMERIC", "comment": "fine"},
        {"id": "s2", "trace_id": None, "name": "of a session", "value": 0, "data_type": "NUMERIC", "comment": None},
        {"id": "s3", "trace_id": "T1", "name": None, "value": None, "data_type": "NUMERIC", "comment": None},
    ]
    for folder, rows in {"observations": table, "scores": scores}.items():
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / f"a.{ending}", rows)
    [trace] = read(tmp_path, "Langfuse", "not read, ratings and log records of no trace of these files: 1")
    assert [chunk.text for chunk in trace.chunks] == list(TEXTS)
    [rating] = trace.metadata["evaluations"]
    assert (rating["name"], float(rating["score"]), rating["reason"]) == ("helpful", 1.0, "fine")


def test_ratings_in_a_table_of_the_ui_of_langfuse_are_read(tmp_path: Path):
    """It has a column for each name, with the list of its values, and one for the comments of people."""
    comments = [{"id": "c", "content": "The pier is wrong.", "author_email": None, "created_at": "2026-01-02"}]
    columns = {"helpful": [0.5], "tone": ["curt"], "comments": comments, "other": None}
    rated = [
        {"name": "helpful", "score": 0.5},
        {"name": "tone", "label": "curt"},
        {"name": "comment", "reason": "The pier is wrong."},
    ]
    bare = {key: value for key, value in langfuse().items() if key not in ("scores", "latency")}
    tables = {"traces": [{**bare, **columns}], "observations": [{**row, **columns} for row in observations()]}
    for name, rows in tables.items():
        printed = [{k: json.dumps(v) if isinstance(v, (dict, list)) else v for k, v in row.items()} for row in rows]
        for file, value in {f"{name}.json": rows, f"{name}.csv": printed}.items():
            [trace] = read(write(tmp_path / file, value), "Langfuse")
            assert trace.metadata["evaluations"] == rated


def test_a_download_of_langfuse_without_its_trace_is_joined(tmp_path: Path):
    """It has observations and scores alone; a category has no number, whatever is written there."""
    scores = [{"name": "verdict", "dataType": "CATEGORICAL", "value": 0, "stringValue": "wrong", "traceId": "T1"}]
    rows = [{**row, "sessionId": "visit-7"} for row in observations()]
    [trace] = read(write(tmp_path / "t.json", {"observations": rows, "scores": scores}), "Langfuse")
    right(trace)
    assert (trace.conversation, trace.metadata["evaluations"]) == ("visit-7", [{"name": "verdict", "label": "wrong"}])


def test_what_has_no_recorded_end_took_no_known_time(tmp_path: Path):
    """A latency of 0 ms is measured: a trace without observations, or one that was exported as it ran, has none."""
    bare = {key: value for key, value in langfuse().items() if key not in ("scores", "latency")}
    [alone] = read(write(tmp_path / "alone.json", [bare]), "Langfuse")
    assert alone.latency.total is None
    search, call = observations()
    open_call = {**call, "endTime": None}
    for name, value in {"rows": [search, open_call], "whole": {**bare, "observations": [search, open_call]}}.items():
        [trace] = read(write(tmp_path / f"{name}.json", value), "Langfuse")
        assert (trace.latency.retrieval, trace.latency.generation, trace.latency.total) == (200.0, None, None)
        assert [step.duration for step in trace.steps if step.kind == "generate"] == [None]
    chain, retriever = phoenix()
    [trace] = read(write(tmp_path / "p.jsonl", [{**chain, "end_time": None}, retriever]), "OpenTelemetry spans")
    assert (trace.latency.retrieval, trace.latency.total) == (1000.0, None)


# --- Phoenix and OpenLLMetry -----------------------------------------------------------------------


def phoenix() -> list[dict[str, Any]]:
    """Return spans as the REST interface and the command line of Phoenix print them."""
    context = {"trace_id": "a" * 32}
    times = [f"2026-01-01T00:00:0{second}.000000+00:00" for second in range(4)]
    return [
        {
            "id": "1",
            "name": "ask",
            "context": {**context, "span_id": "1" * 16},
            "span_kind": "CHAIN",
            "parent_id": None,
            "start_time": times[0],
            "end_time": times[3],
            "status_code": "OK",
            "attributes": {"input.value": QUERY, "output.value": ANSWER},
        },
        {
            "id": "2",
            "name": "search",
            "context": {**context, "span_id": "2" * 16},
            "span_kind": "RETRIEVER",
            "parent_id": "1" * 16,
            "start_time": times[0],
            "end_time": times[1],
            "status_code": "OK",
            "attributes": {f"retrieval.documents.{place}.document.content": text for place, text in enumerate(TEXTS)},
        },
    ]


def test_traces_and_spans_of_phoenix(tmp_path: Path):
    """A page of spans, and whole traces with their spans."""
    nested = [{"traceId": "a" * 32, "spans": phoenix(), "rootSpan": phoenix()[0], "status": "OK", "duration": 3000}]
    for name, value in {"page": {"data": phoenix(), "next_cursor": None}, "traces": nested, "one": nested[0]}.items():
        [trace] = read(write(tmp_path / f"{name}.json", value), "OpenTelemetry spans")
        assert (trace.query, trace.answer, trace.latency.total) == (QUERY, ANSWER, 3000.0)
        assert [chunk.text for chunk in trace.chunks] == list(TEXTS)


def test_a_frame_of_phoenix_in_csv(tmp_path: Path):
    """Its lists stand there as Python prints them."""
    rows = [
        {
            "context.span_id": span["context"]["span_id"],
            "context.trace_id": span["context"]["trace_id"],
            "name": span["name"],
            "span_kind": span["span_kind"],
            "parent_id": span["parent_id"],
            "start_time": span["start_time"].replace("T", " "),
            "end_time": span["end_time"].replace("T", " "),
            "attributes.input.value": span["attributes"].get("input.value"),
            "attributes.output.value": span["attributes"].get("output.value"),
            "attributes.retrieval.documents": None
            if span["span_kind"] == "CHAIN"
            else str([{"document.content": text, "document.score": 0.5} for text in TEXTS]),
        }
        for span in phoenix()
    ]
    [trace] = read(write(tmp_path / "spans.csv", rows), "OpenTelemetry spans")
    assert (trace.query, trace.answer) == (QUERY, ANSWER)
    assert [(chunk.text, chunk.score) for chunk in trace.chunks] == [(text, 0.5) for text in TEXTS]


def test_annotations_of_phoenix_are_ratings(tmp_path: Path):
    """Those of a span and of its trace as `px` prints them, and the columns of evaluations in a frame."""
    result = {"label": "wrong", "score": 0.0, "explanation": "The pier."}
    first, second = phoenix()
    annotated = {**first, "annotations": [{"name": "pier", "annotator_kind": "HUMAN", "result": result}]}
    record = {
        "traceId": "a" * 32,
        "spans": [annotated, second],
        "notes": [{"name": "note", "result": {"explanation": "x"}}],
    }
    flat = {f"context.{key}": value for key, value in first["context"].items()}
    flat |= {key: value for key, value in first.items() if key != "context"}
    flat |= {"eval.Q&A.label": "wrong", "eval.Q&A.score": 0.0, "eval.other.label": None}
    of_span = {"name": "pier", "score": 0.0, "label": "wrong", "reason": "The pier."}
    for name, value, rated in (
        ("whole.json", [record], [of_span, {"name": "note", "reason": "x"}]),
        ("spans.jsonl", [annotated, second], [of_span]),
        ("frame.jsonl", [flat, second], [{"name": "Q&A", "score": 0.0, "label": "wrong"}]),
    ):
        [trace] = read(write(tmp_path / name, value), "OpenTelemetry spans")
        assert trace.metadata["evaluations"] == rated


@pytest.mark.long
def test_spans_beyond_the_most_of_a_trace_are_named(tmp_path: Path):
    """A trace of an endless agent is cut, and its reader told; of retrieval twice as many spans are taken."""
    first, second = phoenix()
    second = {**second, "span_kind": "CHAIN", "attributes": {}}
    rows = [first, *({**second, "context": {**second["context"], "span_id": f"{at:016x}"}} for at in range(2, 5003))]
    notice = "not read, spans and events beyond 5,000 of one trace: 2"
    [trace] = read(write(tmp_path / "s.jsonl", rows), "OpenTelemetry spans", notice)
    assert len(trace.steps) == 5000


def test_times_of_spans_are_read_in_the_unit_of_their_size(tmp_path: Path):
    """Pandas writes a frame to JSON in milliseconds: a latency is no millionth of what it was."""
    begin = 1_767_225_600
    for unit in (10**3, 10**6, 10**9):
        times = [{"start_time": begin * unit, "end_time": (begin + 3) * unit}, {"start_time": begin * unit}]
        rows = [{**span, "end_time": None, **time} for span, time in zip(phoenix(), times, strict=True)]
        [trace] = read(write(tmp_path / f"{unit}.jsonl", rows), "OpenTelemetry spans")
        assert (trace.latency.total, trace.time.timestamp()) == (3000.0, begin)


def test_examples_of_a_data_set_of_phoenix_hold_references(tmp_path: Path):
    """What an example expects is its output: no system has answered it, whatever the file it is kept in."""
    row = {"example_id": "e1", "input": {"question": QUERY}, "output": {"answer": ANSWER}, "metadata": {"topic": "x"}}
    printed = {key: str(value) for key, value in row.items()}
    for name, value in {"d.jsonl": [row], "d.csv": [printed]}.items():
        [trace] = read_traces(write(tmp_path / name, value))
        assert (trace.id, trace.query, trace.answer, trace.reference) == ("e1", QUERY, None, ANSWER)


def test_a_file_of_openllmetry(tmp_path: Path):
    """Requests of OTLP in the words of Traceloop, as the collector's file exporter writes them."""

    def span(place: int, parent: str, name: str, **attributes: str) -> dict[str, Any]:
        return {
            "traceId": "b" * 32,
            "spanId": f"{place:016x}",
            "parentSpanId": parent,
            "name": name,
            "startTimeUnixNano": str(10**18 + place),
            "endTimeUnixNano": str(10**18 + 9 * 10**9),
            "attributes": [
                {"key": key.replace("__", "."), "value": {"stringValue": value}} for key, value in attributes.items()
            ],
        }

    workflow = span(
        1,
        "",
        "ask.workflow",
        traceloop__span__kind="workflow",
        traceloop__entity__input=json.dumps({"args": [], "kwargs": {"question": QUERY}}),
        traceloop__entity__output=json.dumps(ANSWER),
    )
    events = [
        {"name": "db.query.result", "attributes": [{"key": "db.query.result.document", "value": {"stringValue": text}}]}
        for text in TEXTS
    ]
    search = {**span(2, f"{1:016x}", "chroma.query"), "events": events}
    request = {"resourceSpans": [{"scopeSpans": [{"spans": [search, workflow]}]}]}
    [trace] = read(write(tmp_path / "otlp.jsonl", [request]), "OpenTelemetry spans")
    assert (trace.query, trace.answer) == (QUERY, ANSWER)
    assert [chunk.text for chunk in trace.chunks] == list(TEXTS)


# --- LangSmith -------------------------------------------------------------------------------------


def test_runs_that_were_exported_from_langsmith(tmp_path: Path):
    """Runs one by one and as a table, with messages in the manner of OpenAI and tokens beside."""
    common = {"trace_id": "r0", "session_name": "service", "error": None}
    model = {"ls_model_name": "small-1", "ls_provider": "x"}
    rows = [
        {
            **common,
            "id": "r0",
            "name": "ask",
            "run_type": "chain",
            "parent_run_id": None,
            "start_time": "2026-01-01T00:00:00",
            "end_time": "2026-01-01T00:00:02",
            "inputs": {"question": QUERY},
            "outputs": {"answer": ANSWER},
            "extra": {"metadata": {"thread_id": "visit-7", "tenant": "north", "ls_method": "traceable"}},
        },
        {
            **common,
            "id": "r1",
            "name": "search",
            "run_type": "retriever",
            "parent_run_id": "r0",
            "start_time": "2026-01-01T00:00:00",
            "end_time": "2026-01-01T00:00:01",
            "inputs": {"query": QUERY},
            "outputs": {"documents": [{**run, "type": "Document"} for run in DOCUMENTS]},
            "extra": {},
        },
        {
            **common,
            "id": "r2",
            "name": "ChatOpenAI",
            "run_type": "llm",
            "parent_run_id": "r0",
            "start_time": "2026-01-01T00:00:01",
            "end_time": "2026-01-01T00:00:02",
            "inputs": {"messages": [{"role": "user", "content": QUERY}]},
            "outputs": {"choices": [{"message": {"role": "assistant", "content": ANSWER}}]},
            "extra": {"metadata": model},
            "prompt_tokens": 60,
            "completion_tokens": 9,
        },
    ]
    table = [{k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()} for row in rows]
    printed = [{k: str(v) if isinstance(v, dict) else v for k, v in row.items()} for row in rows]  # by pandas
    for name, value in {"runs.jsonl": rows[::-1], "runs.csv": table, "frame.csv": printed}.items():
        [trace] = read(write(tmp_path / name, value), "runs of LangSmith")
        assert (trace.id, trace.query, trace.answer, trace.model) == ("r0", QUERY, ANSWER, "small-1")
        assert [(chunk.text, chunk.document) for chunk in trace.chunks] == [(text, "times.md") for text in TEXTS]
        assert (trace.conversation, trace.metadata, trace.latency.total) == ("visit-7", {"tenant": "north"}, 2000.0)
        assert trace.tokens == TokenCounts(prompt=60, completion=9)


def test_feedback_on_a_run_of_langsmith_is_a_rating(tmp_path: Path):
    """Mean, chosen values and comments of each key, also as the command line of LangSmith writes runs."""
    stats = {"correct": {"n": 1, "avg": 0.0, "values": {"no": 1}, "comments": ["The pier."]}}
    common = {"trace_id": "r0", "start_time": "2026-01-01T00:00:00", "end_time": "2026-01-01T00:00:02"}
    root = {**common, "run_type": "chain", "inputs": {"question": QUERY}, "outputs": {"answer": ANSWER}}
    search = {**common, "run_type": "retriever", "inputs": {"query": QUERY}, "outputs": {"documents": DOCUMENTS}}
    call = {
        **common,
        "run_type": "llm",
        "inputs": {"prompts": [QUERY]},
        "outputs": {"generations": [[{"text": ANSWER}]]},
    }
    runs = [{**root, "id": "r0", "feedback_stats": stats, "extra": {"metadata": {"tenant": "north"}}}]
    runs += [{**search, "id": "r1", "parent_run_id": "r0"}]
    runs += [{**call, "id": "r2", "parent_run_id": "r0", "prompt_tokens": 60, "completion_tokens": 9}]
    own = ("id", "extra", "prompt_tokens", "completion_tokens")
    lines = [{"run_id": run["id"], **{key: run[key] for key in run if key not in own}} for run in runs]
    lines[0]["custom_metadata"] = {"tenant": "north"}
    lines[2]["token_usage"] = {"prompt_tokens": 60, "completion_tokens": 9}
    record = {"trace_id": "r0", "run_count": 3, "runs": lines}
    for name, value in {"runs.jsonl": runs, "cli.jsonl": lines, "get.json": record, "list.json": [record]}.items():
        [trace] = read(write(tmp_path / name, value), "runs of LangSmith")
        assert (trace.id, trace.query, trace.answer) == ("r0", QUERY, ANSWER)
        assert ([chunk.text for chunk in trace.chunks], trace.latency.total) == (list(TEXTS), 2000.0)
        assert trace.tokens == TokenCounts(prompt=60, completion=9)
        rating = {"name": "correct", "score": 0.0, "label": "no", "reason": "The pier."}
        assert trace.metadata == {"tenant": "north", "evaluations": [rating]}


def test_tokens_that_langsmith_did_not_count_are_not_none(tmp_path: Path):
    """It writes 0 for a call whose tokens it does not know."""
    run = {
        "id": "r",
        "run_type": "llm",
        "inputs": {"prompts": [QUERY]},
        "outputs": {"generations": [[{"text": ANSWER}]]},
    }
    [trace] = read(
        write(tmp_path / "r.json", [{**run, "prompt_tokens": 0, "completion_tokens": 0}]), "runs of LangSmith"
    )
    assert trace.tokens is None


# --- data sets of other tools ----------------------------------------------------------------------


def test_a_test_run_of_deepeval(tmp_path: Path):
    """Its cases stand under `testCases`, in camelCase."""
    case = {
        "name": "test_case_0",
        "input": QUERY,
        "actualOutput": ANSWER,
        "expectedOutput": "At 22:40.",
        "retrievalContext": list(TEXTS),
        "completionTime": 0.5,
        "success": True,
    }
    place = write(tmp_path / "run.json", {"testFile": None, "testCases": [case], "conversationalTestCases": []})
    [trace] = read_traces(place)
    assert (trace.query, trace.answer, trace.reference) == (QUERY, ANSWER, "At 22:40.")
    assert [chunk.text for chunk in trace.chunks] == list(TEXTS)
    assert trace.latency.generation == 500.0
    assert trace.metadata == {"name": "test_case_0", "success": True}


def test_goldens_of_deepeval_in_csv(tmp_path: Path):
    """Passages stand in one cell, with `|` between."""
    row = {"input": QUERY, "actual_output": ANSWER, "expected_output": None, "retrieval_context": "|".join(TEXTS)}
    [trace] = read_traces(write(tmp_path / "goldens.csv", [row]))
    assert [chunk.text for chunk in trace.chunks] == list(TEXTS)
    assert trace.reference is None


def test_a_golden_set_of_trulens(tmp_path: Path):
    """Expected chunks become gold, by the ids that chunks of the same text get."""
    row = {
        "query_id": "1",
        "query": QUERY,
        "expected_response": "At 22:40.",
        "expected_chunks": [{"text": TEXTS[0], "expected_score": 0.9}, TEXTS[1]],
    }
    [trace] = read_traces(write(tmp_path / "golden.json", [row]))
    assert (trace.id, trace.query, trace.reference) == ("1", QUERY, "At 22:40.")
    assert trace.gold == Gold(chunks={make_content_id(TEXTS[0]): 0.9, make_content_id(TEXTS[1]): 1.0})


def test_a_test_set_of_ragas(tmp_path: Path):
    """Questions without answers yet are traces all the same."""
    row = {"user_input": QUERY, "reference": "At 22:40.", "reference_contexts": [TEXTS[0]], "synthesizer_name": "one"}
    [trace] = read_traces(write(tmp_path / "testset.jsonl", [row]))
    assert (trace.query, trace.reference, trace.chunks) == (QUERY, "At 22:40.", None)
    assert trace.gold == Gold(chunks={make_content_id(TEXTS[0]): 1.0})


def test_a_log_of_ones_own_is_taken_for_no_export(tmp_path: Path):
    """A record with a query stays a trace of ragfault, whatever columns of platforms stand beside it."""
    row = {"id": "1", "timestamp": 3, "session_id": "s", "trace_id": "t", "spans": [], "query": QUERY, "answer": ANSWER}
    notices: list[str] = []
    [trace] = read_traces(write(tmp_path / "own.jsonl", [row]), notice=notices.append)
    assert notices[0].startswith("read as records (id, query, answer, ")
    assert (trace.query, trace.answer, trace.conversation) == (QUERY, ANSWER, "s")


@pytest.mark.parametrize("key", ["page_content", "pageContent", "Content", "text"])
def test_a_passage_is_read_in_any_spelling_of_its_text(key: str, tmp_path: Path):
    """JavaScript and .NET write the same names in their own case."""
    search = {"id": "a", "type": "RETRIEVER", "name": "search", "startTime": "2026-01-01T10:00:00Z"}
    search |= {"endTime": "2026-01-01T10:00:01Z", "input": QUERY, "output": [{key: text} for text in TEXTS]}
    record = {
        "id": "t",
        "timestamp": "2026-01-01T10:00:00Z",
        "input": QUERY,
        "output": ANSWER,
        "observations": [search],
    }
    [trace] = read_traces(write(tmp_path / "t.jsonl", [record]))
    assert [chunk.text for chunk in trace.chunks] == list(TEXTS)


def test_contexts_that_a_trace_was_given_are_its_chunks(tmp_path: Path):
    """A trace without a retriever of its own names them in its input."""
    record = {"id": "t", "timestamp": "2026-01-01T10:00:00Z", "sessionId": None, "output": ANSWER}
    record["input"] = {"question": QUERY, "contexts": list(TEXTS)}
    [trace] = read_traces(write(tmp_path / "t.jsonl", [record]))
    assert (trace.query, [chunk.text for chunk in trace.chunks]) == (QUERY, list(TEXTS))
