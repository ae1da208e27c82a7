"""A judge with a domain profile: verdicts lowered where identifiers or thresholds disagree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from ragfault.judges.assembly import SUPPORTING_LABELS, ScorerJudge
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
from ragfault.judges.scorer import Entailment, RelevanceScore, Scorer, ScorerSession
from ragfault.judges.wrapping import WrappedSession
from ragfault.model.records import ClaimSupport

OTHER_SUBJECT_FACTOR, LEVEL_GAP = 0.4, 0.05
"""A passage on another subject keeps this share of its relevance, and stays this far below the lowest level."""
MAX_UNSUPPORTED, THRESHOLD_GAP = 0.5, 0.01
"""An unsupported claim has a probability below this, and this far below the threshold of the profile."""
CONTRADICTION_FACTOR = 0.5
"""Factor on the probability of a contradicted claim, relative to an unconfirmed one."""


class ProfiledJudge(ScorerJudge):
    """A scorer with a domain profile.

    Scores are lowered where identifiers disagree, not where only their spelling differs.

    Identifiers reach the scorer in the spelling of the passages; beyond that a profile never raises a score.

    >>> from ragfault.judges.loading import load_judge
    >>> from ragfault.judges.domain.profile import load_profile
    >>> from ragfault.model.records import Chunk, Trace
    >>> judge = ProfiledJudge(load_judge("lexical"), load_profile("medical"))
    >>> chunk = Chunk(id="a", text="The starting dose of digoxin is 125 mcg once daily.")
    >>> trace = Trace(id="1", query="What is the dose of digoxin?", chunks=(chunk,), answer="It is 125 mg once daily.")
    >>> judge.observe([trace])[0].claim[0].support
    'contradicted'
    """

    def __init__(self, scorer: Scorer, profile: DomainProfile) -> None:
        self.scorer, self.profile, self.levels = scorer, profile, profile.levels

    @property
    def fingerprint(self) -> str:
        return f"{self.scorer.fingerprint} lens={self.profile.name}:{self.profile.digest}"

    def open_session(self, query: str = "", history: Sequence[str] = ()) -> ProfiledSession:
        return ProfiledSession(self.scorer.open_session(query, history), self.profile, query)


class ProfiledSession(WrappedSession):
    """The scores of one trace with a domain profile."""

    def __init__(self, session: ScorerSession, profile: DomainProfile, query: str = "") -> None:
        super().__init__(session)
        self._profile, self._query = profile, query
        self._lowered: set[Entailment] = set()

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """Return the scorer's relevance, lowered for passages about something else than the query asks for."""
        return self._adjust_relevance(self._session.score_relevance, query, passages)

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        return self._adjust_relevance(self._session.score_coverage, query, passages)

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """Return the scorer's entailment, lowered for claims with another identifier than the passages."""
        texts = [passage.text for passage in passages]
        entailments = list(self._session.score_entailment(claims, passages))
        aligned = {position: align_spelling(self._profile, claim, texts) for position, claim in enumerate(claims)}
        changed = [position for position, claim in enumerate(claims) if aligned[position] != claim]
        rescored = (
            self._session.score_entailment([aligned[position] for position in changed], passages) if changed else ()
        )
        for position, entailment in zip(changed, rescored, strict=True):
            entailments[position] = max(entailments[position], entailment, key=attrgetter("p"))
        return [
            self._check_identifiers(claim, texts, entailment)
            for claim, entailment in zip(claims, entailments, strict=True)
        ]

    def score_groundedness(self, answer: str, claims: Sequence[str], entailments: Sequence[Entailment]) -> float:
        """Return the scorer's groundedness, at most the probability of a claim that the profile lowered."""
        groundedness = self._session.score_groundedness(answer, claims, entailments)
        return min([groundedness, *(entailment.p for entailment in entailments if entailment in self._lowered)])

    def _adjust_relevance(
        self,
        score: Callable[[str, Sequence[Passage]], Sequence[RelevanceScore]],
        query: str,
        passages: Sequence[Passage],
    ) -> list[RelevanceScore]:
        """Score each passage, with the query in its spelling too, and check its identifiers."""
        scores = list(score(query, passages))
        if TASK_QUERY.match(query):
            return scores
        for position, passage in enumerate(passages):
            aligned = align_spelling(self._profile, query, [passage.text])
            if aligned != query:
                scores[position] = max(scores[position], score(aligned, [passage])[0], key=attrgetter("value"))
        return [
            self._check_subject(query, passage, passage_score)
            for passage, passage_score in zip(passages, scores, strict=True)
        ]

    def _check_subject(self, query: str, passage: Passage, score: RelevanceScore) -> RelevanceScore:
        reason = explain_query_conflict(self._profile, query, passage.text)
        if reason is None:
            return score
        low = self._profile.levels.low
        value = score.value if score.value < low else max(0.0, min(OTHER_SUBJECT_FACTOR * score.value, low - LEVEL_GAP))
        return RelevanceScore(value, reason, is_other_subject=True)

    def _check_identifiers(self, claim: str, texts: Sequence[str], entailment: Entailment) -> Entailment:
        if entailment.support not in SUPPORTING_LABELS:
            return entailment
        thresholds = self._profile.support
        conflict = detect_conflict(self._profile, strip_marks(claim), texts, self._query)
        if conflict is None and entailment.p < thresholds.inferred:
            conflict = IdentifierConflict(
                f"p = {entailment.p:.2f} is below {thresholds.inferred:g}, the threshold of the domain profile",
                is_contradiction=False,
            )
        if conflict is None:
            if entailment.support == "inferred" or entailment.p >= thresholds.supported:
                return entailment
            return entailment._replace(
                support="inferred", reason=f"p is below {thresholds.supported:g}, the threshold of the domain profile"
            )
        p = min(entailment.p, max(thresholds.inferred, MAX_UNSUPPORTED) - THRESHOLD_GAP) * (
            CONTRADICTION_FACTOR if conflict.is_contradiction else 1.0
        )
        support: ClaimSupport = "contradicted" if conflict.is_contradiction else "unsupported"
        lowered = entailment._replace(support=support, p=p, reason=conflict.reason, unsure=False)
        self._lowered.add(lowered)
        return lowered
