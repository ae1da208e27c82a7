"""Which builder makes the report of which record."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ragfault.comparison.ablation.parts import Ablation
from ragfault.comparison.ablation.step_repair import StepRepairs
from ragfault.comparison.gate.records import GateResult
from ragfault.comparison.records import Bisection, Comparison
from ragfault.comparison.run_history import RunHistory
from ragfault.diagnosis.clusters.records import ClusterReport
from ragfault.diagnosis.records import Diagnosis, Findings
from ragfault.diagnosis.steps.records import StepFindings
from ragfault.judges.calibration import JudgeCalibration
from ragfault.judges.cards.card import JudgeCard
from ragfault.labels.judges.comparison import JudgeComparison
from ragfault.labels.judges.flakiness import JudgeFlakiness
from ragfault.labels.judges.measurement import JudgeMeasurement
from ragfault.labels.preferences import PreferenceReport
from ragfault.labels.rubrics.proofs import RubricMeasurement
from ragfault.report.builders.ablation import build_ablation
from ragfault.report.builders.agreement import build_calibration, build_measurement
from ragfault.report.builders.bisection import build_bisection
from ragfault.report.builders.clusters import build_clusters
from ragfault.report.builders.comparison import build_comparison
from ragfault.report.builders.diagnosis import build_diagnosis
from ragfault.report.builders.gate import build_gate
from ragfault.report.builders.judges import (
    build_flakiness,
    build_judge_card,
    build_judges,
    build_preferences,
    build_rubrics,
)
from ragfault.report.builders.run_history import build_history
from ragfault.report.builders.scorecard import build_verdict
from ragfault.report.builders.steps import build_repairs, build_steps

if TYPE_CHECKING:
    from ragfault.report.document import ReportDocument

RECORD_BUILDERS: dict[type, Callable[[Any], ReportDocument]] = {
    Ablation: build_ablation,
    Bisection: build_bisection,
    ClusterReport: build_clusters,
    Comparison: build_comparison,
    Diagnosis: build_diagnosis,
    Findings: build_verdict,
    GateResult: build_gate,
    JudgeCalibration: build_calibration,
    JudgeCard: build_judge_card,
    JudgeComparison: build_judges,
    JudgeFlakiness: build_flakiness,
    JudgeMeasurement: build_measurement,
    PreferenceReport: build_preferences,
    RubricMeasurement: build_rubrics,
    RunHistory: build_history,
    StepFindings: build_steps,
    StepRepairs: build_repairs,
}
"""Type of a record → the function that builds its report."""
