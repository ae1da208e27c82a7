"""Tests of executors: the run is identical byte by byte, wherever it is evaluated and whatever workers are lost."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import msgspec
import pyarrow.parquet as pq
import pytest

from ragfault.cli.commands import cli
from ragfault.evaluation.evaluator import evaluate
from ragfault.evaluation.jobs import plan_shards
from ragfault.evaluation.rescorer import _read_rows, rescore
from ragfault.executors import ProcessExecutor, RayExecutor
from ragfault.io.runs.run import Run
from ragfault.io.runs.writer import RUN_TABLES, PartialRun, RunPlan
from ragfault.io.slices import index_traces
from ragfault.io.trace_reader import read_traces
from ragfault.io.trace_writer import write_traces
from ragfault.labels.judges.runner import WARMUP_TRACES, run_judge
from ragfault.model.errors import InputError, MissingExtra, OutputError, RunError, UsageError
from ragfault.model.protocols import Executor
from ragfault.model.records import Trace
from ragfault.model.work_settings import ignore_report
from ray_cluster import RecordingJudge, build_traces

SUPPORT = Path(__file__).parents[1] / "support"
ROOT = Path(__file__).parents[2]
METRICS = ["context_relevance", "redundancy", "error"]

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed (ragfault[ray])")
needs_s3 = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("s3fs", "moto")),
    reason="s3fs and moto, which stands for S3, are not installed",
)


def tables(run: Run) -> list[bytes]:
    return [(run.path / f"{name}.parquet").read_bytes() for name in RUN_TABLES]


@pytest.fixture(scope="module")
def complete_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of 600 traces by one process."""
    return evaluate(
        build_traces(600), tmp_path_factory.mktemp("whole") / "run", judge=RecordingJudge(), metrics=METRICS
    )


# --- slices ----------------------------------------------------------------------------------------


def inputs(folder: Path) -> dict[str, list[Path]]:
    """Write the same 2,500 traces to files that can be sliced."""
    traces = build_traces(2500)
    write_traces(traces, folder / "a.jsonl")
    write_traces(traces, folder / "a.parquet")
    write_traces(traces[:700], folder / "1.jsonl")
    write_traces(traces[700:702], folder / "2.parquet")
    lines = [msgspec.json.encode(trace) for trace in traces[702:]]
    (folder / "3.jsonl").write_bytes(b"\xef\xbb\xbf\n" + b"\n \n".join(lines))
    (folder / "none.jsonl").write_bytes(b"")
    mixed = [folder / name for name in ("1.jsonl", "none.jsonl", "2.parquet", "3.jsonl")]
    return {"jsonl": [folder / "a.jsonl"], "parquet": [folder / "a.parquet"], "mixed": mixed}


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "mixed"])
def test_slices_equal_the_full_input(kind: str, tmp_path: Path):
    """From any trace to any other, over the borders of files and row groups, with blank lines and a byte order mark."""
    where = inputs(tmp_path)[kind]
    traces = list(read_traces(where))
    places = index_traces(where, len(traces))
    assert places is not None
    for first, count in ((0, 1), (0, 2500), (699, 4), (701, 2), (1023, 2), (1024, 64), (2436, 64), (2499, 1)):
        assert list(places.slice(first, count).traces()) == traces[first : first + count]


def test_inputs_without_index_are_not_sliced(tmp_path: Path):
    """Compressed files, arrays, other shapes, tables of text, and counts that do not agree are read in order."""
    write_traces(build_traces(5), tmp_path / "t.jsonl")
    packed = tmp_path / "packed.jsonl"
    packed.write_bytes(gzip.compress((tmp_path / "t.jsonl").read_bytes()))
    for name in ("t.csv", "t.json", "t.jsonl.gz"):
        write_traces(build_traces(5), tmp_path / name)
        assert index_traces(tmp_path / name, 5) is None
    write_traces(build_traces(5), tmp_path / "ragas.jsonl", shape="ragas")
    assert index_traces(tmp_path / "ragas.jsonl", 5) is None
    assert index_traces(packed, 5) is None
    assert index_traces(tmp_path / "t.jsonl", 6) is None
    assert index_traces(tmp_path / "t.jsonl", 5) is not None


