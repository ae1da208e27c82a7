"""Clusters of failing traces as one self-contained HTML page."""

from __future__ import annotations

from ragfault.analysis.clusters import ClusterReport
from ragfault.reports.html.environment import render_page
from ragfault.reports.terminal import clusters as text


def render_clusters_html(clusters: ClusterReport) -> str:
    """Render clusters as one HTML page, with queries and problems of their example traces."""
    return render_page(
        "clusters.html",
        ("page.css",),
        ("theme.js", "open_theme.js"),
        name=text.summarize_clusters(clusters),
        facts=[text.describe_clustering(clusters)],
        clusters=[*clusters.clusters, *([clusters.ungrouped] if clusters.ungrouped else [])],
        gone=clusters.gone,
        format_trend=text.format_trend,
        format_size=text.format_cluster_size,
        describe_state=text.describe_cluster_state,
        list_kinds=text.list_problem_kinds,
    )
