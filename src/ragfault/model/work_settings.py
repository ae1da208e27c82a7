"""Settings of all work that can be spread: where it is done, and who is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragfault.model.settings import Flag, NonEmptyText, PositiveInt, declare

if TYPE_CHECKING:
    from ragfault.model.protocols import Executor


def ignore_report(*_: object) -> None:
    """Discard a report of progress or usage, or a notice."""


WORKERS: int | None = declare(
    None,
    "Worker processes; with `ray`, concurrent tasks.",
    PositiveInt,
    Flag(names=("-w", "--workers"), default="1; with `ray` every processor"),
)
RAY: str | None = declare(
    None,
    "Ray cluster to run on: auto, HOST:PORT, ray://HOST:PORT, or local to start one here.",
    NonEmptyText,
    Flag(metavar="ADDRESS|local"),
)
EXECUTOR: Executor | None = declare(None, "Executor of the work, in place of `workers` and `ray`.")
"""Declarations of the fields that say where work is done, the same for all that can be spread."""
