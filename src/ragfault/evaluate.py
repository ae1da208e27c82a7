"""Evaluate: traces × judge × metrics → Run, streaming, on as many processes as wanted, resumable."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from itertools import islice
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from ragfault import __version__, judges
from ragfault.errors import BadTraces, Fault, InputError, JudgeError, RunError, UsageError
from ragfault.metrics import Metric, choose, parse, score
from ragfault.ports import Judge
from ragfault.records import Score, Trace, Verdicts
from ragfault.runs import Measure, Partial, Plan, Run
from ragfault.runs.writing import check_free, partial_path, writing
from ragfault.sources import Survey, read_traces, survey, write_traces

__all__ = ["evaluate", "measure", "observe", "score_all"]

BATCH = 64
"""Traces to a part: at most so many are lost, for each worker, when an evaluation is killed."""

Where = str | Path | Sequence[str | Path]


def _quiet(*_: object) -> None:
    """Tell nobody."""


class Job(Struct, frozen=True, kw_only=True):
    """What a worker needs to know."""

    partial: Partial
    judge: Judge
    metrics: tuple[str, ...]
    modules: tuple[str, ...]
    """The modules that define the metrics; a fresh process must import them."""


def evaluate(  # noqa: PLR0913 - the options of one verb
    where: Where | Iterable[Trace],
    out: str | Path,
    *,
    judge: str | Judge = "lexical",
    metrics: str | Sequence[str] = "default",
    workers: int = 1,
    batch: int = BATCH,
    force: bool = False,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] = _quiet,
    notice: Callable[[str], None] = _quiet,
    **reading: Any,
) -> Run:
    """Judge every trace, compute every metric on it, and leave the result as a run on disk.

    `where` is what `read_traces` takes (and `reading` its options: map, shape, qrels, …), or traces
    themselves. `judge` is a name or an object of the port's shape; where no metric reads a verdict, nothing
    is judged. `metrics` is a set ("default", "all", a layer), or texts such as "ndcg@10". The result is the
    same for any number of `workers` and any `batch`. `progress` is called with (traces done, traces in
    all), `notice` with lines worth telling.

    Killed at any point and called again with the same arguments, it goes on where it stopped; the traces in
    flight are lost, `batch` for each worker at the most. A judge that fails on a trace gives `failed`
    scores with the reason, and the run goes on.

    Raises BadTraces where lines of the input are not traces (with `skip_bad` they go to a side file
    `OUT.bad.jsonl` and the others are evaluated), InputError, UsageError, OutputError, RunError.

    >>> import tempfile
    >>> from ragfault import Chunk, Trace, evaluate
    >>> chunk = Chunk(id="a", text="The harbour office opens at 7:30 on weekdays.")
    >>> trace = Trace(id="1", query="When does it open?", chunks=(chunk,), answer="It opens at 7:30 on weekdays.")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = evaluate([trace], f"{folder}/run", metrics=["groundedness", "error"])
    ...     [(score.metric, score.value) for score in run.scores()]
    [('groundedness', 1.0), ('error', 0.0)]
    """
    if workers < 1 or batch < 1:
        raise UsageError(f"workers and batch are at least 1, got workers={workers}, batch={batch}.")
    out = Path(out)
    chosen = choose(metrics)
    if isinstance(judge, str):
        judge = judges.load_judge(judge if any(m.definition.verdicts for m in chosen) else "none")
    where = _settled(where, out)
    found = _survey(where, skip_bad, notice, reading)
    plan = Plan(
        ragfault=__version__,
        judge=judge.fingerprint,
        metrics=tuple(map(measure, chosen)),
        fingerprint=found.fingerprint,
        traces=found.count,
        source=_names(where),
        skipped=found.bad,
        batch=batch,
    )
    partial = Partial.begin(out, plan, force=force)
    if partial.done():
        notice(f"resuming: {len(partial.done()):,} parts of {partial.plan.batch} traces are done already")
    job = Job(
        partial=partial,
        judge=judge,
        metrics=tuple(map(str, chosen)),
        modules=tuple(sorted({m.definition.function.__module__ for m in chosen})),
    )
    with contextlib.closing(Side(out.with_name(out.name + ".bad.jsonl"))) as side:
        _run(job, read_traces(where, on_bad=side.keep, **reading), workers, progress)
    if side.count:
        notice(f"left out {side.count:,} bad lines, kept in {side.path}")
    return partial.finish(force=force)


def measure(metric: Metric) -> Measure:
    """What a run remembers of a metric.

    >>> measure(parse("latency"))
    Measure(name='latency', layer='operation', better='lower', low=0.0, high=None)
    """
    kind = metric.definition
    low, high = (end if math.isfinite(end) else None for end in kind.range)
    return Measure(str(metric), kind.layer, kind.better, low, high)


# --- before the work -------------------------------------------------------------------------------


def _settled(where: Where | Iterable[Trace], out: Path) -> Where:
    """Something that can be read twice: standard input and traces in memory are laid down beside the run."""
    if isinstance(where, str | Path) and str(where) != "-":
        return where
    if isinstance(where, Sequence) and where and all(isinstance(item, str | Path) for item in where):
        if "-" not in map(str, where):
            return where
        raise UsageError('"-" (standard input) is read alone, not with other files.')
    check_free(out, force=True)
    spool = partial_path(out) / "input"
    with writing(spool):
        spool.mkdir(parents=True, exist_ok=True)
        if isinstance(where, str | Path):
            target = spool / "stdin"
            with target.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
            return target
        target = spool / "traces.jsonl"
        if not write_traces(where, target, force=True):
            raise InputError("there is no trace to evaluate.")
    return target


def _names(where: Where) -> tuple[str, ...]:
    """The input as it was named."""
    return tuple(map(str, [where] if isinstance(where, str | Path) else where))


def _survey(where: Where, skip_bad: bool, notice: Callable[[str], None], reading: dict[str, Any]) -> Survey:
    """Read the input once before a judge sees any of it: count, fingerprint, faults."""
    found = survey(where, **reading)
    if found.bad and not (skip_bad and found.count):
        raise BadTraces(found.faults, found.count, found.bad)
    if found.shape:
        notice(found.shape)
    return found


class Side:
    """The side file of bad lines; it is made when the first one comes."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        self._file: IO[str] | None = None

    def keep(self, fault: Fault) -> None:
        with writing(self.path):
            self._file = self._file or self.path.open("w", encoding="utf-8", errors="replace")
            self._file.write(fault.text.rstrip("\r\n") + "\n")
        self.count += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


