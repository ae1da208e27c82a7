"""What diagnosis and reports read of a run: each table once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from benchmarks.passes import PassCounter
from ragfault import analyze, evaluate
from ragfault.diagnosis.run_analysis import DiagnosisObserver
from ragfault.diagnosis.run_scan import scan_run
from ragfault.diagnosis.run_table import RunTable
from ragfault.io.runs.run import Run
from ragfault.model.errors import RunError
from ragfault.model.records import Chunk, Gold, Trace
from remembered import LEXICAL


@pytest.fixture
def run(tmp_path):
    """Return a run with gold, a conversation and a question that was asked twice."""
    chunks = (Chunk(id="a", text="The harbour office opens at 7:30."), Chunk(id="b", text="Dogs travel on deck."))
    traces = [
        Trace(
            id=str(number),
            query="When does it open?" if number < 2 else f"May dog {number} travel?",
            chunks=chunks,
            answer="It opens at 7:30.",
            gold=Gold(chunks={"a": 1.0}),
            conversation="one" if number in (3, 4) else None,
        )
        for number in range(6)
    ]
    return evaluate(traces, tmp_path / "run", judge=LEXICAL)


def test_an_analysis_reads_each_table_once(run):
    """All findings on a run come from one pass over its traces, one over its verdicts and one over its scores."""
    with PassCounter() as counter:
        analyze(Run.open(run.path))
    assert {kind: count for kind, count in counter.counts.items() if count} == {
        "traces": 1, "gold": 1, "verdicts": 1, "causes": 1, "scores": 1,
    }  # fmt: skip


def test_one_pass_finds_what_single_reads_find(run):
    """A table that was loaded in one pass holds what it reads part by part."""
    loaded, single = RunTable(run), RunTable(run)
    loaded.load(columns=["route"])
    for name in ("has_gold", "has_key", "injections", "ids"):
        assert getattr(loaded, name) == getattr(single, name), name
    assert loaded.clusters.tolist() == single.clusters.tolist()
    assert len(set(single.clusters.tolist())) == 4
    assert loaded.unknown.tolist() == single.unknown.tolist()
    for name in ("counts", "length", "relevance", "used", "missing", "clusters"):
        assert getattr(loaded.chunks, name).tolist() == getattr(single.chunks, name).tolist(), name


def test_verdicts_in_another_order_are_refused(run):
    """A pass stops at verdicts that are not on the trace of their row."""
    path = run.get_table_path("verdicts")
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table.slice(1), table.slice(0, 1)]), path)
    shuffled = Run(run.path, replace(run.manifest, checksums={}))
    with pytest.raises(RunError, match="order"):
        scan_run(shuffled, [DiagnosisObserver(RunTable(shuffled), 1)])
