"""Laws of evaluation sets in the formats of other tools."""

from __future__ import annotations

import json

import pytest

from ragfault.apps.testsets.formats import SET_FORMATS, read_beir, write_testset
from ragfault.apps.testsets.making.make import make_testset
from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.records import Trace


@pytest.fixture(scope="module")
def items(corpus):
    """Return a set with and without gold."""
    return (*make_testset(corpus, 19).items, Trace(id="none", query="Who built the quay of Oslo?", answerable=False))


@pytest.mark.parametrize("kind", SET_FORMATS)
def test_a_written_set_is_read_again_with_its_queries_and_references(items, tmp_path, kind):
    path = tmp_path / ("set.json" if kind == "deepeval" else "set.jsonl")
    assert write_testset(items, path, kind) == len(items)
    traces = list(read_traces(path))
    assert [trace.query for trace in traces] == [item.query for item in items]
    expected = [item.references[:1] for item in items if item.references]
    texts = [trace.references for trace in traces]
    assert [text for text, item in zip(texts, items, strict=True) if item.references] == expected


MAPS = {
    "ragas": {},
    "deepeval": {"id": "additional_metadata.id", "answerable": "additional_metadata.answerable"},
    "langsmith": {"id": "metadata.id", "answerable": "metadata.answerable"},
    "huggingface": {},
}


@pytest.mark.parametrize("kind", SET_FORMATS)
def test_a_written_set_keeps_ids_and_which_items_have_no_answer(items, tmp_path, kind):
    path = tmp_path / ("set.json" if kind == "deepeval" else "set.jsonl")
    write_testset(items, path, kind)
    traces = list(read_traces(path, map=MAPS[kind]))
    assert [(trace.id, trace.answerable) for trace in traces] == [(item.id, item.answerable) for item in items]


def test_examples_of_langsmith_are_what_its_client_takes(items, tmp_path):
    schemas = pytest.importorskip("langsmith.schemas")
    write_testset(items, tmp_path / "set.jsonl", "langsmith")
    rows = [json.loads(line) for line in (tmp_path / "set.jsonl").read_text().splitlines()]
    examples = [schemas.ExampleCreate(**row) for row in rows]
    assert [example.inputs["question"] for example in examples] == [item.query for item in items]


def test_beir_grades_the_documents_of_the_gold(items, corpus, tmp_path):
    with_gold = [item for item in items if item.gold]
    assert write_testset(items, tmp_path, "beir", corpus) == len(with_gold) < len(items)
    again = {item.id: set(item.gold.chunks) for item in read_beir(tmp_path)}
    assert again == {item.id: {span.document for span in item.gold.spans} for item in with_gold}
    texts = [json.loads(line)["text"] for line in (tmp_path / "corpus.jsonl").read_text().splitlines()]
    assert texts == [document.text for document in corpus]


def test_what_cannot_be_written_or_read_is_refused(items, tmp_path):
    with pytest.raises(UsageError):
        write_testset(items, tmp_path, "beir")
    with pytest.raises(UnknownName):
        write_testset(items, tmp_path / "a.jsonl", "ragtime")
    with pytest.raises(InputError):
        read_beir(tmp_path / "nowhere")
