"""The embedded judge: words and word vectors, weighed by models fitted to human labels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files

from ragfault.judges.assembly import ScorerJudge
from ragfault.judges.checks.claims import strip_marks
from ragfault.judges.checks.lexicon import load_rarity
from ragfault.judges.checks.passages import Passage
from ragfault.judges.embedded.features import FEATURE_COLUMNS
from ragfault.judges.embedded.passage_arrays import PassageArrays
from ragfault.judges.embedded.relevance import score_passages
from ragfault.judges.embedded.support import WeighedClaims, load_support_model, weigh_claims
from ragfault.judges.embedded.vectors import load_vectors
from ragfault.judges.lexical.entailment import EntailmentThresholds, decide_support
from ragfault.judges.lexical.judge import LexicalSession
from ragfault.judges.scorer import Entailment, EntailmentGroup, RelevanceScore

VERSION = 1
UNSURE_RANGE = (1 / 3, 2 / 3)
"""Between these probabilities the judge is wrong more than one time in three, and marks the claim as unsure.
"""
MIN_COPY_OVERLAP = 0.5
"""From this Jaccard index on, one different word is a contradiction; below, only for a claim that is
improbable already.
"""
SHORT_TYPES = ("claim", "dialogue")
"""Types of text in which an answer is no more probable than its worst claim; in longer ones exact checks are
often wrong.
"""
FOREIGN_PROBABILITY, FOREIGN_REASON = 0.5, "written in another language than the chunks"


class EmbeddedSession:
    """The scores of one trace by its words and their vectors."""

    def __init__(self, query: str, thresholds: EntailmentThresholds) -> None:
        self._query, self._thresholds = query, thresholds
        self._lexical = LexicalSession(load_rarity(), thresholds)
        self._passages: dict[tuple[Passage, ...], PassageArrays] = {}
        self._weighed: dict[tuple[tuple[str, ...], tuple[Passage, ...]], WeighedClaims | None] = {}
        self._weighed_by_claims: dict[tuple[str, ...], WeighedClaims] = {}

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """Return the probability that each passage is relevant; one on another subject stays low."""
        question = self._lexical.get_query(query)
        if question.is_task:
            return [RelevanceScore(1.0, "the query is about the passage itself")] * len(passages)
        return score_passages(question, self._get_passages(tuple(passages)))

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """Return how much of a query each text covers, by its words."""
        return self._lexical.score_coverage(query, passages)

    def prefetch(self, requested: Sequence[EntailmentGroup]) -> None:
        """Weigh all groups at once."""
        groups_by_key = {}
        for key in ((tuple(claims), tuple(passages)) for claims, passages in requested):
            if key not in self._weighed:
                self._weighed[key] = None
                arrays = self._get_passages(key[1]) if all(key) else None
                if arrays and len(arrays.tokens):
                    groups_by_key[key] = [strip_marks(claim) for claim in key[0]], arrays
        if groups_by_key:
            self._weighed |= zip(
                groups_by_key, weigh_claims(list(groups_by_key.values()), self._query), strict=True
            )

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """Return the support of each claim by the passages, with evidence."""
        weighed = self.weigh_claims(claims, passages)
        if weighed is None:
            return [Entailment("unsupported", 0.0, shares=(0.0,) * len(passages)) for _ in claims]
        is_single = len(weighed.texts) == 1  # then what is said of the answer as a whole is better informed
        probabilities = (
            [load_support_model().predict_groundedness(weighed.answer_odds, weighed.text_type)]
            if is_single
            else load_support_model().predict_support(weighed.odds, weighed.text_type).tolist()
        )
        return [
            self.decide_claim(weighed, number, probability)
            for number, probability in enumerate(probabilities)
        ]

    def weigh_claims(self, claims: Sequence[str], passages: Sequence[Passage]) -> WeighedClaims | None:
        """Weigh claims against passages; None if there is nothing to compare."""
        key = tuple(claims), tuple(passages)
        if key not in self._weighed:
            self.prefetch([key])
        weighed = self._weighed[key]
        if weighed is not None:
            self._weighed_by_claims.setdefault(
                key[0], weighed
            )  # against all chunks first, later against single ones
        return weighed

    def score_groundedness(
        self,
        answer: str,  # noqa: ARG002
        claims: Sequence[str],
        entailments: Sequence[Entailment],
    ) -> float:
        """Return the probability that all claims are supported, 1 without claims."""
        weighed = self._weighed_by_claims.get(tuple(claims))
        if weighed is None:
            return get_lowest_probability(entailments)
        return self.bound_groundedness(
            load_support_model().predict_groundedness(weighed.answer_odds, weighed.text_type),
            weighed,
            entailments,
        )

    def bound_groundedness(
        self, probability: float, weighed: WeighedClaims, entailments: Sequence[Entailment]
    ) -> float:
        """Bound a probability that all claims are supported by the worst claim if the answer is short."""
        if any(entailment.reason == FOREIGN_REASON for entailment in entailments):
            return get_lowest_probability(entailments)
        is_bounded = (
            weighed.text_type in SHORT_TYPES
            and get_lowest_probability(entailments) < self._thresholds.inferred
        )
        return min(probability, get_lowest_probability(entailments)) if is_bounded else probability

    def measure_similarity(self, left: str, right: str) -> float:
        """Return the cosine of the rare words and letter 4-grams of two texts."""
        return self._lexical.measure_similarity(left, right)

    def _get_passages(self, passages: tuple[Passage, ...]) -> PassageArrays:
        arrays = self._passages.get(passages)
        if arrays is None:
            arrays = self._passages[passages] = PassageArrays(
                self._lexical.get_index(passages), load_vectors(), load_rarity()
            )
        return arrays

    def decide_claim(self, weighed: WeighedClaims, number: int, p: float) -> Entailment:
        """Return the verdict on one claim with this probability of support."""
        arrays, check, text = weighed.passages, weighed.checks[number], weighed.texts[number]
        if check is None:
            return Entailment("unsupported", 0.0, shares=(0.0,) * len(arrays.index.passages))
        if weighed.is_foreign[number]:
            shares = decide_support(text, check, arrays.index, FOREIGN_PROBABILITY, self._thresholds).shares
            return Entailment("unsupported", FOREIGN_PROBABILITY, (), FOREIGN_REASON, shares, unsure=True)
        if (
            check.contradiction
            and p >= self._thresholds.inferred
            and weighed.features[number, FEATURE_COLUMNS["joint"]] < MIN_COPY_OVERLAP
        ):
            check = check._replace(contradiction=None)
        entailment = decide_support(text, check, arrays.index, p, self._thresholds)
        return (
            entailment._replace(unsure=True)
            if UNSURE_RANGE[0] < entailment.p < UNSURE_RANGE[1]
            else entailment
        )


def get_lowest_probability(entailments: Sequence[Entailment]) -> float:
    """Return the lowest probability of a claim, 1 without claims."""
    return min((entailment.p for entailment in entailments), default=1.0)


class EmbeddedJudge(ScorerJudge):
    """The default judge: trained on human labels, run in numpy, with the same results on every machine.

    >>> from ragfault.records import Chunk, Trace
    >>> chunks = (Chunk(id="a", text="The clinic has four physicians and one nurse. It opens at eight."),)
    >>> trace = Trace(id="1", query="Who is there?", chunks=chunks, answer="The clinic has four doctors and one nurse.")
    >>> verdict = EmbeddedJudge().observe([trace])[0].claim[0]
    >>> verdict.support, verdict.p > 0.7
    ('supported', True)
    """

    def __init__(self, *, supported: float = 0.7, inferred: float = 0.5) -> None:
        self._thresholds = EntailmentThresholds(supported, inferred)

    @property
    def fingerprint(self) -> str:
        """Version, weights and thresholds, in one line."""
        thresholds = self._thresholds
        return f"embedded/{VERSION} weights={digest_weights()} {thresholds}"

    def open_session(self, query: str = "") -> EmbeddedSession:
        """Open a session for one trace."""
        return EmbeddedSession(query, self._thresholds)


@cache
def digest_weights() -> str:
    """Return the digest of all weights and the rarity table."""
    digest = sha256(load_rarity().digest.encode())
    for name in ("vectors.npz", "support.npz", "relevance.npz"):
        digest.update(files(__package__).joinpath(name).read_bytes())
    return digest.hexdigest()[:8]
