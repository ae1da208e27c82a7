"""Records of a judge measurement, and the judge card built from one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ragfault.judges.cards import CardEntry, JudgeCard
from ragfault.records import Layer, Usage
from ragfault.rules import BinaryVerdict
from ragfault.stats import BootstrapEstimate, CalibrationBin, Difference, Interval

LabelTask = Literal["answer", "support", "relevance"]
UnitKind = Literal["answer", "claim", "sentence", "chunk"]


class AgreementFigure(Struct, frozen=True, kw_only=True):
    """One figure with its interval."""

    name: str
    """`auroc`, `f1`, `sensitivity`, …"""
    value: float | None
    low: float | None = None
    """None where the data tell nothing of the spread."""
    high: float | None = None
    n: int = 0
    """What it is made from: units, or those of them that it is a share of."""
    reason: str | None = None
    """Why there is no value."""


class ScoreBin(Struct, frozen=True, kw_only=True):
    """How many units have a score in [low, high)."""

    low: float
    high: float
    positive: int
    negative: int


class AgreementCurves(Struct, frozen=True, kw_only=True):
    """What the charts draw."""

    calibration: tuple[CalibrationBin, ...]
    """Mean score and share of positives, in bins of about equal mass."""
    roc: tuple[tuple[float, float], ...]
    """False alarms and hits (shares of negatives and of positives), from (0, 0) to (1, 1)."""
    scores: tuple[ScoreBin, ...]


class UnitAgreement(Struct, frozen=True, kw_only=True):
    """How far the judge agrees with people on units of one kind."""

    unit: UnitKind
    value: str | None = None
    """The value of the column that the traces were divided by; None: all."""
    n: int
    groups: int
    positives: int
    figures: tuple[AgreementFigure, ...]

    def figure(self, name: str) -> AgreementFigure | None:
        """The figure of that name."""
        return next((figure for figure in self.figures if figure.name == name), None)


class SpanAgreement(Struct, frozen=True, kw_only=True):
    """How the claims that the judge calls bad lie over the stretches that people marked."""

    spans: int
    """Stretches that people marked."""
    figures: tuple[AgreementFigure, ...]
    """`found`: the share of them that such a claim touches; `precision`, `recall` and `f1` of characters."""


class MetricAgreement(Struct, frozen=True, kw_only=True):
    """What a metric comes to by the judge's verdicts and by those of people, on the same traces."""

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


class JudgeSpeed(Struct, frozen=True, kw_only=True):
    """What the judging cost."""

    traces: int
    """Traces that were timed: all but the first few of each process."""
    seconds: float
    """Of processor time."""
    rate: float | None
    """Traces per second on one core."""
    memory: int | None
    """The largest memory of a process at its peak, in bytes; None where the system does not tell."""
    wall_clock: bool = False
    """Whether the seconds are those of the clock on the wall: of a judge that waits on a network."""
    usage: Usage | None = None
    """What the calls of a judge that is paid for came to; None for other judges."""


class LabelColumns(Struct, frozen=True, kw_only=True):
    """Where the words of people stood."""

    label: str | None = None
    spans: str | None = None
    claims: str | None = None
    grades: str | None = None
    group: str | None = None
    """None: every trace by itself."""


class JudgeMeasurement(Struct, frozen=True, kw_only=True):
    """How far a judge agrees with people."""

    judge: str
    """Its fingerprint."""
    source: tuple[str, ...]
    task: LabelTask
    columns: LabelColumns
    positive: str
    """What is counted as positive, in words."""
    threshold: str
    """`cv`, `own` or a number: where F1, precision and recall are taken."""
    cut: float | None = None
    """The threshold, or the mean of those of the folds."""
    traces: int
    """Traces that are measured."""
    unlabelled: int = 0
    """Traces left out because people said nothing of them."""
    skipped: int = 0
    """Lines and labels left out because they cannot be read."""
    failed: int = 0
    """Traces left out because the judge failed on them."""
    unjudged: int = 0
    """Traces left out because the judge gave no verdict on what people labelled."""
    failures: dict[str, int] = {}
    """Why it failed, and how often."""
    views: tuple[UnitAgreement, ...]
    """The task's own units first, then those that the labels tell of as well."""
    span_agreement: SpanAgreement | None = None
    by: str | None = None
    slices: tuple[UnitAgreement, ...] = ()
    """For each value of the column `by`."""
    within: tuple[str, ...] = ()
    """The columns within which `auroc_within` is taken."""
    cells: int = 0
    """How many groups of those columns have positives and negatives."""
    curves: AgreementCurves | None = None
    metrics: tuple[MetricAgreement, ...] = ()
    """The metrics that the labels can speak of."""
    speed: JudgeSpeed
    seed: int = 0
    resamples: int = 1000
    confidence: float = 0.95
    notes: tuple[str, ...] = ()
    """What was guessed, and what to beware of."""

    @property
    def overall(self) -> UnitAgreement:
        """The task's own units, all of them."""
        return self.views[0]


