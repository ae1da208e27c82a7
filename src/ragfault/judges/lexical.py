"""The lexical judge: words, their rarity, their order, and exact checks; no model, no network."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ragfault.judges.assemble import OFFERS, assemble
from ragfault.judges.claims import bare
from ragfault.judges.entailment import Bars, entail
from ragfault.judges.index import Index, Passage
from ragfault.judges.rarity import Rarity, rarity
from ragfault.judges.relevance import Question, ask, relevance
from ragfault.judges.scorer import Entailment, Group, Relevance
from ragfault.ports import Part
from ragfault.records import Trace, Verdicts
from ragfault.text import STOP, words

__all__ = ["Lexical"]

VERSION = 2


class Words:
    """A reading of one trace by its words."""

    def __init__(self, rarity: Rarity, bars: Bars) -> None:
        self._rarity = rarity
        self._bars = bars
        self._questions: dict[str, Question] = {}
        self._indexes: dict[tuple[Passage, ...], Index] = {}

    def relevance(self, query: str, passages: Sequence[Passage]) -> list[Relevance]:
        """How much of the query each passage covers."""
        question = self.question(query)
        if question.task:
            return [Relevance(1.0, "the query is about the passage itself")] * len(passages)
        return [relevance(question, self.index((passage,))) for passage in passages]

    def coverage(self, query: str, passages: Sequence[Passage]) -> list[Relevance]:
        """The same: words are all there is."""
        return self.relevance(query, passages)

    def expect(self, groups: Sequence[Group]) -> None:
        """Nothing: words are looked up as they are asked for."""

    def entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """Where the passages say what each claim says."""
        index = self.index(tuple(passages))
        return [entail(bare(claim), index, self._rarity, self._bars) for claim in claims]

    def grounded(self, answer: str, claims: Sequence[str], seen: Sequence[Entailment]) -> float:  # noqa: ARG002
        """As probable as its least probable claim; what claims nothing is grounded."""
        return min((one.p for one in seen), default=1.0)

    def similarity(self, left: str, right: str) -> float:
        """The cosine of the rare words and the letters of two texts."""
        one, two = self._vector(left), self._vector(right)
        norm = math.sqrt(sum([v * v for v in one.values()]) * sum([v * v for v in two.values()]))
        shared = sum([value * two[key] for key, value in one.items() if key in two])
        return min(1.0, shared / norm) if norm else 0.0

    def question(self, query: str) -> Question:
        """A query made ready, once."""
        question = self._questions.get(query)
        if question is None:
            question = self._questions[query] = ask(query, self._rarity)
        return question

    def index(self, passages: tuple[Passage, ...]) -> Index:
        """The sentences of some passages, made once."""
        index = self._indexes.get(passages)
        if index is None:
            index = self._indexes[passages] = Index(passages)
        return index

    def _vector(self, text: str) -> dict[str, float]:
        held = Counter(word for word in words(text) if word not in STOP)
        vector = {word: math.sqrt(count) * self._rarity(word) for word, count in held.items()}
        run = f" {' '.join(held)} "[:20_000]
        for gram, count in Counter([run[at : at + 4] for at in range(len(run) - 3)]).items():
            vector[f"#{gram}"] = math.sqrt(count)
        return vector


class Lexical:
    """The embedded judge that needs nothing but words.

    Its verdicts can be checked by hand: each rests on words that are there or not, and shows where.
    It knows no synonyms, so a free paraphrase may come out unsupported.

    >>> from ragfault.records import Chunk
    >>> chunks = (Chunk(id="a", text="Oslo was founded in 1040 by King Harald."),)
    >>> trace = Trace(id="1", query="When was Oslo founded?", chunks=chunks, answer="Oslo was founded in 1050.")
    >>> verdicts = Lexical().observe([trace])[0]
    >>> verdicts.claim[0].support, verdicts.claim[0].reason
    ('contradicted', '1050 against 1040')
    """

    def __init__(self, *, supported: float = 0.7, inferred: float = 0.5) -> None:
        self._bars = Bars(supported, inferred)

    @property
    def offers(self) -> frozenset[Part]:
        """Everything but harm."""
        return OFFERS

    @property
    def fingerprint(self) -> str:
        """Version, rarity table and thresholds, in one line."""
        bars = self._bars
        return f"lexical/{VERSION} rarity={rarity().digest} supported={bars.supported:g} inferred={bars.inferred:g}"

    def read(self, query: str = "") -> Words:  # noqa: ARG002
        """Begin the reading of one trace."""
        return Words(rarity(), self._bars)

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """The verdicts on each trace, each made from that trace alone."""
        return [assemble(trace, self) for trace in traces]
