"""Units that judge and human labels share (answers, claims, sentences, chunks), each with score and label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragfault.labels.judges.measurement import UnitKind
from ragfault.labels.reading.labeled_traces import LabeledTrace
from ragfault.model.records import ClaimVerdict, Trace, Verdicts
from ragfault.model.rules import BAD_SUPPORT, settle_groundedness
from ragfault.stats.bootstrap import FloatArray
from ragfault.text.sentences import split_sentences

# threshold of the judge itself: from this score on it calls an answer bad and a chunk relevant
OWN_THRESHOLD = 0.5
# between these probabilities of an answer the judge is unsure of the answer
UNSURE_RANGE = (0.36, 0.64)
# agreement on grades is computed up to this highest grade
MAX_GRADE = 10

Bools = NDArray[np.bool_]


class JudgedUnit(NamedTuple):
    """Unit as the judge sees it."""

    # probability of the positive class (bad, or relevant), in [0, 1]
    score: float
    # the judge calls it positive
    called: bool
    # the judge is unsure; None where it does not say
    unsure: bool | None


class ScoredUnits(NamedTuple):
    """Units of one kind as parallel arrays."""

    unit: UnitKind
    score: FloatArray
    label: Bools
    called: Bools
    unsure: Bools | None
    # index of each unit's trace
    trace: NDArray[np.intp]
    # human and judge grades, where there are more than two
    grades: NDArray[np.intp] | None = None
    # characters of each answer or chunk; None for units within an answer
    lengths: FloatArray | None = None

    def select(self, mask: Bools | NDArray[np.intp]) -> ScoredUnits:
        """Select the units of a mask or of indices."""
        arrays: dict[str, Any] = {
            name: value[mask] for name, value in self._asdict().items() if isinstance(value, np.ndarray)
        }
        return self._replace(**arrays)


def build_units(kind: UnitKind, rows: Sequence[tuple[int, JudgedUnit, bool]]) -> ScoredUnits:
    """Build units from trace index, judged unit and human label."""
    unsure = [unit.unsure for _, unit, _ in rows]
    return ScoredUnits(
        unit=kind,
        score=np.array([unit.score for _, unit, _ in rows], np.float64),
        label=np.array([label for _, _, label in rows], bool),
        called=np.array([unit.called for _, unit, _ in rows], bool),
        unsure=None if None in unsure else np.array(unsure, bool),
        trace=np.array([index for index, _, _ in rows], np.intp),
    )


def match_units(first: ScoredUnits, second: ScoredUnits) -> tuple[ScoredUnits, ScoredUnits]:
    """Return the units of the traces on which both have as many, with the same labels, trace by trace."""
    pair = [units.select(np.argsort(units.trace, kind="stable")) for units in (first, second)]
    size = 1 + max((int(units.trace.max()) for units in pair if units.trace.size), default=-1)
    equal = np.equal(*(np.bincount(units.trace, minlength=size) for units in pair))
    left, right = (units.select(equal[units.trace]) for units in pair)
    differs = np.zeros(size, bool)
    differs[left.trace[left.label != right.label]] = True
    return left.select(~differs[left.trace]), right.select(~differs[right.trace])


def get_failure(verdicts: Verdicts, kind: str) -> str | None:
    """Return the reason of a failed part, if any."""
    return verdicts.failures.get("*") or verdicts.failures.get(kind)


def _bad_probability(claim: ClaimVerdict) -> float:
    """Return the probability that a claim is bad; without a probability, 0 or 1 by its label."""
    p = claim.p if claim.p is not None else float(claim.support not in BAD_SUPPORT)
    return 1.0 - p


def _worst_claim(claims: Sequence[ClaimVerdict]) -> JudgedUnit:
    """Return the worst claim as a unit; without claims nothing is bad."""
    if not claims:
        return JudgedUnit(0.0, False, False)
    worst = max(claims, key=_bad_probability)
    return JudgedUnit(_bad_probability(worst), any(claim.support in BAD_SUPPORT for claim in claims), worst.unsure)


def rate_answer(verdicts: Verdicts) -> JudgedUnit | None:
    """Return the answer as a unit: by its own probability, settled by its claims; None without a verdict."""
    grounded = verdicts.answer.grounded if verdicts.answer is not None else None
    worst = _worst_claim(verdicts.claim) if verdicts.claim is not None else None
    if grounded is None:
        return worst
    grounded = settle_groundedness(grounded, verdicts.claim or ())
    is_unsure = None if worst is None else UNSURE_RANGE[0] < grounded < UNSURE_RANGE[1]
    return JudgedUnit(1.0 - grounded, grounded < OWN_THRESHOLD, is_unsure)


def iterate_answers(
    labeled: Sequence[LabeledTrace], verdicts_by_trace: Sequence[Verdicts]
) -> Iterator[tuple[int, JudgedUnit, bool]]:
    """Yield every answer with a label and a verdict."""
    for index, (item, verdicts) in enumerate(zip(labeled, verdicts_by_trace, strict=True)):
        unit = rate_answer(verdicts)
        if unit is not None and item.positive is not None:
            yield index, unit, item.positive


def build_answer_units(labeled: Sequence[LabeledTrace], verdicts: Sequence[Verdicts]) -> ScoredUnits:
    """Build the units of every answer with a label and a verdict."""
    units = build_units("answer", list(iterate_answers(labeled, verdicts)))
    lengths = [len(labeled[index].trace.answer or "") for index in units.trace.tolist()]
    return units._replace(lengths=np.array(lengths, np.float64))


def iterate_chunks(
    labeled: Sequence[LabeledTrace], verdicts_by_trace: Sequence[Verdicts]
) -> Iterator[tuple[int, JudgedUnit, bool]]:
    """Yield every chunk with a grade and a verdict."""
    for index, (item, verdicts) in enumerate(zip(labeled, verdicts_by_trace, strict=True)):
        for verdict in verdicts.chunk or ():
            if item.grades is not None and verdict.chunk in item.grades:
                unit = JudgedUnit(verdict.relevance, verdict.relevance >= OWN_THRESHOLD, None)
                yield index, unit, item.grades[verdict.chunk].relevant


def build_chunk_units(labeled: Sequence[LabeledTrace], verdicts_by_trace: Sequence[Verdicts]) -> ScoredUnits:
    """Build the units of every chunk with a grade and a verdict; the judge's grade is its relevance in equal parts."""
    units = build_units("chunk", list(iterate_chunks(labeled, verdicts_by_trace)))
    graded = [
        (verdict.chunk, item.grades[verdict.chunk])
        for item, verdicts in zip(labeled, verdicts_by_trace, strict=True)
        for verdict in verdicts.chunk or ()
        if item.grades is not None and verdict.chunk in item.grades
    ]
    sizes = [{chunk.id: len(chunk.text) for chunk in item.trace.chunks or ()} for item in labeled]
    lengths = [sizes[index][chunk] for index, (chunk, _) in zip(units.trace.tolist(), graded, strict=True)]
    units = units._replace(lengths=np.array(lengths, np.float64))
    labels = [label for _, label in graded]
    grades = [label.grade for label in labels if label.grade is not None]
    max_grade = max((label.max_grade for label in labels), default=0)
    if len(grades) < len(labels) or not 1 < max_grade <= MAX_GRADE:
        return units
    judge_grades = np.minimum(np.floor(units.score * (max_grade + 1)), max_grade)
    return units._replace(grades=np.stack([np.array(grades), judge_grades], axis=1).astype(np.intp))