CORRECTED_VERDICTS: dict[str, BinaryVerdict] = {"claim": "claim", "chunk": "chunk"}
"""The units whose error corrects a kind of verdict."""


def build_card(measurement: JudgeMeasurement, command: str, previous: JudgeCard | None = None) -> JudgeCard:
    """A card with what was measured; on an `old` card of the very same judge, beside what stands there.

    An entry of the same set, level and part takes the place of the old one.
    """
    made = tuple(build_entries(measurement, command))
    if previous is not None and previous.fingerprint == measurement.judge:
        again = {(each.set, each.level, each.split) for each in made}
        kept = tuple(each for each in previous.measured if (each.set, each.level, each.split) not in again)
        return replace(previous, measured=(*kept, *made))
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
        measured=made,
        weaknesses=(),
    )


def build_entries(measurement: JudgeMeasurement, command: str) -> Iterator[CardEntry]:
    """What a card says of a measurement: an entry for each kind of unit but sentences, where both kinds were met.

    Of chunks what people call relevant is positive in a measurement, and good on a card.
    """
    for view in measurement.views:
        if view.unit != "sentence" and 0 < view.positives < view.n:
            yield _build_entry(measurement, view, command)


def _build_entry(measurement: JudgeMeasurement, view: UnitAgreement, command: str) -> CardEntry:
    chunk = view.unit == "chunk"
    share = view.positives / view.n
    bad, good = ("specificity", "sensitivity") if chunk else ("sensitivity", "specificity")
    return CardEntry(
        set=", ".join(measurement.source),
        shape="passage" if chunk else "mixed",
        level="chunk" if chunk else "answer" if view.unit == "answer" else "claim",
        split=f"{measurement.traces:,} traces, {measurement.positive} is {'relevant' if chunk else 'bad'}",
        trained_on=False,
        n=view.n,
        groups=view.groups,
        share_bad=1 - share if chunk else share,
        auroc=_get_estimate(view, "auroc"),
        auroc_within=_get_estimate(view, "auroc_within"),
        f1=None if chunk else _get_estimate(view, "f1"),
        precision=None if chunk else _get_estimate(view, "precision"),
        recall=None if chunk else _get_estimate(view, "recall"),
        balanced_accuracy=_get_estimate(view, "balanced_accuracy"),
        best_balanced_accuracy=_get_estimate(view, "best_balanced_accuracy"),
        calibration_error=_get_estimate(view, "calibration_error"),
        kappa=_get_estimate(view, "kappa"),
        alpha=_get_estimate(view, "alpha"),
        sensitivity=_get_interval(view, bad),
        specificity=_get_interval(view, good),
        corrects=CORRECTED_VERDICTS.get(view.unit),
        note="; ".join(measurement.notes),
        command=command,
    )


def _get_estimate(view: UnitAgreement, name: str) -> BootstrapEstimate | None:
    """A figure with its interval."""
    found = view.figure(name)
    return (
        None
        if found is None or found.value is None
        else BootstrapEstimate(found.value, found.low, found.high)
    )


def _get_interval(view: UnitAgreement, name: str) -> Interval | None:
    """A share with its interval over groups."""
    found = view.figure(name)
    if found is None or found.value is None or found.low is None or found.high is None:
        return None
    return Interval(found.value, found.low, found.high, found.n, view.groups)
