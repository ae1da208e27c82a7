"""Agreement of judges with human labels, and of judges and annotators with each other."""

from ragfault.evaluation.agreement.judge_calibration import calibrate_judge
from ragfault.evaluation.agreement.judge_comparison import (
    JudgeComparison,
    JudgeDisagreement,
    compare_judges,
    compare_run_judges,
)
from ragfault.evaluation.agreement.judge_measurement import measure_judge
from ragfault.evaluation.agreement.measurement import (
    AgreementCurves,
    GeneratorOrder,
    JudgeMeasurement,
    JudgeSpeed,
    MetricAgreement,
    UnitAgreement,
)

__all__ = [
    "AgreementCurves", "GeneratorOrder", "JudgeComparison", "JudgeDisagreement", "JudgeMeasurement", "JudgeSpeed",
    "MetricAgreement", "UnitAgreement", "calibrate_judge", "compare_judges", "compare_run_judges", "measure_judge",
]  # fmt: skip
