"""The ports: the shapes of the parts that can be swapped.

A port is a Protocol. Nothing here inherits from anything; an object of the right shape fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from ragfault.records import Trace, Usage, Verdicts

__all__ = ["PARTS", "Judge", "Metered", "Part"]

Part = Literal[
    "chunk", "missing", "use", "claim", "citation", "fact", "recall", "answer", "truth", "harm", "similarity"
]
"""A kind of verdict; the name of its field in `Verdicts`."""

PARTS: tuple[Part, ...] = (
    "chunk",
    "missing",
    "use",
    "claim",
    "citation",
    "fact",
    "recall",
    "answer",
    "truth",
    "harm",
    "similarity",
)


@runtime_checkable
class Judge(Protocol):
    """Whoever makes the costly, noisy observations, once per trace: a model, an LLM or a person.

    A judge can be pickled (worker processes get a copy each). Its verdicts on a trace depend on that
    trace alone: never on the batch, the order or the worker. `chunk`, `missing` and `recall` verdicts
    are made without sight of the answer.
    """

    @property
    def offers(self) -> frozenset[Part]:
        """The kinds of verdict it can make."""
        ...

    @property
    def fingerprint(self) -> str:
        """What must be equal for two runs to be comparable: name, version, model, prompts, thresholds.

        One line, e.g. ``lexical/2 rarity=3f9c inferred=0.55``.
        """
        ...

    def observe(self, traces: Sequence[Trace]) -> Sequence[Verdicts]:
        """Return the verdicts on each trace, in the same order and number.

        A part that was tried and lost is named in `Verdicts.failures`. A judge that can do nothing for
        the whole batch raises JudgeError; the caller then asks again trace by trace.
        """
        ...


@runtime_checkable
class Metered(Protocol):
    """A judge whose observations are paid for: it waits on a network, keeps to a budget and tells what it spent.

    Such a judge is asked from several threads at once, and never copied to worker processes, so that one budget holds.
    """

    def begin(self, purse: str, *, afresh: bool) -> None:
        """Say for what is spent from here on: a run by its place.

        What was spent for it by commands that were killed counts, unless it is begun `afresh`.
        """
        ...

    @property
    def usage(self) -> Usage:
        """What was spent for this purse until now, killed commands included."""
        ...

    def end(self) -> None:
        """Close what is open: connections, files, threads. It can begin again."""
        ...
