"""Rules shared by metrics and analyses, so that a score and a diagnosis never disagree."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ragfault import text
from ragfault.records import GoldVerdicts, Trace, Verdicts

BAD_SUPPORT = ("unsupported", "contradicted")
"""The support of a claim that the chunks do not hold."""
RELEVANT_LEVELS = ("high", "medium")
"""The levels of relevance that count as relevant."""
QUOTE_TOLERANCE = 0.95
"""The least similarity at which a quote matches a span of its chunk."""
COVERAGE_THRESHOLD = 0.5
"""The share of expected statements that the chunks must support to cover the query."""


BinaryVerdict = Literal["claim", "citation", "chunk", "refusal"]
"""A kind of verdict with two outcomes: supported or not, relevant or not, refused or not."""


class RateMetric(NamedTuple):
    """A metric that is a rate of one kind of verdict."""

    verdict: BinaryVerdict
    counts_positives: bool
    """True if the rate counts the good verdicts (supported, relevant), False if the bad ones (refused)."""


RATE_METRICS: dict[str, RateMetric] = {
    "groundedness": RateMetric("claim", counts_positives=True),
    "chunk_attribution": RateMetric("citation", counts_positives=True),
    "context_relevance(low=0, medium=1)": RateMetric("chunk", counts_positives=True),
    "refusal": RateMetric("refusal", counts_positives=False),
}
"""Metrics that are a rate of one kind of verdict, printed without cut-off. Only these can be corrected for the judge's
error. Chunk relevance qualifies if its weights are 1 for relevant levels and 0 for others.
"""


def get_rate_metric(metric: str) -> RateMetric | None:
    """Return the rate that a metric computes, whatever its cut-off; None for other metrics.

    >>> get_rate_metric("groundedness"), get_rate_metric("groundedness(strict=true)")
    (RateMetric(verdict='claim', counts_positives=True), None)
    """
    return RATE_METRICS.get(metric.partition("@")[0])


def chunks_cover_query(trace: Trace, verdicts: Verdicts, threshold: float = COVERAGE_THRESHOLD) -> bool | None:
    """Return whether the chunks cover the query; None if unknown.

    Where gold was applied and tells, it decides. Else, with recall verdicts: whether at least `threshold` of them are
    covered. Without: whether something relevant was retrieved and nothing is missing.

    >>> chunks_cover_query(Trace(id="1", query="q", chunks=()), Verdicts(trace="1"))
    False
    """
    if isinstance(verdicts, GoldVerdicts) and verdicts.covered is not None:
        return verdicts.covered
    if verdicts.recall:
        return sum(item.covered for item in verdicts.recall) >= threshold * len(verdicts.recall)
    if trace.chunks is not None and not trace.chunks:
        return False
    if not verdicts.chunk or verdicts.missing is None:
        return None
    return not verdicts.missing and any(chunk.level in RELEVANT_LEVELS for chunk in verdicts.chunk)


def is_right_refusal(verdicts: Verdicts) -> bool:
    """Return whether the answer refuses, and gold says that the chunks do not cover the query."""
    refused = verdicts.answer is not None and verdicts.answer.refused
    return refused and isinstance(verdicts, GoldVerdicts) and verdicts.covered is False


def agrees_with_key(verdicts: Verdicts) -> bool:
    """Return whether gold was applied and the answer states the whole answer key."""
    return isinstance(verdicts, GoldVerdicts) and verdicts.key_agreement == 1


def quote_matches(quote: str, chunk: str, tolerance: float = QUOTE_TOLERANCE) -> bool:
    """Return whether a chunk contains a quote, verbatim or within the tolerance.

    White space and quotation marks are normalized first.

    >>> text = "The last ferry leaves at 22:40."
    >>> quote_matches("leaves  at 22:40", text), quote_matches("leaves at 23:40", text)
    (True, False)
    """
    return text.score_quote_match(quote, chunk) >= tolerance
