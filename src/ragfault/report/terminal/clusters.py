"""Clusters of failing traces for the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ragfault.diagnosis.clusters.records import Cluster, ClusterReport
from ragfault.diagnosis.diagnosis import PROBLEM_KINDS
from ragfault.report.format import LAYER_TITLES, clip_text, join_names
from ragfault.report.terminal.layout import render_rich
from ragfault.report.wording import describe_sample_size
from ragfault.text.number_format import format_count, format_percent, format_share

if TYPE_CHECKING:
    from rich.console import RenderableType


MAX_PROBLEM_KINDS = 6
"""Number of problem kinds shown for a cluster."""

MIN_PARTIAL_SHARE = 0.25
"""From this membership on a failure outside a cluster is listed under it."""

MAX_PARTIAL_TRACES = 3

SPARK_LEVELS = "▁▂▃▄▅▆▇█"

TREND_STYLES = {"rising": "red", "falling": "green", "steady": "dim", "cannot tell": "dim"}


def render_clusters_terminal(clusters: ClusterReport, *, width: int | None = None, color: bool = False) -> str:
    """Render the clusters, the largest first, each with what shows it and what fixes it."""
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(summarize_clusters(clusters), style="bold"),
        Text(describe_clustering(clusters), style="dim"),
    ]
    for cluster in clusters.clusters:
        if cluster.state == "open":
            parts += _build_cluster(cluster)
    if clusters.ungrouped is not None:
        parts += _build_cluster(clusters.ungrouped)
    quiet = [cluster for cluster in clusters.clusters if cluster.state != "open"]
    if quiet:
        parts.append(Text("\nMuted and resolved", style="bold cyan"))
        parts += [
            Text(f"  {cluster.id}  {cluster.state}  {format_cluster_size(cluster)}  {clip_text(cluster.name, 100)}")
            for cluster in quiet
        ]
    if clusters.gone:
        parts.append(Text(f"\nNot seen any more: {'; '.join(clip_text(name, 100) for name in clusters.gone)}"))
    return render_rich(parts, width=width, color=color)


def summarize_clusters(clusters: ClusterReport) -> str:
    """Summarize how many traces fail, and in how many ways."""
    unknown = f"; no judge looked at {join_names(clusters.unjudged)}" if clusters.unjudged else ""
    if not clusters.failures:
        return (
            f"None of {format_count(clusters.traces, 'trace')} {'is known to fail' if unknown else 'fails'}{unknown}."
        )
    open_clusters = [cluster for cluster in clusters.clusters if cluster.state == "open"]
    many = f"{len(open_clusters):,} cluster{'' if len(open_clusters) == 1 else 's'}"
    alone = f", {clusters.ungrouped.size:,} of them single failures" if clusters.ungrouped else ""
    return f"{clusters.failures:,} of {format_count(clusters.traces, 'trace')} fail{alone}: {many}{unknown}."


def describe_clustering(clusters: ClusterReport) -> str:
    """Describe of which runs the clusters are, and how they were put together."""
    sample = f" · {describe_sample_size(clusters.traces, clusters.population)}" if clusters.population else ""
    names = [clip_text(judge.partition(" ")[0], 40) for judge in clusters.judges]
    judges = (
        f" · judged by {join_names(names)}: what is new, gone or trends may be the judges'" if len(names) > 1 else ""
    )
    return f"{join_names(clusters.runs)}{sample} · {clusters.method} · {clip_text(clusters.embedder, 80)}{judges}"


def format_cluster_size(cluster: Cluster) -> str:
    """Format the size of a cluster and its share of all traces."""
    share = cluster.share
    return f"{format_count(cluster.size, 'trace')}, {format_share(share)}"


def describe_cluster_state(cluster: Cluster) -> str:
    """Describe new, come back, or known since a run; and whose it is."""
    if cluster.id == "single":
        return ""
    since = f"since {clip_text(cluster.since, 60)}" if cluster.since else ""
    state = "came back" if cluster.reopened else "new" if cluster.new else since
    return ", ".join(
        part for part in (state, f"assigned to {clip_text(cluster.assigned, 40)}" if cluster.assigned else "") if part
    )


def format_trend(cluster: Cluster) -> str:
    """Format the share of a cluster over runs or time as a sparkline with the first and last figure, or nothing."""
    if not cluster.shares:
        return ""
    means = [point.share.mean for point in cluster.shares]
    top = max(means) or 1.0
    sparkline = "".join(SPARK_LEVELS[round(mean / top * (len(SPARK_LEVELS) - 1))] for mean in means)
    change = f"{format_percent(means[0])} → {format_percent(means[-1])}"
    labels = " → ".join(clip_text(cluster.shares[i].label, 40) for i in (0, -1))
    return f"{sparkline} {change} ({labels}), {cluster.trend}"


def list_problem_kinds(cluster: Cluster) -> str:
    """List what is wrong with its traces, the commonest first."""
    return "; ".join(
        f"{PROBLEM_KINDS[kind].title} ×{count:,}"  # type: ignore[index]
        for kind, count in list(cluster.kinds.items())[:MAX_PROBLEM_KINDS]
    )


def describe_partial_members(cluster: Cluster) -> str:
    """Describe the failures outside a cluster that belong to it in part, or return an empty text."""
    members = set(cluster.members)
    partial = [
        f"{clip_text(trace, 60)} {format_percent(share)}"
        for trace, share in cluster.memberships.items()
        if trace not in members and share >= MIN_PARTIAL_SHARE
    ]
    more = len(partial) - MAX_PARTIAL_TRACES
    return ", ".join(partial[:MAX_PARTIAL_TRACES]) + (f" and {more:,} more" if more > 0 else "")


def _build_cluster(cluster: Cluster) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    def inset(*parts: str | tuple[str, str]) -> RenderableType:
        return Padding(Text.assemble(*parts), (0, 0, 0, 4))

    label = "" if cluster.id == "single" else f"{cluster.id}  "
    yield Text.assemble("\n", (f"{label}{clip_text(cluster.name, 160)}", "bold cyan"))
    state = describe_cluster_state(cluster)
    layer = "" if cluster.id == "single" else f"{LAYER_TITLES[cluster.layer]} · "
    yield inset(f"{layer}{format_cluster_size(cluster)}", f" · {state}" if state else "")
    if cluster.shares:
        yield inset("trend: ", (format_trend(cluster), TREND_STYLES[cluster.trend]))
    if cluster.before is not None:
        before = cluster.before
        yield inset(
            f"in {clip_text(before.label, 60)}: {format_count(before.failures, 'trace')}, {format_share(before.share)}"
        )
    yield inset((list_problem_kinds(cluster), "dim"))
    if partial := describe_partial_members(cluster):
        yield inset((f"in part also: {partial}", "dim"))
    for example in cluster.examples:
        yield inset((clip_text(example.trace, 60), "yellow"), f"  {clip_text(example.query, 160)}")
        yield Padding(
            Text(f"{PROBLEM_KINDS[example.kind].title}: {clip_text(example.text, 240)}", style="dim"), (0, 0, 0, 6)
        )
    if cluster.id != "single":
        yield inset(("how to fix it: ", "green"), "; ".join(cluster.remedies))
