"""The part of the embedded store that keeps what a better judge says of a sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

from ragfault.store import checking
from ragfault.store.records import Check, Checks, Drawn, Kept, Sample
from ragfault.store.writer import Writer

__all__ = ["DuckChecking"]


class DuckChecking:
    """The port `Checking` on the connections of a store."""

    def __init__(self, reading: Callable[[], AbstractContextManager[Any]], writer: Writer) -> None:
        self._reading, self._writer = reading, writer

    def draw(self, draws: Sequence[Drawn]) -> Future[None]:
        return self._writer.submit(lambda con: checking.add_draws(con, draws))

    def drawn(self) -> dict[str, int]:
        with self._reading() as con:
            return checking.drawn(con)

    def waiting(self, judge: str, limit: int = 256) -> Sequence[Kept]:
        with self._reading() as con:
            return checking.unchecked(con, judge, limit)

    def add(self, done: Sequence[Check], numbers: Sequence[int]) -> Future[None]:
        return self._writer.submit(lambda con: checking.add_checks(con, done, numbers))

    def leave(self, judge: str, now: float) -> Future[int]:
        return self._writer.submit(lambda con: checking.leave(con, judge, now))

    def checks(self, judge: str, since: float = 0.0) -> Checks:
        with self._reading() as con:
            return checking.checks(con, judge, since)

    def checks_of(self, trace: str) -> tuple[Check, ...]:
        with self._reading() as con:
            return checking.checks_of(con, trace)

    def sample(
        self, judge: str, since: float, until: float, metric: str | None = None, route: str | None = None
    ) -> tuple[Sample, ...]:
        with self._reading() as con:
            return checking.sample(con, judge, since, until, metric, route)
