"""Metadata filters: conditions on chunks, stated or inferred from the query, applied before the search."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from msgspec.structs import replace

from ragfault.model.errors import UnknownName
from ragfault.model.expressions import Scalar
from ragfault.model.records import Chunk
from ragfault.model.rules import is_outdated
from ragfault.retrieval.pipeline import FilterCondition, Hits, Query, Stage, StageResult
from ragfault.text.times import find_asked_time

GROUPS_FIELD = "groups"
"""The metadata that names who may read a chunk; where it is absent, everybody may."""
CATEGORIES = ("technical", "legal", "financial", "medical", "academic")
LANGUAGE_CODES = {"english": "en", "spanish": "es", "french": "fr", "german": "de", "chinese": "zh"}
DATE_PATTERN = re.compile(r"\b((?:19|20)\d\d)(?:-(0[1-9]|1[0-2])(?:-(0[1-9]|[12]\d|3[01]))?)?\b")
CHUNK_FIELDS = ("document", "kind")
"""Fields of a chunk itself that a condition may name."""
CONDITION_TESTS: tuple[str, ...] = get_args(Literal["is", "in", "from", "to", "holds"])


def require_metadata(**filters: Scalar | Iterable[Scalar]) -> Stage:
    """Return the stage that asks for metadata: `restrict(language="en", year=range(2020, 2027), date__from="2024-01")`.

    A lone value must be equal, a list or range must hold the value; `FIELD__from` and `FIELD__to` bound numbers and ISO
    dates, `FIELD__holds` looks into a list. Chunks without the field do not meet the condition.

    >>> require_metadata(language="en")(Query(text="?"), ()).query.conditions[0].field
    'language'
    """
    conditions = tuple(_parse_condition(name, value) for name, value in filters.items())
    return lambda query, hits: StageResult(replace(query, conditions=(*query.conditions, *conditions)), hits)


def resolve_time() -> Stage:
    """Return the stage that sets the time of a query to the one it asks about, so that what held then is found.

    By `find_asked_time`, from the query and the questions before it; a query without a time is asked now.

    >>> query = Query(text="What did a van cost as of 2024?", time=datetime(2026, 3, 1))
    >>> resolve_time()(query, ()).query.time.date().isoformat()
    '2024-12-31'
    """
    return lambda query, hits: StageResult(
        replace(query, time=find_asked_time(query.text, query.time or datetime.now(UTC), query.earlier)), hits
    )


def _parse_condition(name: str, value: Any) -> FilterCondition:
    field, _, test = name.partition("__")
    if test:
        if test not in CONDITION_TESTS:
            raise UnknownName("test of a filter", test, CONDITION_TESTS)
        return FilterCondition(field, test, value)  # type: ignore[arg-type]
    several = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
    return FilterCondition(field, "in" if several else "is", tuple(value) if several else value)


def infer_conditions(
    fields: Sequence[str] = ("date", "category", "language"), values: Mapping[str, Collection[str]] | None = None
) -> Stage:
    """Return the stage that infers conditions from the query: a date (2024, 2024-03-20), a category, a language.

    `values` has fields of the user's own, each with the values that a query may name. Each field is read once, and only
    where no condition on it was asked for.
    Raises UnknownName for a field that is neither of the three nor among `values`.

    >>> found = infer_conditions()(Query(text="What are the technical specs from 2024?"), ())
    >>> [(one.field, one.test, one.value) for one in found.query.conditions]
    [('date', 'from', '2024'), ('date', 'to', '2024'), ('category', 'is', 'technical')]
    """
    for field in fields:
        if field not in FIELD_READERS and field not in (values or {}):
            raise UnknownName("field that can be inferred", field, [*FIELD_READERS, *(values or {})])

    def stage(query: Query, hits: Hits) -> StageResult:
        # what a user or the application states outranks what is read out of the text
        asked = {condition.field for condition in query.conditions}
        read = [
            condition
            for field in dict.fromkeys([*fields, *(values or {})])
            if field not in asked
            for condition in _infer_value(field, query.text, (values or {}).get(field))
        ]
        return StageResult(replace(query, conditions=(*query.conditions, *read)), hits)

    return stage


def _infer_value(field: str, text: str, candidates: Collection[str] | None) -> list[FilterCondition]:
    """Return the conditions that the query states on a field."""
    if candidates is None:
        return FIELD_READERS[field](field, text)
    match = next((value for value in candidates if re.search(rf"\b{re.escape(value)}\b", text, re.IGNORECASE)), None)
    return [] if match is None else [FilterCondition(field, "is", match, inferred=True)]


def _infer_date(field: str, text: str) -> list[FilterCondition]:
    match = DATE_PATTERN.search(text)
    if match is None:
        return []
    return [
        FilterCondition(field, "from", match[0], inferred=True),
        FilterCondition(field, "to", match[0], inferred=True),
    ]


def _infer_category(field: str, text: str) -> list[FilterCondition]:
    return _infer_value(field, text, CATEGORIES)


def _infer_language(field: str, text: str) -> list[FilterCondition]:
    names = _infer_value(field, text, tuple(LANGUAGE_CODES))
    # corpora name languages in full or by their code
    return [FilterCondition(field, "in", (match.value, LANGUAGE_CODES[match.value]), inferred=True) for match in names]


FIELD_READERS = {"date": _infer_date, "category": _infer_category, "language": _infer_language}
"""Fields that are read out of a query without further ado."""


def check_fields(conditions: Sequence[FilterCondition], known_fields: Collection[str]) -> None:
    """Refuse a condition that was asked for on a field that no chunk has; raises UnknownName."""
    for condition in conditions:
        if not condition.inferred and condition.field not in known_fields and condition.field not in CHUNK_FIELDS:
            raise UnknownName("field of the metadata", condition.field, [*known_fields, *CHUNK_FIELDS])


def meets_condition(chunk: Chunk, condition: FilterCondition) -> bool:
    """Return True for a chunk that meets a condition; case does not matter in texts.

    Bounds compare dates as far as both are given: 2024-03-20 is from 2024 and to 2024.

    >>> chunk = Chunk(id="a", metadata={"date": "2024-03-20", "tags": ["fares", "Dogs"]})
    >>> [meets_condition(chunk, FilterCondition("date", test, "2024")) for test in ("from", "to", "is")]
    [True, True, False]
    >>> meets_condition(chunk, FilterCondition("tags", "holds", "dogs"))
    True
    """
    value = getattr(chunk, condition.field) if condition.field in CHUNK_FIELDS else chunk.metadata.get(condition.field)
    if value is None:
        return False
    expected = condition.value
    if condition.test == "is":
        return bool(_fold_case(value) == _fold_case(expected))
    if condition.test == "in":
        return _fold_case(value) in {_fold_case(option) for option in expected}
    if condition.test == "holds":
        values = value if isinstance(value, (list, tuple)) else [value]
        return _fold_case(expected) in {_fold_case(option) for option in values}
    return _is_within_bound(value, expected, condition.test)


def _is_within_bound(value: Any, bound: Any, test: str) -> bool:
    """Return True for a value within a bound: numbers as numbers, others as ISO texts of equal length."""
    if isinstance(value, (int, float)) and isinstance(bound, (int, float)):
        return value >= bound if test == "from" else value <= bound
    left, right = _format_iso(value), _format_iso(bound)
    size = min(len(left), len(right))
    return left[:size] >= right[:size] if test == "from" else left[:size] <= right[:size]


def _format_iso(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _fold_case(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value


def is_readable(chunk: Chunk, user: Sequence[str] | None) -> bool:
    """Return True for a chunk that these groups may read; None may read everything.

    >>> is_readable(Chunk(id="a", metadata={"groups": ["staff"]}), ("guests",))
    False
    """
    groups = chunk.metadata.get(GROUPS_FIELD)
    if user is None or groups is None:
        return True
    return bool({*user} & {*([groups] if isinstance(groups, str) else groups)})


def is_valid_at(chunk: Chunk, time: datetime | None) -> bool:
    """Return True for a chunk that was valid at a time, as `is_outdated` reads its dates; always without a time.

    >>> is_valid_at(Chunk(id="a", metadata={"valid_to": "2025-12-31"}), datetime(2026, 1, 1))
    False
    """
    return time is None or not is_outdated(chunk, time)


ChunkMask = np.ndarray[Any, Any]
VALIDITY_FIELDS = ("valid_from", "valid_to")


class FieldValues(NamedTuple):
    """The values of one field, or of several together."""

    codes: ChunkMask
    """For each chunk the place of its value."""
    chunks: list[Chunk]
    """For each value a chunk that has it."""


class MetadataIndex:
    """Index of chunk metadata that selects the chunks which meet conditions, may be read, and are valid."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks
        self.fields = frozenset(name for chunk in chunks for name in chunk.metadata)
        self._field_values: dict[tuple[str, ...], FieldValues] = {}

    def mask_allowed(self, query: Query) -> ChunkMask | None:
        """Return a flag for each chunk; None where the search may return every chunk.

        An inferred condition on a field that no chunk has is passed over. Raises UnknownName where one that was asked
        for is on such a field.
        """
        check_fields(query.conditions, self.fields)
        masks = [
            self._evaluate_test((condition.field,), lambda chunk, test=condition: meets_condition(chunk, test))
            for condition in query.conditions
            if condition.field in self.fields or not condition.inferred
        ]
        if query.user is not None and GROUPS_FIELD in self.fields:
            masks.append(self._evaluate_test((GROUPS_FIELD,), lambda chunk: is_readable(chunk, query.user)))
        if query.time is not None and self.fields.intersection(VALIDITY_FIELDS):
            masks.append(self._evaluate_test(VALIDITY_FIELDS, lambda chunk: is_valid_at(chunk, query.time)))
        return np.logical_and.reduce(masks) if masks else None

    def _evaluate_test(self, fields: tuple[str, ...], test: Any) -> ChunkMask:
        """Return the result of a test on each chunk; each distinct value is tested once."""
        column = self._get_field_values(fields)
        outcomes = np.fromiter(map(test, column.chunks), bool, len(column.chunks))
        return outcomes[column.codes]

    def _get_field_values(self, fields: tuple[str, ...]) -> FieldValues:
        if fields not in self._field_values:
            self._field_values[fields] = _build_field_values(self._chunks, fields)
        return self._field_values[fields]


def _build_field_values(chunks: Sequence[Chunk], fields: tuple[str, ...]) -> FieldValues:
    rows: dict[str, int] = {}
    first_chunks: list[Chunk] = []
    codes = np.zeros(len(chunks), np.int64)
    for number, chunk in enumerate(chunks):
        key = repr(list(_read_values(chunk, fields)))
        if key not in rows:
            rows[key] = len(first_chunks)
            first_chunks.append(chunk)
        codes[number] = rows[key]
    return FieldValues(codes, first_chunks)


def _read_values(chunk: Chunk, fields: tuple[str, ...]) -> Iterable[Any]:
    for name in fields:
        yield getattr(chunk, name) if name in ("document", "kind") else chunk.metadata.get(name)