# --- the work --------------------------------------------------------------------------------------


def _run(job: Job, traces: Iterator[Trace], workers: int, progress: Callable[[int, int], None]) -> None:
    """Score every part that is not done yet."""
    total, size = job.partial.plan.traces, job.partial.plan.batch
    ready = job.partial.done()
    done = min(len(ready) * size, total)
    progress(done, total)
    todo = ((number, part) for number, part in enumerate(_parts(traces, size)) if number not in ready)
    for count in _inline(job, todo) if workers == 1 else _spread(job, todo, workers):
        done += count
        progress(done, total)


def _parts(traces: Iterator[Trace], size: int) -> Iterator[list[Trace]]:
    while part := list(islice(traces, size)):
        yield part


def _inline(job: Job, todo: Iterator[tuple[int, list[Trace]]]) -> Iterator[int]:
    for number, part in todo:
        yield _score_part(job, number, part)


def _spread(job: Job, todo: Iterator[tuple[int, list[Trace]]], workers: int) -> Iterator[int]:
    """The same on worker processes, with a bounded number of parts under way."""
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_enter, initargs=(job,)
    )
    under_way: set[Future[int]] = set()
    try:
        for number, part in todo:
            under_way.add(pool.submit(_work, number, msgspec.msgpack.encode(part)))
            if len(under_way) >= 3 * workers:
                finished, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        while under_way:
            finished, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in finished)
    except BrokenProcessPool:
        raise RunError(
            "a worker process was killed (out of memory, perhaps). What was done is kept: "
            "run the same command again, with fewer --workers or a smaller --batch."
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_job: Job | None = None


def _enter(job: Job) -> None:
    """Make a worker process ready: leave Ctrl-C to the parent, and end when the parent does."""
    global _job  # noqa: PLW0603 - one job for each worker process, given at its start
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_outlive, args=(parent,), daemon=True).start()
    for module in job.modules:
        if module != "__main__":
            import_module(module)
    _job = job


def _outlive(parent: BaseProcess) -> None:
    """End this process when its parent has ended."""
    parent.join()
    os._exit(1)


def _work(number: int, part: bytes) -> int:
    assert _job is not None
    return _score_part(_job, number, msgspec.msgpack.decode(part, type=list[Trace]))


def _score_part(job: Job, number: int, traces: list[Trace]) -> int:
    """Judge and score one part, and leave it on disk."""
    verdicts = observe(job.judge, traces)
    metrics = [parse(text) for text in job.metrics]
    scores = [
        row for trace, seen in zip(traces, verdicts, strict=True) for row in score_all(metrics, trace, seen)
    ]
    job.partial.write(number, traces, verdicts, scores)
    return len(traces)


def score_all(metrics: Iterable[Metric], trace: Trace, verdicts: Verdicts) -> list[Score]:
    """One row for every metric on one trace; none is dropped."""
    return [score(metric, trace, verdicts) for metric in metrics]


def observe(judge: Judge, traces: Sequence[Trace]) -> list[Verdicts]:
    """Ask a judge, and keep its failures apart: a batch that fails is asked again trace by trace.

    A trace on which it fails alone gets verdicts that say so (`failures={"*": reason}`).
    """
    try:
        seen = list(judge.observe(traces))
        _matched(traces, seen)
    except Exception as error:  # noqa: BLE001 - the door to judges that users write: one bad trace, not a lost run
        if len(traces) > 1:
            return [verdicts for trace in traces for verdicts in observe(judge, [trace])]
        reason = str(error) if isinstance(error, JudgeError) else f"{type(error).__name__}: {error}"
        return [
            Verdicts(
                trace=traces[0].id, judge=judge.fingerprint, failures={"*": f"the judge failed: {reason}"}
            )
        ]
    return seen


def _matched(traces: Sequence[Trace], seen: Sequence[Verdicts]) -> None:
    """Refuse verdicts that are not one for each trace, in order."""
    if [verdicts.trace for verdicts in seen] != [trace.id for trace in traces]:
        raise JudgeError(f"it returned {len(seen)} verdicts for {len(traces)} traces, or in another order")
