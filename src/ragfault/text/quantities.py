"""Quantities: dates, times, amounts of money, percentages, measures and bare numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import NamedTuple

from ragfault.text.words import NUMERALS

__all__ = ["Find", "figured", "quantities"]


class Find(NamedTuple):
    """One item: its own form first, then the lesser forms that it implies."""

    form: str
    implied: tuple[str, ...] = ()

    @property
    def forms(self) -> tuple[str, ...]:
        """All forms, its own first."""
        return (self.form, *self.implied)


CALENDAR = """
january jan|february feb|march mar|april apr|may|june jun|july jul|august aug|september sept sep
|october oct|november nov|december dec
"""
MONTHS = {
    name: f"{place:02d}" for place, names in enumerate(CALENDAR.split("|"), 1) for name in names.split()
}
MONTH = rf"(?P<month>{'|'.join(MONTHS)})\b\.?"
DAY = r"(?P<day>0?[1-9]|[1-9]\d)(?:st|nd|rd|th)?"
YEAR = r"(?P<year>1\d{3}|2\d{3})"
SCALE = {
    "hundred": 2, "thousand": 3, "k": 3, "million": 6, "mn": 6, "m": 6,
    "billion": 9, "bn": 9, "b": 9, "trillion": 12,
}  # fmt: skip
COIN_TABLE = """
usd: $ us$ dollar | eur: € euro | gbp: £ | jpy: ¥ yen | inr: ₹ rupee | chf: franc | cent:
"""
UNIT_TABLE = """
kg: kilogram kilo kilogramme | g: gram gramme | mg: milligram | µg: μg ug mcg microgram | t: ton tonne
lb: lbs pound | oz: ounce | km: kilometer kilometre | m: meter metre | cm: centimeter centimetre
mm: millimeter millimetre | mi: mile | ft: foot feet | inch: inches | yd: yard | l: liter litre
ml: milliliter millilitre | gal: gallon | h: hr hour | min: minute | s: sec second | ms: millisecond
day: | week: wk | month: | year: yr | decade: | century: centuries | °c: celsius | °f: fahrenheit
°: degree | kb: kilobyte | mb: megabyte | gb: gigabyte | tb: terabyte | w: watt | kw: kilowatt
mw: megawatt | kwh: | v: volt | hz: hertz | khz: | mhz: | ghz: | mph: | km/h: kph kmh | kcal:
cal: calorie | acre: | ha: hectare | star: | %: percent percentage | ppm: | iu: | mmhg: | bpm: | rpm:
psi: | kpa: | mol: | mmol:
"""


def _table(text: str) -> dict[str, str]:
    """Spelling → unit, from lines of "unit: other spellings"."""
    rows = (row.split(":") for row in re.split(r"[|\n]", text) if ":" in row)
    return {spelling: unit.strip() for unit, others in rows for spelling in (unit.strip(), *others.split())}


MONEY = _table(COIN_TABLE)
UNITS = _table(UNIT_TABLE)
TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
ONES = "one|two|three|four|five|six|seven|eight|nine"
BIG = "hundred|thousand|million|billion|trillion"
NUMBERS = (
    rf"\b(?:(?:{TENS})[- ](?:{ONES})|{'|'.join(sorted(NUMERALS.keys() - {'one'}, key=len, reverse=True))})\b"
    rf"|\b(?:one|an?)(?= (?:{BIG})\b)"
)
SPELLED = re.compile(NUMBERS, re.IGNORECASE)
PLAIN = re.compile(NUMBERS)
"""The same in lower case, where it is found sooner."""
DIGIT = re.compile(r"\d")
FIGURE = r"(?P<figure>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(?!\d)"
SCALED = FIGURE + rf"(?:[ -]?(?P<scale>(?:{BIG}|mn|bn|(?<=\d)[bkm](?![\w°²³/]))(?!\w)))?"
CURRENCY = r"US\$|[$€£¥₹]|\b(?:USD|EUR|GBP|JPY|INR|CHF) ?"
COINS = r"(?:US )?(?:dollar|euro|yen|rupee|franc|cent)s?|USD|EUR|GBP|JPY|INR|CHF|[€£]"
SPELLINGS = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True) if unit != "%")
TAILS = (
    rf"(?: ?(?P<percent>%|per ?cent\b|percentage points?\b)| ?(?P<coin>{COINS})(?!\w)"
    rf"|[ -]?(?P<unit>(?:{SPELLINGS})s?)(?!\w)|(?:st|nd|rd|th|\+)?(?!\w))"
)


def quantities(text: str, finds: list[Find]) -> str:
    """Add the quantities of a text to the finds, and return the text with them blanked out.

    >>> finds: list[Find] = []
    >>> quantities("At 5:30 p.m. two sold for £1.5m, 50 percent down", finds).split()
    ['At', ',', ',', 'sold', 'for', ',,', ',', 'down']
    >>> [find.form for find in finds]
    ['17:30', '1500000 gbp', '2', '50 %']
    """
    text = figured(text)
    low = text.lower()
    if DIGIT.search(low):
        for hint, pattern, make in READERS:
            if hint.search(low):
                text = _blank(pattern, make, text, finds)
    return text


def figured(text: str) -> str:
    """A text with its numbers in figures.

    >>> figured("twenty-five days in three harbours")
    '25 days in 3 harbours'
    """
    return SPELLED.sub(_figures, text) if PLAIN.search(text.lower()) else text


def _blank(
    pattern: re.Pattern[str], make: Callable[[re.Match[str]], Find | None], text: str, finds: list[Find]
) -> str:
    """Collect what one pattern finds; a comma stays in its place so that names do not run together."""

    def blank(match: re.Match[str]) -> str:
        find = make(match)
        if find is None:
            return match.group()
        finds.append(find)
        return " " * (len(match.group()) - 1) + ","

    return pattern.sub(blank, text)


def _iso(match: re.Match[str]) -> Find | None:
    """2024-03-14, 14 March 2024, March 14th, March 2024: whatever parts are there."""
    part = match.groupdict()
    year, day = part.get("year"), part.get("day")
    month = part["month"].lower()
    month = MONTHS.get(month, month.zfill(2))
    if not "01" <= month <= "12":
        return None
    if day is None:
        return Find(f"{year}-{month}", (str(year),))
    short = f"--{month}-{day.zfill(2)}"
    if year is None:
        return Find(short)
    return Find(f"{year}{short[1:]}", (f"{year}-{month}", str(year), short))


def _slashed(match: re.Match[str]) -> Find | None:
    """03/14/2024 where only one reading is a date; otherwise as it stands."""
    first, second, year = int(match[1]), int(match[2]), match[3]
    if first > 12 >= second > 0:
        first, second = second, first
    if not (0 < first <= 12 and (second > 12 or first == second)):
        return Find(match.group(), (year,))
    return Find(
        f"{year}-{first:02d}-{second:02d}", (f"{year}-{first:02d}", year, f"--{first:02d}-{second:02d}")
    )


def _time(match: re.Match[str]) -> Find | None:
    """17:30, 5:30 p.m. and 5pm on the clock of 24 hours."""
    hour, minute, half = int(match["hour"]), int(match["minute"] or 0), (match["half"] or "").lower()[:1]
    if hour > 24 or minute > 59 or (half and not 0 < hour <= 12):
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return Find(f"{hour:02d}:{minute:02d}")


def _figures(match: re.Match[str]) -> str:
    """A number in words, in figures."""
    return str(sum(int(NUMERALS.get(word, "1")) for word in re.split("[- ]", match.group().lower())))


def _quantity(match: re.Match[str]) -> Find | None:
    """A number with whatever stands around it that says what is counted."""
    part = match.groupdict()
    value = Decimal(part["figure"].replace(",", "")).scaleb(SCALE.get((part["scale"] or "").lower(), 0))
    before = match.string[max(0, match.start() - 2) : match.start()]
    if before.endswith("-") and not (before[0].isalnum() or before[0] in ".)"):
        value = -value
    number = f"{value:f}".rstrip("0").rstrip(".") if "." in f"{value:f}" else f"{value:f}"
    of = _of(part)
    if of == "lb" and "pound" in match.group():
        return Find(f"{number} lb", (f"{number} gbp", number))
    return Find(f"{number} {of}", (number,)) if of else Find(number)


def _of(part: dict[str, str | None]) -> str | None:
    """What is counted: a currency, a percentage, a unit, or nothing that is known."""
    if part.get("percent"):
        return "%"
    mark = (part.get("mark") or part.get("coin") or "").strip().lower().removeprefix("us ")
    if mark:
        return MONEY.get(mark) or MONEY[mark.removesuffix("s")]
    unit = (part.get("unit") or "").lower()
    return UNITS.get(unit) or UNITS.get(unit.removesuffix("s"))


def _readers() -> Iterable[tuple[str, str, Callable[[re.Match[str]], Find | None]]]:
    """The patterns, the most telling first, each after what a text in lower case holds if it is in it at all."""
    yield r"\d-\d", rf"\b{YEAR}-(?P<month>\d\d)-(?P<day>\d\d)(?!\d)", _iso
    yield NAMED, rf"\b{DAY}(?: of)? {MONTH}(?:,? {YEAR}\b)?", _iso
    yield NAMED, rf"\b{MONTH} {DAY}\b(?![.,:]\d)(?:,? {YEAR}\b)?", _iso
    yield NAMED, rf"\b{MONTH},? (?:of )?{YEAR}\b", _iso
    yield r"\d/\d", r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b", _slashed
    hours = r"\b(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2}))?(?::\d\d)? ?(?P<half>[ap]\.?m\b\.?)"
    yield r"\d ?[ap]\.?m", hours, _time
    yield r"\d:\d", r"\b(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?P<half>)(?![\d:])", _time
    yield "0s", r"\b(?P<decade>[12]\d\d0s)\b", lambda match: Find(match["decade"].lower())
    yield r"[$€£¥₹]|usd|eur|gbp|jpy|inr|chf", rf"(?P<mark>{CURRENCY}){SCALED}", _quantity
    yield r"\d", rf"(?<![\d.]){SCALED}{TAILS}", _quantity


NAMED = "|".join(sorted({name[:3] for name in MONTHS}))
READERS = tuple(
    (re.compile(hint), re.compile(pattern, re.IGNORECASE), make) for hint, pattern, make in _readers()
)
