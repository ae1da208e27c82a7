"""Findings: what the scores and verdicts of a run mean, each figure with its counts and its interval."""

from ragfault.findings.bars import Bar, decide, read_bar
from ragfault.findings.diagnosis import diagnose
from ragfault.findings.gating import COVERAGE, gate
from ragfault.findings.health import LEVELS, health, level, quality, rag
from ragfault.findings.insights import insights
from ragfault.findings.kinds import KINDS, Meaning
from ragfault.findings.records import (
    Aggregate,
    Alert,
    Bucket,
    Decision,
    Diagnosis,
    Findings,
    Gate,
    Health,
    Insight,
    Kind,
    Pair,
    Problem,
    Quality,
    Rag,
    Reason,
    Remedy,
    Result,
    Scorecard,
)
from ragfault.findings.remedies import diagnoses, remedies, worst
from ragfault.findings.scorecard import PAIRS, TARGETS, pairs, scorecard, segments
from ragfault.findings.whole import find

__all__ = [
    "COVERAGE",
    "KINDS",
    "LEVELS",
    "PAIRS",
    "TARGETS",
    "Aggregate",
    "Alert",
    "Bar",
    "Bucket",
    "Decision",
    "Diagnosis",
    "Findings",
    "Gate",
    "Health",
    "Insight",
    "Kind",
    "Meaning",
    "Pair",
    "Problem",
    "Quality",
    "Rag",
    "Reason",
    "Remedy",
    "Result",
    "Scorecard",
    "decide",
    "diagnose",
    "diagnoses",
    "find",
    "gate",
    "health",
    "insights",
    "level",
    "pairs",
    "quality",
    "rag",
    "read_bar",
    "remedies",
    "scorecard",
    "segments",
    "worst",
]
