"""Relevance of the chunks of a pair at equal depth: over as many chunks as both runs retrieved."""

from __future__ import annotations

import math

import numpy as np

from ragfault.comparison.decision_tree import EQUAL_DEPTH
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.io.runs.run import MetricInfo

# weights of context_relevance
LEVEL_WEIGHTS = {"high": 1.0, "medium": 0.7, "low": 0.3, "none": 0.0}


def add_equal_depth(paired: PairedRuns) -> None:
    """Add context_relevance at equal depth: over as many chunks of each pair as both runs retrieved."""
    if paired.has_metric(EQUAL_DEPTH):
        return
    levels = [[[LEVEL_WEIGHTS[level] for level in levels] for levels in paired.chunk_levels(side)] for side in (0, 1)]
    left = np.full(len(paired.pairing), math.nan)
    right = np.full(len(paired.pairing), math.nan)
    rows = zip(paired.pairing.baseline.tolist(), paired.pairing.candidate.tolist(), strict=True)
    for at, (old, new) in enumerate(rows):
        depth = min(len(levels[0][old]), len(levels[1][new]))
        if depth:
            left[at] = sum(levels[0][old][:depth]) / depth
            right[at] = sum(levels[1][new][:depth]) / depth
    if bool(np.isfinite(left).any()):
        paired.add_metric(MetricInfo(EQUAL_DEPTH, "retrieval"), left, right)
