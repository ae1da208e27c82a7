"""Scanner of personal data: spans are the values in many ways of writing, and numbers that resemble one are none."""

from __future__ import annotations

import random
import re

import pytest

from benchmarks.personal_data import KINDS, count_matches, make_texts
from ragfault.apps.guard.scanning.scanners import make_scanner
from ragfault.text import personal_data

SCAN = make_scanner("personal_data", {})


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("write to ann [at] example.org today", "email", "ann [at] example.org"),
        ("ann at mail dot example dot org", "email", "ann at mail dot example dot org"),
        ("ann＠example.org", "email", "ann＠example.org"),
        ("pay gb82-west-1234-5698-7654-32 and go", "iban", "gb82-west-1234-5698-7654-32"),
        ("GB82 WEST 1234 5698 7654 32 AND MORE", "iban", "GB82 WEST 1234 5698 7654 32"),
        ("from 2001:db8::1 on", "ip_address", "2001:db8::1"),
        ("net 2001:db8:2:: is ours", "ip_address", "2001:db8:2::"),
        ("at 192.0.2.17:8080", "ip_address", "192.0.2.17"),
        ("SSN: 078.05.1120", "ssn", "078.05.1120"),
        ("my social security number is 078 05 1120", "ssn", "078 05 1120"),
        ("card 4111  1111  1111  1111", "card", "4111  1111  1111  1111"),
        ("please block my card 580099887763 today", "card", "580099887763"),
        ("her cc is 9400 1122 3344 5568", "card", "9400 1122 3344 5568"),
        ("Phone:\n41-52-63-74", "phone", "41-52-63-74"),
        ("nobody is answering at 61 234 550", "phone", "61 234 550"),
        ("Desk: 415-555-0142x318", "phone", "415-555-0142x318"),
        ("415-555-0142 ext. 31", "phone", "415-555-0142 ext. 31"),
        ("call 366 0548 (Fax)", "phone", "366 0548"),
        ("366 0548-Fax", "phone", "366 0548"),
    ],
)
def test_a_value_is_a_span_of_its_kind(text: str, kind: str, value: str) -> None:
    assert [(text[item.start : item.end], item.kind) for item in SCAN(text)] == [(value, kind)]


@pytest.mark.parametrize(
    "text",
    [
        "version 1.2.3.4",
        "parcel 580099887763 today",
        "the office 4120033 has",
        "7654321 mobile customers",
        "v2.0.0.1",
        "std::map<a::b>",
        "add::fade",
        "at 12:04:55",
        "00:1b:44:11:3a:b7",
        "GB83 WEST 1234 5698 7654 32",
        "we meet at the corner, dot the i and look at it",
        "look at example.org",
        "178 05 1120 units",
        "@ann on the board",
        "GB82 WEST 1234 5698 7654 329",
        "XX82 WEST 1234 5698 7654 32",
    ],
)
def test_what_resembles_a_value_is_none(text: str) -> None:
    assert SCAN(text) == []


def test_a_part_of_an_account_number_is_never_a_phone_number() -> None:
    phones = make_scanner("personal_data", {"kinds": ["phone"]})
    assert phones("GB33BUKB20201555555555 or DE89 3704 0044 0532 0130 00") == []
    assert [item.kind for item in phones("ring 020 7946 0958")] == ["phone"]


def test_most_generated_values_are_spans_and_few_others_are() -> None:
    counts, _ = count_matches(make_texts(400, 3), SCAN)
    for kind in KINDS:
        hits, misses, wrong = (counts[kind, part] for part in ("hit", "miss", "wrong"))
        assert hits >= 0.75 * (hits + misses), kind
        assert hits >= 0.85 * (hits + wrong), kind


def test_what_a_text_must_hold_is_in_every_text_with_such_data() -> None:
    """The patterns that spare a text the search for personal data never spare one that has some."""
    rng = random.Random(0)
    spoken = re.compile(rf"\uff20| dot |{personal_data.SPOKEN_AT.pattern}")
    for pattern, required, pieces in (
        (personal_data.IBAN_START, personal_data.COUNTRY_DIGITS, ["GB", "82", " ", "-", "W", "4"]),
        (personal_data.IPV4, personal_data.THREE_NUMBERS, ["1", "23", ".", ".", " "]),
        (personal_data.IPV6, personal_data.TWO_COLONS, ["fe80", ":", ":", "1", " "]),
        (personal_data.SSN, personal_data.NINE_DIGITS, ["123", "45", "6789", "-", "-", " "]),
        (personal_data.CUED_SSN, personal_data.NINE_DIGITS, ["ssn ", "123", "45", "6789", "-", " "]),
        (personal_data.SPOKEN_EMAIL, spoken, ["ann", "(at)", " at ", " dot ", ".", "org", "\uff20", " "]),
    ):
        texts = ["".join(rng.choices(pieces, k=9)) for _ in range(6_000)]
        matching = [text for text in texts if pattern.search(text)]
        assert len(matching) > 1, pattern.pattern
        assert all(required.search(text) for text in matching)
