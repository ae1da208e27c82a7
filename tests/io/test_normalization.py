"""Normalization of records: history, steps and answerable from every format and from other forms."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ragfault.evaluation.evaluator import evaluate
from ragfault.io.trace_reader import TraceDigest, read_traces
from ragfault.io.trace_writer import write_traces
from ragfault.model.errors import BadTraces, InputError
from ragfault.model.records import Chunk, ConversationTurn, Latency, Step, Trace

STEP_RECORD = {
    "id": "1",
    "query": "And on Sundays?",
    "history": [{"role": "user", "text": "When does it open?"}, {"role": "assistant", "text": "At nine."}],
    "answer": "It is closed.",
    "answerable": False,
    "steps": [
        {"id": "s1", "kind": "plan", "agent": "planner", "output": "search", "start": 0.0, "duration": 2.5},
        {"id": "s2", "parent": "s1", "kind": "retrieve", "input": "Sundays", "chunks": ["a", "b"]},
        {"id": "s3", "kind": "generate", "tokens": {"prompt": 9}, "error": "timeout"},
    ],
}


def test_an_unknown_kind_of_step_is_refused_with_those_that_there_are(tmp_path: Path):
    """The message names the place, and every kind that a step may have."""
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"query": "When?", "steps": [{"id": "1", "kind": "llm"}]}), encoding="utf-8")
    with pytest.raises(BadTraces, match=r"'llm' - at `\$\.steps\[0\]\.kind`: one of plan, rewrite, .*cite"):
        list(read_traces(path))


@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.csv", "t.tsv", "t.parquet"])
def test_history_steps_and_answerable_survive_every_format(tmp_path: Path, name: str):
    """Traces with the fields of conversations and agents come back equal from every format."""
    trace = msgspec.convert(STEP_RECORD, Trace)
    plain = Trace(id="2", query="When?")
    write_traces([trace, plain], tmp_path / name)
    assert list(read_traces(tmp_path / name)) == [trace, plain]


def test_steps_and_history_are_taken_in_other_forms(tmp_path: Path):
    """Messages and steps of other tools get the names of the fields; a step without an id is named by its place."""
    path = tmp_path / "t.jsonl"
    record = {
        "question": "When?",
        "messages": [{"type": "human", "content": "Hi"}, {"role": "ai", "content": "Hello", "tone": "calm"}],
        "log": [{"kind": "tool", "name": "clock", "took": 3}, {"id": 7, "chunks": [{"doc_id": "a", "text": "x"}, 4]}],
        "possible": "no",
    }
    path.write_text(json.dumps(record))
    columns = {"query": "question", "history": "messages", "steps": "log", "answerable": "possible"}
    [trace] = read_traces(path, map=columns)
    assert trace.history == (ConversationTurn(role="user", text="Hi"), ConversationTurn(role="assistant", text="Hello"))
    assert trace.steps == (Step(id="1", kind="tool", name="clock"), Step(id="7", chunks=("a", "4")))
    assert trace.answerable is False
    assert trace.metadata == {"history.tone": [None, "calm"], "steps.took": [3, None]}


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("steps", [{"id": "1", "kind": "dream"}], "dream"),
        ("steps", [{"id": "1", "duration": -1}], r"steps\[0\]\.duration"),
        ("steps", [{"id": "1", "tokens": {"prompt": -1}}], r"steps\[0\]\.tokens\.prompt"),
        ("history", [{"role": "user"}], "text"),
        ("history", ["Hi"], r"history\[0\]"),
        ("answerable", "perhaps", "answerable"),
    ],
)
def test_wrong_steps_and_history_are_named(tmp_path: Path, field: str, value: Any, problem: str):
    """A value that does not fit is a fault of its line, with its path."""
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"query": "When?", field: value}))
    with pytest.raises(BadTraces, match=problem):
        list(read_traces(path))


def test_the_fingerprint_covers_every_field_and_keeps_its_value():
    """Traces without history, steps and answerable keep the fingerprint they had before these fields existed."""

    def fingerprint(*traces: Trace) -> str:
        digest = TraceDigest()
        for trace in traces:
            digest.add(trace)
        return digest.fingerprint

    bare = Trace(id="1", query="When?", chunks=(Chunk(id="a", text="At noon."),), answer="At noon.")
    assert fingerprint(bare) == "1912a69ca2391b041761f9f01d413b39"
    full = msgspec.convert(STEP_RECORD, Trace)
    for name in ("history", "steps", "answerable"):
        assert fingerprint(full) != fingerprint(msgspec.structs.replace(full, **{name: None}))


def test_an_image_is_read_by_its_caption_and_recognised_text(tmp_path: Path):
    """Words in the metadata of an image become its text, its address moves to the metadata; other images stay."""
    chunks = [
        {"id": "a", "kind": "image", "text": "https://example.org/a.png", "caption": "Plan", "ocr": "Berth 2"},
        {"id": "b", "kind": "image", "alt": "A ferry at night"},
        {"id": "c", "kind": "image", "text": "https://example.org/c.png"},
    ]
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps({"id": "1", "query": "Which berth?", "chunks": chunks}))
    [trace] = read_traces(path)
    assert [chunk.text for chunk in trace.chunks] == ["Plan\nBerth 2", "A ferry at night", "https://example.org/c.png"]
    assert trace.chunks[0].metadata["image"] == "https://example.org/a.png"


@pytest.mark.parametrize("as_record", [False, True])
@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet", "run"])
def test_numbers_that_json_lacks_are_written_as_readers_take_them(name: str, as_record: bool, tmp_path: Path):
    """Infinity in the metadata of a record made in Python is text, NaN is null, as in a file; a latency is refused."""
    metadata = {"limit": math.inf, "scores": [-math.inf, math.nan, 0.5]}
    trace = Trace(id="a", query="When?", chunks=(Chunk(id="c", text="At noon.", metadata=metadata),), metadata=metadata)

    def keep(record: Trace) -> Trace:
        source = [msgspec.to_builtins(record) if as_record else record]
        if name == "run":
            return next(iter(evaluate(source, tmp_path / name, judge="none").traces()))
        write_traces(source, tmp_path / name)
        return next(iter(read_traces(tmp_path / name)))

    restored = keep(trace)
    assert restored.metadata == restored.chunks[0].metadata == {"limit": "Infinity", "scores": ["-Infinity", None, 0.5]}
    (tmp_path / name).rename(tmp_path / "first")
    with pytest.raises((InputError, BadTraces), match=r"latency"):
        keep(replace(trace, latency=Latency(total=math.inf)))


@pytest.mark.parametrize("key", ["metadata", "meta"])
def test_a_passage_takes_id_and_score_from_its_metadata_where_it_has_none(tmp_path: Path, key: str):
    """LangChain keeps id and score in the metadata; a number is an id within the document alone."""
    places = [{"source": "a.md", "chunk_id": 1, "score": 0.5}, {"source": "b.md", "chunk_id": 1}, {"chunk_id": "c-7"}]
    passages = [{"page_content": f"Text {at}.", key: place} for at, place in enumerate(places)]
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"query": "When?", "chunks": passages, "answer": "At noon."}))
    [trace] = read_traces(path)
    assert [chunk.id for chunk in trace.chunks or ()] == ["a.md#1", "b.md#1", "c-7"]
    assert [chunk.score for chunk in trace.chunks or ()] == [0.5, None, None]


def test_a_score_that_is_not_a_number_stays_in_the_metadata_of_its_passage(tmp_path: Path):
    """NaN in the metadata costs no trace: the passage has no score."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"query": "When?", "chunks": [{"page_content": "At nine.", "metadata": {"score": NaN}}]}')
    [trace] = read_traces(path)
    assert [(chunk.text, chunk.score) for chunk in trace.chunks or ()] == [("At nine.", None)]
