"""Cards: what is known of each judge, as data that every room can read."""

from ragfault.cards.loading import card_of, find_card, known_cards, load_card, read_card
from ragfault.cards.records import Card, Measured, Shape, Unit

__all__ = [
    "Card",
    "Measured",
    "Shape",
    "Unit",
    "card_of",
    "find_card",
    "known_cards",
    "load_card",
    "read_card",
]
