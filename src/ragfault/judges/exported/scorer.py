"""The judge onnx:PATH: a cross-encoder that somebody else trained, exported to ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from ragfault.errors import MissingExtra, UsageError
from ragfault.judges.assemble import OFFERS, assemble
from ragfault.judges.claims import bare
from ragfault.judges.entailment import Bars, check, verdict
from ragfault.judges.exported.config import Model, model
from ragfault.judges.exported.session import Seen, Session, session
from ragfault.judges.exported.windows import Window, cut, windows
from ragfault.judges.index import Index, Passage
from ragfault.judges.lexical import Words
from ragfault.judges.rarity import rarity
from ragfault.judges.relevance import ask, elsewhere
from ragfault.judges.scorer import Entailment, Group, Relevance
from ragfault.ports import Part
from ragfault.records import Evidence, Support, Trace, Verdicts

__all__ = ["Exported"]

VERSION = 1
SHARE = 4
"""A claim or query takes at most one part in so many of what a model reads at once, and `CLAIM` tokens."""
CLAIM = 128
SLACK = 4
"""Tokens left free, for a stretch may split otherwise than the passage it is cut from."""
LIKELY = 0.5
"""From so much contradiction on a claim that is not supported counts as contradicted."""
DIGITS = 4
ASKED = (
    "Briefly answer the following question:\n{}\nBear in mind that your response should be strictly based on the "
    "following passages:\npassage 1: {}\noutput:"
)
TOLD = "Summarize the following text:\n{1}\noutput:"
"""How models that mark tokens are given the query and what an answer was made from, with and without a question."""


class Reading:
    """A reading of one trace by a model, and by words where the model serves something else."""

    def __init__(self, made: Session, bars: Bars, query: str) -> None:
        self._made, self._bars = made, bars
        self._words = Words(rarity(), bars)
        model = made.model
        self._claim = min(CLAIM, model.room // SHARE)
        self._room = model.room - self._claim - made.tokenizer.num_special_tokens_to_add(is_pair=True) - SLACK
        self._query = cut(made.tokenizer, query, self._claim)
        if model.kind == "tokens":
            self._prompt = ASKED if self._query.strip() and not ask(query, rarity()).task else TOLD
            around = self._prompt.format(self._query, "")
            self._room -= len(made.tokenizer.encode(around, add_special_tokens=False).ids)
        self._room = max(1, self._room)
        self._seen: dict[tuple[str, str], Seen] = {}

    def relevance(self, query: str, passages: Sequence[Passage]) -> list[Relevance]:
        """How much each passage says about the query, in its best stretch."""
        plain = self._words.relevance(query, passages)
        question = ask(query, rarity())
        if self._made.model.serves != "relevance" or question.task:
            return plain
        short = cut(self._made.tokenizer, query, self._claim)
        rows = [
            [(short, window.text) for window in windows(self._made.tokenizer, [passage], self._room)]
            for passage in passages
        ]
        seen = self._read([row for each in rows for row in each])
        found = []
        for passage, each, words in zip(passages, rows, plain, strict=True):
            value = round(max((seen[row].holds for row in each), default=0.0), DIGITS)
            strange = elsewhere(question, passage.text)
            if strange:
                found.append(Relevance(min(value * 0.4, 0.2), strange))
            else:
                found.append(Relevance(value, words.reason if value < 0.5 else None))
        return found

    def coverage(self, query: str, passages: Sequence[Passage]) -> list[Relevance]:
        """How much of a query each text takes up, by its words."""
        return self._words.coverage(query, passages)

    def expect(self, groups: Sequence[Group]) -> None:
        """Nothing: pairs are read as they are asked for."""

    def entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """How the stretch of the passages that supports each claim best stands to it."""
        if self._made.model.serves != "entailment":
            return self._words.entailment(claims, passages)
        index = Index(passages)
        found = windows(self._made.tokenizer, passages, self._room)
        plain = [bare(claim) for claim in claims]
        short = {claim: cut(self._made.tokenizer, claim, self._claim) for claim in plain}
        seen = self._read([self._row(window, short[claim]) for claim in plain for window in found])
        return [
            self._word(claim, [seen[self._row(window, short[claim])] for window in found], found, index)
            for claim in plain
        ]

    def grounded(self, answer: str, claims: Sequence[str], seen: Sequence[Entailment]) -> float:  # noqa: ARG002
        """As probable as its least probable claim; what claims nothing is grounded."""
        return min((one.p for one in seen), default=1.0)

    def similarity(self, left: str, right: str) -> float:
        """How alike two texts are by their words."""
        return self._words.similarity(left, right)

    def _row(self, window: Window, claim: str) -> tuple[str, str]:
        if self._made.model.kind == "tokens":
            return self._prompt.format(self._query, window.text), claim
        return window.text, claim

    def _read(self, rows: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Seen]:
        """What the model says of some pairs; none is read twice in a reading."""
        fresh = list(dict.fromkeys(row for row in rows if row not in self._seen))
        self._seen |= zip(fresh, self._made.read(fresh), strict=True)
        return self._seen

    def _word(self, claim: str, seen: Sequence[Seen], read: Sequence[Window], index: Index) -> Entailment:
        """The word for what the model said. Exact checks tell only what is wrong with what it does not support."""
        one = check(claim, index, rarity())
        if one is None or not seen:
            return Entailment("unsupported", 0.0, share=(0.0,) * len(index.passages))
        best = max(range(len(seen)), key=lambda place: (seen[place].holds, -place))
        p = round(seen[best].holds, DIGITS)
        words = verdict(claim, one, index, p, self._bars, most=1.0)
        order = sorted(one.found.votes, key=lambda place: (-one.found.votes[place], place))
        against = _holding(read, index, order[0]) if order else best
        support: Support
        if p >= self._bars.inferred:
            support = "supported" if p >= self._bars.supported else "inferred"
            evidence = _evidence(read[best], order, index)
            reason = None if support == "supported" else "the model is not quite sure"
        else:
            told = self._made.model.against is not None
            clash = seen[against].against >= LIKELY if told else words.support == "contradicted"
            support = "contradicted" if clash else "unsupported"
            evidence = words.evidence[:1]
            reason = words.reason if words.support == support else "the model reads a contradiction"
        return Entailment(support, p, evidence, reason, words.share)


def _holding(read: Sequence[Window], index: Index, place: int) -> int:
    """The stretch that holds a sentence."""
    owner, start = index.owner[place], index.sentences[place].start
    return next(
        (
            number
            for number, window in enumerate(read)
            if any(one == owner and left <= start < right for one, left, right in window.parts)
        ),
        0,
    )


def _evidence(window: Window, order: Sequence[int], index: Index) -> tuple[Evidence, ...]:
    """The sentence of a stretch that shares most with a claim; where none does, the stretch."""
    for place in order:
        sentence, owner = index.sentences[place], index.owner[place]
        if any(owner == name and left <= sentence.start < right for name, left, right in window.parts):
            return (Evidence(chunk=index.passages[owner].name, start=sentence.start, end=sentence.end),)
    number, start, end = window.parts[0]
    return (Evidence(chunk=index.passages[number].name, start=start, end=end),)


class Exported:
    """A judge from a model in ONNX: onnx:FOLDER, onnx:FILE.onnx or onnx:OWNER/NAME of the hub's cache.

    Natural language inference, supported or not, and models that mark hallucinated tokens serve entailment; rerankers
    with one number serve relevance. What a model does not serve is told by words, as the judge lexical does.
    Raises MissingExtra without the extra `nli`, UsageError for files that are not such a model.
    """

    def __init__(
        self, address: str, *, supported: float = 0.7, inferred: float = 0.5, threads: int = 1
    ) -> None:
        if any(find_spec(package) is None for package in ("onnxruntime", "tokenizers")):
            raise MissingExtra(f"the judge onnx:{address}", "nli")
        if threads < 1:
            raise UsageError(f"threads is at least 1, got {threads}.")
        self._bars, self._threads = Bars(supported, inferred), threads
        self._model: Model = model(address)
        session(self._model, threads)

    @property
    def offers(self) -> frozenset[Part]:
        """Everything but harm."""
        return OFFERS

    @property
    def fingerprint(self) -> str:
        """Version, model, what it serves, and thresholds, in one line."""
        model, bars = self._model, self._bars
        return (
            f"onnx/{VERSION} model={model.name} digest={model.digest} serves={model.serves} labels={model.labels} "
            f"holds={model.holds} room={model.room} rarity={rarity().digest} "
            f"supported={bars.supported:g} inferred={bars.inferred:g}"
        )

    def read(self, query: str = "") -> Reading:
        """Begin the reading of one trace."""
        return Reading(session(self._model, self._threads), self._bars, query)

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """The verdicts on each trace, each made from that trace alone."""
        return [assemble(trace, self) for trace in traces]
