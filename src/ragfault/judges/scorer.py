"""Protocols of a scorer: relevance and entailment, from which `assembly` makes all verdicts.

A `Scorer` opens a session for each trace; scores within a `ScorerSession` depend on nothing outside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ragfault.judges.checks.passages import Passage
from ragfault.model.records import ClaimSupport, Evidence


class RelevanceScore(NamedTuple):
    """The relevance of a passage to a query."""

    value: float
    """In [0, 1]."""
    reason: str | None = None
    is_other_subject: bool = False
    """True if the passage is about another section, version or code than the query asks for."""


EntailmentGroup = tuple[Sequence[str], Sequence[Passage]]
"""Claims, and the passages they are compared with."""


class Entailment(NamedTuple):
    """The support of a claim by passages."""

    support: ClaimSupport
    p: float
    """The probability that the passages support the claim."""
    evidence: tuple[Evidence, ...] = ()
    reason: str | None = None
    shares: tuple[float, ...] = ()
    """For each passage the share of the claim that its best sentence covers."""
    unsure: bool = False
    """True if `p` is so near the threshold that the scorer is often wrong there."""
    unsupported_spans: tuple[tuple[int, int], ...] = ()
    """The stretches of a claim that is not supported whose words are, by the scorer, not in the passages."""
    differs: bool = False
    """True if the claim copies a sentence but for one point, in which it says something else."""


class ScorerSession(Protocol):
    """The scores of one trace."""

    def is_refusal(self, answer: str) -> bool:
        """Return whether an answer as a whole says that it cannot answer."""
        ...

    def is_refusal_sentence(self, sentence: str) -> bool:
        """Return whether a sentence says that the question cannot be answered, or that the sources are silent."""
        ...

    def score_agreement(self, answer: str, references: Sequence[str]) -> float | None:
        """Return the probability that an answer says what one of the references says; None if only words are read."""
        ...

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> Sequence[RelevanceScore]:
        """Return the relevance of each passage to the query; each depends on that passage alone."""
        ...

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> Sequence[RelevanceScore]:
        """Return how much of a query each text covers, by its words; for answers and parts of queries, too."""
        ...

    def read_answer(self, query: str, answer: str) -> float | None:
        """Return the probability that a text answers a question, rightly or wrongly; None if only words are read."""
        ...

    def prefetch(self, groups: Sequence[EntailmentGroup]) -> None:
        """Prepare the groups that entailment will be asked for, all at once; scores do not change by it."""
        ...

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> Sequence[Entailment]:
        """Return the support of each claim by the passages together."""
        ...

    def score_groundedness(self, answer: str, claims: Sequence[str], entailments: Sequence[Entailment]) -> float:
        """Return the probability that the passages support all claims of an answer."""
        ...

    def measure_similarity(self, left: str, right: str) -> float:
        """Return the similarity of two texts in [0, 1]."""
        ...


class Scorer(Protocol):
    """Relevance and entailment from word statistics or a model."""

    @property
    def fingerprint(self) -> str:
        """Identity of the scores: scores of equal fingerprints are comparable."""
        ...

    def open_session(self, query: str = "", history: Sequence[str] = ()) -> ScorerSession:
        """Open a session for one trace with this query and the texts of the turns before it."""
        ...
