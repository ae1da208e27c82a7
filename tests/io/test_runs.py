"""Runs on disk: whole or not there, the same whatever the parts, open to any Parquet reader."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragfault.diagnosis.causes.storage import tabulate_causes
from ragfault.io.formats.arrow import SCORE_SCHEMA, VERDICTS_SCHEMA, records_to_table, table_to_records
from ragfault.io.runs.run import MetricInfo, Run
from ragfault.io.runs.writer import RUN_TABLES, PartialRun, RunPlan, encode_part, write_row_groups
from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import InputError, OutputError, RunError
from ragfault.model.records import Score, Trace, Verdicts
from sample_traces import draw_judged_traces

METRIC = MetricInfo("error", "operation", "lower", 0.0, 1.0)


def plan(**changes: object) -> RunPlan:
    base = RunPlan(
        ragfault="0", judge="j/1", metrics=(METRIC,), fingerprint="f", traces=5, source=("t.jsonl",), batch=2
    )
    return msgspec.structs.replace(base, **changes)


def fill(partial: PartialRun) -> None:
    ids = [str(n) for n in range(partial.plan.traces)]
    size = partial.plan.batch
    for number in range(-(-len(ids) // size)):
        part = ids[number * size : (number + 1) * size]
        traces = [Trace(id=i, query=f"query {i}", metadata={"n": int(i)}) for i in part]
        seen = [Verdicts(trace=i, missing=(f"m{i}",)) for i in part]
        scores = [Score(trace=i, metric="error", layer="operation", status="scored", value=0.0) for i in part]
        causes = tabulate_causes(traces, seen, "ignore")
        partial.write_blobs(number, encode_part(traces, seen, causes, records_to_table(scores, SCORE_SCHEMA)))


def finished(out: Path, **changes: object) -> Run:
    partial = PartialRun.begin(out, plan(**changes))
    fill(partial)
    return partial.finish()


def test_a_finished_run_holds_what_was_written(tmp_path: Path):
    """Traces, verdicts and scores come back in order, by id too, and the manifest counts them."""
    run = finished(tmp_path / "run")
    assert [trace.metadata["n"] for trace in run.traces()] == [0, 1, 2, 3, 4]
    assert [verdicts.missing for verdicts in run.verdicts(["3", "1"])] == [("m1",), ("m3",)]
    assert [score.trace for score in run.scores(["4"])] == ["4"]
    again = Run.open(tmp_path / "run")
    assert again.manifest.metrics == (METRIC,)
    assert (again.manifest.traces, again.manifest.scored, again.manifest.failed) == (5, 5, 0)
    assert not (tmp_path / "run.partial").exists()
    assert again.to_pandas().value.sum() == 0.0


def test_any_parquet_reader_opens_a_run(tmp_path: Path):
    """The tables are plain Parquet with the columns of the records; the manifest is JSON."""
    run = finished(tmp_path / "run")
    assert pq.read_table(run.path / "scores.parquet").column_names == list(Score.__struct_fields__)
    assert pq.read_table(run.path / "verdicts.parquet").column_names == list(Verdicts.__struct_fields__)
    assert json.loads((run.path / "manifest.json").read_text())["judge"] == "j/1"


def test_the_files_are_the_same_whatever_the_parts(tmp_path: Path):
    """Parts of one, two or all traces give byte-identical tables."""
    runs = [finished(tmp_path / str(size), batch=size) for size in (1, 2, 5)]
    for name in RUN_TABLES:
        assert len({(run.path / f"{name}.parquet").read_bytes() for run in runs}) == 1


def test_row_groups_take_a_multiple_of_the_least_rows_up_to_so_many_bytes_whatever_the_tables(tmp_path: Path):
    texts = [None if row % 5 == 3 else "x" * 20_000 for row in range(1_130)]
    table = pa.table({"text": pa.array(texts, pa.string())})
    written = []
    for size in (1_130, 64, 7):
        path = tmp_path / f"{size}.parquet"
        write_row_groups((table.slice(at, size) for at in range(0, 1_130, size)), path, 100)
        written.append(path.read_bytes())
    assert len(set(written)) == 1
    metadata = pq.read_metadata(tmp_path / "7.parquet")
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [1_000, 130]
    assert pq.read_table(tmp_path / "7.parquet").equals(table)


def test_an_unfinished_run_resumes(tmp_path: Path):
    """Parts that are there stay; the plan's batch size holds; only the same plan may go on."""
    begun = PartialRun.begin(tmp_path / "run", plan())
    scores = records_to_table([], SCORE_SCHEMA)
    traces, seen = [Trace(id="0", query="q")], [Verdicts(trace="0")]
    begun.write_blobs(0, encode_part(traces, seen, tabulate_causes(traces, seen, "ignore"), scores))
    (begun.path / "parts" / "0000001.draft").mkdir()
    with pytest.raises(RunError, match="never finished"):
        Run.open(tmp_path / "run")
    with pytest.raises(InputError, match="never finished"):
        next(read_traces(tmp_path / "run"))
    resumed = PartialRun.begin(tmp_path / "run", plan(batch=4))
    assert resumed.list_finished_parts() == {0}
    assert resumed.plan.batch == 2
    with pytest.raises(RunError, match="lacks 2 of 3 parts"):
        resumed.finish()
    with pytest.raises(RunError, match=r"another making \(judge was j/1, now k/2"):
        PartialRun.begin(tmp_path / "run", plan(judge="k/2"))
    assert PartialRun.begin(tmp_path / "run", plan(source=("./t.jsonl",))).list_finished_parts() == {0}
    assert PartialRun.begin(tmp_path / "run", plan(judge="k/2"), force=True).list_finished_parts() == frozenset()


