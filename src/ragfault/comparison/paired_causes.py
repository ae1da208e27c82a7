"""Whether the answers of paired traces are bad, and why, by the same answer key on both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.comparison.pairing import Mask, RunContents, TracePairing
from ragfault.comparison.renamed_ids import drop_claims
from ragfault.diagnosis.causes.rating import BAD_IF_REFUSED, build_rating
from ragfault.diagnosis.causes.records import AnswerCause
from ragfault.diagnosis.causes.storage import count_endings, rate_trace
from ragfault.diagnosis.causes.table import CAUSES, POSSIBLE
from ragfault.diagnosis.run_table import RunTable
from ragfault.model.causes import CauseName
from ragfault.model.gold_evidence import apply_gold
from ragfault.model.grouping import group_by
from ragfault.model.records import Trace, Verdicts
from ragfault.text.notices import Stretch

Notices = Mapping[int, Sequence[Stretch]]
"""Pair → the stretches of an answer that are a notice."""
CausePair = tuple[AnswerCause, AnswerCause]
"""The ratings and causes of a pair: those of the baseline and of the candidate."""


def pair_causes(
    tables: tuple[RunTable, RunTable],
    contents: tuple[RunContents, RunContents],
    pairing: TracePairing,
    other_keys: Mask,
    notices: tuple[Notices, Notices],
) -> list[CausePair]:
    """Rate the answers of each pair and name the causes of bad ones.

    An answer key that was edited between the runs is left out on both sides, gold on the pairs `other_keys`, and what
    an answer claims within a notice. If chunks, answer and error are the same, but for the form of the answer, it is
    rated once: what did not change cannot have become bad.
    """
    left, right = pairing.baseline, pairing.candidate
    edited = np.zeros(len(pairing), dtype=bool)
    for field in ("references", "facts", "answerable"):
        edited |= getattr(contents[0], field)[left] != getattr(contents[1], field)[right]
    same_answers = pairing.same_answers | pairing.other_form
    same = pairing.same_chunks & same_answers & (contents[0].errors[left] == contents[1].errors[right])
    before = _rate_rows(tables[0], left, other_keys, edited, notices[0])
    after = _rate_rows(tables[1], right, other_keys, edited, notices[1])
    pairs = [(old, old if known else new) for old, new, known in zip(before, after, same.tolist(), strict=True)]
    return [_settle_refusals(pair, known) for pair, known in zip(pairs, pairing.same_chunks.tolist(), strict=True)]


def _settle_refusals(pair: CausePair, same_chunks: bool) -> CausePair:
    """Return a pair in which a refusal of one run is bad if the other run answers the query rightly.

    The other run shows that the query has an answer: from the same chunks, generation refused it, else retrieval lost
    the passage.
    """
    name: CauseName = "refused" if same_chunks else "not_covered"
    settled = [
        replace(
            side,
            rating=build_rating(BAD_IF_REFUSED, "other run"),
            cause=name,
            stage=CAUSES[name].stage,
            probability=POSSIBLE,
            quote=side.query,
            reason="the other run answers it",
        )
        if side.rating.refused and other.rating.outcome == "right"
        else side
        for side, other in (pair, pair[::-1])
    ]
    return settled[0], settled[1]


def _rate_rows(
    table: RunTable, rows: NDArray[np.int64], other_gold: Mask, edited: Mask, notices: Notices
) -> list[AnswerCause]:
    """Return the ratings of some rows of a run, in their order: anew only where a part of key or answer is left out."""
    causes = [table.causes[row] for row in rows.tolist()]
    anew = {*np.flatnonzero(other_gold | edited).tolist(), *notices}
    hidden = group_by(sorted(anew), lambda place: table.ids[rows[place]])
    items, ids = table.labels.items if table.labels else {}, list(hidden)
    closed = bool(ids) and count_endings(table.run).closed
    for trace, verdicts in zip(table.run.traces(ids), table.run.verdicts(ids), strict=True) if ids else ():
        for place in hidden[trace.id]:
            shown, judged = _hide_key(trace, verdicts, gold=bool(other_gold[place]), rest=bool(edited[place]))
            seen = apply_gold(shown, judged) if table.run.manifest.gold == "apply" else judged
            seen = drop_claims(seen, notices[place]) if place in notices else seen
            causes[place] = rate_trace(shown, seen, items.get(trace.id, {}), closed=closed)
    return causes


def _hide_key(trace: Trace, verdicts: Verdicts, *, gold: bool, rest: bool) -> tuple[Trace, Verdicts]:
    if rest:
        keyless = replace(trace, gold=None, reference=None, facts=None, answerable=None)
        return keyless, replace(verdicts, recall=None, fact=None, truth=None)
    return (replace(trace, gold=None) if gold else trace), verdicts
