"""Measure the scanner of personal data: precision and recall by kind on generated texts whose spans are known.

    python -m benchmarks.personal_data [--texts 1200] [--seed 0] [--others] [--misses] [--labelled FILE]

Values are drawn at random in the formats of many countries and ways of writing (check digits right where the kind has
them), and set into sentences of letters, mails, logs, tables and JSON. A third of the texts has none, but numbers and
signs that resemble one: orders, dates, versions, sizes, coordinates, numbers with wrong check digits. A span is right
if its kind is and it shares at least half of the characters of both together; every other reported span is wrong. With
--others the formats are those that the patterns were not changed for. With --labelled the texts are those of a JSONL
file (`text`, and `spans` with `start`, `end` and `type`), of which the types in TYPES are measured.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ragfault.apps.guard.scanning.scanners import Scanner, make_scanner
from ragfault.stats.intervals import wilson_interval

KINDS = ("email", "phone", "card", "iban", "ip_address", "ssn")
NAMES = (
    "ann",
    "li.wei",
    "j.o'neill",
    "sofia_berg",
    "omar",
    "k-smith",
    "zoë",
    "m.garcia",
    "dev",
    "billing",
    "t.nguyen87",
)
DOMAINS = ("example.org", "mail.example.co.uk", "corp.example", "uni-köln.example", "post.example.com", "a1.example.io")


class LabelledText(NamedTuple):
    """A text with the personal data in it."""

    text: str
    spans: tuple[tuple[int, int, str], ...]
    """Start, end and kind."""


def draw_digits(rng: random.Random, n: int, first: str = "") -> str:
    """Draw n digits that begin with some."""
    return first + "".join(rng.choice("0123456789") for _ in range(n - len(first)))


def fill_digits(rng: random.Random, shape: str) -> str:
    """Fill a shape: # is any digit, N one from 2 to 9, other characters stay."""
    return "".join(rng.choice("0123456789") if c == "#" else rng.choice("23456789") if c == "N" else c for c in shape)


def make_email(rng: random.Random) -> str:
    name, domain = rng.choice(NAMES), rng.choice(DOMAINS)
    plain = f"{name}@{domain}"
    return rng.choice(
        (
            plain,
            plain.upper(),
            f"{name}+news@{domain}",
            f"{name} [at] {domain}",
            f"{name}(at){domain}",
            f"{name} AT {domain.replace('.', ' DOT ')}",
            f"{name}[at]{domain.replace('.', '[dot]')}",
            f"{name}{rng.randint(1, 99)}@{domain}",
            f"{name}＠{domain}",
            plain,
        )
    )


PHONES = (
    "+44 20 7946 0###",
    "020 7946 0###",
    "(020) 7946 0###",
    "+49 (0)30 ########",
    "030/#######",
    "0171-#######",
    "0### ######",
    "(N##) 555-01##",
    "N##-555-01##",
    "N##.555.01##",
    "+1 (N##) 555-01## ext. ##",
    "1-800-555-01##",
    "+33 1 ## ## ## ##",
    "06 ## ## ## ##",
    "+91 98### #####",
    "+86 13# #### ####",
    "+7 (495) ###-##-##",
    "8 (495) ###-##-##",
    "0044 20 7946 0###",
    "+55 (11) 9####-####",
    "(11) 9####-####",
    "+81-3-####-####",
    "03-####-####",
    "+351 21# ### ###",
    "+46 8 ### ### ##",
    "+1N##55501##",
    "00 49 30 #######",
    "+65 6### ####",
)
CUED_PHONES = (
    "phone ### ####",
    "Tel.: ## ## ## ##",
    "call N##55501##",
    "mobile 9########",
    "WhatsApp: 98########",
    "Fax ####-####",
)
CARDS = (
    ("4", 16),
    ("51", 16),
    ("55", 16),
    ("2221", 16),
    ("34", 15),
    ("37", 15),
    ("6011", 16),
    ("3530", 16),
    ("36", 14),
)


def add_check_digit(digits: str) -> str:
    """Append the check digit of Luhn's formula."""
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if index % 2 == 0 else 1)
        total += value - 9 if value > 9 else value
    return digits + str(-total % 10)


def make_card(rng: random.Random) -> str:
    first, n = rng.choice(CARDS)
    digits = add_check_digit(draw_digits(rng, n - 1, first))
    sizes = (4, 6, 5) if n == 15 else (4, 6, 4) if n == 14 else (4, 4, 4, 4)
    separator = rng.choice(("", " ", "-", "\u00a0", ".", "  "))
    groups, at = [], 0
    for size in sizes:
        groups.append(digits[at : at + size])
        at += size
    return separator.join(groups)


IBANS = {
    "GB": "AAAA##############",
    "DE": "##################",
    "FR": "#######################",
    "NL": "AAAA##########",
    "ES": "####################",
    "CH": "#################",
    "PL": "########################",
    "NO": "###########",
    "MT": "AAAA#####AA################",
    "BE": "############",
}


