"""Altering supported claims into unsupported ones with nearly the same words: names, numbers, modality, polarity.

Errors that share their words with the sources are of these kinds, and inserted foreign claims do not show them to a
judge. Exchanging two names and joining clauses were tried, and lowered the AUROC on human labels.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from ragfault.judges.checks.claims import Claim, extract_claims
from training.data_files import Row

__all__ = ["alter_answer", "is_marked"]

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


def _replace_name(claim: str, texts: Sequence[str], rng: random.Random) -> str | None:
    """Replace a name by another name of the sources; return None where there is none."""
    claim_names = list(NAME.finditer(claim))
    alternatives = sorted({name for text in texts for name in NAME.findall(text)} - {match[0] for match in claim_names})
    alternatives = [name for name in alternatives if not any(word in claim for word in name.split())]
    if not claim_names or not alternatives:
        return None
    match = rng.choice(claim_names)
    return claim[: match.start()] + rng.choice(alternatives) + claim[match.end() :]


def _replace_number(claim: str, texts: Sequence[str], rng: random.Random) -> str | None:
    """Replace a number by another one of the sources, of the same length; return None where there is none."""
    numbers = list(NUMBER.finditer(claim))
    if not numbers:
        return None
    match = rng.choice(numbers)
    alternatives = sorted({number for text in texts for number in NUMBER.findall(text) if len(number) == len(match[0])})
    alternatives = [number for number in alternatives if number not in claim]
    return claim[: match.start()] + rng.choice(alternatives) + claim[match.end() :] if alternatives else None


def _change_modality(claim: str, _texts: Sequence[str], rng: random.Random) -> str | None:
    """State as done, certain or general what is planned, possible or partial, or reverse a relation."""
    applicable = [(pattern, replacement) for pattern, replacement in MODALITIES if re.search(pattern, claim)]
    if not applicable:
        return None
    pattern, replacement = rng.choice(applicable)
    return re.sub(pattern, replacement, claim, count=1)


def _change_polarity(claim: str, _texts: Sequence[str], _rng: random.Random) -> str | None:
    """Negate a statement, or remove its negation."""
    if NEGATION.search(claim):
        return NEGATION.sub("", claim, count=1)
    return AUXILIARY.sub(r"\1 not", claim, count=1) if AUXILIARY.search(claim) else None


ALTERATIONS: tuple[Alteration, ...] = (_replace_name, _replace_number, _change_modality, _change_polarity)


def alter_answer(row: Row, texts: Sequence[str], rng: random.Random) -> Row | None:
    """Return a labelled answer with one supported claim altered and the change marked; None where none can be."""
    answer: str = row["answer"]
    claims = [claim for claim in extract_claims(answer) if not is_marked(claim, row["spans"])]
    if not claims:
        return None
    claim = rng.choice(claims)
    for alteration in rng.sample(ALTERATIONS, len(ALTERATIONS)):
        altered_text = alteration(claim.text, texts, rng)
        if altered_text and altered_text != claim.text:
            break
    else:
        return None
    shift = len(altered_text) - len(claim.text)
    spans = [
        {
            "start": span["start"] + shift * (span["start"] >= claim.end),
            "end": span["end"] + shift * (span["end"] > claim.start),
        }
        for span in row["spans"]
    ]
    start, end = _locate_change(claim.text, altered_text)
    spans.append({"start": claim.start + start, "end": claim.start + end})
    return {**row, "answer": answer[: claim.start] + altered_text + answer[claim.end :], "spans": spans, "label": 1}


def is_marked(claim: Claim, spans: Sequence[Row]) -> bool:
    """Return whether a span that people marked overlaps a claim."""
    return any(claim.start < span["end"] and span["start"] < claim.end for span in spans)


def _locate_change(before: str, after: str) -> tuple[int, int]:
    """Return start and end of what differs from the first text in the second, at least one character."""
    limit = min(len(before), len(after))
    left = next((i for i in range(limit) if before[i] != after[i]), limit)
    tail = next((i for i in range(limit - left) if before[-1 - i] != after[-1 - i]), limit - left)
    start = min(left, len(after) - 1)
    return start, max(start + 1, len(after) - tail)
