"""Analysis of runs: what the scores and verdicts mean, each figure with its counts and its interval."""

from ragfault.analysis.chunk_insights import compute_insights
from ragfault.analysis.comparison.attribution.config_differences import match_settings
from ragfault.analysis.comparison.bisection import bisect, bisect_segments
from ragfault.analysis.comparison.compare import compare, compare_segments
from ragfault.analysis.comparison.paired_runs import pair_runs
from ragfault.analysis.comparison.records import (
    Bisection,
    BranchDecision,
    BrokenSegment,
    Comparison,
    ExampleTrace,
    LayerFault,
    MetricChange,
    MovedTrace,
    SettingDifference,
)
from ragfault.analysis.comparison.run_history import MetricHistory, RunBreak, RunHistory, RunStep, history
from ragfault.analysis.correction import CardCorrection, HumanLabels, LabelProvenance
from ragfault.analysis.diagnosis import PROBLEM_KINDS
from ragfault.analysis.quality_gate import MIN_COVERAGE, gate
from ragfault.analysis.records import (
    ChunkInsight,
    Diagnosis,
    Findings,
    GateOutcome,
    GateResult,
    GoldAgreement,
    MetricAggregate,
    Scorecard,
    ThresholdDecision,
)
from ragfault.analysis.run_analysis import analyze, diagnose, diagnose_run, suggest_remedies, worst_traces
from ragfault.analysis.scorecard import (
    TARGETS,
    assess_health,
    assess_rag,
    build_scorecard,
    build_segments,
    count_quality,
    pair_tradeoffs,
    quality_level,
)
from ragfault.analysis.thresholds import Threshold, check_threshold, parse_threshold

__all__ = [
    "MIN_COVERAGE", "PROBLEM_KINDS", "TARGETS", "Bisection", "BranchDecision", "BrokenSegment", "CardCorrection",
    "ChunkInsight", "Comparison", "Diagnosis", "ExampleTrace", "Findings", "GateOutcome", "GateResult",
    "GoldAgreement", "HumanLabels", "LabelProvenance", "LayerFault", "MetricAggregate", "MetricChange",
    "MetricHistory", "MovedTrace", "RunBreak", "RunHistory", "RunStep", "Scorecard", "SettingDifference",
    "Threshold", "ThresholdDecision", "analyze", "assess_health", "assess_rag", "bisect", "bisect_segments",
    "build_scorecard", "build_segments", "check_threshold", "compare", "compare_segments", "compute_insights",
    "count_quality", "diagnose", "diagnose_run", "gate", "history", "match_settings", "pair_runs", "pair_tradeoffs",
    "parse_threshold", "quality_level", "suggest_remedies", "worst_traces",
]  # fmt: skip
