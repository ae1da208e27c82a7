"""Defects that answers and lists show by themselves: repeated sentences or chunks, other units, lost endings, copies.

Each is a paired binary metric, tested with the others. They are a fault of their branch's layer where the decision tree
names none: the metrics of a judge may not see them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.comparison.decision_tree import BRANCHES
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.pairing import holds_all_chunks, normalize_space
from ragfault.comparison.pipeline_checks import is_shown_rise
from ragfault.comparison.records import LayerFault, MetricChange
from ragfault.comparison.stages.answer_evidence import repeats_itself, states_other_unit
from ragfault.diagnosis.causes.endings import OPEN_END
from ragfault.io.runs.run import MetricInfo
from ragfault.model.records import Layer, Trace

COPIES_METRIC = "copied_chunks"


class AnswerDefect(Struct, frozen=True, kw_only=True):
    """Defect of an answer or of its list of chunks, and the branch of the tree that it belongs to."""

    metric: str
    title: str
    # number of the branch
    branch: str
    # whether a trace shows it, given that of the other run
    shows: Callable[[Trace, Trace], bool]


def _is_unfinished(trace: Trace, other: Trace) -> bool:
    """Return whether an answer ends with a word that ends no sentence, and the other run's does not.

    >>> _is_unfinished(Trace(id="1", query="?", answer="A night costs the"), Trace(id="1", query="?", answer="£9."))
    True
    """
    ends = [bool(OPEN_END.search((side.answer or "").rstrip())) for side in (trace, other)]
    return ends == [True, False]


def _holds_copies(trace: Trace, other: Trace) -> bool:
    """Return whether a text stands twice among as many chunks as both runs retrieved."""
    depth = min(len(trace.chunks or ()), len(other.chunks or ()))
    texts = [normalize_space(chunk.text) for chunk in (trace.chunks or ())[:depth]]
    known = [text for text in texts if text]
    return len(set(known)) < len(known)


def _repeats_itself(trace: Trace, other: Trace) -> bool:
    """Return whether an answer repeats its own sentences, and not those of chunks of which its list gained copies."""
    return repeats_itself(trace) and (not _holds_copies(trace, other) or _holds_copies(other, trace))


DEFECTS = (
    AnswerDefect(
        metric="echoed_chunks",
        title="the answers repeat the text of all their chunks, as of the prompt",
        branch="6",
        shows=lambda trace, _: holds_all_chunks(trace.answer or "", [chunk.text for chunk in trace.chunks or ()]),
    ),
    AnswerDefect(
        metric="unfinished_answer",
        title="the answers end in the middle of a sentence",
        branch="4",
        shows=_is_unfinished,
    ),
    AnswerDefect(
        metric="repeated_answer", title="the answers repeat their own sentences", branch="6", shows=_repeats_itself
    ),
    AnswerDefect(
        metric="unit_mismatch",
        title="the answers give figures in other units than the chunks",
        branch="2",
        shows=lambda trace, _: states_other_unit(trace),
    ),
    AnswerDefect(
        metric=COPIES_METRIC, title="lists of chunks hold the same text more than once", branch="1", shows=_holds_copies
    ),
)
DEFECT_METRICS = tuple(defect.metric for defect in DEFECTS)


def is_defect(metric: str) -> bool:
    """Return whether a metric is that of a defect."""
    return metric in DEFECT_METRICS


def add_answer_defects(paired: PairedRuns) -> tuple[str, ...]:
    """Add the defects as metrics of the pairs with an answer on both sides; return those that differ on any pair."""
    if not paired.has_metric(DEFECTS[0].metric):
        for metric, (baseline, candidate) in _measure_defects(paired).items():
            layer: Layer = "retrieval" if metric == COPIES_METRIC else "generation"
            paired.add_metric(MetricInfo(metric, layer, "lower", 0.0, 1.0), baseline, candidate)
    return tuple(name for name in DEFECT_METRICS if bool(paired.find_moved(name).any()))


def _measure_defects(paired: PairedRuns) -> Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return the values of each defect on both sides; none is told of an answer that is the same on both."""
    rows = [paired.paired_rows(side) for side in (0, 1)]
    blank = paired.contents[0].blank[rows[0]] | paired.contents[1].blank[rows[1]]
    places = np.flatnonzero(~blank & ~(paired.pairing.same_answers & paired.pairing.same_chunks))
    measured = {}
    for defect in DEFECTS:
        measured[defect.metric] = np.where(blank, math.nan, np.zeros((2, len(blank))))
    for place, old, new in paired.iterate_pairs(places):
        for defect in DEFECTS:
            values, same = measured[defect.metric], paired.pairing.same_answers[place]
            if not math.isnan(values[0, place]) and (defect.metric == COPIES_METRIC or not same):
                values[0, place], values[1, place] = defect.shows(old, new), defect.shows(new, old)
    return {metric: (values[0], values[1]) for metric, values in measured.items()}


def find_defect_faults(changes: Sequence[MetricChange], alpha: float) -> list[LayerFault]:
    """Return a fault for each defect that significantly more answers have than before."""
    faults = []
    for change in changes:
        defect = next(item for item in DEFECTS if item.metric == change.metric)
        if is_shown_rise(change, alpha):
            branch = next(branch for branch in BRANCHES if branch.name.startswith(defect.branch))
            faults.append(branch.build_fault([change], title=defect.title))
    return faults