def iterate_claims(
    labeled: Sequence[LabeledTrace], verdicts_by_trace: Sequence[Verdicts], claim_verdicts: Sequence[Verdicts]
) -> Iterator[tuple[int, JudgedUnit, bool]]:
    """Yield every claim: labeled ones, else the judge's by the labeled spans, else the whole answer.

    A labeled claim within the answer is compared with the judge's claims that it overlaps; the others were
    judged as answers of their own (`claim_verdicts`, in the order of `derive_claim_traces`).
    """
    separate_verdicts = iter(claim_verdicts)
    for index, (item, verdicts) in enumerate(zip(labeled, verdicts_by_trace, strict=True)):
        if item.claims is not None:
            for claim in item.claims:
                separate = claim.start < 0
                unit = rate_answer(next(separate_verdicts)) if separate else None
                if not separate and verdicts.claim is not None:
                    unit = _worst_claim(_overlapping_claims(verdicts.claim, claim.start, claim.end))
                if unit is not None:
                    yield index, unit, claim.positive
        elif verdicts.claim is not None and _spans_complete(item):
            for judged_claim in verdicts.claim:
                marked = _overlaps_span(item.spans or (), judged_claim.start, judged_claim.end)
                yield index, _worst_claim([judged_claim]), marked
        elif item.spans is None and item.positive is not None and verdicts.claim is not None:
            yield index, _worst_claim(verdicts.claim), item.positive


