"""Clusters of failing traces as one self-contained HTML page."""

from __future__ import annotations

from ragfault.analysis.clusters import Cluster, ClusterExample, ClusterReport
from ragfault.reports.html.elements import LAYER_QUESTIONS, Markup, Node, clean_label, tag, wrap_table
from ragfault.reports.html.page import build_security_policy, fill_template, load_assets
from ragfault.reports.terminal.clusters import (
    describe_cluster_state,
    describe_clustering,
    format_cluster_size,
    format_trend,
    list_problem_kinds,
    summarize_clusters,
)
from ragfault.text.number_format import format_share

CLUSTER_COLUMNS = ("cluster", "id", "layer", "traces", "share of all", "trend", "state")


def render_clusters_html(clusters: ClusterReport) -> str:
    """Clusters as one HTML page, with queries and problems of the traces that show them; nothing is drawn."""
    style, script = load_assets("page.css"), load_assets("theme.js", "bisection.js")
    shown = [*clusters.clusters, *([clusters.ungrouped] if clusters.ungrouped else [])]
    sections = [_build_table(shown) if shown else tag("p", "No trace fails.", class_="empty")]
    sections += [_build_cluster(one) for one in shown]
    if clusters.gone:
        gone = tag("ul", [tag("li", clean_label(name, 160)) for name in clusters.gone])
        sections.append(tag("section", tag("h2", "Not seen any more"), gone, id="gone"))
    name = clean_label(summarize_clusters(clusters), 300)
    return fill_template(
        load_assets("clusters.html"),
        policy=build_security_policy(script, style),
        title=tag("title", f"{name} – ragfault clusters"),
        name=tag("bdi", name),
        style=style,
        script=script,
        head=tag("ul", tag("li", clean_label(describe_clustering(clusters), 400)), class_="facts"),
        body=Markup("\n".join(sections)),
    )


def _build_table(shown: list[Cluster]) -> Markup:
    head = tag("tr", [tag("th", text, scope="col") for text in CLUSTER_COLUMNS])
    rows = [
        tag(
            "tr",
            tag("th", tag("a", clean_label(one.name, 160), href=f"#{clean_label(one.id, 40)}"), scope="row"),
            [tag("td", text) for text in _build_cells(one)],
        )
        for one in shown
    ]
    table = wrap_table(tag("table", tag("thead", head), tag("tbody", rows)), "of clusters")
    return tag("section", tag("h2", "Clusters"), table, id="clusters")


def _build_cells(cluster: Cluster) -> tuple[str, ...]:
    alone = cluster.id == "single"
    return (
        "–" if alone else clean_label(cluster.id, 40),
        "–" if alone else LAYER_QUESTIONS[cluster.layer][0],
        f"{cluster.size:,}",
        format_share(cluster.share),
        clean_label(format_trend(cluster), 160) or "–",
        "–"
        if alone
        else ", ".join(
            part for part in (cluster.state, clean_label(describe_cluster_state(cluster), 120)) if part
        ),
    )


def _build_cluster(cluster: Cluster) -> Markup:
    facts: list[Node] = [
        tag("li", clean_label(format_cluster_size(cluster), 200)),
        tag("li", clean_label(list_problem_kinds(cluster), 600)),
    ]
    if cluster.before is not None:
        was = f"in {cluster.before.label}: {cluster.before.failures:,} of {cluster.before.traces:,} traces, "
        facts.append(tag("li", clean_label(was + format_share(cluster.before.share), 200)))
    parts: list[Node] = [tag("h2", clean_label(cluster.name, 160)), tag("ul", facts, class_="facts")]
    parts += [
        tag("h3", "Traces that show it"),
        tag("ul", [_build_example(each) for each in cluster.examples]),
    ]
    if cluster.id != "single":
        parts += [tag("h3", "To mend it"), tag("ol", [tag("li", step) for step in cluster.remedies])]
    names = ", ".join(clean_label(name, 80) for name in cluster.members)
    parts.append(tag("details", tag("summary", f"All {cluster.size:,} traces"), tag("p", names)))
    return tag("section", parts, id=clean_label(cluster.id, 40))


def _build_example(example: ClusterExample) -> Markup:
    return tag(
        "li",
        tag("code", clean_label(example.trace, 80)),
        " ",
        tag("bdi", clean_label(example.query, 300)),
        tag("br"),
        tag(
            "span",
            f"{example.kind.replace('_', ' ')}: ",
            tag("bdi", clean_label(example.text, 400)),
            class_="note",
        ),
    )
