"""Results of analyses as `print` shows them: their report for the terminal, cut to 40 lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ragfault.diagnosis.records import Diagnosis, Findings
from ragfault.report.builders.catalogue import RECORD_BUILDERS
from ragfault.report.renderers.terminal import render_terminal
from ragfault.report.terminal.scorecard import render_diagnoses_terminal, render_summary_terminal

MAX_LINES, COLUMNS = 40, 80

RESULT_RENDERERS: dict[type, Callable[..., str]] = {Findings: render_summary_terminal}
"""Type of a result → the function that renders it in full."""


def render_result(result: Any) -> str:
    """Render a result in at most 40 lines of 80 columns; the last says how many more lines its report has.

    Raises KeyError for a type without a report.
    """
    if build := RECORD_BUILDERS.get(type(result)):
        text, call = render_terminal(build(result), width=COLUMNS), f"render_terminal({build.__name__}(result))"
    elif isinstance(result, Diagnosis):
        text, call = (
            render_diagnoses_terminal([result], width=COLUMNS),
            f"{render_diagnoses_terminal.__name__}([result])",
        )
    else:
        render = RESULT_RENDERERS[type(result)]
        text, call = render(result, width=COLUMNS), f"{render.__name__}(result)"
    lines = text.rstrip().splitlines()
    if len(lines) <= MAX_LINES:
        return "\n".join(lines)
    rest = len(lines) - MAX_LINES + 2
    return "\n".join([*lines[: MAX_LINES - 2], f"… {rest} more lines; all of them, in ragfault.report:", call])
