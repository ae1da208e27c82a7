"""Dates, times, amounts of money, percentages and measurements, in one normal form and in base units."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import reduce
from typing import NamedTuple

from ragfault.text.normalization import NUMERALS


class EntityMatch(NamedTuple):
    """A matched entity: its normal form, the forms that may be the same, and the less specific ones that it implies."""

    form: str
    implied: tuple[str, ...] = ()
    readings: tuple[str, ...] = ()
    """Forms that share a name with it: of "12 pounds" £12 and 12 lb, of £12 "12 pounds"."""

    @property
    def forms(self) -> tuple[str, ...]:
        """All forms, its own first."""
        return (self.form, *self.readings, *self.implied)


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
usd: $ us$ dollar us_dollar | eur: € euro | gbp: £ pound_sterling british_pound | jpy: ¥ yen | inr: ₹ rs rupee
chf: franc swiss_franc | aud: a$ au$ australian_dollar | cad: c$ ca$ canadian_dollar
nzd: nz$ new_zealand_dollar | nok: norwegian_krone norwegian_kroner | dkk: danish_krone danish_kroner
sek: swedish_krona swedish_kronor | cny: yuan | krone: kr kroner krona kronor | cent: ¢ | pence: p penny pennies
"""
MINOR_UNITS = {"pence": "gbp"}
"""Hundredths that only one currency has; those of several are in `SHARED_NAMES`."""
SHARED_NAMES = {
    "pound": {"gbp": "1", "lb": "1"}, "cent": {"usd": "0.01", "eur": "0.01", "aud": "0.01", "cad": "0.01"},
    "krone": {"nok": "1", "sek": "1", "dkk": "1"},
}  # fmt: skip
"""Name that several units have → those units, and how many of each it is: which is meant, the name does not tell."""
UNIT_TABLE = """
kg: kilogram kilo kilogramme | g: gram gramme | mg: milligram | µg: μg ug mcg microgram | t: ton tonne
lb: lbs | pound: | oz: ounce | km: kilometer kilometre | m: meter metre | cm: centimeter centimetre
mm: millimeter millimetre | mi: mile | ft: foot feet | inch: inches | yd: yard | l: liter litre
ml: milliliter millilitre | gal: gallon | h: hr hour | min: minute | s: sec second | ms: millisecond
day: | week: wk | month: | year: yr | decade: | century: centuries | °c: celsius degree_celsius degree_c
°f: fahrenheit degree_fahrenheit degree_f
°: degree | kb: kilobyte | mb: megabyte | gb: gigabyte | tb: terabyte | w: watt | kw: kilowatt
mw: megawatt | kwh: | v: volt | hz: hertz | khz: | mhz: | ghz: | mph: mile_per_hour
km/h: kph kmh kilometer_per_hour kilometre_per_hour | kcal:
cal: calorie | acre: | ha: hectare | star: | %: percent percentage | ppm: | iu: | mmhg: | bpm: | rpm:
psi: | kpa: | mol: | mmol: | m2: sqm sq_m square_meter square_metre | km2: sq_km square_kilometer square_kilometre
ft2: sq_ft square_foot square_feet | m3: cubic_meter cubic_metre
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
    r"|\bone(?= (?:pound|dollar|euro|penny|cent)\b)"
)
HALF_DAY = "o'clock"
"""Stands after a time of which the half of the day is not told."""
NOON = re.compile(r"\b(?:noon|midday|midnight)\b")
COMPOUND = re.compile(
    r"\b(\d{1,3}) (hundred|thousand)(?:,? and|,)? (\d{1,3})\b(?! (?:hundred|thousand|per ?cent)|[.,:/]?\d|%)",
    re.IGNORECASE,
)
SPELLED_NUMBER = re.compile(NUMBER_WORDS, re.IGNORECASE)
SPELLED_NUMBER_LOWER = re.compile(NUMBER_WORDS)
"""The same pattern for lower-case text, which is faster."""
DIGIT = re.compile(r"\d")
NUMERAL = r"(?P<figure>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?: \d{3})+(?![ ,]?\d)|\d+(?:\.\d+)?)(?!\.?\d)"
DECIMAL_COMMA = r"(?P<figure>\d{1,3}(?:[. ]\d{3})*,\d\d)(?!\d)"
"""A number with a decimal comma, read only in amounts of money: elsewhere a comma separates numbers."""
SCALED_NUMERAL = NUMERAL + rf"(?:[ -]?(?P<scale>(?:{SCALE_WORDS}|mn|bn|(?<=\d)[bkm](?![\w°²³/]))(?!\w)))?"
_CURRENCY_SIGNS = "|".join(
    re.escape(sign) for sign in sorted(CURRENCIES, key=len, reverse=True) if not sign[-1].isalpha()
)
_CURRENCY_CODES = "|".join(sorted({unit for unit in CURRENCIES.values() if len(unit) == 3}))
_CURRENCY_WORDS = "|".join(
    sorted((name for name in CURRENCIES if len(name) > 1 and name[-1].isalpha()), key=len, reverse=True)
)
CURRENCY_SYMBOL = rf"(?<!\w)(?:{_CURRENCY_SIGNS}) ?|\b(?:{_CURRENCY_CODES}|kr|rs)\.? ?"
CURRENCY_NAME = rf"(?:{_CURRENCY_WORDS})s?|[$€£¥₹¢]"
UNIT_PATTERN = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True) if unit != "%")
QUANTITY_SUFFIX = (
    rf"(?: ?(?P<percent>%|per ?cent\b|pct\b|percentage points?\b)| ?(?P<coin>{CURRENCY_NAME})(?!\w)"
    r"|(?P<penny>p)(?![\w.]\w|\w)"
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
    if DIGIT.search(lower) or NOON.search(lower):
        for hint, pattern, make_match in EXTRACTORS:
            if hint.search(lower):
                text = blank_matches(pattern, make_match, text, matches)
    return text


def convert_number_words(text: str) -> str:
    """Replace the number words of a text by figures.

    >>> convert_number_words("twenty-five days in three harbours")
    '25 days in 3 harbours'
    """
    text = _convert_single_words(text)
    if "hundred" in text or "thousand" in text:
        # two hundred and five thousand: first the part within the other
        for _ in range(2):
            text = COMPOUND.sub(_join_compound, text)
    return text


def _join_compound(match: re.Match[str]) -> str:
    size = 10 ** SCALE_EXPONENTS[match[2].lower()]
    rest = int(match[3])
    return str(int(match[1]) * size + rest) if rest < size else match[0]


def _convert_single_words(text: str) -> str:
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
    return _build_time(hour, minute)


def _convert_number_word(match: re.Match[str]) -> str:
    return str(sum(int(NUMERALS.get(word, "1")) for word in re.split("[- ]", match.group().lower())))


def _match_quantity(match: re.Match[str]) -> EntityMatch | None:
    """Match a number with the unit, currency or scale around it."""
    groups = match.groupdict()
    scale = SCALE_EXPONENTS.get((groups.get("scale") or "").lower(), 0)
    value = _parse_figure(groups["figure"]).scaleb(scale)
    before = match.string[max(0, match.start() - 2) : match.start()]
    if before.endswith("-") and not (before[0].isalnum() or before[0] in ".)"):
        value = -value
    return _build_amount(value, _identify_unit(groups))


def _parse_figure(figure: str) -> Decimal:
    """Parse a number whose thousands may be grouped, and whose decimals may stand after a comma."""
    if figure[-3:-2] == "," and figure[-2:].isdigit():
        figure = f"{figure[:-3].replace('.', '')}.{figure[-2:]}"
    return Decimal(figure.replace(",", "").replace(" ", ""))


def _build_amount(value: Decimal, unit: str | None) -> EntityMatch:
    """Return the amount in its normal form: of money in the major unit of its currency."""
    number = _format_decimal(value)
    if not unit:
        return EntityMatch(number)
    if unit in MINOR_UNITS:
        value, unit = value.scaleb(-2), MINOR_UNITS[unit]
    shared = [(name, 1 / Decimal(units[unit])) for name, units in SHARED_NAMES.items() if unit in units]
    meant = [*((name, Decimal(size)) for name, size in SHARED_NAMES.get(unit, {}).items()), *shared]
    readings = tuple(f"{_format_decimal(value * size)} {name}" for name, size in meant)
    return EntityMatch(f"{_format_decimal(value)} {unit}", (number,), readings)


def _format_decimal(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _match_sum(match: re.Match[str]) -> EntityMatch | None:
    """Match an amount in two units of a currency, such as 12 pounds 50 pence."""
    groups = match.groupdict()
    unit = _identify_unit(groups) or ""
    value = _parse_figure(groups["figure"]) + _parse_figure(groups["minor"]).scaleb(-2)
    return _build_amount(value, "gbp" if unit == "pound" and groups["small"].lower().startswith("p") else unit)


def _match_spoken_time(match: re.Match[str]) -> EntityMatch | None:
    """Match half past two and 3 o'clock, of which only a word such as p.m. tells the half of the day."""
    part, hour = (match["part"] or "0").lower(), int(match["hour"])
    minute = {"half": 30, "quarter": 15}.get(part) or int(part)
    if (match["side"] or "").lower() == "to":
        hour, minute = (hour - 2) % 12 + 1, 60 - minute
    if not 0 < hour <= 12 or minute > 59:
        return None
    half = (match["half"] or "").lower()[:1]
    if half:
        return _build_time(hour % 12 + (12 if half == "p" else 0), minute)
    readings = (f"{hour % 12:02d}:{minute:02d}", f"{hour % 12 + 12:02d}:{minute:02d}")
    return EntityMatch(f"{hour % 12:02d}:{minute:02d} {HALF_DAY}", (str(hour),), readings)


