"""The MiniLM judge: a small language model fitted to human labels, run on one processor."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ragfault.errors import MissingExtra, UsageError
from ragfault.judges.assembly import OFFERED_PARTS, assemble_verdicts
from ragfault.judges.checks.lexicon import load_rarity
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.checks.queries import WeightedQuery, detect_identifier_mismatch
from ragfault.judges.embedded.judge import EmbeddedSession, digest_weights, get_lowest_probability
from ragfault.judges.embedded.support import WeighedClaims
from ragfault.judges.embedded.vectors import Array
from ragfault.judges.lexical.entailment import EntailmentThresholds
from ragfault.judges.lexical.features import parse_statement
from ragfault.judges.minilm import calibration
from ragfault.judges.minilm.calibration import (
    Logits,
    build_claim_inputs,
    load_calibration,
    locate_doubtful_span,
)
from ragfault.judges.minilm.encoder import (
    MAX_CLAIM_TOKENS,
    MAX_EVIDENCE_TOKENS,
    MAX_PASSAGE_TOKENS,
    MAX_QUERY_TOKENS,
    TokenPair,
    encode_pair,
    encode_text,
    load_base_weights,
    load_delta,
    load_embedder,
    load_encoder,
    load_tokenizer,
    locate_weights,
    pack_texts,
)
from ragfault.judges.minilm.evidence import get_sentence_text, select_evidence
from ragfault.judges.scorer import Entailment, EntailmentGroup, RelevanceScore
from ragfault.protocols import VerdictKind
from ragfault.records import Trace, Verdicts

VERSION = 1
MAX_STRETCHES = 2
"""Of a long passage so many stretches are read with the query, those that share most with it."""
PROBABILITY_DIGITS = 4
"""Probabilities are rounded to so many, so that processors that add in another order agree."""


class MiniLMSession:
    """A reading of one trace by a model that sees two texts together, beside the reading of the embedded judge."""

    def __init__(self, folder: Path, thresholds: EntailmentThresholds, threads: int, query: str) -> None:
        self._model = load_encoder(folder, threads)
        self._tokenizer = load_tokenizer(folder)
        self._folder, self._thresholds, self._threads = folder, thresholds, threads
        self._rarity = load_rarity()
        self.embedded = EmbeddedSession(query, thresholds)
        self._logits: dict[tuple[int, ...], Logits] = {}
        self._weighed_odds: dict[tuple[str, ...], tuple[WeighedClaims, Array]] = {}
        self._indexes: dict[tuple[Passage, ...], SentenceIndex] = {}
        self._embeddings: dict[str, Array] = {}

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """How much each passage speaks to the query, in its best stretch and in its meaning."""
        question = WeightedQuery(query, self._rarity)
        plain = self.embedded.score_relevance(query, passages)
        if question.is_task or not question.total_weight:
            return plain
        self._run_model([row for passage in passages for row in self._build_query_rows(question, passage)])
        found = []
        for passage, one in zip(passages, plain, strict=True):
            if not passage.text.strip():
                found.append(one)
                continue
            logit = self.predict_logit(query, passage)
            value = round(
                load_calibration().predict_relevance(logit, self.measure_similarity(query, passage.text)),
                PROBABILITY_DIGITS,
            )
            found.append(self._check_relevance(question, passage, value, one))
        return found

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        """How much of a query each text takes up, by its words."""
        return self.embedded.score_coverage(query, passages)

    def prefetch(self, groups: Sequence[EntailmentGroup]) -> None:
        """Let the words of all that will be asked be looked at together."""
        self.embedded.prefetch(groups)

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        """How the best sentences of the passages, read with each claim, stand to it."""
        looked = self.weigh_with_model(claims, passages)
        if looked is None:
            return self.embedded.score_entailment(claims, passages)
        weighed, logits, rows = looked
        odds = load_calibration().predict_odds(
            np.array([build_claim_inputs(*both) for both in zip(weighed.odds.tolist(), logits, strict=True)])
        )
        self._weighed_odds.setdefault(tuple(claims), (weighed, odds))
        if len(odds) == 1:  # then what is said of the answer as a whole is better informed
            p = [
                round(
                    load_calibration().predict_groundedness(weighed.answer_odds, odds, weighed.text_type),
                    PROBABILITY_DIGITS,
                )
            ]
        else:
            p = load_calibration().predict_support(odds, weighed.text_type).round(PROBABILITY_DIGITS).tolist()
        return [
            self._decide_claim(weighed, number, p[number], row, one)
            for number, (row, one) in enumerate(zip(rows, logits, strict=True))
        ]

    def weigh_with_model(
        self, claims: Sequence[str], passages: Sequence[Passage]
    ) -> tuple[WeighedClaims, list[Logits], list[TokenPair]] | None:
        """What words and model say of each claim, and the row that the model read."""
        weighed = self.embedded.weigh_claims(claims, passages)
        if weighed is None:
            return None
        index = weighed.passages.index
        rows = [self._build_claim_row(text, index) for text in weighed.texts]
        seen = self._run_model(rows)
        return weighed, [seen[row.ids] for row in rows], rows

    def score_groundedness(
        self,
        answer: str,  # noqa: ARG002
        claims: Sequence[str],
        entailments: Sequence[Entailment],
    ) -> float:
        """The probability that all claims are supported; what claims nothing is grounded."""
        known = self._weighed_odds.get(tuple(claims))
        if known is None:
            return get_lowest_probability(entailments)
        weighed, odds = known
        return self.embedded.bound_groundedness(
            round(
                load_calibration().predict_groundedness(weighed.answer_odds, odds, weighed.text_type),
                PROBABILITY_DIGITS,
            ),
            weighed,
            entailments,
        )

    def measure_similarity(self, left: str, right: str) -> float:
        """The cosine of the meanings of two texts, as the model was published."""
        one, two = self._embed_text(left), self._embed_text(right)
        norm = float(np.linalg.norm(one) * np.linalg.norm(two))
        return round(min(1.0, max(0.0, float(one @ two) / norm)), PROBABILITY_DIGITS) if norm else 0.0

    def _decide_claim(
        self, weighed: WeighedClaims, number: int, p: float, row: TokenPair, logits: Logits
    ) -> Entailment:
        """The word for a claim, and where nothing exact speaks against it, which words are doubtful."""
        found, check = self.embedded.decide_claim(weighed, number, p), weighed.checks[number]
        if (
            found.support != "unsupported"
            or found.unsure
            or check is None
            or check.field_conflict
            or check.missing_name
        ):
            return found
        claim = weighed.texts[number]
        stretch = locate_doubtful_span(claim, row.spans, logits.tokens)
        if stretch is None or len(stretch) > 0.8 * len(claim):
            return found
        return found._replace(reason=f"the chunks do not say “{stretch}”")

    def predict_logit(self, query: str, passage: Passage) -> float:
        """What the model says of a passage and a query, in its best stretch."""
        rows = self._build_query_rows(WeightedQuery(query, self._rarity), passage)
        seen = self._run_model(rows)
        return max((seen[row.ids].relevant for row in rows), default=0.0)

    def _build_query_rows(self, question: WeightedQuery, passage: Passage) -> list[TokenPair]:
        """The rows in which a passage is read with a query."""
        stretches = (
            self._select_stretches(question, self._get_index((passage,))) if passage.text.strip() else []
        )
        return [
            encode_pair(self._tokenizer, question.text, [text], MAX_QUERY_TOKENS, MAX_PASSAGE_TOKENS)
            for text in stretches
        ]

    def _check_relevance(
        self, question: WeightedQuery, passage: Passage, value: float, embedded_score: RelevanceScore
    ) -> RelevanceScore:
        """The exact checks on top of what the model says."""
        strange = detect_identifier_mismatch(question, passage.text)
        if strange:
            return RelevanceScore(min(value * 0.4, 0.2), strange, is_other_subject=True)
        return RelevanceScore(value, embedded_score.reason if value < 0.5 else None)

    def _build_claim_row(self, claim: str, index: SentenceIndex) -> TokenPair:
        texts = [
            get_sentence_text(index, place)
            for place in select_evidence(parse_statement(claim, self._rarity), index)
        ]
        return encode_pair(self._tokenizer, claim, texts, MAX_CLAIM_TOKENS, MAX_EVIDENCE_TOKENS)

    def _select_stretches(self, question: WeightedQuery, index: SentenceIndex) -> list[str]:
        """The stretches of a passage that share most with a query, in order."""
        texts = (get_sentence_text(index, place, None) for place in range(len(index.sentences)))
        found = pack_texts(self._tokenizer, texts, MAX_PASSAGE_TOKENS - 1)
        if len(found) <= MAX_STRETCHES:
            return found
        shared = [
            SentenceIndex([Passage("", text)]).postings.keys() & question.weights.keys() for text in found
        ]
        worth = [sum(question.weights[word] for word in sorted(words)) for words in shared]
        best = sorted(range(len(found)), key=lambda place: (-worth[place], place))[:MAX_STRETCHES]
        return [found[place] for place in sorted(best)]

    def _run_model(self, rows: Sequence[TokenPair]) -> dict[tuple[int, ...], Logits]:
        """What the model says of some rows; none is run twice in a reading."""
        fresh = list({row.ids: row for row in rows if row.ids not in self._logits}.values())
        self._logits |= {row.ids: one for row, one in zip(fresh, self._model.run(fresh), strict=True)}
        return self._logits

    def _embed_text(self, text: str) -> Array:
        if text not in self._embeddings:
            rows = encode_text(self._tokenizer, text)
            each = load_embedder(self._folder, self._threads).embed(rows)
            self._embeddings[text] = np.asarray(
                np.array([row.first_length for row in rows], np.float32) @ each, np.float32
            )
        return self._embeddings[text]

    def _get_index(self, passages: tuple[Passage, ...]) -> SentenceIndex:
        if passages not in self._indexes:
            self._indexes[passages] = SentenceIndex(passages)
        return self._indexes[passages]


class MiniLMJudge:
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
        self._thresholds, self._threads = EntailmentThresholds(supported, inferred), threads
        self._folder = Path(weights).expanduser().absolute() if weights else locate_weights()
        for name in ("model.safetensors", "tokenizer.json"):
            if not (self._folder / name).is_file():
                raise UsageError(f"{self._folder} holds no {name}.")
        load_base_weights(self._folder, load_delta().base_digest)

    @property
    def offers(self) -> frozenset[VerdictKind]:
        """Everything but harm."""
        return OFFERED_PARTS

    @property
    def fingerprint(self) -> str:
        """Version, weights, rarity table and thresholds, in one line."""
        bars = self._thresholds
        return (
            f"minilm/{VERSION} weights={load_delta().digest} words={digest_weights()} stack={calibration.digest_calibration()} "
            f"supported={bars.supported:g} inferred={bars.inferred:g}"
        )

    def open_session(self, query: str = "") -> MiniLMSession:
        """Begin the reading of one trace."""
        return MiniLMSession(self._folder, self._thresholds, self._threads, query)

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """The verdicts on each trace, each made from that trace alone."""
        return [assemble_verdicts(trace, self) for trace in traces]
