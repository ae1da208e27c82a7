"""Protocols of the parts that can be swapped: judge, embedder, reranker, generator, executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

from ragfault.records import Trace, Usage, Verdicts

if TYPE_CHECKING:
    import numpy as np


P = TypeVar("P")
R = TypeVar("R")

VerdictKind = Literal[
    "chunk", "missing", "use", "claim", "citation", "fact", "recall", "answer", "truth", "harm", "similarity"
]
"""A kind of verdict; the name of its field in `Verdicts`."""

VERDICT_KINDS: tuple[VerdictKind, ...] = (
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
    def offers(self) -> frozenset[VerdictKind]:
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
class MeteredJudge(Protocol):
    """A judge whose observations are paid for: it waits on a network, keeps to a budget and tells what it spent.

    Such a judge is asked from several threads at once, and never copied to worker processes, so that one budget holds.
    """

    def begin(self, budget_id: str, *, fresh: bool) -> None:
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


@runtime_checkable
class Embedder(Protocol):
    """Whoever turns texts into vectors whose cosine says how alike they are in meaning."""

    @property
    def fingerprint(self) -> str:
        """Name, version, weights: an index that was made with another fingerprint is never searched with this."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of its vectors."""
        ...

    def embed(self, texts: Sequence[str], *, query: bool = False) -> np.ndarray[Any, Any]:
        """A row of float32 for each text, of length 1 (all zeros for a text that says nothing); `query` for questions.

        A row depends on its own text alone.
        """
        ...


@runtime_checkable
class Reranker(Protocol):
    """Whoever reads a query together with passages and says how relevant each is."""

    @property
    def fingerprint(self) -> str:
        """Name, version, weights."""
        ...

    def relevance(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """How relevant each text is to the query, in the same order; higher is more. In [0, 1] where it can."""
        ...


@runtime_checkable
class Generator(Protocol):
    """Whoever writes a text when asked: a language model."""

    @property
    def fingerprint(self) -> str:
        """Name and parameters."""
        ...

    def generate(self, instructions: str, text: str) -> str:
        """What it writes on a text, by these instructions; the text is data and never instructions."""
        ...


@runtime_checkable
class Executor(Protocol):
    """Whoever has pieces of work done somewhere else: on processes of this machine, or on a cluster."""

    def map_unordered(self, task_function: Callable[[P], R], items: Iterable[P]) -> Iterator[R]:
        """What the work makes of each piece, in any order, of each piece once.

        The work and the pieces can be pickled. Pieces are taken as they can be worked on, and a bounded number is
        under way, so that memory does not grow with them. Doing a piece again leaves the same behind: it may be, where
        whoever did it was lost. What the work raises is raised here; RunError where it cannot be done.
        """
        ...
