"""Filters: conditions that chunks must meet, asked for or read out of the query, applied before the search."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, get_args

from msgspec.structs import replace

from ragfault.errors import UnknownName
from ragfault.records import Chunk
from ragfault.retrieval.records import Condition, Found, Hits, Query, Stage

__all__ = [
    "CATEGORIES",
    "GROUPS",
    "LANGUAGES",
    "check_fields",
    "infer",
    "meets",
    "readable",
    "restrict",
    "valid",
]

GROUPS = "groups"
"""The metadata that names who may read a chunk; where it is absent, everybody may."""
CATEGORIES = ("technical", "legal", "financial", "medical", "academic")
LANGUAGES = {"english": "en", "spanish": "es", "french": "fr", "german": "de", "chinese": "zh"}
DATE = re.compile(r"\b((?:19|20)\d\d)(?:-(0[1-9]|1[0-2])(?:-(0[1-9]|[12]\d|3[01]))?)?\b")
OWN = ("document", "kind")
"""Fields of a chunk itself that a condition may name."""
TESTS: tuple[str, ...] = get_args(Literal["is", "in", "from", "to", "holds"])


def restrict(**wanted: Any) -> Stage:
    """The stage that asks for metadata: `restrict(language="en", year=range(2020, 2027), date__from="2024-01")`.

    A lone value must be equal, a list or range must hold the value; `FIELD__from` and `FIELD__to` bound numbers and ISO
    dates, `FIELD__holds` looks into a list. Chunks without the field do not meet the condition.

    >>> restrict(language="en")(Query(text="?"), ()).query.conditions[0].field
    'language'
    """
    conditions = tuple(_condition(name, value) for name, value in wanted.items())
    return lambda query, hits: Found(replace(query, conditions=(*query.conditions, *conditions)), hits)


def _condition(name: str, value: Any) -> Condition:
    field, _, test = name.partition("__")
    if test:
        if test not in TESTS:
            raise UnknownName("test of a filter", test, TESTS)
        return Condition(field, test, value)  # type: ignore[arg-type]
    several = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
    return Condition(field, "in" if several else "is", tuple(value) if several else value)


def infer(
    fields: Sequence[str] = ("date", "category", "language"),
    values: Mapping[str, Collection[str]] | None = None,
) -> Stage:
    """The stage that reads conditions out of the query: a date (2024, 2024-03, 2024-03-20), a category, a language.

    `values` has fields of the user's own, each with the values that a query may name. Each field is read once, and only
    where no condition on it was asked for.

    >>> found = infer()(Query(text="What are the technical specs from 2024?"), ())
    >>> [(one.field, one.test, one.value) for one in found.query.conditions]
    [('date', 'from', '2024'), ('date', 'to', '2024'), ('category', 'is', 'technical')]
    """
    for field in fields:
        if field not in READERS and field not in (values or {}):
            raise UnknownName("field that can be inferred", field, [*READERS, *(values or {})])

    def stage(query: Query, hits: Hits) -> Found:
        asked = {condition.field for condition in query.conditions}
        read = [
            condition
            for field in dict.fromkeys([*fields, *(values or {})])
            if field not in asked
            for condition in _read(field, query.text, (values or {}).get(field))
        ]
        return Found(replace(query, conditions=(*query.conditions, *read)), hits)

    return stage


def _read(field: str, text: str, named: Collection[str] | None) -> list[Condition]:
    """The conditions on a field that a query speaks of."""
    if named is None:
        return READERS[field](field, text)
    found = next(
        (value for value in named if re.search(rf"\b{re.escape(value)}\b", text, re.IGNORECASE)), None
    )
    return [] if found is None else [Condition(field, "is", found, inferred=True)]


def _date(field: str, text: str) -> list[Condition]:
    found = DATE.search(text)
    if found is None:
        return []
    return [
        Condition(field, "from", found[0], inferred=True),
        Condition(field, "to", found[0], inferred=True),
    ]


def _category(field: str, text: str) -> list[Condition]:
    return _read(field, text, CATEGORIES)


def _language(field: str, text: str) -> list[Condition]:
    named = _read(field, text, tuple(LANGUAGES))
    return [Condition(field, "in", (one.value, LANGUAGES[one.value]), inferred=True) for one in named]


READERS = {"date": _date, "category": _category, "language": _language}
"""Fields that are read out of a query without further ado."""


def check_fields(conditions: Sequence[Condition], known: Collection[str]) -> None:
    """Refuse a condition that was asked for on a field that no chunk has; raises UnknownName."""
    for condition in conditions:
        if not condition.inferred and condition.field not in known and condition.field not in OWN:
            raise UnknownName("field of the metadata", condition.field, [*known, *OWN])


def meets(chunk: Chunk, condition: Condition) -> bool:
    """Whether a chunk meets a condition; texts are compared without regard to case.

    Bounds compare dates as far as both are given: 2024-03-20 is from 2024 and to 2024.

    >>> chunk = Chunk(id="a", metadata={"date": "2024-03-20", "tags": ["fares", "Dogs"]})
    >>> [meets(chunk, Condition("date", test, "2024")) for test in ("from", "to", "is")]
    [True, True, False]
    >>> meets(chunk, Condition("tags", "holds", "dogs"))
    True
    """
    value = getattr(chunk, condition.field) if condition.field in OWN else chunk.metadata.get(condition.field)
    if value is None:
        return False
    wanted = condition.value
    if condition.test == "is":
        return bool(_plain(value) == _plain(wanted))
    if condition.test == "in":
        return _plain(value) in {_plain(one) for one in wanted}
    if condition.test == "holds":
        held = value if isinstance(value, (list, tuple)) else [value]
        return _plain(wanted) in {_plain(one) for one in held}
    return _bounded(value, wanted, condition.test)


def _bounded(value: Any, bound: Any, test: str) -> bool:
    """Whether a value is not beyond a bound: numbers as such, all else as ISO text cut to the shorter one."""
    if isinstance(value, (int, float)) and isinstance(bound, (int, float)):
        return value >= bound if test == "from" else value <= bound
    left, right = _iso(value), _iso(bound)
    size = min(len(left), len(right))
    return left[:size] >= right[:size] if test == "from" else left[:size] <= right[:size]


def _iso(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _plain(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value


def readable(chunk: Chunk, user: Sequence[str] | None) -> bool:
    """Whether someone of these groups may read a chunk; None may read everything.

    >>> readable(Chunk(id="a", metadata={"groups": ["staff"]}), ("guests",))
    False
    """
    groups = chunk.metadata.get(GROUPS)
    if user is None or groups is None:
        return True
    return bool({*user} & {*([groups] if isinstance(groups, str) else groups)})


def valid(chunk: Chunk, time: datetime | None) -> bool:
    """Whether a chunk is valid at a time, by its `valid_from` and `valid_to`; always where no time is given.

    >>> valid(Chunk(id="a", metadata={"valid_to": "2025-12-31"}), datetime(2026, 1, 1))
    False
    """
    if time is None:
        return True
    begin, end = chunk.metadata.get("valid_from"), chunk.metadata.get("valid_to")
    return (begin is None or _bounded(time, begin, "from")) and (end is None or _bounded(time, end, "to"))
