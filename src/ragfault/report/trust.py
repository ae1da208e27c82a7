"""How far the judge of a run can be trusted, in a line, wherever its scores are shown."""

from __future__ import annotations

from ragfault.cards import Card, Measured, find_card
from ragfault.report.plain import clean, clip, figure
from ragfault.stats import Estimate

__all__ = ["COMMAND", "trust"]

COMMAND = "ragfault judge measure LABELS --card .ragfault/cards/NAME.json"
"""What measures a judge so that its figures are shown."""


def trust(fingerprint: str) -> str | None:
    """How far a judge agrees with people, by its card; None where there was no judge.

    >>> trust("mine/1")
    'mine/1: never measured against people (ragfault judge measure LABELS --card .ragfault/cards/NAME.json)'
    """
    name = clean(fingerprint).split(" ")[0]
    if not name or name.startswith("none/"):
        return None
    card = find_card(fingerprint)
    if card is None or not card.measured:
        return f"{name}: never measured against people ({COMMAND})"
    return f"{name}: {_said(card)}"


def _said(card: Card) -> str:
    """The figures of the largest set, and how many more there are."""
    best = max(card.measured, key=lambda each: each.n)
    told = [_figure("balanced accuracy", best.balanced_accuracy), _figure("kappa", best.kappa)]
    figures = ", ".join(each for each in told if each)
    more = len(card.measured) - 1
    rest = f"; {more:,} more set{'' if more == 1 else 's'} on its card" if more else ""
    units = f"{best.n:,} {_units(best)} of {clip(best.set, 60)}"
    return f"measured against people on {units}: {figures or 'no figures'}{rest}"


def _units(each: Measured) -> str:
    return f"{each.level}{'' if each.n == 1 else 's'}"


def _figure(name: str, found: Estimate | None) -> str:
    if found is None or found.value is None:
        return ""
    if found.low is None or found.high is None:
        return f"{name} {figure(found.value)}"
    return f"{name} {figure(found.value)} [{figure(found.low)}, {figure(found.high)}]"
