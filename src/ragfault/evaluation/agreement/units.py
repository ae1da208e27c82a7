"""Units that judge and human labels share (answers, claims, sentences, chunks), each with score and label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragfault.evaluation.agreement.labeled_traces import LabeledTrace
from ragfault.evaluation.agreement.measurement import UnitKind
from ragfault.records import ClaimVerdict, Trace, Verdicts
from ragfault.stats.clusters import FloatArray
from ragfault.text import split_sentences

OWN_THRESHOLD = 0.5
"""The judge's own word: from this score on it calls an answer bad and a chunk relevant."""
MAX_GRADE = 10
"""Up to this grade agreement on the grades themselves is taken."""
BAD_SUPPORT = ("unsupported", "contradicted")
"""The words for a claim that the judge calls bad."""

Bools = NDArray[np.bool_]


class JudgedUnit(NamedTuple):
    """One unit as the judge sees it."""

    score: float
    """How surely it is positive, in [0, 1]: bad, or relevant."""
    called: bool
    """Whether the judge calls it positive."""
    unsure: bool | None
    """Whether the judge says that it is unsure; None where it says nothing of that."""


class ScoredUnits(NamedTuple):
    """Units of one kind, one after the other."""

    unit: UnitKind
    score: FloatArray
    label: Bools
    called: Bools
    unsure: Bools | None
    trace: NDArray[np.intp]
    """The place of each unit's trace."""
    grades: NDArray[np.intp] | None = None
    """The grade of people and that of the judge, where there are more than two."""

    def select(self, mask: Bools) -> ScoredUnits:
        """Some of them."""
        unsure = None if self.unsure is None else self.unsure[mask]
        grades = None if self.grades is None else self.grades[mask]
        return ScoredUnits(
            self.unit, self.score[mask], self.label[mask], self.called[mask], unsure, self.trace[mask], grades
        )


def build_units(kind: UnitKind, rows: Sequence[tuple[int, JudgedUnit, bool]]) -> ScoredUnits:
    """Units from the place of the trace, what the judge says, and what people say."""
    doubts = [one.unsure for _, one, _ in rows]
    return ScoredUnits(
        unit=kind,
        score=np.array([one.score for _, one, _ in rows], np.float64),
        label=np.array([label for _, _, label in rows], bool),
        called=np.array([one.called for _, one, _ in rows], bool),
        unsure=None if None in doubts else np.array(doubts, bool),
        trace=np.array([place for place, _, _ in rows], np.intp),
    )


def get_failure(verdicts: Verdicts, part: str) -> str | None:
    """Why the judge lost a part, if it did."""
    return verdicts.failures.get("*") or verdicts.failures.get(part)


# --- what the judge says ---------------------------------------------------------------------------


def _bad_probability(claim: ClaimVerdict) -> float:
    """How surely a claim is bad; without a probability, by the judge's word."""
    p = claim.p if claim.p is not None else float(claim.support not in BAD_SUPPORT)
    return 1.0 - p


def _worst_claim(claims: Sequence[ClaimVerdict]) -> JudgedUnit:
    """The worst of some claims stands for all; where nothing is claimed, nothing is bad."""
    if not claims:
        return JudgedUnit(0.0, False, False)
    worst = max(claims, key=_bad_probability)
    return JudgedUnit(
        _bad_probability(worst), any(claim.support in BAD_SUPPORT for claim in claims), worst.unsure
    )


def _judge_answer(verdicts: Verdicts) -> JudgedUnit | None:
    """The answer as a whole: by its own probability, else by its worst claim; None where the judge is silent."""
    grounded = verdicts.answer.grounded if verdicts.answer is not None else None
    worst = _worst_claim(verdicts.claim) if verdicts.claim is not None else None
    if grounded is None:
        return worst
    return JudgedUnit(1.0 - grounded, grounded < OWN_THRESHOLD, worst.unsure if worst else None)


# --- beside what people say ------------------------------------------------------------------------


def iterate_answers(
    labeled: Sequence[LabeledTrace], verdicts_by_trace: Sequence[Verdicts]
) -> Iterator[tuple[int, JudgedUnit, bool]]:
    """Every answer that has a label and a verdict."""
    for place, (one, verdicts) in enumerate(zip(labeled, verdicts_by_trace, strict=True)):
        found = _judge_answer(verdicts)
        if found is not None and one.positive is not None:
            yield place, found, one.positive


def iterate_chunks(
    labeled: Sequence[LabeledTrace], verdicts_by_trace: Sequence[Verdicts]
) -> Iterator[tuple[int, JudgedUnit, bool]]:
    """Every chunk that has a grade and a verdict."""
    for place, (one, verdicts) in enumerate(zip(labeled, verdicts_by_trace, strict=True)):
        for verdict in verdicts.chunk or ():
            if one.grades is not None and verdict.chunk in one.grades:
                found = JudgedUnit(verdict.relevance, verdict.relevance >= OWN_THRESHOLD, None)
                yield place, found, one.grades[verdict.chunk].relevant


