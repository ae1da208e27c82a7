"""The judge onnx:PATH: a cross-encoder that somebody else trained, exported to ONNX."""

from __future__ import annotations

from collections.abc import Sequence

from ragfault.judges.assembly import ScorerJudge
from ragfault.judges.checks.claims import strip_marks
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.checks.queries import WeightedQuery, check_identifiers
from ragfault.judges.checks.word_reading import WordReading
from ragfault.judges.lexical.entailment import EntailmentThresholds, LexicalSession, check_claim, decide_support
from ragfault.judges.onnx.model_files import OnnxModelConfig, load_model_config
from ragfault.judges.onnx.session import OnnxModel, PairScore, TextWindow, load_model, split_windows, truncate_text
from ragfault.judges.open_models import load_open_models, locate_open_model
from ragfault.judges.scorer import Entailment, EntailmentGroup, RelevanceScore
from ragfault.model.errors import UsageError
from ragfault.model.records import ClaimSupport, Evidence

VERSION = 8
CLAIM_DIVISOR = 4
"""A claim or query takes at most this fraction of the model's tokens, and `MAX_CLAIM_TOKENS`."""
MAX_CLAIM_TOKENS = 128
FREE_TOKENS = 4
"""Unused tokens: a window may be tokenized differently from the passage it is cut from."""
MIN_CONTRADICTION = 0.5
"""From this probability of contradiction an unsupported claim counts as contradicted."""
PROBABILITY_DIGITS = 4
QUESTION_PROMPT = (
    "Briefly answer the following question:\n{}\nBear in mind that your response should be strictly based on the "
    "following passages:\npassage 1: {}\noutput:"
)
SUMMARY_PROMPT = "Summarize the following text:\n{1}\noutput:"
"""Prompts of models that mark tokens: source with and without a question."""


class OnnxSession(WordReading):
    """The scores of one trace by a model, and by words for the task that the model does not serve."""

    def __init__(self, model: OnnxModel, thresholds: EntailmentThresholds, query: str) -> None:
        self._model, self._thresholds = model, thresholds
        self._lexical = LexicalSession(load_idf(), thresholds)
        config = model.config
        self._max_claim = min(MAX_CLAIM_TOKENS, config.max_tokens // CLAIM_DIVISOR)
        self._max_passage = (
            config.max_tokens - self._max_claim - model.tokenizer.num_special_tokens_to_add(is_pair=True) - FREE_TOKENS
        )
        self._query = truncate_text(model.tokenizer, query, self._max_claim)
        self._question = "" if WeightedQuery(query, load_idf()).is_task else self._query.strip()
        if model.entry is not None:
            empty = model.entry.render(self._question, [""], "")[0]
            self._max_passage -= len(model.tokenizer.encode(empty, add_special_tokens=False).ids)
            if model.entry.source_tokens:
                self._max_passage = min(self._max_passage, model.entry.source_tokens)
        elif config.kind == "tokens":
            self._prompt = QUESTION_PROMPT if self._question else SUMMARY_PROMPT
            empty_prompt = self._prompt.format(self._query, "")
            self._max_passage -= len(model.tokenizer.encode(empty_prompt, add_special_tokens=False).ids)
        self._max_passage = max(1, self._max_passage)
        self._scores: dict[tuple[str, str], PairScore] = {}

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        lexical_scores = self._lexical.score_relevance(query, passages)
        weighted_query = WeightedQuery(query, load_idf())
        if self._model.config.task != "relevance" or weighted_query.is_task:
            return lexical_scores
        short = truncate_text(self._model.tokenizer, query, self._max_claim)
        pairs_by_passage = [
            [(short, window.text) for window in split_windows(self._model.tokenizer, [passage], self._max_passage)]
            for passage in passages
        ]
        scores = self._score_pairs([pair for pairs in pairs_by_passage for pair in pairs])
        results = []
        for passage, pairs, lexical_score in zip(passages, pairs_by_passage, lexical_scores, strict=True):
            value = round(max((scores[pair].support for pair in pairs), default=0.0), PROBABILITY_DIGITS)
            score = RelevanceScore(value, lexical_score.reason if value < 0.5 else None)
            results.append(check_identifiers(weighted_query, passage.text, score))
        return results

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        return self._lexical.score_coverage(query, passages)

    def prefetch(self, groups: Sequence[EntailmentGroup]) -> None:
        """Do nothing: pairs are scored when needed."""

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        if self._model.config.task != "entailment":
            return self._lexical.score_entailment(claims, passages)
        index = SentenceIndex(passages)
        texts = [passage.text for passage in passages]
        windows = split_windows(self._model.tokenizer, passages, self._max_passage)
        stripped = [strip_marks(claim) for claim in claims]
        truncated = {claim: truncate_text(self._model.tokenizer, claim, self._max_claim) for claim in stripped}
        scores = self._score_pairs(
            [self._build_pair(window, texts, truncated[claim]) for claim in stripped for window in windows]
        )
        return [
            self._decide_claim(
                claim, [scores[self._build_pair(window, texts, truncated[claim])] for window in windows], windows, index
            )
            for claim in stripped
        ]

    def score_groundedness(self, answer: str, claims: Sequence[str], entailments: Sequence[Entailment]) -> float:  # noqa: ARG002
        return min((entailment.p for entailment in entailments), default=1.0)

    def measure_similarity(self, left: str, right: str) -> float:
        return self._lexical.measure_similarity(left, right)

    def _build_pair(self, window: TextWindow, texts: Sequence[str], claim: str) -> tuple[str, str]:
        if self._model.entry is not None:
            parts = [texts[number][start:end] for number, start, end in window.parts]
            return self._model.entry.render(self._question, parts, claim)
        if self._model.config.kind == "tokens":
            return self._prompt.format(self._query, window.text), claim
        return window.text, claim

    def _score_pairs(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], PairScore]:
        """Return the scores of some pairs; no pair runs twice in a session."""
        fresh = list(dict.fromkeys(pair for pair in pairs if pair not in self._scores))
        self._scores |= zip(fresh, self._model.score_pairs(fresh), strict=True)
        return self._scores

    def _decide_claim(
        self, claim: str, scores: Sequence[PairScore], windows: Sequence[TextWindow], index: SentenceIndex
    ) -> Entailment:
        """Return the verdict on a claim. Exact checks only explain what the model does not support."""
        check = check_claim(claim, index, load_idf())
        if check is None or not scores:
            return Entailment("unsupported", 0.0, shares=(0.0,) * len(index.passages))
        best = max(range(len(scores)), key=lambda position: (scores[position].support, -position))
        p = round(scores[best].support, PROBABILITY_DIGITS)
        lexical = decide_support(claim, check, index, p, self._thresholds, max_missing=1.0)
        order = sorted(
            check.alignment.shared_weights, key=lambda position: (-check.alignment.shared_weights[position], position)
        )
        best_shared = _select_window(windows, index, order[0]) if order else best
        support: ClaimSupport
        if p >= self._thresholds.inferred:
            support = "supported" if p >= self._thresholds.supported else "inferred"
            evidence = _select_evidence(windows[best], order, index)
            reason = None if support == "supported" else "the model is not quite sure"
        else:
            has_label = self._model.config.contradiction_label is not None
            is_contradicted = (
                scores[best_shared].contradiction >= MIN_CONTRADICTION
                if has_label
                else lexical.support == "contradicted"
            )
            support = "contradicted" if is_contradicted else "unsupported"
            evidence = lexical.evidence[:1]
            reason = lexical.reason if lexical.support == support else "the model reads a contradiction"
        return Entailment(support, p, evidence, reason, lexical.shares)


