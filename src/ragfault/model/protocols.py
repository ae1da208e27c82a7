"""Protocols of the parts that can be swapped: judge, embedder, reranker, generator, executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, get_args, runtime_checkable

from ragfault.model.records import Trace, Usage, Verdicts

if TYPE_CHECKING:
    import numpy as np


P = TypeVar("P")
R = TypeVar("R")

VerdictKind = Literal[
    "chunk", "missing", "use", "claim", "citation", "fact", "recall", "answer", "truth", "harm", "rubric", "similarity"
]
"""A kind of verdict; the name of its field in `Verdicts`."""

VERDICT_KINDS: tuple[VerdictKind, ...] = get_args(VerdictKind)


@runtime_checkable
class Judge(Protocol):
    """A model, LLM or person that makes the costly, noisy observations, once per trace.

    A judge can be pickled (worker processes get a copy each). Its verdicts on a trace depend on that
    trace alone: never on the batch, the order or the worker. `chunk`, `missing` and `recall` verdicts
    are made without sight of the answer.
    """

    @property
    def offers(self) -> frozenset[VerdictKind]:
        """The kinds of verdict it can make."""

    @property
    def fingerprint(self) -> str:
        """Everything that must be equal for two runs to be comparable: name, version, model, prompts, thresholds.

        One line, e.g. ``lexical/8 rarity=3f9c inferred=0.55``.
        """

    def observe(self, traces: Sequence[Trace]) -> Sequence[Verdicts]:
        """Return the verdicts on each trace, in the same order and number.

        A part that was tried and lost is named in `Verdicts.failures`. A judge that can do nothing for
        the whole batch raises JudgeError; the caller then asks again trace by trace.
        """


@runtime_checkable
class MeteredJudge(Protocol):
    """A judge that costs money: it waits on a network, keeps to a budget and reports its usage.

    It is called from several threads at once and never copied to worker processes, so that one budget holds.
    """

    def begin(self, budget_id: str, *, fresh: bool) -> None:
        """Charge later calls to a budget, usually that of one run.

        Usage that killed commands charged to the same budget counts, unless `fresh`.
        """

    @property
    def usage(self) -> Usage:
        """Usage charged to the budget so far, killed commands included."""

    def end(self) -> None:
        """Close connections, files and threads. `begin` opens them again."""


class MeteredWrapper:
    """Budget and usage of the judge in `_judge`, for the wrappers of judges that cost money."""

    _judge: Judge

    def begin(self, budget_id: str, *, fresh: bool) -> None:
        cast("MeteredJudge", self._judge).begin(budget_id, fresh=fresh)

    @property
    def fetch_in_batches(self) -> Any:
        """Method of the judge, if it has it."""
        return getattr(self._judge, "fetch_in_batches", None)

    @property
    def usage(self) -> Usage:
        return cast("MeteredJudge", self._judge).usage

    def end(self) -> None:
        cast("MeteredJudge", self._judge).end()


@runtime_checkable
class Embedder(Protocol):
    """A model that turns texts into vectors whose cosine measures similarity of meaning."""

    @property
    def fingerprint(self) -> str:
        """Name, version and weights. An index is only searched with the fingerprint that built it."""

    @property
    def dimensions(self) -> int:
        """The length of its vectors."""

    def embed(self, texts: Sequence[str], *, query: bool = False) -> np.ndarray[Any, Any]:
        """Return one float32 row of length 1 for each text, zeros for a text without content; `query` marks questions.

        A row depends on its own text alone.
        """


@runtime_checkable
class Reranker(Protocol):
    """A model that reads a query together with passages and scores the relevance of each."""

    @property
    def fingerprint(self) -> str:
        """Name, version, weights."""

    def relevance(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return the relevance of each text, in the same order; higher is better, in [0, 1] if possible."""


@runtime_checkable
class Generator(Protocol):
    """A language model that writes text."""

    @property
    def fingerprint(self) -> str:
        """Name and parameters."""

    def generate(self, instructions: str, text: str) -> str:
        """Write a text by the instructions; `text` is data and never holds instructions."""


@runtime_checkable
class Executor(Protocol):
    """A pool of workers: processes of this machine, or a cluster."""

    def map_unordered(self, task_function: Callable[[P], R], items: Iterable[P]) -> Iterator[R]:
        """Yield the result of the task for each item once, in any order.

        Task and items can be pickled. Items are taken as workers become free, with a bounded number in flight, so that
        memory does not grow with them. Tasks are idempotent: one is repeated if its worker is lost. Errors of the
        task are raised here; RunError if the work cannot be done at all.
        """
