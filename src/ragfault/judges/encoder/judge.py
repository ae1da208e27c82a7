"""The judge encoder: a model reads each claim with its evidence, its question and the turns before."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from ragfault.judges.assembly import ScorerJudge
from ragfault.judges.checks.passages import Passage
from ragfault.judges.embedded.judge import EmbeddedSession, get_lowest_probability
from ragfault.judges.encoder.agreement import select_references, settle_agreement
from ragfault.judges.encoder.evidence import claim_text, evidence
from ragfault.judges.encoder.model import digest_weights, load_encoder
from ragfault.judges.lexical.entailment import EntailmentThresholds
from ragfault.judges.scorer import Entailment, EntailmentGroup, RelevanceScore
from ragfault.model.errors import MissingExtra, UsageError
from ragfault.model.records import ClaimSupport

VERSION = 1
UNSURE_RANGE = (0.35, 0.65)
"""Probabilities of support between these are unsure."""
VERBATIM_PROBABILITY = 0.99
"""The probability of a claim that stands word for word in a passage, which is not read by the model."""
PROBABILITY_DIGITS = 4
"""Probabilities are rounded, so that processors with another order of additions agree."""


class EncoderSession:
    """The scores of one trace by the encoder; evidence and similarity are those of the embedded judge."""

    def __init__(self, query: str, history: Sequence[str], thresholds: EntailmentThresholds, threads: int) -> None:
        self._query, self._history, self._thresholds = query, tuple(history), thresholds
        self._model = load_encoder(threads)
        self.embedded = EmbeddedSession(query, thresholds)
        self._agreements: dict[tuple[str, str], float] = {}

    def is_refusal(self, answer: str) -> bool:
        return self._model.predicts_refusal(answer, self._query)

    def is_refusal_sentence(self, sentence: str) -> bool:
        return self._model.predicts_refusal(sentence, self._query)

    def score_agreement(self, answer: str, references: Sequence[str]) -> float | None:
        settled = {reference: settle_agreement(answer, reference) for reference in references if reference.strip()}
        if True in settled.values():
            return 1.0
        open_references = select_references(answer, [text for text, result in settled.items() if result is None])
        readings = [self._read_agreement(answer, reference) for reference in open_references]
        return round(max(readings), PROBABILITY_DIGITS) if readings else 0.0 if settled else None

    def _read_agreement(self, answer: str, reference: str) -> float:
        """Return the agreement with one reference; a pair is read once."""
        if (answer, reference) not in self._agreements:
            self._agreements[answer, reference] = self._model.predict_agreement(self._query, reference, answer)
        return self._agreements[answer, reference]

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        return self.embedded.score_relevance(query, passages)

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        return self.embedded.score_coverage(query, passages)

    def prefetch(self, groups: Sequence[EntailmentGroup]) -> None:
        self.embedded.prefetch(groups)

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        located = self.embedded.score_entailment(claims, passages)
        texts = [passage.text for passage in passages if passage.text.strip()]
        if not texts:
            return located
        probabilities = self._read_claims(claims, texts)
        return [self._decide(*parts) for parts in zip(located, probabilities.tolist(), strict=True)]

    def score_groundedness(self, answer: str, claims: Sequence[str], entailments: Sequence[Entailment]) -> float:  # noqa: ARG002
        return get_lowest_probability(entailments)

    def measure_similarity(self, left: str, right: str) -> float:
        return self.embedded.measure_similarity(left, right)

    def _read_claims(self, claims: Sequence[str], texts: Sequence[str]) -> np.ndarray:
        """Return the probabilities of supported, contradicted and not stated, a row a claim."""
        pairs = [
            (claim_text(claim, self._query, self._history), evidence(tuple(texts), claim, self._query))
            for claim in claims
        ]
        probabilities = self._model.predict("entailment", pairs)
        spaced = [" ".join(text.split()) for text in texts]
        for number, claim in enumerate(claims):
            bare = " ".join(claim.split())
            if bare and any(bare in text for text in spaced):
                rest = (1 - VERBATIM_PROBABILITY) / 2
                probabilities[number] = (VERBATIM_PROBABILITY, rest, rest)
        return probabilities.round(PROBABILITY_DIGITS)

    def _decide(self, located: Entailment, probabilities: Sequence[float]) -> Entailment:
        """Return the verdict on a claim: its label by the most probable class, its evidence as it was located."""
        supported, contradicted, not_stated = probabilities
        label: ClaimSupport
        if supported >= self._thresholds.supported:
            label = "supported"
        elif supported >= self._thresholds.inferred:
            label = "inferred"
        else:
            label = "contradicted" if contradicted > not_stated else "unsupported"
        stands = label in ("supported", "inferred")
        return located._replace(
            support=label,
            p=supported,
            reason=None if stands else located.reason,
            unsure=UNSURE_RANGE[0] < supported < UNSURE_RANGE[1],
            unsupported_spans=() if stands else located.unsupported_spans,
        )


class EncoderJudge(ScorerJudge):
    """A judge by a small encoder that was trained to read: on written contrasts, entailment sets and people's labels.

    It needs the extra `nli`, no key and no network. `threads` is for one process. Raises MissingExtra without its
    packages.
    """

    def __init__(self, *, supported: float = 0.7, inferred: float = 0.5, threads: int = 1) -> None:
        if any(find_spec(package) is None for package in ("onnxruntime", "tokenizers")):
            raise MissingExtra("the judge encoder", "nli")
        if threads < 1:
            raise UsageError(f"threads is at least 1, got {threads}.")
        self._thresholds, self._threads = EntailmentThresholds(supported, inferred), threads

    @property
    def fingerprint(self) -> str:
        return f"encoder/{VERSION} weights={digest_weights()} {self._thresholds}"

    def open_session(self, query: str = "", history: Sequence[str] = ()) -> EncoderSession:
        return EncoderSession(query, history, self._thresholds, self._threads)
