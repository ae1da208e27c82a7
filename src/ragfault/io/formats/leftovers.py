"""Columns that no field takes: what they look like, and the refusal that proposes a map for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragfault.io.formats.columns import Column, ColumnMap, RawRecord, list_columns, overlaps
from ragfault.io.formats.conversations import find_turns
from ragfault.io.formats.field_names import rank_fields, strip_places
from ragfault.io.formats.field_words import join_words, split_words
from ragfault.io.formats.scores import QUESTION_ENDS, is_content
from ragfault.io.formats.texts import LONGEST_VALUE, count_words
from ragfault.model.errors import InputError

MAX_LISTED = 30
"""Most columns that a message names."""


class UncertainColumns(InputError):
    """Several maps of columns are about as good: the reader has to ask which one is right."""

    def __init__(self, problem: str, maps: Sequence[Mapping[str, str]], otherwise: str = "") -> None:
        super().__init__(problem + (f". {otherwise}" if otherwise else ""))
        self.problem, self.maps, self.otherwise = problem, maps, otherwise


def check_unread(parts: Mapping[str, Any], inferred: ColumnMap, name: str) -> None:
    """Raise `UncertainColumns` for unread parts of a record that look like chunks, answers or queries.

    `parts` are paths with what stands there. A part of a chunk is no content of its own.

    >>> check_unread({"note": "The ferry is green."}, {}, "t.jsonl")
    """
    used = [path for path in inferred.get("chunks", ()) if not path.startswith("+")]
    asked = [
        (column, look)
        for path, value in parts.items()
        for column in list_columns([{path: value}])
        if not overlaps(column.path.replace("[]", ""), [path.replace("[]", "") for path in used])
        if (look := describe_content(column)) is not None
    ]
    if not asked:
        return
    listing = ", ".join(f"`{column.path}` looks like {look}" for column, look in asked[:MAX_ASKED])
    more = f" and {len(asked) - MAX_ASKED} more" if len(asked) > MAX_ASKED else ""
    fields = {look: field for field, look in CONTENT_FIELDS.items()}
    if inferred.get("query") and not inferred.get("answer"):
        # a second text that is named like the query, as `output_prompt` is
        fields[CONTENT_FIELDS["query"]] = "answer"
    if inferred.get("chunks") and not inferred.get("answer"):
        # several texts next to the chunks are the attempts at an answer
        fields[CONTENT_FIELDS["chunks"]] = "answer"
    as_metadata = {f"metadata.{column.path.rpartition('.')[2].strip('[]')}": column.path for column, _ in asked}
    as_fields = {fields[look]: column.path for column, look in reversed(asked)}
    rest = {key: path for key, path in as_metadata.items() if path not in as_fields.values()}
    raise UncertainColumns(
        f"{name}: not read: {listing}{more}",
        [{**as_fields, **rest}, as_metadata],
        "Map what they are (docs/how-to/foreign-files.md), or read the rest without them: --accept-unread",
    )


MAX_ASKED = 4
CONTENT_FIELDS = {
    "query": "a query",
    "history": "a conversation",
    "chunks": "retrieved contexts",
    "answer": "an answer",
}


def describe_content(column: Column) -> str | None:
    """Describe what a column looks like that is not read; None where it is no chunks, answers or queries.

    >>> describe_content(Column("llm_reply", "text", ("The ferry leaves at nine, and returns at ten. " * 2,), 0))
    'an answer'
    """
    column = column._replace(kind="passages") if column.kind == "lists" else column
    if not is_content(column):
        return None
    if column.kind == "conversation":
        turns = [turn for value in column.values for turn in find_turns(value) or ()]
        spoken = sum(len(turn["text"]) for turn in turns if turn["role"] != "system")
        return CONTENT_FIELDS["history"] if spoken > LONGEST_VALUE else None
    field = next((field for field, _ in rank_fields(strip_places(column.path))[:1]), None)
    size = max(sum(map(len, _list_strings(value))) for value in column.values) if column.values else 0
    if column.kind in ("passages", "texts") and (field in CONTENT_FIELDS or field is None) and size > LONGEST_VALUE:
        return CONTENT_FIELDS["chunks"]
    return CONTENT_FIELDS.get(field or "") if size > LONGEST_VALUE else None


def _list_strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _list_strings(part)]


DOCUMENT_IDS = frozenset(
    map(join_words, ("doc", "doc_id", "corpus_id", "document_id", "pid", "passage_id", "chunk_id"))
)
QUERY_IDS = frozenset(map(join_words, ("qid", "query_id", "topic", "topic_id", "question_id", "query-id")))
TEXT_NAMES = frozenset(("text", "content", "contents", "body", "passage", "pagecontent", "document", "doc", "abstract"))
LABEL_WORDS = frozenset(
    ("label", "labels", "class", "category", "spans", "toxic", "toxicity", "flagged", "is", "severity")
)
DOCUMENT_WORDS = 20
"""A text of so many words on average is no question."""


def describe_other_set(columns: Sequence[Column], has_query: bool = False) -> str | None:
    """Describe a file that holds no traces: judgements of relevance, a corpus, or labelled texts; None otherwise.

    >>> describe_other_set([Column("qid", "code", ("1",), 0), Column("docid", "code", ("d7",), 1)])[:42]
    'this is not a set of traces but judgements'
    """
    by_name = {join_words(column.path): column for column in columns if column.depth == 0}
    texts = [column for column in columns if column.kind in ("text", "texts", "passages", "conversation")]
    if not has_query and by_name.keys() & QUERY_IDS and by_name.keys() & DOCUMENT_IDS and not texts:
        return (
            "this is not a set of traces but judgements of relevance (qrels): a TREC run is scored against them with "
            "`ragfault run rank RUN QRELS`, and evaluated with `ragfault evaluate RUN --qrels QRELS`"
        )
    text = _find_bare_text(columns)
    spoken = {field for column in columns if column is not text for field, _ in rank_fields(column.path)[:1]}
    if text is None or spoken & {"chunks", "answer", "history", *(() if has_query else ("query",))}:
        return None
    values = [value for value in text.values if isinstance(value, str)]
    if _has_labels(columns, text):
        if has_query:
            return None
        return (
            f"this is not a set of traces but texts with labels (`{text.path}`, without a question and an answer), "
            "which no verb takes: `ragfault judge measure` takes labels of answers with their question and contexts"
        )
    asking = sum(value.rstrip().endswith(QUESTION_ENDS) for value in values)
    if not has_query and 2 * asking < len(values) and sum(map(count_words, values)) >= DOCUMENT_WORDS * len(values):
        return f"this is a corpus (`{text.path}`), not traces: `ragfault tune pipeline CORPUS QUESTIONS` reads it"
    return None


def _find_bare_text(columns: Sequence[Column]) -> Column | None:
    """Find a column that is only called a text."""
    texts = [column for column in columns if column.depth == 0 and column.kind in ("text", "word")]
    return next((column for column in texts if join_words(column.path) in TEXT_NAMES), None)


def _has_labels(columns: Sequence[Column], text: Column) -> bool:
    others = [column for column in columns if column.depth == 0 and column is not text]
    return any(set(split_words(column.path)) & LABEL_WORDS for column in others)


def find_labelled_text(columns: Sequence[Column]) -> str | None:
    """Find a labelled text beside a question, which may be what was retrieved or what was answered.

    >>> find_labelled_text([Column("text", "text", ("It leaves at nine.",), 0), Column("label", "number", (1,), 1)])
    'text'
    """
    text = _find_bare_text(columns)
    return text.path if text is not None and _has_labels(columns, text) else None


def format_columns(samples: Sequence[RawRecord]) -> str:
    """Format the keys of records for a message.

    >>> format_columns([{"a": 1}, {"b": 2}])
    'a, b'
    """
    names = list(dict.fromkeys(str(key) for sample in samples for key in sample))
    return (", ".join(names[:MAX_LISTED]) + (", …" if len(names) > MAX_LISTED else "")) or "none"
