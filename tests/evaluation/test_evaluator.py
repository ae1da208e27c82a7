"""Evaluation: every trace × metric has its row, whatever the workers, the judge's failures or the kills."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from benchmarks.passes import PassCounter
from ragfault.evaluation.evaluator import evaluate
from ragfault.evaluation.rescorer import rescore
from ragfault.io.runs.run import Run
from ragfault.io.runs.writer import RUN_TABLES
from ragfault.io.trace_writer import write_traces
from ragfault.judges.assembly import observe_traces
from ragfault.metrics.selection import DEFAULT_METRICS
from ragfault.model.errors import BadTraces, InputError, JudgeError, OutputError, RunError, UnknownName, UsageError
from ragfault.model.protocols import VerdictKind
from ragfault.model.records import Chunk, ChunkVerdict, Trace, Verdicts


class Counting:
    """A judge that writes down what it was asked, and fails where it is told to."""

    offers: frozenset[VerdictKind] = frozenset({"chunk"})
    fingerprint = "counting/1"

    def __init__(self, log: Path, fail: Sequence[str] = (), lie: bool = False) -> None:
        self.log, self.fail, self.lie = log, tuple(fail), lie

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        for trace in traces:
            if trace.id in self.fail:
                raise JudgeError(f"no answer about {trace.id}")
        with self.log.open("a") as file:
            file.writelines(f"{trace.id}\n" for trace in traces)
        seen = [Verdicts(trace=t.id, chunk=(ChunkVerdict(chunk="a", relevance=0.9, level="high"),)) for t in traces]
        return seen[1:] if self.lie and len(seen) == 1 else seen


def some(count: int) -> list[Trace]:
    return [
        Trace(
            id=str(n), query=f"What is number {n}?", chunks=(Chunk(id="a", text=f"It is {n}."),), answer=f"It is {n}."
        )
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def handbook(demo_runs: Path) -> Path:
    return demo_runs / "handbook"


@pytest.fixture(scope="module")
def run(demo_runs: Path) -> Run:
    return Run.open(demo_runs / "v1")


@pytest.fixture(scope="module")
def few(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of 10 traces by the default judge, enough for several parts."""
    return evaluate(list(run.traces())[:10], tmp_path_factory.mktemp("few") / "run")


def tables(run: Run) -> list[bytes]:
    return [(run.path / f"{name}.parquet").read_bytes() for name in RUN_TABLES]


def test_every_trace_and_metric_has_its_row(run: Run):
    """A run has one score for each trace and metric, in order."""
    ids = [trace.id for trace in run.traces()]
    assert [(score.trace, score.metric) for score in run.scores()] == [(i, m) for i in ids for m in DEFAULT_METRICS]
    manifest = run.manifest
    assert manifest.scored + manifest.undefined + manifest.failed == len(ids) * len(DEFAULT_METRICS)
    assert manifest.failed == 0
    assert manifest.judge.startswith("embedded/")


@pytest.mark.long
@pytest.mark.parametrize(("workers", "batch"), [(1, 3), (2, 6)])
def test_the_result_is_the_same_for_any_workers_and_batch(few: Run, tmp_path: Path, workers: int, batch: int):
    """The files of a run are byte for byte the same for one worker and two, parts of 64 and of 3."""
    other = evaluate(list(few.traces()), tmp_path / "run", workers=workers, batch=batch)
    assert tables(other) == tables(few)


@pytest.mark.long
def test_the_order_of_the_traces_changes_no_score(few: Run, tmp_path: Path):
    """Reading the traces backwards gives each trace the same scores."""
    assert few.manifest.judge.startswith("encoder/")
    backwards = evaluate(list(few.traces())[::-1], tmp_path / "run")
    assert sorted(map(repr, backwards.scores())) == sorted(map(repr, few.scores()))


def inodes(parts: Path) -> dict[str, int]:
    """Return the finished parts, each with its inode, which differs for a later part of the same name."""
    numbers = {}
    for path in parts.glob("*[0-9]"):
        with contextlib.suppress(FileNotFoundError):
            numbers[path.name] = path.stat().st_ino
    return numbers


