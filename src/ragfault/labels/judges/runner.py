"""Runner of a judge over traces with its time and memory, once or repeatedly to see how its metrics vary."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ragfault.executors import choose_executor
from ragfault.judges.assembly import observe_traces
from ragfault.judges.loading import limit_verdicts, list_rubrics, load_judge
from ragfault.labels.judges.flakiness import JudgeFlakiness, measure_flakiness
from ragfault.labels.judges.measurement import JudgeSpeed
from ragfault.labels.reading.human_verdicts import COMPARED_METRICS
from ragfault.labels.settings import RepetitionSettings
from ragfault.metrics.catalog import compute_score, list_verdict_kinds, parse_metric
from ragfault.model.errors import InputError
from ragfault.model.protocols import VERDICT_KINDS, Executor, Judge, MeteredJudge, VerdictKind
from ragfault.model.records import Trace, Usage, Verdicts
from ragfault.model.settings import accept_fields

BATCH_SIZE = 64
POLL_SECONDS = 0.5
WALL_CLOCK, PROCESSOR_CLOCK = time.perf_counter, time.process_time
# traces of each process that are not timed, as they load models and tables
WARMUP_TRACES = 5


class RecordedJudge:
    """Judge that replays the verdicts of a run; on other traces it has none.

    >>> judge = RecordedJudge("recorded/1", [Verdicts(trace="1", missing=("the year",))])
    >>> [verdicts.missing for verdicts in judge.observe([Trace(id="1", query="When?"), Trace(id="2", query="Who?")])]
    [('the year',), None]
    """

    offers: frozenset[VerdictKind] = frozenset(VERDICT_KINDS)

    def __init__(self, fingerprint: str, verdicts: Sequence[Verdicts]) -> None:
        self.fingerprint = fingerprint
        self._verdicts = {item.trace: item for item in verdicts}

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        return [self._verdicts.get(trace.id) or Verdicts(trace=trace.id) for trace in traces]


class JudgedBatch(NamedTuple):
    """Batch with its verdicts."""

    verdicts: list[Verdicts]
    timed: int
    seconds: float
    memory: int | None


def run_judge(
    judge: Judge,
    traces: Sequence[Trace],
    executor: Executor | None,
    progress: Callable[[int, int], None],
    budget: str | None = None,
) -> tuple[list[Verdicts], JudgeSpeed]:
    """Return the verdicts on each trace, in order, and the time and memory they took.

    The verdicts are the same wherever the executor judges; None: in this process. A paid judge is asked from this
    process alone, timed by the wall clock, and ended; all judges given one `budget` spend from it together.
    """
    verdicts: list[Verdicts] = []
    timed, seconds, memory = 0, 0.0, None
    paid = isinstance(judge, MeteredJudge)
    progress(0, len(traces))
    previous_usage = _begin_budget(judge, budget)
    try:
        inline = _run_paid if paid else _run_inline
        elsewhere = None if paid else executor
        for batch in inline(judge, traces) if elsewhere is None else _run_elsewhere(judge, traces, elsewhere):
            verdicts += batch.verdicts
            timed += batch.timed
            seconds += batch.seconds
            memory = max(memory or 0, batch.memory) if batch.memory is not None else memory
            progress(len(verdicts), len(traces))
        usage = judge.usage.combine(previous_usage, -1) if isinstance(judge, MeteredJudge) else None
    finally:
        if isinstance(judge, MeteredJudge):
            judge.end()
    rate = timed / seconds if timed and seconds > 0 else None
    return verdicts, JudgeSpeed(traces=timed, seconds=seconds, rate=rate, memory=memory, wall_clock=paid, usage=usage)


def _begin_budget(judge: Judge, budget: str | None) -> Usage:
    """Begin a budget for a paid judge; return what was spent on it before."""
    if budget is None or not isinstance(judge, MeteredJudge):
        return Usage()
    judge.begin(budget, fresh=False)
    return judge.usage


def _split_batches(traces: Sequence[Trace]) -> Iterator[list[Trace]]:
    remaining = iter(traces)
    while batch := list(islice(remaining, BATCH_SIZE)):
        yield batch


def _run_inline(judge: Judge, traces: Sequence[Trace]) -> Iterator[JudgedBatch]:
    for number, batch in enumerate(_split_batches(traces)):
        yield _judge_batch(judge, batch, cold=not number)


def _run_paid(judge: Judge, traces: Sequence[Trace]) -> Iterator[JudgedBatch]:
    """Yield the batches of a judge that waits, and empty ones meanwhile, so that progress is reported."""
    pool = ThreadPoolExecutor(1)
    try:
        for batch in _split_batches(traces):
            future = pool.submit(_judge_batch, judge, batch, cold=False, clock=WALL_CLOCK)
            while not wait([future], POLL_SECONDS).done:
                yield JudgedBatch([], 0, 0.0, None)
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _judge_batch(
    judge: Judge, batch: Sequence[Trace], *, cold: bool, clock: Callable[[], float] = PROCESSOR_CLOCK
) -> JudgedBatch:
    """Judge a batch and time it; the first traces of a process are not timed."""
    warmup = observe_traces(judge, batch[:WARMUP_TRACES]) if cold else []
    remaining = batch[len(warmup) :]
    start = clock()
    verdicts = observe_traces(judge, remaining) if remaining else []
    return JudgedBatch(warmup + verdicts, len(remaining), clock() - start, _peak_memory())


def _peak_memory() -> int | None:
    """Return the peak memory of this process in bytes; None where the system does not report it."""
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


class _BatchTask:
    """Task of a worker: judge an encoded batch, the first one of each process not timed from its beginning."""

    def __init__(self, judge: Judge) -> None:
        self._judge, self._cold = judge, True

    def __call__(self, item: tuple[int, bytes]) -> tuple[int, bytes]:
        """Return the number of the batch, and the judged batch encoded."""
        number, batch = item
        judged = _judge_batch(self._judge, msgspec.msgpack.decode(batch, type=list[Trace]), cold=self._cold)
        self._cold = False
        return number, msgspec.msgpack.encode(judged)


def _run_elsewhere(judge: Judge, traces: Sequence[Trace], executor: Executor) -> Iterator[JudgedBatch]:
    """Yield the batches from the workers of an executor, in order."""
    batches = enumerate(map(msgspec.msgpack.encode, _split_batches(traces)))
    finished: dict[int, bytes] = {}
    following = 0
    for number, judged in executor.map_unordered(_BatchTask(judge), batches):
        finished[number] = judged
        while following in finished:
            yield msgspec.msgpack.decode(finished.pop(following), type=JudgedBatch)
            following += 1


def hash_inputs(trace: Trace) -> bytes:
    """Return a hash of the chunks and the answer of a trace, which are equal where two traces show a judge the same."""
    chunks = [(chunk.id, chunk.text) for chunk in trace.chunks or ()]
    return blake2b(msgspec.json.encode((trace.answer, chunks)), digest_size=16).digest()


@accept_fields(RepetitionSettings)
def repeat_judge(judge: str | Judge, traces: Iterable[Trace], settings: RepetitionSettings) -> JudgeFlakiness:
    """Judge the traces several times and measure how far each metric varies.

    An LLM judge is created anew for each repeat and must not cache replies (`cache="none"`). Its budget
    covers all repeats. The other judges of the package are deterministic, and the result says so.

    Raises UsageError for fewer than two `repeats`, InputError without a trace.

    >>> from ragfault import Chunk
    >>> chunk = Chunk(id="a", text="The office opens at 7:30.")
    >>> trace = Trace(id="1", query="When does it open?", chunks=(chunk,), answer="It opens at 7:30.")
    >>> repeat_judge("lexical", [trace], repeats=2).deterministic
    True
    """
    trace_list, repeats = list(traces), settings.repeats
    if not trace_list:
        raise InputError("there is no trace to judge.")
    metrics = COMPARED_METRICS[1:] if settings.metrics is None else settings.metrics
    options = limit_verdicts(judge, list_verdict_kinds(map(parse_metric, metrics))) | dict(settings.options or {})
    runs, name, budget = [], "", f"repeat {uuid.uuid4().hex}"
    executor = choose_executor(settings.workers, settings.executor, settings.ray)
    texts = list(metrics)
    for repeat in range(repeats):
        loaded = load_judge(judge, **options) if isinstance(judge, str) else judge
        name = loaded.fingerprint
        texts += [str(rubric) for rubric in list_rubrics(loaded) if str(rubric) not in texts]
        judge_budget = budget if isinstance(judge, str) else None
        progress = _shift_progress(settings.on_progress, repeat, repeats)
        runs.append(run_judge(loaded, trace_list, executor, progress, judge_budget)[0])
    tables = (_metric_values(text, trace_list, runs) for text in texts)
    rows = [(text, table) for text, table in tables if len(table)]
    return JudgeFlakiness(
        judge=name,
        repeats=repeats,
        traces=len(trace_list),
        metrics=tuple(measure_flakiness(text, table) for text, table in rows),
    )


def _shift_progress(progress: Callable[[int, int], None], repeat: int, repeats: int) -> Callable[[int, int], None]:
    """Convert the progress of one repeat to that of all."""
    return lambda done, total: progress(repeat * total + done, repeats * total)


def _metric_values(text: str, traces: Sequence[Trace], runs: Sequence[Sequence[Verdicts]]) -> tuple[str, Any]:
    """Return the values of a metric, traces by repeats, for traces with a value in each repeat."""
    metric = parse_metric(text)
    if not metric.definition.verdicts:
        return text, np.empty((0, len(runs)))
    rows = []
    for trace, *verdicts in zip(traces, *runs, strict=True):
        values = [compute_score(metric, trace, item).value for item in verdicts]
        if None not in values:
            rows.append(values)
    return text, np.array(rows, np.float64).reshape(-1, len(runs))
