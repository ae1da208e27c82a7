"""Scores of columns: how well a column fits a field by its name, by the kind of its values, and by what they say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ragfault.io.field_values import CHUNK_ID_KEYS, CHUNK_SCORE_KEYS, FLAG_WORDS, to_number
from ragfault.io.formats.columns import Column, ColumnMap, RawRecord
from ragfault.io.formats.conversations import ANSWER_KEYS, QUESTION_KEYS, find_text, read_question_answer_pairs
from ragfault.io.formats.field_names import (
    ASSISTANT_WORDS,
    PART_WORDS,
    PLACE,
    PREDICTED_WORDS,
    REJECTED_WORDS,
    WORD_RANK,
    is_filtered,
    is_metadata_container,
    is_metadata_name,
    rank_fields,
    strip_places,
)
from ragfault.io.formats.field_words import join_words, split_words
from ragfault.io.formats.passages import (
    TEXT_KEY_RANKS,
    align_joined,
    classify,
    find_passages,
    find_text_key,
    split_joined,
    split_passages,
    unwrap_passage,
)
from ragfault.io.formats.paths import ABSENT, get_path
from ragfault.io.formats.texts import count_words
from ragfault.model.records import Step

FIELD_KINDS: dict[str, tuple[str, ...]] = {
    "query": ("text", "word", "conversation", "object", "passages", "texts", "words", "number", "code"),
    "history": ("conversation", "lists", "objects", "texts"),
    "chunks": ("passages", "texts", "text", "words", "word", "objects", "object", "lists"),
    "answer": ("text", "word", "number", "code", "conversation", "object", "objects", "texts", "words", "passages"),
    "reference": (
        *("text", "word", "number", "code", "texts", "words", "codes", "numbers", "object", "passages"),
        *("conversation", "objects"),
    ),
    "facts": ("texts", "words", "passages", "text"),
    "gold": ("codes", "words", "texts", "passages", "objects", "object", "numbers", "text", "lists", "word", "code"),
    "steps": ("objects", "passages"),
    "id": ("code", "number", "word"),
    "conversation": ("code", "number", "word"),
    "turn": ("number", "code"),
    "attempt": ("number", "code"),
    "answerable": ("flag", "code", "number", "word", "codes", "words"),
    "route": ("word", "code"),
    "time": ("code", "number", "text"),
    "model": ("word", "code"),
    "finish_reason": ("word", "code"),
    "error": ("text", "word", "code"),
    "citations": ("codes", "passages", "objects", "words", "numbers"),
    "latency.total": ("number", "code"),
    "latency.retrieval": ("number", "code"),
    "latency.generation": ("number", "code"),
    "tokens.prompt": ("number", "code"),
    "tokens.completion": ("number", "code"),
    "chunks.id": ("codes", "words", "numbers"),
    "chunks.score": ("numbers", "codes"),
    "chunks.document": ("codes", "words", "texts"),
}
"""Field → the kinds of content that it can be read from."""
MAIN_FIELDS = ("query", "chunks", "answer", "reference")
MAX_ATTEMPTS = 10_000
"""Numbers from here on are not those of attempts."""

NAME_SCORE = 3000.0
"""A column of a usual name; the place of the name in the table of synonyms counts against it."""
WORD_SCORE = 1000.0
"""A column whose name has a word of the field."""
PART_SCORE = 900.0
"""A text within an item of a list, at most, if the record itself has one: below every column of the record."""
BARE_SCORE = 500.0
"""A column of a usual name that holds objects without texts."""
RANK_COST, DEPTH_COST, PLACE_COST, NUMBER_COST = 12.0, 1.0, 1e-6, 100.0
"""Costs of a place in the table of synonyms, of a level of a path, of a place in the record, and of a number as answer.

