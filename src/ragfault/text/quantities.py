"""Dates, times, amounts of money, percentages and measurements, in one normal form and in base units."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import reduce
from typing import NamedTuple

from ragfault.text.normalization import NUMERALS


class EntityMatch(NamedTuple):
    """A matched entity: its normal form, then the less specific forms that it implies."""

    form: str
    implied: tuple[str, ...] = ()

    @property
    def forms(self) -> tuple[str, ...]:
        """All forms, its own first."""
        return (self.form, *self.implied)


MONTH_TABLE = """
january jan|february feb|march mar|april apr|may|june jun|july jul|august aug|september sept sep
|october oct|november nov|december dec
"""
MONTHS = {name: f"{i:02d}" for i, names in enumerate(MONTH_TABLE.split("|"), 1) for name in names.split()}
MONTH = rf"(?P<month>{'|'.join(MONTHS)})\b\.?"
DAY = r"(?P<day>0?[1-9]|[1-9]\d)(?:st|nd|rd|th)?"
YEAR = r"(?P<year>1\d{3}|2\d{3})"
SCALE_EXPONENTS = {
    "hundred": 2, "thousand": 3, "k": 3, "million": 6, "mn": 6, "m": 6,
    "billion": 9, "bn": 9, "b": 9, "trillion": 12,
}  # fmt: skip
CURRENCY_TABLE = """
usd: $ us$ dollar | eur: € euro | gbp: £ | jpy: ¥ yen | inr: ₹ rupee | chf: franc | cent:
"""
UNIT_TABLE = """
kg: kilogram kilo kilogramme | g: gram gramme | mg: milligram | µg: μg ug mcg microgram | t: ton tonne
lb: lbs pound | oz: ounce | km: kilometer kilometre | m: meter metre | cm: centimeter centimetre
mm: millimeter millimetre | mi: mile | ft: foot feet | inch: inches | yd: yard | l: liter litre
ml: milliliter millilitre | gal: gallon | h: hr hour | min: minute | s: sec second | ms: millisecond
day: | week: wk | month: | year: yr | decade: | century: centuries | °c: celsius degree_celsius degree_c
°f: fahrenheit degree_fahrenheit degree_f
°: degree | kb: kilobyte | mb: megabyte | gb: gigabyte | tb: terabyte | w: watt | kw: kilowatt
mw: megawatt | kwh: | v: volt | hz: hertz | khz: | mhz: | ghz: | mph: mile_per_hour
km/h: kph kmh kilometer_per_hour kilometre_per_hour | kcal:
cal: calorie | acre: | ha: hectare | star: | %: percent percentage | ppm: | iu: | mmhg: | bpm: | rpm:
psi: | kpa: | mol: | mmol:
"""


def _parse_unit_table(text: str) -> dict[str, str]:
    """Parse lines of "unit: other spellings" into a map from spelling to unit.

    "_" stands for a space, behind a first word that may be a plural.
    """
    rows = (row.split(":") for row in re.split(r"[|\n]", text) if ":" in row)
    return {
        form: unit.strip()
        for unit, spellings in rows
        for spelling in (unit.strip(), *spellings.split())
        for form in (spelling.replace("_", " "), spelling.replace("_", "s ", 1).replace("_", " "))
    }


CURRENCIES = _parse_unit_table(CURRENCY_TABLE)
UNITS = _parse_unit_table(UNIT_TABLE)
TENS_WORDS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
ONES_WORDS = "one|two|three|four|five|six|seven|eight|nine"
SCALE_WORDS = "hundred|thousand|million|billion|trillion"
NUMBER_WORDS = (
    rf"\b(?:(?:{TENS_WORDS})[- ](?:{ONES_WORDS})"
    rf"|{'|'.join(sorted(NUMERALS.keys() - {'one'}, key=len, reverse=True))})\b"
    rf"|\b(?:one|an?)(?= (?:{SCALE_WORDS})\b)"
)
SPELLED_NUMBER = re.compile(NUMBER_WORDS, re.IGNORECASE)
SPELLED_NUMBER_LOWER = re.compile(NUMBER_WORDS)
"""The same pattern for lower-case text, which is faster."""
DIGIT = re.compile(r"\d")
NUMERAL = r"(?P<figure>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(?!\d)"
SCALED_NUMERAL = NUMERAL + rf"(?:[ -]?(?P<scale>(?:{SCALE_WORDS}|mn|bn|(?<=\d)[bkm](?![\w°²³/]))(?!\w)))?"
CURRENCY_SYMBOL = r"US\$|[$€£¥₹]|\b(?:USD|EUR|GBP|JPY|INR|CHF) ?"
CURRENCY_NAME = r"(?:US )?(?:dollar|euro|yen|rupee|franc|cent)s?|USD|EUR|GBP|JPY|INR|CHF|[€£]"
UNIT_PATTERN = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True) if unit != "%")
QUANTITY_SUFFIX = (
    rf"(?: ?(?P<percent>%|per ?cent\b|percentage points?\b)| ?(?P<coin>{CURRENCY_NAME})(?!\w)"
    rf"|[ -]?(?P<unit>(?:{UNIT_PATTERN})s?)(?!\w)|(?:st|nd|rd|th|\+)?(?!\w))"
)


def extract_quantities(text: str, matches: list[EntityMatch]) -> str:
    """Add the quantities of a text to the matches, and return the text with them blanked out.

    >>> finds: list[EntityMatch] = []
    >>> extract_quantities("At 5:30 p.m. two sold for £1.5m, 50 percent down", finds).split()
    ['At', ',', ',', 'sold', 'for', ',,', ',', 'down']
    >>> [find.form for find in finds]
    ['17:30', '1500000 gbp', '2', '50 %']
    """
    text = convert_number_words(text)
    lower = text.lower()
    if DIGIT.search(lower):
        for hint, pattern, make_match in EXTRACTORS:
            if hint.search(lower):
                text = blank_matches(pattern, make_match, text, matches)
    return text


def convert_number_words(text: str) -> str:
    """Replace the number words of a text by figures.

    >>> convert_number_words("twenty-five days in three harbours")
    '25 days in 3 harbours'
    """
    lower = text.lower()
    # its lower case may have other offsets
    if not text.isascii():
        return SPELLED_NUMBER.sub(_convert_number_word, text) if SPELLED_NUMBER_LOWER.search(lower) else text
    parts, end = [], 0
    for match in SPELLED_NUMBER_LOWER.finditer(lower):
        parts += [text[end : match.start()], _convert_number_word(match)]
        end = match.end()
    return "".join((*parts, text[end:]))


def blank_matches(
    pattern: re.Pattern[str],
    make_match: Callable[[re.Match[str]], EntityMatch | None],
    text: str,
    matches: list[EntityMatch],
) -> str:
    """Collect the matches of a pattern; a comma remains in their place so that names do not run together."""

    def blank(match: re.Match[str]) -> str:
        entity = make_match(match)
        if entity is None:
            return match.group()
        matches.append(entity)
        return " " * (len(match.group()) - 1) + ","

    return pattern.sub(blank, text)


def _match_date(match: re.Match[str]) -> EntityMatch | None:
    """Match the parts of a date such as 2024-03-14, 14 March 2024, March 14th or March 2024."""
    groups = match.groupdict()
    year, day = groups.get("year"), groups.get("day")
    month = groups["month"].lower()
    month = MONTHS.get(month, month.zfill(2))
    if not "01" <= month <= "12":
        return None
    if day is None:
        return EntityMatch(f"{year}-{month}", (str(year),))
    short = f"--{month}-{day.zfill(2)}"
    if year is None:
        return EntityMatch(short)
    return EntityMatch(f"{year}{short[1:]}", (f"{year}-{month}", str(year), short))


def _match_slashed_date(match: re.Match[str]) -> EntityMatch | None:
    """Match 03/14/2024 if only one reading is a date; otherwise keep its spelling."""
    first, second, year = int(match[1]), int(match[2]), match[3]
    if first > 12 >= second > 0:
        first, second = second, first
    if not (0 < first <= 12 and (second > 12 or first == second)):
        return EntityMatch(match.group(), (year,))
    return EntityMatch(f"{year}-{first:02d}-{second:02d}", (f"{year}-{first:02d}", year, f"--{first:02d}-{second:02d}"))


def _match_time(match: re.Match[str]) -> EntityMatch | None:
    """Match 17:30, 5:30 p.m. and 5pm on the 24-hour clock."""
    hour, minute, half = int(match["hour"]), int(match["minute"] or 0), (match["half"] or "").lower()[:1]
    if hour > 24 or minute > 59 or (half and not 0 < hour <= 12):
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return EntityMatch(f"{hour:02d}:{minute:02d}")


def _convert_number_word(match: re.Match[str]) -> str:
    return str(sum(int(NUMERALS.get(word, "1")) for word in re.split("[- ]", match.group().lower())))


def _match_quantity(match: re.Match[str]) -> EntityMatch | None:
    """Match a number with the unit, currency or scale around it."""
    groups = match.groupdict()
    value = Decimal(groups["figure"].replace(",", "")).scaleb(SCALE_EXPONENTS.get((groups["scale"] or "").lower(), 0))
    before = match.string[max(0, match.start() - 2) : match.start()]
    if before.endswith("-") and not (before[0].isalnum() or before[0] in ".)"):
        value = -value
    number = f"{value:f}".rstrip("0").rstrip(".") if "." in f"{value:f}" else f"{value:f}"
    unit = _identify_unit(groups)
    if unit == "lb" and "pound" in match.group():
        return EntityMatch(f"{number} lb", (f"{number} gbp", number))
    return EntityMatch(f"{number} {unit}", (number,)) if unit else EntityMatch(number)


def _identify_unit(groups: dict[str, str | None]) -> str | None:
    """Return the currency, percent sign or unit of a number; None if there is none known."""
    if groups.get("percent"):
        return "%"
    mark = (groups.get("mark") or groups.get("coin") or "").strip().lower().removeprefix("us ")
    if mark:
        return CURRENCIES.get(mark) or CURRENCIES[mark.removesuffix("s")]
    unit = (groups.get("unit") or "").lower()
    return UNITS.get(unit) or UNITS.get(unit.removesuffix("s"))


def _build_extractors() -> Iterable[tuple[str, str, Callable[[re.Match[str]], EntityMatch | None]]]:
    """Yield (quick test on the lower-case text, pattern, match function), the most specific first."""
    yield r"\d{4}-\d\d-\d", rf"\b{YEAR}-(?P<month>\d\d)-(?P<day>\d\d)(?!\d)", _match_date
    yield rf"\d(?:st|nd|rd|th)?(?: of)? {MONTH_HINT}", rf"\b{DAY}(?: of)? {MONTH}(?:,? {YEAR}\b)?", _match_date
    yield rf"{MONTH_HINT}[a-z]*\.? \d", rf"\b{MONTH} {DAY}\b(?![.,:]\d)(?:,? {YEAR}\b)?", _match_date
    yield rf"{MONTH_HINT}[a-z]*\.?,? (?:of )?\d{{4}}", rf"\b{MONTH},? (?:of )?{YEAR}\b", _match_date
    yield r"\d/\d", r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b", _match_slashed_date
    hours = r"\b(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2}))?(?::\d\d)? ?(?P<half>[ap]\.?m\b\.?)"
    yield r"\d ?[ap]\.?m", hours, _match_time
    yield r"\d:\d", r"\b(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?P<half>)(?![\d:])", _match_time
    yield "0s", r"\b(?P<decade>[12]\d\d0s)\b", lambda match: EntityMatch(match["decade"].lower())
    yield r"(?:[$€£¥₹]|usd|eur|gbp|jpy|inr|chf) ?\d", rf"(?P<mark>{CURRENCY_SYMBOL}){SCALED_NUMERAL}", _match_quantity
    yield r"\d", rf"(?<![\d.]){SCALED_NUMERAL}{QUANTITY_SUFFIX}", _match_quantity


MONTH_HINT = f"(?:{'|'.join(sorted({name[:3] for name in MONTHS}))})"
EXTRACTORS = tuple(
    (re.compile(hint), re.compile(pattern, re.IGNORECASE), make) for hint, pattern, make in _build_extractors()
)


ROMAN_NUMERAL = re.compile(r"(?=[IVXL])(?:X[LC]|L?X{0,3})(?:IX|IV|V?I{0,3})")
ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}


def parse_roman(text: str) -> int | None:
    """Return the value of a Roman numeral in capitals below 100, None of another text.

    >>> parse_roman("XIV"), parse_roman("IVX")
    (14, None)
    """
    if not ROMAN_NUMERAL.fullmatch(text):
        return None
    values = [ROMAN_VALUES[letter] for letter in text]
    return sum(-value if value < max(values[place:]) else value for place, value in enumerate(values))


class PhysicalQuantity(NamedTuple):
    """A quantity in base units."""

    unit: str
    """The base unit: "g" for all masses, "g/l" for all masses in a volume."""
    value: Decimal


BASE_UNITS: dict[str, tuple[str, str]] = {
    "kg": ("g", "1000"), "mg": ("g", "0.001"), "µg": ("g", "0.000001"), "ng": ("g", "0.000000001"),
    "t": ("g", "1000000"), "lb": ("g", "453.59237"), "oz": ("g", "28.349523125"),
    "ml": ("l", "0.001"), "dl": ("l", "0.1"), "cl": ("l", "0.01"), "µl": ("l", "0.000001"), "cc": ("l", "0.001"),
    "km": ("m", "1000"), "cm": ("m", "0.01"), "mm": ("m", "0.001"), "mi": ("m", "1609.344"),
    "ft": ("m", "0.3048"), "inch": ("m", "0.0254"), "yd": ("m", "0.9144"),
    "ms": ("s", "0.001"), "min": ("s", "60"), "h": ("s", "3600"), "day": ("s", "86400"), "week": ("s", "604800"),
    "year": ("month", "12"), "decade": ("month", "120"), "century": ("month", "1200"),
    "mmol": ("mol", "0.001"), "µmol": ("mol", "0.000001"), "nmol": ("mol", "0.000000001"),
    "kb": ("byte", "1000"), "mb": ("byte", "1000000"), "gb": ("byte", "1000000000"),
    "tb": ("byte", "1000000000000"), "khz": ("hz", "1000"), "mhz": ("hz", "1000000"), "ghz": ("hz", "1000000000"),
    "mph": ("km/h", "1.609344"), "kcal": ("cal", "1000"), "kpa": ("pa", "1000"), "bp": ("%", "0.01"),
}  # fmt: skip
"""Unit → base unit and conversion factor; other units are their own base."""
UNIT_SPELLINGS = {
    "unit": "iu", "ug": "µg", "μmol": "µmol", "umol": "µmol", "μl": "µl", "ul": "µl", "d": "day", "c": "°c", "f": "°f",
    "bps": "bp", "basis point": "bp", "percentage point": "%", "per cent": "%", "nanogram": "ng", "deciliter": "dl",
    "decilitre": "dl", "millimole": "mmol", "degree c": "°c", "degree f": "°f", "degree celsius": "°c",
    "degree fahrenheit": "°f", "degrees c": "°c", "degrees f": "°f", "degrees celsius": "°c",
    "degrees fahrenheit": "°f",
}  # fmt: skip
"""Spellings that are only accepted in `parse_quantities`."""
NUMBER_PATTERN = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.?\d+"
QUANTITY_PATTERN = re.compile(
    rf"(?P<figure>{NUMBER_PATTERN})(?: ?(?:-|to|or|and) ?(?P<last>{NUMBER_PATTERN}))?"
    rf"(?:[ -]?(?P<scale>{SCALE_WORDS})\b)?[ -]?(?P<units>[^\d\s].*)?",
    re.IGNORECASE,
)
UNIT_SEPARATOR = re.compile(r" ?/ ?| per ", re.IGNORECASE)
SIGNIFICANT_DIGITS = 12
"""Number of digits to which quantities are compared."""


def parse_quantities(text: str) -> tuple[PhysicalQuantity, ...]:
    """Parse a number with a unit into base units; a range gives its two ends, other texts nothing.

    An unknown unit is its own base; a bare number has the unit "".

    >>> parse_quantities("500 mg") == parse_quantities("0.5 g"), parse_quantities("10 mg") == parse_quantities("10 mcg")
    (True, False)
    >>> parse_quantities("2.5-5 mg/kg")
    (PhysicalQuantity(unit='g/g', value=Decimal('0.0000025')), PhysicalQuantity(unit='g/g', value=Decimal('0.000005')))
    """
    match = QUANTITY_PATTERN.fullmatch(text.strip())
    if not match:
        return ()
    bases = [_convert_to_base(unit) for unit in UNIT_SEPARATOR.split((match["units"] or "").strip(" ."))]
    factor = reduce(lambda left, right: left / right, (size for _, size in bases))
    factor = factor.scaleb(SCALE_EXPONENTS.get((match["scale"] or "").lower(), 0))
    unit = "/".join(name for name, _ in bases)
    figures = (match[name].replace(",", "") for name in ("figure", "last") if match[name])
    return tuple(PhysicalQuantity(unit, _normalize_decimal(Decimal(figure) * factor)) for figure in figures)


def _convert_to_base(unit: str) -> tuple[str, Decimal]:
    """Return the base unit of a unit and the conversion factor."""
    unit = unit.lower().strip()
    for spelling in (unit, unit.removesuffix("s")):
        name = UNIT_SPELLINGS.get(spelling) or UNITS.get(spelling)
        if name or spelling in BASE_UNITS:
            base, size = BASE_UNITS.get(name or spelling, (name or spelling, "1"))
            return base, Decimal(size)
    return unit.removesuffix("s"), Decimal(1)


def _normalize_decimal(value: Decimal) -> Decimal:
    text = f"{Decimal(f'{value:.{SIGNIFICANT_DIGITS}g}'):f}"
    return Decimal(text.rstrip("0").rstrip(".") if "." in text else text)
