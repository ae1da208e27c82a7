"""Report of a run as one self-contained HTML page.

The page fetches nothing: type is the system's, charts are drawn, traces lie packed inside. Its content security
policy allows only the one script and the one style sheet it carries, by their hashes. Texts of traces reach it
escaped, or through the script as text nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from markupsafe import Markup

from ragfault.diagnosis.causes.table import CAUSES
from ragfault.diagnosis.diagnosis import PROBLEM_KINDS
from ragfault.diagnosis.records import Findings
from ragfault.diagnosis.run_analysis import analyze
from ragfault.io.runs.run import Manifest, Run
from ragfault.io.runs.samples import sample_run
from ragfault.judges.cards.card import list_cards
from ragfault.labels.correction import HumanLabels
from ragfault.report.app_sections import build_app_sections
from ragfault.report.builders.attempts import build_attempts
from ragfault.report.builders.causes import build_head, describe_cause_agreement, describe_health
from ragfault.report.charts import svg
from ragfault.report.document import Paragraph
from ragfault.report.format import (
    LAYER_QUESTIONS,
    explain_corrections,
    format_label_gain,
    format_time,
    get_correction_heading,
    list_corrections,
)
from ragfault.report.html import trace_browser
from ragfault.report.html.environment import render_page
from ragfault.report.output import write_report_file
from ragfault.report.renderers.html import render_html
from ragfault.report.run_verdict import describe_no_problem, describe_share, describe_targets
from ragfault.report.safe_text import clean_label
from ragfault.report.wording import (
    describe_gold_agreement,
    describe_judge_trust,
    describe_judge_usage,
    describe_trace_count,
    list_run_warnings,
)

REPORT_SCRIPTS = ("theme.js", "dom.js", "store.js", "list.js", "detail.js", "page.js")

QUALITY_GLYPHS = {"excellent": "◆", "good": "●", "fair": "◐", "poor": "○", "unrated": "–"}
"""Quality levels as signs, so that color is never the only one."""

MAX_SEGMENTS = 40
PAGE_TRACES = 10_000
"""Most traces of a page, which holds their texts; of a larger run a random sample is shown."""


def write_run_html(run: Run, path: str | Path, force: bool = False) -> Path:
    """Write the report of a run as one HTML page and return the path.

    Raises OutputError where a file exists at the path (unless `force`) or it cannot be written.
    """
    return write_report_file(path, render_run_html(run), force=force)


def render_run_html(run: Run, findings: Findings | None = None, labels: HumanLabels | None = None) -> str:
    """Render the report of a run as one HTML page; without `findings`, those of the run with the default targets.

    `labels` are those that the findings rest on: the browser of the traces shows them in place of verdicts.
    """
    if findings is None:
        run = sample_run(run, PAGE_TRACES)
        findings = analyze(run)
    traces = trace_browser.build_trace_browser(run, labels)
    segment_metrics = _select_segment_metrics(findings)
    corrections = list_corrections(findings.scorecard)
    app_sections = build_app_sections(run)
    return render_page(
        "report.html",
        ("page.css",),
        REPORT_SCRIPTS,
        name=findings.run,
        sections=[
            ("overview", "Overview"),
            *((layer, title) for layer, (title, _) in LAYER_QUESTIONS.items()),
            *([("attempts", "Attempts")] if findings.attempts else []),
            *((section.app, section.title) for section in app_sections),
            ("insights", "Insights"),
            ("remedies", "Remedies"),
            ("about", "About"),
            ("traces", "Traces"),
        ],
        headline=_describe_run(findings),
        facts=_list_facts(findings),
        judge_note=_explain_judge(findings.manifest),
        findings=findings,
        warnings=list_run_warnings(findings),
        # The drawing of causes replaces the table of causes.
        head=render_html([block for block in build_head(findings) if isinstance(block, Paragraph)]),
        # The section has a heading of its own.
        attempts=render_html(list(build_attempts(findings.attempts))[1:]),
        app_sections=[(section.app, section.title, render_html(section.blocks[1:])) for section in app_sections],
        targets=describe_targets(findings),
        describe_health=describe_health,
        problem_share=describe_share,
        rag_figures=_list_rag_figures(findings),
        correction_title=get_correction_heading(findings.scorecard),
        corrections=[(item, item.corrected or item.ppi, text) for item, text in corrections],
        correction_notes=explain_corrections(findings.scorecard),
        label_gain=format_label_gain,
        segment_metrics=segment_metrics,
        segment_rows=[
            (card.segment or "(none)", {item.metric: item.interval for item in card.aggregates})
            for card in findings.segments[:MAX_SEGMENTS]
        ],
        metric_values={
            metric: [value for value in values if value is not None] for metric, values in traces.scores.items()
        },
        no_problem=describe_no_problem(findings),
        insights=_draw_insights(findings),
        QUALITY_GLYPHS=QUALITY_GLYPHS,
        legend=_encode_script_json(_build_legend(findings)),
        index=trace_browser.pack_bytes(msgspec.json.encode(traces.index)),
        blocks=traces.blocks,
    )


def _describe_run(findings: Findings) -> str:
    """Describe a run in a line: its traces, its judge and when it was made."""
    manifest = findings.manifest
    judge = f"judge {clean_label(manifest.judge.partition(' ')[0], 80)}" if manifest.judge else "no judge"
    return f"{describe_trace_count(manifest, findings.scorecard.aggregates)}, {judge}, {format_time(manifest.created)}"


def _list_facts(findings: Findings) -> list[tuple[str, str]]:
    """List the facts about a run: its traces, its judge, and how far to trust it."""
    manifest = findings.manifest
    skipped = f" ({manifest.skipped:,} lines skipped)" if manifest.skipped else ""
    counts = f"{manifest.scored:,} scored, {manifest.undefined:,} undefined, {manifest.failed:,} failed"
    facts = [
        ("Traces", f"{describe_trace_count(manifest, findings.scorecard.aggregates)}{skipped}"),
        ("Metrics", str(len(manifest.metrics))),
        ("Scores", counts),
        ("Created", format_time(manifest.created)),
        ("Source", clean_label(", ".join(manifest.source), 160) or "not recorded"),
        ("Judge", clean_label(manifest.judge, 160) or "none"),
        ("Made by", f"ragfault {clean_label(manifest.ragfault, 40)}"),
    ]
    facts += [("Calls", line) for line in describe_judge_usage(findings)]
    if trust := describe_judge_trust(manifest.judge):
        facts.append(("Trust", clean_label(trust, 400)))
    if gold := describe_gold_agreement(findings):
        facts.append(("Gold", "; ".join(gold)))
    if people := describe_cause_agreement(findings.cause_agreement):
        facts.append(("Labels of causes", "; ".join(people)))
    return facts


def _explain_judge(manifest: Manifest) -> str:
    """Explain what kind of judge it is, and what its verdicts are worth."""
    compared = "runs of other judges cannot be compared with this one."
    if not manifest.judge:
        return "No judge saw these traces: only metrics that need no verdicts have values."
    if manifest.judge.startswith("lexical"):
        return (
            "The lexical judge compares words, numbers and names. It sees neither paraphrase nor reasoning, so read "
            f"its verdicts on the traces below before you act on a figure; {compared}"
        )
    name = manifest.judge.split("/")[0]
    if name in list_cards():
        return (
            f"The {name} judge was trained on answers that people labelled; how often it agrees with them is known "
            "(ragfault judge card). It can be wrong on any single trace, so read its verdicts below before you act on "
            f"a figure; {compared}"
        )
    return f"A judge can be wrong. Read its verdicts on the traces below before you act on a figure; {compared}"


def _list_rag_figures(findings: Findings) -> list[tuple[str, Any, str]]:
    rag = findings.rag
    return [
        ("context_relevance", rag.context_relevance, "of the chunks to the query"),
        ("chunk_utilization", rag.chunk_utilization, "share of the chunks that the answer drew on"),
        ("context_ranking", rag.context_ranking, "relevant chunks first"),
        ("missing_context_rate", rag.missing_context_rate, "traces that lack what they need"),
        ("optimal_context_rate", rag.optimal_context_rate, "traces with 3 to 5 relevant chunks"),
    ]


def _select_segment_metrics(findings: Findings) -> list[str]:
    """Select the metrics that are shown by segment: those with a target, and the triad; none for one segment."""
    if len(findings.segments) < 2:
        return []
    measured = [item for item in findings.scorecard.aggregates if item.interval]
    names = [item.metric for item in measured if item.target]
    more = [item.metric for item in measured if item.metric in ("answer_relevance", "triad")]
    return list(dict.fromkeys([*names, *sorted(more)]))


def _draw_insights(findings: Findings) -> list[tuple[Any, str, Markup]]:
    """Draw each insight that has buckets, in a fixed order."""
    order = list(svg.INSIGHT_PROPERTIES)
    insights = [insight for insight in findings.insights if insight.buckets]
    insights.sort(key=lambda insight: order.index(insight.by))
    return [(insight, svg.insight_title(insight), svg.draw_insight(insight)) for insight in insights]


def _build_legend(findings: Findings) -> dict[str, Any]:
    """Collect what the browser of traces must know of metrics, quality levels and kinds of problem."""
    actions: dict[str, str] = {level.name: level.action for level in findings.quality}
    return {
        "metrics": {item.metric: {"better": item.better} for item in findings.scorecard.aggregates},
        "levels": {name: {"glyph": glyph, "action": actions.get(name, "")} for name, glyph in QUALITY_GLYPHS.items()},
        "causes": {name: cause.title for name, cause in CAUSES.items()},
        "kinds": {kind: {"title": problem.title, "remedies": problem.steps} for kind, problem in PROBLEM_KINDS.items()},
    }


def _encode_script_json(value: object) -> Markup:
    """Encode JSON for a script element: without `<`, `>`, `&` and line separators.

    >>> print(_encode_script_json("</script>\\u2028"))
    "\\u003c/script\\u003e\\u2028"
    """
    text = msgspec.json.encode(value).decode("utf-8")
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)
