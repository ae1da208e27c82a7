"""Run a judge over traces with its time and memory, once or repeatedly to see how its metrics vary."""

from __future__ import annotations

import multiprocessing
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ragfault.analysis.comparison.judge_flakiness import JudgeFlakiness, measure_flakiness
from ragfault.errors import InputError, RunError, UsageError
from ragfault.evaluation.agreement.human_verdicts import COMPARED_METRICS
from ragfault.evaluation.agreement.measurement import JudgeSpeed
from ragfault.judges import load_judge
from ragfault.judges.observation import observe_traces, prepare_worker
from ragfault.metrics import compute_score, parse_metric
from ragfault.protocols import Judge, MeteredJudge
from ragfault.records import Trace, Usage, Verdicts

BATCH_SIZE = 64
WALL_CLOCK, PROCESSOR_CLOCK = time.perf_counter, time.process_time
WARMUP_TRACES = 5
"""So many traces of each process are not timed: what is loaded then is not loaded again."""


class JudgedBatch(NamedTuple):
    """A batch that was judged."""

    verdicts: list[Verdicts]
    timed: int
    seconds: float
    memory: int | None


def run_judge(
    judge: Judge,
    traces: Sequence[Trace],
    workers: int,
    progress: Callable[[int, int], None],
    budget: str | None = None,
) -> tuple[list[Verdicts], JudgeSpeed]:
    """The verdicts on each trace, in order, the same for any number of workers; and the cost in time and memory.

    A judge that is paid for is asked from this process alone, by the clock on the wall, and ended; what all judges
    spend that are given one `purse` counts against the budget of each.
    """
    verdicts: list[Verdicts] = []
    timed, seconds, memory = 0, 0.0, None
    paid = isinstance(judge, MeteredJudge)
    progress(0, len(traces))
    before = _begin_budget(judge, budget)
    try:
        pieces = (
            _run_inline(judge, traces, paid) if workers == 1 or paid else _run_workers(judge, traces, workers)
        )
        for piece in pieces:
            verdicts += piece.verdicts
            timed += piece.timed
            seconds += piece.seconds
            memory = max(memory or 0, piece.memory) if piece.memory is not None else memory
            progress(len(verdicts), len(traces))
        usage = _subtract_usage(judge.usage, before) if isinstance(judge, MeteredJudge) else None
    finally:
        if isinstance(judge, MeteredJudge):
            judge.end()
    rate = timed / seconds if timed and seconds > 0 else None
    return verdicts, JudgeSpeed(
        traces=timed, seconds=seconds, rate=rate, memory=memory, wall_clock=paid, usage=usage
    )


def _begin_budget(judge: Judge, budget: str | None) -> Usage:
    """Have a judge that is paid for spend from a purse; what is gone from it already."""
    if budget is None or not isinstance(judge, MeteredJudge):
        return Usage()
    judge.begin(budget, fresh=False)
    return judge.usage


def _subtract_usage(after: Usage, before: Usage) -> Usage:
    """What was spent in between."""
    cost = None if after.cost is None or before.cost is None else after.cost - before.cost
    return Usage(
        calls=after.calls - before.calls,
        cached=after.cached - before.cached,
        prompt=after.prompt - before.prompt,
        completion=after.completion - before.completion,
        cost=cost,
    )


def _split_batches(traces: Sequence[Trace]) -> Iterator[list[Trace]]:
    rest = iter(traces)
    while batch := list(islice(rest, BATCH_SIZE)):
        yield batch


def _run_inline(judge: Judge, traces: Sequence[Trace], paid: bool) -> Iterator[JudgedBatch]:
    for number, batch in enumerate(_split_batches(traces)):
        yield _judge_batch(
            judge, batch, cold=not number and not paid, clock=WALL_CLOCK if paid else PROCESSOR_CLOCK
        )


def _judge_batch(
    judge: Judge, batch: Sequence[Trace], *, cold: bool, clock: Callable[[], float] = PROCESSOR_CLOCK
) -> JudgedBatch:
    """Judge a batch by the clock; the first traces of a process are not timed."""
    warm = observe_traces(judge, batch[:WARMUP_TRACES]) if cold else []
    rest = batch[len(warm) :]
    start = clock()
    verdicts = observe_traces(judge, rest) if rest else []
    return JudgedBatch(warm + verdicts, len(rest), clock() - start, _peak_memory())


