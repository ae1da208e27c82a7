"""The embedded judge: words and what they mean, weighed by what people said of many answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files

from ragfault.judges.assemble import OFFERS, assemble
from ragfault.judges.claims import bare
from ragfault.judges.embedded.asking import relevant
from ragfault.judges.embedded.features import PLACE
from ragfault.judges.embedded.ground import Ground
from ragfault.judges.embedded.supporting import model
from ragfault.judges.embedded.vectors import vectors
from ragfault.judges.embedded.weighing import Weighed, weigh
from ragfault.judges.entailment import Bars, verdict
from ragfault.judges.lexical import Words
from ragfault.judges.rarity import rarity
from ragfault.judges.scorer import Entailment, Group, Passage, Relevance
from ragfault.ports import Part
from ragfault.records import Trace, Verdicts

__all__ = ["UNSURE", "Embedded", "Meanings", "digest", "least"]

VERSION = 1
UNSURE = (1 / 3, 2 / 3)
"""Between these probabilities the judge is wrong more than one time in three, and says that it is unsure."""
COPY = 0.5
"""Where claim and sentence share so much of all that they say, one word that differs is the point; where less, it
contradicts only a claim that is improbable already."""
SHORT = ("claim", "dialogue")
"""Shapes in which an answer is no more probable than its worst claim; in longer ones exact checks are often wrong."""
UNKNOWN, FOREIGN = 0.5, "written in another language than the chunks"


class Meanings:
    """A reading of one trace by its words and what they mean."""

    def __init__(self, query: str, bars: Bars) -> None:
        self._query, self._bars = query, bars
        self._words = Words(rarity(), bars)
        self._grounds: dict[tuple[Passage, ...], Ground] = {}
        self._weighed: dict[tuple[tuple[str, ...], tuple[Passage, ...]], Weighed | None] = {}
        self._seen: dict[tuple[str, ...], Weighed] = {}

    def relevance(self, query: str, passages: Sequence[Passage]) -> list[Relevance]:
        """How probably each passage is relevant; what is about something else stays low."""
        question = self._words.question(query)
        if question.task:
            return [Relevance(1.0, "the query is about the passage itself")] * len(passages)
        return relevant(question, self._ground(tuple(passages)))

    def coverage(self, query: str, passages: Sequence[Passage]) -> list[Relevance]:
        """How much of a query each text takes up, by its words."""
        return self._words.coverage(query, passages)

    def expect(self, groups: Sequence[Group]) -> None:
        """Weigh all that will be asked at once."""
        asked = {}
        for key in ((tuple(claims), tuple(passages)) for claims, passages in groups):
            if key not in self._weighed:
                self._weighed[key] = None
                ground = self._ground(key[1]) if all(key) else None
                if ground and len(ground.tokens):
                    asked[key] = [bare(claim) for claim in key[0]], ground
        if asked:
            self._weighed |= zip(asked, weigh(list(asked.values()), self._query), strict=True)

    def entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """How probably the passages support each claim, and where."""
        weighed = self.weigh(claims, passages)
        if weighed is None:
            return [Entailment("unsupported", 0.0, share=(0.0,) * len(passages)) for _ in claims]
        alone = len(weighed.texts) == 1  # then what is said of the answer as a whole is better informed
        p = (
            [model().grounded(weighed.whole, weighed.shape)]
            if alone
            else model().support(weighed.odds, weighed.shape).tolist()
        )
        return [self.word(weighed, number, one) for number, one in enumerate(p)]

    def weigh(self, claims: Sequence[str], passages: Sequence[Passage]) -> Weighed | None:
        """What the passages say for and against claims; None where there is nothing to compare."""
        key = tuple(claims), tuple(passages)
        if key not in self._weighed:
            self.expect([key])
        weighed = self._weighed[key]
        if weighed is not None:
            self._seen.setdefault(key[0], weighed)  # against all chunks first, later against single ones
        return weighed

    def grounded(self, answer: str, claims: Sequence[str], seen: Sequence[Entailment]) -> float:  # noqa: ARG002
        """The probability that all claims are supported; what claims nothing is grounded."""
        weighed = self._seen.get(tuple(claims))
        if weighed is None:
            return least(seen)
        return self.bounded(model().grounded(weighed.whole, weighed.shape), weighed, seen)

    def bounded(self, sure: float, weighed: Weighed, seen: Sequence[Entailment]) -> float:
        """A probability that all claims are supported, bounded by the worst claim where the answer is short."""
        if any(one.reason == FOREIGN for one in seen):
            return least(seen)
        short = weighed.shape in SHORT and least(seen) < self._bars.inferred
        return min(sure, least(seen)) if short else sure

    def similarity(self, left: str, right: str) -> float:
        """The cosine of the rare words and the letters of two texts."""
        return self._words.similarity(left, right)

    def _ground(self, passages: tuple[Passage, ...]) -> Ground:
        ground = self._grounds.get(passages)
        if ground is None:
            ground = self._grounds[passages] = Ground(self._words.index(passages), vectors(), rarity())
        return ground

    def word(self, weighed: Weighed, number: int, p: float) -> Entailment:
        """The verdict on one claim that is supported with this probability."""
        ground, check, text = weighed.ground, weighed.checks[number], weighed.texts[number]
        if check is None:
            return Entailment("unsupported", 0.0, share=(0.0,) * len(ground.index.passages))
        if weighed.strange[number]:
            shares = verdict(text, check, ground.index, UNKNOWN, self._bars).share
            return Entailment("unsupported", UNKNOWN, (), FOREIGN, shares, unsure=True)
        if check.against and p >= self._bars.inferred and weighed.features[number, PLACE["joint"]] < COPY:
            check = check._replace(against=None)
        found = verdict(text, check, ground.index, p, self._bars)
        return found._replace(unsure=True) if UNSURE[0] < found.p < UNSURE[1] else found


def least(seen: Sequence[Entailment]) -> float:
    """The probability of the least probable claim; 1 where nothing is claimed."""
    return min((one.p for one in seen), default=1.0)


class Embedded:
    """The judge that comes with the package: trained on what people marked, run in numpy, the same everywhere.

    >>> from ragfault.records import Chunk
    >>> chunks = (Chunk(id="a", text="The clinic has four physicians and one nurse. It opens at eight."),)
    >>> trace = Trace(id="1", query="Who is there?", chunks=chunks, answer="The clinic has four doctors and one nurse.")
    >>> verdict = Embedded().observe([trace])[0].claim[0]
    >>> verdict.support, verdict.p > 0.7
    ('supported', True)
    """

    def __init__(self, *, supported: float = 0.7, inferred: float = 0.5) -> None:
        self._bars = Bars(supported, inferred)

    @property
    def offers(self) -> frozenset[Part]:
        """Everything but harm."""
        return OFFERS

    @property
    def fingerprint(self) -> str:
        """Version, weights and thresholds, in one line."""
        bars = self._bars
        return (
            f"embedded/{VERSION} weights={digest()} supported={bars.supported:g} inferred={bars.inferred:g}"
        )

    def read(self, query: str = "") -> Meanings:
        """Begin the reading of one trace."""
        return Meanings(query, self._bars)

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """The verdicts on each trace, each made from that trace alone."""
        return [assemble(trace, self) for trace in traces]


@cache
def digest() -> str:
    """Names all weights, and the table of rarity."""
    whole = sha256(rarity().digest.encode())
    for name in ("vectors.npz", "support.npz", "relevance.npz"):
        whole.update(files(__package__).joinpath(name).read_bytes())
    return whole.hexdigest()[:8]
