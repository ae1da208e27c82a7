"""Values of the checks on paired traces, added to these as metrics.

A trace counts once: one that failed is neither an empty retrieval nor a blank answer, and one for which nothing was
retrieved on one side only is neither a blank nor an uncited answer.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ragfault.comparison.checks.table import CHECK_METRICS, COPIES_METRIC, DEFECTS, STATIC_CHECKS
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.pairing import NOT_RECORDED, Mask
from ragfault.io.runs.run import MetricInfo
from ragfault.model.records import Layer

LEAST_CITED = 20
"""Pairs that still retrieve what the former answer drew on, from which lost citations are counted on these only."""

Values = NDArray[np.float64]


def add_checks(paired: PairedRuns) -> tuple[str, ...]:
    """Add the checks of the pipeline and the defects as metrics of the pairs; return those that differ on any pair.

    A check without a pair that differs has p = 1 whatever the signs, so that it is left out of the correction.
    """
    if not paired.has_metric(DEFECTS[0].metric):
        for metric, values in (_measure_pipeline(paired) | _measure_defects(paired)).items():
            layer: Layer = "operation" if metric in CHECK_METRICS else "generation"
            layer = "retrieval" if metric == COPIES_METRIC else layer
            if not paired.has_metric(metric):
                paired.add_metric(MetricInfo(metric, layer, "lower", 0.0, 1.0), *values)
    return tuple(name for name in STATIC_CHECKS if bool(paired.find_moved(name).any()))


def _measure_pipeline(paired: PairedRuns) -> dict[str, tuple[Values, Values]]:
    """Return the values of each check of the pipeline on both sides."""
    sides = list(zip(paired.contents, (paired.paired_rows(0), paired.paired_rows(1)), strict=True))
    errors = [contents.errors[rows] for contents, rows in sides]
    counts = [contents.chunk_counts[rows] for contents, rows in sides]
    blanks = [contents.blank[rows] for contents, rows in sides]
    cited = [contents.citation_counts[rows] for contents, rows in sides]
    failed = errors[0] | errors[1]
    emptied = (counts[0] == 0) != (counts[1] == 0)
    silent = failed | emptied
    # the answer is the same, whatever was retrieved or recorded
    unread = emptied & paired.pairing.same_answers
    uncited = bool((cited[0] == 0).any() or (cited[1] == 0).any())
    none = np.zeros(len(failed), dtype=bool)
    # a refusal has nothing to cite, nor has an answer whose passage is no longer retrieved
    excused = paired.find_refusals(0) | paired.find_refusals(1) if uncited else none
    if uncited and (paired.keeps_used_texts & ~excused).sum() >= LEAST_CITED:
        excused = excused | ~paired.keeps_used_texts
    measured = {
        "error": [(error, none) for error in errors],
        "empty_retrieval": [(count == 0, failed | unread | (count == NOT_RECORDED)) for count in counts],
        "blank_answer": [(blank, silent) for blank in blanks],
        "uncited_answer": [
            (count == 0, silent | excused | blanks[0] | blanks[1] | (count == NOT_RECORDED)) for count in cited
        ],
    }
    return {metric: (_to_values(*pair[0]), _to_values(*pair[1])) for metric, pair in measured.items()}


def _to_values(shown: Mask, undefined: Mask) -> Values:
    return np.where(undefined, math.nan, shown.astype(np.float64))


def _measure_defects(paired: PairedRuns) -> dict[str, tuple[Values, Values]]:
    """Return the values of each defect on both sides, where both answer; an answer that is the same shows none."""
    rows = [paired.paired_rows(side) for side in (0, 1)]
    blank = paired.contents[0].blank[rows[0]] | paired.contents[1].blank[rows[1]]
    places = np.flatnonzero(~blank & ~(paired.pairing.same_answers & paired.pairing.same_chunks))
    measured = {defect.metric: np.where(blank, math.nan, np.zeros((2, len(blank)))) for defect in DEFECTS}
    for place, old, new in paired.iterate_pairs(places):
        for defect in DEFECTS:
            if defect.metric == COPIES_METRIC or not paired.pairing.same_answers[place]:
                assert defect.shows is not None
                measured[defect.metric][:, place] = defect.shows(old, new), defect.shows(new, old)
    return {metric: (values[0], values[1]) for metric, values in measured.items()}
