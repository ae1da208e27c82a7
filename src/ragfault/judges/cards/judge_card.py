"""Judge card: figures measured against human labels; the cards of the package and those of users."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from ragfault.errors import InputError, UnknownName, UsageError
from ragfault.rules import BinaryVerdict
from ragfault.stats import BootstrapEstimate, Interval

AnswerShape = Literal[
    "long answer", "short claim", "dialogue turn", "summary", "structured data", "passage", "mixed"
]
"""What was judged: answers of several sentences, single claims, replies, summaries, answers from records, passages."""

CardUnit = Literal["answer", "claim", "chunk"]
"""What has one label: a whole answer (by its worst claim), a claim, or a chunk."""


class CardEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a judge agreed with people on one set of labels.

    The positive class is what is bad: an answer or claim that the chunks do not support, a chunk that is not
    relevant. Figures are None where they are undefined or were not measured.
    """

    set: str
    """The name of the set."""
    shape: AnswerShape
    level: CardUnit
    split: str
    """Which part of the set."""
    trained_on: bool
    """Whether the judge was fitted on another part of the same set: elsewhere expect less."""
    n: int
    groups: int
    """Independent groups among them, such as sources; intervals resample these."""
    share_bad: float
    auroc: BootstrapEstimate | None = None
    """The chance that a bad one is more doubtful than a good one; 0.5 is guessing."""
    auroc_within: BootstrapEstimate | None = None
    """The same within groups that give nothing away by style, where the set names such groups."""
    f1: BootstrapEstimate | None = None
    """Of the bad class at the threshold that is best on the other folds, as are precision and recall."""
    precision: BootstrapEstimate | None = None
    recall: BootstrapEstimate | None = None
    balanced_accuracy: BootstrapEstimate | None = None
    """The mean of sensitivity and specificity by the judge's own word."""
    best_balanced_accuracy: BootstrapEstimate | None = None
    """The same at the threshold that is best on this very set: what the judge's own loses here."""
    calibration_error: BootstrapEstimate | None = None
    """How far the judge's probabilities are from the shares they stand for."""
    kappa: BootstrapEstimate | None = None
    """Cohen's, by the judge's own word."""
    alpha: BootstrapEstimate | None = None
    """Krippendorff's, of the judge and people together, by its own word."""
    sensitivity: Interval | None = None
    """The share of the bad ones that the judge, by its own word, calls bad."""
    specificity: Interval | None = None
    """The share of the good ones that it calls good."""
    corrects: BinaryVerdict | None = None
    """The kind of verdict whose rates these two correct."""
    note: str = ""
    """What else must be known to read the figures."""
    command: str
    """What measures them anew."""


class JudgeCard(Struct, frozen=True, kw_only=True):
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
    measured: tuple[CardEntry, ...]
    """The figures: one entry for each set, or part of it, and level."""
    weaknesses: tuple[str, ...]
    """What it is known to get wrong."""

    def select_entry(self, kind: BinaryVerdict, shape: str | None = None) -> CardEntry | None:
        """The entry that corrects a kind of verdict: on this shape where there is one, else the first.

        None where the error of that kind was not measured.
        """
        found = [each for each in self.measured if each.corrects == kind]
        return next((each for each in found if each.shape == shape), found[0] if found else None)

    @property
    def shapes(self) -> tuple[AnswerShape, ...]:
        """The shapes of answers on which the error of claim verdicts was measured, the usual one first."""
        return tuple(each.shape for each in self.measured if each.corrects == "claim")


CARD_FOLDER = Path(__file__).parent

USER_CARDS = Path(".ragfault", "cards")
"""Where the cards of users lie, below the folder in which they work."""

CARDS_VARIABLE = "RAGFAULT_CARDS"
"""The variable of the environment that names another folder of cards, or a card."""


def list_cards() -> tuple[str, ...]:
    """The judges that have a card.

    >>> "lexical" in list_cards()
    True
    """
    return tuple(sorted(path.stem for path in CARD_FOLDER.glob("*.json")))


def load_card(name: str = "embedded") -> JudgeCard:
    """The card of a judge; without a name, of the default one.

    Raises UnknownName where no judge of that name has one.

    >>> load_card("lexical").judge
    'lexical'
    >>> load_card("lexicon")
    Traceback (most recent call last):
    ragfault.errors.UnknownName: no card of a judge "lexicon". Did you mean "lexical"?
    """
    if name not in list_cards():
        raise UnknownName("card of a judge", name, list_cards())
    return read_card(CARD_FOLDER / f"{name}.json")


def read_card(path: str | Path) -> JudgeCard:
    """The card in a JSON file.

    Raises InputError where there is none.
    """
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=JudgeCard)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise InputError(f"{path} is not the card of a judge: {error}") from None


def lookup_card(fingerprint: str) -> JudgeCard | None:
    """The card of the very judge that has this fingerprint; None where it was never measured.

    Cards of users come first: those in the folder (or the file) that $RAGFAULT_CARDS names, else in .ragfault/judges/cards;
    then those of the package. Files that are no cards are passed over.

    >>> lookup_card("lexical/0") is None, lookup_card(load_card("lexical").fingerprint).judge
    (True, 'lexical')
    """
    place = Path(os.environ.get(CARDS_VARIABLE) or USER_CARDS)
    mine = sorted(place.glob("*.json")) if place.is_dir() else [place] if place.is_file() else []
    for path in (*mine, *(CARD_FOLDER / f"{name}.json" for name in list_cards())):
        try:
            card = read_card(path)
        except InputError:
            continue
        if card.fingerprint == fingerprint:
            return card
    return None


def require_card(fingerprint: str) -> JudgeCard:
    """The card of the very judge that has this fingerprint, of a user or of the package.

    Raises UsageError where there is no card of it, or where the card's figures are those of another version or of
    other settings.
    """
    name = fingerprint.split("/", 1)[0].strip()
    if not name:
        raise UsageError("no judge looked at these traces: there is no error of a judge to correct.")
    found = lookup_card(fingerprint)
    if found is not None:
        return found
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
