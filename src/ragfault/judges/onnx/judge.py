"""The judge onnx:PATH: a cross-encoder that somebody else trained, exported to ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from ragfault.errors import MissingExtra, UsageError
from ragfault.judges.assembly import OFFERED_PARTS, assemble_verdicts
from ragfault.judges.checks.claims import strip_marks
from ragfault.judges.checks.lexicon import load_rarity
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.checks.queries import WeightedQuery, detect_identifier_mismatch
from ragfault.judges.lexical.entailment import EntailmentThresholds, check_claim, decide_support
from ragfault.judges.lexical.judge import LexicalSession
from ragfault.judges.onnx.model_files import OnnxModelConfig, load_model_config
from ragfault.judges.onnx.session import (
    OnnxModel,
    PairScore,
    TextWindow,
    load_model,
    split_windows,
    truncate_text,
)
from ragfault.judges.scorer import Entailment, EntailmentGroup, RelevanceScore
from ragfault.protocols import VerdictKind
from ragfault.records import ClaimSupport, Evidence, Trace, Verdicts

VERSION = 1
CLAIM_DIVISOR = 4
"""A claim or query takes at most one part in so many of what a model reads at once, and `CLAIM` tokens."""
MAX_CLAIM_TOKENS = 128
FREE_TOKENS = 4
"""Tokens left free, for a stretch may split otherwise than the passage it is cut from."""
MIN_CONTRADICTION = 0.5
"""From so much contradiction on a claim that is not supported counts as contradicted."""
PROBABILITY_DIGITS = 4
QUESTION_PROMPT = (
    "Briefly answer the following question:\n{}\nBear in mind that your response should be strictly based on the "
    "following passages:\npassage 1: {}\noutput:"
)
SUMMARY_PROMPT = "Summarize the following text:\n{1}\noutput:"
"""How models that mark tokens are given the query and what an answer was made from, with and without a question."""


class OnnxSession:
    """A reading of one trace by a model, and by words where the model serves something else."""

    def __init__(self, model: OnnxModel, thresholds: EntailmentThresholds, query: str) -> None:
        self._model, self._thresholds = model, thresholds
        self._lexical = LexicalSession(load_rarity(), thresholds)
        config = model.config
        self._max_claim = min(MAX_CLAIM_TOKENS, config.max_tokens // CLAIM_DIVISOR)
        self._max_passage = (
            config.max_tokens
            - self._max_claim
            - model.tokenizer.num_special_tokens_to_add(is_pair=True)
            - FREE_TOKENS
        )
        self._query = truncate_text(model.tokenizer, query, self._max_claim)
        if config.kind == "tokens":
            self._prompt = (
                QUESTION_PROMPT
                if self._query.strip() and not WeightedQuery(query, load_rarity()).is_task
                else SUMMARY_PROMPT
            )
            around = self._prompt.format(self._query, "")
            self._max_passage -= len(model.tokenizer.encode(around, add_special_tokens=False).ids)
        self._max_passage = max(1, self._max_passage)
        self._scores: dict[tuple[str, str], PairScore] = {}

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """How much each passage says about the query, in its best stretch."""
        plain = self._lexical.score_relevance(query, passages)
        question = WeightedQuery(query, load_rarity())
        if self._model.config.task != "relevance" or question.is_task:
            return plain
        short = truncate_text(self._model.tokenizer, query, self._max_claim)
        rows = [
            [
                (short, window.text)
                for window in split_windows(self._model.tokenizer, [passage], self._max_passage)
            ]
            for passage in passages
        ]
        seen = self._score_pairs([row for each in rows for row in each])
        found = []
        for passage, each, words in zip(passages, rows, plain, strict=True):
            value = round(max((seen[row].support for row in each), default=0.0), PROBABILITY_DIGITS)
            strange = detect_identifier_mismatch(question, passage.text)
            if strange:
                found.append(RelevanceScore(min(value * 0.4, 0.2), strange))
            else:
                found.append(RelevanceScore(value, words.reason if value < 0.5 else None))
        return found

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """How much of a query each text takes up, by its words."""
        return self._lexical.score_coverage(query, passages)

    def prefetch(self, groups: Sequence[EntailmentGroup]) -> None:
        """Nothing: pairs are read as they are asked for."""

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """How the stretch of the passages that supports each claim best stands to it."""
        if self._model.config.task != "entailment":
            return self._lexical.score_entailment(claims, passages)
        index = SentenceIndex(passages)
        found = split_windows(self._model.tokenizer, passages, self._max_passage)
        plain = [strip_marks(claim) for claim in claims]
        short = {claim: truncate_text(self._model.tokenizer, claim, self._max_claim) for claim in plain}
        seen = self._score_pairs(
            [self._build_pair(window, short[claim]) for claim in plain for window in found]
        )
        return [
            self._decide_claim(
                claim, [seen[self._build_pair(window, short[claim])] for window in found], found, index
            )
            for claim in plain
        ]

    def score_groundedness(
        self,
        answer: str,  # noqa: ARG002
        claims: Sequence[str],  # noqa: ARG002
        entailments: Sequence[Entailment],
    ) -> float:
        """As probable as its least probable claim; what claims nothing is grounded."""
        return min((one.p for one in entailments), default=1.0)

    def measure_similarity(self, left: str, right: str) -> float:
        """How alike two texts are by their words."""
        return self._lexical.measure_similarity(left, right)

    def _build_pair(self, window: TextWindow, claim: str) -> tuple[str, str]:
        if self._model.config.kind == "tokens":
            return self._prompt.format(self._query, window.text), claim
        return window.text, claim

    def _score_pairs(self, rows: Sequence[tuple[str, str]]) -> dict[tuple[str, str], PairScore]:
        """What the model says of some pairs; none is read twice in a reading."""
        fresh = list(dict.fromkeys(row for row in rows if row not in self._scores))
        self._scores |= zip(fresh, self._model.score_pairs(fresh), strict=True)
        return self._scores

    def _decide_claim(
        self, claim: str, scores: Sequence[PairScore], windows: Sequence[TextWindow], index: SentenceIndex
    ) -> Entailment:
        """The word for what the model said. Exact checks tell only what is wrong with what it does not support."""
        one = check_claim(claim, index, load_rarity())
        if one is None or not scores:
            return Entailment("unsupported", 0.0, shares=(0.0,) * len(index.passages))
        best = max(range(len(scores)), key=lambda place: (scores[place].support, -place))
        p = round(scores[best].support, PROBABILITY_DIGITS)
        words = decide_support(claim, one, index, p, self._thresholds, max_missing=1.0)
        order = sorted(
            one.alignment.shared_weights, key=lambda place: (-one.alignment.shared_weights[place], place)
        )
        against = _select_window(windows, index, order[0]) if order else best
        support: ClaimSupport
        if p >= self._thresholds.inferred:
            support = "supported" if p >= self._thresholds.supported else "inferred"
            evidence = _select_evidence(windows[best], order, index)
            reason = None if support == "supported" else "the model is not quite sure"
        else:
            told = self._model.config.contradiction_label is not None
            clash = (
                scores[against].contradiction >= MIN_CONTRADICTION
                if told
                else words.support == "contradicted"
            )
            support = "contradicted" if clash else "unsupported"
            evidence = words.evidence[:1]
            reason = words.reason if words.support == support else "the model reads a contradiction"
        return Entailment(support, p, evidence, reason, words.shares)


def _select_window(windows: Sequence[TextWindow], index: SentenceIndex, place: int) -> int:
    """The stretch that holds a sentence."""
    owner, start = index.passage_numbers[place], index.sentences[place].start
    return next(
        (
            number
            for number, window in enumerate(windows)
            if any(one == owner and left <= start < right for one, left, right in window.parts)
        ),
        0,
    )


def _select_evidence(window: TextWindow, order: Sequence[int], index: SentenceIndex) -> tuple[Evidence, ...]:
    """The sentence of a stretch that shares most with a claim; where none does, the stretch."""
    for place in order:
        sentence, owner = index.sentences[place], index.passage_numbers[place]
        if any(owner == name and left <= sentence.start < right for name, left, right in window.parts):
            return (Evidence(chunk=index.passages[owner].name, start=sentence.start, end=sentence.end),)
    number, start, end = window.parts[0]
    return (Evidence(chunk=index.passages[number].name, start=start, end=end),)


class OnnxJudge:
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
        self._thresholds, self._threads = EntailmentThresholds(supported, inferred), threads
        self._model: OnnxModelConfig = load_model_config(address)
        load_model(self._model, threads)

    @property
    def offers(self) -> frozenset[VerdictKind]:
        """Everything but harm."""
        return OFFERED_PARTS

    @property
    def fingerprint(self) -> str:
        """Version, model, what it serves, and thresholds, in one line."""
        model, bars = self._model, self._thresholds
        return (
            f"onnx/{VERSION} model={model.name} digest={model.digest} serves={model.task} labels={model.label_count} "
            f"holds={model.support_label} room={model.max_tokens} rarity={load_rarity().digest} "
            f"supported={bars.supported:g} inferred={bars.inferred:g}"
        )

    def open_session(self, query: str = "") -> OnnxSession:
        """Begin the reading of one trace."""
        return OnnxSession(load_model(self._model, self._threads), self._thresholds, query)

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """The verdicts on each trace, each made from that trace alone."""
        return [assemble_verdicts(trace, self) for trace in traces]
