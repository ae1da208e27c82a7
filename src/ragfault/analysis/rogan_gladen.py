"""Rogan-Gladen correction of rates for the known error of the judge, by its card."""

from __future__ import annotations

from msgspec import Struct

from ragfault.errors import UnknownName
from ragfault.io.runs import Run
from ragfault.judges.cards import CardEntry, JudgeCard, require_card
from ragfault.rules import get_rate_metric
from ragfault.stats import CorrectedShare, Interval, correct_share

CardChoice = bool | str | JudgeCard
"""Whether to correct: by the card of the run's judge, by its figures on a shape of answers, or by the card given."""


class CardCorrection(Struct, frozen=True, kw_only=True):
    """By what figures of which judge a scorecard was corrected."""

    judge: str
    """The name of the judge."""
    figures: tuple[CardEntry, ...]
    """What its card says of each kind of verdict that was corrected, each with the set it was measured on."""


def load_correction(run: Run, metrics: tuple[str, ...], choice: CardChoice) -> CardCorrection | None:
    """By what to correct the metrics of a run; None where that was not asked for.

    Raises UsageError where the judge of the run has no card, or one of another version or other settings;
    UnknownName for a shape on which its error was not measured.
    """
    if choice is False:
        return None
    card = choice if isinstance(choice, JudgeCard) else require_card(run.manifest.judge)
    shape = choice if isinstance(choice, str) else None
    if shape is not None and shape not in card.shapes:
        raise UnknownName("shape of answers on the card", shape, card.shapes)
    kinds = dict.fromkeys(rate.verdict for rate in map(get_rate_metric, metrics) if rate is not None)
    figures = (card.select_entry(kind, shape) for kind in kinds)
    return CardCorrection(judge=card.judge, figures=tuple(each for each in figures if each is not None))


def correct_interval(
    metric: str, interval: Interval | None, correction: CardCorrection
) -> CorrectedShare | None:
    """A mean and its interval, corrected; None for a metric that is no rate of one kind of verdict, or has no value.

    What is bad counts as positive, so the share of the good ones is corrected as what is left of 1.
    """
    rate = get_rate_metric(metric)
    if rate is None or interval is None:
        return None
    figures = next((each for each in correction.figures if each.corrects == rate.verdict), None)
    if figures is None or figures.sensitivity is None or figures.specificity is None:
        return CorrectedShare(None, f"the error of {rate.verdict} verdicts is not on the card")
    result = correct_share(
        _complement(interval) if rate.counts_positives else interval, figures.sensitivity, figures.specificity
    )
    if result.interval is None or not rate.counts_positives:
        return result
    return CorrectedShare(_complement(result.interval))


def _complement(interval: Interval) -> Interval:
    """What a share leaves of 1."""
    return Interval(1 - interval.mean, 1 - interval.high, 1 - interval.low, interval.n, interval.clusters)
