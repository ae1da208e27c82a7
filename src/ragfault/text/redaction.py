"""Detection of e-mail addresses, phone numbers, payment cards and keys, in linear time."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, get_args

SensitiveKind = Literal["email", "phone", "card", "key"]
SENSITIVE_KINDS: tuple[SensitiveKind, ...] = get_args(SensitiveKind)

MASK_PATTERN = re.compile(r"\[(email|phone|card|key)~[0-9a-f]{16}\]")
"""The replacement of a value before it is numbered: its kind and its fingerprint."""
MIN_LENGTH = 6
"""Shorter texts hold nothing sensitive, nor do texts without an @ or a digit."""
DIGIT = re.compile(r"[0-9]")


class SensitiveSpan(NamedTuple):
    """A span of a text with sensitive content."""

    start: int
    end: int
    kind: SensitiveKind
    value: str
    """The value in a normal form: two spellings of the same are one value."""
    by_context: bool = False
    """True if only the words before it reveal its kind."""


def detect_sensitive(text: str, kinds: Iterable[SensitiveKind] = SENSITIVE_KINDS) -> list[SensitiveSpan]:
    """Detect the spans of these kinds, in order, without overlaps.

    >>> [(found.kind, found.value) for found in detect_sensitive("Mail Ann@Example.org or ring +44 20 7946 0958.")]
    [('email', 'ann@example.org'), ('phone', '442079460958')]
    >>> detect_sensitive("Order 4111 1111 1111 1112 of 2024-05-17, from 192.168.0.1.")
    []
    """
    if len(text) < MIN_LENGTH or ("@" not in text and DIGIT.search(text) is None):
        return []
    spans: list[SensitiveSpan] = []
    for kind in ("key", "email", "card", "phone"):
        if kind in kinds:
            spans += DETECTORS[kind](text)
    if not spans:
        return []
    masked_spans = [match.span() for match in MASK_PATTERN.finditer(text)] if "~" in text else []
    return _resolve_overlaps(spans, masked_spans)


def replace_sensitive(text: str, spans: Iterable[SensitiveSpan], label: Callable[[SensitiveSpan], str]) -> str:
    """Replace each span of a text by a label.

    >>> replace_sensitive("to a@b.org", detect_sensitive("to a@b.org"), lambda found: f"[{found.kind}]")
    'to [email]'
    """
    parts, position = [], 0
    for span in spans:
        parts += [text[position : span.start], label(span)]
        position = span.end
    return "".join((*parts, text[position:]))


def _resolve_overlaps(spans: list[SensitiveSpan], masked_spans: list[tuple[int, int]]) -> list[SensitiveSpan]:
    """Drop spans within a mask; of two that overlap keep the kind of higher priority."""
    priority = {"key": 0, "email": 1, "card": 2, "phone": 3}
    resolved: list[SensitiveSpan] = []
    masks = iter(sorted(masked_spans))
    masked = next(masks, None)
    for span in sorted(spans, key=lambda span: (span.start, priority[span.kind])):
        while masked is not None and masked[1] <= span.start:
            masked = next(masks, None)
        if masked is not None and masked[0] < span.end:
            continue
        if not resolved or span.start >= resolved[-1].end:
            resolved.append(span)
        elif priority[span.kind] < priority[resolved[-1].kind]:
            resolved[-1] = span
    return resolved


EMAIL_DOMAIN = re.compile(
    r"(?:@|%40)(?!\d{1,5}\.\d)(?!\dx\.(?:png|jpe?g|gif|webp|svg|avif)\b)"
    r"((?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}(?:xn--[a-z0-9-]{2,59}|[^\W\d_]{2,24}))(?![\w@-])",
    re.IGNORECASE,
)
MAX_LOCAL_PART = 64
"""Longest part before the @."""
LOCAL_PART_SIGNS = frozenset("._%+-'&")
"""Punctuation allowed in the local part; at its ends it belongs to the sentence."""
ESCAPE_SEQUENCE = re.compile(r"(?:[nrtbf]|u[0-9a-f]{4})", re.IGNORECASE)
"""Escapes after a backslash in JSON or code."""


def _detect_emails(text: str) -> Iterator[SensitiveSpan]:
    if "@" not in text and "%40" not in text:
        return
    floor = 0
    for match in EMAIL_DOMAIN.finditer(text):
        start = end = match.start()
        while start > max(floor, end - MAX_LOCAL_PART) and (
            text[start - 1].isalnum() or text[start - 1] in LOCAL_PART_SIGNS
        ):
            start -= 1
        if start and text[start - 1] == "\\" and (escape := ESCAPE_SEQUENCE.match(text, start, end)):
            start = escape.end()
        while start < end and text[start] in ".'&%-":
            start += 1
        local = text[start:end]
        if not local or local.endswith(".") or (local == "git" and text[match.end() : match.end() + 1] == ":"):
            continue
        floor = match.end()
        yield SensitiveSpan(start, match.end(), "email", f"{local}@{match[1]}".lower())


DIGIT_SEPARATOR = "[ \u00a0\u202f.\u2010\u2011\u2013-]"
"""Characters between groups of digits."""
DIGIT_RUN = re.compile(rf"(?<![\w~])(?<![0-9][.+/-])[1-9][0-9]{{2,}}(?>(?:{DIGIT_SEPARATOR}{{0,2}}[0-9]+)*)(?![\w~])")
DIGIT_GROUP = re.compile(r"[0-9]+")
CARD_GROUPINGS = {(4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 4, 3)}
"""Digit groups of printed card numbers."""
SEVEN_DIGITS = re.compile(r"[0-9](?:[ \u00a0\u202f.()/\u2010\u2011\u2013-]{0,3}[0-9]){6}")
"""Seven digits close together; without them there is neither a card nor a phone number."""
CARD_NUMBER = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|3(?:0[0-5]|[68]\d)\d{11}|35(?:2[89]|[3-8]\d)\d{12,15}|6(?:011|4[4-9]\d|5\d\d)\d{12,15}|62\d{14,17}"
    r"|(?:2131|1800)\d{11}|(?:50|5[6-8]|6[37])\d{11,17}"
)
"""Card numbers in use, by prefix and length."""
CARD_CUE = re.compile(
    r"\b(?:cards?|cc|visa|master[ ]?card|amex|maestro|karte|carte|tarjeta|carta)\b[^\d\n]{0,20}$", re.IGNORECASE
)
"""Words before a number that is a card number whatever its prefix."""


def _detect_cards(text: str) -> Iterator[SensitiveSpan]:
    if SEVEN_DIGITS.search(text) is None:
        return
    for match in DIGIT_RUN.finditer(text):
        groups = list(DIGIT_GROUP.finditer(text, match.start(), match.end()))
        digits = "".join(group[0] for group in groups) if len(groups) < 9 else ""
        if _is_card_number(digits) or _is_cued_card(text, match.start(), digits):
            yield SensitiveSpan(match.start(), match.end(), "card", digits)
        elif len(groups) > 1:
            yield from _detect_grouped_cards(groups)


def _detect_grouped_cards(groups: list[re.Match[str]]) -> Iterator[SensitiveSpan]:
    """Detect cards among groups of digits that belong to more than one number."""
    index = 0
    while index < len(groups):
        for size in (5, 4, 3, 1):
            candidate = groups[index : index + size]
            digits = "".join(group[0] for group in candidate[:size]) if len(candidate) == size else ""
            is_card_shape = size == 1 or tuple(len(group[0]) for group in candidate) in CARD_GROUPINGS
            if is_card_shape and not _joins_previous(candidate[0]) and _is_card_number(digits):
                yield SensitiveSpan(candidate[0].start(), candidate[-1].end(), "card", digits)
                index += size - 1
                break
        index += 1


def _joins_previous(group: re.Match[str]) -> bool:
    """Return whether a group is joined to the text before it rather than after it."""
    text, (start, end) = group.string, group.span()
    return start > 0 and text[start - 1] in ".-" and text[end : end + 1] != text[start - 1]


def _is_card_number(digits: str) -> bool:
    return CARD_NUMBER.fullmatch(digits) is not None and len(set(digits)) > 1 and passes_luhn_check(digits)


def _is_cued_card(text: str, start: int, digits: str) -> bool:
    """Return whether a number with a right check digit follows words for a card."""
    plausible = 12 <= len(digits) <= 19 and len(set(digits)) > 1 and passes_luhn_check(digits)
    return plausible and CARD_CUE.search(text[max(0, start - 40) : start]) is not None


def passes_luhn_check(digits: str) -> bool:
    """Return whether the last digit is the check digit of those before it (ISO/IEC 7812-1).

    >>> passes_luhn_check("4111111111111111"), passes_luhn_check("4111111111111112")
    (True, False)
    """
    doubled = str.maketrans("0123456789", "0246813579")
    return (sum(map(int, digits[-1::-2])) + sum(map(int, digits[-2::-2].translate(doubled)))) % 10 == 0


PHONE_SEPARATOR = "[ \u00a0\u202f./\u2010\u2011\u2013-]"
PHONE_START = r"(?:(?<![\w~])|(?<=\\[nrt]))(?<![0-9][.+:/-])(?<![A-Za-z][/-])"
NO_DIGIT_BEFORE = r"(?<![0-9][ \u00a0])"
"""Neither digits, words or masks adjoin the number, nor a group that it may continue."""
PHONE_END = r"(?:[ ]?(?:x|ext\.?)[ ]?[0-9]{1,6})?(?![\w~])(?![./-][0-9])"
PHONE_PATTERNS = (
    re.compile(
        rf"{PHONE_START}(?:\+|{NO_DIGIT_BEFORE}00[ ]?(?=[1-9][0-9]{{0,2}}{PHONE_SEPARATOR}))[ (]{{0,2}}[1-9]"
        rf"(?:{PHONE_SEPARATOR}{{0,2}}(?:\(0?\))?[()]?[ ]?[0-9]){{7,14}}{PHONE_END}"
    ),
    re.compile(
        rf"{PHONE_START}(?:\+?1{PHONE_SEPARATOR})?(?:\([2-9]\d\d\)[ -]?|[2-9]\d\d([.-]))[2-9]\d\d(?(1)\1|[ .-])"
        rf"\d{{4}}{PHONE_END}"
    ),
    re.compile(
        rf"{PHONE_START}{NO_DIGIT_BEFORE}\(?0[1-9]\d{{0,4}}\)?(?:{PHONE_SEPARATOR}{{1,3}}\d{{2,8}}){{1,5}}{PHONE_END}"
    ),
)
"""International numbers; North American ones; national ones with a leading 0."""
ANY_PHONE = rf"(\+?\(?[0-9](?:[()]?{PHONE_SEPARATOR}{{0,2}}[()]?[0-9]){{6,14}})"
CUED_PHONE_PATTERNS = (
    re.compile(
        r"\b(?:tel(?:efono?|ephone|éfono)?|phone|mobile?|cell|fax|call(?: me)?(?: at| on)?|dial|ring|whatsapp|sms|handy"
        r"|tél|desk(?=:)|office(?=:)|(?:answer(?:s|ed|ing)?|(?:contact|reach(?:ed|able)?)(?: \w{2,4})?)"
        r" (?:at|on|under))"
        rf"\b[^\d\n+(]{{0,16}}\n?[ ]{{0,4}}{ANY_PHONE}{PHONE_END}",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{PHONE_START}{ANY_PHONE}(?=[ ]?[-–(][ ]?(?:office|fax|mobile|cell|home|desk|phone)\b)", re.IGNORECASE
    ),
)
"""Any digits after a word such as "phone", or before one: 366 0548-Fax."""
OTHER_NUMBER_CUE = re.compile(
    r"(?:\b(?:order|invoice|ticket|part|serial|item|sku|article|art|ref|reference|isbn|issn|ean|version|account|iban"
    r"|tracking|case|batch|customer|doi|patent|build|rechnung|bestellung)\b[\s.:#-]{0,3}"
    r"(?:(?:no|number|nr|num|id|code)\b)?|\b(?:no|nr|id)\.?)[\s.:#-]{0,3}$",
    re.IGNORECASE,
)
"""Words before a number that is not a phone number."""
DATE_PATTERN = re.compile(
    r"(?<!\d)(?:\d{1,2}[./-]\d{1,2}[./-](?:19|20)\d\d|(?:19|20)\d\d[./-]\d{1,2}[./-]\d{1,2})(?!\d)"
)
IP_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
DECIMAL_NUMBER = re.compile(r"\+?\d+\.\d+")


def _detect_phones(text: str) -> Iterator[SensitiveSpan]:
    if SEVEN_DIGITS.search(text) is None:
        return
    for number, pattern in enumerate((*PHONE_PATTERNS, *CUED_PHONE_PATTERNS)):
        cued = number >= len(PHONE_PATTERNS)
        for match in pattern.finditer(text):
            start, end = match.start(1) if cued else match.start(), match.end()
            if digits := _parse_phone(text, start, end, national=number > 0 and not cued):
                yield SensitiveSpan(start, end, "phone", digits, cued)


def _parse_phone(text: str, start: int, end: int, *, national: bool) -> str | None:
    """Return the digits of a phone number; None for dates, addresses, amounts and other numbers by their cue."""
    number = text[start:end]
    digits = re.sub(r"[^0-9]", "", number)
    if number.startswith("00"):
        digits = digits[2:]
    if not (9 if number[0] in "0(" and national else 7) <= len(digits) <= 15 or digits.endswith("000000"):
        return None
    if DATE_PATTERN.search(number) or IP_ADDRESS.fullmatch(number) or DECIMAL_NUMBER.fullmatch(number):
        return None
    if national and OTHER_NUMBER_CUE.search(text[max(0, start - 32) : start]):
        return None
    return digits[1:] if len(digits) == 11 and digits[0] == "1" else digits


KEY_START = r"(?<![A-Za-z0-9_-])"
KEY_PATTERN = re.compile(
    rf"{KEY_START}(?:sk-(?=[\w-]{{0,40}}\d)[A-Za-z0-9_-]{{20,}}+|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{{16,}}+"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}\b|gh[pousr]_[A-Za-z0-9]{30,}+|github_pat_[A-Za-z0-9_]{22,}+|glpat-[\w-]{20,}+"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}+|xapp-[A-Za-z0-9-]{20,}+|AIza[\w-]{35}|hf_[A-Za-z0-9]{30,}+|npm_[A-Za-z0-9]{36}"
    r"|SG\.[\w-]{16,32}\.[\w-]{32,64}|eyJ[\w-]{8,}+\.eyJ[\w-]{4,}+\.[\w-]{8,}+)"
)
KEY_PREFIXES = (
    *("sk-", "github_pat_", "k_live_", "k_test_", "AKIA", "ASIA", "glpat-", "xox", "xapp-", "AIza", "hf_"),
    *("npm_", "SG.", "eyJ", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
)
PEM_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:[\s\\nr]{1,4}[A-Za-z-]{1,30}: [^\n\\]{0,120}){0,4}"
    r"(?=[\s\\nr]{0,8}[A-Za-z0-9+/=]{16})[A-Za-z0-9+/=\s\\]*+(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----)?"
)
BEARER_TOKEN = re.compile(r"\bbearer\s{1,4}([A-Za-z0-9._~+/=-]{16,}+)", re.IGNORECASE)
URL_PASSWORD = re.compile(r"://[^\s:/@\[\]]{0,64}:([^\s/@\[\]]{3,128})@")
NAMED_SECRET = re.compile(
    r"(?:api[ _-]?key|secret|token|passw(?:or)?d|passphrase|pwd|access[_-]?key|private[_-]?key|credential|auth)"
    r"[\w-]{0,20}[\"'\\]{0,2}\s{0,3}(?:[:=]{1,2}>?|\bis\b)\s{0,3}[\"'\\]{0,2}([A-Za-z0-9+/_.~=$!@%^*-]{16,}+)",
    re.IGNORECASE,
)
SECRET_NAMES = ("key", "secret", "token", "passw", "passphrase", "pwd", "credential", "auth")
MIN_ENTROPY = 3.0
"""Least entropy of a secret, in bits per character."""


def _detect_keys(text: str) -> Iterator[SensitiveSpan]:
    if any(prefix in text for prefix in KEY_PREFIXES):
        yield from (_make_key_span(match) for match in KEY_PATTERN.finditer(text))
    if "PRIVATE KEY" in text:
        yield from (_make_key_span(match) for match in PEM_BLOCK.finditer(text))
    if "://" in text:
        yield from (_make_key_span(match, 1) for match in URL_PASSWORD.finditer(text))
    low = text.lower()
    if "bearer" in low:
        yield from (
            _make_key_span(match, 1, by_context=True)
            for match in BEARER_TOKEN.finditer(text)
            if _looks_random(match[1])
        )
    if any(name in low for name in SECRET_NAMES):
        yield from (
            _make_key_span(match, 1, by_context=True)
            for match in NAMED_SECRET.finditer(text)
            if _looks_random(match[1])
        )


def _make_key_span(match: re.Match[str], group: int = 0, *, by_context: bool = False) -> SensitiveSpan:
    start, end = match.span(group)
    value = match[group].rstrip(".!") if by_context else match[group]
    return SensitiveSpan(start, end - len(match[group]) + len(value), "key", value, by_context)


def _looks_random(value: str) -> bool:
    """Return whether a value looks random: letters and digits with few repetitions."""
    value = value[:200]
    mixed = any(character.isdigit() for character in value) and any(character.isalpha() for character in value)
    n = len(value)
    return mixed and -sum(count / n * math.log2(count / n) for count in Counter(value).values()) >= MIN_ENTROPY


DETECTORS: dict[SensitiveKind, Callable[[str], Iterator[SensitiveSpan]]] = {
    "key": _detect_keys,
    "email": _detect_emails,
    "card": _detect_cards,
    "phone": _detect_phones,
}
