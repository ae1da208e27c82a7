"""Cards: the measured agreement of a judge with people, as records and files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ragfault.judges.loading import DEFAULT_JUDGE
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.rules import BinaryVerdict
from ragfault.model.whole_files import read_record
from ragfault.stats.estimates import BootstrapEstimate, Interval, predict_f1

AnswerShape = Literal["long answer", "short claim", "dialogue turn", "summary", "structured data", "passage", "mixed"]
"""Shape of the judged texts; "long answer" has several sentences, "structured data" are answers from records."""

CardUnit = Literal["answer", "claim", "chunk"]
"""Unit with one label: a whole answer (by its worst claim), a claim, or a chunk."""


class CardEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Agreement of a judge with human labels on one data set.

    The positive class is the bad one: an answer or claim that the chunks do not support, a chunk that is not
    relevant. Figures are None where they are undefined or were not measured.
    """

    set: str
    """Name of the data set."""
    shape: AnswerShape
    level: CardUnit
    split: str
    """Part of the set."""
    trained_on: bool
    """The judge was fitted on another part of the same set: expect less elsewhere."""
    n: int
    groups: int
    """Independent groups among them, such as sources; intervals resample these."""
    share_bad: float
    auroc: BootstrapEstimate | None = None
    """Probability that a bad unit scores worse than a good one; 0.5 is guessing."""
    auroc_within: BootstrapEstimate | None = None
    """The same within groups that do not reveal the label by style, where the set names such groups."""
    f1: BootstrapEstimate | None = None
    """F1 of the bad class at the best threshold of the other folds; precision and recall likewise."""
    precision: BootstrapEstimate | None = None
    recall: BootstrapEstimate | None = None
    recall_at_precision: BootstrapEstimate | None = None
    """Largest recall of the bad class at a precision of 0.8, over all thresholds."""
    kendall_tau: BootstrapEstimate | None = None
    """Kendall's τ-b between the order of the generators by people and by the judge; None without three generators."""
    balanced_accuracy: BootstrapEstimate | None = None
    """Mean of sensitivity and specificity at the judge's own threshold."""
    best_balanced_accuracy: BootstrapEstimate | None = None
    """The same at the threshold that is best on this very set: shows the loss of the own threshold."""
    calibration_error: BootstrapEstimate | None = None
    """Distance of the judge's probabilities from the observed shares."""
    kappa: BootstrapEstimate | None = None
    """Cohen's kappa at the judge's own threshold."""
    alpha: BootstrapEstimate | None = None
    """Krippendorff's alpha of the judge and the annotators at its own threshold."""
    sensitivity: Interval | None = None
    """Share of the bad units that the judge calls bad at its own threshold."""
    specificity: Interval | None = None
    """Share of the good units that it calls good."""
    corrects: BinaryVerdict | None = None
    """Kind of verdict whose rates these two correct."""
    verbosity: BootstrapEstimate | None = None
    """Rank correlation of the length of a text with how well it is rated, among units with the same label."""
    order_flips: Interval | None = None
    """Share of the decisions that change when the chunks come in a random order."""
    groundedness_bias: BootstrapEstimate | None = None
    """Mean groundedness by the judge less that by people, on the same answers; None where people judged no claims."""
    auroc_lexical: float | None = None
    """AUROC of the judge `lexical` on the same units."""
    auroc_trivial: float | None = None
    """AUROC of the share of the words that no chunk has; for passages, of the share of the query's words they lack."""
    note: str = ""
    """Further remarks on the figures."""
    command: str
    """Command that measures them again."""

    def predict_f1(self, base_rate: float) -> float | None:
        """Predict F1 of the bad class where this share of the units is bad, at the judge's own threshold.

        It assumes that sensitivity and specificity are those measured here. In [0, 1]; None where they were not
        measured.

        >>> entry = load_card("lexical").measured[0]
        >>> entry.predict_f1(0.05) < entry.predict_f1(0.4)
        True
        """
        if self.sensitivity is None or self.specificity is None:
            return None
        return predict_f1(self.sensitivity.mean, self.specificity.mean, base_rate)


