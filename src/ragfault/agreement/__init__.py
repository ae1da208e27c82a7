"""Agreement: how far a judge agrees with people, on traces that people labelled."""

from ragfault.agreement.beside import (
    JudgesCompared,
    KindAgreement,
    Split,
    compare_judges,
    compare_runs,
)
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
    "JudgesCompared",
    "KindAgreement",
    "Marked",
    "Measurement",
    "MetricAgreement",
    "Speed",
    "Split",
    "compare_judges",
    "compare_runs",
    "measure",
]
