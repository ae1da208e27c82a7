"""A judge with a domain profile: verdicts lowered where identifiers or thresholds disagree."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ragfault.judges.assembly import OFFERED_PARTS, SUPPORTING_LABELS, assemble_verdicts
from ragfault.judges.checks.claims import strip_marks
from ragfault.judges.checks.passages import Passage
from ragfault.judges.checks.queries import TASK_QUERY
from ragfault.judges.domain.identifiers import (
    IdentifierConflict,
    align_spelling,
    detect_conflict,
    explain_query_conflict,
)
from ragfault.judges.domain.profile import DomainProfile
from ragfault.judges.scorer import Entailment, EntailmentGroup, RelevanceScore, Scorer, ScorerSession
from ragfault.protocols import VerdictKind
from ragfault.records import Trace, Verdicts

OTHER_SUBJECT_FACTOR, LEVEL_GAP = 0.4, 0.05
"""What speaks about something else keeps this share of its relevance, and stays so far below the lowest level."""
MAX_UNSUPPORTED, THRESHOLD_GAP = 0.5, 0.01
"""A claim that does not hold has a probability below this, and below the bar of the lens, by so much."""
CONTRADICTION_FACTOR = 0.5
"""How much less likely a contradicted claim is than one that is not borne out."""


class ProfiledJudge:
    """A scorer seen through a lens: what names another thing is lowered, what names the same in other words is not.

    Identifiers reach the scorer in the spelling of the passages; beyond that a lens never raises anything.

    >>> from ragfault.judges import load_judge
    >>> from ragfault.judges.domain.profile import load_profile
    >>> from ragfault.records import Chunk
    >>> judge = ProfiledJudge(load_judge("lexical"), load_profile("medical"))
    >>> chunk = Chunk(id="a", text="The starting dose of digoxin is 125 mcg once daily.")
    >>> trace = Trace(id="1", query="What is the dose of digoxin?", chunks=(chunk,), answer="It is 125 mg once daily.")
    >>> judge.observe([trace])[0].claim[0].support
    'contradicted'
    """

    def __init__(self, scorer: Scorer, profile: DomainProfile) -> None:
        self.scorer, self.profile = scorer, profile

    @property
    def offers(self) -> frozenset[VerdictKind]:
        """What every judge offers that is assembled from a scorer."""
        return OFFERED_PARTS

    @property
    def fingerprint(self) -> str:
        """That of the scorer, and the lens by name and digest."""
        return f"{self.scorer.fingerprint} lens={self.profile.name}:{self.profile.digest}"

    def open_session(self, query: str = "") -> ProfiledSession:
        """Begin the reading of one trace."""
        return ProfiledSession(self.scorer.open_session(query), self.profile, query)

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """The verdicts on each trace, each made from that trace alone."""
        return [assemble_verdicts(trace, self, self.profile.levels) for trace in traces]


class ProfiledSession:
    """A reading of one trace through a lens."""

    def __init__(self, session: ScorerSession, profile: DomainProfile, query: str = "") -> None:
        self._session, self._profile, self._query = session, profile, query
        self._lowered: set[Entailment] = set()

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """As the scorer says, but for passages that speak about something else than the query asks for."""
        return self._adjust_relevance(self._session.score_relevance, query, passages)

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """As the scorer says, but for texts that speak about something else than the query asks for."""
        return self._adjust_relevance(self._session.score_coverage, query, passages)

    def prefetch(self, groups: Sequence[EntailmentGroup]) -> None:
        """Tell the scorer."""
        self._session.prefetch(groups)

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """As the scorer says, but for claims that name another thing than the passages."""
        texts = [passage.text for passage in passages]
        seen = list(self._session.score_entailment(claims, passages))
        said = {place: align_spelling(self._profile, claim, texts) for place, claim in enumerate(claims)}
        other = [place for place, claim in enumerate(claims) if said[place] != claim]
        again = self._session.score_entailment([said[place] for place in other], passages) if other else ()
        for place, one in zip(other, again, strict=True):
            seen[place] = max(seen[place], one, key=_get_probability)
        return [self._check_identifiers(claim, texts, one) for claim, one in zip(claims, seen, strict=True)]

    def score_groundedness(
        self, answer: str, claims: Sequence[str], entailments: Sequence[Entailment]
    ) -> float:
        """As the scorer says, and no more probable than a claim that the lens lowered."""
        sure = self._session.score_groundedness(answer, claims, entailments)
        return min([sure, *(one.p for one in entailments if one in self._lowered)])

    def measure_similarity(self, left: str, right: str) -> float:
        """As the scorer says."""
        return self._session.measure_similarity(left, right)

    def _adjust_relevance(
        self,
        score: Callable[[str, Sequence[Passage]], Sequence[RelevanceScore]],
        query: str,
        passages: Sequence[Passage],
    ) -> list[RelevanceScore]:
        """What the scorer tells, asked in the spelling of each passage too, and held against the lens."""
        seen = list(score(query, passages))
        if TASK_QUERY.match(query):
            return seen
        for place, passage in enumerate(passages):
            asked = align_spelling(self._profile, query, [passage.text])
            if asked != query:
                seen[place] = max(seen[place], score(asked, [passage])[0], key=_get_value)
        return [self._check_subject(query, passage, one) for passage, one in zip(passages, seen, strict=True)]

    def _check_subject(self, query: str, passage: Passage, score: RelevanceScore) -> RelevanceScore:
        reason = explain_query_conflict(self._profile, query, passage.text)
        if reason is None:
            return score
        low = self._profile.levels.low
        value = (
            score.value
            if score.value < low
            else max(0.0, min(OTHER_SUBJECT_FACTOR * score.value, low - LEVEL_GAP))
        )
        return RelevanceScore(value, reason, is_other_subject=True)

    def _check_identifiers(self, claim: str, texts: Sequence[str], entailment: Entailment) -> Entailment:
        if entailment.support not in SUPPORTING_LABELS:
            return entailment
        bars = self._profile.support
        found = detect_conflict(self._profile, strip_marks(claim), texts, self._query)
        if found is None and entailment.p < bars.inferred:
            found = IdentifierConflict(
                f"p = {entailment.p:.2f} is below {bars.inferred:g}, the bar of the lens",
                is_contradiction=False,
            )
        if found is None:
            if entailment.support == "inferred" or entailment.p >= bars.supported:
                return entailment
            return entailment._replace(
                support="inferred", reason=f"p is below {bars.supported:g}, the bar of the lens"
            )
        p = min(entailment.p, max(bars.inferred, MAX_UNSUPPORTED) - THRESHOLD_GAP) * (
            CONTRADICTION_FACTOR if found.is_contradiction else 1.0
        )
        lowered = entailment._replace(
            support="contradicted" if found.is_contradiction else "unsupported",
            p=p,
            reason=found.reason,
            unsure=False,
        )
        self._lowered.add(lowered)
        return lowered


def _get_value(score: RelevanceScore) -> float:
    return score.value


def _get_probability(entailment: Entailment) -> float:
    return entailment.p