A rarer name costs more than the deepest path, and what a column says, which is scored below 1, less than one level.
"""


class ColumnScore(NamedTuple):
    """How well a column fits a field, and by what."""

    column: Column
    value: float
    basis: str
    """`name`, `word of the name` or `content`."""


def score_name(field: str, column: Column, columns: Sequence[Column], inferred: ColumnMap) -> ColumnScore | None:
    """Score a column for a field that its name says; None if the name, the kind or the content do not fit.

    >>> column = Column("bot_reply", "text", ("It leaves at nine.",), 0)
    >>> score_name("answer", column, [column], {}).basis, score_name("query", column, [column], {})
    ('word of the name', None)
    """
    ranks = list_named_fields(column, columns)
    if field not in ranks or column.kind not in FIELD_KINDS[field] or not _fits_field(field, column, ranks, inferred):
        return None
    if field == "id" and ("[" in column.path or (column.depth and len(set(column.values)) < len(column.values))):
        # the id of a part, or of what all records lie in
        return None
    if field == "reference" and _is_passage_text(column, columns):
        return None
    is_word = ranks[field] >= WORD_RANK
    value = WORD_SCORE if is_word else NAME_SCORE - RANK_COST * ranks[field]
    if field == "chunks" and column.kind in ("object", "objects"):
        value = BARE_SCORE
    is_part = "[" in column.path and _says_itself(field, columns)
    is_setting = field == "query" and column.depth > 1 and _says_itself(field, columns, ("conversation",))
    if field in ("query", "answer", "reference") and (is_part or is_setting):
        value = min(value, PART_SCORE)
    if field == "reference" and column.kind == "number":
        value -= NUMBER_COST
    value -= DEPTH_COST * column.depth + PLACE_COST * column.place
    return ColumnScore(column, value, "word of the name" if is_word else "name")


def _is_passage_text(column: Column, columns: Sequence[Column]) -> bool:
    """Tell whether a column is the content of a listed passage, on which an answer rests, and not of a message."""
    part = column.path.removesuffix("].content")
    return part != column.path and not any(other.path == f"{part}].role" for other in columns)


def _says_itself(field: str, columns: Sequence[Column], kinds: tuple[str, ...] = ("text", "word")) -> bool:
    """Tell whether a column of the record itself, in no part of it, is this field by its name, and of one kind."""
    return any(
        other.depth == 0 and other.kind in kinds and dict(rank_fields(other.path)).get(field, WORD_RANK) < WORD_RANK
        for other in columns
    )


def list_named_fields(column: Column, columns: Sequence[Column]) -> Mapping[str, int]:
    """Return the fields that the name of a column stands for, with their ranks.

    What only a search returns is chunks under any name; the right answers are a reference beside those of a system.
    """
    ranks = dict(rank_fields(strip_places(column.path)))
    if is_filtered(column.path):
        return {"chunks": WORD_RANK}
    if is_answer_key(column, columns):
        return {**{field: rank for field, rank in ranks.items() if field != "answer"}, "reference": 0}
    is_cited = column.path.rpartition(".")[2] == "references"
    if _is_search_result(column) and (is_cited or not ranks.keys() & {"gold", "reference"}):
        rest = {field: rank for field, rank in ranks.items() if field not in MAIN_FIELDS}
        return {**rest, "chunks": min(ranks.get("chunks", WORD_RANK), WORD_RANK)}
    return ranks


def is_named(path: str, field: str) -> bool:
    """Tell whether the name of a path may stand for a field."""
    return any(named == field for named, _ in rank_fields(path))


def is_answer_key(column: Column, columns: Sequence[Column]) -> bool:
    """Tell whether a column called answer is the reference: a list of texts, or one beside a prediction of the system.

    If another column is called a reference, it is not.
    """
    if not is_named(column.path, "answer"):
        return False
    if any(other.values and "reference" in dict(rank_fields(other.path)[:1]) for other in columns):
        return False
    if _is_answer_list(column):
        return True
    written = [
        other for other in columns if is_named(other.path, "answer") and set(split_words(other.path)) & PREDICTED_WORDS
    ]
    words = split_words(column.path.rpartition(".")[2])
    is_plain = words[-1:] in (("answer",), ("answers",)) and not set(words) & SYSTEM_WORDS and column not in written
    return is_plain and column.kind in ("text", "word", "texts", "words") and any(map(_has_own_words, written))


SYSTEM_WORDS = ASSISTANT_WORDS | PREDICTED_WORDS | {"rag", "system", "final", "actual", "raw", "cited"}
"""Words of the names of answers that a system gave."""


def _has_own_words(column: Column) -> bool:
    """Tell whether a column holds texts, or words that are no few categories."""
    several = len(set(map(str, column.values))) > max(2, len(column.values) // 2)
    return column.kind == "text" or (column.kind == "word" and several)


def _is_answer_list(column: Column) -> bool:
    """Tell whether a column lists the right answers: texts under the name `answer`, or objects that hold one each."""
    lists = [value for value in column.values if isinstance(value, list)]
    if not lists or len(lists) < len(column.values):
        return False
    if all(isinstance(part, str) for parts in lists for part in parts):
        return join_words(column.path.rpartition(".")[2]) in ("answer", "answers")
    parts = [part for parts in lists for part in parts]
    return all(isinstance(part, dict) and not part.keys() & {"role", "type"} for part in parts) and all(
        any(isinstance(part, dict) and isinstance(part.get("answer"), str) for part in parts) for parts in lists
    )


SCORE_KEYS = frozenset((*CHUNK_SCORE_KEYS, "distance"))


def _is_search_result(column: Column) -> bool:
    """Tell whether a column lists texts with scores, as only a search returns them, whatever it is called."""
    lists = [value for value in column.values if isinstance(value, list) and value]
    if column.kind != "passages" or not lists or is_metadata_container(column.path):
        return False
    if set(split_words(column.path)) & REJECTED_WORDS:
        return False
    items = [unwrap_passage(item) if isinstance(item, dict) else {} for value in lists for item in value]
    return all(
        find_text_key(item) and any(name in SCORE_KEYS or split_words(name)[-1:] == ("score",) for name in item)
        for item in items
    )


def _fits_field(field: str, column: Column, ranks: Mapping[str, int], inferred: ColumnMap) -> bool:
    """Tell whether the content of a column can be the field that its name says."""
    kind, by_name = column.kind, ranks[field] < WORD_RANK
    if field in ("query", "answer") and kind in ("texts", "words"):
        return all(isinstance(value, list) and len(value) == 1 for value in column.values)
    if field in ("query", "answer") and kind in ("object", "objects", "passages"):
        keys = QUESTION_KEYS if field == "query" else ANSWER_KEYS
        return not _has_named_part(column, field == "answer") and any(find_text(value, keys) for value in column.values)
    if field in ("query", "answer"):
        return by_name or kind not in ("number", "code")
    if field == "history" and kind == "objects":
        return all(read_question_answer_pairs(value) for value in column.values)
    if field == "history":
        return kind == "conversation" or "query" in inferred
    if field == "chunks" and kind in ("object", "objects"):
        known = _has_named_part(column) or any(map(_is_graded, column.values))
        return by_name and not known and not any(_nests(value) for value in column.values)
    if field == "chunks":
        return by_name or kind not in ("word", "words")
    return _fits_label(field, column)


def _fits_label(field: str, column: Column) -> bool:
    """Tell whether the content of a column can be a field that people label, or steps."""
    kind = column.kind
    if field == "reference" and kind in ("code", "codes", "number", "numbers"):
        values = [item for value in column.values for item in (value if isinstance(value, list) else [value])]
        is_plain = column.depth == 0 or dict(rank_fields(column.path))["reference"] < WORD_RANK
        return is_plain and not all(PASSAGE_ID.fullmatch(str(value)) or "://" in str(value) for value in values)
    if field == "reference" and kind in ("objects", "passages"):
        parts = [item for value in column.values if isinstance(value, list) for item in value]
        # a list of passages with a `content` is what an answer rests on, not an answer
        return any(isinstance(part, dict) and part.keys() & (REFERENCE_KEYS - {"content"}) for part in parts)
    if field == "reference" and kind == "object":
        return any(isinstance(value, dict) and value.keys() & REFERENCE_KEYS for value in column.values)
    if field in OWN_LAYOUTS:
        return all(map(OWN_LAYOUTS[field], column.values))
    if field == "attempt":
        # `epoch` and `iteration` are also the names of times and of counts of tokens
        return all(
            isinstance(number := to_number(value), float) and 0 <= number < MAX_ATTEMPTS for value in column.values
        )
    if field == "answerable":
        return any(str(value[0] if isinstance(value, list) else value).lower() in FLAG_WORDS for value in column.values)
    if field == "gold" and kind in ("text", "word", "object"):
        return any(item in column.path.lower() for item in ("context", "chunk", "gold", "facts"))
    return True


PASSAGE_ID = re.compile(r"(?=.*[A-Za-z])(?=.*\d)\S*[_#/]\S*")
"""An id of letters and digits with a mark between its parts: it names a passage, and is no short answer."""
REFERENCE_KEYS = frozenset(("text", "answer", "value", "content", "aliases"))
"""Keys of the object that a reference is written as."""


def _are_steps(value: Any) -> bool:
    steps = value if isinstance(value, list) else []
    return all(isinstance(step, dict) and step.keys() <= set(Step.__struct_fields__) for step in steps)


def _are_citations(value: Any) -> bool:
    """Tell whether citations name chunks: by ids or numbers, or as objects with an id."""
    parts = value if isinstance(value, list) else [value]
    unnamed_chunks = [part for part in parts if isinstance(part, dict) and not part.keys() & {"chunk", *CHUNK_ID_KEYS}]
    lists = [item.get("document_ids", item.get("sources")) for item in unnamed_chunks]
    return all(isinstance(ids, list) and all(_names_chunk(name) for name in ids) for ids in lists)


def _names_chunk(value: Any) -> bool:
    return bool(value.keys() & {*CHUNK_ID_KEYS}) if isinstance(value, dict) else isinstance(value, (str, int))


OWN_LAYOUTS: dict[str, Callable[[Any], bool]] = {"steps": _are_steps, "citations": _are_citations}
"""Columns that other tools fill with something else, and what tells that they are those of a trace."""


def _is_graded(value: Any) -> bool:
    """Tell whether a list holds results of an evaluator, which say whether a check was passed."""
    return isinstance(value, list) and any(isinstance(item, dict) and "passed" in item for item in value)


def _nests(value: Any) -> bool:
    """Tell whether an object holds objects or lists, so that it is no passage of plain fields."""
    return isinstance(value, dict) and any(isinstance(item, (dict, list)) for item in value.values())


def _has_named_part(column: Column, enters_lists: bool = False) -> bool:
    """Tell whether an object has keys that name a field of their own, or one in a list such of a main field."""
    return any(
        isinstance(part, dict)
        and any(
            item not in (None, "", [], {})
            and any(field in MAIN_FIELDS or value is part for field, _ in rank_fields(f"{column.path}.{key}")[:1])
            for key, item in part.items()
            if key not in ("content", "text", "parts")
        )
        and not any(key in part for key in ("choices", "role", "candidates", "message"))
        for value in column.values
        for part in (value if enters_lists and isinstance(value, list) else [value])
    )


def names_nothing(
    field: str, column: Column, columns: Sequence[Column], inferred: ColumnMap, samples: Sequence[RawRecord]
) -> bool:
    """Tell whether a column that may be gold or a reference holds numbers that count, or documents never retrieved.

    A number or a document is gold only if it names chunks of the file, or stands in a list of ids by its name. A number
    is a reference also under a whole name such as `ground_truth`, unless all are from 0 to 1, as grades are.
    """
    values = [item for value in column.values for item in (value if isinstance(value, list) else [value])]
    are_numbers = bool(values) and all(not isinstance(item, bool) and to_number(item) is not None for item in values)
    words = split_words(strip_places(column.path).rpartition(".")[2])
    are_documents = field == "gold" and words[-1:] and words[-1] in PART_WORDS["chunks.document"]
    are_ids = field == "gold" and column.kind == "numbers" and words[-1:] and words[-1] in PART_WORDS["chunks.id"]
    if are_ids or not (are_numbers or are_documents):
        return False
    if field == "reference" and dict(rank_fields(strip_places(column.path))).get(field, WORD_RANK) < WORD_RANK:
        return column.kind == "number" and all(0 <= float(item) <= 1 for item in values)
    names = _list_chunk_names(columns, inferred, samples)
    known = [str(item) in names for item in values]
    return not all(known) if are_numbers else sum(known) < NAMED_SHARE * len(known)


NAMED_SHARE = 0.5
"""Share of the documents in a column of gold that must name chunks of the file; the others were not retrieved."""


def _list_chunk_names(columns: Sequence[Column], inferred: ColumnMap, samples: Sequence[RawRecord]) -> set[str]:
    """List the ids that the chunks of the samples have in themselves and in columns of their own."""
    passages = [get_path(sample, path) for path in inferred.get("chunks", ()) for sample in samples]
    items = [item for value in passages for item in find_passages(None if value is ABSENT else value) or ()]
    names = {str(item[key]) for item in items if isinstance(item, dict) for key in CHUNK_ID_KEYS if key in item}
    parts = ("chunks.id",) if passages else ("chunks.id", "chunks.document")
    for column in columns:
        if any(field in parts for field, _ in rank_fields(strip_places(column.path))[:1]):
            names |= {str(item) for value in column.values if isinstance(value, list) for item in value}
    return names


def split_names(column: Column) -> list[str] | None:
    """Split the first cell of a column of ids or names of chunks that are joined in one text each."""
    if not any(field in ("chunks.id", "chunks.document") for field, _ in rank_fields(column.path)[:1]):
        return None
    cells = [split_joined(value) if isinstance(value, str) else None for value in column.values]
    return cells[0] if cells and all(cells) else None


def is_joined(column: Column, inferred: ColumnMap, samples: Sequence[RawRecord]) -> bool:
    """Tell whether a column of ids or names is joined as the contexts beside it are, in every sample of several."""
    if column.kind not in ("code", "word", "text") or not inferred.get("chunks"):
        return False
    several = 0
    for sample in samples:
        texts = [get_path(sample, path) for path in inferred["chunks"]]
        text, names = next((text for text in texts if text not in (ABSENT, None)), None), get_path(sample, column.path)
        if not isinstance(text, str) or not isinstance(names, str):
            continue
        is_single = split_joined(names) is None and len(split_passages(text)) == 1
        if not is_single and align_joined(text, names) is None:
            return False
        several += not is_single
    return several > 0


def takes_parts(inferred: ColumnMap, samples: Sequence[RawRecord]) -> bool:
    """Tell whether the chunks are plain texts, which columns beside them may name and score."""
    for path in inferred.get("chunks", ()):
        for sample in samples:
            value = get_path(sample, path)
            if value is not ABSENT and value is not None:
                return classify(value) in ("texts", "words", "codes")
    return False


CONTENT_DEPTH_COST = 0.001
QUESTION_ENDS = ("?", "？", "؟")


def ask_share(column: Column) -> float:
    """Measure how many of the texts of a column end in a question mark.

    >>> ask_share(Column("zzz", "text", ("When?", "At nine."), 0))
    0.5
    """
    texts = [value for value in column.values if isinstance(value, str)]
    return sum(text.rstrip().endswith(QUESTION_ENDS) for text in texts) / max(1, len(texts))


def score_content(field: str, column: Column, known_texts: Sequence[str] = ()) -> ColumnScore | None:
    """Score a column whose name says nothing by what it holds; None if it does not look like the field.

    `known_texts` are those of the fields that are known, in lower case: a short answer stands in them.

    >>> column = Column("zzz", "text", ("When does the ferry leave?",), 0)
    >>> score_content("query", column).basis, score_content("chunks", column)
    ('content', None)
    """
    value = _score_query(column) if field == "query" else _score_field(field, column, known_texts)
    if value is None:
        return None
    return ColumnScore(column, value - CONTENT_DEPTH_COST * column.depth - PLACE_COST * column.place, "content")


def _score_query(column: Column) -> float | None:
    texts = [value for value in column.values if isinstance(value, str)]
    is_asked = any("?" in text for text in texts) or sum(map(count_words, texts)) >= 3 * len(texts)
    if column.kind != "conversation" and (column.kind != "text" or not is_asked):
        return None
    length = sum(map(len, texts)) / max(1, len(texts))
    return 0.3 + 0.6 * (ask_share(column) or float(column.kind == "conversation")) - 0.2 * length / (1000 + length)


def _score_field(field: str, column: Column, known_texts: Sequence[str]) -> float | None:
    if field == "chunks":
        items = [item for value in column.values if isinstance(value, list) for item in value[:3]]
        hits = [isinstance(part, dict) and join_words(find_text_key(part) or "") in TEXT_KEY_RANKS for part in items]
        is_final = bool(FINAL_WORDS & set(split_words(column.path)))
        score = 0.5 + 0.2 * bool(items and all(hits)) + 0.1 * is_final
        return score if column.kind in ("passages", "texts") else None
    if column.kind not in ("text", "word"):
        return None
    texts = [value for value in column.values if isinstance(value, str)]
    if column.kind == "text" and sum(len(text.split()) for text in texts) >= 3 * len(texts):
        return 0.6 if field == "answer" else 0.5
    if len(texts) > 2 and len(set(texts)) * 2 <= len(texts):
        # a few values over and over: a category
        return None
    if field == "answer" and len(texts) > 2 and len(set(texts)) >= 0.8 * len(texts):
        return 0.4 + (column.kind == "text") / 20
    words = [rf"(?<![a-z0-9]){re.escape(text.lower())}(?![a-z0-9])" for text in texts]
    # a single Latin letter is a label
    matches = [
        len(text.encode()) > 1 and any(re.search(word, source_text) for source_text in known_texts)
        for text, word in zip(texts, words, strict=True)
    ]
    return 0.3 + (column.kind == "text") / 20 if matches and sum(matches) * 2 > len(matches) else None


FINAL_WORDS = frozenset(("final", "selected", "reranked", "rerank", "used"))
"""Words of the list of passages that the generator saw, where several stages of a search are recorded."""


def is_content(column: Column) -> bool:
    """Tell whether a column is content by its kind, and no metadata by its name."""
    if column.path.endswith("*"):
        return True
    parts = (column.path if is_filtered(column.path) else column.path.replace("[]", "")).replace("*", "").split(".")
    names = [PLACE.sub("", part) for part in parts]
    if any(is_metadata_container(item) or set(split_words(item)) & REJECTED_WORDS for item in names):
        return False
    is_summary = column.kind == "text" and "summary" in names[-2:]
    if not is_summary and any(is_metadata_name(name) for name, part in zip(names, parts, strict=True) if name != part):
        # an item of annotations, scores, labels
        return False
    if column.kind == "conversation":
        return True
    return column.kind in ("text", "word", "passages", "texts") and (is_summary or not is_metadata_name(parts[-1]))
