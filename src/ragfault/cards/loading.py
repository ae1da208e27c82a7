"""The cards that come with the package."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ragfault.cards.records import Card
from ragfault.errors import InputError, UnknownName, UsageError

__all__ = ["card_of", "known_cards", "load_card", "read_card"]

HERE = Path(__file__).parent


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


def card_of(fingerprint: str) -> Card:
    """The card of the very judge that has this fingerprint.

    Raises UsageError where there is no card of it, or where the card's figures are those of another version or of
    other settings.
    """
    name = fingerprint.split("/", 1)[0].strip()
    if not name:
        raise UsageError("no judge looked at these traces: there is no error of a judge to correct.")
    if name not in known_cards():
        raise UsageError(
            f'the judge "{name}" has no card, so its error is not known. There are cards of: '
            f"{', '.join(known_cards())}. Measure it with: ragfault judge measure"
        )
    card = load_card(name)
    if card.fingerprint != fingerprint:
        raise UsageError(
            f'the card of "{name}" was measured with "{card.fingerprint}", and these traces were judged by '
            f'"{fingerprint}". Evaluate them again with that judge, or measure this one: ragfault judge measure'
        )
    return card
