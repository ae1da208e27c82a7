"""The clusters of failing traces as one self-contained page."""

from __future__ import annotations

from ragfault.clustering import Cluster, Clusters, Shown
from ragfault.report.clusters import course, extent, headline, legend, spoken, standing
from ragfault.report.markup import Markup, Node, label, tag
from ragfault.report.pieces import TITLES, percent, scroll
from ragfault.report.sheet import carried, fill, policy

__all__ = ["render_clusters"]

HEADS = ("cluster", "id", "layer", "traces", "share of all", "trend", "state")


def render_clusters(found: Clusters) -> str:
    """Clusters as one HTML page, with queries and problems of the traces that show them; nothing is drawn."""
    style, script = carried("page.css"), carried("theme.js", "bisection.js")
    shown = [*found.clusters, *([found.singles] if found.singles else [])]
    sections = [_table(shown) if shown else tag("p", "No trace fails.", class_="empty")]
    sections += [_section(one) for one in shown]
    if found.gone:
        gone = tag("ul", [tag("li", label(name, 160)) for name in found.gone])
        sections.append(tag("section", tag("h2", "Not seen any more"), gone, id="gone"))
    name = label(headline(found), 300)
    return fill(
        carried("clusters.html"),
        policy=policy(script, style),
        title=tag("title", f"{name} – ragfault clusters"),
        name=tag("bdi", name),
        style=style,
        script=script,
        head=tag("ul", tag("li", label(legend(found), 400)), class_="facts"),
        body=Markup("\n".join(sections)),
    )


def _table(shown: list[Cluster]) -> Markup:
    head = tag("tr", [tag("th", text, scope="col") for text in HEADS])
    rows = [
        tag(
            "tr",
            tag("th", tag("a", label(one.name, 160), href=f"#{label(one.id, 40)}"), scope="row"),
            [tag("td", text) for text in _cells(one)],
        )
        for one in shown
    ]
    table = scroll(tag("table", tag("thead", head), tag("tbody", rows)), "of clusters")
    return tag("section", tag("h2", "Clusters"), table, id="clusters")


def _cells(one: Cluster) -> tuple[str, ...]:
    alone = one.id == "single"
    return (
        "–" if alone else label(one.id, 40),
        "–" if alone else TITLES[one.layer][0],
        f"{one.size:,}",
        percent(one.share),
        label(course(one), 160) or "–",
        "–" if alone else ", ".join(part for part in (one.state, label(standing(one), 120)) if part),
    )


def _section(one: Cluster) -> Markup:
    facts: list[Node] = [tag("li", label(extent(one), 200)), tag("li", label(spoken(one), 600))]
    if one.before is not None:
        was = f"in {one.before.label}: {one.before.failures:,} of {one.before.traces:,} traces, "
        facts.append(tag("li", label(was + percent(one.before.share), 200)))
    parts: list[Node] = [tag("h2", label(one.name, 160)), tag("ul", facts, class_="facts")]
    parts += [tag("h3", "Traces that show it"), tag("ul", [_shown(each) for each in one.shown])]
    if one.id != "single":
        parts += [tag("h3", "To mend it"), tag("ol", [tag("li", step) for step in one.remedies])]
    names = ", ".join(label(name, 80) for name in one.members)
    parts.append(tag("details", tag("summary", f"All {one.size:,} traces"), tag("p", names)))
    return tag("section", parts, id=label(one.id, 40))


def _shown(each: Shown) -> Markup:
    return tag(
        "li",
        tag("code", label(each.trace, 80)),
        " ",
        tag("bdi", label(each.query, 300)),
        tag("br"),
        tag("span", f"{each.kind.replace('_', ' ')}: ", tag("bdi", label(each.text, 400)), class_="note"),
    )
