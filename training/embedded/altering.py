"""Alter supported claims so that most words stay and what they say changes: names, quantity, modality, polarity.

Errors that share their words with the sources are of these kinds; a judge that has only seen invented words cannot
learn them. Names that change places and clauses that are joined were tried, and cost more on labels of people than
they gave.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from ragfault.judges.checks.claims import Claim, extract_claims

__all__ = ["alter_answer"]

NAME = re.compile(r"(?<=[a-z,;)] )[A-Z][a-z]+(?: [A-Z][a-z]+){0,2}\b")
NUMBER = re.compile(r"(?<![\w.,:/-])\d{1,3}(?:,\d{3})*(?:\.\d+)?(?![\w:/-]|[.,]\d)")
AUXILIARY = re.compile(r"\b(is|was|are|were|has|have|had|can|could|will|would|should|must|does|did)\b(?! not\b|n't)")
NEGATION = re.compile(r"\b(?:not|never)\s+|(?<=[a-z])n't\b")
MODALITIES = (
    (r"\b(?:is|are|was|were) (?:expected|scheduled|set|due|planned) to\b", "did"),
    (r"\b(?:may|might|could)\b", "will"),
    (r"\b(?:plans?|hopes?|wants?|intends?|aims?) to\b", "already did"),
    (r"\ballegedly\b", "admittedly"),
    (r"\b(?:accused|suspected) of\b", "convicted of"),
    (r"\bproposed\b", "approved"),
    (r"\b(?:some|many|most|several)\b", "all"),
    (r"\b(?:often|usually|sometimes|generally|typically)\b", "always"),
    (r"\brarely\b", "often"),
    (r"\bwill\b", "did"),
    (r"\bbefore\b", "after"),
    (r"\bafter\b", "before"),
    (r"\bat least\b", "at most"),
    (r"\bup to\b", "at least"),
    (r"\bmore than\b", "less than"),
    (r"\bless than\b", "more than"),
    (r"\bbecause of\b", "despite"),
    (r"\bdespite\b", "because of"),
)
Alteration = Callable[[str, Sequence[str], random.Random], str | None]


def _replace_name(claim: str, texts: Sequence[str], chance: random.Random) -> str | None:
    """Put another name of the sources in the place of a name."""
    claim_names = list(NAME.finditer(claim))
    rivals = sorted({name for text in texts for name in NAME.findall(text)} - {match[0] for match in claim_names})
    rivals = [name for name in rivals if not any(word in claim for word in name.split())]
    if not claim_names or not rivals:
        return None
    match = chance.choice(claim_names)
    return claim[: match.start()] + chance.choice(rivals) + claim[match.end() :]


def _replace_number(claim: str, texts: Sequence[str], chance: random.Random) -> str | None:
    """Put another number of the sources, of the same length, in the place of a number."""
    numbers = list(NUMBER.finditer(claim))
    if not numbers:
        return None
    match = chance.choice(numbers)
    rivals = sorted({number for text in texts for number in NUMBER.findall(text) if len(number) == len(match[0])})
    rivals = [number for number in rivals if number not in claim]
    return claim[: match.start()] + chance.choice(rivals) + claim[match.end() :] if rivals else None


def _change_modality(claim: str, _texts: Sequence[str], chance: random.Random) -> str | None:
    """State as done, certain or general what is not."""
    fitting = [(pattern, replacement) for pattern, replacement in MODALITIES if re.search(pattern, claim)]
    if not fitting:
        return None
    pattern, replacement = chance.choice(fitting)
    return re.sub(pattern, replacement, claim, count=1)


def _change_polarity(claim: str, _texts: Sequence[str], _chance: random.Random) -> str | None:
    """Change a statement to its denial, or a denial to a statement."""
    if NEGATION.search(claim):
        return NEGATION.sub("", claim, count=1)
    return AUXILIARY.sub(r"\1 not", claim, count=1) if AUXILIARY.search(claim) else None


ALTERATIONS: tuple[Alteration, ...] = (_replace_name, _replace_number, _change_modality, _change_polarity)


def alter_answer(row: dict[str, Any], texts: Sequence[str], chance: random.Random) -> dict[str, Any] | None:
    """Return a labelled answer with one supported claim altered, its changed words marked; None where none can be."""
    answer: str = row["answer"]
    claims = [claim for claim in extract_claims(answer) if not _is_marked(claim, row["spans"])]
    if not claims:
        return None
    claim = chance.choice(claims)
    for alteration in chance.sample(ALTERATIONS, len(ALTERATIONS)):
        text = alteration(claim.text, texts, chance)
        if text and text != claim.text:
            break
    else:
        return None
    shift = len(text) - len(claim.text)
    spans = [
        {
            "start": span["start"] + shift * (span["start"] >= claim.end),
            "end": span["end"] + shift * (span["end"] > claim.start),
        }
        for span in row["spans"]
    ]
    start, end = _changed(claim.text, text)
    spans.append({"start": claim.start + start, "end": claim.start + end})
    return {**row, "answer": answer[: claim.start] + text + answer[claim.end :], "spans": spans, "label": 1}


def _is_marked(claim: Claim, spans: Sequence[dict[str, Any]]) -> bool:
    return any(claim.start < span["end"] and span["start"] < claim.end for span in spans)


def _changed(before: str, after: str) -> tuple[int, int]:
    """Return the stretch of the second text that differs from the first, at least one character."""
    limit = min(len(before), len(after))
    left = next((i for i in range(limit) if before[i] != after[i]), limit)
    tail = next((i for i in range(limit - left) if before[-1 - i] != after[-1 - i]), limit - left)
    start = min(left, len(after) - 1)
    return start, max(start + 1, len(after) - tail)
