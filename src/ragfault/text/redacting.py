"""Redacting: e-mail addresses, phone numbers, payment cards and keys in a text, found in time that grows with it.

Every pattern begins at a boundary and repeats within bounds or without choice, so that no text makes one slow.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, get_args

__all__ = ["KINDS", "MASK", "Found", "Kind", "find", "mask"]

Kind = Literal["email", "phone", "card", "key"]
KINDS: tuple[Kind, ...] = get_args(Kind)

MASK = re.compile(r"\[(email|phone|card|key)~[0-9a-f]{16}\]")
"""What stands for a value before it is numbered: its kind and its fingerprint."""
SHORT = 6
DIGIT = re.compile(r"[0-9]")
"""Shorter texts hold nothing, nor do those without an @ or a digit."""


class Found(NamedTuple):
    """A stretch of a text that is of a kind."""

    start: int
    end: int
    kind: Kind
    value: str
    """The value in a normal form: two ways to write the same are one value."""
    cued: bool = False
    """Whether only the words before it told what it is."""


def find(text: str, wanted: Iterable[Kind] = KINDS) -> list[Found]:
    """What in a text is of these kinds, in order, nothing of it twice.

    >>> [(found.kind, found.value) for found in find("Mail Ann@Example.org or ring +44 20 7946 0958.")]
    [('email', 'ann@example.org'), ('phone', '442079460958')]
    >>> find("Order 4111 1111 1111 1112 of 2024-05-17, from 192.168.0.1.")
    []
    """
    if len(text) < SHORT or ("@" not in text and DIGIT.search(text) is None):
        return []
    made: list[Found] = []
    for kind in ("key", "email", "card", "phone"):
        if kind in wanted:
            made += FINDERS[kind](text)
    if not made:
        return []
    taken = [match.span() for match in MASK.finditer(text)] if "~" in text else []
    return _apart(made, taken)


def mask(text: str, found: Iterable[Found], name: Callable[[Found], str]) -> str:
    """The text with a name in the place of each find.

    >>> mask("to a@b.org", find("to a@b.org"), lambda found: f"[{found.kind}]")
    'to [email]'
    """
    parts, at = [], 0
    for each in found:
        parts += [text[at : each.start], name(each)]
        at = each.end
    return "".join((*parts, text[at:]))


def _apart(made: list[Found], taken: list[tuple[int, int]]) -> list[Found]:
    """Finds that do not overlap: of two that do, the one whose kind goes first; nothing within a mask."""
    rank = {"key": 0, "email": 1, "card": 2, "phone": 3}
    kept: list[Found] = []
    masks = iter(sorted(taken))
    masked = next(masks, None)
    for each in sorted(made, key=lambda found: (found.start, rank[found.kind])):
        while masked is not None and masked[1] <= each.start:
            masked = next(masks, None)
        if masked is not None and masked[0] < each.end:
            continue
        if not kept or each.start >= kept[-1].end:
            kept.append(each)
        elif rank[each.kind] < rank[kept[-1].kind]:
            kept[-1] = each
    return kept


# --- e-mail ----------------------------------------------------------------------------------------

AT = re.compile(
    r"(?:@|%40)(?!\d{1,5}\.\d)(?!\dx\.(?:png|jpe?g|gif|webp|svg|avif)\b)"
    r"((?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}(?:xn--[a-z0-9-]{2,59}|[^\W\d_]{2,24}))(?![\w@-])",
    re.IGNORECASE,
)
LOCAL = 64
"""Characters that the part before the @ has at most."""
BEFORE = frozenset("._%+-'&")
"""Signs that may stand in it; those at its ends belong to the sentence around it."""
ESCAPED = re.compile(r"(?:[nrtbf]|u[0-9a-f]{4})", re.IGNORECASE)
"""What follows a backslash in a text that was written as JSON or as code."""


def _emails(text: str) -> Iterator[Found]:
    if "@" not in text and "%40" not in text:
        return
    floor = 0
    for match in AT.finditer(text):
        start = at = match.start()
        while start > max(floor, at - LOCAL) and (text[start - 1].isalnum() or text[start - 1] in BEFORE):
            start -= 1
        if start and text[start - 1] == "\\" and (escape := ESCAPED.match(text, start, at)):
            start = escape.end()
        while start < at and text[start] in ".'&%-":
            start += 1
        local = text[start:at]
        if (
            not local
            or local.endswith(".")
            or (local == "git" and text[match.end() : match.end() + 1] == ":")
        ):
            continue
        floor = match.end()
        yield Found(start, match.end(), "email", f"{local}@{match[1]}".lower())


# --- cards -----------------------------------------------------------------------------------------

GAP = "[ \u00a0\u202f.\u2010\u2011\u2013-]"
"""What stands between groups of digits."""
RUN = re.compile(rf"(?<![\w~])(?<![0-9][.+/-])[2-6][0-9]{{2,}}(?:{GAP}?[0-9]+)*+(?![\w~])")
GROUP = re.compile(r"[0-9]+")
PRINTED = {(4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 4, 3)}
"""How cards group their digits."""
FIGURES = re.compile(r"[0-9](?:[ \u00a0\u202f.()/\u2010\u2011\u2013-]{0,3}[0-9]){6}")
"""Without so many digits near each other there is neither a card nor a phone."""
ISSUED = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|3(?:0[0-5]|[68]\d)\d{11}|35(?:2[89]|[3-8]\d)\d{12,15}|6(?:011|4[4-9]\d|5\d\d)\d{12,15}|62\d{14,17}"
    r"|(?:50|5[6-8]|6[37])\d{11,17}"
)
"""The numbers that are issued, by how they begin and how long they are."""


def _cards(text: str) -> Iterator[Found]:
    if FIGURES.search(text) is None:
        return
    for match in RUN.finditer(text):
        groups = list(GROUP.finditer(text, match.start(), match.end()))
        whole = "".join(group[0] for group in groups) if len(groups) < 9 else ""
        if _issued(whole):
            yield Found(match.start(), match.end(), "card", whole)
        elif len(groups) > 1:
            yield from _printed(groups)


def _printed(groups: list[re.Match[str]]) -> Iterator[Found]:
    """Cards among groups of digits that belong to more than one number."""
    at = 0
    while at < len(groups):
        for size in (5, 4, 3, 1):
            part = groups[at : at + size]
            digits = "".join(group[0] for group in part[:size]) if len(part) == size else ""
            shaped = size == 1 or tuple(len(group[0]) for group in part) in PRINTED
            if shaped and not _torn(part[0]) and _issued(digits):
                yield Found(part[0].start(), part[-1].end(), "card", digits)
                at += size - 1
                break
        at += 1


def _torn(group: re.Match[str]) -> bool:
    """Whether a group hangs more on what is before it than on what is behind it."""
    text, (start, end) = group.string, group.span()
    return start > 0 and text[start - 1] in ".-" and text[end : end + 1] != text[start - 1]


def _issued(digits: str) -> bool:
    return ISSUED.fullmatch(digits) is not None and len(set(digits)) > 1 and luhn(digits)


def luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of those before it (ISO/IEC 7812-1).

    >>> luhn("4111111111111111"), luhn("4111111111111112")
    (True, False)
    """
    doubled = str.maketrans("0123456789", "0246813579")
    return (sum(map(int, digits[-1::-2])) + sum(map(int, digits[-2::-2].translate(doubled)))) % 10 == 0


