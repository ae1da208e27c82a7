"""Rogan-Gladen correction of rates for the known error of the judge, by its card."""

from __future__ import annotations

from msgspec import Struct

from ragfault.errors import UnknownName
from ragfault.io.runs import Run
from ragfault.judges.cards import CardEntry, JudgeCard, require_card
from ragfault.rules import get_rate_metric
from ragfault.stats import CorrectedShare, Interval, correct_share

CardChoice = bool | str | JudgeCard
"""Correction by the card of the run's judge (True), by its figures for a shape of answers, or by a given
card.
"""


class CardCorrection(Struct, frozen=True, kw_only=True):
    """Card figures by which a scorecard is corrected."""

    judge: str
    """Name of the judge."""
    figures: tuple[CardEntry, ...]
    """Card entry for each kind of verdict that is corrected."""


def load_correction(run: Run, metrics: tuple[str, ...], choice: CardChoice) -> CardCorrection | None:
    """Load the correction of the metrics of a run; None where none was requested.

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
    return CardCorrection(judge=card.judge, figures=tuple(entry for entry in figures if entry is not None))


def correct_interval(
    metric: str, interval: Interval | None, correction: CardCorrection
) -> CorrectedShare | None:
    """Correct a mean and its interval; None without a value, and for a metric that is no rate.

    The positive class is the bad one, so a share of good units is corrected through its complement.
    """
    rate = get_rate_metric(metric)
    if rate is None or interval is None:
        return None
    entry = next((entry for entry in correction.figures if entry.corrects == rate.verdict), None)
    if entry is None or entry.sensitivity is None or entry.specificity is None:
        return CorrectedShare(None, f"the error of {rate.verdict} verdicts is not on the card")
    result = correct_share(
        _complement(interval) if rate.counts_positives else interval, entry.sensitivity, entry.specificity
    )
    if result.interval is None or not rate.counts_positives:
        return result
    return CorrectedShare(_complement(result.interval))


def _complement(interval: Interval) -> Interval:
    return Interval(1 - interval.mean, 1 - interval.high, 1 - interval.low, interval.n, interval.clusters)
