"""The report as one self-contained page, to be sent to a colleague and opened from a disk.

The page asks nothing of any network: type is the system's, charts are drawn, traces lie packed inside. Its content
security policy allows only the one script and the one style sheet it carries, by their hashes. Texts of traces reach
it escaped, or through the script as text nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ragfault import findings as found
from ragfault.findings import Findings
from ragfault.report import browser, overview, panels
from ragfault.report.markup import Markup, label, tag
from ragfault.report.saving import save
from ragfault.report.sheet import carried, fill, policy
from ragfault.runs import Run

__all__ = ["render_html", "write_html"]

SCRIPTS = ("theme.js", "dom.js", "store.js", "list.js", "detail.js", "page.js")


def write_html(run: Run, path: str | Path, force: bool = False) -> Path:
    """Write the report of a run as one HTML page, whole or not at all.

    Returns the path. Raises OutputError where something stands there already (unless `force`) or it cannot be written;
    MissingExtra where the packages that draw the charts are not installed.
    """
    return save(path, render_html(run), force=force)


def render_html(run: Run, findings: Findings | None = None) -> str:
    """The report of a run as one HTML page; without `findings`, those of the run with the default targets.

    Raises MissingExtra where the packages that draw the charts are not installed.
    """
    result = findings or found.find(run)
    traces = browser.gather(run, found.diagnoses(run))
    style, script = carried("page.css"), carried(*SCRIPTS)
    return fill(
        carried("page.html"),
        policy=policy(script, style),
        title=tag("title", f"{label(result.run, 80)} – ragfault report"),
        name=tag("bdi", label(result.run, 80)),
        style=style,
        script=script,
        head=overview.head(result),
        overview=overview.overview(result),
        layers=panels.layers(result, traces.scores),
        insights=panels.insights(result),
        remedies=panels.remedies(result),
        legend=_json(_legend(result)),
        index=browser.pack(msgspec.json.encode(traces.index)),
        blocks="\n".join(_block(number, packed) for number, packed in enumerate(traces.blocks)),
    )


def _legend(result: Findings) -> dict[str, Any]:
    """What the browser of traces must know of metrics, levels and kinds of problem."""
    actions: dict[str, str] = {level.name: level.action for level in result.quality}
    return {
        "metrics": {each.metric: {"better": each.better} for each in result.scorecard.aggregates},
        "levels": {
            name: {"glyph": glyph, "action": actions.get(name, "")} for name, glyph in overview.GLYPHS.items()
        },
        "kinds": {
            kind: {"title": each.title, "short": kind.replace("_", " "), "remedies": each.steps}
            for kind, each in found.KINDS.items()
        },
    }


def _json(value: object) -> str:
    """JSON that can stand in a script element: it holds no `<`, `>` or `&`, and no line separator.

    >>> _json("</script>\\u2028")
    '"\\\\u003c/script\\\\u003e\\\\u2028"'
    """
    text = msgspec.json.encode(value).decode("utf-8")
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _block(number: int, packed: str) -> Markup:
    return Markup(f'<script type="application/gzip" id="block-{number}">{packed}</script>')
