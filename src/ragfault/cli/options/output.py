"""Output of commands: the progress bar with rate, time left and cost."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from ragfault.records import Usage


class JudgingProgress:
    """What is shown while traces are judged: how many, how fast, and what was spent so far."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    def __call__(self, done: int, total: int) -> None:
        """Say how many traces are done."""
        if self._progress is None:
            return
        speed = self._progress.tasks[0].speed
        rate = "" if not speed else f"{speed:,.0f} traces/s" if speed >= 10 else f"{speed:.2g} traces/s"
        self._progress.update(self._progress.tasks[0].id, completed=done, total=total, rate=rate)

    def show_usage(self, usage: Usage) -> None:
        """Say what was spent so far."""
        if self._progress is None:
            return
        from ragfault.text.number_format import format_cost

        self._progress.update(
            self._progress.tasks[0].id, spent=f"{format_cost(usage.cost)} in {usage.calls:,} calls"
        )


@contextlib.contextmanager
def show_progress(quiet: bool) -> Iterator[JudgingProgress]:
    """Show a progress bar with rate, time left and cost on standard error; nothing where that is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield JudgingProgress(None)
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
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task("judging", total=None, rate="", spent="")
        yield JudgingProgress(progress)
