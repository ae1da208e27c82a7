"""The report of clusters of failing traces, the largest first, each with what shows it and what fixes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ragfault.diagnosis.diagnosis import PROBLEM_KINDS
from ragfault.report.document import (
    PAGE_ONLY,
    Block,
    Details,
    Heading,
    Listing,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    VerdictKind,
    VerdictMark,
    build_section,
)
from ragfault.report.format import LAYER_TITLES, join_names
from ragfault.report.safe_text import clip_text
from ragfault.report.wording import describe_sample_size
from ragfault.text.number_format import MISSING, format_count, format_percent, format_share

if TYPE_CHECKING:
    from ragfault.diagnosis.clusters.records import Cluster, ClusterReport

CLUSTER_COLUMNS = (
    TableColumn("Cluster", room=PAGE_ONLY),
    TableColumn("Id", room=PAGE_ONLY),
    TableColumn("Layer", room=PAGE_ONLY),
    TableColumn("Traces", numeric=True, room=PAGE_ONLY),
    TableColumn("Share of all", room=PAGE_ONLY),
    TableColumn("Trend", room=PAGE_ONLY),
    TableColumn("State", room=PAGE_ONLY),
)
"""An overview of the clusters for pages; a terminal shows each cluster right below."""

PROBLEM_KINDS_SHOWN = 6
PARTIAL_TRACES_SHOWN = 3

MIN_PARTIAL_SHARE = 0.25
"""From this membership on a failure outside a cluster is listed under it."""

SPARK_LEVELS = "▁▂▃▄▅▆▇█"

TREND_KINDS: dict[str, VerdictKind] = {
    "rising": "worse",
    "falling": "better",
    "steady": "steady",
    "cannot tell": "unsure",
}


def build_clusters(report: ClusterReport) -> ReportDocument:
    """Build the report of clusters: those that are open in full, the muted and resolved ones in a line each."""
    title = summarize_clusters(report)
    shown = [*report.clusters, *([report.ungrouped] if report.ungrouped else [])]
    body: list[Block] = [Table(CLUSTER_COLUMNS, tuple(map(_build_row, shown)))] if shown else []
    for cluster in shown:
        if cluster.state == "open":
            body += _build_cluster(cluster)
    quiet: tuple[Text, ...] = tuple(
        (StyledText(cluster.id, "code"), f" {cluster.state}, {_format_size(cluster)}: {clip_text(cluster.name, 100)}")
        for cluster in report.clusters
        if cluster.state != "open"
    )
    body += build_section("Muted and resolved", Listing(quiet))
    body += build_section("Not seen any more", Listing(tuple(clip_text(name, 100) for name in report.gone)))
    return ReportDocument(title, (Heading(title, 1), Paragraph(_describe_clustering(report), "note")), tuple(body))


def summarize_clusters(report: ClusterReport) -> str:
    """Summarize how many traces fail, and in how many ways."""
    unknown = f"; no judge looked at {join_names(report.unjudged)}" if report.unjudged else ""
    if not report.failures:
        return f"None of {format_count(report.traces, 'trace')} {'is known to fail' if unknown else 'fails'}{unknown}."
    open_clusters = [cluster for cluster in report.clusters if cluster.state == "open"]
    covered, many = sum(cluster.size for cluster in open_clusters), format_count(len(open_clusters), "cluster")
    verb = "covers" if len(open_clusters) == 1 else "cover"
    return f"{many} {verb} {covered:,} of {report.failures:,} failing traces ({report.traces:,} in all){unknown}."


def _describe_clustering(report: ClusterReport) -> str:
    """Describe of which runs the clusters are, and how they were put together."""
    sample = f" · {describe_sample_size(report.traces, report.population)}" if report.population else ""
    names = [clip_text(judge.partition(" ")[0], 40) for judge in report.judges]
    judges = (
        f" · judged by {join_names(names)}: what is new, gone or trends may be the judges'" if len(names) > 1 else ""
    )
    return f"{join_names(report.runs)}{sample} · {report.method} · {clip_text(report.embedder, 80)}{judges}"


def _build_row(cluster: Cluster) -> tuple[Text, ...]:
    """Build the row of a cluster; failures that are alike to no others have neither id, layer nor state."""
    single = cluster.id == "single"
    states = [cluster.state, _describe_state(cluster)]
    return (
        clip_text(cluster.name, 160),
        MISSING if single else StyledText(cluster.id, "code"),
        MISSING if single else LAYER_TITLES[cluster.layer],
        f"{cluster.size:,}",
        format_share(cluster.share),
        _format_trend(cluster) or MISSING,
        MISSING if single else ", ".join(filter(None, states)),
    )


def _build_cluster(cluster: Cluster) -> list[Block]:
    """Build a cluster: its size and state, its trend and problems, example traces, and how to fix it."""
    name = clip_text(cluster.name, 160)
    if cluster.id == "single":
        return [Heading(name), Listing(tuple(_list_facts(cluster))), _fold_members(cluster)]
    fix: Text = (StyledText("how to fix it: ", "strong"), "; ".join(cluster.remedies))
    title: Text = (StyledText(cluster.id, "code"), f" {name}")
    return [Heading(title), Listing((*_list_facts(cluster), fix)), _fold_members(cluster)]


def _list_facts(cluster: Cluster) -> Iterator[Text | Listing]:
    layer = "" if cluster.id == "single" else f"{LAYER_TITLES[cluster.layer]} · "
    state = _describe_state(cluster)
    yield f"{layer}{_format_size(cluster)}{f' · {state}' if state else ''}"
    if cluster.shares:
        yield (f"trend: {_format_trend(cluster)} ", VerdictMark(cluster.trend, TREND_KINDS[cluster.trend]))
    if before := cluster.before:
        counts = f"{before.failures:,} of {format_count(before.traces, 'trace')}, {format_share(before.share)}"
        yield f"in {clip_text(before.label, 60)}: {counts}"
    yield StyledText(_list_problem_kinds(cluster), "muted")
    if partial := _describe_partial_members(cluster):
        yield StyledText(f"in part also: {partial}", "muted")
    for example in cluster.examples:
        yield (
            StyledText(clip_text(example.trace, 60), "strong"),
            "  ",
            StyledText(clip_text(example.query, 160), "quote"),
        )
        yield Listing(((f"{PROBLEM_KINDS[example.kind].title}: ", StyledText(clip_text(example.text, 240), "quote")),))


def _fold_members(cluster: Cluster) -> Details:
    return Details(f"All {format_count(cluster.size, 'trace')}", (Paragraph(join_names(cluster.members)),), PAGE_ONLY)


def _format_size(cluster: Cluster) -> str:
    return f"{format_count(cluster.size, 'trace')}, {format_share(cluster.share)}"


def _describe_state(cluster: Cluster) -> str:
    """Describe new, come back, or known since a run; and whose it is."""
    if cluster.id == "single":
        return ""
    since = f"since {clip_text(cluster.since, 60)}" if cluster.since else ""
    state = "came back" if cluster.reopened else "new" if cluster.new else since
    owner = f"assigned to {clip_text(cluster.assigned, 40)}" if cluster.assigned else ""
    return ", ".join(filter(None, (state, owner)))


def _format_trend(cluster: Cluster) -> str:
    """Format the share of a cluster over runs or time as a sparkline with the first and last figure, or nothing."""
    if not cluster.shares:
        return ""
    means = [point.share.mean for point in cluster.shares]
    top = max(means) or 1.0
    sparkline = "".join(SPARK_LEVELS[round(mean / top * (len(SPARK_LEVELS) - 1))] for mean in means)
    change = f"{format_percent(means[0])} → {format_percent(means[-1])}"
    labels = " → ".join(clip_text(cluster.shares[place].label, 40) for place in (0, -1))
    return f"{sparkline} {change} ({labels})"


def _list_problem_kinds(cluster: Cluster) -> str:
    """List what is wrong with its traces, the commonest first."""
    return "; ".join(
        f"{PROBLEM_KINDS[kind].title} ×{count:,}"  # type: ignore[index]
        for kind, count in list(cluster.kinds.items())[:PROBLEM_KINDS_SHOWN]
    )


def _describe_partial_members(cluster: Cluster) -> str:
    """Describe the failures outside a cluster that belong to it in part, or return an empty text."""
    members = set(cluster.members)
    partial = [
        f"{clip_text(trace, 60)} {format_percent(share)}"
        for trace, share in cluster.memberships.items()
        if trace not in members and share >= MIN_PARTIAL_SHARE
    ]
    more = len(partial) - PARTIAL_TRACES_SHOWN
    return ", ".join(partial[:PARTIAL_TRACES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
