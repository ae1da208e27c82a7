"""The card of a judge, made from what was measured of it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ragfault.agreement.records import Agreement, Measurement
from ragfault.cards import Card, Measured
from ragfault.rules import Judged
from ragfault.stats import Estimate, Interval

__all__ = ["card", "entries"]

CORRECTS: dict[str, Judged] = {"claim": "claim", "chunk": "chunk"}
"""The units whose error corrects a kind of verdict."""


def card(found: Measurement, command: str, old: Card | None = None) -> Card:
    """A card with what was measured; on an `old` card of the very same judge, beside what stands there.

    An entry of the same set, level and part takes the place of the old one.
    """
    made = tuple(entries(found, command))
    if old is not None and old.fingerprint == found.judge:
        again = {(each.set, each.level, each.split) for each in made}
        kept = tuple(each for each in old.measured if (each.set, each.level, each.split) not in again)
        return replace(old, measured=(*kept, *made))
    speed = found.speed.rate
    return Card(
        judge=found.judge.split("/", 1)[0],
        fingerprint=found.judge,
        summary="A judge that was measured with ragfault judge measure.",
        reads="not recorded",
        training=(),
        licence="not recorded",
        size="not recorded",
        speed="not measured" if speed is None else f"{speed:,.1f} traces per second",
        measured=made,
        weaknesses=(),
    )


def entries(found: Measurement, command: str) -> Iterator[Measured]:
    """What a card says of a measurement: an entry for each kind of unit but sentences, where both kinds were met.

    Of chunks what people call relevant is positive in a measurement, and good on a card.
    """
    for view in found.views:
        if view.unit != "sentence" and 0 < view.positives < view.n:
            yield _entry(found, view, command)


def _entry(found: Measurement, view: Agreement, command: str) -> Measured:
    chunk = view.unit == "chunk"
    share = view.positives / view.n
    bad, good = ("specificity", "sensitivity") if chunk else ("sensitivity", "specificity")
    return Measured(
        set=", ".join(found.source),
        shape="passage" if chunk else "mixed",
        level="chunk" if chunk else "answer" if view.unit == "answer" else "claim",
        split=f"{found.traces:,} traces, {found.positive} is {'relevant' if chunk else 'bad'}",
        trained_on=False,
        n=view.n,
        groups=view.groups,
        share_bad=1 - share if chunk else share,
        auroc=_estimate(view, "auroc"),
        auroc_within=_estimate(view, "auroc_within"),
        f1=None if chunk else _estimate(view, "f1"),
        precision=None if chunk else _estimate(view, "precision"),
        recall=None if chunk else _estimate(view, "recall"),
        balanced_accuracy=_estimate(view, "balanced_accuracy"),
        best_balanced_accuracy=_estimate(view, "best_balanced_accuracy"),
        calibration_error=_estimate(view, "calibration_error"),
        kappa=_estimate(view, "kappa"),
        alpha=_estimate(view, "alpha"),
        sensitivity=_interval(view, bad),
        specificity=_interval(view, good),
        corrects=CORRECTS.get(view.unit),
        note="; ".join(found.notes),
        command=command,
    )


def _estimate(view: Agreement, name: str) -> Estimate | None:
    """A figure with its interval."""
    found = view.figure(name)
    return None if found is None or found.value is None else Estimate(found.value, found.low, found.high)


def _interval(view: Agreement, name: str) -> Interval | None:
    """A share with its interval over groups."""
    found = view.figure(name)
    if found is None or found.value is None or found.low is None or found.high is None:
        return None
    return Interval(found.value, found.low, found.high, found.n, view.groups)