@pytest.mark.long
def test_a_killed_evaluation_resumes(tmp_path: Path):
    """After kill -9 the same command judges only the remaining traces, and gives the run of an uninterrupted one."""
    write_traces(some(400), tmp_path / "t.jsonl")
    command = [
        *(sys.executable, "-m", "ragfault", "evaluate", str(tmp_path / "t.jsonl")),
        *("-o", str(tmp_path / "run"), "--judge", "embedded", "-q"),
    ]
    parts = tmp_path / "run.partial" / "parts"
    for workers in ("1", "2"):
        process = subprocess.Popen([*command, "--batch", "10", "--workers", workers], stderr=subprocess.PIPE)
        before = len(list(parts.glob("*[0-9]"))) if parts.is_dir() else 0
        deadline = time.monotonic() + 120
        while len(list(parts.glob("*[0-9]"))) < before + 3:
            assert time.monotonic() < deadline, "no parts were finished"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
        process.stderr.close()
        assert len(list(parts.glob("*[0-9]"))) >= before + 3
        assert not (tmp_path / "run").exists()
    finished_parts = inodes(parts)
    process = subprocess.Popen(command)
    seen: dict[str, int] = {}
    deadline = time.monotonic() + 300
    while process.poll() is None:
        assert time.monotonic() < deadline, "the resumed evaluation did not finish"
        seen |= inodes(parts)
        time.sleep(0.01)
    assert process.returncode == 0
    assert finished_parts.items() <= seen.items()
    complete = evaluate(tmp_path / "t.jsonl", tmp_path / "whole", judge="embedded")
    assert tables(Run.open(tmp_path / "run")) == tables(complete)


def test_no_part_is_judged_twice(tmp_path: Path):
    """A resumed evaluation does not judge finished parts again."""
    log = tmp_path / "log"
    traces = some(10)

    def stop(done: int, total: int) -> None:
        if done >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(traces, tmp_path / "run", judge=Counting(log), metrics="context_relevance", batch=2, on_progress=stop)
    notices: list[str] = []
    evaluate(
        traces, tmp_path / "run", judge=Counting(log), metrics="context_relevance", batch=2, on_notice=notices.append
    )
    assert sorted(map(int, log.read_text().split())) == list(range(10))
    assert "resuming: 3 parts of 2 traces are done already" in notices
    assert not (tmp_path / "run.partial").exists()


@pytest.mark.long
def test_ctrl_c_keeps_finished_parts(tmp_path: Path):
    """SIGINT ends the command with one line and code 130, and leaves the finished parts."""
    write_traces(some(1000), tmp_path / "t.jsonl")
    command = [sys.executable, "-m", "ragfault", "evaluate", str(tmp_path / "t.jsonl"), "-o", str(tmp_path / "run")]
    command += ["--judge", "embedded", "--batch", "20"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    parts = tmp_path / "run.partial" / "parts"
    deadline = time.monotonic() + 120
    while len(list(parts.glob("*[0-9]"))) < 2:
        assert process.poll() is None, "the evaluation ended before it was interrupted"
        assert time.monotonic() < deadline, "no parts were finished"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    notices = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "interrupted. Finished work is kept" in notices
    assert "Traceback" not in notices
    assert len(list(parts.glob("*[0-9]"))) >= 2


def test_a_judge_that_fails_on_a_trace_costs_that_trace_alone(tmp_path: Path):
    """Its scores are failed with the reason; all others, also those of its batch, are scored."""
    judge = Counting(tmp_path / "log", fail=["3"])
    run = evaluate(some(6), tmp_path / "run", judge=judge, metrics=["context_relevance", "error"])
    rows = {(score.trace, score.metric): score for score in run.scores()}
    lost = rows["3", "context_relevance"]
    assert (lost.status, lost.value, lost.reason) == ("failed", None, "the judge failed: no answer about 3")
    assert rows["3", "error"].status == "scored"
    assert sum(score.status == "failed" for score in rows.values()) == run.manifest.failed == 1


def test_missing_verdicts_are_a_failure_never_a_shift(tmp_path: Path):
    """A judge that returns too few verdicts fails on the traces it left out; the others keep their own."""
    result = observe_traces(Counting(tmp_path / "log", lie=True), some(1))
    assert "or in another order" in result[0].failures["*"]

    class Reversed(Counting):
        def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
            return super().observe(traces)[::-1]

    assert [verdicts.trace for verdicts in observe_traces(Reversed(tmp_path / "log"), some(3))] == ["0", "1", "2"]


def test_nothing_is_judged_if_no_metric_reads_a_verdict(tmp_path: Path):
    """Metrics that read no verdict need no judge: the run says `none`."""
    run = evaluate(some(2), tmp_path / "run", metrics=["redundancy", "operation", "error"][::2])
    assert run.manifest.judge == "none"


def test_bad_lines_are_reported_before_judging(tmp_path: Path):
    """Without skip_bad the evaluation stops before the judge, with every fault; with it the rest is evaluated."""
    lines = [msgspec.json.encode(trace).decode() for trace in some(5)]
    lines[1] = '{"id": "1", "query": '
    lines[3] = '{"id": "3"}'
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(lines) + "\n")
    log = tmp_path / "log"
    with pytest.raises(BadTraces) as caught:
        evaluate(path, tmp_path / "run", judge=Counting(log), metrics="context_relevance")
    assert [bad_line.line for bad_line in caught.value.bad_lines] == [2, 4]
    assert (caught.value.good, caught.value.count) == (3, 2)
    assert not log.exists()
    assert not list(tmp_path.glob("run*"))
    notices: list[str] = []
    run = evaluate(path, tmp_path / "run", metrics="error", skip_bad=True, on_notice=notices.append)
    assert [trace.id for trace in run.traces()] == ["0", "2", "4"]
    assert run.manifest.skipped == 2
    assert (tmp_path / "run.bad.jsonl").read_text().splitlines() == [lines[1], lines[3]]
    assert any("left out 2 bad lines" in line for line in notices)


