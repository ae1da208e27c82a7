"""What Prometheus scrapes: a histogram for every metric and route, and how the server fares."""

from __future__ import annotations

from collections.abc import Iterator

from ragfault.findings.monitoring_rollups import Rollup, bin_edges
from ragfault.runs import Measure
from ragfault.server.delays import EDGES, Delays
from ragfault.server.desk import Desk

__all__ = ["exposition"]


def exposition(desk: Desk) -> str:
    """The text that Prometheus reads. A value that stands on the border of two bins counts in the upper one."""
    return "\n".join([*_server(desk), *_scores(desk), *_checks(desk)]) + "\n"


def _server(desk: Desk) -> Iterator[str]:
    totals, scoring = desk.store.totals(), desk.scoring()
    for name, kind, text, value in (
        ("traces_stored", "gauge", "Traces in the store.", totals.traces),
        ("traces_waiting", "gauge", "Traces that wait to be judged.", totals.waiting),
        ("spans_held", "gauge", "Bodies whose traces are not whole yet.", totals.held),
        ("store_bytes", "gauge", "Bytes used on the disk.", totals.bytes),
        ("traces_scored_total", "counter", "Traces judged since the start.", int(scoring["scored"])),
        ("alerts_firing", "gauge", "Alerts that fire.", len(desk.alarms().firing)),
    ):
        yield from _head(f"ragfault_{name}", kind, text)
        yield f"ragfault_{name} {value}"
    yield from _delays(desk.scorers.delays)
    yield from _head("ragfault_ingest_total", "counter", "What became of what came in, since the start.")
    for outcome, n in desk.tallies.total.items():
        yield f'ragfault_ingest_total{{outcome="{_escaped(outcome)}"}} {n}'


def _delays(found: Delays) -> Iterator[str]:
    yield from _head("ragfault_scoring_seconds", "histogram", "From being stored to being judged.")
    for edge, n in zip(EDGES, found.below(), strict=True):
        yield f'ragfault_scoring_seconds_bucket{{le="{edge:g}"}} {n}'
    yield f'ragfault_scoring_seconds_bucket{{le="+Inf"}} {found.count}'
    yield f"ragfault_scoring_seconds_sum {found.sum}"
    yield f"ragfault_scoring_seconds_count {found.count}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _scores(desk: Desk) -> Iterator[str]:
    measures = {measure.name: measure for measure in desk.store.measures()}
    found = desk.store.ever()
    yield from _head("ragfault_score", "histogram", "The values of a metric on a route.")
    for each in found:
        yield from _histogram(each, measures[each.metric])
    yield from _head("ragfault_score_missing_total", "counter", "Scores without a value.")
    for each in found:
        for state, n in (("undefined", each.undefined), ("failed", each.failed)):
            yield f'ragfault_score_missing_total{{{_labels(each, measures[each.metric])},status="{state}"}} {n}'


def _checks(desk: Desk) -> Iterator[str]:
    """What a better judge says of a sample, and what that came to; nothing where none is asked."""
    if desk.estimates is None:
        return
    now = desk.estimates.progress
    yield from _head(
        "ragfault_checks", "gauge", "What became today (UTC) of traces drawn for the better judge."
    )
    for state in ("checked", "failed", "left", "waiting"):
        yield f'ragfault_checks{{state="{state}"}} {getattr(now, state)}'
    yield from _head(
        "ragfault_checks_errors_total", "counter", "How often it could not be asked, since the start."
    )
    yield f"ragfault_checks_errors_total {now.errors}"
    yield from _head("ragfault_checks_tokens", "gauge", "Tokens of today (UTC), sent and received.")
    yield f"ragfault_checks_tokens {now.tokens}"
    if now.dollars is not None:
        yield from _head("ragfault_checks_dollars", "gauge", "US$ of today (UTC).")
        yield f"ragfault_checks_dollars {now.dollars:g}"
    found = [(key, each) for key, each in desk.estimates.all() if each.mean is not None]
    for name, text in (("", "The mean"), ("_low", "The lower"), ("_high", "The upper")):
        told = "by the better judge over the last day." if not name else "end of its 95 % interval."
        yield from _head(f"ragfault_rectified{name}", "gauge", f"{text} {told}")
        for (metric, route), each in found:
            value = getattr(each, name[1:] or "mean")
            labels = f'metric="{_escaped(metric)}",route="{_escaped(route)}"'
            yield f"ragfault_rectified{name}{{{labels}}} {value:g}"


def _histogram(each: Rollup, measure: Measure) -> Iterator[str]:
    labels, below = _labels(each, measure), 0
    for edge, n in zip(bin_edges(measure.low, measure.high)[1:-1], each.bins, strict=False):
        below += n
        yield f'ragfault_score_bucket{{{labels},le="{edge:g}"}} {below}'
    yield f'ragfault_score_bucket{{{labels},le="+Inf"}} {each.n}'
    yield f"ragfault_score_sum{{{labels}}} {each.sum}"
    yield f"ragfault_score_count{{{labels}}} {each.n}"


def _labels(each: Rollup, measure: Measure) -> str:
    pairs = {"metric": each.metric, "layer": measure.layer, "route": each.route or ""}
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs.items())


def _escaped(text: str) -> str:
    """A text as the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
