"""The index in LanceDB, for corpora that are larger than memory or that change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ragfault.model.errors import InputError, OutputError, RunError, UsageError, require_extra
from ragfault.model.protocols import Embedder
from ragfault.model.records import Chunk
from ragfault.model.rules import parse_date
from ragfault.retrieval.filters import GROUPS_FIELD, check_fields
from ragfault.retrieval.pipeline import FilterCondition, Hits, Query, Stage
from ragfault.retrieval.search import RANK_FUSION, FusionSettings, SearchKind, make_retriever
from ragfault.text.times import assume_utc

WRITE_BATCH = 1024
"""Chunks that are embedded and written together."""
TABLE_NAME, MANIFEST_NAME = "chunks", "ragfault.json"
LANCE_FORMAT = 3
GROUPS_COLUMN, VALID_FROM_COLUMN, VALID_TO_COLUMN = "l_groups", "n_valid_from", "n_valid_to"
"""Columns that are always there: who may read a chunk and when it is valid may first be said by the millionth."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MEMBER_SEPARATOR = "\x1f"
"""Stands round each member of a list that is kept as text."""


class LanceManifest(Struct, frozen=True, kw_only=True):
    """Build parameters of the database."""

    format: int = 1
    embedder: str | None
    fields: dict[str, str]
    """Field of the metadata → its column: `n…` for numbers, `t…` for texts, `l…` for lists."""
    chunks: int


