"""Truth: how a claim stands to what is known to be right, whatever the chunks say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ragfault.judges.answers import present
from ragfault.judges.claims import Claim, bare
from ragfault.judges.exact import rivals
from ragfault.judges.scorer import Passage, Reading
from ragfault.records import TruthVerdict
from ragfault.text import content, figures, items

__all__ = ["keys", "truth"]

Status = Literal["supported", "contradicted", "unknown"]
STATUS: dict[str, Status] = {
    "supported": "supported",
    "inferred": "supported",
    "contradicted": "contradicted",
}
TERSE = 6
"""A reference of at most so many words of content is an answer to the query, not a statement."""
SAME = 3
"""A claim that has all words of a short statement but its figures, and so many, is about the same thing."""
MEANT = 0.75
"""The share of the query that a claim must cover to give another answer to it."""


def truth(
    query: str, said: Sequence[Claim], known: Sequence[str], reading: Reading
) -> tuple[TruthVerdict, ...]:
    """One verdict for each claim: against statements by entailment, against terse answers by their items."""
    if not said:
        return ()
    seen = reading.entailment([claim.text for claim in said], keys(known))
    status: list[Status] = [STATUS.get(one.support, "unknown") for one in seen]
    terse = [text for text in known if len(content(text)) <= TERSE]
    if terse:
        short = [_terse(query, claim.text, terse, reading) for claim in said]
        told = "supported" in short
        status = [_either(one, two, told) for one, two in zip(status, short, strict=True)]
    return tuple(TruthVerdict(claim=claim.text, status=one) for claim, one in zip(said, status, strict=True))


def keys(known: Sequence[str]) -> list[Passage]:
    """What is known, as passages."""
    return [Passage(f"key {place}", text) for place, text in enumerate(known)]


def _either(long: Status, short: Status, told: bool) -> Status:
    """Support wins; once the answer is told, the rest of it is no other answer."""
    if "supported" in (long, short):
        return "supported"
    return "contradicted" if long == "contradicted" or (short == "contradicted" and not told) else "unknown"


def _terse(query: str, claim: str, answers: Sequence[str], reading: Reading) -> Status:
    """How a claim stands to terse answers to the query."""
    claim = bare(claim)
    if any(present(answer, claim, query) for answer in answers):
        return "supported"
    brief = len(content(claim)) <= TERSE
    if any(_retold(query, claim, answer) for answer in answers):
        agrees = any(figures(claim).keys() & figures(answer).keys() - items(query) for answer in answers)
        return "unknown" if agrees else "contradicted"
    if not brief and reading.coverage(query, [Passage("claim", claim)])[0].value < MEANT:
        return "unknown"
    return "contradicted" if all(_other(query, claim, answer) for answer in answers) else "unknown"


def _retold(query: str, claim: str, answer: str) -> bool:
    """Whether a claim says all that a short statement says, but for a figure that it gives otherwise."""
    asked = items(query)
    stated = {item: forms for item, forms in figures(answer).items() if item not in asked}
    if not stated:
        return False
    rest = frozenset(content(answer)) - {form for forms in stated.values() for form in forms}
    return (
        len(rest) >= SAME
        and rest <= frozenset(content(claim))
        and any(rivals(one, two) for one in figures(claim).keys() - asked for two in stated)
    )


def _other(query: str, claim: str, answer: str) -> bool:
    """Whether a claim gives another answer of the same kind: another number, date or name."""
    asked = items(query)
    ours, theirs = items(claim) - asked, items(answer) - asked
    if ours & theirs:
        return False
    counted = figures(answer).keys() & theirs
    if counted:
        return any(rivals(one, two) for one in figures(claim).keys() & ours for two in counted)
    held = {word[:5] for word in content(claim)}
    if any(word[:5] in held for word in frozenset(content(answer)) - frozenset(content(query))):
        return False
    return bool(theirs) and any(not any(sign.isdigit() for sign in one) for one in ours)
