"""Trade-offs between metrics, new refusals that were right, and shorter answers that may say what was asked."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.recording.answer_pairs import cover_words, is_beginning
from ragfault.comparison.records import MetricChange
from ragfault.comparison.stages.answer_evidence import SENTENCE_END
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.model.grouping import group_positions
from ragfault.model.records import Trace, Verdicts
from ragfault.model.rules import RELEVANT_LEVELS
from ragfault.text.normalization import normalize_answer, split_content_words
from ragfault.text.number_format import format_percent

COUNTERPARTS = {
    "groundedness": ("completeness",),
    "completeness": ("groundedness",),
    "answer_relevance": ("groundedness", "context_adherence"),
    "context_recall": ("context_precision", "context_relevance"),
    "context_precision": ("context_recall",),
    "context_relevance": ("completeness", "context_recall", "recall", "span_recall"),
    "chunk_utilization": ("completeness", "context_recall", "recall", "span_recall"),
}
"""Metric → the metrics that may have risen at its expense, in the order in which they are named."""

REFUSED_METRICS = frozenset({"completeness", "answer_relevance"})
"""Metrics that a refusal lowers, right or wrong."""

# share of the new refusals that must be right in a trade-off
RIGHT_SHARE = 0.5
# share of the baseline's claims without support from which a refusal was better
UNSUPPORTED_SHARE = 0.5
# of the words of a shorter answer stand in the former answer or the chunks
KNOWN_SHARE = 0.8


class RefusalShift(Struct, frozen=True, eq=False):
    """New refusals of the candidate on the compared pairs."""

    pairs: NDArray[np.bool_]
    """Pairs on which the candidate refuses and the baseline answered."""
    accepted: NDArray[np.bool_]
    """Those of them on which refusing was right."""
    shares: tuple[float, float]
    """Share of refusals of the baseline and of the candidate."""

    @property
    def right_share(self) -> float:
        """Return the share of the new refusals that are right."""
        return float(self.accepted.sum() / self.pairs.sum()) if self.pairs.any() else 0.0

    def describe(self) -> str:
        """Describe the shift in words."""
        before, after = (format_percent(share) for share in self.shares)
        right = f"{format_percent(self.right_share)} of the new refusals are right"
        return f"the candidate refuses on {after} of the pairs, the baseline on {before}, and {right}"


def find_new_refusals(paired: PairedRuns, mask: NDArray[np.bool_] | None = None) -> RefusalShift:
    """Find the pairs on which only the candidate refuses, and those of them on which it was right to.

    A refusal is right where the query cannot be answered (`answerable` is False), or none of the gold was retrieved.
    Without a key: where the judge finds no relevant chunk, or the chunks do not support half of the claims of the
    baseline's answer.
    """
    size = len(paired.pairing)
    sides = [paired.find_refusals(side) for side in (0, 1)]
    inside = np.ones(size, dtype=bool) if mask is None else mask
    newly = ~sides[0] & sides[1] & inside
    right = np.zeros(size, dtype=bool)
    places = np.flatnonzero(newly).tolist()
    rows = [paired.paired_rows(side)[places].tolist() for side in (0, 1)]
    old_rows, places_by_row = set(rows[0]), group_positions(rows[1])
    unsupported = {
        row: _unsupported_share(verdicts) for row, verdicts in enumerate(paired.runs[0].verdicts()) if row in old_rows
    }
    run = paired.runs[1]
    for row, (trace, verdicts) in enumerate(zip(run.traces(), run.verdicts(), strict=True)):
        for position in places_by_row.get(row, ()):
            right[places[position]] = _refusal_is_right(trace, verdicts, unsupported[rows[0][position]])
    count = max(1, int(inside.sum()))
    return RefusalShift(
        newly, right, (float((sides[0] & inside).sum()) / count, float((sides[1] & inside).sum()) / count)
    )


def _unsupported_share(verdicts: Verdicts) -> float:
    claims = verdicts.claim or ()
    return sum(claim.support in ("unsupported", "contradicted") for claim in claims) / len(claims) if claims else 0.0


def _refusal_is_right(trace: Trace, verdicts: Verdicts, unsupported: float) -> bool:
    if trace.answerable is not None:
        return not trace.answerable
    if trace.gold is not None and trace.gold.chunks and trace.chunks is not None:
        return not any(trace.gold.chunks.get(chunk.id, 0.0) > 0 for chunk in trace.chunks)
    relevant = any(chunk.level in RELEVANT_LEVELS for chunk in verdicts.chunk or ())
    return (verdicts.chunk is not None and not relevant) or unsupported >= UNSUPPORTED_SHARE


def find_gain(change: MetricChange, changes: Mapping[str, MetricChange]) -> MetricChange | None:
    """Return the counterpart of a metric that got better where the metric got worse; None where none is shown."""
    for name in COUNTERPARTS.get(metric_name(change.metric), ()):
        gain = changes.get(name)
        if gain is not None and gain.verdict == "better":
            return gain
    return None


def is_outweighed(change: MetricChange, changes: Mapping[str, MetricChange]) -> bool:
    """Return whether a metric that a refusal lowers fell by less than its counterpart got better."""
    gain = find_gain(change, changes) if metric_name(change.metric) in REFUSED_METRICS else None
    if gain is None or gain.difference is None or change.difference is None:
        return False
    return abs(gain.difference.mean) > abs(change.difference.mean)


def find_exact_answers(paired: PairedRuns, mask: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
    """Return the pairs on which the candidate's answer is shorter and holds the reference in full.

    Where facts tell what else an answer must say, it must be the reference itself: a judge that misses facts there
    would miss them in the reference.
    """
    exact = np.zeros(len(paired.pairing), dtype=bool)
    inside = ~paired.pairing.same_answers if mask is None else ~paired.pairing.same_answers & mask
    keyed = paired.contents[1].references[paired.paired_rows(1)] != 0
    for place, old, new in paired.iterate_pairs(np.flatnonzero(inside & keyed)):
        if len(new.answer or "") < len(old.answer or ""):
            answer = normalize_answer(new.answer or "")
            forms = list(filter(None, map(normalize_answer, new.references)))
            exact[place] = answer in forms if new.facts else any(f" {form} " in f" {answer} " for form in forms)
    return exact


def _join_known(old: Trace, new: Trace) -> str:
    """Join what an answer may know: the former answer and the chunks of both sides."""
    return " ".join([old.answer or "", *(chunk.text for chunk in (*(old.chunks or ()), *(new.chunks or ())))])


def find_shorter_answers(
    paired: PairedRuns, mask: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.bool_], tuple[float, float]]:
    """Return the pairs without references and facts whose answer is shorter in known words, and its median lengths.

    Most of its words stand in the other answer or the chunks, and it does not refuse. Where most such answers break
    off, as beginnings of the baseline's, those that do are left out.
    """
    inside = ~paired.pairing.same_answers & ~paired.find_refusals(1) & (True if mask is None else mask)
    for side in (0, 1):
        contents, rows = paired.contents[side], paired.paired_rows(side)
        inside &= (contents.references[rows] == 0) & (contents.facts[rows] == 0) & ~contents.blank[rows]
    lengths: dict[int, tuple[int, int]] = {}
    broken_off = set()
    for place, old, new in paired.iterate_pairs(np.flatnonzero(inside)):
        former, text = (" ".join((trace.answer or "").split()) for trace in (old, new))
        words, sizes = frozenset(split_content_words(text)), (len(former.split()), len(text.split()))
        if sizes[1] < sizes[0] and (not words or cover_words(words, [_join_known(old, new)]) >= KNOWN_SHARE):
            lengths[place] = sizes
            if is_beginning(text, former) and not SENTENCE_END.search(text.removesuffix("…").removesuffix("...")):
                broken_off.add(place)
    if 2 * len(broken_off) > len(lengths):
        lengths = {place: sizes for place, sizes in lengths.items() if place not in broken_off}
    pairs = np.zeros(len(inside), dtype=bool)
    pairs[list(lengths)] = True
    before, after = (median([sizes[at] for sizes in lengths.values()] or [0]) for at in (0, 1))
    return pairs, (before, after)
