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
"""A worker is one of several processes: threads of its own within each would only wait for each other."""
MESSAGE_HEADER = struct.Struct("<I")
END_MESSAGE = b""
"""The frame after which no more come."""
ScoreCallback = Callable[[int, ScoredTrace], None]


class ScoringWorker(Protocol):
    """Whoever scores the traces that are sent, and gives each outcome to whom it was told to."""

    @property
    def alive(self) -> bool:
        """Whether it still works."""
        ...

    def send(self, number: int, trace: Trace) -> bool:
        """Send a trace; False where it has died."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class WorkerConfig(Struct, frozen=True):
    """What a worker scores by."""

    judge: str
    profile: str
    metrics: tuple[str, ...]
    judge_object: Any = None
    """A judge that is an object; then a thread works with it."""

    @classmethod
    def create(cls, judge: str | Judge, profile: str, metrics: str | Sequence[str]) -> WorkerConfig:
        """Checked here, so that a wrong name is told to whoever gave it."""
        names = tuple(str(metric) for metric in select_metrics(metrics))
        if not isinstance(judge, str):
            return cls(judge.fingerprint, profile, names, judge)
        made: Any = load_judge(judge, profile=profile)
        if hasattr(made, "begin"):
            raise UsageError(
                f'the judge "{judge}" is paid for, and every trace would be sent to it. '
                "Make it with a budget, and give the object."
            )
        return cls(judge, profile, names)

    def start_worker(self, on_score: ScoreCallback, on_exit: Callable[[], None]) -> ScoringWorker:
        """A worker that gives outcomes to `take`, and tells `died` when no more come."""
        return (
            ThreadWorker(self, on_score)
            if self.judge_object is not None
            else ProcessWorker(self, on_score, on_exit)
        )


def build_failed_score(trace: Trace, config: WorkerConfig, reason: str) -> ScoredTrace:
    """The outcome of a trace that no worker could score."""
    verdicts = Verdicts(trace=trace.id, judge=config.judge, failures={"*": reason})
    return ScoredTrace(
        trace,
        verdicts,
        tuple(compute_score(metric, trace, verdicts) for metric in select_metrics(config.metrics)),
    )


class ProcessWorker:
    """A worker process, spoken to in frames over its standard input and output."""

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
        """Whether it still answers."""
        return self._process.poll() is None

    def send(self, number: int, trace: Trace) -> bool:
        """Send a trace; False where the process has died. Raises what cannot be encoded."""
        packed = msgspec.msgpack.encode((number, trace))
        self._used = True
        try:
            write_message(self._input, packed)
        except OSError:
            return False
        return self.alive

    def close(self) -> None:
        """End the process after what it still has, and leave nothing open."""
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
        while (frame := read_message(self._output)) is not None:
            number, scored = decode(frame)
            self._on_score(number, scored)
        self._process.wait()
        self._on_exit()


class ThreadWorker:
    """A thread that scores with a judge of the user."""

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
        """End it after what it still has."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (given := self._queue.get()) is not None:
            number, trace = given
            try:
                scored = self._scorer(trace)
            except BaseException as error:  # noqa: BLE001 - a budget that is spent, a judge that leaves: not this thread
                scored = build_failed_score(trace, self._config, f"{type(error).__name__}: {error}")
            self._on_score(number, scored)


def write_message(file: IO[bytes], packed: bytes) -> None:
    """Write bytes with their length before them."""
    file.write(MESSAGE_HEADER.pack(len(packed)) + packed)
    file.flush()


def read_message(file: IO[bytes]) -> bytes | None:
    """Read bytes by the length before them; None at the end, or where the other side died."""
    head = file.read(MESSAGE_HEADER.size)
    if len(head) < MESSAGE_HEADER.size:
        return None
    size = MESSAGE_HEADER.unpack(head)[0]
    packed = file.read(size)
    return packed if len(packed) == size else None


def run_worker(input_stream: IO[bytes], output_stream: IO[bytes]) -> None:
    """What the process does: score each trace that comes, until no more come."""
    frame = read_message(input_stream)
    if not frame:
        return
    judge, lens, metrics = msgspec.msgpack.decode(frame, type=tuple[str, str, list[str]])
    scoring = TraceScorer(judge, lens, metrics)
    decode = msgspec.msgpack.Decoder(tuple[int, Trace]).decode
    while frame := read_message(input_stream):
        number, trace = decode(frame)
        write_message(output_stream, msgspec.msgpack.encode((number, scoring(trace))))
