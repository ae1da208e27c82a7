"""Laws of spans in other forms: decimal ids, lists in JSON text, rerankers, and files of one export each."""

import json

import pytest

from ragfault.io.trace_reader import read_traces

TRACE, PARENT, CHILD = 0x1F2E3D4C5B6A79880123456789ABCDEF, 0x1F2E3D4C5B6A7988, 0x2F2E3D4C5B6A7989


def attribute(key, value):
    """Return an attribute in OTLP."""
    return {"key": key, "value": {"stringValue": value}}


def span(number, parent, kind, **attributes):
    """Return a span in OTLP with ids in hex."""
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    return {
        "traceId": f"{TRACE:032x}",
        "spanId": f"{number:016x}",
        **({"parentSpanId": f"{parent:016x}"} if parent else {}),
        "name": kind.lower(),
        "startTimeUnixNano": str(1700000000000000000 + number % 1000),
        "endTimeUnixNano": str(1700000000100000000 + number % 1000),
        "attributes": [attribute("openinference.span.kind", kind), *(attribute(*item) for item in named.items())],
    }


def export(*spans):
    """Return one export of OTLP in a line."""
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}) + "\n"


def documents(*names):
    """Return documents as the text of a JSON list."""
    return json.dumps([{"document.id": name, "document.content": f"The text of {name}."} for name in names])


ASK = span(PARENT, None, "CHAIN", input__value="When does the lift run?", output__value="Until ten.")
LOOKUP = span(CHILD, PARENT, "RETRIEVER", input__value="lift", retrieval__documents=documents("a", "b", "c"))


def read_ids(path):
    """Return the ids of the chunks of the only trace."""
    [trace] = read_traces(path)
    return trace.chunks if trace.chunks is None else [chunk.id for chunk in trace.chunks]


def test_documents_in_a_text_are_the_chunks(tmp_path):
    """A list of documents that was written as JSON text is that list."""
    (tmp_path / "t.jsonl").write_text(export(ASK, LOOKUP))
    assert read_ids(tmp_path / "t.jsonl") == ["a", "b", "c"]


def test_the_list_of_the_reranker_is_the_final_one(tmp_path):
    """What a reranker returned, in its order, is what the generator saw."""
    rank = span(CHILD + 1, PARENT, "RERANKER", reranker__output_documents=documents("c", "a"))
    (tmp_path / "t.jsonl").write_text(export(ASK, LOOKUP, rank))
    assert read_ids(tmp_path / "t.jsonl") == ["c", "a"]


def test_a_retriever_without_documents_retrieved_none(tmp_path):
    """A query without documents is an empty list; a retriever that records neither says nothing."""
    (tmp_path / "t.jsonl").write_text(export(ASK, span(CHILD, PARENT, "RETRIEVER", input__value="lift")))
    assert read_ids(tmp_path / "t.jsonl") == []
    (tmp_path / "u.jsonl").write_text(export(ASK, span(CHILD, PARENT, "RETRIEVER")))
    assert read_ids(tmp_path / "u.jsonl") is None


@pytest.mark.parametrize("kind", [str, int])
def test_decimal_ids_are_those_in_hex(kind, tmp_path):
    """Ids as decimal numbers name the same trace as in hex."""
    rows = [
        {
            "name": "ask",
            "trace_id": kind(TRACE),
            "span_id": kind(PARENT),
            "parent_id": None,
            "attributes": {"openinference.span.kind": "CHAIN", "input.value": "When?", "output.value": "Until ten."},
        },
        {
            "name": "find",
            "trace_id": kind(TRACE),
            "span_id": kind(CHILD),
            "parent_id": kind(PARENT),
            "attributes": {"openinference.span.kind": "RETRIEVER", "retrieval.documents": documents("a")},
        },
    ]
    (tmp_path / "t.json").write_text(json.dumps([{**row, "start_time": 1700000000000000000} for row in rows]))
    [trace] = read_traces(tmp_path / "t.json")
    assert trace.id == f"{TRACE:032x}"
    assert [step.parent for step in trace.steps] == [None, f"{PARENT:016x}"]
    assert [chunk.id for chunk in trace.chunks] == ["a"]


def test_spans_of_one_trace_in_several_files_are_one_trace(tmp_path):
    """A collector that writes one file an export spreads a trace over files."""
    (tmp_path / "1.jsonl").write_text(export(LOOKUP))
    (tmp_path / "2.jsonl").write_text(export(ASK))
    [trace] = read_traces(tmp_path)
    assert (trace.answer, [chunk.id for chunk in trace.chunks]) == ("Until ten.", ["a", "b", "c"])
