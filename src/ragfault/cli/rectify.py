"""`--rectify`: labels of people, or a stronger judge, that figures are put right by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ragfault.errors import UsageError

if TYPE_CHECKING:
    from ragfault.findings import People
    from ragfault.runs import Run

__all__ = ["rectifier", "rectifiers", "rectify"]

rectify = click.option(
    "--rectify",
    multiple=True,
    type=click.Path(exists=True),
    metavar="PATH",
    help="Put figures right by labels of some traces: of people, or the run of a stronger judge.",
)


def rectifier(paths: Sequence[str], run: Run) -> People | None:
    """What was said of a run, told on standard error; None where that was not asked for."""
    from ragfault.agreement.values import people

    if len(paths) > 1:
        raise UsageError(
            f"--rectify was given {len(paths)} times, and there is one run: put the labels in one file."
        )
    return people(paths[0], run, notice=_tell) if paths else None


def rectifiers(paths: Sequence[str], old: Run, new: Run) -> tuple[People | None, People | None]:
    """What was said of a baseline and of a candidate: one file for both, or one for each."""
    from ragfault.agreement.values import peoples

    return peoples(paths, (old, new), notice=_tell)


def _tell(text: str) -> None:
    click.echo(text, err=True)
