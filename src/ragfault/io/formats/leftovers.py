"""Columns that no field takes: what they look like, and the refusal that proposes a map for them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ragfault.io.formats.columns import Column, ColumnMap, RawRecord, list_columns, overlaps
from ragfault.io.formats.conversations import find_turns
from ragfault.io.formats.field_names import (
    REJECTED_WORDS,
    is_filtered,
    is_metadata_container,
    is_metadata_name,
    join_words,
    rank_fields,
    split_words,
    strip_places,
)
from ragfault.io.formats.passages import TEXT_KEY_RANKS, find_text_key
from ragfault.io.formats.paths import ABSENT, get_path
from ragfault.io.formats.texts import LONGEST_VALUE, count_words
from ragfault.model.errors import InputError

MAX_LISTED = 30
"""Most columns that a message names."""


def check_leftovers(
    columns: list[Column],
    used: list[str],
    filled: set[str],
    name: str,
    samples: Sequence[RawRecord],
    inferred: ColumnMap,
) -> None:
    """Raise `InputError` where a column that no field takes looks like one that is free."""
    if ("query" not in filled or not filled & {"chunks", "answer"}) and (
        kind := describe_other_set(columns, "query" in filled)
    ) is not None:
        raise InputError(f"{name}: {kind}; there are: {_format_columns(samples)}")
    answers = [get_path(sample, path) for path in inferred.get("answer", ()) for sample in samples]
    spare = [
        column
        for column in columns
        if not overlaps(column.path, used) and _is_content(column) and not _is_explained(column, filled, used, answers)
    ]
    spare = [column for column in spare if not any(other.path.startswith(f"{column.path}[].") for other in spare)]
    known_texts = _collect_texts(inferred, samples)
    offered: dict[str, str] = {}
    reasons: list[str] = []
    for field in [field for field in FIELD_LOOKS if field not in filled]:
        fitting = [column for column in spare if _looks_like(field, column, known_texts)]
        if not fitting:
            continue
        best = max(fitting, key=lambda column: _score_guess(field, column))
        offered[field] = best.path
        reasons.append(f"`{best.path}` looks like {FIELD_LOOKS[field]}")
        spare = [column for column in spare if not overlaps(column.path, [best.path])]
        if field == "query" and best.kind == "conversation":
            filled = {*filled, "query"}
    thread = None if "chunks" in filled else _find_thread(columns)
    if "query" not in filled | offered.keys() and (asked := _find_asked(columns, used)) is not None:
        offered = {"query": asked, **offered}
        reasons = [f"`{asked}` looks like {FIELD_LOOKS['query']}", *reasons]
    if "query" not in filled | offered.keys() and thread is not None:
        path, key = thread
        offered = {field: other for field, other in offered.items() if other != path}
        offered |= {"query": f"{path}[0].{key}", "answer": f"{path}[-1].{key}"}
        reasons = [reason for reason in reasons if not reason.startswith(f"`{path}`")]
        reasons.append(f"`{path}` looks like a conversation without roles")
    listing = _format_columns(samples)
    if "query" not in filled and "query" not in offered:
        empty = next((path for path in inferred.get("query", ()) if any(path in sample for sample in samples)), None)
        if empty is not None:
            raise InputError(
                f"{name}: the column `{empty}` is empty; there are: {listing}. Name the one that holds the question: "
                "--map query=COLUMN"
            )
        raise InputError(
            f"{name}: no column for `query`; there are: {listing}. "
            "Name the one that holds the question: --map query=COLUMN"
        )
    if offered:
        lacking = "" if "query" in filled else "no column for `query`; "
        raise InputError(
            f"{name}: {lacking}{', '.join(reasons)}; there are: {listing}. Paste what is right: {format_map(offered)} "
            f"(what is none of these: --map metadata.NAME=COLUMN)"
        )


def check_unread(parts: Mapping[str, Any], inferred: ColumnMap, name: str) -> None:
    """Raise `InputError` for parts of a record that are not read though they look like chunks, answers or queries.

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
    raise InputError(
        f"{name}: not read: {listing}{more}. Map what they are (docs/how-to/foreign-files.md), or read the rest "
        "without them: --accept-unread"
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
    if not _is_content(column):
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

    >>> describe_other_set([Column("qid", "code", ("1",), 0), Column("docid", "code", ("d7",), 1)])[:39]
    'this is no set of traces but judgements'
    """
    by_name = {join_words(column.path): column for column in columns if column.depth == 0}
    texts = [column for column in columns if column.kind in ("text", "texts", "passages", "conversation")]
    if not has_query and by_name.keys() & QUERY_IDS and by_name.keys() & DOCUMENT_IDS and not texts:
        return (
            "this is no set of traces but judgements of relevance (qrels): a TREC run is scored against them with "
            "`ragfault run rank RUN QRELS`, and evaluated with `ragfault evaluate RUN --qrels QRELS`"
        )
    text = next((by_name[key] for key in by_name if key in TEXT_NAMES and by_name[key].kind in ("text", "word")), None)
    spoken = {field for column in columns if column is not text for field, _ in rank_fields(column.path)[:1]}
    if text is None or spoken & {"chunks", "answer", "history", *(() if has_query else ("query",))}:
        return None
    values = [value for value in text.values if isinstance(value, str)]
    if any(set(split_words(column.path)) & LABEL_WORDS for column in by_name.values() if column is not text):
        if has_query:
            return (
                f"`{text.path}` is labelled, and may be what was retrieved or what was answered: say which, "
                f"--map chunks={text.path} or --map answer={text.path}"
            )
        return (
            f"this is no set of traces but texts with labels (`{text.path}`, without a question and an answer), which "
            "no verb takes: `ragfault judge measure` takes labels of answers with their question and contexts"
        )
    asking = sum(value.rstrip().endswith(("?", "？", "؟")) for value in values)
    if not has_query and 2 * asking < len(values) and sum(map(count_words, values)) >= DOCUMENT_WORDS * len(values):
        return f"this is a corpus (`{text.path}`), not traces: `ragfault tune pipeline CORPUS QUESTIONS` reads it"
    return None


def _find_asked(columns: Sequence[Column], used: Sequence[str]) -> str | None:
    """Find the column that asks, whatever its name: most of its texts end in a question mark."""
    for column in columns:
        texts = [value for value in column.values if isinstance(value, str)]
        question_count = sum(text.rstrip().endswith(("?", "？", "؟")) for text in texts)
        if column.kind == "text" and 2 * question_count > len(texts) and not overlaps(column.path, used):
            return column.path
    return None


def _find_thread(columns: list[Column]) -> tuple[str, str] | None:
    """Find a list of objects with texts, perhaps turns of speakers with own names, and the key of the texts."""
    for column in columns:
        passages = column.values[0] if column.kind == "passages" else None
        if isinstance(passages, list) and len(passages) > 1 and all(isinstance(turn, dict) for turn in passages):
            key = find_text_key(passages[0])
            if key is not None and all(isinstance(turn.get(key), str) for turn in passages):
                return column.path, key
    return None


def _is_explained(column: Column, filled: set[str], used: Sequence[str], answers: Sequence[object]) -> bool:
    """Tell whether the name of a column, or of what it lies in, says a field that another column fills.

    Passages are explained by their own name alone: a reply may hold what was retrieved beside what was said. What holds
    the question and more, such as a `message` that is an object, explains nothing. What repeats the answer is.
    """
    if all(value in answers or [value] in answers for value in column.values):
        return True
    parts = column.path.split(".")
    shared = [i for i in range(1, len(parts)) if any(path.startswith(".".join(parts[:i]) + ".") for path in used)]
    parts = parts[-1:] if column.kind == "passages" and "chunks" not in filled else parts[max(shared, default=0) :]
    return any(field in filled for part in parts for field, _ in rank_fields(part)[:1])


FIELD_LOOKS = {
    "query": "the question",
    "chunks": "retrieved contexts",
    "answer": "an answer",
    "reference": "a reference",
}


def _is_content(column: Column) -> bool:
    """Tell whether a column is content by its kind, and no metadata by its name."""
    if column.path.endswith("*"):
        return True
    parts = (column.path if is_filtered(column.path) else column.path.replace("[]", "")).replace("*", "").split(".")
    names = [part.partition("[")[0] for part in parts]
    if any(is_metadata_container(item) or set(split_words(item)) & REJECTED_WORDS for item in names):
        return False
    is_summary = column.kind == "text" and "summary" in names[-2:]
    if not is_summary and any(is_metadata_name(name) for name, part in zip(names, parts, strict=True) if name != part):
        # an item of annotations, scores, labels
        return False
    if column.kind == "conversation":
        return True
    return column.kind in ("text", "word", "passages", "texts") and (is_summary or not is_metadata_name(parts[-1]))


def _looks_like(field: str, column: Column, known_texts: list[str]) -> bool:
    """Tell whether a column that no name explains may be the field."""
    if field == "query":
        texts = [value for value in column.values if isinstance(value, str)]
        return column.kind == "conversation" or (
            column.kind == "text" and (sum(map(count_words, texts)) >= 3 * len(texts) or any("?" in t for t in texts))
        )
    if field == "chunks":
        return column.kind in ("passages", "texts")
    if column.kind not in ("text", "word"):
        return False
    texts = [value for value in column.values if isinstance(value, str)]
    if column.kind == "text" and sum(len(text.split()) for text in texts) >= 3 * len(texts):
        return True
    if len(texts) > 2 and len(set(texts)) * 2 <= len(texts):
        # a few values over and over: a category
        return False
    if field == "answer" and len(texts) > 2 and len(set(texts)) >= 0.8 * len(texts):
        return True
    words = [rf"(?<![a-z0-9]){re.escape(text.lower())}(?![a-z0-9])" for text in texts]
    # a single Latin letter is a label
    matches = [
        len(text.encode()) > 1 and any(re.search(word, source_text) for source_text in known_texts)
        for text, word in zip(texts, words, strict=True)
    ]
    return bool(matches) and sum(matches) * 2 > len(matches)


def _collect_texts(inferred: ColumnMap, samples: Sequence[RawRecord]) -> list[str]:
    """Collect what the chunks and answers of the samples say, in lower case."""
    return [
        str(value).lower()
        for field in ("chunks", "answer", "reference")
        for path in inferred.get(field, ())
        for sample in samples
        if (value := get_path(sample, path)) not in (ABSENT, None)
    ]


def _score_guess(field: str, column: Column) -> tuple[float, ...]:
    """Score how well a column fits a field by its content, for the proposal of a map."""
    texts = [value for value in column.values if isinstance(value, str)]
    if field == "query":
        question_share = sum(text.rstrip().endswith(("?", "？", "؟")) for text in texts) / max(1, len(texts))
        length = sum(map(len, texts)) / max(1, len(texts))
        return (question_share or float(column.kind == "conversation"), -length, -column.place)
    order = ("word", "text", "texts", "passages", "conversation")
    if field == "chunks":
        items = [item for value in column.values if isinstance(value, list) for item in value[:3]]
        hits = [isinstance(part, dict) and join_words(find_text_key(part) or "") in TEXT_KEY_RANKS for part in items]
        return (float(all(hits)) if items else 0.0, -column.depth, -column.place)
    return (order.index(column.kind) if column.kind in order else -1, -column.depth, -column.place)


def format_map(offered: dict[str, str]) -> str:
    """Format a map as flags to paste into a shell."""
    return " ".join(f"--map {shlex.quote(f'{field}={path}')}" for field, path in offered.items())


def _format_columns(samples: Sequence[RawRecord]) -> str:
    names = list(dict.fromkeys(str(key) for sample in samples for key in sample))
    return (", ".join(names[:MAX_LISTED]) + (", …" if len(names) > MAX_LISTED else "")) or "none"
