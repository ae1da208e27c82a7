"""The worker behind the background: a process that judges, or a thread where the judge is an object of the user."""

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
from ragfault.judges import load_judge
from ragfault.metrics import choose, score
from ragfault.online.scoring import Scored, Scoring
from ragfault.ports import Judge
from ragfault.records import Trace, Verdicts

__all__ = ["Config", "Worker", "lost", "read_frame", "serve", "write_frame"]

ALONE = {"OPENBLAS_NUM_THREADS": "1"}
"""A worker is one of several processes: threads of its own within each would only wait for each other."""
HEAD = struct.Struct("<I")
END = b""
"""The frame after which no more come."""
Take = Callable[[int, Scored], None]


class Worker(Protocol):
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


class Config(Struct, frozen=True):
    """What a worker scores by."""

    judge: str
    lens: str
    metrics: tuple[str, ...]
    made: Any = None
    """A judge that is an object; then a thread works with it."""

    @classmethod
    def of(cls, judge: str | Judge, lens: str, metrics: str | Sequence[str]) -> Config:
        """Checked here, so that a wrong name is told to whoever gave it."""
        names = tuple(str(metric) for metric in choose(metrics))
        if not isinstance(judge, str):
            return cls(judge.fingerprint, lens, names, judge)
        made: Any = load_judge(judge, lens=lens)
        if hasattr(made, "begin"):
            raise UsageError(
                f'the judge "{judge}" is paid for, and every trace would be sent to it. '
                "Make it with a budget, and give the object."
            )
        return cls(judge, lens, names)

    def start(self, take: Take, died: Callable[[], None]) -> Worker:
        """A worker that gives outcomes to `take`, and tells `died` when no more come."""
        return Hand(self, take) if self.made is not None else Process(self, take, died)


def lost(trace: Trace, config: Config, reason: str) -> Scored:
    """The outcome of a trace that no worker could score."""
    verdicts = Verdicts(trace=trace.id, judge=config.judge, failures={"*": reason})
    return Scored(trace, verdicts, tuple(score(metric, trace, verdicts) for metric in choose(config.metrics)))


class Process:
    """A worker process, spoken to in frames over its standard input and output."""

    def __init__(self, config: Config, take: Take, died: Callable[[], None]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ragfault.online"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**ALONE, **os.environ},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out, self._take = self._process.stdin, self._process.stdout, take
        self._died, self._used = died, False
        self._reader = threading.Thread(target=self._read, name="ragfault-scores", daemon=True)
        self._reader.start()
        with contextlib.suppress(OSError):  # one that dies at once says so as any other does
            write_frame(self._in, msgspec.msgpack.encode([config.judge, config.lens, config.metrics]))

    @property
    def alive(self) -> bool:
        """Whether it still answers."""
        return self._process.poll() is None

    def send(self, number: int, trace: Trace) -> bool:
        """Send a trace; False where the process has died. Raises what cannot be encoded."""
        packed = msgspec.msgpack.encode((number, trace))
        self._used = True
        try:
            write_frame(self._in, packed)
        except OSError:
            return False
        return self.alive

    def close(self) -> None:
        """End the process after what it still has, and leave nothing open."""
        if not self._used:
            self._process.kill()
        with contextlib.suppress(OSError):
            write_frame(self._in, END)  # a process that was forked here may hold the pipe open, too
        with contextlib.suppress(OSError):
            self._in.close()
        self._process.wait()
        self._reader.join()
        self._out.close()

    def _read(self) -> None:
        decode = msgspec.msgpack.Decoder(tuple[int, Scored]).decode
        while (frame := read_frame(self._out)) is not None:
            number, scored = decode(frame)
            self._take(number, scored)
        self._process.wait()
        self._died()


class Hand:
    """A thread that scores with a judge of the user."""

    def __init__(self, config: Config, take: Take) -> None:
        self._config, self._scoring = config, Scoring(config.made, config.lens, config.metrics)
        self._queue: SimpleQueue[tuple[int, Trace] | None] = SimpleQueue()
        self._take = take
        self._thread = threading.Thread(target=self._work, name="ragfault-scores", daemon=True)
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

    def _work(self) -> None:
        while (given := self._queue.get()) is not None:
            number, trace = given
            try:
                scored = self._scoring(trace)
            except BaseException as error:  # noqa: BLE001 - a budget that is spent, a judge that leaves: not this thread
                scored = lost(trace, self._config, f"{type(error).__name__}: {error}")
            self._take(number, scored)


def write_frame(file: IO[bytes], packed: bytes) -> None:
    """Write bytes with their length before them."""
    file.write(HEAD.pack(len(packed)) + packed)
    file.flush()


def read_frame(file: IO[bytes]) -> bytes | None:
    """Read bytes by the length before them; None at the end, or where the other side died."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    size = HEAD.unpack(head)[0]
    packed = file.read(size)
    return packed if len(packed) == size else None


def serve(taken: IO[bytes], given: IO[bytes]) -> None:
    """What the process does: score each trace that comes, until no more come."""
    frame = read_frame(taken)
    if not frame:
        return
    judge, lens, metrics = msgspec.msgpack.decode(frame, type=tuple[str, str, list[str]])
    scoring = Scoring(judge, lens, metrics)
    decode = msgspec.msgpack.Decoder(tuple[int, Trace]).decode
    while frame := read_frame(taken):
        number, trace = decode(frame)
        write_frame(given, msgspec.msgpack.encode((number, scoring(trace))))
