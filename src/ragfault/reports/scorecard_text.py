"""Sentences about a run for every report: what its judge cost, and how far its judge can be trusted."""

from __future__ import annotations

from collections.abc import Iterator

from ragfault.analysis import Findings
from ragfault.judges.cards import CardEntry, JudgeCard, lookup_card
from ragfault.records import Usage
from ragfault.reports.format import clean_text, clip_text
from ragfault.text.number_format import format_cost, format_count, format_interval


def describe_judge_usage(findings: Findings) -> Iterator[str]:
    """Describe the lines on a run whose judge asked a model; none for other runs."""
    if findings.manifest.usage is not None:
        yield format_usage(findings.manifest.usage)
    if findings.suspected_injections:
        hold = "hold" if findings.suspected_injections != 1 else "holds"
        yield f"{format_count(findings.suspected_injections, 'trace')} {hold} text that looks like an order to the judge"


def format_usage(usage: Usage) -> str:
    """Format what calls to a model cost.

    >>> format_usage(Usage(calls=1200, cached=30, prompt=1_000_000, completion=200_000, cost=0.27))
    '1,200 calls to the model, 1,000,000 tokens sent and 200,000 received: US$ 0.2700; the cache answered 30 more'
    """
    calls = f"{usage.calls:,} call{'s' if usage.calls != 1 else ''} to the model"
    tokens = f"{usage.prompt:,} tokens sent and {usage.completion:,} received"
    cached = f"; the cache answered {usage.cached:,} more" if usage.cached else ""
    return f"{calls}, {tokens}: {format_cost(usage.cost)}{cached}"


MEASURE_COMMAND = "ragfault judge measure LABELS --card .ragfault/cards/NAME.json"
"""What measures a judge so that its figures are shown."""


def describe_judge_trust(fingerprint: str) -> str | None:
    """Describe how far a judge agrees with people, by its card; None where there was no judge.

    >>> describe_judge_trust("mine/1")
    'mine/1: never measured against people (ragfault judge measure LABELS --card .ragfault/cards/NAME.json)'
    """
    name = clean_text(fingerprint).split(" ")[0]
    if not name or name.startswith("none/"):
        return None
    card = lookup_card(fingerprint)
    if card is None or not card.measured:
        return f"{name}: never measured against people ({MEASURE_COMMAND})"
    return f"{name}: {_describe_measurements(card)}"


def _describe_measurements(card: JudgeCard) -> str:
    """Describe the figures of the largest set, and how many more there are."""
    best = max(card.measured, key=lambda entry: entry.n)
    estimates = {"balanced accuracy": best.balanced_accuracy, "kappa": best.kappa}
    figures = ", ".join(
        f"{name} {format_interval(estimate)}"
        for name, estimate in estimates.items()
        if estimate is not None and estimate.value is not None
    )
    more = len(card.measured) - 1
    rest = f"; {more:,} more set{'' if more == 1 else 's'} on its card" if more else ""
    units = f"{best.n:,} {_format_units(best)} of {clip_text(best.set, 60)}"
    return f"measured against people on {units}: {figures or 'no figures'}{rest}"


def _format_units(entry: CardEntry) -> str:
    return f"{entry.level}{'' if entry.n == 1 else 's'}"
