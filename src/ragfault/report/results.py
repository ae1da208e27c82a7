"""Results of analyses as `print` and notebooks show them."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from ragfault.diagnosis.records import Findings
from ragfault.diagnosis.run_analysis import analyze
from ragfault.io.runs.run import Run
from ragfault.report.builders.catalogue import RECORD_BUILDERS
from ragfault.report.builders.scorecard import build_findings
from ragfault.report.renderers.html import render_html_fragment
from ragfault.report.renderers.terminal import render_terminal

MAX_LINES, COLUMNS = 40, 80


def render_result(result: Any) -> str:
    """Render a result in at most 40 lines of 80 columns; the last says how many more lines its report has.

    Raises KeyError for a type without a report.
    """
    build = RECORD_BUILDERS[type(result)]
    lines = render_terminal(build(result), width=COLUMNS).rstrip().splitlines()
    if len(lines) <= MAX_LINES:
        return "\n".join(lines)
    rest, call = len(lines) - MAX_LINES + 2, f"render_terminal({build.__name__}(result))"
    return "\n".join([*lines[: MAX_LINES - 2], f"… {rest} more lines; all of them, in ragfault.report:", call])


def render_result_html(result: Any) -> Markup:
    """Render a run or a result of an analysis as a fragment of HTML; a run is analyzed with the default targets.

    Raises KeyError for a type without a report.
    """
    if isinstance(result, Run):
        result = analyze(result)
    # A notebook has room for every metric, `print` for the verdict.
    build = build_findings if isinstance(result, Findings) else RECORD_BUILDERS[type(result)]
    return render_html_fragment(build(result))
