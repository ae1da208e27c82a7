"""Prometheus metrics: a histogram per metric and route, and the state of the server."""

from __future__ import annotations

from collections.abc import Iterator

from ragfault.analysis.monitoring.rollups import Rollup, bin_edges
from ragfault.io.runs import MetricInfo
from ragfault.server.counters import LATENCY_EDGES, LatencyHistogram
from ragfault.server.state import ServerState


def render_metrics(server: ServerState) -> str:
    """Render all metrics in the Prometheus text format. A value on the edge of two bins counts in the upper one."""
    return "\n".join([*_render_server(server), *_render_scores(server), *_render_checks(server)]) + "\n"


def _render_server(server: ServerState) -> Iterator[str]:
    totals, scoring = server.store.compute_totals(), server.summarize_scoring()
    for name, kind, text, value in (
        ("traces_stored", "gauge", "Traces in the store.", totals.traces),
        ("traces_waiting", "gauge", "Traces that wait to be judged.", totals.waiting),
        ("spans_held", "gauge", "Bodies whose traces are not whole yet.", totals.pending),
        ("store_bytes", "gauge", "Bytes used on the disk.", totals.bytes),
        ("traces_scored_total", "counter", "Traces judged since the start.", int(scoring["scored"])),
        ("alerts_firing", "gauge", "Alerts that fire.", len(server.load_alert_state().firing)),
    ):
        yield from _render_head(f"ragfault_{name}", kind, text)
        yield f"ragfault_{name} {value}"
    yield from _render_latency(server.scoring_workers.latency)
    yield from _render_head(
        "ragfault_ingest_total", "counter", "What became of what came in, since the start."
    )
    for outcome, n in server.counters.totals.items():
        yield f'ragfault_ingest_total{{outcome="{_escape_label(outcome)}"}} {n}'


def _render_latency(latency: LatencyHistogram) -> Iterator[str]:
    yield from _render_head("ragfault_scoring_seconds", "histogram", "From being stored to being judged.")
    for edge, n in zip(LATENCY_EDGES, latency.cumulative_counts(), strict=True):
        yield f'ragfault_scoring_seconds_bucket{{le="{edge:g}"}} {n}'
    yield f'ragfault_scoring_seconds_bucket{{le="+Inf"}} {latency.count}'
    yield f"ragfault_scoring_seconds_sum {latency.sum}"
    yield f"ragfault_scoring_seconds_count {latency.count}"


def _render_head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _render_scores(server: ServerState) -> Iterator[str]:
    measures = server.measures
    rollups = server.store.read_total_rollups()
    yield from _render_head("ragfault_score", "histogram", "The values of a metric on a route.")
    for rollup in rollups:
        yield from _render_histogram(rollup, measures[rollup.metric])
    yield from _render_head("ragfault_score_missing_total", "counter", "Scores without a value.")
    for rollup in rollups:
        for state, n in (("undefined", rollup.undefined), ("failed", rollup.failed)):
            yield f'ragfault_score_missing_total{{{_format_labels(rollup, measures[rollup.metric])},status="{state}"}} {n}'


def _render_checks(server: ServerState) -> Iterator[str]:
    """Yield the spot checks of today and the estimates from them; nothing without spot checks."""
    if server.ppi_estimator is None:
        return
    now = server.ppi_estimator.progress
    yield from _render_head(
        "ragfault_checks", "gauge", "What became today (UTC) of traces drawn for the better judge."
    )
    for state in ("checked", "failed", "left", "waiting"):
        yield f'ragfault_checks{{state="{state}"}} {getattr(now, state)}'
    yield from _render_head(
        "ragfault_checks_errors_total", "counter", "How often it could not be asked, since the start."
    )
    yield f"ragfault_checks_errors_total {now.errors}"
    yield from _render_head("ragfault_checks_tokens", "gauge", "Tokens of today (UTC), sent and received.")
    yield f"ragfault_checks_tokens {now.tokens}"
    if now.dollars is not None:
        yield from _render_head("ragfault_checks_dollars", "gauge", "US$ of today (UTC).")
        yield f"ragfault_checks_dollars {now.dollars:g}"
    estimates = [
        (key, estimate) for key, estimate in server.ppi_estimator.list_daily() if estimate.mean is not None
    ]
    for name, text in (("", "The mean"), ("_low", "The lower"), ("_high", "The upper")):
        suffix = "by the better judge over the last day." if not name else "end of its 95 % interval."
        yield from _render_head(f"ragfault_ppi{name}", "gauge", f"{text} {suffix}")
        for (metric, route), estimate in estimates:
            value = getattr(estimate, name[1:] or "mean")
            labels = f'metric="{_escape_label(metric)}",route="{_escape_label(route)}"'
            yield f"ragfault_ppi{name}{{{labels}}} {value:g}"


def _render_histogram(rollup: Rollup, measure: MetricInfo) -> Iterator[str]:
    labels, below = _format_labels(rollup, measure), 0
    for edge, n in zip(bin_edges(measure.low, measure.high)[1:-1], rollup.bins, strict=False):
        below += n
        yield f'ragfault_score_bucket{{{labels},le="{edge:g}"}} {below}'
    yield f'ragfault_score_bucket{{{labels},le="+Inf"}} {rollup.n}'
    yield f"ragfault_score_sum{{{labels}}} {rollup.sum}"
    yield f"ragfault_score_count{{{labels}}} {rollup.n}"


def _format_labels(rollup: Rollup, measure: MetricInfo) -> str:
    pairs = {"metric": rollup.metric, "layer": measure.layer, "route": rollup.route or ""}
    return ",".join(f'{name}="{_escape_label(value)}"' for name, value in pairs.items())


def _escape_label(text: str) -> str:
    """Escape the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
