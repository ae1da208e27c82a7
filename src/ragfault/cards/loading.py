"""Cards: those that come with the package, and those that users measured."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ragfault.cards.records import Card
from ragfault.errors import InputError, UnknownName, UsageError

__all__ = ["card_of", "find_card", "known_cards", "load_card", "read_card"]

HERE = Path(__file__).parent

CARDS = Path(".ragfault", "cards")
"""Where the cards of users lie, below the folder in which they work."""

PLACE = "RAGFAULT_CARDS"
"""The variable of the environment that names another folder of cards, or a card."""


def known_cards() -> tuple[str, ...]:
    """The judges that have a card.

    >>> "lexical" in known_cards()
    True
    """
    return tuple(sorted(path.stem for path in HERE.glob("*.json")))


def load_card(name: str = "embedded") -> Card:
    """The card of a judge; without a name, of the default one.

    Raises UnknownName where no judge of that name has one.

    >>> load_card("lexical").judge
    'lexical'
    >>> load_card("lexicon")
    Traceback (most recent call last):
    ragfault.errors.UnknownName: no card of a judge "lexicon". Did you mean "lexical"?
    """
    if name not in known_cards():
        raise UnknownName("card of a judge", name, known_cards())
    return read_card(HERE / f"{name}.json")


def read_card(path: str | Path) -> Card:
    """The card in a JSON file.

    Raises InputError where there is none.
    """
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Card)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise InputError(f"{path} is not the card of a judge: {error}") from None


def find_card(fingerprint: str) -> Card | None:
    """The card of the very judge that has this fingerprint; None where it was never measured.

    Cards of users come first: those in the folder (or the file) that $RAGFAULT_CARDS names, else in .ragfault/cards;
    then those of the package. Files that are no cards are passed over.

    >>> find_card("lexical/0") is None, find_card(load_card("lexical").fingerprint).judge
    (True, 'lexical')
    """
    place = Path(os.environ.get(PLACE) or CARDS)
    mine = sorted(place.glob("*.json")) if place.is_dir() else [place] if place.is_file() else []
    for path in (*mine, *(HERE / f"{name}.json" for name in known_cards())):
        try:
            card = read_card(path)
        except InputError:
            continue
        if card.fingerprint == fingerprint:
            return card
    return None


def card_of(fingerprint: str) -> Card:
    """The card of the very judge that has this fingerprint, of a user or of the package.

    Raises UsageError where there is no card of it, or where the card's figures are those of another version or of
    other settings.
    """
    name = fingerprint.split("/", 1)[0].strip()
    if not name:
        raise UsageError("no judge looked at these traces: there is no error of a judge to correct.")
    found = find_card(fingerprint)
    if found is not None:
        return found
    measure = f"Measure it with: ragfault judge measure LABELS --card {CARDS / f'{name}.json'}"
    if name not in known_cards():
        raise UsageError(
            f'the judge "{name}" has no card, so its error is not known. There are cards of: '
            f"{', '.join(known_cards())}. {measure}"
        )
    raise UsageError(
        f'the card of "{name}" was measured with "{load_card(name).fingerprint}", and these traces were judged by '
        f'"{fingerprint}". Evaluate them again with that judge, or measure this one. {measure}'
    )