def _match_noon(match: re.Match[str]) -> EntityMatch:
    return _build_time(0 if match["hour"].lower() == "midnight" else 12, 0)


def _build_time(hour: int, minute: int) -> EntityMatch:
    """Return a time on the 24-hour clock, which may be told without the half of the day."""
    return EntityMatch(f"{hour:02d}:{minute:02d}", readings=(f"{hour % 12:02d}:{minute:02d} {HALF_DAY}",))


def _match_fraction(match: re.Match[str]) -> EntityMatch | None:
    return EntityMatch(f"{int(match[1])}/{int(match[2])}", (match[1], match[2]))


def _identify_unit(groups: dict[str, str | None]) -> str | None:
    """Return the currency, percent sign or unit of a number; None if there is none known."""
    if groups.get("percent"):
        return "%"
    mark = (groups.get("mark") or groups.get("coin") or "").strip(" .").lower()
    if mark:
        name = mark.removesuffix("s")
        return CURRENCIES.get(mark) or CURRENCIES.get(name, name)
    if groups.get("penny"):
        return "pence"
    unit = (groups.get("unit") or "").lower()
    return UNITS.get(unit) or UNITS.get(unit.removesuffix("s"))


def _build_extractors() -> Iterable[tuple[str, str, Callable[[re.Match[str]], EntityMatch | None]]]:
    """Yield (quick test on the lower-case text, pattern, match function), the most specific first."""
    yield r"\d{4}-\d\d-\d", rf"\b{YEAR}-(?P<month>\d\d)-(?P<day>\d\d)(?!\d)", _match_date
    yield rf"\d(?:st|nd|rd|th)?(?: of)? {MONTH_HINT}", rf"\b{DAY}(?: of)? {MONTH}(?:,? {YEAR}\b)?", _match_date
    yield rf"{MONTH_HINT}[a-z]*\.? \d", rf"\b{MONTH} {DAY}\b(?![.,:]\d)(?:,? {YEAR}\b)?", _match_date
    yield rf"{MONTH_HINT}[a-z]*\.?,? (?:of )?\d{{4}}", rf"\b{MONTH},? (?:of )?{YEAR}\b", _match_date
    yield r"\d/\d", r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b", _match_slashed_date
    yield r"\d/\d", r"(?<![\d/.])(\d{1,2})/(\d{1,2})(?![\d/]|\.\d)", _match_fraction
    spoken = r"(?:(?P<part>half|quarter|\d{1,2}) (?:minutes )?(?P<side>past|(?<=quarter )to) )?(?P<hour>\d{1,2})\b"
    spoken += r"(?(side)|(?= ?o'clock))(?: o'clock)?(?: ?(?P<half>[ap]\.?m\b\.?))?"
    yield r"past \d|quarter to \d|\d o'clock", rf"\b{spoken}", _match_spoken_time
    hours = r"\b(?P<hour>\d{1,2})(?:[:.](?P<minute>\d{1,2}))?(?::\d\d)? ?(?P<half>[ap]\.?m\b\.?)"
    yield r"\d ?[ap]\.?m", hours, _match_time
    yield r"\d:\d", r"\b(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?P<half>)(?![\d:])", _match_time
    yield "noon|mid", r"\b(?:12 )?(?P<hour>noon|midday|midnight)\b", _match_noon
    yield "0s", r"\b(?P<decade>[12]\d\d0s)\b", lambda match: EntityMatch(match["decade"].lower())
    coin = rf"(?P<coin>{CURRENCY_NAME}|pounds?)(?!\w)"
    pence = r"(?:,? and)? (?P<minor>\d\d?) ?(?P<small>pence|p|cents?)(?!\w)"
    yield r"\d ?(?:pence|p\b|cent)", rf"(?<![\d.]){NUMERAL} ?{coin}{pence}", _match_sum
    yield r"\d,\d\d(?!\d)", rf"(?<![\d.,]){DECIMAL_COMMA} ?{coin}", _match_quantity
    yield r"\d,\d\d(?!\d)", rf"(?P<mark>{CURRENCY_SYMBOL}){DECIMAL_COMMA}", _match_quantity
    yield (
        rf"(?:[$€£¥₹]|{_CURRENCY_CODES}|kr|rs)\.? ?\d",
        rf"(?P<mark>{CURRENCY_SYMBOL}){SCALED_NUMERAL}",
        _match_quantity,
    )
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
    "degrees fahrenheit": "°f", "pound": "lb",
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
