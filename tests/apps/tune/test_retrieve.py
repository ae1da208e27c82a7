"""Laws of recorded retrievals."""

from __future__ import annotations

import msgspec
import pytest

from installed import skip_without

skip_without("bm25s", reason="the extra `retrieval` is not installed")

from ragfault.cli.commands import run_command
from ragfault.io.trace_reader import read_traces
from ragfault.model.records import Chunk, Document, Gold, Span, Trace
from ragfault.retrieval.pipeline_config import load_pipeline

PIPELINE = """
[index]
chunker = "sentences(32)"

[stages]
retrieve = "sparse"
select = "top(2)"

[generator]
model = "llm:a-model-that-is-not-there"
"""
DOCUMENTS = [
    Document(id="pier.md", text="The pier of Tarvik was built of granite in 1907. It shelters forty boats in winter."),
    Document(id="fees.md", text="A night at the quay costs ten crowns. Children under seven pay nothing."),
]
QUESTIONS = [
    Trace(
        id="a", query="What does a night at the quay cost?", reference="Ten crowns.", answer="Two.",
        chunks=(Chunk(id="old", text="Old."),), gold=Gold(spans=(Span(document="fees.md", start=0, end=38),)),
        metadata={"kind": "own"},
    ),
    Trace(id="b", query="Of which stone is the pier?"),
]  # fmt: skip


@pytest.fixture
def files(tmp_path):
    for name, records in (("docs", DOCUMENTS), ("questions", QUESTIONS)):
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    return tmp_path


def test_traces_have_the_chunks_of_the_pipeline_and_their_key_but_no_answer(files):
    out, config = files / "retrieved.jsonl", files / "pipeline.toml"
    command = ["tune", "retrieve", str(files / "docs.jsonl"), str(files / "questions.jsonl"), "-o", str(out)]
    assert run_command([*command, "--pipeline", str(config)]) == 0
    first, second = read_traces(out)
    config.write_text(PIPELINE.partition("[generator]")[0])
    pipeline = load_pipeline(config, DOCUMENTS)
    assert [chunk.id for chunk in first.chunks] == [chunk.id for chunk in pipeline(QUESTIONS[0].query).chunks]
    assert first.chunks[0].document == "fees.md"
    assert second.chunks[0].document == "pier.md"
    assert (first.answer, first.error, first.model) == (None, None, None)
    assert (first.id, first.reference, first.gold, first.metadata) == (
        "a", "Ten crowns.", QUESTIONS[0].gold, {"kind": "own"},
    )  # fmt: skip


def test_an_existing_file_stays_unless_it_is_to_be_replaced(files):
    out = files / "retrieved.jsonl"
    out.write_text("mine")
    command = ["tune", "retrieve", str(files / "docs.jsonl"), str(files / "questions.jsonl"), "-o", str(out)]
    assert run_command(command) == 2
    assert out.read_text() == "mine"
    assert run_command([*command, "--force"]) == 0
    assert len(list(read_traces(out))) == 2
