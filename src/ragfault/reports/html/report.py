"""Report of a run as one self-contained HTML page.

The page asks nothing of any network: type is the system's, charts are drawn, traces lie packed inside. Its content
security policy allows only the one script and the one style sheet it carries, by their hashes. Texts of traces reach
it escaped, or through the script as text nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ragfault import analysis as found
from ragfault.analysis import Findings
from ragfault.io.runs import Run
from ragfault.reports.html import overview, sections, trace_browser
from ragfault.reports.html.elements import Markup, clean_label, tag
from ragfault.reports.html.page import build_security_policy, fill_template, load_assets
from ragfault.reports.output import write_report_file

REPORT_SCRIPTS = ("theme.js", "dom.js", "store.js", "list.js", "detail.js", "page.js")


def write_run_html(run: Run, path: str | Path, force: bool = False) -> Path:
    """Write the report of a run as one HTML page, whole or not at all.

    Returns the path. Raises OutputError where something stands there already (unless `force`) or it cannot be written;
    MissingExtra where the packages that draw the charts are not installed.
    """
    return write_report_file(path, render_run_html(run), force=force)


def render_run_html(run: Run, findings: Findings | None = None) -> str:
    """The report of a run as one HTML page; without `findings`, those of the run with the default targets.

    Raises MissingExtra where the packages that draw the charts are not installed.
    """
    result = findings or found.analyze(run)
    traces = trace_browser.build_trace_browser(run, found.diagnose_run(run))
    style, script = load_assets("page.css"), load_assets(*REPORT_SCRIPTS)
    return fill_template(
        load_assets("page.html"),
        policy=build_security_policy(script, style),
        title=tag("title", f"{clean_label(result.run, 80)} – ragfault report"),
        name=tag("bdi", clean_label(result.run, 80)),
        style=style,
        script=script,
        head=overview.build_run_header(result),
        overview=overview.build_overview(result),
        layers=sections.build_layer_sections(result, traces.scores),
        insights=sections.build_insights(result),
        remedies=sections.build_remedies(result),
        legend=_encode_script_json(_build_legend(result)),
        index=trace_browser.pack_bytes(msgspec.json.encode(traces.index)),
        blocks="\n".join(_build_data_block(number, packed) for number, packed in enumerate(traces.blocks)),
    )


def _build_legend(result: Findings) -> dict[str, Any]:
    """What the browser of traces must know of metrics, levels and kinds of problem."""
    actions: dict[str, str] = {level.name: level.action for level in result.quality}
    return {
        "metrics": {each.metric: {"better": each.better} for each in result.scorecard.aggregates},
        "levels": {
            name: {"glyph": glyph, "action": actions.get(name, "")}
            for name, glyph in overview.QUALITY_GLYPHS.items()
        },
        "kinds": {
            kind: {"title": each.title, "short": kind.replace("_", " "), "remedies": each.steps}
            for kind, each in found.PROBLEM_KINDS.items()
        },
    }


def _encode_script_json(value: object) -> str:
    """JSON that can stand in a script element: it holds no `<`, `>` or `&`, and no line separator.

    >>> _encode_script_json("</script>\\u2028")
    '"\\\\u003c/script\\\\u003e\\\\u2028"'
    """
    text = msgspec.json.encode(value).decode("utf-8")
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _build_data_block(number: int, packed: str) -> Markup:
    return Markup(f'<script type="application/gzip" id="block-{number}">{packed}</script>')
