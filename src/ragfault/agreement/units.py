"""The units that judge and people both speak of: answers, claims, sentences, chunks; a score and a label each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragfault.agreement.gathering import Labelled
from ragfault.agreement.records import Unit
from ragfault.records import ClaimVerdict, Trace, Verdicts
from ragfault.stats.groups import Floats
from ragfault.text import sentences

__all__ = [
    "BAR",
    "Stretch",
    "Units",
    "answers",
    "chunks",
    "claims",
    "derived",
    "failure",
    "marks",
    "relevances",
    "stretches",
    "units",
]

BAR = 0.5
"""The judge's own word: from this score on it calls an answer bad and a chunk relevant."""
STEPS = 10
"""Up to this grade agreement on the grades themselves is taken."""
REFUSED = ("unsupported", "contradicted")
"""The words for a claim that the judge calls bad."""

Bools = NDArray[np.bool_]


class One(NamedTuple):
    """One unit as the judge sees it."""

    score: float
    """How surely it is positive, in [0, 1]: bad, or relevant."""
    own: bool
    """Whether the judge calls it positive."""
    unsure: bool | None
    """Whether the judge says that it is unsure; None where it says nothing of that."""


class Units(NamedTuple):
    """Units of one kind, one after the other."""

    unit: Unit
    score: Floats
    label: Bools
    own: Bools
    unsure: Bools | None
    trace: NDArray[np.intp]
    """The place of each unit's trace."""
    grades: NDArray[np.intp] | None = None
    """The grade of people and that of the judge, where there are more than two."""

    def of(self, kept: Bools) -> Units:
        """Some of them."""
        unsure = None if self.unsure is None else self.unsure[kept]
        grades = None if self.grades is None else self.grades[kept]
        return Units(
            self.unit, self.score[kept], self.label[kept], self.own[kept], unsure, self.trace[kept], grades
        )


def units(kind: Unit, found: Sequence[tuple[int, One, bool]]) -> Units:
    """Units from the place of the trace, what the judge says, and what people say."""
    doubts = [one.unsure for _, one, _ in found]
    return Units(
        unit=kind,
        score=np.array([one.score for _, one, _ in found], np.float64),
        label=np.array([label for _, _, label in found], bool),
        own=np.array([one.own for _, one, _ in found], bool),
        unsure=None if None in doubts else np.array(doubts, bool),
        trace=np.array([place for place, _, _ in found], np.intp),
    )


def failure(verdicts: Verdicts, part: str) -> str | None:
    """Why the judge lost a part, if it did."""
    return verdicts.failures.get("*") or verdicts.failures.get(part)


# --- what the judge says ---------------------------------------------------------------------------


def _doubt(claim: ClaimVerdict) -> float:
    """How surely a claim is bad; without a probability, by the judge's word."""
    p = claim.p if claim.p is not None else float(claim.support not in REFUSED)
    return 1.0 - p


def _worst(seen: Sequence[ClaimVerdict]) -> One:
    """The worst of some claims stands for all; where nothing is claimed, nothing is bad."""
    if not seen:
        return One(0.0, False, False)
    worst = max(seen, key=_doubt)
    return One(_doubt(worst), any(claim.support in REFUSED for claim in seen), worst.unsure)


def _answer(verdicts: Verdicts) -> One | None:
    """The answer as a whole: by its own probability, else by its worst claim; None where the judge is silent."""
    grounded = verdicts.answer.grounded if verdicts.answer is not None else None
    worst = _worst(verdicts.claim) if verdicts.claim is not None else None
    if grounded is None:
        return worst
    return One(1.0 - grounded, grounded < BAR, worst.unsure if worst else None)


# --- beside what people say ------------------------------------------------------------------------


def answers(labelled: Sequence[Labelled], seen: Sequence[Verdicts]) -> Iterator[tuple[int, One, bool]]:
    """Every answer that has a label and a verdict."""
    for place, (one, verdicts) in enumerate(zip(labelled, seen, strict=True)):
        found = _answer(verdicts)
        if found is not None and one.positive is not None:
            yield place, found, one.positive


def chunks(labelled: Sequence[Labelled], seen: Sequence[Verdicts]) -> Iterator[tuple[int, One, bool]]:
    """Every chunk that has a grade and a verdict."""
    for place, (one, verdicts) in enumerate(zip(labelled, seen, strict=True)):
        for verdict in verdicts.chunk or ():
            if one.grades is not None and verdict.chunk in one.grades:
                found = One(verdict.relevance, verdict.relevance >= BAR, None)
                yield place, found, one.grades[verdict.chunk].relevant