class LanceIndex:
    """Chunks in a LanceDB folder, searched as an `Index` is: by words (its own BM25), by meaning (exact), or both.

    Raises MissingExtra without the extra `lance`.
    """

    def __init__(self, table: Any, manifest: LanceManifest, embedder: Embedder | None) -> None:
        self._table, self.manifest, self._embedder = table, manifest, embedder

    @property
    def has_embedder(self) -> bool:
        """True if the index has vectors for semantic search."""
        return self._embedder is not None

    @classmethod
    def build(cls, chunks: Iterable[Chunk], folder: str | Path, embedder: Embedder | None = None) -> LanceIndex:
        """Write chunks to a new database, some at a time; those of the first thousand tell the kinds of the metadata.

        Raises OutputError where the folder is taken, InputError where there is no chunk or no text.
        """
        path = Path(folder)
        if path.exists() and any(path.iterdir()):
            raise OutputError(f"{path} exists and is not empty. Choose another place for the database.")
        stream = iter(chunks)
        first_batch = list(islice(stream, WRITE_BATCH))
        if not any(chunk.text.strip() for chunk in first_batch):
            raise InputError("there is no chunk with text to index. Is the corpus empty?")
        fields = _assign_columns(first_batch)
        path.mkdir(parents=True, exist_ok=True)
        table, count = None, 0
        for batch in _batch_chunks(first_batch, stream):
            rows = _build_rows(batch, fields, embedder)
            count += len(batch)
            if table is None:
                table = _import_lancedb().connect(path).create_table(TABLE_NAME, rows)
            else:
                table.add(rows)
        manifest = LanceManifest(
            format=LANCE_FORMAT, embedder=embedder.fingerprint if embedder else None, fields=fields, chunks=count
        )
        cast(Any, table).create_index("text", config=_make_text_config(), replace=True)
        (path / MANIFEST_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
        return cls(table, manifest, embedder)

    @classmethod
    def open(cls, folder: str | Path, embedder: Embedder | None = None) -> LanceIndex:
        """Open the database in a folder; `embedder` must be the one that made it.

        Raises RunError where there is none, UsageError where the embedder is another one.
        """
        path = Path(folder)
        try:
            manifest = msgspec.json.decode((path / MANIFEST_NAME).read_bytes(), type=LanceManifest)
        except (OSError, msgspec.MsgspecError):
            raise RunError(f"no database of ragfault at {path}. Build one there.") from None
        if manifest.format != LANCE_FORMAT:
            raise RunError(f"{path} has layout {manifest.format}, this ragfault reads {LANCE_FORMAT}. Build it again.")
        if embedder is not None and embedder.fingerprint != manifest.embedder:
            raise UsageError(
                f"the database {path} was made with {manifest.embedder or 'no embedder'}: it cannot be searched with "
                f"{embedder.fingerprint}. Give that embedder, or index the corpus again."
            )
        return cls(_import_lancedb().connect(path).open_table(TABLE_NAME), manifest, embedder)

    def retrieve(self, kind: SearchKind = "hybrid", k: int = 100, fusion: FusionSettings = RANK_FUSION) -> Stage:
        """Return the stage that retrieves the best `k` chunks; see `ChunkIndex.retrieve`."""
        return make_retriever(self, kind, k, fusion)

    def search(self, kind: SearchKind, text: str, k: int, query: Query) -> Hits:
        """Return the best chunks for a text by one search, among those that meet the conditions of the query."""
        if kind == "sparse":
            request, score = self._table.search(text, query_type="fts"), "_score"
        else:
            assert self._embedder is not None
            vector = self._embedder.embed([text], query=True)[0]
            request, score = self._table.search(vector).distance_type("cosine"), "_distance"
        where = self._render_filter(query)
        if where:
            request = request.where(where, prefilter=True)
        rows = request.select(["chunk", score]).limit(k).to_arrow().to_pylist()
        return tuple(
            replace(
                msgspec.json.decode(row["chunk"], type=Chunk), score=1.0 - row[score] if kind == "dense" else row[score]
            )
            for row in rows
        )

    def count_matching(self, query: Query) -> int:
        """Count the chunks that meet the conditions of a query."""
        return int(self._table.count_rows(self._render_filter(query) or None))

    def _render_filter(self, query: Query) -> str:
        """Return the conditions of a query as a filter of the database."""
        fields = self.manifest.fields
        check_fields(query.conditions, fields)
        parts = [
            (_render_inferred if condition.inferred else _render_condition)(
                condition, fields.get(condition.field, f"t_{condition.field}")
            )
            for condition in query.conditions
            if condition.field in fields or not condition.inferred
        ]
        if query.user is not None:
            mine = [
                f"strpos({GROUPS_COLUMN}, {_quote_text(f'{MEMBER_SEPARATOR}{group}{MEMBER_SEPARATOR}')}) > 0"
                for group in query.user
            ]
            parts.append(f"({' OR '.join([f'{GROUPS_COLUMN} IS NULL', *mine])})")
        if query.time is not None:
            for column, test in ((VALID_FROM_COLUMN, "to"), (VALID_TO_COLUMN, "from")):
                bound = _render_bound(column, test, _encode_time(query.time))
                parts.append(f"({column} IS NULL OR {bound})")
        return " AND ".join(parts)


def _import_lancedb() -> Any:
    with require_extra("the database LanceDB", "lance"):
        import lancedb
    return lancedb


def _make_text_config() -> Any:
    from lancedb.index import FTS

    return FTS()


def _batch_chunks(first_batch: list[Chunk], stream: Iterator[Chunk]) -> Iterator[list[Chunk]]:
    batch = first_batch
    while batch:
        yield batch
        batch = list(islice(stream, WRITE_BATCH))


def _assign_columns(chunks: Sequence[Chunk]) -> dict[str, str]:
    """Return a column for each metadata field, by the type of its values."""
    kinds: dict[str, set[str]] = {}
    for chunk in chunks:
        for name, value in chunk.metadata.items():
            kinds.setdefault(name, set()).add(_infer_column_kind(name, value))
    return {name: f"{kind.pop() if len(kind) == 1 else 't'}{i}" for i, (name, kind) in enumerate(sorted(kinds.items()))}


def _infer_column_kind(name: str, value: Any) -> str:
    if name == GROUPS_FIELD or isinstance(value, (list, tuple)):
        return "l"
    return "n" if isinstance(value, (int, float)) and not isinstance(value, bool) else "t"


def _build_rows(chunks: Sequence[Chunk], fields: Mapping[str, str], embedder: Embedder | None) -> Any:
    """Return chunks as an Arrow table."""
    import pyarrow as pa

    texts = [chunk.text for chunk in chunks]
    columns: dict[str, Any] = {
        "text": pa.array(texts, pa.string()),
        "t_document": pa.array([_encode_cell(chunk.document, "t") for chunk in chunks], pa.string()),
        "t_kind": pa.array([chunk.kind for chunk in chunks], pa.string()),
        "chunk": pa.array([msgspec.json.encode(chunk).decode() for chunk in chunks], pa.string()),
    }
    if embedder is not None:
        vectors = embedder.embed(texts)
        columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    columns[GROUPS_COLUMN] = pa.array(
        [_encode_groups(chunk.metadata.get(GROUPS_FIELD)) for chunk in chunks], pa.string()
    )
    for name, column in (("valid_from", VALID_FROM_COLUMN), ("valid_to", VALID_TO_COLUMN)):
        dates = [parse_date(chunk.metadata.get(name), end=name == "valid_to") for chunk in chunks]
        columns[column] = pa.array([date and _encode_time(date) for date in dates], pa.float64())
    for name, column in fields.items():
        kind = pa.float64() if column[0] == "n" else pa.string()
        columns[column] = pa.array([_encode_cell(chunk.metadata.get(name), column[0]) for chunk in chunks], kind)
    return pa.table(columns)


def _encode_cell(value: Any, kind: str) -> Any:
    """Return a metadata value as its column stores it; None for a value of another type."""
    if value is None:
        return None
    if kind == "n":
        return float(value) if isinstance(value, (int, float)) else None
    if kind == "l":
        values = value if isinstance(value, (list, tuple)) else [value]
        return "".join(f"{MEMBER_SEPARATOR}{_fold_text(element)}{MEMBER_SEPARATOR}" for element in values)
    return _fold_text(value)


def _encode_time(time: datetime) -> float:
    """Return a time as microseconds since 1970, in UTC where it has no zone."""
    return (assume_utc(time) - EPOCH) / timedelta(microseconds=1)


def _encode_groups(groups: Any) -> str | None:
    """Return the groups that may read a chunk, encoded; None for everybody."""
    if groups is None:
        return None
    return "".join(
        f"{MEMBER_SEPARATOR}{group}{MEMBER_SEPARATOR}" for group in ([groups] if isinstance(groups, str) else groups)
    )


def _fold_text(value: Any) -> str:
    return value.casefold() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _render_condition(condition: FilterCondition, column: str) -> str:
    """Return a condition as SQL."""
    if condition.test in ("from", "to"):
        return _render_bound(column, condition.test, condition.value)
    if condition.test == "holds":
        return _render_membership(column, condition.value)
    expected = condition.value if condition.test == "in" else (condition.value,)
    return f"{column} IN ({', '.join(_render_literal(element, column) for element in expected) or 'NULL'})"


def _render_inferred(condition: FilterCondition, column: str) -> str:
    """Return an inferred condition as SQL; on a numeric field it can only mean the year."""
    if column[0] != "n":
        return _render_condition(condition, column)
    year = str(condition.value)[:4]
    bound = condition.test in ("from", "to") and year.isdecimal()
    return _render_bound(column, condition.test, year) if bound else "FALSE"


def _render_membership(column: str, value: Any) -> str:
    """Return the SQL that tests for a value in a list column, or equality in a column of single values."""
    if column[0] != "l":
        return f"{column} = {_render_literal(value, column)}"
    return f"strpos({column}, {_quote_text(f'{MEMBER_SEPARATOR}{_fold_text(value)}{MEMBER_SEPARATOR}')}) > 0"


def _render_bound(column: str, test: str, value: Any) -> str:
    """Return a bound as SQL: numbers as numbers, texts by their common length."""
    sign = ">=" if test == "from" else "<="
    if column[0] == "n":
        return f"{column} {sign} {_render_literal(value, column)}"
    text = _fold_text(value if isinstance(value, str) else str(value))
    return f"left({column}, {len(text)}) {sign} left({_quote_text(text)}, character_length({column}))"


def _render_literal(value: Any, column: str) -> str:
    if column[0] != "n":
        return _quote_text(_fold_text(value))
    try:
        return repr(float(value))
    except (TypeError, ValueError):
        raise UsageError(f'"{value}" is not a number, and the field has numbers.') from None


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
