"""Vectors in PostgreSQL with the extension pgvector, by psycopg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragfault.model.errors import OutputError, UsageError
from ragfault.retrieval.index import Array
from ragfault.retrieval.stores.store_index import StoreHits, import_client

INDEX_KINDS = ("hnsw", "ivfflat", "exact")
SEARCH_SETTING = {"hnsw": "hnsw.ef_search", "ivfflat": "ivfflat.probes"}
"""Kind of index → the setting for the breadth of its search."""


class PgvectorStore:
    """Table in PostgreSQL: `dsn` is a connection string (without it the variables PGHOST, PGUSER … count).

    `index` is hnsw, ivfflat or exact; `breadth` is hnsw.ef_search or ivfflat.probes. Where conditions leave few
    rows, the index is searched further until `k` are there (iterative scan, pgvector 0.8 or later).
    """

    name = "pgvector"

    def __init__(
        self,
        dsn: str = "",
        collection: str = "ragfault",
        index: str = "hnsw",
        breadth: int | None = None,
        lists: int = 100,
    ) -> None:
        if index not in INDEX_KINDS:
            raise UsageError(f'pgvector has no index "{index}". There are: {", ".join(INDEX_KINDS)}')
        psycopg = import_client("psycopg", "pgvector")
        self._vector: Any = import_client("pgvector", "pgvector").Vector
        self._sql: Any = import_client("psycopg.sql", "pgvector")
        self._connection: Any = psycopg.connect(dsn, autocommit=True)
        self._connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        import_client("pgvector.psycopg", "pgvector").register_vector(self._connection)
        self._table, self._lists, self._index = self._sql.Identifier(collection), lists, index
        self._collection, self.exact = collection, index == "exact"
        if index != "exact":
            self._connection.execute(f"SET {index}.iterative_scan = 'relaxed_order'")
            if breadth:
                self._connection.execute(f"SET {SEARCH_SETTING[index]} = {int(breadth)}")

    def write(self, vectors: Array) -> None:
        """Create the table with these vectors, and its index."""
        if self._exists():
            raise OutputError(f'PostgreSQL has a table "{self._collection}" already. Name another one.')
        size = self._sql.Literal(vectors.shape[1])
        self._run("CREATE TABLE {} (place bigint PRIMARY KEY, embedding vector({}))", self._table, size)
        statement = self._sql.SQL("COPY {} (place, embedding) FROM STDIN WITH (FORMAT BINARY)").format(self._table)
        with self._connection.cursor().copy(statement) as copy:
            copy.set_types(["int8", "vector"])
            for index, row in enumerate(vectors):
                copy.write_row([index, self._vector(row)])
        if self._index == "hnsw":
            self._run("CREATE INDEX ON {} USING hnsw (embedding vector_cosine_ops)", self._table)
        elif self._index == "ivfflat":
            form = "CREATE INDEX ON {} USING ivfflat (embedding vector_cosine_ops) WITH (lists = {})"
            self._run(form, self._table, self._sql.Literal(self._lists))
        self._run("ANALYZE {}", self._table)

    def count(self) -> int:
        """Return the number of stored vectors; 0 where the table is not there."""
        return int(self._run("SELECT count(*) FROM {}", self._table).fetchone()[0]) if self._exists() else 0

    def search(self, vector: Array, k: int, allowed: Sequence[int] | None) -> StoreHits:
        """Return the best `k` positions by cosine."""
        condition, values = "", [self._vector(vector), self._vector(vector), k]
        if allowed is not None:
            condition, values = "WHERE place = ANY(%s)", [self._vector(vector), list(allowed), self._vector(vector), k]
        form = f"SELECT place, 1 - (embedding <=> %s) FROM {{}} {condition} ORDER BY embedding <=> %s LIMIT %s"
        rows = self._connection.execute(self._sql.SQL(form).format(self._table), values).fetchall()
        return sorted(((int(place), float(score)) for place, score in rows), key=lambda hit: -hit[1])

    def drop(self) -> None:
        """Delete the table."""
        self._run("DROP TABLE IF EXISTS {}", self._table)

    def _exists(self) -> bool:
        row = self._connection.execute("SELECT to_regclass(%s)", [f'"{self._collection}"']).fetchone()
        return row[0] is not None

    def _run(self, statement: str, *parts: Any) -> Any:
        return self._connection.execute(self._sql.SQL(statement).format(*parts))