def iterate_sentences(
    labeled: Sequence[LabeledTrace], verdicts_by_trace: Sequence[Verdicts]
) -> Iterator[tuple[int, JudgedUnit, bool]]:
    """Yield every sentence of the answers with labeled spans."""
    for index, (item, verdicts) in enumerate(zip(labeled, verdicts_by_trace, strict=True)):
        if verdicts.claim is not None and _spans_complete(item):
            for start, end in split_sentences(item.trace.answer or ""):
                unit = _worst_claim(_overlapping_claims(verdicts.claim, start, end))
                yield index, unit, _overlaps_span(item.spans or (), start, end)


def derive_claim_traces(labeled: Sequence[LabeledTrace]) -> list[Trace]:
    """Derive a trace from each labeled claim that is not part of its answer, over the same chunks."""
    return [
        Trace(id=f"{item.trace.id}#claim-{number}", query=item.trace.query, chunks=item.trace.chunks, answer=claim.text)
        for item in labeled
        for number, claim in enumerate(item.claims or ())
        if claim.start < 0
    ]


def _spans_complete(labeled: LabeledTrace) -> bool:
    """Check that the spans say all: not so for a bad answer without a span."""
    return labeled.spans is not None and (bool(labeled.spans) or not labeled.positive)


def _overlapping_claims(claims: Sequence[ClaimVerdict], start: int, end: int) -> list[ClaimVerdict]:
    return [claim for claim in claims if claim.start < end and start < claim.end]


def _overlaps_span(spans: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    return any(span_start < end and start < span_end for span_start, span_end in spans)


class SpanOverlap(NamedTuple):
    """Overlap of the labeled spans of one answer with the claims that the judge calls bad."""

    trace: int
    # for each span whether such a claim overlaps it
    touched: tuple[bool, ...]
    # characters that are labeled and in such a claim
    shared: int
    called: int
    marked: int


def iterate_spans(labeled: Sequence[LabeledTrace], verdicts_by_trace: Sequence[Verdicts]) -> Iterator[SpanOverlap]:
    """Yield the span overlap of every answer with labeled spans."""
    for index, (item, verdicts) in enumerate(zip(labeled, verdicts_by_trace, strict=True)):
        if verdicts.claim is not None and _spans_complete(item):
            bad_spans = [(claim.start, claim.end) for claim in verdicts.claim if claim.support in BAD_SUPPORT]
            called, marked = _character_set(bad_spans), _character_set(item.spans or ())
            touched = tuple(_overlaps_span(bad_spans, *span) for span in item.spans or ())
            yield SpanOverlap(index, touched, len(called & marked), len(called), len(marked))


def _character_set(spans: Sequence[tuple[int, int]]) -> set[int]:
    return {offset for start, end in spans for offset in range(start, end)}
