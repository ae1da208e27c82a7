"""The metrics that a user asks for: the default ones, those of a layer, or single ones by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from ragfault.metrics.aliases import resolve_alias
from ragfault.metrics.catalog import Metric, get_definitions, parse_metric
from ragfault.model.errors import UsageError
from ragfault.model.records import Layer

DEFAULT_METRICS = (
    *("context_relevance", "context_precision", "context_ranking", "context_recall", "context_entity_recall"),
    *("missing_context", "recall@5", "precision@5", "hit@5", "ndcg@10", "reciprocal_rank", "span_recall"),
    *("span_precision", "chunk_attribution", "chunk_utilization", "redundancy", "staleness", "groundedness"),
    *("context_adherence", "contradiction", "answer_relevance", "completeness", "refusal", "wrong_refusal"),
    *("missed_refusal", "citation_precision", "citation_recall", "token_f1", "semantic_similarity"),
    *("factual_accuracy", "citation_validity", "context_utility", "noise_sensitivity", "triad", "latency", "tokens"),
    *("context_waste", "error", "empty_retrieval", "blank_answer", "uncited_answer"),
)
"""The metrics computed by default: all that need no extra, ranked ones at usual cut-offs."""

METRIC_LEVELS = {
    "context_relevance": (0.6, 0.4),
    "groundedness": (0.7, 0.5),
    "answer_relevance": (0.6, 0.4),
    "triad": (0.65, 0.45),
}
"""Metric → the means below which a window is a warning, and critical."""


def select_metrics(requested: str | Iterable[str]) -> tuple[Metric, ...]:
    """Return the requested metrics, each once, in the order requested.

    A name of a set stands for several metrics: "default"; "all" that are installed; a layer's name for the metrics of
    the default set in that layer. Anything else is a metric expression, or another tool's name for a metric. Raises
    UnknownName, UsageError or MissingExtra as `parse_metric` does; UsageError if nothing is requested.

    >>> [str(metric) for metric in select_metrics(["operation", "ndcg@3"])]
    ['latency', 'tokens', 'context_waste', 'error', 'empty_retrieval', 'blank_answer', 'uncited_answer', 'ndcg@3']
    """
    texts = [requested] if isinstance(requested, str) else list(requested)
    metrics = dict.fromkeys(parse_metric(name) for text in texts for name in _expand_set(text))
    if not metrics:
        raise UsageError("no metric was asked for. List them with: ragfault metrics")
    return tuple(metrics)


def _expand_set(text: str) -> Sequence[str]:
    """Return the metric expressions of a set; any other text is one expression."""
    if text == "default":
        return DEFAULT_METRICS
    if text == "all":
        basic = {parse_metric(name).name for name in DEFAULT_METRICS}
        installed = [definition.name for definition in get_definitions().values() if definition.installed]
        return [*DEFAULT_METRICS, *(name for name in installed if name not in basic)]
    if text in get_args(Layer):
        return [name for name in DEFAULT_METRICS if parse_metric(name).definition.layer == text]
    return [resolve_alias(text)]
