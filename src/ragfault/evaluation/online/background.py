"""Background scoring: a worker process, or a thread for a judge object, scores traces without blocking the caller."""

from __future__ import annotations

import atexit
import contextlib
import os
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, Protocol, Self

import msgspec
from msgspec import Struct

from ragfault.evaluation.online.scorer import ScoredTrace, TraceScorer
from ragfault.io.trace_writer import append_json_lines
from ragfault.judges.loading import DEFAULT_JUDGE, load_judge
from ragfault.metrics.catalog import compute_scores
from ragfault.metrics.selection import select_metrics
from ragfault.model.errors import UsageError
from ragfault.model.protocols import Judge
from ragfault.model.records import Trace, Verdicts

WORKER_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""One numeric thread in each worker process: more would compete for the cores."""
MESSAGE_HEADER = struct.Struct("<I")
# the last message
END_MESSAGE = b""
ScoreCallback = Callable[[int, ScoredTrace], None]


class ScoringWorker(Protocol):
    """A worker that scores the traces sent to it and passes each outcome on."""

    @property
    def alive(self) -> bool:
        """True until the worker has ended."""
        ...

    def send(self, number: int, trace: Trace) -> bool:
        """Send a trace; return False if the worker has died."""
        ...

    def close(self) -> None:
        """End the worker."""
        ...

    def kill(self) -> None:
        """Drop the traces that wait, so that the worker soon ends."""
        ...


class WorkerConfig(Struct, frozen=True):
    """The judge, domain profile, metrics and calibration of a worker."""

    judge: str
    profile: str
    metrics: tuple[str, ...]
    calibration: str | None = None
    # a judge object runs in a thread
    judge_object: Any = None

    @classmethod
    def create(
        cls, judge: str | Judge, profile: str, metrics: str | Sequence[str], calibration: str | None
    ) -> WorkerConfig:
        """Check the names, so that a wrong one is reported to the caller."""
        names = tuple(str(metric) for metric in select_metrics(metrics))
        if not isinstance(judge, str):
            return cls(judge.fingerprint, profile, names, calibration, judge)
        loaded: Any = load_judge(judge, profile=profile, calibration=calibration)
        if hasattr(loaded, "begin"):
            raise UsageError(
                f'the judge "{judge}" costs money, and every trace would be sent to it. '
                "Create it with a budget, and pass the object."
            )
        return cls(judge, profile, names, calibration)

    def start_worker(self, on_score: ScoreCallback, on_exit: Callable[[], None]) -> ScoringWorker:
        """Start a worker that passes outcomes to `on_score`, and calls `on_exit` at its end."""
        return ThreadWorker(self, on_score) if self.judge_object is not None else ProcessWorker(self, on_score, on_exit)


def build_failed_score(trace: Trace, config: WorkerConfig, reason: str) -> ScoredTrace:
    """Build the outcome of a trace that no worker could score."""
    verdicts = Verdicts(trace=trace.id, judge=config.judge, failures={"*": reason})
    return ScoredTrace(trace, verdicts, tuple(compute_scores(select_metrics(config.metrics), trace, verdicts)))


class ProcessWorker:
    """A worker process, with messages over its standard input and output."""

    def __init__(self, config: WorkerConfig, on_score: ScoreCallback, on_exit: Callable[[], None]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ragfault.evaluation.online"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**WORKER_ENVIRONMENT, **os.environ},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output, self._on_score = self._process.stdin, self._process.stdout, on_score
        self._on_exit, self._used = on_exit, False
        self._reader = threading.Thread(target=self._read_scores, name="ragfault-scores", daemon=True)
        self._reader.start()
        # a process that dies here is noticed by the reader thread
        with contextlib.suppress(OSError):
            names = [config.judge, config.profile, config.metrics, config.calibration]
            write_message(self._input, msgspec.msgpack.encode(names))

    @property
    def alive(self) -> bool:
        """True until the process has ended."""
        return self._process.poll() is None

    def send(self, number: int, trace: Trace) -> bool:
        """Send a trace; return False if the process has died.

        Raises ValueError or TypeError if it cannot be encoded.
        """
        packed = msgspec.msgpack.encode((number, trace))
        self._used = True
        try:
            write_message(self._input, packed)
        except OSError:
            return False
        return self.alive

    def close(self) -> None:
        """End the process after its pending traces, and close all pipes."""
        if not self._used:
            self._process.kill()
        with contextlib.suppress(OSError):
            # a forked process may hold the pipe open, too
            write_message(self._input, END_MESSAGE)
        with contextlib.suppress(OSError):
            self._input.close()
        self._process.wait()
        self._reader.join()
        self._output.close()

    def kill(self) -> None:
        """End the process at once; what it was scoring is lost."""
        self._process.kill()

    def _read_scores(self) -> None:
        decode = msgspec.msgpack.Decoder(tuple[int, ScoredTrace]).decode
        while (message := read_message(self._output)) is not None:
            number, scored = decode(message)
            self._on_score(number, scored)
        self._process.wait()
        self._on_exit()


class ThreadWorker:
    """A thread that scores with a judge object of the user."""

    def __init__(self, config: WorkerConfig, on_score: ScoreCallback) -> None:
        self._config = config
        self._scorer = TraceScorer(config.judge_object, config.profile, config.metrics, config.calibration)
        self._queue: SimpleQueue[tuple[int, Trace] | None] = SimpleQueue()
        self._on_score = on_score
        self._thread = threading.Thread(target=self._run, name="ragfault-scores", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """True until the worker has ended."""
        return self._thread.is_alive()

    def send(self, number: int, trace: Trace) -> bool:
        """Send a trace."""
        self._queue.put((number, trace))
        return True

    def close(self) -> None:
        """End the thread after its pending traces."""
        self._queue.put(None)
        self._thread.join()

    def kill(self) -> None:
        """Drop the traces that wait; a thread cannot be ended within one."""
        with contextlib.suppress(Empty):
            while True:
                self._queue.get_nowait()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            number, trace = item
            try:
                scored = self._scorer(trace)
            except BaseException as error:  # noqa: BLE001 - no error of a judge may end this thread
                scored = build_failed_score(trace, self._config, f"{type(error).__name__}: {error}")
            self._on_score(number, scored)


def write_message(file: IO[bytes], packed: bytes) -> None:
    """Write bytes with a length prefix."""
    file.write(MESSAGE_HEADER.pack(len(packed)) + packed)
    file.flush()


def read_message(file: IO[bytes]) -> bytes | None:
    """Read bytes with a length prefix; None at the end, or if the other process has died."""
    header = file.read(MESSAGE_HEADER.size)
    if len(header) < MESSAGE_HEADER.size:
        return None
    size = MESSAGE_HEADER.unpack(header)[0]
    packed = file.read(size)
    return packed if len(packed) == size else None


def run_worker(input_stream: IO[bytes], output_stream: IO[bytes]) -> None:
    """Score each trace from the input until the end message."""
    message = read_message(input_stream)
    if not message:
        return
    judge, profile, metrics, calibration = msgspec.msgpack.decode(message, type=tuple[str, str, list[str], str | None])
    scorer = TraceScorer(judge, profile, metrics, calibration)
    decode = msgspec.msgpack.Decoder(tuple[int, Trace]).decode
    while message := read_message(input_stream):
        number, trace = decode(message)
        write_message(output_stream, msgspec.msgpack.encode((number, scorer(trace))))


ScoreSink = Callable[[ScoredTrace], object]
"""The receiver of scores; called on a thread of the background scorer, one at a time."""
# the number of workers that a trace may crash
MAX_ATTEMPTS = 2
# seconds between checks for pending traces at the end
POLL_SECONDS = 0.05
CRASH_REASON = "the worker process crashed twice on this trace"
# a message in the queue: a worker has ended
WORKER_DIED = "died"


class BackgroundScorer:
    """A scorer in the background: `submit` returns at once, and `sink` is called with each outcome.

    A worker process judges, so that the caller is not slowed; a judge object works on a thread of this process. At most
    `capacity` traces wait; further ones are dropped, counted in `dropped`, and warned of once. Nothing else is lost:
    `close`, or the end of the program, waits for every score, a worker that dies is replaced, and a trace that crashes
    two workers, that takes a worker process longer than `time_limit` seconds, or that cannot be sent, has `failed`
    scores. A forked process starts anew with its first trace.

    >>> results = []
    >>> with BackgroundScorer(results.append, judge="lexical", metrics=["context_relevance"]) as background:
    ...     background.submit(Trace(id="1", query="When?", chunks=()))
    True
    >>> [scored.trace.id for scored in results]
    ['1']
    """

    def __init__(
        self,
        sink: ScoreSink,
        *,
        judge: str | Judge = DEFAULT_JUDGE,
        profile: str = "general",
        metrics: str | Sequence[str] = "default",
        calibration: str | None = None,
        capacity: int = 10_000,
        time_limit: float | None = None,
    ) -> None:
        if capacity < 1:
            raise UsageError(f"capacity is at least 1, got {capacity}.")
        self._time_limit = time_limit
        self._sink, self._capacity = sink, capacity
        self._config = WorkerConfig.create(judge, profile, metrics, calibration)
        self._worker: ScoringWorker | None = None
        self._reset()
        atexit.register(self.close)

    def _reset(self) -> None:
        """Reset all state, in this process."""
        self._process = os.getpid()
        # belongs to the parent of a forked process
        self._parent_worker = self._worker
        self._worker = None
        self._queue: SimpleQueue[Trace | str | None] = SimpleQueue()
        self._pending: OrderedDict[int, tuple[Trace, int]] = OrderedDict()
        self._lock, self._submit_lock, self._all_scored = (threading.Lock(), threading.Lock(), threading.Condition())
        self.submitted = self.scored = self.dropped = self.sink_failures = self.rejected = 0
        self._closed, self._was_killed, self._is_abandoned = False, False, False
        # now: no thread can be started while the interpreter exits
        self._start_worker()
        self._thread = threading.Thread(target=self._run, name="ragfault-background", daemon=True)
        self._thread.start()
        if self._time_limit is not None:
            threading.Thread(target=self._limit_time, name="ragfault-time-limit", daemon=True).start()

    def submit(self, trace: Trace) -> bool:
        """Add a trace to the queue; return False if it was dropped, because too many wait or the scorer is closed."""
        if self._process != os.getpid():
            self._reset()
        with self._submit_lock:
            if not self._closed and self.submitted - self.scored < self._capacity:
                self.submitted += 1
                self._queue.put(trace)
                return True
            self.dropped += 1
            is_first = self.dropped == 1
        if is_first:
            warnings.warn(
                "ragfault drops traces: too many are pending, or the scorer is closed. See BackgroundScorer.dropped.",
                RuntimeWarning,
                stacklevel=2,
            )
        return False

    def reject(self, error: Exception) -> None:
        """Count an object that cannot become a trace in `rejected`, and warn of the first one."""
        self.rejected += 1
        if self.rejected == 1:
            warnings.warn(f"ragfault cannot score this: {error}", RuntimeWarning, stacklevel=3)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all submitted traces are scored; return False after `timeout` seconds."""
        with self._all_scored:
            return self._all_scored.wait_for(lambda: self.scored >= self.submitted, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Score the pending traces, and end. Safe to call twice."""
        if self._process == os.getpid():
            with self._submit_lock:
                if not self._closed:
                    self._closed = True
                    self._queue.put(None)
            self._thread.join(timeout)
        atexit.unregister(self.close)

    def abandon(self) -> None:
        """End at once, without a score of the pending traces: for a caller who keeps them."""
        if self._process == os.getpid():
            with self._submit_lock:
                self._closed = self._is_abandoned = True
                self._queue.put(None)
            # again and again, because a worker may be replaced meanwhile
            while self._thread.is_alive():
                if (worker := self._worker) is not None:
                    worker.kill()
                self._thread.join(POLL_SECONDS)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- background thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        """Send traces to the worker, and replace one that dies; at the end wait for the pending ones."""
        number, is_open = 0, True
        while is_open or (self._pending and not self._is_abandoned):
            try:
                message = self._queue.get(timeout=None if is_open else POLL_SECONDS)
            except Empty:
                continue
            if message is None:
                is_open = False
            elif self._is_abandoned:
                continue
            elif isinstance(message, Trace):
                with self._lock:
                    self._pending[number] = (message, 1)
                self._send(number, message)
                number += 1
            elif self._pending and self._worker is not None and not self._worker.alive:
                self._replace_worker()
        if self._worker is not None:
            self._worker.close()

    def _limit_time(self) -> None:
        """End the worker process where one trace takes too long: that trace has failed, the others are sent again."""
        limit, oldest, since = self._time_limit or 0.0, None, time.monotonic()
        while self._thread.is_alive():
            self._thread.join(limit / 10)
            with self._lock:
                number = next(iter(self._pending), None)
            if number is None or number != oldest:
                oldest, since = number, time.monotonic()
            elif time.monotonic() - since > limit and isinstance(self._worker, ProcessWorker):
                with self._lock:
                    trace = self._pending[number][0] if number in self._pending else None
                if trace is not None:
                    self._was_killed = True
                    reason = f"it took longer than {limit:g} seconds to judge"
                    self._deliver(number, build_failed_score(trace, self._config, reason))
                    self._worker.kill()
                oldest = None

    def _notify_exit(self) -> None:
        """Notify the thread that a worker has ended."""
        self._queue.put(WORKER_DIED)

    def _send(self, number: int, trace: Trace) -> None:
        """Send a trace to the worker; one that cannot be encoded has failed."""
        if self._worker is None and not self._start_worker():
            return
        assert self._worker is not None
        try:
            sent = self._worker.send(number, trace)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            self._deliver(number, build_failed_score(trace, self._config, f"it cannot be sent to the worker: {error}"))
            return
        # it died before this trace, perhaps while none was pending
        if not sent:
            self._replace_worker(unsent=number)

    def _start_worker(self) -> bool:
        """Start a worker; if that is impossible, all pending traces have failed."""
        try:
            self._worker = self._config.start_worker(self._deliver, self._notify_exit)
        except (OSError, RuntimeError) as error:
            self._worker = None
            for number, (trace, _) in self._list_pending():
                self._deliver(number, build_failed_score(trace, self._config, f"no worker can be started: {error}"))
            return False
        return True

    def _list_pending(self) -> list[tuple[int, tuple[Trace, int]]]:
        with self._lock:
            return list(self._pending.items())

    def _replace_worker(self, unsent: int | None = None) -> None:
        """Start a new worker in place of one that died, with its pending traces."""
        if self._is_abandoned:
            return
        if self._worker is not None:
            self._worker.close()
        pending = self._list_pending()
        was_killed, self._was_killed = self._was_killed, False
        # the trace that was being scored when it died
        if pending and pending[0][0] != unsent and not was_killed:
            number, (trace, attempts) = pending[0]
            if attempts >= MAX_ATTEMPTS:
                self._deliver(number, build_failed_score(trace, self._config, CRASH_REASON))
            else:
                with self._lock:
                    self._pending[number] = (trace, attempts + 1)
        if self._start_worker():
            for number, (trace, _) in self._list_pending():
                if self._worker is None or not self._worker.send(number, trace):
                    # the reader thread reports its end
                    return

    def _deliver(self, number: int, scored: ScoredTrace) -> None:
        """Deliver an outcome to the sink, exactly once."""
        with self._lock:
            if self._pending.pop(number, None) is None:
                return
        try:
            self._sink(scored)
        except BaseException as error:  # noqa: BLE001 - an error of user code loses no other score
            self.sink_failures += 1
            if self.sink_failures == 1:
                warnings.warn(
                    f"the sink of ragfault's scores failed: {type(error).__name__}: {error}. "
                    "See BackgroundScorer.sink_failures.",
                    RuntimeWarning,
                    stacklevel=1,
                )
        with self._all_scored:
            self.scored += 1
            self._all_scored.notify_all()


def to_jsonl(path: str | Path) -> ScoreSink:
    """Return a sink that appends a line of JSON for each trace to a file: trace, verdicts, scores."""
    return append_json_lines(path)
