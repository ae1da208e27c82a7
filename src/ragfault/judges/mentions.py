"""Mentions: the identifiers of a text that a lens looks for, each in the form in which it is compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from ragfault.judges.lens import Kind, Lens
from ragfault.judges.patterns import compiled, found
from ragfault.text import plain
from ragfault.text.measures import measures
from ragfault.text.quantities import BIG, COINS, CURRENCY, MONTHS, Find, figured, quantities

__all__ = ["Mention", "even", "mentions"]

Form = tuple[str, ...]
READ = 50_000
"""How many characters of a text are searched."""
BEFORE = 40
"""So many characters before an identifier tell whether it is a mere reference."""
ANY = "*"
"""A part of a form that is left open: the year of 14 March."""
NUMBERED = 100
"""A range of at most so many numbers holds each of them."""

SCALES = rf"(?:[ -]?(?:{BIG}|mn|bn|[bkm](?![\w/])))?"
NUMBER = r"\d[\d,]*+(?:\.\d+)?"
MONEY = rf"(?:{CURRENCY}){NUMBER}{SCALES}(?!\w)|(?<![\d.,]){NUMBER}{SCALES} ?(?:{COINS})(?!\w)"
NAMED = "|".join("(?-i:May|MAY)" if name == "may" else name for name in MONTHS)
ORDINAL = {"first": "1", "second": "2", "third": "3", "fourth": "4"}
YEAR = r"(?:,? ?(?:of |in )?(?:the )?(?:fiscal (?:year )?|financial year |fy ?)?'?(?P<year>(?:19|20)\d\d|\d\d(?!\w)))"
QUARTER = r"\b(?:q(?P<q>[1-4])|(?P<q2>[1-4])q|(?P<q3>first|second|third|fourth|[1-4](?:st|nd|rd|th))"
QUARTER += rf" (?:fiscal )?quarter){YEAR}?+(?!\w)"
HALF = rf"\b(?:h(?P<h>[12])|(?P<h2>[12])h|(?P<h3>first|second|1st|2nd) half){YEAR}(?!\w)"
FISCAL = r"\b(?:fy|fiscal(?: year)?|financial year) ?'?(?P<year>(?:19|20)\d\d|\d\d)(?!\w)"
PERIODS = re.compile(
    rf"{QUARTER}|{HALF.replace('<year>', '<year2>')}|{FISCAL.replace('<year>', '<year3>')}", re.IGNORECASE
)
DAYS = (
    rf"\b(?:19|20)\d\d-\d\d-\d\d(?!\d)|\b\d{{1,2}}(?:st|nd|rd|th)?(?: of)? (?:{NAMED})\b\.?(?:,? (?:19|20)\d\d\b)?"
    rf"|\b(?:{NAMED})\b\.? \d{{1,2}}(?:st|nd|rd|th)?\b(?![.,:]\d)(?:,? (?:19|20)\d\d\b)?"
    rf"|\b(?:{NAMED})\b\.?,? (?:of )?(?:19|20)\d\d\b|\b\d{{1,2}}/\d{{1,2}}/(?:19|20)\d\d\b"
)
LONE = r"(?<![\w$€£¥₹#.,/-])(?:19|20)\d\d(?!\w|[.,]\d|[-/]\d|%| %)"
UNNAMED = re.compile(r"\?P<\w+>")
DATE = f"(?:19|20)\\d\\d ?q[1-4](?!\\w)|{UNNAMED.sub('?:', PERIODS.pattern)}|{DAYS}|{LONE}"
OWN = {"money": MONEY, "date": DATE}
"""Forms that know their own looks."""
LISTED = re.compile(r"\s*(?:,|;|&|\band\b|\bor\b)\s*", re.IGNORECASE)
RANGE = re.compile(r"(\d+) ?(?:-|to|through) ?(\d+)", re.IGNORECASE)
PART = re.compile(r"\d+[A-Z]?(?![a-z])|\d+|[^\W\d_]+")
ROMAN = re.compile(r"(?=[IVXL])(?:X[LC]|L?X{0,3})(?:IX|IV|V?I{0,3})")


class Mention(NamedTuple):
    """An identifier where it stands in a text."""

    shown: str
    """As it is written."""
    label: str
    """The identifier alone."""
    what: str
    """The sort of thing it names: "section", "usd", "g". Different sorts are never rivals."""
    forms: tuple[Form, ...]
    """What it can be compared as; of a range each member."""
    start: int
    end: int
    aside: bool = False


def even(text: str) -> str:
    """A text as mentions are looked for: one kind of space, quotation mark and dash, numbers in figures."""
    return figured(plain(text[:READ]))


@lru_cache(maxsize=1 << 11)
def mentions(lens: Lens, text: str) -> dict[str, tuple[Mention, ...]]:
    """Kind of identifier → its mentions in a text, in order; what one kind takes the next does not see.

    >>> from ragfault.judges.lens import load_lens
    >>> found = mentions(load_lens("legal"), "See Sec. 12(b) and Article IV.")
    >>> [(one.what, one.forms) for one in found["section"]]
    [('section', (('12', 'b'),)), ('article', (('4',),))]
    """
    text = even(text)
    taken: dict[str, tuple[Mention, ...]] = {}
    for kind in lens.identifiers:
        some = tuple(_found(kind, text))
        if some:
            taken[kind.name] = some
            for one in some:
                text = f"{text[: one.start]}{' ' * (one.end - one.start - 1)},{text[one.end :]}"
    return taken


def _found(kind: Kind, text: str) -> Iterator[Mention]:
    """The mentions of one kind."""
    read = READERS[kind.form]
    spelled = _spelled(kind)
    for match in found(kind.pattern or OWN.get(kind.form) or _any(kind), text):
        part = match.groupdict()
        shown, label = match.group().strip(), part.get("id") or match.group().strip()
        what = _thing(part.get("what") or "", spelled)
        before = match.string[max(0, match.start() - BEFORE) : match.start()]
        aside = bool(kind.aside) and compiled(rf"(?:{kind.aside})\s*\Z").search(before) is not None
        for place, one in enumerate((label, *_listed(part.get("more") or ""))):
            said = spelled.get(one.casefold(), one) if kind.form != "parts" else one
            name = shown if not place else f"{part.get('what') or ''} {one}".strip()
            for sort, forms in read(said):
                yield Mention(name, one, f"{what} {sort}".strip(), forms, match.start(), match.end(), aside)


@lru_cache(maxsize=256)
def _spelled(kind: Kind) -> dict[str, str]:
    """Spelling → the one spelling."""
    return {other.casefold(): one.casefold() for other, one in kind.spellings}


@lru_cache(maxsize=256)
def _any(kind: Kind) -> str:
    """The pattern of a kind that is found by its spellings; one in capitals is looked for in capitals."""
    each = sorted({other for other, _ in kind.spellings}, key=lambda text: (-len(text), text))
    said = (f"(?-i:{re.escape(one)})" if one.isupper() else re.escape(one) for one in each)
    return rf"(?<!\w)(?:{'|'.join(said)})(?!\w)"


def _thing(what: str, spelled: dict[str, str]) -> str:
    """The sort of thing that a mention names, in its one spelling."""
    word = what.casefold().strip(" .")
    return spelled.get(word) or spelled.get(word.removesuffix("s").rstrip(".")) or word


def _listed(more: str) -> list[str]:
    """The identifiers of a list."""
    return [part.strip() for part in LISTED.split(more) if part.strip()]


# --- forms -----------------------------------------------------------------------------------------

Read = list[tuple[str, tuple[Form, ...]]]


def _text(label: str) -> Read:
    return [("", ((" ".join(label.casefold().split()),),))]


def _code(label: str) -> Read:
    return [("", (("".join(filter(str.isalnum, label.casefold())),),))]


def _parts(label: str) -> Read:
    """Parts; a range holds each of its numbers."""
    ends = RANGE.fullmatch(label)
    forms = [_split(label)]
    if ends and 0 < int(ends[2]) - int(ends[1]) <= NUMBERED:
        forms += [(str(number),) for number in range(int(ends[1]), int(ends[2]) + 1)]
    return [("", tuple(forms))]


def _split(label: str) -> Form:
    """12(b)(2) → 12, b, 2; IV → 4."""
    if ROMAN.fullmatch(label.upper()) and (label.isupper() or len(label) > 1):
        return (str(_roman(label.upper())),)
    return tuple(part.lstrip("0").casefold() or "0" for part in PART.findall(label))


def _roman(label: str) -> int:
    """A Roman numeral in figures."""
    worth = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
    values = [worth[sign] for sign in label]
    return sum(-one if one < max(values[at:]) else one for at, one in enumerate(values))


def _name(label: str) -> Read:
    """A symbol by its full name and by its last part."""
    parts = tuple(part.casefold() for part in re.findall(r"\w+", label))
    return [("", (parts, parts[-1:]) if len(parts) > 1 else (parts,))] if parts else []


def _quantity(label: str) -> Read:
    return [(one.unit, ((f"{one.value:f}",),)) for one in measures(label)]


def _money(label: str) -> Read:
    finds: list[Find] = []
    quantities(label, finds)
    return [
        (unit, ((value,),)) for find in finds[:1] for value, _, unit in [find.form.partition(" ")] if unit
    ]


def _date(label: str) -> Read:
    """Year, quarter, month, day, as far as they are told."""
    turned = re.sub(r"^(\d{4}) ?(q[1-4])$", r"\2 \1", label, flags=re.IGNORECASE)
    period = PERIODS.fullmatch(turned)
    if period:
        part = period.groupdict()
        year = next((part[name] for name in ("year", "year2", "year3") if part[name]), ANY)
        year = f"20{year}" if len(year) == 2 else year
        quarter = next((part[name] for name in ("q", "q2", "q3") if part[name]), "")
        half = next((part[name] for name in ("h", "h2", "h3") if part[name]), "")
        if quarter:
            return [("", ((year, f"q{ORDINAL.get(quarter.lower(), quarter[0])}"),))]
        if half:
            last = 2 * int(ORDINAL.get(half.lower(), half[0]))
            return [("", ((year, f"q{last - 1}"), (year, f"q{last}")))]
        return [("", ((year,),))]
    finds: list[Find] = []
    quantities(label, finds)
    read = _day(finds[0].form) if finds else None
    return [("", (read,))] if read else []


def _day(form: str) -> Form | None:
    """2024-03-14, --03-14, 2024-03 or 2024, with the quarter between year and month."""
    told = re.fullmatch(r"(\d{4}|-)(?:-(\d\d))?(?:-(\d\d))?", form)
    if not told:
        return None
    year, month, day = told[1].replace("-", ANY), told[2], told[3]
    dated = (year, f"q{(int(month) + 2) // 3}", month) if month else (year,)
    return (*dated, day) if day else dated


READERS: dict[str, Callable[[str], Read]] = {
    "text": _text,
    "code": _code,
    "parts": _parts,
    "name": _name,
    "quantity": _quantity,
    "money": _money,
    "date": _date,
}