def test_wrong_requests_are_refused_before_any_work(tmp_path: Path, handbook: Path):
    """Unknown metrics, judges and map keys, taken places, empty input and impossible numbers each say what is wrong."""
    path = handbook / "traces-v1.jsonl"
    with pytest.raises(UnknownName, match=r'no metric "ndgc"\. Did you mean "ndcg"'):
        evaluate(path, tmp_path / "run", metrics=["ndgc@10"])
    with pytest.raises(UnknownName, match='no judge "lexicle"'):
        evaluate(path, tmp_path / "run", judge="lexicle")
    with pytest.raises(UnknownName, match="map key"):
        evaluate(path, tmp_path / "run", map={"anwser": "response"})
    with pytest.raises(UsageError, match="1 or more"):
        evaluate(path, tmp_path / "run", workers=0)
    with pytest.raises(InputError, match="no trace to evaluate"):
        evaluate([], tmp_path / "run")
    (tmp_path / "taken").mkdir()
    with pytest.raises(OutputError, match="is not a run"):
        evaluate(path, tmp_path / "taken")
    evaluate(path, tmp_path / "run", metrics="error")
    with pytest.raises(OutputError, match="exists already"):
        evaluate(path, tmp_path / "run", metrics="error")
    assert (
        evaluate(path, tmp_path / "run", metrics="empty_retrieval", force=True).manifest.metrics[0].name
        == "empty_retrieval"
    )


def test_a_partial_run_of_other_traces_is_not_mixed_in(tmp_path: Path):
    """An unfinished run of other traces, judge or metrics is reported and kept, unless forced."""

    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(some(4), tmp_path / "run", metrics="error", batch=2, on_progress=stop)
    with pytest.raises(RunError, match="unfinished run of another making"):
        evaluate(some(5), tmp_path / "run", metrics="error", batch=2)
    assert evaluate(some(5), tmp_path / "run", metrics="error", batch=2, force=True).manifest.traces == 5


def test_other_files_are_not_touched(tmp_path: Path):
    """Files beside the output are unchanged, also with force."""
    run = evaluate(some(2), tmp_path / "run", metrics="error")
    for name in ("run.old", "run.draft", "again.draft", "again.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("years of work")
    evaluate(some(2), tmp_path / "run", metrics="error", force=True)
    rescore(run, tmp_path / "again")
    rescore(run, tmp_path / "again", force=True)
    assert len(list(tmp_path.glob("*/thesis.txt"))) == 4
    assert not list(tmp_path.glob(".*"))
    (tmp_path / "new.partial").mkdir()
    (tmp_path / "new.partial" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match=r"holds something else \(thesis\.txt\)"):
        evaluate(some(2), tmp_path / "new", metrics="error")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"holds more than a run \(notes\.txt\)"):
        evaluate(some(2), tmp_path / "run", metrics="error", force=True)
    (tmp_path / "extension").mkdir()
    (tmp_path / "extension" / "manifest.json").write_text("{}")
    with pytest.raises(OutputError, match="is not a run"):
        evaluate(some(2), tmp_path / "extension", metrics="error", force=True)


def test_a_side_file_never_replaces_another_file(tmp_path: Path):
    """Bad lines fixed and evaluated again under the side file's own name are read, not overwritten."""
    path = tmp_path / "run.bad.jsonl"
    lines = '{"id": "1", "query": "q"}\nnonsense\n'
    path.write_text(lines)
    evaluate(path, tmp_path / "run", metrics="error", skip_bad=True)
    assert path.read_text() == lines
    assert (tmp_path / "run.bad-2.jsonl").read_text() == "nonsense\n"


