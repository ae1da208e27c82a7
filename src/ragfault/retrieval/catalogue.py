"""The metadata of an index by field, so that conditions are decided once for each value and not for each chunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ragfault.records import Chunk
from ragfault.retrieval.filtering import GROUPS, check_fields, meets, readable, valid
from ragfault.retrieval.records import Query

__all__ = ["Catalogue"]

Mask = np.ndarray[Any, Any]
VALIDITY = ("valid_from", "valid_to")


class Column(NamedTuple):
    """The values of one field, or of several together."""

    codes: Mask
    """For each chunk the place of its value."""
    chunks: list[Chunk]
    """For each value a chunk that has it."""


class Catalogue:
    """Which chunks may be found at all: those that meet the conditions, may be read, and are valid."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks
        self.fields = frozenset(name for chunk in chunks for name in chunk.metadata)
        self._columns: dict[tuple[str, ...], Column] = {}

    def allowed(self, query: Query) -> Mask | None:
        """A flag for each chunk; None where every chunk may be found.

        An inferred condition on a field that no chunk has is passed over. Raises UnknownName where one that was asked
        for is on such a field.
        """
        check_fields(query.conditions, self.fields)
        masks = [
            self._each((condition.field,), lambda chunk, one=condition: meets(chunk, one))
            for condition in query.conditions
            if condition.field in self.fields or not condition.inferred
        ]
        if query.user is not None and GROUPS in self.fields:
            masks.append(self._each((GROUPS,), lambda chunk: readable(chunk, query.user)))
        if query.time is not None and self.fields.intersection(VALIDITY):
            masks.append(self._each(VALIDITY, lambda chunk: valid(chunk, query.time)))
        return np.logical_and.reduce(masks) if masks else None

    def _each(self, fields: tuple[str, ...], test: Any) -> Mask:
        """The outcome of a test on each chunk, which is made once for each value."""
        column = self._column(fields)
        outcomes = np.fromiter(map(test, column.chunks), bool, len(column.chunks))
        return outcomes[column.codes]

    def _column(self, fields: tuple[str, ...]) -> Column:
        if fields not in self._columns:
            self._columns[fields] = _column(self._chunks, fields)
        return self._columns[fields]


def _column(chunks: Sequence[Chunk], fields: tuple[str, ...]) -> Column:
    places: dict[str, int] = {}
    first: list[Chunk] = []
    codes = np.zeros(len(chunks), np.int64)
    for number, chunk in enumerate(chunks):
        key = repr(list(_values(chunk, fields)))
        if key not in places:
            places[key] = len(first)
            first.append(chunk)
        codes[number] = places[key]
    return Column(codes, first)


def _values(chunk: Chunk, fields: tuple[str, ...]) -> Iterable[Any]:
    for name in fields:
        yield getattr(chunk, name) if name in ("document", "kind") else chunk.metadata.get(name)
