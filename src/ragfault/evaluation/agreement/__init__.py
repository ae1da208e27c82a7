"""Agreement of judges with human labels, and of judges and annotators with each other."""

from ragfault.evaluation.agreement.judge_comparison import (
    JudgeComparison,
    JudgeDisagreement,
    KindAgreement,
    compare_judges,
    compare_run_judges,
)
from ragfault.evaluation.agreement.judge_measurement import TASKS, measure_judge
from ragfault.evaluation.agreement.measurement import (
    AgreementCurves,
    AgreementFigure,
    JudgeMeasurement,
    JudgeSpeed,
    LabelColumns,
    MetricAgreement,
    ScoreBin,
    SpanAgreement,
    UnitAgreement,
)

__all__ = [
    "TASKS",
    "AgreementCurves",
    "AgreementFigure",
    "JudgeComparison",
    "JudgeDisagreement",
    "JudgeMeasurement",
    "JudgeSpeed",
    "KindAgreement",
    "LabelColumns",
    "MetricAgreement",
    "ScoreBin",
    "SpanAgreement",
    "UnitAgreement",
    "compare_judges",
    "compare_run_judges",
    "measure_judge",
]
