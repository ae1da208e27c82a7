"""Judge cards: measured error rates of each judge, as data."""

from ragfault.judges.cards.judge_card import (
    AnswerShape,
    CardEntry,
    CardUnit,
    JudgeCard,
    list_cards,
    load_card,
    lookup_card,
    read_card,
    require_card,
)

__all__ = [
    "AnswerShape",
    "CardEntry",
    "CardUnit",
    "JudgeCard",
    "list_cards",
    "load_card",
    "lookup_card",
    "read_card",
    "require_card",
]
