"""What a card says of a judge: figures measured against people, and what they were measured on."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.rules import Judged
from ragfault.stats import Estimate, Interval

__all__ = ["Card", "Measured", "Shape", "Unit"]

Shape = Literal[
    "long answer", "short claim", "dialogue turn", "summary", "structured data", "passage", "mixed"
]
"""What was judged: answers of several sentences, single claims, replies, summaries, answers from records, passages."""

Unit = Literal["answer", "claim", "chunk"]
"""What has one label: a whole answer (by its worst claim), a claim, or a chunk."""


class Measured(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a judge agreed with people on one set of labels.

    The positive class is what is bad: an answer or claim that the chunks do not support, a chunk that is not
    relevant. Figures are None where they are undefined or were not measured.
    """

    set: str
    """The name of the set."""
    shape: Shape
    level: Unit
    split: str
    """Which part of the set."""
    trained_on: bool
    """Whether the judge was fitted on another part of the same set: elsewhere expect less."""
    n: int
    groups: int
    """Independent groups among them, such as sources; intervals resample these."""
    share_bad: float
    auroc: Estimate | None = None
    """The chance that a bad one is more doubtful than a good one; 0.5 is guessing."""
    auroc_within: Estimate | None = None
    """The same within groups that give nothing away by style, where the set names such groups."""
    f1: Estimate | None = None
    """Of the bad class at the threshold that is best on the other folds, as are precision and recall."""
    precision: Estimate | None = None
    recall: Estimate | None = None
    balanced_accuracy: Estimate | None = None
    """The mean of sensitivity and specificity by the judge's own word."""
    best_balanced_accuracy: Estimate | None = None
    """The same at the threshold that is best on this very set: what the judge's own loses here."""
    calibration_error: Estimate | None = None
    """How far the judge's probabilities are from the shares they stand for."""
    kappa: Estimate | None = None
    """Cohen's, by the judge's own word."""
    alpha: Estimate | None = None
    """Krippendorff's, of the judge and people together, by its own word."""
    sensitivity: Interval | None = None
    """The share of the bad ones that the judge, by its own word, calls bad."""
    specificity: Interval | None = None
    """The share of the good ones that it calls good."""
    corrects: Judged | None = None
    """The kind of verdict whose rates these two correct."""
    note: str = ""
    """What else must be known to read the figures."""
    command: str
    """What measures them anew."""


class Card(Struct, frozen=True, kw_only=True):
    """What is known of a judge: what it is, what it was made from, how far it can be trusted, and where not."""

    judge: str
    """Its name."""
    fingerprint: str
    """Of the judge that was measured; the figures hold for no other."""
    summary: str
    """What it is, in a sentence."""
    reads: str
    """What its verdicts rest on."""
    training: tuple[str, ...]
    """The data it was fitted on, each with its licence."""
    licence: str
    """Of the judge itself, its weights and tables."""
    size: str
    speed: str
    measured: tuple[Measured, ...]
    """The figures: one entry for each set, or part of it, and level."""
    weaknesses: tuple[str, ...]
    """What it is known to get wrong."""

    def figures(self, kind: Judged, shape: str | None = None) -> Measured | None:
        """The entry that corrects a kind of verdict: on this shape where there is one, else the first.

        None where the error of that kind was not measured.
        """
        found = [each for each in self.measured if each.corrects == kind]
        return next((each for each in found if each.shape == shape), found[0] if found else None)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of answers on which the error of claim verdicts was measured, the usual one first."""
        return tuple(each.shape for each in self.measured if each.corrects == "claim")