# --- phones ----------------------------------------------------------------------------------------

SEP = "[ \u00a0\u202f./\u2010\u2011\u2013-]"
BEGIN = r"(?:(?<![\w~])|(?<=\\[nrt]))(?<![0-9][.+:/-])(?<![A-Za-z][/-])"
ALONE = r"(?<![0-9][ \u00a0])"
"""No digits, words or masks run into what follows; where it could be the rest of a longer number, no group either."""
END = r"(?![\w~])(?![./-][0-9])"
PHONES = (
    re.compile(
        rf"{BEGIN}(?:\+|{ALONE}00(?=[1-9][0-9]{{0,2}}{SEP}))[ (]{{0,2}}[1-9]"
        rf"(?:{SEP}{{0,2}}(?:\(0?\))?[()]?[ ]?[0-9]){{7,14}}{END}"
    ),
    re.compile(
        rf"{BEGIN}(?:\+?1{SEP})?(?:\([2-9]\d\d\)[ -]?|[2-9]\d\d([.-]))[2-9]\d\d(?(1)\1|[ .-])\d{{4}}{END}"
    ),
    re.compile(rf"{BEGIN}{ALONE}\(?0[1-9]\d{{0,4}}\)?(?:{SEP}{{1,3}}\d{{2,8}}){{1,5}}{END}"),
)
"""With a country before it; in North America; with the 0 of many other countries."""
CUED = re.compile(
    r"\b(?:tel(?:efono?|ephone|éfono)?|phone|mobile?|cell|fax|call(?: me)?(?: at| on)?|dial|ring|whatsapp|sms|handy"
    rf"|tél)\b[^\d\n+(]{{0,16}}(\+?\(?[0-9](?:[()]?{SEP}{{0,2}}[()]?[0-9]){{6,14}}){END}",
    re.IGNORECASE,
)
"""After a word that says so, any digits are one."""
OTHER = re.compile(
    r"(?:\b(?:order|invoice|ticket|part|serial|item|sku|article|art|ref|reference|isbn|issn|ean|version|account|iban"
    r"|tracking|case|batch|customer|doi|patent|build|rechnung|bestellung)\b[\s.:#-]{0,3}"
    r"(?:(?:no|number|nr|num|id|code)\b)?|\b(?:no|nr|id)\.?)[\s.:#-]{0,3}$",
    re.IGNORECASE,
)
"""What a number is that stands after one of these words."""
DATE = re.compile(
    r"(?<!\d)(?:\d{1,2}[./-]\d{1,2}[./-](?:19|20)\d\d|(?:19|20)\d\d[./-]\d{1,2}[./-]\d{1,2})(?!\d)"
)
ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
DECIMAL = re.compile(r"\+?\d+\.\d+")