def make_iban(rng: random.Random) -> str:
    country, shape = rng.choice(sorted(IBANS.items()))
    body = "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") if c == "A" else rng.choice("0123456789") for c in shape)
    number = int("".join(str(int(c, 36)) for c in f"{body}{country}00"))
    plain = f"{country}{98 - number % 97:02d}{body}"
    grouped = [plain[i : i + 4] for i in range(0, len(plain), 4)]
    return rng.choice(
        (
            plain,
            " ".join(grouped),
            " ".join(grouped),
            "-".join(grouped),
            "\u00a0".join(grouped),
            plain.lower(),
            ".".join(grouped),
        )
    )


def make_ip_address(rng: random.Random) -> str:
    four = ".".join(str(rng.randint(1, 254)) for _ in range(4))
    parts = [f"{rng.randint(1, 65535):x}" for _ in range(8)]
    compressed = f"2001:db8::{parts[0]}"
    return rng.choice(
        (
            four,
            four,
            f"192.168.{rng.randint(0, 255)}.{rng.randint(1, 254)}",
            ":".join(parts),
            compressed,
            f"fe80::{parts[1]}:{parts[2]}",
            f"2001:db8:{parts[3]}::{parts[4]}:{parts[5]}",
            f"::ffff:{four}",
            ":".join(parts).upper(),
        )
    )


def make_ssn(rng: random.Random) -> str:
    area = rng.choice([n for n in range(1, 900) if n != 666])
    area, group, serial = f"{area:03d}", f"{rng.randint(1, 99):02d}", f"{rng.randint(1, 9999):04d}"
    return rng.choice(
        (
            f"{area}-{group}-{serial}",
            f"{area}-{group}-{serial}",
            f"{area}-{group}-{serial}",
            f"{area} {group} {serial}",
            f"SSN {area}{group}{serial}",
            f"SSN: {area}.{group}.{serial}",
        )
    )


def make_phone(rng: random.Random) -> str:
    return fill_digits(rng, rng.choice(PHONES if rng.random() < 0.8 else CUED_PHONES))


MAKERS: dict[str, Callable[[random.Random], str]] = {
    "email": make_email,
    "phone": make_phone,
    "card": make_card,
    "iban": make_iban,
    "ip_address": make_ip_address,
    "ssn": make_ssn,
}


def make_other_format(rng: random.Random, kind: str) -> str:
    """Make a value in a format that was written down after the patterns; they are not to be changed for it."""
    name, domain = rng.choice(NAMES), rng.choice(DOMAINS)
    four = ".".join(str(rng.randint(1, 254)) for _ in range(4))
    plain = "".join(filter(str.isalnum, make_card(rng)))
    social = "".join(filter(str.isdigit, make_ssn(rng)))
    iban = "".join(filter(str.isalnum, make_iban(rng))).upper()
    return rng.choice(
        {
            "email": (
                f"{name}(@){domain}",
                f"{name} AT {domain}",
                f"{name}@{domain.replace('.', ' . ')}",
                f"{name}_at_{domain}",
            ),
            "phone": (
                fill_digits(rng, "(+44) 20 7946 0###"),
                fill_digits(rng, "tel:+4420794601##"),
                fill_digits(rng, "+49-30-#######"),
                fill_digits(rng, "+1 N## 555 01##"),
                fill_digits(rng, "+44.20.7946.0###"),
                fill_digits(rng, "N## 555 01##"),
            ),
            "card": (
                f"{plain[:4]}/{plain[4:8]}/{plain[8:12]}/{plain[12:]}",
                f"{plain[:4]}_{plain[4:]}",
                f"{plain[:8]} {plain[8:]}",
            ),
            "iban": (f"{iban[:2]} {iban[2:4]} {iban[4:]}", f"{iban[:4]} {iban[4:]}", f"{iban[:8]}/{iban[8:]}"),
            "ip_address": (
                f"{four.replace('.', '[.]')}",
                f"{rng.randint(1, 9)}{four[1:]}",
                f"2001:db8:{rng.randint(1, 9)}::",
                f"0x{rng.randint(2**28, 2**32 - 1):x}",
            ),
            "ssn": (
                f"{social[:3]}–{social[3:5]}–{social[5:]}",
                f"ssn={social}",
                f"Social Security no. {social[:3]} {social[3:5]} {social[5:]}",
            ),
        }[kind]
    )


