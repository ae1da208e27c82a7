"""Detection of personal data: e-mail, phone, card, IBAN, IP address and US social security number, in linear time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv6Address
from typing import NamedTuple

from ragfault.text.redaction import SENSITIVE_KINDS, detect_sensitive


class Finding(NamedTuple):
    """Span of a text that a scanner reports."""

    start: int
    end: int
    kind: str
    score: float = 1.0


SPOKEN_EMAIL = re.compile(
    r"(?<![\w.+-])[^\W_][\w.+'-]{0,63}"
    r"(?:\uff20|[ ]?[\[({<][ ]?(?:at|@)[ ]?[\])}>][ ]?(?=[\w-]{1,63}(?:[.]|[ ]?[\[({<][ ]?(?:dot|[.])))"
    r"|[ ]at[ ](?=[\w-]{1,63}[ ]dot[ ]))"
    r"(?:[\w-]{1,63}(?:[.]|[ ]?[\[({<][ ]?(?:dot|[.])[ ]?[\])}>][ ]?|[ ]dot[ ])){1,6}[^\W\d_]{2,24}(?![\w-])",
    re.IGNORECASE,
)
"""Addresses written for readers: ann [at] example.org, ann at example dot org."""
SPOKEN_AT = re.compile(r"[\[({<][ ]?(?:at|@)", re.IGNORECASE)

IBAN_LENGTHS = {
    length: frozenset(countries.split())
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FI FK FO GL NL SD",
        19: "MK SI",
        20: "AT BA EE KZ LT LU MN XK",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM SO TL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST",
        26: "IS TR",
        27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HU LB NI PL SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU",
        31: "MT SC",
        32: "LC",
        33: "RU",
    }.items()
}
"""Length → countries, of the registry of ISO 13616."""
LENGTH_BY_COUNTRY = {country: length for length, countries in IBAN_LENGTHS.items() for country in countries}
IBAN_START = re.compile(r"(?<![A-Za-z0-9])([A-Za-z]{2})(?=[0-9]{2}[ \u00a0\u202f.-]?[A-Za-z0-9])")
COUNTRY_DIGITS = re.compile("[0-9][0-9](?<=[A-Za-z][A-Za-z]..)")
"""Two letters and two digits, without which a text has no IBAN; digits are rare, so that these are found fast."""
IBAN_SEPARATORS = frozenset(" \u00a0\u202f.-")


def passes_iban_check(value: str) -> bool:
    """Return whether the check digits of an IBAN are right (ISO 7064, modulo 97).

    >>> passes_iban_check("GB82 WEST 1234 5698 7654 32"), passes_iban_check("GB83 WEST 1234 5698 7654 32")
    (True, False)
    """
    digits = "".join(filter(str.isalnum, value)).upper()
    return int("".join(str(int(sign, 36)) for sign in digits[4:] + digits[:4])) % 97 == 1


def _detect_ibans(text: str) -> Iterator[Finding]:
    if COUNTRY_DIGITS.search(text) is None:
        return
    for match in IBAN_START.finditer(text):
        length = LENGTH_BY_COUNTRY.get(match[1].upper())
        end = None if length is None else _find_end(text, match.start(), length)
        if end is not None and passes_iban_check(text[match.start() : end]):
            yield Finding(match.start(), end, "iban")


def _find_end(text: str, start: int, length: int) -> int | None:
    """Return the end of so many letters and digits with at most one separator between two; None where there is none."""
    digits, position = 0, start
    while position < len(text) and digits < length:
        sign = text[position]
        if sign.isascii() and sign.isalnum():
            digits += 1
        elif sign not in IBAN_SEPARATORS or text[position - 1] in IBAN_SEPARATORS:
            return None
        position += 1
    is_complete = digits == length and not (position < len(text) and text[position].isalnum())
    return position if is_complete else None


IPV4 = re.compile(r"(?<![\w.:])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3})(?!\w|\.\d)")
IPV6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:]{4,39}(?:(?:\.\d{1,3}){3})?(?!\w)")
THREE_NUMBERS = re.compile(r"\d\.\d{1,3}\.\d")
TWO_COLONS = re.compile(":[0-9A-Fa-f]{0,4}:")
VERSION_CUE = re.compile(
    r"(?:\bv(?:er(?:sion)?)?|\brelease|\bbuild|\bsection|\bchapter|§)[\s.:#-]{0,3}$", re.IGNORECASE
)
"""Words before four numbers that are no address."""


def _detect_ip_addresses(text: str) -> Iterator[Finding]:
    for match in IPV4.finditer(text) if THREE_NUMBERS.search(text) else ():
        if VERSION_CUE.search(text[max(0, match.start() - 12) : match.start()]) is None:
            yield Finding(*match.span(), "ip_address")
    for match in IPV6.finditer(text) if TWO_COLONS.search(text) else ():
        value = match[0] if match[0].endswith("::") else match[0].removesuffix(":")
        if _is_ipv6(value):
            yield Finding(match.start(), match.start() + len(value), "ip_address")


def _is_ipv6(value: str) -> bool:
    """Return whether a text is an address and no name of code such as a::b: those are short, or have no digit."""
    try:
        IPv6Address(value)
    except ValueError:
        return False
    is_long = "::" not in value or "." in value or len(value.partition(":")[0]) >= 3
    return is_long and any(sign.isdigit() for sign in value)


SSN = re.compile(r"(?<![\d-])(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\d-])")
CUED_SSN = re.compile(
    r"\b(?:ssn|social security(?: number| no\.?)?)[^\w\n]{0,4}(?:is[ ])?"
    r"((?!000|666|9)\d{3}[ .\u00a0-]?(?!00)\d\d[ .\u00a0-]?(?!0000)\d{4})(?!\d)",
    re.IGNORECASE,
)
"""Other groupings count after the words alone."""


NINE_DIGITS = re.compile(r"\d{3}[ .\u00a0-]?\d\d[ .\u00a0-]?\d{4}")


def _detect_ssns(text: str) -> Iterator[Finding]:
    if NINE_DIGITS.search(text) is None:
        return
    yield from (Finding(*match.span(), "ssn") for match in SSN.finditer(text))
    yield from (Finding(*match.span(1), "ssn") for match in CUED_SSN.finditer(text))


def _detect_emails(text: str) -> Iterator[Finding]:
    if "\uff20" in text or SPOKEN_AT.search(text) or " dot " in text.lower():
        yield from (Finding(*match.span(), "email") for match in SPOKEN_EMAIL.finditer(text))


DETECTORS: dict[str, Callable[[str], Iterator[Finding]]] = {
    "iban": _detect_ibans,
    "ip_address": _detect_ip_addresses,
    "ssn": _detect_ssns,
    "email": _detect_emails,
}
"""Detectors beside those of redaction."""
PERSONAL_KINDS = ("iban", "card", "ssn", "email", "ip_address", "phone")
"""Kinds; of two spans that overlap the earlier kind counts."""


def detect_personal_data(text: str, kinds: Sequence[str] = PERSONAL_KINDS) -> list[Finding]:
    """Detect personal data of some kinds, in order, without overlaps.

    >>> [item.kind for item in detect_personal_data("ann (at) example.org pays from gb82-west-1234-5698-7654-32")]
    ['email', 'iban']
    """
    # all kinds are looked for, so that a part of an account number never counts as a phone number
    sensitive = [kind for kind in SENSITIVE_KINDS if kind != "key"]
    findings = [Finding(span.start, span.end, span.kind) for span in detect_sensitive(text, sensitive)]
    for detect in DETECTORS.values():
        findings += detect(text)
    return sorted(item for item in _resolve_overlaps(findings) if item.kind in kinds)


def _resolve_overlaps(findings: Sequence[Finding]) -> list[Finding]:
    resolved: list[Finding] = []
    for finding in sorted(findings, key=lambda item: (PERSONAL_KINDS.index(item.kind), item.start, -item.end)):
        if all(finding.end <= earlier.start or earlier.end <= finding.start for earlier in resolved):
            resolved.append(finding)
    return resolved
