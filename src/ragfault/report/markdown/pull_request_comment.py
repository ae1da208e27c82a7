"""Comment on a pull request: the verdict on its first line, the evidence below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragfault.report.builders.bisection import build_bisection, summarize_bisection
from ragfault.report.builders.gate import build_gate
from ragfault.report.builders.scorecard import build_findings
from ragfault.report.document import Details, VerdictMark
from ragfault.report.markdown.syntax import escape_markdown, format_code
from ragfault.report.renderers.markdown import render_markdown_blocks, render_markdown_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragfault.comparison.gate.records import GateResult
    from ragfault.comparison.records import Bisection
    from ragfault.diagnosis.records import Findings
    from ragfault.report.app_sections import AppSection

MAX_COMMENT_LENGTH = 60_000
"""Characters: GitHub takes 65,536, GitLab a million."""

RULES_SHOWN = 3
"""Rules on the first line."""

COMMENT_MARKER = "<!-- ragfault -->"
"""The last line, by which a later comment of ragfault finds the one to replace."""


def render_comment(
    decision: GateResult | None,
    bisection_result: Bisection | None,
    findings: Findings | None = None,
    notes: tuple[str, ...] = (),
    sections: Sequence[AppSection] = (),
) -> str:
    """Render a gate, a bisection, or both, as the Markdown of one comment.

    The first line is the layer that broke where one did, else what the gate decided and by which rules, else that
    nothing was asked. Below it stand `notes`, the bisection and, folded, the gate's tables, the `sections` of apps, and
    the scorecard. What would make it longer than `MAX_COMMENT_LENGTH` is left out from the end, and that is said.

    >>> render_comment(None, None, notes=("no baseline",)).splitlines()[0]
    '### ❔ ragfault: evaluated without thresholds or a baseline'
    """
    parts = [_build_title(decision, bisection_result), "\n".join(f"> {escape_markdown(note)}" for note in notes)]
    if bisection_result is not None:
        # The title of the comment states the verdict already.
        parts.append(render_markdown_blocks(build_bisection(bisection_result).blocks[1:]))
    if decision is not None:
        folded = Details("Every threshold and metric", build_gate(decision, title_level=2).blocks)
        parts.append(render_markdown_blocks([folded]))
    parts += [render_markdown_blocks([Details(section.title, tuple(section.blocks[1:]))]) for section in sections]
    if findings is not None:
        parts.append(render_markdown_blocks([Details("Scorecard", build_findings(findings).blocks)]))
    return _limit_length([part.strip() for part in parts if part.strip()])


def _build_title(gate: GateResult | None, bisection: Bisection | None) -> str:
    if bisection is not None and bisection.verdict == "fault":
        return f"### ❌ {escape_markdown(summarize_bisection(bisection))}"
    if gate is None and bisection is None:
        return "### ❔ ragfault: evaluated without thresholds or a baseline"
    sentences = [] if gate is None else [_summarize_gate(gate)]
    sentences += [] if bisection is None else [escape_markdown(summarize_bisection(bisection)).rstrip(".")]
    return f"### {'❔ ' if gate is None else ''}{'. '.join(sentences)}"


def _summarize_gate(gate: GateResult) -> str:
    """Summarize what a gate decided, and the rules that it hangs on."""
    rules = [str(row.threshold) for row in gate.decisions if row.result == gate.result]
    rules += [row.rule for row in gate.regression_decisions if row.result == gate.result]
    mark = render_markdown_text(VerdictMark(gate.result))
    if gate.result == "pass":
        return f"{mark}: {len(rules)} of {len(rules)}"
    more = f" and {len(rules) - RULES_SHOWN} more" if len(rules) > RULES_SHOWN else ""
    return f"{mark}: {', '.join(map(format_code, rules[:RULES_SHOWN]))}{more}"


def _limit_length(parts: list[str]) -> str:
    """Limit as many parts as there is room for, from the first on."""
    shown: list[str] = []
    left = MAX_COMMENT_LENGTH
    for part in parts:
        if len(part) > left:
            shown.append("*The rest is too long for a comment: it is in the reports of this job.*")
            break
        shown.append(part)
        left -= len(part)
    return "\n\n".join([*shown, COMMENT_MARKER]) + "\n"
