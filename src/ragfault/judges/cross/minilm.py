"""The judge minilm: a small language model, trained on what people marked, that runs on one processor."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ragfault.errors import MissingExtra, UsageError
from ragfault.judges.assemble import OFFERS, assemble
from ragfault.judges.claims import bare
from ragfault.judges.cross.calibration import Logits, doubtful, probability, relevant
from ragfault.judges.cross.encoder import alone, embedder, encoder, tokenizer
from ragfault.judges.cross.encoding import CLAIM, EVIDENCE, PASSAGE, QUERY, Pair, pair, pieces
from ragfault.judges.cross.evidence import evidence, said
from ragfault.judges.cross.weights import delta, where
from ragfault.judges.entailment import Bars, Check, check, verdict
from ragfault.judges.index import Index, Passage
from ragfault.judges.rarity import rarity
from ragfault.judges.relevance import Question, ask, elsewhere, relevance
from ragfault.judges.scorer import Entailment, Relevance
from ragfault.ports import Part
from ragfault.records import Trace, Verdicts

__all__ = ["MiniLM", "Pairs"]

VERSION = 1
STRETCHES = 2
"""Of a long passage so many stretches are read with the query, those that share most with it."""
DIGITS = 4
"""Probabilities are rounded to so many, so that processors that add in another order agree."""


class Pairs:
    """A reading of one trace by a model that sees two texts together."""

    def __init__(self, folder: Path, bars: Bars, threads: int) -> None:
        self._model = encoder(folder, threads)
        self._split = tokenizer(folder)
        self._folder, self._bars, self._threads = folder, bars, threads
        self._rarity = rarity()
        self._seen: dict[tuple[int, ...], Logits] = {}
        self._indexes: dict[tuple[Passage, ...], Index] = {}

    def relevance(self, query: str, passages: Sequence[Passage]) -> list[Relevance]:
        """How much each passage speaks to the query, in its best stretch."""
        question = ask(query, self._rarity)
        rows: list[list[Pair]] = []
        for passage in passages:
            blank = question.task or not question.total or not passage.text.strip()
            stretches = [] if blank else self._stretches(question, self._index((passage,)))
            rows.append([pair(self._split, query, [text], QUERY, PASSAGE) for text in stretches])
        seen = self._run([row for each in rows for row in each])
        found = []
        for passage, each in zip(passages, rows, strict=True):
            plain = relevance(question, self._index((passage,)))
            value = max((relevant(seen[row.ids]) for row in each), default=plain.value)
            found.append(self._told(question, passage, round(value, DIGITS), plain))
        return found

    def coverage(self, query: str, passages: Sequence[Passage]) -> list[Relevance]:
        """How much of a query each text takes up, by its words."""
        question = ask(query, self._rarity)
        return [relevance(question, self._index((passage,))) for passage in passages]

    def entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """How the best sentences of the passages, read with each claim, stand to it."""
        index = self._index(tuple(passages))
        plain = [bare(claim) for claim in claims]
        checks = [check(claim, index, self._rarity) for claim in plain]
        rows = {
            claim: self._row(claim, one, index)
            for claim, one in zip(plain, checks, strict=True)
            if one is not None
        }
        seen = self._run(list(rows.values()))
        found = []
        for claim, one in zip(plain, checks, strict=True):
            if one is None:
                found.append(Entailment("unsupported", 0.0, share=(0.0,) * len(index.passages)))
            else:
                found.append(self._word(claim, one, index, rows[claim], seen))
        return found

    def grounded(self, answer: str, claims: Sequence[str], seen: Sequence[Entailment]) -> float:  # noqa: ARG002
        """As probable as its least probable claim; what claims nothing is grounded."""
        return min((one.p for one in seen), default=1.0)

    def similarity(self, left: str, right: str) -> float:
        """The cosine of the meanings of two texts, as the model was published."""
        one, two = self._meaning(left), self._meaning(right)
        norm = float(np.linalg.norm(one) * np.linalg.norm(two))
        return round(min(1.0, max(0.0, float(one @ two) / norm)), DIGITS) if norm else 0.0

    def _word(
        self, claim: str, one: Check, index: Index, row: Pair, seen: dict[tuple[int, ...], Logits]
    ) -> Entailment:
        """The word for a claim, and where nothing exact speaks against it, which words are doubtful."""
        logits = seen[row.ids]
        p = round(probability(logits, ()), DIGITS)
        found = verdict(claim, one, index, p, self._bars, most=1.0)
        if found.support != "unsupported" or one.opposed or one.nowhere:
            return found
        stretch = doubtful(claim, row.spans, logits.tokens)
        if stretch is None or len(stretch) > 0.8 * len(claim):
            return found
        return found._replace(reason=f"the chunks do not say “{stretch}”")

    def _told(self, question: Question, passage: Passage, value: float, plain: Relevance) -> Relevance:
        """The exact checks on top of what the model says."""
        strange = elsewhere(question, passage.text)
        if strange:
            return Relevance(min(value * 0.4, 0.2), strange)
        return Relevance(value, plain.reason if value < 0.5 or question.task else None)

    def _row(self, claim: str, one: Check, index: Index) -> Pair:
        texts = [said(index, place) for place in evidence(one.statement, index)]
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

    def _meaning(self, text: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        rows = alone(self._split, text)
        each = embedder(self._folder, self._threads).embed(rows)
        return np.asarray(np.array([row.first for row in rows], np.float32) @ each, np.float32)

    def _index(self, passages: tuple[Passage, ...]) -> Index:
        if passages not in self._indexes:
            self._indexes[passages] = Index(passages)
        return self._indexes[passages]


class MiniLM:
    """The embedded judge that knows meanings: MiniLM-L6, trained to read a claim with its evidence.

    It needs the extra `nli` and the published weights, no key and no network. Exact checks of numbers, names,
    negations and fields stand over what it says. `threads` is for one process; `weights` is a folder with the
    published weights, where they are not installed.
    Raises MissingExtra where packages or weights are not there.
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

    @property
    def offers(self) -> frozenset[Part]:
        """Everything but harm."""
        return OFFERS

    @property
    def fingerprint(self) -> str:
        """Version, weights, rarity table and thresholds, in one line."""
        bars = self._bars
        return (
            f"minilm/{VERSION} weights={delta().digest} rarity={rarity().digest} "
            f"supported={bars.supported:g} inferred={bars.inferred:g}"
        )

    def read(self, query: str = "") -> Pairs:  # noqa: ARG002
        """Begin the reading of one trace."""
        return Pairs(self._folder, self._bars, self._threads)

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """The verdicts on each trace, each made from that trace alone."""
        return [assemble(trace, self) for trace in traces]
