"""Evidence selection: the sentences of the passages that are read with a claim."""

from __future__ import annotations

from ragfault.judges.checks.passages import SentenceIndex
from ragfault.judges.lexical.features import ClaimStatement

MAX_EVIDENCE_CHARS = 460
"""The evidence of a claim has about this many characters."""
OVERFLOW_FACTOR = 1.15
"""A sentence that would exceed this multiple of it is left out, unless it is the first."""
MAX_SENTENCES = 7
"""At most this many sentences are evidence."""
CLOSEST_COUNT, CANDIDATE_COUNT = 60, 40
"""The number of sentences that share most with the claim, and of distinct ones among them, to consider."""
REPEATED_WORD_FACTOR = 0.4
"""The weight of a word that a chosen sentence has already."""
LENGTH_OFFSET, LENGTH_EXPONENT = 12, 0.35
"""Penalty of a long sentence: its number of words plus the first number, to the power of the second."""


def select_evidence(statement: ClaimStatement, index: SentenceIndex) -> tuple[int, ...]:
    """Return the positions of the sentences that cover a claim best, in the order of the passages.

    They are chosen one after the other: each adds words of the claim that those before it lack, by rarity,
    and short ones come first. A field without a value is evidence if the claim has its key. Empty if no
    sentence shares a word with the claim. The model was trained on the choice of this function.

    >>> from ragfault.judges.lexical.features import parse_statement
    >>> from ragfault.judges.checks.passages import Passage
    >>> from ragfault.judges.checks.lexicon import load_rarity
    >>> index = SentenceIndex([Passage("a", "Cats sleep. Dogs bark at night. The harbour opens at seven.")])
    >>> select_evidence(parse_statement("The dogs bark.", load_rarity()), index)
    (1,)
    """
    uncovered = dict(statement.weights)
    candidates = _select_candidates(statement, index)
    chosen: list[int] = []
    length = 0
    while candidates and length < MAX_EVIDENCE_CHARS and len(chosen) < MAX_SENTENCES:
        best = max(
            candidates,
            key=lambda position: (_score_candidate(statement, uncovered, index, position), -position),
        )
        candidates.remove(best)
        size = len(get_sentence_text(index, best, None))
        if length + size > MAX_EVIDENCE_CHARS * OVERFLOW_FACTOR and chosen:
            continue
        chosen.append(best)
        length += size + 1
        for word in index.sentences[best].content:
            uncovered.pop(word, None)
    return tuple(sorted(chosen))


def get_sentence_text(index: SentenceIndex, position: int, max_chars: int | None = MAX_EVIDENCE_CHARS) -> str:
    """Return a sentence in one line."""
    return " ".join(index.sentences[position].text.split())[:max_chars]


def _select_candidates(statement: ClaimStatement, index: SentenceIndex) -> list[int]:
    """Return the sentences that share most with a claim, each once."""
    weights = statement.weights
    total = sum(weights.values()) or 1.0
    shared = dict(index.sum_shared_weights(weights))
    for position, sentence in enumerate(index.sentences):
        if sentence.polarity == "absent" and sentence.key and sentence.key <= weights.keys():
            shared[position] = sum(weights[word] for word in sentence.key)
    ranked = sorted(
        shared,
        key=lambda position: (-shared[position] / total, len(index.sentences[position].content), position),
    )
    candidates: list[int] = []
    seen: set[tuple[str, ...]] = set()
    for position in ranked[:CLOSEST_COUNT]:
        tokens = index.sentences[position].tokens
        if not tokens or tokens not in seen:
            seen.add(tokens)
            candidates.append(position)
    return candidates[:CANDIDATE_COUNT]


def _score_candidate(
    statement: ClaimStatement, uncovered: dict[str, float], index: SentenceIndex, position: int
) -> float:
    """Return what a sentence adds to those already chosen, for its length."""
    sentence = index.sentences[position]
    gain = sum(
        weight * (1.0 if word in uncovered else REPEATED_WORD_FACTOR)
        for word, weight in statement.weights.items()
        if word in sentence.content or word in sentence.key
    )
    return float(gain / (LENGTH_OFFSET + len(sentence.content)) ** LENGTH_EXPONENT)
