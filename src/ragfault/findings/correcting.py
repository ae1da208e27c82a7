"""Figures corrected for the known error of the judge, where a metric is a rate of one kind of verdict."""

from __future__ import annotations

from msgspec import Struct

from ragfault.cards import Card, Measured, card_of
from ragfault.errors import UnknownName
from ragfault.rules import rated
from ragfault.runs import Run
from ragfault.stats import Corrected, Interval, correct

__all__ = ["Asked", "Correction", "corrected", "correction"]

Asked = bool | str | Card
"""Whether to correct: by the card of the run's judge, by its figures on a shape of answers, or by the card given."""


class Correction(Struct, frozen=True, kw_only=True):
    """By what figures of which judge a scorecard was corrected."""

    judge: str
    """The name of the judge."""
    figures: tuple[Measured, ...]
    """What its card says of each kind of verdict that was corrected, each with the set it was measured on."""


def correction(run: Run, metrics: tuple[str, ...], asked: Asked) -> Correction | None:
    """By what to correct the metrics of a run; None where that was not asked for.

    Raises UsageError where the judge of the run has no card, or one of another version or other settings;
    UnknownName for a shape on which its error was not measured.
    """
    if asked is False:
        return None
    card = asked if isinstance(asked, Card) else card_of(run.manifest.judge)
    shape = asked if isinstance(asked, str) else None
    if shape is not None and shape not in card.shapes:
        raise UnknownName("shape of answers on the card", shape, card.shapes)
    kinds = dict.fromkeys(rate.verdict for rate in map(rated, metrics) if rate is not None)
    figures = (card.figures(kind, shape) for kind in kinds)
    return Correction(judge=card.judge, figures=tuple(each for each in figures if each is not None))


def corrected(metric: str, found: Interval | None, by: Correction) -> Corrected | None:
    """A mean and its interval, corrected; None for a metric that is no rate of one kind of verdict, or has no value.

    What is bad counts as positive, so the share of the good ones is corrected as what is left of 1.
    """
    rate = rated(metric)
    if rate is None or found is None:
        return None
    figures = next((each for each in by.figures if each.corrects == rate.verdict), None)
    if figures is None or figures.sensitivity is None or figures.specificity is None:
        return Corrected(None, f"the error of {rate.verdict} verdicts is not on the card")
    result = correct(_rest(found) if rate.good else found, figures.sensitivity, figures.specificity)
    if result.interval is None or not rate.good:
        return result
    return Corrected(_rest(result.interval))


def _rest(found: Interval) -> Interval:
    """What a share leaves of 1."""
    return Interval(1 - found.mean, 1 - found.high, 1 - found.low, found.n, found.clusters)
