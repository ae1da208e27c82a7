"""Mentions of identifiers in a text, each in the normal form in which it is compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from ragfault.judges.domain.profile import DomainProfile, IdentifierKind, find_matches, iterate_matches
from ragfault.text.normalization import normalize_typography
from ragfault.text.quantities import (
    CURRENCY_NAME,
    CURRENCY_SYMBOL,
    MONTHS,
    SCALE_WORDS,
    EntityMatch,
    convert_number_words,
    extract_quantities,
    parse_quantities,
    parse_roman,
)

NormalForm = tuple[str, ...]
MAX_SEARCHED_CHARS = 50_000
"""Further characters of a text are not searched."""
CONTEXT_CHARS = 40
"""This many characters before an identifier decide whether it is a mere reference."""
WILDCARD = "*"
"""An open part of a form: the year of 14 March."""
MAX_RANGE_SIZE = 100
"""A range of at most this many numbers has each of them."""

SCALE_PATTERN = rf"(?:[ -]?(?:{SCALE_WORDS}|mn|bn|[bkm](?![\w/])))?"
NUMBER_PATTERN = r"\d[\d,]*+(?:\.\d+)?"
MONEY_PATTERN = rf"(?:{CURRENCY_SYMBOL}){NUMBER_PATTERN}{SCALE_PATTERN}(?!\w)"
MONEY_PATTERN += rf"|(?<![\d.,]){NUMBER_PATTERN}{SCALE_PATTERN} ?(?:{CURRENCY_NAME})(?!\w)"
MONTH_PATTERN = "|".join("(?-i:May|MAY)" if name == "may" else name for name in MONTHS)
ORDINALS = {"first": "1", "second": "2", "third": "3", "fourth": "4"}
YEAR_PATTERN = r"(?:,? ?(?:of |in )?(?:the )?(?:fiscal (?:year )?|financial year |fy ?)?"
YEAR_PATTERN += r"'?(?P<year>(?:19|20)\d\d|\d\d(?!\w)))"
QUARTER_PATTERN = r"\b(?:q(?P<q>[1-4])|(?P<q2>[1-4])q|(?P<q3>first|second|third|fourth|[1-4](?:st|nd|rd|th))"
QUARTER_PATTERN += rf" (?:fiscal )?quarter){YEAR_PATTERN}?+(?!\w)"
HALF_PATTERN = rf"\b(?:h(?P<h>[12])|(?P<h2>[12])h|(?P<h3>first|second|1st|2nd) half){YEAR_PATTERN}(?!\w)"
FISCAL_PATTERN = r"\b(?:fy|fiscal(?: year)?|financial year) ?'?(?P<year>(?:19|20)\d\d|\d\d)(?!\w)"
PERIOD_PATTERN = re.compile(
    rf"{QUARTER_PATTERN}|{HALF_PATTERN.replace('<year>', '<year2>')}|{FISCAL_PATTERN.replace('<year>', '<year3>')}",
    re.IGNORECASE,
)
DAY_PATTERN = (
    rf"\b(?:19|20)\d\d-\d\d-\d\d(?!\d)|\b\d{{1,2}}(?:st|nd|rd|th)?(?: of)?"
    rf" (?:{MONTH_PATTERN})\b\.?(?:,? (?:19|20)\d\d\b)?"
    rf"|\b(?:{MONTH_PATTERN})\b\.? \d{{1,2}}(?:st|nd|rd|th)?\b(?![.,:]\d)(?:,? (?:19|20)\d\d\b)?"
    rf"|\b(?:{MONTH_PATTERN})\b\.?,? (?:of )?(?:19|20)\d\d\b|\b\d{{1,2}}/\d{{1,2}}/(?:19|20)\d\d\b"
)
LONE_YEAR_PATTERN = r"(?<![\w$€£¥₹#.,/-])(?:19|20)\d\d(?!\w|[.,]\d|[-/]\d|%| %)"
GROUP_NAME = re.compile(r"\?P<\w+>")
DATE_PATTERN = f"(?:19|20)\\d\\d ?q[1-4](?!\\w)|{GROUP_NAME.sub('?:', PERIOD_PATTERN.pattern)}"
DATE_PATTERN += f"|{DAY_PATTERN}|{LONE_YEAR_PATTERN}"
FORM_PATTERNS = {"money": MONEY_PATTERN, "date": DATE_PATTERN}
"""Forms with a pattern of their own."""
LIST_SEPARATOR = re.compile(r"\s*(?:,|;|&|\band\b|\bor\b)\s*", re.IGNORECASE)
NUMBER_RANGE = re.compile(r"(\d+) ?(?:-|to|through) ?(\d+)", re.IGNORECASE)
LABEL_PART = re.compile(r"\d+[A-Z]?(?![a-z])|\d+|[^\W\d_]+")


class Mention(NamedTuple):
    """An identifier at its place in a text."""

    written: str
    """The mention as written."""
    label: str
    """The identifier alone."""
    category: str
    """The category of the thing it names: "section", "usd", "g". Different categories are never rivals."""
    forms: tuple[NormalForm, ...]
    """The forms it is compared in; of a range each member."""
    start: int
    end: int
    is_reference: bool = False


def prepare_text(text: str) -> str:
    """Normalize a text for the search: one kind of space, quotation mark and dash, numbers in figures."""
    return convert_number_words(normalize_typography(text[:MAX_SEARCHED_CHARS]))


@lru_cache(maxsize=1 << 11)
def extract_mentions(profile: DomainProfile, text: str) -> dict[str, tuple[Mention, ...]]:
    """Return kind of identifier → its mentions in a text, in order; each span belongs to the first kind that matches.

    >>> from ragfault.judges.domain.profile import load_profile
    >>> mentions = extract_mentions(load_profile("legal"), "See Sec. 12(b) and Article IV.")
    >>> [(mention.category, mention.forms) for mention in mentions["section"]]
    [('section', (('12', 'b'),)), ('article', (('4',),))]
    """
    text = prepare_text(text)
    mentions_by_kind: dict[str, tuple[Mention, ...]] = {}
    for kind in profile.identifiers:
        mentions = tuple(_extract_kind_mentions(kind, text))
        if mentions:
            mentions_by_kind[kind.name] = mentions
            for mention in mentions:
                text = f"{text[: mention.start]}{' ' * (mention.end - mention.start - 1)},{text[mention.end :]}"
    return mentions_by_kind


def _extract_kind_mentions(kind: IdentifierKind, text: str) -> Iterator[Mention]:
    parse = FORM_PARSERS[kind.form]
    spellings = _map_spellings(kind)
    for match in iterate_matches(kind.pattern or FORM_PATTERNS.get(kind.form) or _build_spelling_pattern(kind), text):
        groups = match.groupdict()
        written, label = match.group().strip(), groups.get("id") or match.group().strip()
        category = _normalize_category(groups.get("what") or "", spellings)
        context = match.string[max(0, match.start() - CONTEXT_CHARS) : match.start()]
        is_reference = bool(kind.aside) and bool(find_matches(rf"(?:{kind.aside})\s*\Z", context))
        more = filter(None, map(str.strip, LIST_SEPARATOR.split(groups.get("more") or "")))
        for number, item in enumerate((label, *more)):
            normalized = spellings.get(item.casefold(), item) if kind.form != "parts" else item
            item_text = written if not number else f"{groups.get('what') or ''} {item}".strip()
            for unit, forms in parse(normalized):
                yield Mention(
                    item_text, item, f"{category} {unit}".strip(), forms, match.start(), match.end(), is_reference
                )


@lru_cache(maxsize=256)
def _map_spellings(kind: IdentifierKind) -> dict[str, str]:
    return {spelling.casefold(): canonical.casefold() for spelling, canonical in kind.spellings}


@lru_cache(maxsize=256)
def _build_spelling_pattern(kind: IdentifierKind) -> str:
    """Build the pattern of a kind from its spellings; one in capitals matches capitals only."""
    spellings = sorted({spelling for spelling, _ in kind.spellings}, key=lambda text: (-len(text), text))
    patterns = (f"(?-i:{re.escape(spelling)})" if spelling.isupper() else re.escape(spelling) for spelling in spellings)
    return rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)"


def _normalize_category(noun: str, spellings: dict[str, str]) -> str:
    word = noun.casefold().strip(" .")
    return spellings.get(word) or spellings.get(word.removesuffix("s").rstrip(".")) or word


NormalForms = list[tuple[str, tuple[NormalForm, ...]]]


def _parse_text(label: str) -> NormalForms:
    return [("", ((" ".join(label.casefold().split()),),))]


def _parse_code(label: str) -> NormalForms:
    return [("", (("".join(filter(str.isalnum, label.casefold())),),))]


def _parse_parts(label: str) -> NormalForms:
    """Parse a label into parts; a range has each of its numbers."""
    number_range = NUMBER_RANGE.fullmatch(label)
    forms = [_split_label(label)]
    if number_range and 0 < int(number_range[2]) - int(number_range[1]) <= MAX_RANGE_SIZE:
        forms += [(str(number),) for number in range(int(number_range[1]), int(number_range[2]) + 1)]
    return [("", tuple(forms))]


def _split_label(label: str) -> NormalForm:
    """Split a label into parts: 12(b)(2) → 12, b, 2; IV → 4."""
    number = parse_roman(label.upper()) if label.isupper() or len(label) > 1 else None
    if number is not None:
        return (str(number),)
    return tuple(part.lstrip("0").casefold() or "0" for part in LABEL_PART.findall(label))


def _parse_name(label: str) -> NormalForms:
    """Parse a symbol into its full name and its last part."""
    parts = tuple(part.casefold() for part in re.findall(r"\w+", label))
    return [("", (parts, parts[-1:]) if len(parts) > 1 else (parts,))] if parts else []


def _parse_quantity(label: str) -> NormalForms:
    return [(quantity.unit, ((f"{quantity.value:f}",),)) for quantity in parse_quantities(label)]


def _parse_money(label: str) -> NormalForms:
    matches: list[EntityMatch] = []
    extract_quantities(label, matches)
    return [(unit, ((value,),)) for match in matches[:1] for value, _, unit in [match.form.partition(" ")] if unit]


def _parse_date(label: str) -> NormalForms:
    """Parse a date into year, quarter, month and day, as far as given."""
    reordered = re.sub(r"^(\d{4}) ?(q[1-4])$", r"\2 \1", label, flags=re.IGNORECASE)
    period = PERIOD_PATTERN.fullmatch(reordered)
    if period:
        fields = period.groupdict()
        year = next((fields[name] for name in ("year", "year2", "year3") if fields[name]), WILDCARD)
        year = f"20{year}" if len(year) == 2 else year
        quarter = next((fields[name] for name in ("q", "q2", "q3") if fields[name]), "")
        half = next((fields[name] for name in ("h", "h2", "h3") if fields[name]), "")
        if quarter:
            return [("", ((year, f"q{ORDINALS.get(quarter.lower(), quarter[0])}"),))]
        if half:
            last = 2 * int(ORDINALS.get(half.lower(), half[0]))
            return [("", ((year, f"q{last - 1}"), (year, f"q{last}")))]
        return [("", ((year,),))]
    matches: list[EntityMatch] = []
    extract_quantities(label, matches)
    day_form = _parse_day(matches[0].form) if matches else None
    return [("", (day_form,))] if day_form else []


def _parse_day(form: str) -> NormalForm | None:
    """Parse 2024-03-14, --03-14, 2024-03 or 2024; the quarter goes between year and month."""
    match = re.fullmatch(r"(\d{4}|-)(?:-(\d\d))?(?:-(\d\d))?", form)
    if not match:
        return None
    year, month, day = match[1].replace("-", WILDCARD), match[2], match[3]
    dated = (year, f"q{(int(month) + 2) // 3}", month) if month else (year,)
    return (*dated, day) if day else dated


FORM_PARSERS: dict[str, Callable[[str], NormalForms]] = {
    "text": _parse_text,
    "code": _parse_code,
    "parts": _parse_parts,
    "name": _parse_name,
    "quantity": _parse_quantity,
    "money": _parse_money,
    "date": _parse_date,
}
