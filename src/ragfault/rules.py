"""Rules that metrics and findings share, so that a score and a diagnosis never disagree."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ragfault import text
from ragfault.records import Trace, Verdicts

__all__ = ["COVERED", "RATES", "RELEVANT", "TOLERANCE", "Judged", "Rate", "covered", "rated", "stands"]

RELEVANT = ("high", "medium")
"""The levels of relevance that count as relevant."""

TOLERANCE = 0.95
"""How alike a quote and a stretch of its chunk are where the quote stands there."""

COVERED = 0.5
"""The share of what is expected that the chunks must support to cover what was asked."""


Judged = Literal["claim", "citation", "chunk", "refusal"]
"""A kind of verdict with two outcomes: supported or not, relevant or not, refused or not."""


class Rate(NamedTuple):
    """A metric that is a rate of one kind of verdict."""

    verdict: Judged
    good: bool
    """Whether it is the share of the good ones (supported, relevant), else that of the bad ones (refused)."""


RATES: dict[str, Rate] = {
    "groundedness": Rate("claim", good=True),
    "chunk_attribution": Rate("citation", good=True),
    "context_relevance(low=0, medium=1)": Rate("chunk", good=True),
    "refusal": Rate("refusal", good=False),
}
"""The metrics that are a rate of one kind of verdict, as they print without a cut-off: these alone can be corrected for
the judge's error. The relevance of chunks is one where its weights are 1 for relevant levels and 0 for others."""


def rated(metric: str) -> Rate | None:
    """The rate that a metric is, whatever its cut-off; None where it is none.

    >>> rated("groundedness"), rated("groundedness(strict=true)")
    (Rate(verdict='claim', good=True), None)
    """
    return RATES.get(metric.partition("@")[0])


def covered(trace: Trace, verdicts: Verdicts, share: float = COVERED) -> bool | None:
    """Whether the chunks cover what was asked; None where that is not known.

    By the recall verdicts where there are any (at least `share` of them covered); else: something relevant was
    retrieved and nothing is missing.

    >>> covered(Trace(id="1", query="q", chunks=()), Verdicts(trace="1"))
    False
    """
    if verdicts.recall:
        return sum(item.covered for item in verdicts.recall) >= share * len(verdicts.recall)
    if trace.chunks is not None and not trace.chunks:
        return False
    if not verdicts.chunk or verdicts.missing is None:
        return None
    return not verdicts.missing and any(chunk.level in RELEVANT for chunk in verdicts.chunk)


def stands(quote: str, chunk: str, tolerance: float = TOLERANCE) -> bool:
    """Whether a quote stands in the text of a chunk, verbatim or within the tolerance.

    White space and quote marks are made alike first.

    >>> stands("leaves  at 22:40", "The last ferry leaves at 22:40."), stands("leaves at 23:40", "It leaves at 22:40.")
    (True, False)
    """
    return text.similar_span(quote, chunk) >= tolerance
