"""Which builder makes the report of which record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ragfault.comparison.gate.records import GateResult
from ragfault.comparison.records import Bisection, Comparison
from ragfault.comparison.run_history import RunHistory
from ragfault.diagnosis.records import Diagnosis, Findings
from ragfault.report.builders.bisection import build_bisection
from ragfault.report.builders.comparison import build_comparison
from ragfault.report.builders.diagnosis import build_diagnosis
from ragfault.report.builders.gate import build_gate
from ragfault.report.builders.run_history import build_history
from ragfault.report.builders.scorecard import build_verdict
from ragfault.report.document import ReportDocument

RECORD_BUILDERS: dict[type, Callable[[Any], ReportDocument]] = {
    Bisection: build_bisection,
    Comparison: build_comparison,
    Diagnosis: build_diagnosis,
    Findings: build_verdict,
    GateResult: build_gate,
    RunHistory: build_history,
}
"""Type of a record → the function that builds its report."""
