"""The lexical judge: stems, their rarity, their order, and exact checks; no model, no network."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ragfault.judges.assembly import ScorerJudge
from ragfault.judges.checks.claims import strip_marks
from ragfault.judges.checks.lexicon import RarityTable, load_rarity
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.checks.queries import WeightedQuery, score_relevance
from ragfault.judges.lexical.entailment import EntailmentThresholds, judge_claim
from ragfault.judges.scorer import Entailment, EntailmentGroup, RelevanceScore
from ragfault.text import STOP_WORDS, split_words

VERSION = 2


class LexicalSession:
    """The scores of one trace by its words."""

    def __init__(self, rarity: RarityTable, thresholds: EntailmentThresholds) -> None:
        self._rarity = rarity
        self._thresholds = thresholds
        self._queries: dict[str, WeightedQuery] = {}
        self._indexes: dict[tuple[Passage, ...], SentenceIndex] = {}

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """Return how much of the query each passage covers."""
        question = self.get_query(query)
        if question.is_task:
            return [RelevanceScore(1.0, "the query is about the passage itself")] * len(passages)
        return [score_relevance(question, self.get_index((passage,))) for passage in passages]

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """Return the relevance, which is coverage here."""
        return self.score_relevance(query, passages)

    def prefetch(self, groups: Sequence[EntailmentGroup]) -> None:
        """Do nothing: words are looked up when needed."""

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """Return the support of each claim by the words of the passages."""
        index = self.get_index(tuple(passages))
        return [judge_claim(strip_marks(claim), index, self._rarity, self._thresholds) for claim in claims]

    def score_groundedness(
        self,
        answer: str,  # noqa: ARG002
        claims: Sequence[str],  # noqa: ARG002
        entailments: Sequence[Entailment],
    ) -> float:
        """Return the lowest probability of a claim, 1 without claims."""
        return min((entailment.p for entailment in entailments), default=1.0)

    def measure_similarity(self, left: str, right: str) -> float:
        """Return the cosine of the rare words and letter 4-grams of two texts."""
        first, second = self._build_vector(left), self._build_vector(right)
        norm = math.sqrt(
            sum([value * value for value in first.values()])
            * sum([value * value for value in second.values()])
        )
        shared = sum([value * second[key] for key, value in first.items() if key in second])
        return min(1.0, shared / norm) if norm else 0.0

    def get_query(self, query: str) -> WeightedQuery:
        """Return the weighted query, from the cache if possible."""
        question = self._queries.get(query)
        if question is None:
            question = self._queries[query] = WeightedQuery(query, self._rarity)
        return question

    def get_index(self, passages: tuple[Passage, ...]) -> SentenceIndex:
        """Return the index of some passages, from the cache if possible."""
        index = self._indexes.get(passages)
        if index is None:
            index = self._indexes[passages] = SentenceIndex(passages)
        return index

    def _build_vector(self, text: str) -> dict[str, float]:
        counts = Counter(word for word in split_words(text) if word not in STOP_WORDS)
        vector = {word: math.sqrt(count) * self._rarity(word) for word, count in counts.items()}
        letters = f" {' '.join(counts)} "[:20_000]
        for gram, count in Counter([letters[start : start + 4] for start in range(len(letters) - 3)]).items():
            vector[f"#{gram}"] = math.sqrt(count)
        return vector


class LexicalJudge(ScorerJudge):
    """A judge that needs nothing but words.

    Each verdict rests on words that are present or not, and can be checked by hand. It knows no synonyms, so
    a free paraphrase may come out unsupported.

    >>> from ragfault.records import Chunk, Trace
    >>> chunks = (Chunk(id="a", text="Oslo was founded in 1040 by King Harald."),)
    >>> trace = Trace(id="1", query="When was Oslo founded?", chunks=chunks, answer="Oslo was founded in 1050.")
    >>> verdicts = LexicalJudge().observe([trace])[0]
    >>> verdicts.claim[0].support, verdicts.claim[0].reason
    ('contradicted', '1050 against 1040')
    """

    def __init__(self, *, supported: float = 0.7, inferred: float = 0.5) -> None:
        self._thresholds = EntailmentThresholds(supported, inferred)

    @property
    def fingerprint(self) -> str:
        """Version, rarity table and thresholds, in one line."""
        thresholds = self._thresholds
        return f"lexical/{VERSION} rarity={load_rarity().digest} {thresholds}"

    def open_session(self, query: str = "") -> LexicalSession:  # noqa: ARG002
        """Open a session for one trace."""
        return LexicalSession(load_rarity(), self._thresholds)
