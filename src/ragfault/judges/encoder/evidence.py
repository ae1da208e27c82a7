"""The at most two windows of the passages that a claim is compared with."""

from __future__ import annotations

import math
import re
from collections import Counter

from ragfault.judges.checks.passages import spell_record

WINDOW_WORDS = 45
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n+")
WORD = re.compile(r"\w+")


def windows(chunks: list[str] | tuple[str, ...], size: int = WINDOW_WORDS) -> list[str]:
    """Return the chunks in runs of whole sentences of about `size` words, each from one chunk; records in words."""
    result = []
    for chunk in chunks:
        run: list[str] = []
        words = 0
        for sentence in SENTENCE_END.split(spell_record(chunk)):
            count = max(len(sentence.split()), len(sentence) // 6)
            if run and words + count > size:
                result.append(" ".join(run))
                run, words = [], 0
            run.append(sentence.strip())
            words += count
        if run:
            result.append(" ".join(run))
    return [window for window in result if window.strip()]


def stems(text: str) -> set[str]:
    """Return words cut to six letters; pairs of characters for scripts without spaces."""
    met = {word.lower()[:6] for word in WORD.findall(text)}
    wide = [word for word in met if any("぀" <= letter <= "鿿" for letter in word)]
    for word in wide:
        met.update(word[place : place + 2] for place in range(len(word) - 1))
    return met


def evidence(chunks: list[str] | tuple[str, ...], claim: str, query: str = "", limit: int = 2) -> str:
    """Return the windows that share the rarest words with the claim, the query at half weight, in order."""
    cut = windows(chunks)
    if len(cut) <= limit:
        return " ".join(cut)
    window_stems = [stems(window) for window in cut]
    frequency: Counter[str] = Counter(word for words in window_stems for word in words)
    weight = {word: math.log(1 + len(cut) / count) for word, count in frequency.items()}
    sought = dict.fromkeys(stems(query), 0.5) | dict.fromkeys(stems(claim), 1.0)
    chosen: list[int] = []
    while len(chosen) < limit:
        best = max(
            (place for place in range(len(cut)) if place not in chosen),
            # An exact sum: that of floats depends on the order of a set, and so would the choice between equal windows.
            key=lambda place: math.fsum(weight[word] * sought[word] for word in window_stems[place] if word in sought),
        )
        chosen.append(best)
        # A word that is met counts little for the next window, so that the second adds what the first lacks.
        sought = {word: value * (0.25 if word in window_stems[best] else 1.0) for word, value in sought.items()}
    return " ".join(cut[place] for place in sorted(chosen))


def claim_text(claim: str, query: str = "", history: list[str] | tuple[str, ...] = ()) -> str:
    """Return a claim after the last two turns and its query, as the encoder reads it.

    >>> claim_text("No, on Sundays it is closed.", "And on Sundays?", ("When does the pool open?", "At seven."))
    'When does the pool open? At seven. And on Sundays? | No, on Sundays it is closed.'
    """
    before = " ".join([*history[-2:], query]).strip()
    return f"{before} | {claim}" if before else claim
