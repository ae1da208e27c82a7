"""Findings: what the scores and verdicts of a run mean, each figure with its counts and its interval."""

from ragfault.findings.bars import Bar, decide, read_bar
from ragfault.findings.bisecting import bisect, bisect_segments
from ragfault.findings.changes import Bisection, Change, Clue, Comparison, Fault, Mover, Ruling, Telling
from ragfault.findings.comparing import ALPHA, MARGIN, POWER, compare, segmented
from ragfault.findings.correcting import Correction
from ragfault.findings.diagnosis import diagnose
from ragfault.findings.framing import Frame, frame
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
from ragfault.findings.rectifying import People, Rectification
from ragfault.findings.remedies import diagnoses, remedies, worst
from ragfault.findings.scorecard import PAIRS, TARGETS, pairs, scorecard, segments
from ragfault.findings.sequence import History, Step, history
from ragfault.findings.whole import find

__all__ = [
    "ALPHA",
    "COVERAGE",
    "KINDS",
    "LEVELS",
    "MARGIN",
    "PAIRS",
    "POWER",
    "TARGETS",
    "Aggregate",
    "Alert",
    "Bar",
    "Bisection",
    "Bucket",
    "Change",
    "Clue",
    "Comparison",
    "Correction",
    "Decision",
    "Diagnosis",
    "Fault",
    "Findings",
    "Frame",
    "Gate",
    "Health",
    "History",
    "Insight",
    "Kind",
    "Meaning",
    "Mover",
    "Pair",
    "People",
    "Problem",
    "Quality",
    "Rag",
    "Reason",
    "Rectification",
    "Remedy",
    "Result",
    "Ruling",
    "Scorecard",
    "Step",
    "Telling",
    "bisect",
    "bisect_segments",
    "compare",
    "decide",
    "diagnose",
    "diagnoses",
    "find",
    "frame",
    "gate",
    "health",
    "history",
    "insights",
    "level",
    "pairs",
    "quality",
    "rag",
    "read_bar",
    "remedies",
    "scorecard",
    "segmented",
    "segments",
    "worst",
]
