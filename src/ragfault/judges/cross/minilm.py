"""The judge minilm: a small language model, trained on what people marked, that runs on one processor."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ragfault.errors import MissingExtra, UsageError
from ragfault.judges.assemble import OFFERS, assemble
from ragfault.judges.cross import calibration
from ragfault.judges.cross.calibration import Logits, doubtful, sides, stack
from ragfault.judges.cross.encoder import alone, embedder, encoder, tokenizer
from ragfault.judges.cross.encoding import CLAIM, EVIDENCE, PASSAGE, QUERY, Pair, pair, pieces
from ragfault.judges.cross.evidence import evidence, said
from ragfault.judges.cross.weights import base, delta, where
from ragfault.judges.embedded.meaning import Meanings, digest, least
from ragfault.judges.embedded.vectors import Array
from ragfault.judges.embedded.weighing import Weighed
from ragfault.judges.entailment import Bars
from ragfault.judges.features import state
from ragfault.judges.index import Index, Passage
from ragfault.judges.rarity import rarity
from ragfault.judges.relevance import Question, ask, elsewhere
from ragfault.judges.scorer import Entailment, Group, Relevance
from ragfault.ports import Part
from ragfault.records import Trace, Verdicts

__all__ = ["MiniLM", "Pairs"]

VERSION = 1
STRETCHES = 2
"""Of a long passage so many stretches are read with the query, those that share most with it."""
DIGITS = 4
"""Probabilities are rounded to so many, so that processors that add in another order agree."""


class Pairs:
    """A reading of one trace by a model that sees two texts together, beside the reading of the embedded judge."""

    def __init__(self, folder: Path, bars: Bars, threads: int, query: str) -> None:
        self._model = encoder(folder, threads)
        self._split = tokenizer(folder)
        self._folder, self._bars, self._threads = folder, bars, threads
        self._rarity = rarity()
        self.words = Meanings(query, bars)
        self._seen: dict[tuple[int, ...], Logits] = {}
        self._odds: dict[tuple[str, ...], tuple[Weighed, Array]] = {}
        self._indexes: dict[tuple[Passage, ...], Index] = {}
        self._meanings: dict[str, Array] = {}

    def relevance(self, query: str, passages: Sequence[Passage]) -> list[Relevance]:
        """How much each passage speaks to the query, in its best stretch and in its meaning."""
        question = ask(query, self._rarity)
        plain = self.words.relevance(query, passages)
        if question.task or not question.total:
            return plain
        self._run([row for passage in passages for row in self._asked(question, passage)])
        found = []
        for passage, one in zip(passages, plain, strict=True):
            if not passage.text.strip():
                found.append(one)
                continue
            logit = self.logit(query, passage)
            value = round(stack().relevant(logit, self.similarity(query, passage.text)), DIGITS)
            found.append(self._told(question, passage, value, one))
        return found

    def coverage(self, query: str, passages: Sequence[Passage]) -> list[Relevance]:
        """How much of a query each text takes up, by its words."""
        return self.words.coverage(query, passages)

    def expect(self, groups: Sequence[Group]) -> None:
        """Let the words of all that will be asked be looked at together."""
        self.words.expect(groups)

    def entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """How the best sentences of the passages, read with each claim, stand to it."""
        looked = self.look(claims, passages)
        if looked is None:
            return self.words.entailment(claims, passages)
        weighed, logits, rows = looked
        odds = stack().odds(
            np.array([sides(*both) for both in zip(weighed.odds.tolist(), logits, strict=True)])
        )
        self._odds.setdefault(tuple(claims), (weighed, odds))
        if len(odds) == 1:  # then what is said of the answer as a whole is better informed
            p = [round(stack().grounded(weighed.whole, odds, weighed.shape), DIGITS)]
        else:
            p = stack().support(odds, weighed.shape).round(DIGITS).tolist()
        return [
            self._word(weighed, number, p[number], row, one)
            for number, (row, one) in enumerate(zip(rows, logits, strict=True))
        ]

    def look(
        self, claims: Sequence[str], passages: Sequence[Passage]
    ) -> tuple[Weighed, list[Logits], list[Pair]] | None:
        """What words and model say of each claim, and the row that the model read."""
        weighed = self.words.weigh(claims, passages)
        if weighed is None:
            return None
        index = weighed.ground.index
        rows = [self._row(text, index) for text in weighed.texts]
        seen = self._run(rows)
        return weighed, [seen[row.ids] for row in rows], rows

    def grounded(self, answer: str, claims: Sequence[str], seen: Sequence[Entailment]) -> float:  # noqa: ARG002
        """The probability that all claims are supported; what claims nothing is grounded."""
        known = self._odds.get(tuple(claims))
        if known is None:
            return least(seen)
        weighed, odds = known
        return self.words.bounded(
            round(stack().grounded(weighed.whole, odds, weighed.shape), DIGITS), weighed, seen
        )

    def similarity(self, left: str, right: str) -> float:
        """The cosine of the meanings of two texts, as the model was published."""
        one, two = self._meaning(left), self._meaning(right)
        norm = float(np.linalg.norm(one) * np.linalg.norm(two))
        return round(min(1.0, max(0.0, float(one @ two) / norm)), DIGITS) if norm else 0.0

    def _word(self, weighed: Weighed, number: int, p: float, row: Pair, logits: Logits) -> Entailment:
        """The word for a claim, and where nothing exact speaks against it, which words are doubtful."""
        found, check = self.words.word(weighed, number, p), weighed.checks[number]
        if found.support != "unsupported" or found.unsure or check is None or check.opposed or check.nowhere:
            return found
        claim = weighed.texts[number]
        stretch = doubtful(claim, row.spans, logits.tokens)
        if stretch is None or len(stretch) > 0.8 * len(claim):
            return found
        return found._replace(reason=f"the chunks do not say “{stretch}”")

    def logit(self, query: str, passage: Passage) -> float:
        """What the model says of a passage and a query, in its best stretch."""
        rows = self._asked(ask(query, self._rarity), passage)
        seen = self._run(rows)
        return max((seen[row.ids].relevant for row in rows), default=0.0)

    def _asked(self, question: Question, passage: Passage) -> list[Pair]:
        """The rows in which a passage is read with a query."""
        stretches = self._stretches(question, self._index((passage,))) if passage.text.strip() else []
        return [pair(self._split, question.text, [text], QUERY, PASSAGE) for text in stretches]

    def _told(self, question: Question, passage: Passage, value: float, plain: Relevance) -> Relevance:
        """The exact checks on top of what the model says."""
        strange = elsewhere(question, passage.text)
        if strange:
            return Relevance(min(value * 0.4, 0.2), strange, other=True)
        return Relevance(value, plain.reason if value < 0.5 else None)

    def _row(self, claim: str, index: Index) -> Pair:
        texts = [said(index, place) for place in evidence(state(claim, self._rarity), index)]
        return pair(self._split, claim, texts, CLAIM, EVIDENCE)

    def _stretches(self, question: Question, index: Index) -> list[str]:
        """The stretches of a passage that share most with a query, in order."""
        texts = (said(index, place, None) for place in range(len(index.sentences)))
        found = pieces(self._split, texts, PASSAGE - 1)
        if len(found) <= STRETCHES:
            return found
        shared = [Index([Passage("", text)]).postings.keys() & question.weights.keys() for text in found]
        worth = [sum(question.weights[word] for word in sorted(words)) for words in shared]
        best = sorted(range(len(found)), key=lambda place: (-worth[place], place))[:STRETCHES]
        return [found[place] for place in sorted(best)]

    def _run(self, rows: Sequence[Pair]) -> dict[tuple[int, ...], Logits]:
        """What the model says of some rows; none is run twice in a reading."""
        fresh = list({row.ids: row for row in rows if row.ids not in self._seen}.values())
        self._seen |= {row.ids: one for row, one in zip(fresh, self._model.run(fresh), strict=True)}
        return self._seen

    def _meaning(self, text: str) -> Array:
        if text not in self._meanings:
            rows = alone(self._split, text)
            each = embedder(self._folder, self._threads).embed(rows)
            self._meanings[text] = np.asarray(
                np.array([row.first for row in rows], np.float32) @ each, np.float32
            )
        return self._meanings[text]

    def _index(self, passages: tuple[Passage, ...]) -> Index:
        if passages not in self._indexes:
            self._indexes[passages] = Index(passages)
        return self._indexes[passages]


class MiniLM:
    """The embedded judge that knows meanings: MiniLM-L6, trained to read a claim with its evidence.

    It needs the extra `nli` and the published weights, no key and no network. Exact checks of numbers, names,
    negations and fields stand over what it says. `threads` is for one process; `weights` is a folder with the
    published weights, where they are not installed.
    Raises MissingExtra where packages or weights are not there, UsageError where they are others.
    """

    def __init__(
        self,
        *,
        supported: float = 0.7,
        inferred: float = 0.5,
        threads: int = 1,
        weights: str | None = None,
    ) -> None:
        if any(find_spec(package) is None for package in ("onnxruntime", "tokenizers")):
            raise MissingExtra("the judge minilm", "nli")
        if threads < 1:
            raise UsageError(f"threads is at least 1, got {threads}.")
        self._bars, self._threads = Bars(supported, inferred), threads
        self._folder = Path(weights).expanduser().absolute() if weights else where()
        for name in ("model.safetensors", "tokenizer.json"):
            if not (self._folder / name).is_file():
                raise UsageError(f"{self._folder} holds no {name}.")
        base(self._folder, delta().base)

    @property
    def offers(self) -> frozenset[Part]:
        """Everything but harm."""
        return OFFERS

    @property
    def fingerprint(self) -> str:
        """Version, weights, rarity table and thresholds, in one line."""
        bars = self._bars
        return (
            f"minilm/{VERSION} weights={delta().digest} words={digest()} stack={calibration.digest()} "
            f"supported={bars.supported:g} inferred={bars.inferred:g}"
        )

    def read(self, query: str = "") -> Pairs:
        """Begin the reading of one trace."""
        return Pairs(self._folder, self._bars, self._threads, query)

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """The verdicts on each trace, each made from that trace alone."""
        return [assemble(trace, self) for trace in traces]
