"""Agreement: how far a judge agrees with people, on traces that people labelled."""

from ragfault.agreement.measuring import TASKS, measure
from ragfault.agreement.records import (
    Agreement,
    Bar,
    Columns,
    Curves,
    Figure,
    Marked,
    Measurement,
    MetricAgreement,
    Speed,
)

__all__ = [
    "TASKS",
    "Agreement",
    "Bar",
    "Columns",
    "Curves",
    "Figure",
    "Marked",
    "Measurement",
    "MetricAgreement",
    "Speed",
    "measure",
]