@pytest.mark.parametrize(("batch", "done"), [(64, set()), (1, {3}), (7, {0, 1, 50, 357}), (5000, set())])
def test_shards_hold_every_unfinished_batch_once(batch: int, done: set[int], tmp_path: Path):
    """Shards hold every unfinished batch exactly once, with the right traces."""
    write_traces(build_traces(2500), tmp_path / "t.jsonl")
    places = index_traces(tmp_path / "t.jsonl", 2500)
    plan = RunPlan(ragfault="1", judge="j", metrics=(), fingerprint="f", traces=2500, batch=batch)
    numbers = []
    for share in plan_shards(places, plan, frozenset(done)):
        assert share.slice.first == share.number * batch
        numbers += range(share.number, share.number + -(-share.slice.count // batch))
    assert numbers == [number for number in range(-(-2500 // batch)) if number not in done]


# --- executors -------------------------------------------------------------------------------------


class RemoteExecutor:
    """A worker process in another folder, which cannot see relative paths of this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def map_unordered(self, task_function: Callable, items: Iterable) -> Iterator:
        pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=os.chdir, initargs=(self.folder,))
        with pool:
            for item in items:
                yield pool.submit(task_function, item).result()


def test_executors_implement_the_protocol():
    """ProcessExecutor, RayExecutor and any class with `map_unordered` are executors."""
    for executor in (ProcessExecutor(2), RayExecutor("local"), RemoteExecutor(Path())):
        assert isinstance(executor, Executor)
    for kind in (ProcessExecutor, lambda workers: RayExecutor("local", workers)):
        with pytest.raises(UsageError, match="at least 1"):
            kind(0)


@pytest.mark.long
@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl.gz", "ragas.jsonl"])
def test_workers_give_the_run_of_one_process(name: str, tmp_path: Path):
    """The run is the same whether workers read the input or receive it."""
    write_traces(build_traces(300), tmp_path / name, shape="ragas" if name.startswith("ragas") else "ragfault")
    first, two = (
        evaluate(
            tmp_path / name, tmp_path / str(workers), judge=RecordingJudge(), metrics=METRICS, workers=workers, batch=7
        )
        for workers in (1, 2)
    )
    assert tables(first) == tables(two)


@pytest.mark.long
def test_workers_without_the_files_receive_the_traces(
    complete_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Workers with other disks receive traces and return batches; runs are rescored here."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write_traces(build_traces(600), "t.jsonl")
    other = RemoteExecutor(tmp_path / "there")
    run = evaluate("t.jsonl", "run", judge=RecordingJudge(), metrics=METRICS, executor=other)
    assert tables(run) == tables(complete_run)
    assert tables(rescore("run", "again", executor=other)) == tables(complete_run)
    assert not list((tmp_path / "there").iterdir())


@pytest.mark.long
def test_rescoring_on_workers_changes_nothing(complete_run: Run, tmp_path: Path):
    """Two workers give the tables of one."""
    metrics = ["context_relevance(high=0.5)", "redundancy"]
    first, two = (rescore(complete_run, tmp_path / f"{n}", metrics=metrics, workers=n) for n in (1, 2))
    assert tables(first) == tables(two)


def test_workers_rescore_a_run_whatever_its_row_groups(tmp_path: Path, complete_run: Run):
    run = Run(
        shutil.copytree(complete_run.path, tmp_path / "run"),
        msgspec.structs.replace(complete_run.manifest, checksums={}),
    )
    for name, rows in (("traces", 7), ("verdicts", 5)):
        pq.write_table(run.to_arrow(name), run.get_table_path(name), row_group_size=rows)
    for begin in range(0, run.manifest.traces, 3):
        for name in ("traces", "verdicts"):
            assert _read_rows(run, name, begin, 6).equals(complete_run.to_arrow(name).slice(begin, 6))


def test_a_repeated_part_is_written_once(tmp_path: Path):
    """A second worker that finishes a written part leaves nothing behind."""
    plan = RunPlan(ragfault="1", judge="j", metrics=(), fingerprint="f", traces=1, batch=1)
    partial = PartialRun.begin(tmp_path / "run", plan)
    blobs = dict.fromkeys(RUN_TABLES, b"first")
    partial.write_blobs(0, blobs)
    partial.write_blobs(0, dict.fromkeys(blobs, b"second"))
    assert partial.list_finished_parts() == {0}
    assert [path.name for path in (partial.path / "parts").iterdir()] == ["0000000"]
    assert (partial.path / "parts" / "0000000" / "scores.parquet").read_bytes() == b"first"


@pytest.mark.long
def test_changed_input_raises(tmp_path: Path):
    """Writing to a file while workers read it raises InputError; no run is written."""
    path = tmp_path / "t.jsonl"
    write_traces(build_traces(400), path)

    def touch(done: int, total: int) -> None:
        if done:
            path.write_bytes(path.read_bytes().replace(b"Berth", b"Birth"))

    with pytest.raises(InputError, match="the input changed while it was read"):
        evaluate(
            path, tmp_path / "run", judge=RecordingJudge(), metrics=METRICS, workers=2, batch=20, on_progress=touch
        )
    assert not (tmp_path / "run").exists()


class ReversingExecutor:
    """A worker that hands back what it was given first at the end."""

    def map_unordered(self, task_function: Callable, items: Iterable) -> Iterator:
        yield from map(task_function, reversed(list(items)))


def test_verdicts_are_in_the_order_of_the_traces_wherever_a_judge_is_measured():
    """Whatever batch is judged first, and whether in this process or elsewhere."""
    traces = build_traces(200)
    inline, speed = run_judge(RecordingJudge(), traces, None, ignore_report)
    assert speed.traces == 200 - WARMUP_TRACES
    for executor in (ReversingExecutor(), ProcessExecutor(2)):
        assert run_judge(RecordingJudge(), traces, executor, ignore_report)[0] == inline


# --- Ray -------------------------------------------------------------------------------------------


@pytest.mark.long
@needs_ray
def test_lost_workers_and_nodes_change_nothing(complete_run: Run, tmp_path: Path):
    """On two nodes, one worker killed and one node removed: all traces are scored once, no statistics are sent."""
    write_traces(build_traces(600), tmp_path / "t.jsonl")
    command = [sys.executable, str(SUPPORT / "ray_cluster.py"), str(tmp_path / "t.jsonl"), str(tmp_path / "run")]
    paths = os.pathsep.join([str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": paths}, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["lost"] == ["worker", "node"]
    assert report["nodes"] == 2
    assert report["asked"] > report["traces"] == 600, "something that was begun was lost, and done again"
    assert report["telemetry"] == "0"
    assert tables(Run.open(tmp_path / "run")) == tables(complete_run)


@pytest.mark.long
@needs_ray
def test_a_judge_is_measured_on_a_cluster_as_on_one_machine(tmp_path: Path):
    """`judge measure --ray local` prints the figures that it prints without."""
    rows = [{**msgspec.to_builtins(trace), "label": n % 2} for n, trace in enumerate(build_traces(80)) if trace.answer]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    command = [sys.executable, "-m", "ragfault", "judge", "measure", "t.jsonl", "--judge", "lexical", "--json", "-q"]
    printed = []
    for where in ([], ["--ray", "local", "--workers", "2"]):
        done = subprocess.run([*command, *where], cwd=tmp_path, capture_output=True, timeout=240, check=True)
        printed.append({key: value for key, value in json.loads(done.stdout).items() if key != "speed"})
    assert printed[0] == printed[1]
    assert printed[0]["views"][0]["n"] == len(rows)


@pytest.mark.long
@needs_ray
def test_an_unreachable_cluster_is_a_usage_error(tmp_path: Path):
    """An address at which nothing answers is a usage error, with what to give instead."""
    write_traces(build_traces(3), tmp_path / "t.jsonl")
    command = [sys.executable, "-m", "ragfault", "evaluate", "t.jsonl", "-o", "run", "--ray", "nonsense://here"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "no Ray cluster answers at nonsense://here" in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_ray_names_the_extra(tmp_path: Path):
    """--ray where Ray is not installed names the extra that brings it."""
    write_traces(build_traces(3), tmp_path / "t.jsonl")
    code = "import sys; sys.modules['ray'] = None; from ragfault.cli.commands import main; main()"
    command = [sys.executable, "-c", code, "evaluate", "t.jsonl", "-o", "run", "--ray", "local"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "pip install 'ragfault[ray]'" in done.stderr
    assert isinstance(MissingExtra("a Ray cluster", "ray"), UsageError)


# --- object stores ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of an S3 server on this machine."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    keys = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in keys.items():
            patch.setenv(name, value)
        import s3fs

        s3fs.S3FileSystem().mkdir("ragfault")
        yield "s3://ragfault"
    server.stop()


def uploaded(bucket: str, path: Path) -> str:
    import s3fs

    s3fs.S3FileSystem().put_file(str(path), f"{bucket}/in/{path.name}")
    return f"{bucket}/in/{path.name}"


@pytest.mark.long
@needs_s3
@pytest.mark.parametrize(("name", "workers"), [("t.jsonl.gz", 1), ("t.parquet", 2)])
def test_object_store_input_and_output(bucket: str, complete_run: Run, tmp_path: Path, name: str, workers: int):
    """Input and output in an object store give the run of the disk; nothing else is written there."""
    write_traces(build_traces(600), tmp_path / name)
    out = f"{bucket}/{name}/run"
    run = evaluate(uploaded(bucket, tmp_path / name), out, judge=RecordingJudge(), metrics=METRICS, workers=workers)
    assert tables(run) == tables(complete_run)
    assert str(Run.open(out).path) == out
    assert list(Run.open(out).scores()) == list(complete_run.scores())
    there = {place.name for place in run.path.parent.iterdir()}
    assert there == {"run"}
    with pytest.raises(OutputError, match="exists already"):
        evaluate(build_traces(3), out, metrics="error")
    assert tables(rescore(out, f"{bucket}/{name}/again", metrics=METRICS)) == tables(complete_run)


@pytest.mark.long
@needs_s3
def test_a_run_in_an_object_store_resumes(bucket: str, complete_run: Run, tmp_path: Path):
    """An interrupted evaluation does not judge written parts again; without a manifest there is no run."""

    def stop(done: int, total: int) -> None:
        if done >= 300:
            raise KeyboardInterrupt

    write_traces(build_traces(600), tmp_path / "r.jsonl")
    where, out = uploaded(bucket, tmp_path / "r.jsonl"), f"{bucket}/resumed/run"
    with pytest.raises(KeyboardInterrupt):
        evaluate(where, out, judge=RecordingJudge(), metrics=METRICS, batch=100, on_progress=stop)
    with pytest.raises(RunError, match="was never finished"):
        Run.open(out)
    notices: list[str] = []
    run = evaluate(where, out, judge=RecordingJudge(), metrics=METRICS, batch=100, on_notice=notices.append)
    assert "resuming: 3 parts of 100 traces are done already" in notices
    assert tables(run) == tables(complete_run)
    other = evaluate([Trace(id="1", query="q")], out, metrics="error", force=True)
    assert other.manifest.traces == 1


@needs_s3
def test_object_store_errors_are_reported(bucket: str, tmp_path: Path):
    """Missing files, missing buckets and stores without a package raise errors of one line."""
    with pytest.raises(InputError, match="there is no file s3://ragfault/nope"):
        evaluate(f"{bucket}/nope.jsonl", tmp_path / "run")
    with pytest.raises(InputError, match="cannot be read"):
        evaluate("s3://no-such-bucket/t.jsonl", tmp_path / "run")
    with pytest.raises(InputError, match="Protocol not known"):
        evaluate("nonsense://bucket/t.jsonl", tmp_path / "run")
    with pytest.raises(OutputError, match="cannot write to s3://no-such-bucket"):
        evaluate(build_traces(2), "s3://no-such-bucket/run", metrics="error")
    (tmp_path / "bad.jsonl").write_text('{"id": "1", "query": "q"}\nnonsense\n')
    run = evaluate(uploaded(bucket, tmp_path / "bad.jsonl"), f"{bucket}/bad/run", metrics="error", skip_bad=True)
    assert run.path.with_name("run.bad.jsonl").read_bytes() == b"nonsense\n"


# --- Kubernetes ------------------------------------------------------------------------------------

MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))


def commands(node: Any) -> Iterator[str]:
    """Return the lines of a manifest that call ragfault."""
    if isinstance(node, dict) and "args" in node and cli.get_command(click.Context(cli), node["args"][0]):
        yield shlex.join(["ragfault", *node["args"]])  # the entry point of the image
    if isinstance(node, dict | list):
        for part in node.values() if isinstance(node, dict) else node:
            yield from commands(part)
    elif isinstance(node, str):
        yield from (line for line in node.splitlines() if line.startswith("ragfault "))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_call_commands_that_exist(path: Path):
    """Each is YAML, its commands are those of the command line, and Ray's usage statistics are off in every pod."""
    yaml = pytest.importorskip("yaml", reason="PyYAML, which reads manifests, is not installed")
    manifests = list(yaml.safe_load_all(path.read_text()))
    lines = list(commands(manifests))
    assert lines
    for line in lines:
        verb, *rest = shlex.split(line.split(" || ")[0])[1:]
        command = cli.get_command(click.Context(cli), verb)
        command.make_context(verb, rest)
    for manifest in (manifest for manifest in manifests if manifest["kind"] == "RayJob"):
        cluster = manifest["spec"]["rayClusterSpec"]
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            [container] = group["template"]["spec"]["containers"]
            assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in container["env"]