def test_a_link_is_followed(tmp_path: Path):
    """A symbolic link given as output stays a link, and the run is written to its target."""
    evaluate(some(2), tmp_path / "real", metrics="error")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    evaluate(some(3), tmp_path / "link", metrics="error", force=True)
    assert (tmp_path / "link").is_symlink()
    assert Run.open(tmp_path / "real").manifest.traces == 3


def test_two_evaluations_do_not_share_an_output(tmp_path: Path):
    """While one evaluation is running a second one to the same output raises OutputError."""

    def again(done: int, total: int) -> None:
        with pytest.raises(OutputError, match="another evaluation is writing"):
            evaluate(some(4), tmp_path / "run", metrics="redundancy", force=True)

    assert evaluate(some(4), tmp_path / "run", metrics="error", on_progress=again).manifest.traces == 4


def test_lines_added_after_the_survey_are_not_evaluated(tmp_path: Path):
    """The input is read once: a line that is added while traces are judged is of the next evaluation."""
    path = tmp_path / "t.jsonl"
    write_traces(some(4), path)
    grown = []

    def grow(done: int, total: int) -> None:
        if not grown:
            grown.append(path.write_text(path.read_text() + '{"id": "late", "query": "q"}\n'))

    with PassCounter(path) as counter:
        run = evaluate(path, tmp_path / "run", metrics="error", on_progress=grow, judge="none")
    assert run.manifest.traces == 4
    assert [trace.id for trace in run.traces()] == [trace.id for trace in some(4)]
    assert counter.counts["input"] == 3  # and the two of this test


def test_a_pipe_is_read_once(tmp_path: Path):
    """A named pipe, which cannot be read twice, is evaluated like a file."""
    write_traces(some(3), tmp_path / "t.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    with subprocess.Popen(["cp", str(tmp_path / "t.jsonl"), str(tmp_path / "pipe.jsonl")]):
        run = evaluate(tmp_path / "pipe.jsonl", tmp_path / "run", metrics="error")
    assert run.manifest.traces == 3
    assert run.manifest.source == (str(tmp_path / "pipe.jsonl"),)


def test_a_refused_input_leaves_nothing_behind(tmp_path: Path):
    """After a refused input there is no partial folder beside the output."""
    with pytest.raises(InputError):
        evaluate(tmp_path / "nope.jsonl", tmp_path / "run")
    with pytest.raises(InputError):
        evaluate(iter([]), tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.skipif(
    shutil.which("mount") is None or os.geteuid() != 0,
    reason="a full disk is manifest with a small tmpfs, which needs root",
)
def test_a_full_disk_loses_nothing(tmp_path: Path):
    """ENOSPC ends the evaluation with advice; after making room the same call finishes the run."""
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], check=False, capture_output=True
    ).returncode:
        pytest.skip("this machine does not let a test mount a tmpfs")
    try:
        path = write_some(tmp_path)
        with pytest.raises(OutputError, match=r"the disk is full\. The finished parts stay"):
            evaluate(path, small / "run", judge="lexical", metrics="default", batch=10)
        subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
        finished = evaluate(path, small / "run", judge="lexical", metrics="default", batch=10)
        assert finished.manifest.traces == 300
    finally:
        subprocess.run(["umount", small], check=True)


def write_some(folder: Path) -> Path:
    path = folder / "t.jsonl"
    write_traces(some(300), path)
    return path


# --- rescoring -------------------------------------------------------------------------------------


def test_rescoring_with_the_same_metrics_changes_nothing(run: Run, tmp_path: Path):
    """Rescoring the stored verdicts gives identical tables."""
    assert tables(rescore(run, tmp_path / "again")) == tables(run)


def test_rescoring_asks_no_judge(tmp_path: Path):
    """Other weights come from the stored verdicts; verdicts that the judge never manifest leave metrics undefined."""
    log = tmp_path / "log"
    run = evaluate(some(3), tmp_path / "run", judge=Counting(log), metrics="context_relevance")
    asked = log.read_text()
    again = rescore(run, tmp_path / "again", metrics=["context_relevance(high=0.5)", "groundedness"])
    assert log.read_text() == asked
    assert [(s.metric, s.value) for s in again.scores()][:2] == [
        ("context_relevance(high=0.5)", 0.5),
        ("groundedness", None),
    ]
    assert next(s.reason for s in again.scores() if s.metric == "groundedness") == "the judge offers no claim verdicts"
    assert again.manifest.judge == "counting/1"
    with pytest.raises(OutputError, match="exists already"):
        rescore(run, tmp_path / "again")
