"""Which builder makes the report of which record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ragfault.comparison.gate.records import GateResult
from ragfault.report.builders.gate import build_gate
from ragfault.report.document import ReportDocument

RECORD_BUILDERS: dict[type, Callable[[Any], ReportDocument]] = {GateResult: build_gate}
"""Type of a record → the function that builds its report."""