class JudgeCard(Struct, frozen=True, kw_only=True):
    """Description of a judge: its basis, training data, measured error and weaknesses."""

    judge: str
    """Name."""
    fingerprint: str
    """Fingerprint of the measured judge; the figures hold for no other."""
    summary: str
    """Description in a sentence."""
    reads: str
    """Basis of its verdicts."""
    training: tuple[str, ...]
    """Data it was fitted on, each with its licence."""
    licence: str
    """Licence of the judge, its weights and tables."""
    size: str
    speed: str
    measured: tuple[CardEntry, ...]
    """Figures: one entry for each set, or part of it, and level."""
    weaknesses: tuple[str, ...]
    """Known errors."""

    def select_entry(self, kind: BinaryVerdict, shape: str | None = None) -> CardEntry | None:
        """Select the entry that corrects a kind of verdict: for this shape, else the first; None without any."""
        entries = [entry for entry in self.measured if entry.corrects == kind]
        return next((entry for entry in entries if entry.shape == shape), entries[0] if entries else None)

    @property
    def shapes(self) -> tuple[AnswerShape, ...]:
        """Return the shapes on which the error of claim verdicts was measured, the usual one first."""
        return tuple(entry.shape for entry in self.measured if entry.corrects == "claim")


CARD_FOLDER = Path(__file__).parent

USER_CARDS = Path(".ragfault", "cards")
"""Folder of the user's cards, below the working folder."""

CARDS_VARIABLE = "RAGFAULT_CARDS"
"""Environment variable that names another folder of cards, or a card."""


def list_cards() -> tuple[str, ...]:
    """List the judges of the package that have a card.

    >>> "lexical" in list_cards()
    True
    """
    return tuple(sorted(path.stem for path in CARD_FOLDER.glob("*.json")))


def load_card(name: str = DEFAULT_JUDGE) -> JudgeCard:
    """Load the card of a judge of the package.

    Raises UnknownName where no judge of that name has one.

    >>> load_card("lexical").judge
    'lexical'
    >>> load_card("lexicon")
    Traceback (most recent call last):
    ragfault.model.errors.UnknownName: no card of a judge "lexicon". Did you mean "lexical"?
    """
    if name not in list_cards():
        raise UnknownName("card of a judge", name, list_cards())
    return read_card(CARD_FOLDER / f"{name}.json")


def read_card(path: str | Path) -> JudgeCard:
    """Read a card from a JSON file; InputError where there is none."""
    return read_record(path, JudgeCard, "the card of a judge")


def lookup_card(fingerprint: str) -> JudgeCard | None:
    """Return the card with exactly this fingerprint; None where that judge was never measured.

    User cards come first: those in the folder (or the file) that $RAGFAULT_CARDS names, else in
    .ragfault/cards; then those of the package. Files that are not cards are skipped.

    >>> lookup_card("lexical/0") is None, lookup_card(load_card("lexical").fingerprint).judge
    (True, 'lexical')
    """
    folder = Path(os.environ.get(CARDS_VARIABLE) or USER_CARDS)
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else [folder] if folder.is_file() else []
    for path in (*paths, *(CARD_FOLDER / f"{name}.json" for name in list_cards())):
        try:
            card = read_card(path)
        except InputError:
            continue
        if card.fingerprint == fingerprint:
            return card
    return None


def require_card(fingerprint: str) -> JudgeCard:
    """Return the card with exactly this fingerprint, of a user or of the package.

    Raises UsageError where the judge has no card, or only one of another version or other settings.
    """
    name = fingerprint.split("/", 1)[0].strip()
    if not name:
        raise UsageError("no judge looked at these traces: there is no error of a judge to correct.")
    card = lookup_card(fingerprint)
    if card is not None:
        return card
    measure = f"Measure it with: ragfault judge measure LABELS --card {USER_CARDS / f'{name}.json'}"
    if name not in list_cards():
        raise UsageError(
            f'the judge "{name}" has no card, so its error is not known. There are cards of: '
            f"{', '.join(list_cards())}. {measure}"
        )
    raise UsageError(
        f'the card of "{name}" was measured with "{load_card(name).fingerprint}", and these traces were judged by '
        f'"{fingerprint}". Evaluate them again with that judge, or measure this one. {measure}'
    )
