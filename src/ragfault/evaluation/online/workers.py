"""Workers behind the background scorer: a process, or a thread for a judge object of the user."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import IO, Any, Protocol

import msgspec
from msgspec import Struct

from ragfault.errors import UsageError
from ragfault.evaluation.online.scorer import ScoredTrace, TraceScorer
from ragfault.judges import load_judge
from ragfault.metrics import compute_score, select_metrics
from ragfault.protocols import Judge
from ragfault.records import Trace, Verdicts

WORKER_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""One thread in each of several worker processes: more would only compete."""
MESSAGE_HEADER = struct.Struct("<I")
END_MESSAGE = b""
"""The last message."""
ScoreCallback = Callable[[int, ScoredTrace], None]


class ScoringWorker(Protocol):
    """A worker that scores the traces sent to it and passes each outcome on."""

    @property
    def alive(self) -> bool:
        """Whether it still works."""
        ...

    def send(self, number: int, trace: Trace) -> bool:
        """Send a trace; return False if the worker has died."""
        ...

    def close(self) -> None:
        """End the worker."""
        ...


class WorkerConfig(Struct, frozen=True):
    """The judge, domain profile and metrics of a worker."""

    judge: str
    profile: str
    metrics: tuple[str, ...]
    judge_object: Any = None
    """A judge object; a thread works with it."""

    @classmethod
    def create(cls, judge: str | Judge, profile: str, metrics: str | Sequence[str]) -> WorkerConfig:
        """Check the names, so that a wrong one is reported to the caller."""
        names = tuple(str(metric) for metric in select_metrics(metrics))
        if not isinstance(judge, str):
            return cls(judge.fingerprint, profile, names, judge)
        loaded: Any = load_judge(judge, profile=profile)
        if hasattr(loaded, "begin"):
            raise UsageError(
                f'the judge "{judge}" is paid for, and every trace would be sent to it. '
                "Make it with a budget, and give the object."
            )
        return cls(judge, profile, names)

    def start_worker(self, on_score: ScoreCallback, on_exit: Callable[[], None]) -> ScoringWorker:
        """Start a worker that passes outcomes to `on_score`, and calls `on_exit` at its end."""
        return (
            ThreadWorker(self, on_score)
            if self.judge_object is not None
            else ProcessWorker(self, on_score, on_exit)
        )


def build_failed_score(trace: Trace, config: WorkerConfig, reason: str) -> ScoredTrace:
    """Build the outcome of a trace that no worker could score."""
    verdicts = Verdicts(trace=trace.id, judge=config.judge, failures={"*": reason})
    return ScoredTrace(
        trace,
        verdicts,
        tuple(compute_score(metric, trace, verdicts) for metric in select_metrics(config.metrics)),
    )


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
        with contextlib.suppress(OSError):  # one that dies at once says so as any other does
            write_message(self._input, msgspec.msgpack.encode([config.judge, config.profile, config.metrics]))

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
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
            write_message(
                self._input, END_MESSAGE
            )  # a process that was forked here may hold the pipe open, too
        with contextlib.suppress(OSError):
            self._input.close()
        self._process.wait()
        self._reader.join()
        self._output.close()

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
        self._config, self._scorer = config, TraceScorer(config.judge_object, config.profile, config.metrics)
        self._queue: SimpleQueue[tuple[int, Trace] | None] = SimpleQueue()
        self._on_score = on_score
        self._thread = threading.Thread(target=self._run, name="ragfault-scores", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it still works."""
        return self._thread.is_alive()

    def send(self, number: int, trace: Trace) -> bool:
        """Send a trace."""
        self._queue.put((number, trace))
        return True

    def close(self) -> None:
        """End the thread after its pending traces."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            number, trace = item
            try:
                scored = self._scorer(trace)
            except BaseException as error:  # noqa: BLE001 - a budget that is spent, a judge that leaves: not this thread
                scored = build_failed_score(trace, self._config, f"{type(error).__name__}: {error}")
            self._on_score(number, scored)


def write_message(file: IO[bytes], packed: bytes) -> None:
    """Write bytes with their length in front."""
    file.write(MESSAGE_HEADER.pack(len(packed)) + packed)
    file.flush()


def read_message(file: IO[bytes]) -> bytes | None:
    """Read bytes by the length in front; None at the end, or if the other side died."""
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
    judge, profile, metrics = msgspec.msgpack.decode(message, type=tuple[str, str, list[str]])
    scorer = TraceScorer(judge, profile, metrics)
    decode = msgspec.msgpack.Decoder(tuple[int, Trace]).decode
    while message := read_message(input_stream):
        number, trace = decode(message)
        write_message(output_stream, msgspec.msgpack.encode((number, scorer(trace))))
