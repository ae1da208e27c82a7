"""Settings of the reading of traces."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from ragfault.io.error_collector import Uniqueness
from ragfault.io.files import MAX_LINE
from ragfault.model.errors import UsageError
from ragfault.model.settings import Flag, NonEmptyText, PathText, Settings, Switch, declare

if TYPE_CHECKING:
    from ragfault.io.files import InputPaths

ColumnMapSource = Mapping[str, str | Callable[[Any], Any]] | str | Path
"""Field → column or function of the record, or the path of a TOML file that states it."""


ColumnTable = Annotated[dict[str, str], Meta(description="a table of fields, each with a column")]


def parse_column_flags(texts: Sequence[str]) -> dict[str, str] | str:
    """Parse texts such as `query=question`, or the one text that names a map file.

    Raises UsageError for a map file together with others.
    """
    pairs = {}
    for text in texts:
        field, equals, column = text.partition("=")
        if not equals:
            if len(texts) > 1:
                raise UsageError(f"--map {text}: a map file cannot be combined with other --map options.")
            return text
        pairs[field.strip()] = column.strip()
    return pairs


class ReadingSettings(Settings, frozen=True, kw_only=True):
    """How traces are read: `read_traces` explains each field."""

    map: ColumnMapSource | None = declare(
        None,
        "Read FIELD from COLUMN, or from a path into it: a.b, messages[-1].content, docs[].text, context_*; or a TOML "
        "file of such mappings.",
        ColumnTable,
        Flag(metavar="FIELD=COLUMN|FILE", parse=parse_column_flags),
        is_key=False,
    )
    shape: str | None = declare(
        None,
        "Input format: a name (ragas, deepeval, …), or a file FILE.toml that describes one.",
        NonEmptyText,
        Flag(default="detected"),
    )
    qrels: str | os.PathLike[str] | None = declare(None, "Relevance judgements (qrels) of a TREC run.", PathText)
    encoding: str | None = declare(
        None, "Encoding of text files: utf-16, latin-1, ….", NonEmptyText, Flag(default="detected, else UTF-8")
    )
    documents: InputPaths | None = declare(
        None, "Corpus whose documents hold the texts of chunks that the traces name only by id.", PathText
    )
    turns: Literal["auto", "last", "each"] = declare(
        "auto",
        "Traces of a conversation: its last turn, each turn, or each if turns have chunks of their own (auto).",
        Literal["auto", "last", "each"],
    )
    id_from: str | None = declare(
        None, "Build ids from these columns, or from file and line.", NonEmptyText, Flag(metavar="COLUMN,…|line")
    )
    max_line: int = declare(MAX_LINE, "Longest line of a file, in bytes; a longer one is a bad line.")
    labeled: bool = declare(False, "Read a set with labels of people: every column is kept, and each row is a trace.")
    accept_unread: bool = declare(
        False, "Read the rest of records that hold queries, chunks or answers which no field takes.", Switch
    )
    unique: Uniqueness = declare(
        "attempt",
        "What two traces may not share: id and attempt, the id, or nothing; with none, a repeated id is the next "
        "attempt of its query.",
        Uniqueness,
    )

    @property
    def reading(self) -> dict[str, Any]:
        """The fields as parameters of `read_traces`."""
        return {name: getattr(self, name) for name in ReadingSettings.declared}