def build_chunk_units(labeled: Sequence[LabeledTrace], verdicts_by_trace: Sequence[Verdicts]) -> ScoredUnits:
    """Every chunk that has a grade and a verdict, with the grades where there are more than two.

    The judge's grade is its relevance cut into as many equal parts as there are grades; of four these are the levels.
    """
    found = build_units("chunk", list(iterate_chunks(labeled, verdicts_by_trace)))
    said = [
        one.grades[verdict.chunk]
        for one, verdicts in zip(labeled, verdicts_by_trace, strict=True)
        for verdict in verdicts.chunk or ()
        if one.grades is not None and verdict.chunk in one.grades
    ]
    whole = [each.grade for each in said if each.grade is not None]
    top = max((each.max_grade for each in said), default=0)
    if len(whole) < len(said) or not 1 < top <= MAX_GRADE:
        return found
    mine = np.minimum(np.floor(found.score * (top + 1)), top)
    return found._replace(grades=np.stack([np.array(whole), mine], axis=1).astype(np.intp))


def iterate_claims(
    labeled: Sequence[LabeledTrace], verdicts_by_trace: Sequence[Verdicts], claim_verdicts: Sequence[Verdicts]
) -> Iterator[tuple[int, JudgedUnit, bool]]:
    """Every claim: those of people, else the judge's under the marked stretches, else the whole answer as one.

    A claim of people that stands in the answer is held against the judge's claims that it touches; the others were
    judged as answers of their own (`beside`, in the order of `derived`).
    """
    rest = iter(claim_verdicts)
    for place, (one, verdicts) in enumerate(zip(labeled, verdicts_by_trace, strict=True)):
        if one.claims is not None:
            for claim in one.claims:
                apart = claim.start < 0
                found = _judge_answer(next(rest)) if apart else None
                if not apart and verdicts.claim is not None:
                    found = _worst_claim(_overlapping_claims(verdicts.claim, claim.start, claim.end))
                if found is not None:
                    yield place, found, claim.positive
        elif verdicts.claim is not None and _spans_complete(one):
            for seen_claim in verdicts.claim:
                marked = _overlaps_span(one.spans or (), seen_claim.start, seen_claim.end)
                yield place, _worst_claim([seen_claim]), marked
        elif one.spans is None and one.positive is not None and verdicts.claim is not None:
            yield place, _worst_claim(verdicts.claim), one.positive


def iterate_sentences(
    labeled: Sequence[LabeledTrace], verdicts_by_trace: Sequence[Verdicts]
) -> Iterator[tuple[int, JudgedUnit, bool]]:
    """Every sentence of the answers in which people marked what is bad."""
    for place, (one, verdicts) in enumerate(zip(labeled, verdicts_by_trace, strict=True)):
        if verdicts.claim is not None and _spans_complete(one):
            for start, end in split_sentences(one.trace.answer or ""):
                found = _worst_claim(_overlapping_claims(verdicts.claim, start, end))
                yield place, found, _overlaps_span(one.spans or (), start, end)


def derive_claim_traces(labeled: Sequence[LabeledTrace]) -> list[Trace]:
    """The claims of people that are not in their answers, each as an answer of its own over the same chunks."""
    return [
        Trace(
            id=f"{one.trace.id}#claim-{at}",
            query=one.trace.query,
            chunks=one.trace.chunks,
            answer=claim.text,
        )
        for one in labeled
        for at, claim in enumerate(one.claims or ())
        if claim.start < 0
    ]


def _spans_complete(labeled: LabeledTrace) -> bool:
    """Whether the marked stretches say all: not so where an answer is bad and nothing in it is marked."""
    return labeled.spans is not None and (bool(labeled.spans) or not labeled.positive)


def _overlapping_claims(claims: Sequence[ClaimVerdict], start: int, end: int) -> list[ClaimVerdict]:
    return [claim for claim in claims if claim.start < end and start < claim.end]


def _overlaps_span(spans: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    return any(left < end and start < right for left, right in spans)


# --- the marked stretches --------------------------------------------------------------------------


class SpanOverlap(NamedTuple):
    """The marked stretches of one answer beside the claims that the judge calls bad."""

    trace: int
    touched: tuple[bool, ...]
    """For each stretch whether such a claim touches it."""
    shared: int
    """Characters that are marked and in such a claim."""
    called: int
    marked: int


def iterate_spans(
    labeled: Sequence[LabeledTrace], verdicts_by_trace: Sequence[Verdicts]
) -> Iterator[SpanOverlap]:
    """The stretches of every answer in which people marked what is bad."""
    for place, (one, verdicts) in enumerate(zip(labeled, verdicts_by_trace, strict=True)):
        if verdicts.claim is not None and _spans_complete(one):
            bad = [(claim.start, claim.end) for claim in verdicts.claim if claim.support in BAD_SUPPORT]
            called, marked = _character_set(bad), _character_set(one.spans or ())
            found = tuple(_overlaps_span(bad, *span) for span in one.spans or ())
            yield SpanOverlap(place, found, len(called & marked), len(called), len(marked))


def _character_set(spans: Sequence[tuple[int, int]]) -> set[int]:
    return {at for start, end in spans for at in range(start, end)}
