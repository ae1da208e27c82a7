"""Evidence: the sentences of a trace that a claim is held against."""

from __future__ import annotations

from ragfault.judges.features import Statement
from ragfault.judges.index import Index

__all__ = ["ROOM", "evidence", "said"]

ROOM = 460
"""The evidence of a claim has about so many characters."""
OVER = 1.15
"""A sentence that would make it so much longer is left out, unless it is the first."""
MOST = 7
"""At most so many sentences are evidence."""
CLOSEST, CONSIDERED = 60, 40
"""Of the sentences that share most with the claim, and of those that differ, so many are considered."""
AGAIN = 0.4
"""What a word is worth that a chosen sentence holds already."""
PLAIN, SHARPNESS = 12, 0.35
"""How a long sentence is held back: by the power of its words, and of these many more."""


def evidence(statement: Statement, index: Index) -> tuple[int, ...]:
    """The places of the sentences that say most about a claim, in the order of the passages.

    Chosen one after the other: each adds words of the claim that those before it lack, by rarity, and short
    ones come first. A field that says nothing is evidence where the claim speaks of its key. Empty where no
    sentence shares a word with the claim. The model was trained on what this function chooses.

    >>> from ragfault.judges.features import state
    >>> from ragfault.judges.index import Passage
    >>> from ragfault.judges.rarity import rarity
    >>> index = Index([Passage("a", "Cats sleep. Dogs bark at night. The harbour opens at seven.")])
    >>> evidence(state("The dogs bark.", rarity()), index)
    (1,)
    """
    left = dict(statement.weights)
    places = _close(statement, index)
    chosen: list[int] = []
    used = 0
    while places and used < ROOM and len(chosen) < MOST:
        best = max(places, key=lambda place: (_worth(statement, left, index, place), -place))
        places.remove(best)
        size = len(said(index, best, None))
        if used + size > ROOM * OVER and chosen:
            continue
        chosen.append(best)
        used += size + 1
        for word in index.sentences[best].content:
            left.pop(word, None)
    return tuple(sorted(chosen))


def said(index: Index, place: int, room: int | None = ROOM) -> str:
    """What a sentence says, in one line."""
    return " ".join(index.sentences[place].text.split())[:room]


def _close(statement: Statement, index: Index) -> list[int]:
    """The sentences that share most with a claim, each once."""
    weights = statement.weights
    total = sum(weights.values()) or 1.0
    votes = dict(index.votes(weights))
    for place, sentence in enumerate(index.sentences):
        if sentence.polarity == "absent" and sentence.key and sentence.key <= weights.keys():
            votes[place] = sum(weights[word] for word in sentence.key)
    order = sorted(
        votes, key=lambda place: (-votes[place] / total, len(index.sentences[place].content), place)
    )
    found: list[int] = []
    seen: set[tuple[str, ...]] = set()
    for place in order[:CLOSEST]:
        tokens = index.sentences[place].tokens
        if not tokens or tokens not in seen:
            seen.add(tokens)
            found.append(place)
    return found[:CONSIDERED]


def _worth(statement: Statement, left: dict[str, float], index: Index, place: int) -> float:
    """What a sentence adds to those already chosen, for its length."""
    sentence = index.sentences[place]
    gain = sum(
        weight * (1.0 if word in left else AGAIN)
        for word, weight in statement.weights.items()
        if word in sentence.content or word in sentence.key
    )
    return float(gain / (PLAIN + len(sentence.content)) ** SHARPNESS)
