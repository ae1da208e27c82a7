"""Records of what corrects the figures of a run: human labels of some traces, or the card of its judge."""

from __future__ import annotations

from msgspec import Struct

from ragfault.judges.cards.card import CardEntry


class LabelProvenance(Struct, frozen=True, kw_only=True):
    """Origin of the human labels that correct a run."""

    labelers: str
    """Names of the annotators, a file, or the judge of another run."""
    traces: int
    """Labelled traces of the run."""
    unmatched: int = 0
    """Labels of traces, or of answers, that are not in the run."""
    disputed: int = 0
    """Items on which the annotators disagree."""


class CardCorrection(Struct, frozen=True, kw_only=True):
    """Card figures by which a scorecard is corrected."""

    judge: str
    """Name of the judge."""
    figures: tuple[CardEntry, ...]
    """Card entry for each kind of verdict that is corrected."""
