"""Frames: tables of pandas, polars, Arrow and Hugging Face are sources of traces, and runs become such tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from ragfault import Chunk, Gold, Trace, evaluate, read_traces
from ragfault.io.formats.arrow import traces_to_table
from ragfault.model.errors import BadTraces, InputError
from ragfault.model.records import Latency, TokenCounts

ROWS = [
    {"question": "When does it open?", "contexts": ["It opens at ten.", "Dogs pay."], "answer": "At ten.", "shop": 3},
    {"question": "Who pays?", "contexts": ["Dogs pay."], "answer": "Dogs.", "shop": None},
]
TRACES = [
    Trace(
        id="1",
        query="When?",
        chunks=(Chunk(id="a", text="At ten.", score=0.5, metadata={"page": 3}), Chunk(id="b", text="")),
        answer="At ten.",
        reference="At ten.",
        gold=Gold(chunks={"a": 1.0}),
        latency=Latency(total=12.5),
        tokens=TokenCounts(prompt=3),
        metadata={"shop": 3},
    ),
    Trace(id="2", query="Who?", chunks=(), metadata={"shop": 4}),
    Trace(id="3", query="Where?"),
]


def _pandas(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("pandas", reason="pandas is not installed").DataFrame(rows)


def _polars(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("polars", reason="polars is not installed").DataFrame(rows)


def _lazy(rows: list[dict[str, Any]]) -> Any:
    return _polars(rows).lazy()


def _arrow(rows: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    return pa.Table.from_pylist(rows)


def _dataset(rows: list[dict[str, Any]]) -> Any:
    package = pytest.importorskip("datasets", reason="the package datasets of Hugging Face is not installed")
    return package.Dataset.from_list(rows)


def _streamed(rows: list[dict[str, Any]]) -> Any:
    return _dataset(rows).to_iterable_dataset()


MAKERS = (_pandas, _polars, _lazy, _arrow, _dataset, _streamed)


@pytest.fixture(params=MAKERS, ids=lambda make: make.__name__.strip("_"))
def make(request: pytest.FixtureRequest) -> Callable[[list[dict[str, Any]]], Any]:
    return request.param


def test_a_frame_is_read_as_a_file_of_its_rows(make):
    """The shape is recognised by the columns, and what no field takes is metadata."""
    notices: list[str] = []
    first, second = read_traces(make(ROWS), notice=notices.append)
    assert (first.query, first.answer, [chunk.text for chunk in first.chunks]) == (
        "When does it open?",
        "At ten.",
        ["It opens at ten.", "Dogs pay."],
    )
    assert (first.metadata, second.metadata) == ({"shop": 3}, {})
    assert notices[0].startswith("read as Ragas")


def test_a_map_names_columns_of_a_frame(make):
    """As for a file."""
    rows = [{"q": "When?", "docs": ["At ten."]}]
    [trace] = read_traces(make(rows), map={"query": "q", "chunks": "docs"})
    assert (trace.query, trace.chunks[0].text) == ("When?", "At ten.")
    with pytest.raises(InputError, match="no column `dox`"):
        list(read_traces(make(rows), map={"query": "q", "chunks": "dox"}))


def test_a_bad_row_is_reported_with_its_number(make):
    """And the good ones are read."""
    rows = [*ROWS, {"question": None, "contexts": [], "answer": "?", "shop": 1}]
    with pytest.raises(BadTraces, match="in memory:3: field `query` is missing"):
        list(read_traces(make(rows)))
    assert len(list(read_traces(make(rows), on_bad="skip"))) == 2


@pytest.mark.long
def test_a_frame_is_evaluated(make, tmp_path: Path):
    """The same scores as of its rows, and again when it is evaluated once more; the run says what it was made from."""
    runs = [
        evaluate(make(ROWS), tmp_path / str(n), judge="lexical", metrics=["groundedness"], workers=n) for n in (1, 2)
    ]
    assert [[score.value for score in run.scores()] for run in runs] == [[1.0, 1.0]] * 2
    assert runs[0].manifest.source[0].endswith(" in memory")


@pytest.mark.parametrize("back", ["pandas", "polars", "datasets"])
def test_traces_go_into_a_frame_and_come_back(back: str):
    """Through Arrow, and nothing of them is lost."""
    package = pytest.importorskip(back, reason=f"{back} is not installed")
    table = traces_to_table(TRACES)
    converted = {
        "pandas": table.to_pandas,
        "polars": lambda: package.from_arrow(table),
        "datasets": lambda: package.Dataset(table),
    }[back]()
    assert list(read_traces(converted)) == TRACES, version(back)


def test_a_run_becomes_a_frame(tmp_path: Path):
    """Each of its tables, in pandas, polars and Hugging Face's datasets."""
    for name in ("pandas", "polars", "datasets"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    run = evaluate(TRACES, tmp_path / "run", judge="lexical", metrics=["latency", "error"])
    for table in (run.to_pandas(), run.to_polars().to_pandas(), run.to_dataset().to_pandas()):
        assert len(table) == 6
        assert list(table["metric"][:2]) == ["latency", "error"]
    assert list(read_traces(run.to_polars("traces"))) == TRACES
    assert list(read_traces(run.to_dataset("traces").select([1]))) == TRACES[1:2]


def test_what_is_no_single_table_is_refused():
    """A dataset of several splits, an empty frame, and a column of several kinds say what to do."""
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    with pytest.raises(InputError, match=r"several splits: train\. Name one of them: data\['train'\]"):
        list(read_traces(datasets.DatasetDict({"train": _dataset(ROWS)})))
    with pytest.raises(InputError, match="empty"):
        list(read_traces(_arrow(ROWS).slice(0, 0)))
    doubled = _pandas([{"query": "When?", "answer": "At ten."}])
    doubled.columns = ["query", "query"]
    with pytest.raises(InputError, match=r"cannot be read as a table: .*query"):
        list(read_traces(doubled))


def test_spans_in_a_frame_are_joined():
    """A frame of spans, as Phoenix gives it, is read as traces."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    rows = [
        {
            "name": "ask",
            "span_kind": "CHAIN",
            "parent_id": None,
            "start_time": pandas.Timestamp("2026-01-01T00:00:00Z"),
            "end_time": pandas.Timestamp("2026-01-01T00:00:02Z"),
            "context.trace_id": "a" * 32,
            "attributes.input.value": "When?",
            "attributes.output.value": "At ten.",
            "attributes.retrieval.documents": None,
        },
        {
            "name": "search",
            "span_kind": "RETRIEVER",
            "parent_id": "1" * 16,
            "start_time": pandas.Timestamp("2026-01-01T00:00:00Z"),
            "end_time": pandas.Timestamp("2026-01-01T00:00:01Z"),
            "context.trace_id": "a" * 32,
            "attributes.input.value": "When?",
            "attributes.output.value": None,
            "attributes.retrieval.documents": [{"document.id": "p", "document.content": "It opens at ten."}],
        },
    ]
    table = pandas.DataFrame(rows, index=pandas.Index(["1" * 16, "2" * 16], name="context.span_id"))
    notices: list[str] = []
    [trace] = read_traces(table, notice=notices.append)
    assert notices == ["read as OpenTelemetry spans"]
    assert (trace.query, trace.answer, trace.latency.total) == ("When?", "At ten.", 2000.0)
    assert [(chunk.id, chunk.text) for chunk in trace.chunks] == [("p", "It opens at ten.")]


class Document:
    """A passage as retrievers of LangChain and other libraries return it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def model_dump(self) -> dict[str, Any]:
        return {"page_content": self.text, "metadata": {"source": "a.md"}}


def test_objects_of_libraries_and_values_of_several_kinds_are_read(tmp_path: Path):
    """Documents as contexts, arrays, dates and mixed columns are no reason to refuse a frame or records."""
    numpy = pytest.importorskip("numpy")
    rows = [
        {**row, "contexts": list(map(Document, row["contexts"])), "time": date(2026, 1, 5), "tag": tag, "vector": array}
        for row, tag, array in zip(ROWS, (1, "x"), (numpy.ones((2, 2)), None), strict=True)
    ]
    for source in (_pandas(rows), rows):
        traces = list(read_traces(source))
        assert [[chunk.text for chunk in trace.chunks] for trace in traces] == [row["contexts"] for row in ROWS]
        assert [str(trace.metadata["tag"]) for trace in traces] == ["1", "x"]
        for trace in traces:
            assert (trace.chunks[0].document, trace.time.date()) == ("a.md", date(2026, 1, 5))
    for number, source in enumerate((_pandas(rows), rows)):
        assert evaluate(source, tmp_path / f"run{number}", judge="lexical").manifest.traces == 2


def test_metadata_of_spans_in_parquet_has_the_keys_of_its_span(tmp_path: Path):
    """Arrow gives every object of a column the keys of all: those of others are no metadata."""
    pyarrow = pytest.importorskip("pyarrow")
    spans = [
        {
            "context.trace_id": f"{i}" * 32,
            "context.span_id": f"{i}" * 16,
            "name": "ask",
            "span_kind": "CHAIN",
            "attributes.input.value": "When?",
            "attributes.output.value": "At ten.",
            "attributes.metadata": metadata,
        }
        for i, metadata in enumerate(({"tenant": "north"}, {"release": "2"}), 1)
    ]
    table = pyarrow.Table.from_pylist(spans)
    pyarrow.parquet.write_table(table, tmp_path / "spans.parquet")
    for source in (table, tmp_path / "spans.parquet"):
        assert [trace.metadata for trace in read_traces(source)] == [{"tenant": "north"}, {"release": "2"}]


def test_a_column_that_is_written_twice_counts_once(tmp_path: Path):
    """Pandas writes an index beside the column of its name; two columns of one name that differ are a fault."""
    (tmp_path / "t.csv").write_text("id,id,query\n7,7,When?\n8,8,Who?\n")
    assert [trace.id for trace in read_traces(tmp_path / "t.csv")] == ["7", "8"]
    (tmp_path / "t.csv").write_text("id,query,query\n7,When?,When?\n8,Who?,Where?\n")
    with pytest.raises(BadTraces, match=r"t\.csv:3: two columns are named `query`, and their cells differ"):
        list(read_traces(tmp_path / "t.csv"))


@pytest.mark.parametrize("kind", [list, iter, tuple])
def test_records_in_memory_are_read_as_from_a_file(kind, tmp_path):
    """Dicts in a list, a tuple or a generator give the traces that a file of them gives; a map holds there, too."""
    rows = [{"q": f"When does ferry {n} leave?", "docs": ["At ten."], "reply": "At ten."} for n in range(3)]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert list(read_traces(kind(rows))) == list(read_traces(path))
    with pytest.raises(BadTraces, match="records in memory:2"):
        list(read_traces(kind([rows[0], {**rows[1], "q": " "}])))
    with pytest.raises(InputError, match="no column `dox`"):
        list(read_traces(kind(rows), map={"query": "q", "chunks": "dox"}))
    [first, *_] = read_traces(kind(rows), map={"query": "q", "answer": "docs[0]"})
    assert first.answer == "At ten."


def test_traces_in_memory_are_read_as_they_are():
    """A list of traces gives these traces."""
    traces = [Trace(id="a", query="When?", answer="At ten.")]
    assert list(read_traces(traces)) == traces
