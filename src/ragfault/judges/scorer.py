"""Protocols of a scorer: relevance and entailment, from which `assembly` makes all verdicts.

A `Scorer` reads one trace at a time; what it says within that `Reading` depends on nothing else.
`assemble` makes all verdicts from the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ragfault.judges.checks.passages import Passage
from ragfault.records import ClaimSupport, Evidence


class RelevanceScore(NamedTuple):
    """How much a passage says about a query."""

    value: float
    """In [0, 1]."""
    reason: str | None = None
    is_other_subject: bool = False
    """Whether the passage speaks about another thing than the one the query asks for: another section or version."""


EntailmentGroup = tuple[Sequence[str], Sequence[Passage]]
"""Claims, and the passages they are held against."""


class Entailment(NamedTuple):
    """How passages stand to a claim."""

    support: ClaimSupport
    p: float
    """The probability that the passages support the claim."""
    evidence: tuple[Evidence, ...] = ()
    reason: str | None = None
    shares: tuple[float, ...] = ()
    """For each passage the share of the claim that its best sentence covers."""
    unsure: bool = False
    """Whether `p` lies so near the bar that the scorer is often wrong there."""


class ScorerSession(Protocol):
    """A trace as a scorer reads it."""

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> Sequence[RelevanceScore]:
        """How much each passage says about the query; blind to anything else."""
        ...

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> Sequence[RelevanceScore]:
        """How much of what a query asks each text takes up, by its words; of answers and parts of queries, too."""
        ...

    def prefetch(self, groups: Sequence[EntailmentGroup]) -> None:
        """Be told what entailment will be asked, to look at it all at once; it changes nothing of what is said."""
        ...

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> Sequence[Entailment]:
        """How the passages, taken together, stand to each claim."""
        ...

    def score_groundedness(
        self, answer: str, claims: Sequence[str], entailments: Sequence[Entailment]
    ) -> float:
        """The probability that the passages support all claims of an answer, of which each was `seen` so."""
        ...

    def measure_similarity(self, left: str, right: str) -> float:
        """How alike two texts are, in [0, 1]."""
        ...


class Scorer(Protocol):
    """Whoever can tell relevance and entailment: word statistics, or a model."""

    @property
    def fingerprint(self) -> str:
        """What must be equal for two readings to be comparable."""
        ...

    def open_session(self, query: str = "") -> ScorerSession:
        """Begin the reading of one trace, which has this query."""
        ...