def _peak_memory() -> int | None:
    """The peak memory of this process in bytes, where the system tells."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# --- on worker processes ---------------------------------------------------------------------------


class _WorkerState:
    """What a worker process has at hand."""

    judge: Judge | None = None
    cold = True


def _run_workers(judge: Judge, traces: Sequence[Trace], workers: int) -> Iterator[JudgedBatch]:
    """The same on worker processes, in order."""
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(judge,))
    try:
        for verdicts, timed, seconds, memory in pool.map(
            _judge_encoded, map(_encode_batch, _split_batches(traces))
        ):
            found = msgspec.msgpack.decode(verdicts, type=list[Verdicts])
            yield JudgedBatch(found, timed, seconds, memory)
    except BrokenProcessPool:
        raise RunError(
            "a worker process was killed (out of memory, perhaps). Run the same command again with fewer --workers."
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _encode_batch(batch: list[Trace]) -> bytes:
    return msgspec.msgpack.encode(batch)


def _start_worker(judge: Judge) -> None:
    """Make a worker process ready for the judging."""
    prepare_worker()
    _WorkerState.judge = judge


def _judge_encoded(batch: bytes) -> tuple[bytes, int, float, int | None]:
    assert _WorkerState.judge is not None
    found = _judge_batch(
        _WorkerState.judge, msgspec.msgpack.decode(batch, type=list[Trace]), cold=_WorkerState.cold
    )
    _WorkerState.cold = False
    return msgspec.msgpack.encode(found.verdicts), found.timed, found.seconds, found.memory


def _ignore_progress(*_: object) -> None:
    """Tell nobody."""


def repeat_judge(
    judge: str | Judge,
    traces: Iterable[Trace],
    *,
    k: int = 5,
    options: Mapping[str, Any] | None = None,
    metrics: Sequence[str] = COMPARED_METRICS[1:],
    workers: int = 1,
    progress: Callable[[int, int], None] = _ignore_progress,
) -> JudgeFlakiness:
    """Have a judge judge traces `k` times over, and say how far each metric moves.

    A judge that asks a model is made anew for each repeat and must not keep replies (`cache="none"`): what is
    remembered is not said again. Its budget is that of all repeats together. A judge of the package always says the
    same, and so does its flakiness.

    Raises UsageError for fewer than two repeats, InputError without a trace.

    >>> from ragfault import Chunk
    >>> chunk = Chunk(id="a", text="The office opens at 7:30.")
    >>> trace = Trace(id="1", query="When does it open?", chunks=(chunk,), answer="It opens at 7:30.")
    >>> repeat_judge("lexical", [trace], k=2).deterministic
    True
    """
    found = list(traces)
    if k < 2:
        raise UsageError(f"{k} repeat tells nothing of spread: judge the traces at least twice, -k 2.")
    if not found:
        raise InputError("there is no trace to judge again and again.")
    runs, name, purse = [], "", f"repeat {uuid.uuid4().hex}"
    for at in range(k):
        made = load_judge(judge, **(options or {})) if isinstance(judge, str) else judge
        name = made.fingerprint
        ours = purse if isinstance(judge, str) else None
        runs.append(run_judge(made, found, workers, _shift_progress(progress, at, k), ours)[0])
    told = (_metric_values(text, found, runs) for text in metrics)
    rows = [(text, table) for text, table in told if len(table)]
    return JudgeFlakiness(
        judge=name,
        repeats=k,
        traces=len(found),
        metrics=tuple(measure_flakiness(text, table) for text, table in rows),
    )


def _shift_progress(progress: Callable[[int, int], None], repeat: int, k: int) -> Callable[[int, int], None]:
    """The progress of one repeat as that of all."""
    return lambda done, total: progress(repeat * total + done, k * total)


def _metric_values(text: str, traces: Sequence[Trace], runs: Sequence[Sequence[Verdicts]]) -> tuple[str, Any]:
    """The values of a metric on the traces that have one in each repeat, traces by repeats."""
    metric = parse_metric(text)
    if not metric.definition.verdicts:
        return text, np.empty((0, len(runs)))
    rows = []
    for trace, *seen in zip(traces, *runs, strict=True):
        values = [compute_score(metric, trace, each).value for each in seen]
        if None not in values:
            rows.append(values)
    return text, np.array(rows, np.float64).reshape(-1, len(runs))
