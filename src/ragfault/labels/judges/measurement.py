"""Records of a judge measurement, and the judge card built from one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ragfault.judges.cards.card import CardEntry, JudgeCard
from ragfault.model.records import Layer, Usage
from ragfault.model.rules import BinaryVerdict
from ragfault.stats.estimates import BootstrapEstimate, CalibrationBin, Difference, Interval

LabelTask = Literal["answer", "support", "relevance"]
UnitKind = Literal["answer", "claim", "sentence", "chunk"]


class AgreementFigure(Struct, frozen=True, kw_only=True):
    """Statistic with its interval."""

    # `auroc`, `f1`, `sensitivity`, …
    name: str
    value: float | None
    # none where the data do not determine the spread
    low: float | None = None
    high: float | None = None
    # units, or those of them that it is a share of
    n: int = 0
    # reason of a missing value
    reason: str | None = None


class ScoreBin(Struct, frozen=True, kw_only=True):
    """Units with a score in [low, high)."""

    low: float
    high: float
    positive: int
    negative: int


class AgreementCurves(Struct, frozen=True, kw_only=True):
    """Curves for the charts."""

    calibration: tuple[CalibrationBin, ...]
    """Mean score and share of positives, in bins of about equal mass."""
    roc: tuple[tuple[float, float], ...]
    """False positive and true positive rates, from (0, 0) to (1, 1)."""
    scores: tuple[ScoreBin, ...]


class UnitAgreement(Struct, frozen=True, kw_only=True):
    """Agreement of the judge with human labels on units of one kind."""

    unit: UnitKind
    column: str | None = None
    value: str | None = None
    """Column that the traces were divided by, and its value; None: all."""
    n: int
    groups: int
    positives: int
    figures: tuple[AgreementFigure, ...]

    def figure(self, name: str) -> AgreementFigure | None:
        """Return the figure of that name."""
        return next((figure for figure in self.figures if figure.name == name), None)


class SpanAgreement(Struct, frozen=True, kw_only=True):
    """Overlap of the claims that the judge calls bad with the labeled spans."""

    # labeled spans
    spans: int
    figures: tuple[AgreementFigure, ...]
    """`found`: share of the spans that such a claim touches; `precision`, `recall` and `f1` of characters."""


class MetricAgreement(Struct, frozen=True, kw_only=True):
    """Metric by the judge's verdicts and by human labels, on the same traces."""

    metric: str
    layer: Layer
    n: int
    """Traces on which both have a value."""
    judge: Interval
    human: Interval
    difference: Difference
    """The judge's mean less that of people."""
    correlation: BootstrapEstimate
    """Pearson's, over the traces; None where one of both does not vary."""


class GeneratorRate(Struct, frozen=True, kw_only=True):
    """Share of bad units of one generator."""

    name: str
    n: int
    human: float
    """Share of the units that people call bad."""
    judge: float
    """Mean score of the judge."""


class GeneratorOrder(Struct, frozen=True, kw_only=True):
    """Order of the generators by people and by the judge."""

    column: str
    """Column that names the generator."""
    by: str | None = None
    value: str | None = None
    """Column that the traces were divided by, and its value; None: all."""
    generators: tuple[GeneratorRate, ...]
    """The best by people first; those with fewer than ten units are left out."""
    kendall_tau: AgreementFigure
    """Kendall's τ-b of both rankings: 1 is the same order, 0 none, -1 the opposite."""


class JudgeSpeed(Struct, frozen=True, kw_only=True):
    """Time and memory of a judge."""

    traces: int
    """Timed traces: all but the first few of each process."""
    seconds: float
    """Processor time."""
    rate: float | None
    """Traces per second on one core."""
    memory: int | None
    """Largest peak memory of a process, in bytes; None where the system does not report it."""
    wall_clock: bool = False
    """The seconds are wall-clock time: of a judge that waits for a network."""
    usage: Usage | None = None
    """Calls and cost of a paid judge; None for other judges."""


class LabelColumns(Struct, frozen=True, kw_only=True):
    """Columns of the labels."""

    label: str | None = None
    spans: str | None = None
    claims: str | None = None
    grades: str | None = None
    # none: every trace is its own group
    group: str | None = None


class JudgeMeasurement(Struct, frozen=True, kw_only=True):
    """Agreement of a judge with human labels."""

    judge: str
    """Fingerprint."""
    source: tuple[str, ...]
    task: LabelTask
    columns: LabelColumns
    positive: str
    """Positive labels, in words."""
    threshold: str
    """`cv`, `own` or a number: threshold of F1, precision and recall."""
    cut: float | None = None
    """Value of the threshold, or its mean over the folds."""
    traces: int
    """Measured traces."""
    unlabelled: int = 0
    """Traces without a label."""
    skipped: int = 0
    """Unreadable lines and labels."""
    failed: int = 0
    """Traces on which the judge failed."""
    unjudged: int = 0
    """Traces without a verdict on what was labeled."""
    failures: dict[str, int] = {}
    """Reason of a failure → number of traces."""
    views: tuple[UnitAgreement, ...]
    """Units of the task first, then the further units of the labels."""
    span_agreement: SpanAgreement | None = None
    by: tuple[str, ...] = ()
    slices: tuple[UnitAgreement, ...] = ()
    """Agreement for each value of the columns `by`."""
    within: tuple[str, ...] = ()
    """Columns within which `auroc_within` is computed."""
    cells: int = 0
    """Groups of those columns with positives and negatives."""
    permutations: int = 0
    """Traces that were judged once more with their chunks in another order."""
    generator_rankings: tuple[GeneratorOrder, ...] = ()
    """Order of three or more generators, of all units and for each value of `by`."""
    curves: AgreementCurves | None = None
    metrics: tuple[MetricAgreement, ...] = ()
    """Metrics that the labels determine."""
    speed: JudgeSpeed
    seed: int = 0
    resamples: int = 1000
    confidence: float = 0.95
    notes: tuple[str, ...] = ()
    """Assumptions and warnings."""

    @property
    def overall(self) -> UnitAgreement:
        """Return the agreement on all units of the task."""
        return self.views[0]