def test_a_run_without_finished_parts_is_replaced(tmp_path: Path):
    """What was begun by mistake, and stopped before its first part, is in nobody's way."""
    PartialRun.begin(tmp_path / "run", plan())
    begun = PartialRun.begin(tmp_path / "run", plan(judge="k/2"))
    assert (begun.plan.judge, begun.resumed) == ("k/2", False)


def test_a_place_that_is_taken_is_refused(tmp_path: Path):
    """A run gives way to force only; what is no run never gives way."""
    finished(tmp_path / "run")
    with pytest.raises(OutputError, match=r"exists already.*force=True"):
        PartialRun.begin(tmp_path / "run", plan())
    partial = PartialRun.begin(tmp_path / "run", plan(judge="k/2"), force=True)
    fill(partial)
    assert partial.finish(force=True).manifest.judge == "k/2"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="is not a run"):
        PartialRun.begin(tmp_path / "folder", plan(), force=True)
    assert (tmp_path / "folder" / "thesis.txt").exists()


def test_an_unwritable_place_is_named(tmp_path: Path):
    """A parent that is a file cannot hold a run, and the message names the place."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot write to"):
        PartialRun.begin(tmp_path / "file" / "run", plan())


def test_a_missing_or_damaged_run_is_described(tmp_path: Path):
    """Missing, empty, damaged, half-copied and future runs each say what is wrong and what to do."""
    finished(tmp_path / "good")
    with pytest.raises(RunError, match=r"no run at .*nope\. There is: good\. Make one with"):
        Run.open(tmp_path / "nope")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"holds no manifest\.json"):
        Run.open(tmp_path / "empty")
    (tmp_path / "traces.jsonl").write_text("{}")
    with pytest.raises(RunError, match="is a file, not a run"):
        Run.open(tmp_path / "traces.jsonl")
    manifest = tmp_path / "good" / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"format": 2', '"format": 99'))
    with pytest.raises(RunError, match="Upgrade ragfault"):
        Run.open(tmp_path / "good")
    manifest.write_text(text.replace('"format": 2', '"format": 1'))
    with pytest.raises(RunError, match=r"Make it anew with: ragfault evaluate t\.jsonl -o .*good -m error --force"):
        Run.open(tmp_path / "good")
    manifest.write_text("{")
    with pytest.raises(RunError, match="is not the manifest of a run"):
        Run.open(tmp_path / "good")
    manifest.write_text(text)
    (tmp_path / "good" / "scores.parquet").unlink()
    with pytest.raises(RunError, match=r"scores\.parquet is missing"):
        Run.open(tmp_path / "good")


def test_the_manifest_holds_the_checksum_of_each_file(tmp_path: Path):
    """The checksums are those of the files, and a file that was changed is named."""
    run = finished(tmp_path / "run")
    names = ["causes.parquet", "scores.parquet", "traces.parquet", "verdicts.parquet"]
    assert sorted(run.manifest.checksums) == names
    for name in names:
        content = (run.path / name).read_bytes()
        assert run.manifest.checksums[name] == hashlib.sha256(content).hexdigest()
    run.verify_checksums()
    (run.path / "traces.parquet").write_bytes(b"changed")
    with pytest.raises(RunError, match=r"traces\.parquet is damaged"):
        run.verify_checksums()


def test_a_damaged_table_is_named(tmp_path: Path):
    """A table cut short is named, not a traceback."""
    run = finished(tmp_path / "run")
    for name, read in (("scores", run.to_arrow), ("traces", lambda: list(run.traces()))):
        path = run.path / f"{name}.parquet"
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(RunError, match=rf"{name}\.parquet is damaged"):
            read()


@pytest.mark.long
def test_a_table_that_was_read_once_is_not_trusted_after_its_file_changed(tmp_path: Path):
    """A run gives nothing from memory if the file it was read from is now another."""
    run, other = finished(tmp_path / "run"), finished(tmp_path / "other", fingerprint="g", traces=3)
    assert len(list(run.traces())) == run.to_arrow("traces").num_rows == 5
    (run.path / "traces.parquet").write_bytes((other.path / "traces.parquet").read_bytes())
    with pytest.raises(RunError, match=r"traces\.parquet is damaged"):
        list(run.traces())
    with pytest.raises(RunError, match=r"traces\.parquet is damaged"):
        run.to_arrow("traces")


def test_no_flipped_bit_is_read(tmp_path: Path):
    """A run with one flipped bit anywhere is refused when it is opened or the table is read, or means the same."""
    finished(tmp_path / "run")
    manifest = Run.open(tmp_path / "run").manifest
    for name in ("manifest.json", *(f"{table}.parquet" for table in RUN_TABLES)):
        path = tmp_path / "run" / name
        content = path.read_bytes()
        for at in range(0, len(content), max(1, len(content) // 150)):
            bad = bytearray(content)
            bad[at] ^= 1 << at % 8
            path.write_bytes(bad)
            os.utime(path, ns=(at, at))
            try:
                run = Run.open(tmp_path / "run")
                for table in RUN_TABLES:
                    run.to_arrow(table)
            except RunError:
                continue
            assert name == "manifest.json"
            assert msgspec.structs.replace(run.manifest, checksum="") == msgspec.structs.replace(manifest, checksum="")
        path.write_bytes(content)


def test_white_space_of_a_manifest_changes_nothing(tmp_path: Path):
    """A manifest that a tool wrote again with other line ends and order of fields is the same one."""
    run = finished(tmp_path / "run")
    path = run.path / "manifest.json"
    fields = dict(sorted(json.loads(path.read_text()).items()))
    path.write_bytes(json.dumps(fields, indent=4).replace("\n", "\r\n").encode())
    assert Run.open(run.path).manifest == run.manifest


@pytest.mark.long
@given(st.lists(draw_judged_traces(), max_size=4))
def test_verdicts_round_trip_through_arrow(pairs: list[tuple[Trace, Verdicts]]):
    """Any verdicts come back equal; None and an empty tuple stay apart."""
    seen = [msgspec.convert(msgspec.to_builtins(verdicts), Verdicts) for _, verdicts in pairs]
    assert list(table_to_records(records_to_table(seen, VERDICTS_SCHEMA), Verdicts)) == seen


def test_defaults_are_written_not_left_null():
    """A reader of Parquet sees false and 0.0 where a record has its default, and null only for None."""
    row = Score(trace="1", metric="m", layer="crosscut", status="undefined", reason="r")
    assert records_to_table([row], SCORE_SCHEMA).to_pylist() == [
        {"trace": "1", "metric": "m", "layer": "crosscut", "status": "undefined", "value": None, "reason": "r"}
    ]
    seen = Verdicts(trace="1", failures={"claim": "lost"}, claim=())
    [back] = table_to_records(records_to_table([seen], VERDICTS_SCHEMA), Verdicts)
    assert back == seen
