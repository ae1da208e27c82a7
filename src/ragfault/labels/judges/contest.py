"""Which of two judges is better: both against the same labels of people, paired."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from ragfault.labels.judges.figures import balanced_accuracy
from ragfault.labels.judges.measurement import UnitKind
from ragfault.labels.judges.measuring import JudgedLabels, build_main_units
from ragfault.labels.judges.units import ScoredUnits, match_units
from ragfault.labels.reading.label_columns import split_map
from ragfault.labels.reading.labeled_traces import GivenLabels, LabeledSource, LabeledTraces, load_labeled_traces
from ragfault.labels.settings import JudgeComparisonSettings, LabelSettings
from ragfault.model.errors import BadTraces, InputError
from ragfault.model.records import Trace, Verdicts
from ragfault.stats.agreement import TwoRaterRatings
from ragfault.stats.bootstrap import FloatArray, Resampling, bootstrap_estimates
from ragfault.stats.classification import RankedScores
from ragfault.stats.distributions import normal_quantile
from ragfault.stats.estimates import BootstrapEstimate
from ragfault.stats.power import required_equivalence_pairs, required_pairs

ContestDecision = Literal["first", "second", "equal", "undecided"]
MARGIN = 0.05
"""Judges whose AUROC differs by less are equally good."""
EQUAL_GROUPS = math.ceil(math.log(0.025) / math.log(1 - MARGIN))
"""Groups without any difference that show, with 95 % confidence, that less than the margin of all groups differ."""


class ContestFigure(Struct, frozen=True, kw_only=True):
    """Figure of two judges on the same units, and the second less the first."""

    name: str
    first: BootstrapEstimate
    second: BootstrapEstimate
    difference: BootstrapEstimate


class JudgeContest(Struct, frozen=True, kw_only=True):
    """Two judges against the same labels: which one is better, by AUROC."""

    unit: UnitKind
    positive: str
    """Positive labels, in words."""
    n: int
    """Units with a label and a score of both."""
    groups: int
    """Independent groups among them; the intervals resample these."""
    group: str | None
    """Column of the groups; None: every trace is its own."""
    positives: int
    decision: ContestDecision
    """The better judge; "equal" if they differ by less than the margin; else "undecided"."""
    margin: float
    needed: int | None = None
    """Units that would probably decide, if the difference is as seen; None if decided or unknown."""
    figures: tuple[ContestFigure, ...]

    @property
    def is_decided(self) -> bool:
        """Return whether the labels say which judge is better, or that both are equally good."""
        return self.decision != "undecided"

    @property
    def difference(self) -> BootstrapEstimate:
        """Return the AUROC of the second judge less that of the first."""
        return self.figures[0].difference


class ContestVerdicts(NamedTuple):
    """Verdicts of a judge on labelled traces, and on the labelled claims that are not in their answers."""

    traces: Sequence[Verdicts]
    claims: Sequence[Verdicts]


def find_labels(
    source: LabeledSource | Iterable[Trace] | GivenLabels, settings: JudgeComparisonSettings
) -> LabeledTraces | BadTraces | None:
    """Find the labels in the columns of a source; None if no column is known to hold any.

    Labels that cannot be read are returned as an error. If the settings say what the labels are, all that
    `load_labeled_traces` raises is raised.
    """
    is_asked = any((settings.task, settings.positive, settings.group, split_map(settings.map)[1]))
    label_settings = LabelSettings(
        task=settings.task, positive=settings.positive, group=settings.group, **settings.reading
    )
    try:
        return load_labeled_traces(source, label_settings)
    except InputError as error:
        if is_asked:
            raise
        return error if isinstance(error, BadTraces) else None


def hold_contest(
    labels: LabeledTraces, verdicts: tuple[ContestVerdicts, ContestVerdicts], resampling: Resampling
) -> JudgeContest | None:
    """Compare two judges on labels; None if they have no verdict on a common unit."""
    judged = [JudgedLabels(labels.labeled, seen.traces, seen.claims) for seen in verdicts]
    first, second = match_units(*(build_main_units(labels.task, seen) for seen in judged))
    if not first.score.size:
        return None
    groups = judged[0].groups(first)
    figures, decision, needed = _compare_units((first, second), groups, resampling)
    return JudgeContest(
        unit=first.unit,
        positive=labels.positive,
        n=first.label.size,
        groups=len(set(groups)),
        group=labels.columns.group,
        positives=int(first.label.sum()),
        decision=decision,
        margin=MARGIN,
        needed=needed,
        figures=figures,
    )


def _compare_units(
    units: tuple[ScoredUnits, ScoredUnits], groups: Sequence[str], resampling: Resampling
) -> tuple[tuple[ContestFigure, ...], ContestDecision, int | None]:
    """Compare two judges on the same units, both with the same groups in each resample."""
    tables = [_list_statistics(unit) for unit in units]

    def statistic(weights: FloatArray) -> FloatArray:
        first, second = (np.stack([compute(weights) for compute in table.values()], axis=1) for table in tables)
        return np.hstack([first, second, second - first])

    estimates = bootstrap_estimates(statistic, groups, resampling)
    count = len(tables[0])
    figures = tuple(
        ContestFigure(
            name=name, first=estimates[at], second=estimates[count + at], difference=estimates[2 * count + at]
        )
        for at, name in enumerate(tables[0])
    )
    decision = _decide(figures[0].difference, len(set(groups)))
    needed = _plan_labels(figures[0].difference, len(groups), len(set(groups))) if decision == "undecided" else None
    return figures, decision, needed


def _list_statistics(units: ScoredUnits) -> dict[str, Callable[[FloatArray], FloatArray]]:
    """Return the compared figures by name, AUROC first."""
    ranked = RankedScores(units.score, units.label)
    ratings = TwoRaterRatings(units.label.tolist(), units.called.tolist(), (False, True))
    squared = (units.score - units.label) ** 2
    return {
        "auroc": lambda weights: ranked.auroc(*ranked.class_weights(weights)),
        "balanced_accuracy": lambda weights: balanced_accuracy(weights, units.called, units.label),
        "kappa": lambda weights: ratings.kappa(ratings.confusion_matrices(weights)),
        "brier": lambda weights: weights @ squared / weights.sum(axis=1),
    }


def _decide(difference: BootstrapEstimate, groups: int) -> ContestDecision:
    if difference.low is None or difference.high is None:
        # All resamples are alike, or a class of labels is missing.
        return "equal" if difference.value == 0 and groups >= EQUAL_GROUPS else "undecided"
    if difference.low > 0:
        return "second"
    if difference.high < 0:
        return "first"
    return "equal" if max(-difference.low, difference.high) <= MARGIN else "undecided"


def _plan_labels(difference: BootstrapEstimate, n: int, groups: int) -> int | None:
    """Return the units that would show the difference, or that it is below the margin, whichever are fewer."""
    value, low, high = difference
    if value == 0 and low is None and groups > 1:
        return math.ceil(EQUAL_GROUPS * n / groups)
    if value is None or low is None or high is None or high <= low:
        return None
    deviation = (high - low) / (2 * normal_quantile(0.975)) * n**0.5
    size, cluster_size = abs(value), n / groups
    plans = [required_pairs(size, deviation, cluster_size)] if size else []
    if size < MARGIN:
        plans.append(required_equivalence_pairs(MARGIN - size, deviation, cluster_size))
    return min((plan for plan in plans if plan is not None), default=None)
