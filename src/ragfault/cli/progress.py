"""The bar that shows how far the judging is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from ragfault.records import Usage

__all__ = ["Bar", "progressing"]


class Bar:
    """What is shown while traces are judged: how many, how fast, and what was spent so far."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar

    def __call__(self, done: int, total: int) -> None:
        """Say how many traces are done."""
        if self._bar is None:
            return
        speed = self._bar.tasks[0].speed
        rate = "" if not speed else f"{speed:,.0f} traces/s" if speed >= 10 else f"{speed:.2g} traces/s"
        self._bar.update(self._bar.tasks[0].id, completed=done, total=total, rate=rate)

    def spent(self, usage: Usage) -> None:
        """Say what was spent so far."""
        if self._bar is None:
            return
        from ragfault.report.asked import money

        self._bar.update(self._bar.tasks[0].id, spent=f"{money(usage.cost)} in {usage.calls:,} calls")


@contextlib.contextmanager
def progressing(quiet: bool) -> Iterator[Bar]:
    """A progress bar with rate, time left and cost on standard error; nothing where that is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield Bar(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("judging"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[spent]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task("judging", total=None, rate="", spent="")
        yield Bar(bar)
