"""Choices of metrics by trace: a tag of a trace selects the metrics that are computed on it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ragfault.judges.assembly import observe_traces
from ragfault.metrics.catalog import Metric, compute_score_table, compute_scores, parse_metric
from ragfault.metrics.selection import select_metrics
from ragfault.model.errors import UsageError
from ragfault.model.protocols import Judge
from ragfault.model.records import GoldMode, Score, Trace, Verdicts

if TYPE_CHECKING:
    import pyarrow as pa

CHOICE = re.compile(r"(?:metadata\.)?(?P<field>[^=:]+?)\s*=\s*(?P<value>[^:]+?)\s*:\s*(?P<metrics>.+)", re.DOTALL)
TRACE_FIELDS = ("route", "model", "conversation")
SEPARATOR = re.compile(r",(?![^(]*\))")
"""A comma outside of the parameters of a metric."""


class MetricChoice(Struct, frozen=True, kw_only=True):
    """The metrics of the traces that have a tag."""

    field: str
    """`route`, `model`, `conversation`, else a key of the metadata."""
    value: str
    metrics: tuple[str, ...]

    def applies_to(self, trace: Trace) -> bool:
        """Return whether a trace has the tag; a list in the metadata has each of its members."""
        return self.value in self.list_values(trace)

    def list_values(self, trace: Trace) -> list[str]:
        """List what a trace has in the field."""
        raw = getattr(trace, self.field) if self.field in TRACE_FIELDS else trace.metadata.get(self.field)
        return [str(value) for value in (raw if isinstance(raw, list | tuple) else [raw]) if value is not None]


def parse_choices(texts: Sequence[str]) -> tuple[MetricChoice, ...]:
    """Parse choices such as `route=faq:groundedness,ndcg@10`.

    Raises UsageError for another form, UnknownName for a metric that does not exist.

    >>> parse_choices(["tags=beta:refusal, latency"])[0].metrics
    ('refusal', 'latency')
    """
    choices = []
    for text in texts:
        match = CHOICE.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f'metrics by a tag are written FIELD=VALUE:METRIC,METRIC, got "{text}". For example: '
                '"route=faq:groundedness,refusal".'
            )
        names = [name.strip() for name in SEPARATOR.split(match["metrics"]) if name.strip()]
        metrics = tuple(map(str, select_metrics(names)))
        choices.append(MetricChoice(field=match["field"].strip(), value=match["value"], metrics=metrics))
    return tuple(choices)


def add_chosen_metrics(metrics: Sequence[Metric], choices: Sequence[str]) -> tuple[Metric, ...]:
    """Return the metrics with those that the tags choose."""
    chosen_metrics = [parse_metric(name) for choice in parse_choices(choices) for name in choice.metrics]
    return tuple(dict.fromkeys((*metrics, *chosen_metrics)))


def explain_unused(choices: Sequence[MetricChoice], traces: Iterable[Trace]) -> Iterator[str]:
    """Yield a message for each choice whose tag no trace has, with the values that there are.

    >>> print(*explain_unused(parse_choices(["route=fag:refusal"]), [Trace(id="1", query="When?", route="faq")]))
    no trace has route=fag, so its metrics were chosen for none. Values of route: faq.
    """
    values_by_field: dict[str, Counter[str]] = {choice.field: Counter() for choice in choices}
    for trace in traces if choices else ():
        for choice in {choice.field: choice for choice in choices}.values():
            values_by_field[choice.field].update(choice.list_values(trace))
    for choice in choices:
        values = values_by_field[choice.field]
        if choice.value not in values:
            listing = ", ".join(value[:40] for value, _ in values.most_common(5)) or "none"
            more = f" and {len(values) - 5:,} more" if len(values) > 5 else ""
            yield (
                f"no trace has {choice.field}={choice.value}, so its metrics were chosen for none. "
                f"Values of {choice.field}: {listing}{more}."
            )


def select_judged(traces: Iterable[Trace], metrics: Sequence[Metric], choices: Sequence[str]) -> Iterator[Trace]:
    """Yield the traces one of whose metrics reads a verdict."""
    selected, parsed = add_chosen_metrics(metrics, choices), parse_choices(choices)
    for trace in traces:
        if any(metric.definition.verdicts for metric in _choose_metrics(selected, trace, parsed)[0]):
            yield trace


def score_chosen(
    judge: Judge, metrics: Sequence[Metric], traces: Sequence[Trace], choices: Sequence[MetricChoice], gold: GoldMode
) -> tuple[list[Verdicts], pa.Table]:
    """Judge traces, and score each by the metrics that its tags choose, by all of them where none applies.

    Return the verdicts, and the scores as a table. The other scores are undefined, with the tag as the reason. A trace
    none of whose metrics reads a verdict is not judged, so that it costs nothing.
    """
    from ragfault.io.formats.arrow import SCORE_SCHEMA, records_to_table

    if not choices:
        verdicts = observe_traces(judge, traces)
        return verdicts, compute_score_table(metrics, traces, verdicts, gold)
    selections = [_choose_metrics(metrics, trace, choices) for trace in traces]
    to_judge = [
        trace
        for trace, (selected, _) in zip(traces, selections, strict=True)
        if any(metric.definition.verdicts for metric in selected)
    ]
    seen_by_id = {verdicts.trace: verdicts for verdicts in (observe_traces(judge, to_judge) if to_judge else ())}
    verdicts = [seen_by_id.get(trace.id) or Verdicts(trace=trace.id, judge=judge.fingerprint) for trace in traces]
    scores: list[Score] = []
    for trace, trace_verdicts, (selected, tags) in zip(traces, verdicts, selections, strict=True):
        computed = {row.metric: row for row in compute_scores(selected, trace, trace_verdicts, gold)}
        scores += [computed.get(str(metric)) or _leave_out(metric, trace, tags) for metric in metrics]
    return verdicts, records_to_table(scores, SCORE_SCHEMA)


def _choose_metrics(
    metrics: Sequence[Metric], trace: Trace, choices: Sequence[MetricChoice]
) -> tuple[list[Metric], str]:
    """Return the metrics of a trace, and the tags that chose them."""
    applying = [choice for choice in choices if choice.applies_to(trace)]
    if not applying:
        return list(metrics), ""
    names = {name for choice in applying for name in choice.metrics}
    tags = ", ".join(dict.fromkeys(f"{choice.field}={choice.value}" for choice in applying))
    return [metric for metric in metrics if str(metric) in names], tags


def _leave_out(metric: Metric, trace: Trace, tags: str) -> Score:
    return Score(
        trace=trace.id,
        metric=str(metric),
        layer=metric.definition.layer,
        status="undefined",
        reason=f"not asked for where {tags}",
    )