CORRECTED_VERDICTS: dict[str, BinaryVerdict] = {"claim": "claim", "chunk": "chunk"}
"""Unit → kind of verdict that its error corrects."""


def build_card(measurement: JudgeMeasurement, command: str, previous: JudgeCard | None = None) -> JudgeCard:
    """Build a card from a measurement; entries replace the like ones on the same judge's `previous` card."""
    entries = tuple(build_entries(measurement, command))
    if previous is not None and previous.fingerprint == measurement.judge:
        replaced = {(entry.set, entry.level, entry.split) for entry in entries}
        unchanged = tuple(entry for entry in previous.measured if (entry.set, entry.level, entry.split) not in replaced)
        return replace(previous, measured=(*unchanged, *entries))
    speed = measurement.speed.rate
    return JudgeCard(
        judge=measurement.judge.split("/", 1)[0],
        fingerprint=measurement.judge,
        summary="A judge that was measured with ragfault judge measure.",
        reads="not recorded",
        training=(),
        licence="not recorded",
        size="not recorded",
        speed="not measured" if speed is None else f"{speed:,.1f} traces per second",
        measured=entries,
        weaknesses=(),
    )


CARD_FIGURES = ("auroc", "auroc_within", "balanced_accuracy", "best_balanced_accuracy", "calibration_error", "kappa",
                "alpha", "verbosity")  # fmt: skip
CLAIM_FIGURES = ("f1", "precision", "recall", "recall_at_precision")
"""Figures of an entry of a card: of every kind of unit, and beside these of claims and answers."""


def build_entries(measurement: JudgeMeasurement, command: str) -> Iterator[CardEntry]:
    """Yield a card entry for each kind of unit but sentences, where both classes occur.

    Of chunks what people call relevant is positive in a measurement, and good on a card.
    """
    for view in measurement.views:
        if view.unit != "sentence" and 0 < view.positives < view.n:
            yield _build_entry(measurement, view, command)


def _build_entry(measurement: JudgeMeasurement, view: UnitAgreement, command: str) -> CardEntry:
    chunk = view.unit == "chunk"
    share = view.positives / view.n
    bad_rate, good_rate = ("specificity", "sensitivity") if chunk else ("sensitivity", "specificity")
    names = CARD_FIGURES if chunk else (*CARD_FIGURES, *CLAIM_FIGURES)
    estimates: dict[str, Any] = {name: _get_estimate(view, name) for name in names}
    return CardEntry(
        set=", ".join(measurement.source),
        shape="passage" if chunk else "mixed",
        level="chunk" if chunk else "answer" if view.unit == "answer" else "claim",
        split=f"{measurement.traces:,} traces, {measurement.positive} is {'relevant' if chunk else 'bad'}",
        trained_on=False,
        n=view.n,
        groups=view.groups,
        share_bad=1 - share if chunk else share,
        kendall_tau=_get_order(measurement) if view is measurement.overall else None,
        sensitivity=_get_interval(view, bad_rate),
        specificity=_get_interval(view, good_rate),
        order_flips=_get_interval(view, "order_flips"),
        corrects=CORRECTED_VERDICTS.get(view.unit),
        groundedness_bias=None if chunk else _get_bias(measurement),
        note="; ".join(measurement.notes),
        command=command,
        **estimates,
    )


def _get_estimate(view: UnitAgreement, name: str) -> BootstrapEstimate | None:
    figure = view.figure(name)
    return None if figure is None or figure.value is None else BootstrapEstimate(figure.value, figure.low, figure.high)


def _get_order(measurement: JudgeMeasurement) -> BootstrapEstimate | None:
    """Return the agreement on the order of the generators of all units; None without enough generators."""
    tau = next((order.kendall_tau for order in measurement.generator_rankings if order.value is None), None)
    return None if tau is None or tau.value is None else BootstrapEstimate(tau.value, tau.low, tau.high)


def _get_bias(measurement: JudgeMeasurement) -> BootstrapEstimate | None:
    """Return the judge's mean groundedness less that of people; None where the labels do not determine it."""
    difference = next((item.difference for item in measurement.metrics if item.metric == "groundedness"), None)
    return None if difference is None else BootstrapEstimate(difference.mean, difference.low, difference.high)


def _get_interval(view: UnitAgreement, name: str) -> Interval | None:
    """Return a share with its interval over groups."""
    figure = view.figure(name)
    if figure is None or figure.value is None or figure.low is None or figure.high is None:
        return None
    return Interval(figure.value, figure.low, figure.high, figure.n, min(figure.n, view.groups))
