"""The lexical judge: stems, their rarity, their order, and exact checks; no model, no network."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ragfault.judges.assembly import OFFERED_PARTS, assemble_verdicts
from ragfault.judges.checks.claims import strip_marks
from ragfault.judges.checks.lexicon import RarityTable, load_rarity
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.checks.queries import WeightedQuery, score_relevance, weigh_query
from ragfault.judges.lexical.entailment import EntailmentThresholds, judge_claim
from ragfault.judges.scorer import Entailment, EntailmentGroup, RelevanceScore
from ragfault.protocols import VerdictKind
from ragfault.records import Trace, Verdicts
from ragfault.text import STOP_WORDS, split_words

VERSION = 2


class LexicalSession:
    """A reading of one trace by its words."""

    def __init__(self, rarity: RarityTable, thresholds: EntailmentThresholds) -> None:
        self._rarity = rarity
        self._thresholds = thresholds
        self._queries: dict[str, WeightedQuery] = {}
        self._indexes: dict[tuple[Passage, ...], SentenceIndex] = {}

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """How much of the query each passage covers."""
        question = self.get_query(query)
        if question.is_task:
            return [RelevanceScore(1.0, "the query is about the passage itself")] * len(passages)
        return [score_relevance(question, self.get_index((passage,))) for passage in passages]

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """The same: words are all there is."""
        return self.score_relevance(query, passages)

    def prefetch(self, groups: Sequence[EntailmentGroup]) -> None:
        """Nothing: words are looked up as they are asked for."""

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """Where the passages say what each claim says."""
        index = self.get_index(tuple(passages))
        return [judge_claim(strip_marks(claim), index, self._rarity, self._thresholds) for claim in claims]

    def score_groundedness(
        self,
        answer: str,  # noqa: ARG002
        claims: Sequence[str],  # noqa: ARG002
        entailments: Sequence[Entailment],
    ) -> float:
        """As probable as its least probable claim; what claims nothing is grounded."""
        return min((one.p for one in entailments), default=1.0)

    def measure_similarity(self, left: str, right: str) -> float:
        """The cosine of the rare words and the letters of two texts."""
        one, two = self._build_vector(left), self._build_vector(right)
        norm = math.sqrt(sum([v * v for v in one.values()]) * sum([v * v for v in two.values()]))
        shared = sum([value * two[key] for key, value in one.items() if key in two])
        return min(1.0, shared / norm) if norm else 0.0

    def get_query(self, query: str) -> WeightedQuery:
        """A query made ready, once."""
        question = self._queries.get(query)
        if question is None:
            question = self._queries[query] = weigh_query(query, self._rarity)
        return question

    def get_index(self, passages: tuple[Passage, ...]) -> SentenceIndex:
        """The sentences of some passages, made once."""
        index = self._indexes.get(passages)
        if index is None:
            index = self._indexes[passages] = SentenceIndex(passages)
        return index

    def _build_vector(self, text: str) -> dict[str, float]:
        held = Counter(word for word in split_words(text) if word not in STOP_WORDS)
        vector = {word: math.sqrt(count) * self._rarity(word) for word, count in held.items()}
        run = f" {' '.join(held)} "[:20_000]
        for gram, count in Counter([run[at : at + 4] for at in range(len(run) - 3)]).items():
            vector[f"#{gram}"] = math.sqrt(count)
        return vector


class LexicalJudge:
    """The embedded judge that needs nothing but words.

    Its verdicts can be checked by hand: each rests on words that are there or not, and shows where.
    It knows no synonyms, so a free paraphrase may come out unsupported.

    >>> from ragfault.records import Chunk
    >>> chunks = (Chunk(id="a", text="Oslo was founded in 1040 by King Harald."),)
    >>> trace = Trace(id="1", query="When was Oslo founded?", chunks=chunks, answer="Oslo was founded in 1050.")
    >>> verdicts = LexicalJudge().observe([trace])[0]
    >>> verdicts.claim[0].support, verdicts.claim[0].reason
    ('contradicted', '1050 against 1040')
    """

    def __init__(self, *, supported: float = 0.7, inferred: float = 0.5) -> None:
        self._thresholds = EntailmentThresholds(supported, inferred)

    @property
    def offers(self) -> frozenset[VerdictKind]:
        """Everything but harm."""
        return OFFERED_PARTS

    @property
    def fingerprint(self) -> str:
        """Version, rarity table and thresholds, in one line."""
        bars = self._thresholds
        return f"lexical/{VERSION} rarity={load_rarity().digest} supported={bars.supported:g} inferred={bars.inferred:g}"

    def open_session(self, query: str = "") -> LexicalSession:  # noqa: ARG002
        """Begin the reading of one trace."""
        return LexicalSession(load_rarity(), self._thresholds)

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """The verdicts on each trace, each made from that trace alone."""
        return [assemble_verdicts(trace, self) for trace in traces]
