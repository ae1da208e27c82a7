"""Tuning: search for the best retrieval pipeline and prove its gain on held-out questions."""

from ragfault.tuning.pitfalls import lint
from ragfault.tuning.results import (
    Bound,
    FrontierPoint,
    Gain,
    MeasuredPipeline,
    QuestionOutcome,
    TuningQuestion,
    TuningResult,
)
from ragfault.tuning.search_space import SearchSpace, default_space
from ragfault.tuning.tuner import tune

__all__ = [
    "Bound", "FrontierPoint", "Gain", "MeasuredPipeline", "QuestionOutcome", "SearchSpace", "TuningQuestion",
    "TuningResult", "default_space", "lint", "tune",
]  # fmt: skip
