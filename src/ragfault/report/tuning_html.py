"""What a tuning found, as one self-contained page: the gain, each step, and the frontier as charts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragfault.report.charts import altair, draw
from ragfault.report.markup import Markup, Node, label, tag
from ragfault.report.pieces import scroll
from ragfault.report.saving import save
from ragfault.report.sheet import carried, fill, policy
from ragfault.report.tuning import FIGURES, STEPS, circumstances, figures, headline, tested
from ragfault.retrieval.recipes import write_recipe
from ragfault.tuning import Gain, Point, Tuned

if TYPE_CHECKING:
    from altair import LayerChart

__all__ = ["render_tuning", "write_tuning"]

SIZE = 300
"""The width of a chart."""
COSTS = {"ms": "milliseconds", "tokens": "tokens"}


def write_tuning(found: Tuned, path: str | Path, *, force: bool = False) -> Path:
    """Write a tuning as one HTML page, whole or not at all; return the path.

    Raises OutputError where something stands there already (unless `force`) or it cannot be written;
    MissingExtra where the packages that draw the charts are not installed.
    """
    return save(path, render_tuning(found), force=force)


def render_tuning(found: Tuned) -> str:
    """A tuning as one HTML page; names of questions and documents do not appear on it."""
    style, script = carried("page.css", "agreement.css"), carried("theme.js", "bisection.js")
    heads = [found.metric if head == "metric" else head for head in FIGURES]
    sections: list[tuple[str, str, Node]] = [
        (
            "gain",
            "On the held-out questions",
            _table(heads, [figures(row) for row in found.rows], "of pipelines"),
        ),
        ("steps", "What each step brings", _gains((*found.gains, *found.steps))),
        ("rejected", "Tried and not taken", _gains(found.rejected)),
        ("frontier", "Frontier", _frontier(found, heads)),
        ("words", "In words", tag("ul", [tag("li", label(line, 400)) for line in found.sentences])),
        ("recipe", "pipeline.toml", tag("pre", tag("code", write_recipe(found.recipe)))),
    ]
    links = [tag("a", text, href=f"#{where}") for where, text, _ in sections]
    body = [tag("section", tag("h2", text), inside, id=where) for where, text, inside in sections]
    name = label(headline(found), 400)
    return fill(
        carried("tuning.html"),
        policy=policy(script, style),
        title=tag("title", f"{name} – ragfault tune"),
        name=tag("bdi", name),
        style=style,
        script=script,
        head=tag(
            "ul",
            [tag("li", label(line, 600)) for line in (circumstances(found), *found.notes)],
            class_="facts",
        ),
        nav=tag("nav", links, aria_label="Sections"),
        body=Markup("\n".join(body)),
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> Markup:
    head = tag("tr", [tag("th", label(text, 80) or "shown", scope="col") for text in heads])
    body = [
        tag("tr", tag("th", label(first, 240), scope="row"), [tag("td", label(text, 120)) for text in rest])
        for first, *rest in rows
    ]
    return scroll(tag("table", tag("thead", head), tag("tbody", body)), name)


def _gains(gains: Sequence[Gain]) -> Markup:
    if not gains:
        return tag("p", "Nothing.", class_="empty")
    return _table(STEPS, [tested(gain) for gain in gains], "of gains")


def _frontier(found: Tuned, heads: Sequence[str]) -> Markup:
    """The frontier as charts, value against each cost and precision against recall, with its figures below."""
    drawn = [
        tag(
            "figure",
            tag("figcaption", f"{label(found.metric, 60)} and {name}"),
            draw(_chart(found, cost), f"frontier: {name}"),
        )
        for cost, name in COSTS.items()
    ]
    both = draw(_plane(found.frontier), "precision and recall")
    drawn.append(tag("figure", tag("figcaption", "precision and recall"), both))
    rows = [figures(point.row) for point in found.frontier]
    note = (
        "The frontier by the questions that choose, and what it is held against; figures of the held-out ones. "
        "The recommended pipeline is filled."
    )
    return tag(
        "div",
        tag("p", note, class_="note"),
        tag("div", drawn, class_="agreement-charts"),
        _table(heads, rows, "of the frontier"),
    )


def _values(points: Sequence[Point], x: str, y: str) -> list[dict[str, Any]]:
    return [
        {
            "x": getattr(point.row, x),
            "y": getattr(point.row, y),
            "chosen": point.recommended,
            "tip": f"{label(point.row.name, 120)}: {getattr(point.row, y):.3f}, {getattr(point.row, x):,.1f}",
        }
        for point in points
    ]


def _chart(found: Tuned, cost: str) -> LayerChart:
    return _points(_values(found.frontier, cost, "value"), COSTS[cost], found.metric)


def _plane(points: Sequence[Point]) -> LayerChart:
    return _points(_values(points, "recall", "precision"), "recall", "precision")


def _points(rows: list[dict[str, Any]], across: str, up: str) -> LayerChart:
    """Points, the recommended one filled."""
    alt = altair()
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("x:Q", title=across, scale=alt.Scale(zero=False)),
        y=alt.Y("y:Q", title=up, scale=alt.Scale(zero=False)),
    )
    open_ = base.mark_point(color="var(--relevance)", size=60).encode(description="tip:N")
    full = (
        base.transform_filter("datum.chosen")
        .mark_circle(color="var(--use)", size=90)
        .encode(description="tip:N")
    )
    layers: LayerChart = (open_ + full).properties(width=SIZE, height=200)
    return layers
