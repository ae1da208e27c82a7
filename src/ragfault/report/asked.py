"""What asking a model came to, and what the traces said to it, in words."""

from __future__ import annotations

from collections.abc import Iterator

from ragfault.findings import Findings
from ragfault.records import Usage
from ragfault.report.plain import plural

__all__ = ["asked", "money", "spent"]


def asked(findings: Findings) -> Iterator[str]:
    """The lines on a run whose judge asked a model; none for other runs."""
    if findings.manifest.usage is not None:
        yield spent(findings.manifest.usage)
    if findings.suspected:
        hold = "hold" if findings.suspected != 1 else "holds"
        yield f"{plural(findings.suspected)} {hold} text that looks like an order to the judge"


def spent(usage: Usage) -> str:
    """What calls to a model came to.

    >>> spent(Usage(calls=1200, cached=30, prompt=1_000_000, completion=200_000, cost=0.27))
    '1,200 calls to the model, 1,000,000 tokens sent and 200,000 received: US$ 0.2700; the cache answered 30 more'
    """
    calls = f"{usage.calls:,} call{'s' if usage.calls != 1 else ''} to the model"
    tokens = f"{usage.prompt:,} tokens sent and {usage.completion:,} received"
    cached = f"; the cache answered {usage.cached:,} more" if usage.cached else ""
    return f"{calls}, {tokens}: {money(usage.cost)}{cached}"


def money(cost: float | None) -> str:
    """An amount in US$, with so many digits that a cent is seen to come together.

    >>> money(0.01234), money(12.3456), money(0.0), money(None)
    ('US$ 0.0123', 'US$ 12.35', 'US$ 0', 'cost unknown')
    """
    if cost is None:
        return "cost unknown"
    return f"US$ {cost:,.2f}" if cost >= 1 else f"US$ {cost:.4f}" if cost else "US$ 0"
