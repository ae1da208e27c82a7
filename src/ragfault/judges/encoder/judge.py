"""The judge encoder: a model reads each claim with its evidence, its question and the turns before."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import compress
from statistics import fmean
from typing import NamedTuple

import numpy as np

from ragfault.judges.assembly import ScorerJudge, assemble_verdicts
from ragfault.judges.calibration import UNSURE_RANGE
from ragfault.judges.checks.claims import strip_marks
from ragfault.judges.checks.languages import differ_in_language, is_foreign
from ragfault.judges.checks.passages import Passage, split_passage
from ragfault.judges.checks.queries import TASK_QUERY
from ragfault.judges.embedded.features import FEATURE_COLUMNS
from ragfault.judges.embedded.judge import FOREIGN_REASON, EmbeddedSession, get_lowest_probability
from ragfault.judges.embedded.word_vectors import Array
from ragfault.judges.encoder.agreement import restates_reference, select_references, settle_agreement
from ragfault.judges.encoder.evidence import claim_text, evidence
from ragfault.judges.encoder.figures import explain_figures, read_figures
from ragfault.judges.encoder.model import (
    ENGLISH,
    HEADS,
    MULTILINGUAL,
    WINDOWS,
    EncoderModel,
    digest_weights,
    load_encoder,
)
from ragfault.judges.encoder.stack import (
    PROBABILITY_DIGITS,
    build_inputs,
    load_stack,
    predict_groundedness,
    predict_support,
)
from ragfault.judges.lexical.entailment import EntailmentThresholds
from ragfault.judges.numeric_threads import use_one_thread
from ragfault.judges.pooling import pool_probabilities
from ragfault.judges.scorer import Entailment, EntailmentGroup, RelevanceScore
from ragfault.model.errors import UsageError
from ragfault.model.gold_evidence import AGREEMENT_UNSURE
from ragfault.model.records import ClaimSupport, Trace, Verdicts
from ragfault.text.sentences import split_sentences

VERSION = 12
VERBATIM_ODDS = -10.0
"""The log-odds that a claim is not supported if it is a sentence of a passage, word for word: nothing is read then."""


UNSURE_READING = (0.25, 0.75)
"""Probabilities of an answer between which a second model is asked: half of the answers of a writer kept apart, with
the same accuracy (.844 of 500) as if it were asked of all."""
MAX_THREADS = 4
"""Traces read at once, at most: what is not read by the encoder, a fifth of the time, is done one after the other."""


class ClaimSigns(NamedTuple):
    """What the encoder and the words tell of some claims."""

    readings: tuple[Array, ...]
    """By each model that read them the logits of supported, contradicted and not stated, a row a claim."""
    word_odds: Array
    """The embedded judge's log-odds that each claim is not supported."""
    overlap: Array
    """The Jaccard index of the words of each claim and of the sentence nearest to it."""
    is_verbatim: Array
    """Whether each claim is a sentence of a passage, word for word."""
    model: str
    """The model that read them."""
    is_other_language: bool
    """Whether either the claims or the passages are English, and the others not."""

    @property
    def inputs(self) -> Array:
        """Return the inputs of the stack."""
        return build_inputs(self.readings, self.word_odds, self.overlap)

    @property
    def logits(self) -> Array:
        """Return the mean of what the models read, a row a claim."""
        mean: Array = np.mean(self.readings, axis=0)
        return mean


def count_threads() -> int:
    """Count the traces that this process reads at once: a worker process shares the processors with others."""
    if multiprocessing.parent_process() is not None:
        return 1
    # Not every system says which processors a process may use.
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # A cluster says so: Ray gives each of its workers one thread by this variable.
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(usable, MAX_THREADS, int(limit) if limit.isdecimal() and int(limit) else usable)


def bare_text(text: str) -> str:
    """Return a text without line breaks, outer spaces and the stop at its end."""
    return " ".join(text.split()).rstrip(".")


def choose_readers(model: str) -> tuple[str, ...]:
    """Return the models that read claims and answers: both read English.

    They learned from other texts and err on other claims: together they are better than either.
    """
    return (ENGLISH, MULTILINGUAL) if model == ENGLISH else (model,)


