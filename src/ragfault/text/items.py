"""Items: the names, numbers, dates, amounts and identifiers of a text, in exact normal form."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from ragfault.text.names import names
from ragfault.text.normal import plain
from ragfault.text.quantities import SPELLED, Find, quantities
from ragfault.text.words import CURLY, fold

__all__ = ["Stock", "figures", "items", "occurs"]

HINT = re.compile(rf"\d|[$€£¥₹§@]|https?:|\b(?:{SPELLED.pattern}|percent|section|article|part|appendix)\b")
"""What a text in lower case holds, if it holds any item but names."""
LINK = re.compile(r"\bhttps?://[^\s<>\"')\]]+|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{1,64}\b")
PART = (
    r"(?:\b(section|sec|article|art|chapter|clause|paragraph|para|figure|fig|table|page|step|rule|part|title"
    r"|appendix|annex|schedule|exhibit|question|item|phase|type|stage|grade|level)s?\b\.?|(§)§?)"
    r" ?(?:no\.? ?)?(\d+(?:\.\d+)*(?:\([a-z0-9]+\))*[a-z]?|[a-z]|[ivx]+)\b"
)
SECTION = re.compile(PART, re.IGNORECASE)
LONG = {"sec": "section", "art": "article", "para": "paragraph", "fig": "figure", "§": "section"}
VERSION = re.compile(
    r"\b(?:version ?|v\.? ?)(\d+(?:\.\d+)*(?:-?[a-z]+\.?\d*)?)\b|\b(\d+\.\d+\.\d+(?:\.\d+)*)\b", re.I
)
PHONE = re.compile(r"(?<![\w-])(?:\+\d{1,3}[-. ])?\(?\d{3}\)?[-. ]\d{3}[-. ]\d{4}(?![\w-])")
CODE = re.compile(
    r"(?<![\w-])(?=[\w-]{0,40}\d)(?=[\w-]{0,40}[A-Za-z])[A-Za-z0-9]{1,40}(?:[-_][A-Za-z0-9]{1,40}){0,8}(?![\w-])"
)
PLAIN_CODE = re.compile(r"\d+(?:st|nd|rd|th|s|am|pm|k|m|bn?|x)|(?:\d+-)+[a-z]+|[a-z]+-\d+-[a-z]+", re.I)


@lru_cache(maxsize=1 << 12)
def items(text: str) -> frozenset[str]:
    """The names, numbers, dates, amounts, units and identifiers of a text, each in one exact form.

    Two texts name the same thing exactly where their items are equal: nothing is matched by looks.
    Names are capitalised runs, folded; a capital that only opens a sentence makes no name.

    >>> sorted(items("On 14 March 2024 Ann Lee paid $1,234.00 for 5kg; see Section 12 of v2.3.1."))
    ['1234 usd', '2024-03-14', '5 kg', 'ann lee', 'section 12', 'v2.3.1']
    >>> items("2024-03-14, fifty percent") == items("March 14, 2024, 50 %")
    True
    """
    finds, rest = _finds(text)
    return frozenset(find.form for find in finds).union(names(rest))


def occurs(item: str, text: str) -> bool:
    """Whether an item of one text occurs in another, whatever its capitals.

    For many questions to one text, build its `Stock` once.

    >>> occurs("ann lee", "ANN LEE left"), occurs("2024", "on 14 March 2024"), occurs("12", "in 2012")
    (True, True, False)
    """
    return item in Stock(text)


class Stock:
    """All that a text can be said to mention: `item in Stock(text)`.

    It holds more than `items`: of a date also its year and month, of an amount also its number,
    and every run of words, so that names are found whatever their capitals.

    >>> stock = Stock("the nigerian fund paid 5 kg of gold on 2024-03-14 in niger")
    >>> [item in stock for item in ("niger", "nigeria", "5 kg", "5", "50", "2024-03", "fund paid")]
    [True, False, True, True, False, True, True]
    """

    __slots__ = ("_run", "forms")

    def __init__(self, text: str) -> None:
        finds, rest = _finds(text)
        self.forms = frozenset(form for find in finds for form in find.forms).union(names(rest))
        """Every form of every item."""
        self._run = f" {' '.join(RUN.findall(fold(plain(text)).replace('.', '')))} "

    def __contains__(self, item: str) -> bool:
        if item in self.forms:
            return True
        return not item[:1].isdigit() and not QUANTITY.search(item) and f" {_bare(item)} " in self._run


NUMBERED = tuple(
    f"{word} " for word in ("section", "article", "chapter", "page", "step", "part", "table", "figure")
)
RUN = re.compile(r"[^\W_]+(?:'(?!s\b)[^\W_]+)*")
QUANTITY = re.compile(r"^(?:--|-?\d|v\d|tel |section |article |page )")


def _bare(item: str) -> str:
    """A name as the run of words shows it."""
    return " ".join(RUN.findall(item.replace(".", "")))


@lru_cache(maxsize=1 << 12)
def figures(text: str) -> dict[str, tuple[str, ...]]:
    """The items of a text that are no names: each with all the forms it implies, itself first.

    >>> figures("Ann paid 5 kg in March 2024")
    {'2024-03': ('2024-03', '2024'), '5 kg': ('5 kg', '5')}
    """
    finds, _ = _finds(text)
    return {find.form: find.forms for find in finds}


def _finds(text: str) -> tuple[list[Find], str]:
    """All finds in a text but its names, and what is left; what one reader takes, the next does not see."""
    text = plain(text).translate(CURLY)
    finds: list[Find] = []
    if not HINT.search(text.lower()):
        return finds, text
    low = text.lower()
    for hint, pattern, make in _IDENTIFIERS:
        if hint.search(low):
            text = _take(pattern, make, text, finds)
    return finds, quantities(text, finds)


def _take(
    pattern: re.Pattern[str], make: Callable[[re.Match[str]], str | None], text: str, finds: list[Find]
) -> str:
    """Collect what a pattern finds, and blank it out."""

    def blank(match: re.Match[str]) -> str:
        form = make(match)
        if form is None:
            return match.group()
        finds.append(Find(form, (form.rpartition(" ")[2],) if form.startswith(NUMBERED) else ()))
        return " " * (len(match.group()) - 1) + ","

    return pattern.sub(blank, text)


def _section(match: re.Match[str]) -> str | None:
    name, sign, label = match.groups()
    word = LONG.get((name or sign).lower(), (name or sign).lower())
    if not label[0].isdigit() and not (name and name[0].isupper() and label.isupper()):
        return None
    return f"{word} {label.lower()}"


def _version(match: re.Match[str]) -> str:
    return f"v{(match[1] or match[2]).lower()}"


def _code(match: re.Match[str]) -> str | None:
    code = match.group()
    if PLAIN_CODE.fullmatch(code) or DIGIT_UNIT.fullmatch(code):
        return None
    return code.lower()


DIGIT_UNIT = re.compile(r"\d+[A-Za-zµ]{1,4}\d?|\d+-\d+[a-z]*|\d{4}-\d\d-\d\dT.*")

_IDENTIFIERS: tuple[tuple[re.Pattern[str], re.Pattern[str], Callable[[re.Match[str]], str | None]], ...] = (
    (re.compile("://|@"), LINK, lambda match: match.group().rstrip(".,;").lower()),
    (re.compile(r"\d{3}"), PHONE, lambda match: "tel " + "".join(filter(str.isdigit, match.group()))),
    (re.compile(PART), SECTION, _section),
    (re.compile(r"\d"), VERSION, _version),
    (re.compile(r"\d"), CODE, _code),
)
"""What a text in lower case holds, if it holds the identifier; the identifier; and its one form."""
