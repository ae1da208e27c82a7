"""Times: the zone of those that name none, and what a query asks about ("as of 2024"), or the questions before it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from ragfault.text.normalization import STOP_WORDS, split_content_words, split_words

MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
          "december")  # fmt: skip
MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?" if month[3:] else month for month in MONTHS)
STATE_PHRASE = (
    r"(?:as (?:of|at)|as it (?:was|stood) (?:in|on|at)|(?:in (?:force|effect)|valid|applicable) (?:in|on|at|as of))"
)
MONTH_DATE = (
    rf"(?:(?P<day>\d{{1,2}})\.?\s+)?(?P<month>{MONTH})\.?(?:\s+(?P<day_after>\d{{1,2}}),?)?"
    r"\s+(?P<month_year>(?:19|20)\d\d)"
)
TIME_REFERENCE = re.compile(
    rf"\b{STATE_PHRASE}\s+(?:the\s+)?(?:end\s+of\s+)?(?:(?P<iso>\d{{4}}-\d\d(?:-\d\d(?=T\d|\b))?)|{MONTH_DATE}"
    r"|(?P<year>(?:19|20)\d\d)|(?P<relative>last (?:year|month)|yesterday|today|now))(?:\b|(?=T\d))",
    re.IGNORECASE,
)
QUANTITY = re.compile(r"[/%°$€£-]|[.,]\d|\s+(?P<noun>[^\W_]+)")
"""After a bare year or month: it may be an amount, an edition or an address ("2000 euros", "the 1990 edition")."""
YEAR = re.compile(r"\b(?:19|20)\d\d\b")
PRESENT = re.compile(r"\b(?:now|today|currently|at present|these days|at the moment)\b", re.IGNORECASE)
MAX_FOLLOW_UP_WORDS = 3
"""A question of so many content words or fewer leans on the one before it."""


def assume_utc(moment: datetime) -> datetime:
    """Return a time with its zone, which is UTC where it names none.

    >>> assume_utc(datetime(2026, 3, 1)).isoformat()
    '2026-03-01T00:00:00+00:00'
    """
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def find_asked_time(query: str, asked: datetime, earlier: Sequence[str] = ()) -> datetime:
    """Return the time that a query asks about; `asked` is when it was put, `earlier` the questions before it.

    The oldest comes first. A time counts where the query says that it asks for what held then: "as of March 2024", "in
    force on 2024-03-20", "as of last year"; a bare year does not, for an event may be meant, nor does one before a noun
    ("in force in the 1990 edition"). A period stands for its end, the first of several times counts, and beside "now"
    none does. Without one, a question that leans on earlier ones (of at most three content words, or sharing one with
    the question that named the time) keeps their time, unless it has a year of its own or one after it says "now". In
    all other cases it is `asked`.

    >>> put = datetime(2026, 3, 1, tzinfo=UTC)
    >>> find_asked_time("What is the fare for a van?", put).date().isoformat()
    '2026-03-01'
    >>> find_asked_time("And for vans?", put, ["What did a car cost as of last year?"]).date().isoformat()
    '2025-12-31'
    """
    asked = assume_utc(asked)
    words = set(split_content_words(query))
    for text in (query, *reversed(earlier)):
        reference = next((match for match in TIME_REFERENCE.finditer(text) if not _is_quantity(match)), None)
        if reference is not None and not PRESENT.search(text.replace(reference[0], "")):
            leans = text is query or len(words) <= MAX_FOLLOW_UP_WORDS or words & set(split_content_words(text))
            return min(_resolve(reference, asked) or asked, asked) if leans else asked
        if PRESENT.search(text) or (text is query and YEAR.search(text)):
            break
    return asked


def remove_asked_time(query: str) -> str:
    """Remove the time whose state a query asks for.

    >>> remove_asked_time("What does a van cost as of March 2024?"), remove_asked_time("Who won in 2023?")
    ('What does a van cost ?', 'Who won in 2023?')
    """
    return TIME_REFERENCE.sub(lambda reference: reference[0] if _is_quantity(reference) else "", query)


def _is_quantity(reference: re.Match[str]) -> bool:
    """Return whether the digits of a reference may be an amount or a part of a name, by the text after them."""
    if not (reference["year"] or reference["iso"]):
        return False
    after = QUANTITY.match(reference.string, reference.end())
    if after is None or after["noun"] is None:
        return after is not None
    is_unit = len(after["noun"]) == 1 and after["noun"] not in "Iai"
    return is_unit or STOP_WORDS.isdisjoint(split_words(after["noun"]))


def _resolve(reference: re.Match[str], asked: datetime) -> datetime | None:
    """Return the end of the period that a reference names; None where there is no such day."""
    relative = (reference["relative"] or "").lower()
    if relative in ("today", "now"):
        return asked
    if relative == "last year":
        return _end_period(asked.year - 1, None, None)
    if relative:
        before = asked.replace(day=1) - timedelta(days=1) if relative == "last month" else asked - timedelta(days=1)
        return _end_period(before.year, before.month, before.day)
    if reference["iso"]:
        year, month, *day_fields = map(int, reference["iso"].split("-"))
        return _end_period(year, month, day_fields[0] if day_fields else None)
    if reference["month"]:
        month = next(i for i, name in enumerate(MONTHS, 1) if name.startswith(reference["month"][:3].lower()))
        day = reference["day"] or reference["day_after"]
        return _end_period(int(reference["month_year"]), month, int(day) if day else None)
    return _end_period(int(reference["year"]), None, None)


def _end_period(year: int, month: int | None, day: int | None) -> datetime | None:
    """Return the last moment of a year, month or day; None where there is no such day."""
    try:
        if day is not None and month is not None:
            after = datetime(year, month, day, tzinfo=UTC) + timedelta(days=1)
        elif month is not None:
            after = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
        else:
            after = datetime(year + 1, 1, 1, tzinfo=UTC)
    except ValueError:
        return None
    return after - timedelta(microseconds=1)