def relevances(labelled: Sequence[Labelled], seen: Sequence[Verdicts]) -> Units:
    """Every chunk that has a grade and a verdict, with the grades where there are more than two.

    The judge's grade is its relevance cut into as many equal parts as there are grades; of four these are the levels.
    """
    found = units("chunk", list(chunks(labelled, seen)))
    said = [
        one.grades[verdict.chunk]
        for one, verdicts in zip(labelled, seen, strict=True)
        for verdict in verdicts.chunk or ()
        if one.grades is not None and verdict.chunk in one.grades
    ]
    whole = [each.grade for each in said if each.grade is not None]
    top = max((each.top for each in said), default=0)
    if len(whole) < len(said) or not 1 < top <= STEPS:
        return found
    mine = np.minimum(np.floor(found.score * (top + 1)), top)
    return found._replace(grades=np.stack([np.array(whole), mine], axis=1).astype(np.intp))


def claims(
    labelled: Sequence[Labelled], seen: Sequence[Verdicts], beside: Sequence[Verdicts]
) -> Iterator[tuple[int, One, bool]]:
    """Every claim: those of people, else the judge's under the marked stretches, else the whole answer as one.

    A claim of people that stands in the answer is held against the judge's claims that it touches; the others were
    judged as answers of their own (`beside`, in the order of `derived`).
    """
    rest = iter(beside)
    for place, (one, verdicts) in enumerate(zip(labelled, seen, strict=True)):
        if one.claims is not None:
            for claim in one.claims:
                apart = claim.start < 0
                found = _answer(next(rest)) if apart else None
                if not apart and verdicts.claim is not None:
                    found = _worst(_touching(verdicts.claim, claim.start, claim.end))
                if found is not None:
                    yield place, found, claim.positive
        elif verdicts.claim is not None and _telling(one):
            for seen_claim in verdicts.claim:
                marked = _touches(one.spans or (), seen_claim.start, seen_claim.end)
                yield place, _worst([seen_claim]), marked
        elif one.spans is None and one.positive is not None and verdicts.claim is not None:
            yield place, _worst(verdicts.claim), one.positive


def stretches(labelled: Sequence[Labelled], seen: Sequence[Verdicts]) -> Iterator[tuple[int, One, bool]]:
    """Every sentence of the answers in which people marked what is bad."""
    for place, (one, verdicts) in enumerate(zip(labelled, seen, strict=True)):
        if verdicts.claim is not None and _telling(one):
            for start, end in sentences(one.trace.answer or ""):
                found = _worst(_touching(verdicts.claim, start, end))
                yield place, found, _touches(one.spans or (), start, end)


def derived(labelled: Sequence[Labelled]) -> list[Trace]:
    """The claims of people that are not in their answers, each as an answer of its own over the same chunks."""
    return [
        Trace(
            id=f"{one.trace.id}#claim-{at}",
            query=one.trace.query,
            chunks=one.trace.chunks,
            answer=claim.text,
        )
        for one in labelled
        for at, claim in enumerate(one.claims or ())
        if claim.start < 0
    ]


def _telling(one: Labelled) -> bool:
    """Whether the marked stretches say all: not so where an answer is bad and nothing in it is marked."""
    return one.spans is not None and (bool(one.spans) or not one.positive)


def _touching(seen: Sequence[ClaimVerdict], start: int, end: int) -> list[ClaimVerdict]:
    return [claim for claim in seen if claim.start < end and start < claim.end]


def _touches(spans: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    return any(left < end and start < right for left, right in spans)


# --- the marked stretches --------------------------------------------------------------------------


class Stretch(NamedTuple):
    """The marked stretches of one answer beside the claims that the judge calls bad."""

    trace: int
    found: tuple[bool, ...]
    """For each stretch whether such a claim touches it."""
    both: int
    """Characters that are marked and in such a claim."""
    called: int
    marked: int


def marks(labelled: Sequence[Labelled], seen: Sequence[Verdicts]) -> Iterator[Stretch]:
    """The stretches of every answer in which people marked what is bad."""
    for place, (one, verdicts) in enumerate(zip(labelled, seen, strict=True)):
        if verdicts.claim is not None and _telling(one):
            bad = [(claim.start, claim.end) for claim in verdicts.claim if claim.support in REFUSED]
            called, marked = _characters(bad), _characters(one.spans or ())
            found = tuple(_touches(bad, *span) for span in one.spans or ())
            yield Stretch(place, found, len(called & marked), len(called), len(marked))


def _characters(spans: Sequence[tuple[int, int]]) -> set[int]:
    return {at for start, end in spans for at in range(start, end)}
