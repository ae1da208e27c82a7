"""Evidence selection: the sentences of the passages that a claim is read with."""

from __future__ import annotations

from ragfault.judges.checks.passages import SentenceIndex
from ragfault.judges.lexical.features import ClaimStatement

MAX_EVIDENCE_CHARS = 460
"""The evidence of a claim has about so many characters."""
OVERFLOW_FACTOR = 1.15
"""A sentence that would make it so much longer is left out, unless it is the first."""
MAX_SENTENCES = 7
"""At most so many sentences are evidence."""
CLOSEST_COUNT, CANDIDATE_COUNT = 60, 40
"""Of the sentences that share most with the claim, and of those that differ, so many are considered."""
REPEATED_WORD_FACTOR = 0.4
"""What a word is worth that a chosen sentence holds already."""
LENGTH_OFFSET, LENGTH_EXPONENT = 12, 0.35
"""How a long sentence is held back: by the power of its words, and of these many more."""


def select_evidence(statement: ClaimStatement, index: SentenceIndex) -> tuple[int, ...]:
    """The places of the sentences that say most about a claim, in the order of the passages.

    Chosen one after the other: each adds words of the claim that those before it lack, by rarity, and short
    ones come first. A field that says nothing is evidence where the claim speaks of its key. Empty where no
    sentence shares a word with the claim. The model was trained on what this function chooses.

    >>> from ragfault.judges.lexical.features import parse_statement
    >>> from ragfault.judges.checks.passages import Passage
    >>> from ragfault.judges.checks.lexicon import load_rarity
    >>> index = SentenceIndex([Passage("a", "Cats sleep. Dogs bark at night. The harbour opens at seven.")])
    >>> select_evidence(parse_statement("The dogs bark.", load_rarity()), index)
    (1,)
    """
    left = dict(statement.weights)
    places = _select_candidates(statement, index)
    chosen: list[int] = []
    used = 0
    while places and used < MAX_EVIDENCE_CHARS and len(chosen) < MAX_SENTENCES:
        best = max(places, key=lambda place: (_score_candidate(statement, left, index, place), -place))
        places.remove(best)
        size = len(get_sentence_text(index, best, None))
        if used + size > MAX_EVIDENCE_CHARS * OVERFLOW_FACTOR and chosen:
            continue
        chosen.append(best)
        used += size + 1
        for word in index.sentences[best].content:
            left.pop(word, None)
    return tuple(sorted(chosen))


def get_sentence_text(index: SentenceIndex, place: int, max_chars: int | None = MAX_EVIDENCE_CHARS) -> str:
    """What a sentence says, in one line."""
    return " ".join(index.sentences[place].text.split())[:max_chars]


def _select_candidates(statement: ClaimStatement, index: SentenceIndex) -> list[int]:
    """The sentences that share most with a claim, each once."""
    weights = statement.weights
    total = sum(weights.values()) or 1.0
    votes = dict(index.sum_shared_weights(weights))
    for place, sentence in enumerate(index.sentences):
        if sentence.polarity == "absent" and sentence.key and sentence.key <= weights.keys():
            votes[place] = sum(weights[word] for word in sentence.key)
    order = sorted(
        votes, key=lambda place: (-votes[place] / total, len(index.sentences[place].content), place)
    )
    found: list[int] = []
    seen: set[tuple[str, ...]] = set()
    for place in order[:CLOSEST_COUNT]:
        tokens = index.sentences[place].tokens
        if not tokens or tokens not in seen:
            seen.add(tokens)
            found.append(place)
    return found[:CANDIDATE_COUNT]


def _score_candidate(
    statement: ClaimStatement, uncovered: dict[str, float], index: SentenceIndex, place: int
) -> float:
    """What a sentence adds to those already chosen, for its length."""
    sentence = index.sentences[place]
    gain = sum(
        weight * (1.0 if word in uncovered else REPEATED_WORD_FACTOR)
        for word, weight in statement.weights.items()
        if word in sentence.content or word in sentence.key
    )
    return float(gain / (LENGTH_OFFSET + len(sentence.content)) ** LENGTH_EXPONENT)
