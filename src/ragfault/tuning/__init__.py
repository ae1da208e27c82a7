"""Tuning: a search for the pipeline that finds best, whose gain is proved on questions that it was not tuned on."""

from ragfault.tuning.pitfalls import Pitfall, lint
from ragfault.tuning.records import Bound, Gain, Outcome, Point, Question, Row, Tried, Tuned
from ragfault.tuning.running import tune
from ragfault.tuning.space import Space, default_space, grid

__all__ = [
    "Bound",
    "Gain",
    "Outcome",
    "Pitfall",
    "Point",
    "Question",
    "Row",
    "Space",
    "Tried",
    "Tuned",
    "default_space",
    "grid",
    "lint",
    "tune",
]