class EncoderSession:
    """The scores of one trace by the encoder; evidence and similarity are those of the embedded judge."""

    def __init__(self, query: str, history: Sequence[str], thresholds: EntailmentThresholds) -> None:
        self._query, self._history, self._thresholds = query, tuple(history), thresholds
        self._is_foreign = is_foreign(query)
        self.embedded = EmbeddedSession(query, thresholds)
        self._agreements: dict[tuple[str, str], float] = {}
        self._odds_by_claims: dict[tuple[str, ...], Array] = {}

    def is_refusal(self, answer: str) -> bool:
        """Return whether an answer refuses as a whole and in a sentence: a greeting before a "No" does not refuse."""
        sentences = (answer[start:end] for start, end in split_sentences(answer))
        # A line that only leads to the next ("Answer:") says nothing.
        return self.load_model(answer).predicts_refusal(answer, self._query) and any(
            self.is_refusal_sentence(text) for text in sentences if not text.rstrip("*_ ").endswith(":")
        )

    def is_refusal_sentence(self, sentence: str) -> bool:
        return self.load_model(sentence).predicts_refusal(sentence, self._query)

    def choose_model(self, *texts: str) -> str:
        """Return the model that reads some texts: the multilingual one if the query or one of them is not English."""
        is_other = self._is_foreign or any(is_foreign(text) for text in texts)
        return MULTILINGUAL if is_other else ENGLISH

    def load_model(self, *texts: str) -> EncoderModel:
        """Load the model that reads some texts."""
        return load_encoder(self.choose_model(*texts))

    def score_agreement(self, answer: str, references: Sequence[str]) -> float | None:
        refuses = self.is_refusal(answer)
        settled = {
            # A reference that says that there is no answer is stated by a refusal. Whether a claim is another thing is
            # read: a terse reference ("None") may be taken for a refusal.
            reference: True if refuses and self.is_refusal(reference) else settle_agreement(answer, reference)
            for reference in references
            if reference.strip()
        }
        if True in settled.values():
            return 1.0
        open_references = select_references(answer, [text for text, result in settled.items() if result is None])
        readings = [self._read_agreement(answer, reference) for reference in open_references]
        return round(max(readings), PROBABILITY_DIGITS) if readings else 0.0 if settled else None

    def _read_agreement(self, answer: str, reference: str) -> float:
        """Return the agreement with one reference; a pair is read once.

        The models read short references wrongly now and then: against one that is restated their reading is no
        evidence.
        """
        if (answer, reference) not in self._agreements:
            read = self._pool(
                lambda reader: load_encoder(reader).predict_agreement(self._query, reference, answer), answer, reference
            )
            lowest = fmean(AGREEMENT_UNSURE) if restates_reference(self._query, reference, answer) else 0.0
            self._agreements[answer, reference] = max(lowest, read)
        return self._agreements[answer, reference]

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        scores = self.embedded.score_relevance(query, passages)
        if TASK_QUERY.match(query) or not query.strip():
            return scores
        return [self._read_relevance(*pair, query) for pair in zip(passages, scores, strict=True)]

    def _read_relevance(self, passage: Passage, score: RelevanceScore, query: str) -> RelevanceScore:
        """Return the relevance of a passage by words and encoder; another section or version stays irrelevant."""
        if not passage.text.strip():
            return score._replace(value=0.0)
        if score.is_other_subject:
            return score
        folder = self.choose_model(query, passage.text)
        read = load_encoder(folder).read_relevance(query, evidence((passage.text,), query))
        return score._replace(value=load_stack(folder).predict_relevance(read, score.value))

    def read_answer(self, query: str, answer: str) -> float | None:
        if TASK_QUERY.match(query) or not query.strip() or not answer.strip():
            return None
        text = evidence((strip_marks(answer),), query)
        return self._pool(
            lambda reader: load_stack(reader).predict_answering(load_encoder(reader).read_relevance(query, text)),
            query,
            answer,
        )

    def _pool(self, predict: Callable[[str], float], *texts: str) -> float:
        """Pool the probabilities that the readers of some texts give; the second is asked if the first is unsure."""
        first, *others = choose_readers(self.choose_model(*texts))
        p = predict(first)
        if not UNSURE_READING[0] < p < UNSURE_READING[1]:
            return p
        return pool_probabilities([(1.0, p), *((1.0, predict(reader)) for reader in others)])

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        return self.embedded.score_coverage(query, passages)

    def prefetch(self, groups: Sequence[EntailmentGroup]) -> None:
        self.embedded.prefetch(groups)

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        located = self.embedded.score_entailment(claims, passages)
        signs = self.read_signs(claims, passages, reads_copies=False)
        if signs is None:
            return located
        if not signs.is_other_language:
            # By its words, which are English, the embedded judge takes tables and other languages for foreign.
            located = [item._replace(reason=None) if item.reason == FOREIGN_REASON else item for item in located]
        odds = np.where(signs.is_verbatim, VERBATIM_ODDS, load_stack(signs.model).predict_odds(signs.inputs))
        self._odds_by_claims.setdefault(tuple(claims), odds)
        support = predict_support(odds).tolist()
        return [self._decide(*parts) for parts in zip(located, support, signs.logits, strict=True)]

    def read_signs(
        self, claims: Sequence[str], passages: Sequence[Passage], *, reads_copies: bool = True
    ) -> ClaimSigns | None:
        """Return what the encoder and the words tell of claims; None if there is nothing to compare.

        Without `reads_copies` the encoder does not read claims that are a sentence of a passage: their logits are 0.
        """
        weighed = self.embedded.weigh_claims(claims, passages)
        if weighed is None:
            return None
        claims = [strip_marks(claim) for claim in claims]
        texts = tuple(passage.text for passage in passages if passage.text.strip())
        query = "" if TASK_QUERY.match(self._query) else self._query
        model = self.choose_model(" ".join(claims), " ".join(texts))
        overlap = weighed.features[:, FEATURE_COLUMNS["joint"]]
        sentences = {bare_text(text[part.start : part.end]) for text in texts for part in split_passage(text)}
        is_verbatim = np.array([bare_text(claim) in sentences for claim in claims])
        is_read = np.full(len(claims), True) if reads_copies else ~is_verbatim
        read_claims = list(compress(claims, is_read))
        known = {figure.value for figure in read_figures(" ".join((query, *self._history, *texts)))}
        computed = [
            explain_figures(claim, f"{query} {evidence(texts, claim, query, 1)}", known) for claim in read_claims
        ]
        readings = []
        for reader in choose_readers(model):
            pairs = [
                (
                    claim_text(claim, query, self._history),
                    f"{evidence(texts, claim, query, WINDOWS[reader])} {sums}".rstrip(),
                )
                for claim, sums in zip(read_claims, computed, strict=True)
            ]
            logits = np.zeros((len(claims), len(HEADS["entailment"])))
            logits[is_read] = load_encoder(reader).read_entailment(pairs)
            readings.append(logits)
        is_other = differ_in_language(" ".join(claims), " ".join(texts))
        return ClaimSigns(tuple(readings), weighed.odds, overlap, is_verbatim, model, is_other_language=is_other)

    def score_groundedness(self, answer: str, claims: Sequence[str], entailments: Sequence[Entailment]) -> float:  # noqa: ARG002
        odds = self._odds_by_claims.get(tuple(claims))
        if odds is None or any(entailment.reason == FOREIGN_REASON for entailment in entailments):
            return get_lowest_probability(entailments)
        return predict_groundedness(odds)

    def measure_similarity(self, left: str, right: str) -> float:
        return self.embedded.measure_similarity(left, right)

    def _decide(self, located: Entailment, p: float, logits: Array) -> Entailment:
        """Return the verdict on a claim: its label by the probability of support, its evidence as it was located."""
        if located.reason == FOREIGN_REASON:
            return located
        _, contradicted, not_stated = logits
        label: ClaimSupport
        if p >= self._thresholds.supported:
            label = "supported"
        elif p >= self._thresholds.inferred:
            label = "inferred"
        else:
            label = "contradicted" if contradicted > not_stated else "unsupported"
        stands = label in ("supported", "inferred")
        return located._replace(
            support=label,
            p=p,
            reason=None if stands else located.reason,
            unsure=UNSURE_RANGE[0] < p < UNSURE_RANGE[1],
            unsupported_spans=() if stands else located.unsupported_spans,
        )


class EncoderJudge(ScorerJudge):
    """A judge by a small encoder that was trained to read: on written contrasts, entailment sets and people's labels.

    It needs no key and no network. `threads` is the number of traces read at once: by default one for each processor,
    at most `MAX_THREADS`, and one in a worker process. Verdicts do not depend on it.
    """

    def __init__(self, *, supported: float = 0.7, inferred: float = 0.5, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise UsageError(f"threads is at least 1, got {threads}.")
        self._thresholds, self._threads = EntailmentThresholds(supported, inferred), threads

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        threads = min(self._threads or count_threads(), len(traces))
        if threads <= 1:
            return super().observe(traces)
        # Nearly all of the time is spent in the encoder, which lets other threads run.
        with use_one_thread(), ThreadPoolExecutor(threads) as pool:
            return list(pool.map(lambda trace: assemble_verdicts(trace, self, self.levels), traces))

    @property
    def fingerprint(self) -> str:
        return f"encoder/{VERSION} weights={digest_weights()} {self._thresholds}"

    def open_session(self, query: str = "", history: Sequence[str] = ()) -> EncoderSession:
        return EncoderSession(query, history, self._thresholds)