def _select_window(windows: Sequence[TextWindow], index: SentenceIndex, position: int) -> int:
    """Return the window that contains a sentence."""
    passage, start = index.passage_numbers[position], index.sentences[position].start
    for window_number, window in enumerate(windows):
        if any(number == passage and begin <= start < end for number, begin, end in window.parts):
            return window_number
    return 0


def _select_evidence(window: TextWindow, order: Sequence[int], index: SentenceIndex) -> tuple[Evidence, ...]:
    """Return the sentence of a window that shares most with a claim, else the window."""
    for position in order:
        sentence, passage = index.sentences[position], index.passage_numbers[position]
        if any(
            passage == part_passage and begin <= sentence.start < right for part_passage, begin, right in window.parts
        ):
            return (Evidence(chunk=index.passages[passage].name, start=sentence.start, end=sentence.end),)
    number, start, end = window.parts[0]
    return (Evidence(chunk=index.passages[number].name, start=start, end=end),)


def _load_named(entry: str, address: str) -> OnnxModelConfig:
    """Load the configuration of an open model; its labels and its length are those of the table."""
    model, folder = load_open_models().get(entry), locate_open_model(entry, address)
    tokens = 0 if model is None else model.tokens
    config = load_model_config(f"{folder}?labels=unsupported,supported&room={tokens}")
    is_marking = model is not None and model.reads == "marks"
    return config._replace(entry=entry, kind="tokens" if is_marking else "pair", support_label=0 if is_marking else 1)


class OnnxJudge(ScorerJudge):
    """A judge from a model in ONNX: onnx:FOLDER, onnx:FILE.onnx or onnx:OWNER/NAME of the hub's cache.

    Natural language inference, binary support, and models that mark hallucinated tokens serve entailment;
    rerankers with one number serve relevance. The other task is judged by words, as the judge lexical does.
    An `entry` is the name of an open model, whose input and output are those of `open_models.toml`; `address` is then
    its folder, empty for the one in the cache.

    Raises UsageError for files that are not such a model.
    """

    def __init__(
        self, address: str, *, supported: float = 0.7, inferred: float = 0.5, threads: int = 1, entry: str = ""
    ) -> None:
        if threads < 1:
            raise UsageError(f"threads is at least 1, got {threads}.")
        self._thresholds, self._threads = EntailmentThresholds(supported, inferred), threads
        self._model: OnnxModelConfig = _load_named(entry, address) if entry else load_model_config(address)
        load_model(self._model, threads)

    @property
    def fingerprint(self) -> str:
        model, thresholds = self._model, self._thresholds
        name = model.entry or "onnx"
        return (
            f"{name}/{VERSION} model={model.name} digest={model.digest} serves={model.task} labels={model.label_count} "
            f"holds={model.support_label} room={model.max_tokens} rarity={load_idf().digest} "
            f"{thresholds}"
        )

    def open_session(self, query: str = "", history: Sequence[str] = ()) -> OnnxSession:  # noqa: ARG002
        return OnnxSession(load_model(self._model, self._threads), self._thresholds, query)