CUE_PREFIXES = (
    "tel:",
    "ssn=",
    "Social Security no. ",
    "phone ",
    "Tel.: ",
    "call ",
    "mobile ",
    "WhatsApp: ",
    "Fax ",
    "SSN ",
    "SSN: ",
)
"""Words of a value that are no part of its span."""
SENTENCES = (
    "Please write it down: {} – and let us know by Friday.",
    "My details have changed. The new one is {}.",
    "{}",
    "Contact:\n{}\n\nRegards,\nM.",
    "log 12:04:55 INFO user=17 value={} status=ok",
    '{{"id": 7, "value": "{}", "active": true}}',
    "| Berg | {} | open |",
    "Old: none; new: {}, as agreed.",
    "He said it was {}, but she was not sure.",
    "See <{}> for more.",
    "({})",
    "Name;City;{};yes",
    "Is {} still right? Nobody answers there.",
)
NEAR_MISSES = (
    "order 4###-######-##",
    "invoice no. 20########",
    "version #.##.#.#",
    "released on 20##-0#-1#",
    "at 1#:##:## on 0#/1#/20##",
    "ISBN 978-3-16-######-#",
    "#,###,###.## EUR",
    "room N##, floor #, seat ####",
    "coordinates 5#.#####, 1#.#####",
    "ticket ##########",
    "section #.#.# of part ##",
    "sha 4f#b#c#d#e#a##",
    "@ann and @li on the board",
    "git@code.example:team/app.git",
    "logo@2x.png",
    "3e#a##f#-####-4##c-9##a-##########ab",
    "00:1b:##:3c:##:5e",
    "10:##:##.###",
    "chapter ##:##",
    "1 000 000 to 9 999 999",
    "#### #### #### ##",
    "part 078-#-####",
    "page ###-###",
    "C++::vector::size",
    "std::map<a::b>",
    "## x ## x ## cm",
    "scores ##-##, ##-##",
    "between 19## and 20##",
    "DIN EN ISO ####-#:20##",
    "account 1########",
    "GB82 TEST",
    "we meet at the corner, dot the i and look at it",
)


def make_texts(n: int, seed: int, *, other_formats: bool = False) -> list[LabelledText]:
    """Make labelled texts; the same seed makes the same."""
    rng = random.Random(seed)
    texts = []
    for _ in range(n):
        sentence = rng.choice(SENTENCES)
        if rng.random() < 1 / 3:
            texts.append(LabelledText(sentence.format(fill_digits(rng, rng.choice(NEAR_MISSES))), ()))
            continue
        kind = rng.choice(KINDS)
        value = make_other_format(rng, kind) if other_formats else MAKERS[kind](rng)
        text = sentence.format(value)
        prefix = next((prefix for prefix in CUE_PREFIXES if value.startswith(prefix)), "")
        start = text.index(value) + len(prefix)
        texts.append(LabelledText(text, ((start, start + len(value) - len(prefix), kind),)))
    return texts


TYPES = {
    "EMAIL_ADDRESS": "email",
    "PHONE_NUMBER": "phone",
    "CREDIT_CARD": "card",
    "IBAN_CODE": "iban",
    "IP_ADDRESS": "ip_address",
    "US_SSN": "ssn",
}
"""Kinds by the names that labelled sets give them."""


def read_labelled(path: Path) -> list[LabelledText]:
    """Read labelled texts from JSONL, compressed or not."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = [json.loads(line) for line in content.splitlines()]
    return [
        LabelledText(
            row["text"],
            tuple((span["start"], span["end"], TYPES[span["type"]]) for span in row["spans"] if span["type"] in TYPES),
        )
        for row in rows
    ]


def compute_overlap(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return the share of the characters of two spans that both have."""
    shared = min(first[1], second[1]) - max(first[0], second[0])
    return max(0, shared) / (max(first[1], second[1]) - min(first[0], second[0]))


def count_matches(texts: Sequence[LabelledText], scan: Scanner) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Count hits, misses and wrong spans by kind, and list texts with a miss or a wrong span."""
    counts: Counter[tuple[str, str]] = Counter()
    faults = []
    for text, spans in texts:
        reported = list(scan(text))
        for start, end, kind in spans:
            is_hit = any(
                item.kind == kind and compute_overlap((item.start, item.end), (start, end)) >= 0.5 for item in reported
            )
            counts[kind, "hit" if is_hit else "miss"] += 1
            if not is_hit:
                faults.append(f"miss {kind}: {text!r}")
        for item in reported:
            right = any(
                item.kind == kind and compute_overlap((item.start, item.end), (start, end)) >= 0.5
                for start, end, kind in spans
            )
            if not right:
                counts[item.kind, "wrong"] += 1
                faults.append(f"wrong {item.kind}: {text[item.start : item.end]!r} in {text!r}")
    return counts, faults


def main() -> None:
    """Print the table, and with --misses the texts behind it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.personal_data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--texts", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--misses", action="store_true", help="print every text with a miss or a wrong span")
    parser.add_argument("--others", action="store_true", help="formats that the patterns were not changed for")
    parser.add_argument("--labelled", type=Path, help="JSONL of texts with labelled spans")
    options = parser.parse_args()
    texts = (
        read_labelled(options.labelled)
        if options.labelled
        else make_texts(options.texts, options.seed, other_formats=options.others)
    )
    counts, faults = count_matches(texts, make_scanner("personal_data", {}))
    print("| kind | spans | recall | reported | precision |\n|---|---|---|---|---|")
    for kind in KINDS:
        hits, misses, wrong = (counts[kind, part] for part in ("hit", "miss", "wrong"))
        if not hits + misses + wrong:
            continue
        cells = []
        for n in (hits + misses, hits + wrong):
            low, high = wilson_interval(hits, n) if n else (0.0, 1.0)
            cells.append(f"{n} | {hits / max(1, n):.2f} [{low:.2f}, {high:.2f}]")
        print(f"| {kind} | {' | '.join(cells)} |")
    if options.misses:
        print("\n".join(faults))


if __name__ == "__main__":
    main()