def _phones(text: str) -> Iterator[Found]:
    if FIGURES.search(text) is None:
        return
    for number, pattern in enumerate((*PHONES, CUED)):
        cued = pattern is CUED
        for match in pattern.finditer(text):
            start, end = match.span(1) if cued else match.span()
            if digits := _dialled(text, start, end, national=number > 0 and not cued):
                yield Found(start, end, "phone", digits, cued)


def _dialled(text: str, start: int, end: int, *, national: bool) -> str | None:
    """The digits of a phone number; None where it is a date, an address, an amount, or said to be another number."""
    said = text[start:end]
    digits = re.sub(r"[^0-9]", "", said)
    if said.startswith("00"):
        digits = digits[2:]
    if not (9 if said[0] in "0(" and national else 7) <= len(digits) <= 15 or digits.endswith("000000"):
        return None
    if DATE.search(said) or ADDRESS.fullmatch(said) or DECIMAL.fullmatch(said):
        return None
    if national and OTHER.search(text[max(0, start - 32) : start]):
        return None
    return digits[1:] if len(digits) == 11 and digits[0] == "1" else digits


# --- keys ------------------------------------------------------------------------------------------

EDGE = r"(?<![A-Za-z0-9_-])"
TOKENS = re.compile(
    rf"{EDGE}(?:sk-(?=[\w-]{{0,40}}\d)[A-Za-z0-9_-]{{20,}}+|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{{16,}}+"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}\b|gh[pousr]_[A-Za-z0-9]{30,}+|github_pat_[A-Za-z0-9_]{22,}+|glpat-[\w-]{20,}+"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}+|xapp-[A-Za-z0-9-]{20,}+|AIza[\w-]{35}|hf_[A-Za-z0-9]{30,}+|npm_[A-Za-z0-9]{36}"
    r"|SG\.[\w-]{16,32}\.[\w-]{32,64}|eyJ[\w-]{8,}+\.eyJ[\w-]{4,}+\.[\w-]{8,}+)"
)
PREFIXES = (
    "sk-",
    "github_pat_",
    "k_live_",
    "k_test_",
    "AKIA",
    "ASIA",
    "gh",
    "glpat-",
    "xox",
    "xapp-",
    "AIza",
    "hf_",
    "npm_",
    "SG.",
    "eyJ",
)
PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:[\s\\nr]{1,4}[A-Za-z-]{1,30}: [^\n\\]{0,120}){0,4}"
    r"(?=[\s\\nr]{0,8}[A-Za-z0-9+/=]{16})[A-Za-z0-9+/=\s\\]*+(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----)?"
)
BEARER = re.compile(r"\bbearer\s{1,4}([A-Za-z0-9._~+/=-]{16,}+)", re.IGNORECASE)
SIGNED_IN = re.compile(r"://[^\s:/@\[\]]{0,64}:([^\s/@\[\]]{3,128})@")
NAMED = re.compile(
    r"(?:api[ _-]?key|secret|token|passw(?:or)?d|passphrase|pwd|access[_-]?key|private[_-]?key|credential|auth)"
    r"[\w-]{0,20}[\"'\\]{0,2}\s{0,3}(?:[:=]{1,2}>?|\bis\b)\s{0,3}[\"'\\]{0,2}([A-Za-z0-9+/_.~=$!@%^*-]{16,}+)",
    re.IGNORECASE,
)
NAMES = ("key", "secret", "token", "passw", "passphrase", "pwd", "credential", "auth")
RANDOM = 3.0
"""Bits that each sign of a secret carries at least."""


def _keys(text: str) -> Iterator[Found]:
    if any(prefix in text for prefix in PREFIXES):
        yield from (_key(match) for match in TOKENS.finditer(text))
    if "PRIVATE KEY" in text:
        yield from (_key(match) for match in PEM.finditer(text))
    if "://" in text:
        yield from (_key(match, 1) for match in SIGNED_IN.finditer(text))
    low = text.lower()
    if "bearer" in low:
        yield from (_key(match, 1, cued=True) for match in BEARER.finditer(text) if _secret(match[1]))
    if any(name in low for name in NAMES):
        yield from (_key(match, 1, cued=True) for match in NAMED.finditer(text) if _secret(match[1]))


def _key(match: re.Match[str], group: int = 0, *, cued: bool = False) -> Found:
    start, end = match.span(group)
    value = match[group].rstrip(".!") if cued else match[group]
    return Found(start, end - len(match[group]) + len(value), "key", value, cued)


def _secret(value: str) -> bool:
    """Whether a value looks drawn at random: letters and digits, hardly any of them again and again."""
    value = value[:200]
    mixed = any(sign.isdigit() for sign in value) and any(sign.isalpha() for sign in value)
    n = len(value)
    return mixed and -sum(c / n * math.log2(c / n) for c in Counter(value).values()) >= RANDOM


FINDERS: dict[Kind, Callable[[str], Iterator[Found]]] = {
    "key": _keys,
    "email": _emails,
    "card": _cards,
    "phone": _phones,
}
