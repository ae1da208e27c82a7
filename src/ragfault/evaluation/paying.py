"""A judge that is paid for, at work on a run: what is spent is put down to the run, and kept over kills."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ragfault.errors import Stopped
from ragfault.ports import Judge, Metered
from ragfault.records import Usage
from ragfault.runs import Partial

__all__ = ["paying", "usage"]


@contextmanager
def paying(judge: Judge, partial: Partial) -> Iterator[None]:
    """Have what the judge spends put down to the run in the making; nothing for judges that cost nothing.

    Raises what stopped it, with how much is done and how to go on.
    """
    if not isinstance(judge, Metered):
        yield
        return
    judge.begin(str(partial.out.absolute()), afresh=not partial.resumed)
    try:
        yield
    except Stopped as error:
        judge.end()
        raise type(error)(f"{error} {_kept(partial)}") from error
    finally:
        judge.end()


def usage(judge: Judge) -> Usage | None:
    """What a judge spent; None for one that costs nothing."""
    return judge.usage if isinstance(judge, Metered) else None


def _kept(partial: Partial) -> str:
    """What was done before a judge stopped, and how to go on."""
    plan = partial.plan
    done = min(len(partial.done()) * plan.batch, plan.traces)
    return (
        f"{done:,} of {plan.traces:,} traces are done and kept, {plan.traces - done:,} are left. "
        f"Run the same command again to go on in {partial.path}."
    )
