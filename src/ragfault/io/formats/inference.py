"""Inference of the fields of records: by the names of their columns, then by what these hold.

What looks like a question, an answer, contexts, a reference or a conversation is never left over in silence: where its
name does not say what it is, and that field is still free, the reading stops with the `--map` that takes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ragfault.io.field_values import CHUNK_ID_KEYS, CHUNK_SCORE_KEYS, FLAG_WORDS, to_number
from ragfault.io.formats.columns import Column, ColumnMap, RawRecord, list_columns, overlaps
from ragfault.io.formats.conversations import ANSWER_KEYS, QUESTION_KEYS, find_text
from ragfault.io.formats.field_names import (
    PREDICTED_WORDS,
    REJECTED_WORDS,
    WORD_RANK,
    is_filtered,
    is_metadata_container,
    is_record_metadata,
    join_words,
    rank_fields,
    split_words,
    strip_places,
)
from ragfault.io.formats.leftovers import check_leftovers, format_map
from ragfault.io.formats.passages import (
    align_joined,
    classify,
    find_passages,
    find_text_key,
    split_joined,
    split_passages,
    unwrap_passage,
)
from ragfault.io.formats.paths import ABSENT, get_path, list_numbered, list_paths
from ragfault.model.errors import InputError
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
MAIN_FIELDS = ("query", "chunks", "answer", "reference", "history")


MAX_ATTEMPTS = 10_000
"""Numbers from here on are not those of attempts."""


class Inference(NamedTuple):
    """The columns of each field, and what to say about them."""

    columns: ColumnMap
    notes: tuple[str, ...] = ()
    """Columns that were passed over, with the one that was taken."""
    metadata: tuple[str, ...] = ()
    """Columns that no field takes."""
    filled: frozenset[str] = frozenset()
    """Fields that some column fills."""


def infer_columns(
    samples: Sequence[RawRecord],
    known: ColumnMap,
    given: Iterable[str],
    name: str,
    filled_before: Iterable[str] = (),
    labeled: bool = False,
) -> Inference:
    """Infer which columns are which fields; what is `known` stays, and `given` by the user is final.

    Fields that were `filled_before`, by other records, are not asked for again; of a `labeled` set none is asked for.

    Raises `InputError` with a `--map` to paste where a column looks like a field and nothing says so.

    >>> record = {"ask": "When?", "model_reply": "In 1040.", "docs": ["Oslo, 1040"], "tag": "a"}
    >>> infer_columns([record], {"query": ("ask",)}, (), "t.jsonl").columns
    {'query': ('ask',), 'chunks': ('docs',), 'answer': ('model_reply',)}
    """
    columns = list_columns(samples)
    if (
        not labeled
        and not known.get("query")
        and not any(
            field in ("query", "history") for column in columns for field, _ in rank_fields(strip_places(column.path))
        )
    ):
        columns = list_columns(samples, enter=True)
    key = None if {"answer", "reference"} & set(given) else _find_answer_key(columns)
    known = _drop_foreign_fields(known, set(given), columns, key)
    inferred, notes = dict(known), []
    filled = {
        field
        for field, paths in known.items()
        if any(get_path(sample, path) not in (ABSENT, None, "") for path in paths for sample in samples)
    } | set(given)
    used_paths = [path for field in filled for path in known.get(field, ()) if not path.startswith("+")]
    if key is not None and not overlaps(key.path, used_paths):
        inferred["reference"] = (*inferred.get("reference", ()), key.path)
        filled.add("reference")
        used_paths.append(key.path)
    for field in FIELD_KINDS:
        if field in filled:
            continue
        fitting = columns
        if field in ("gold", "reference"):
            fitting = [column for column in columns if not _counts(field, column, columns, inferred, samples)]
        if field.startswith("chunks."):
            joined = [column._replace(kind="codes") for column in columns if _is_joined(column, inferred, samples)]
            fitting = joined or (columns if _can_take_parts(inferred, samples) else [])
        candidates = _rank_candidates(field, fitting, used_paths, inferred)
        if not candidates:
            continue
        best, passed = _choose_column(field, candidates, name)
        path = best.path.replace("[0]", "[]") if field.startswith("chunks") else best.path
        inferred[field] = (*inferred.get(field, ()), path)
        filled.add(field)
        used_paths.append(best.path)
        notes += [f"{field} from {best.path} rather than {other.path}" for other in passed]
    if "query" not in filled and "history" in filled:
        values = (get_path(sample, path) for path in inferred["history"] for sample in samples)
        filled |= {"query"} if "conversation" in map(classify, values) else set()
    notes += [
        f"`{column.path}` joins names ({', '.join(names[:2])} …), but no contexts are joined like them"
        for column in columns
        if not overlaps(column.path, used_paths) and (names := _split_names(column))
    ]
    if labeled:
        inferred |= _find_claims(columns, used_paths, filled)
    else:
        check_leftovers(columns, used_paths, filled | set(filled_before), name, samples, inferred)
    return Inference(inferred, tuple(notes), tuple(_list_metadata(samples, used_paths)), frozenset(filled))


def _counts(
    field: str, column: Column, columns: list[Column], inferred: ColumnMap, samples: Sequence[RawRecord]
) -> bool:
    """Tell whether a column holds numbers that count something, and are no gold and no reference.

    A number is a gold id only if it names a chunk, and a reference also under a whole name such as `ground_truth`.
    """
    values = [item for value in column.values for item in (value if isinstance(value, list) else [value])]
    if not values or any(isinstance(item, bool) or to_number(item) is None for item in values):
        return False
    if field == "reference" and dict(rank_fields(strip_places(column.path))).get(field, WORD_RANK) < WORD_RANK:
        return False
    passages = [get_path(sample, path) for path in inferred.get("chunks", ()) for sample in samples]
    items = [item for value in passages for item in find_passages(None if value is ABSENT else value) or ()]
    ids = {str(item[key]) for item in items if isinstance(item, dict) for key in CHUNK_ID_KEYS if key in item}
    named = [other for other in columns if is_id_column(other.path)]
    ids |= {
        str(item) for other in named for value in other.values for item in (value if isinstance(value, list) else ())
    }
    return not {str(item) for item in values} <= ids


def is_id_column(path: str) -> bool:
    """Tell whether the name of a column says that it lists the ids of the chunks.

    >>> is_id_column("retrieved_ids"), is_id_column("relevant_ids")
    (True, False)
    """
    return any(field == "chunks.id" for field, _ in rank_fields(strip_places(path))[:1])


CLAIM_NAMES = {
    "answer": ("claim", "hypothesis", "statement", "sentence", "summary"),
    "chunks": ("evidence", "premise", "source", "source_text", "article"),
}
"""Names in sets of claims with their evidence, which have no query."""


def _find_claims(columns: list[Column], used_paths: Sequence[str], filled: set[str]) -> ColumnMap:
    """Find the claim and the evidence of a labelled set; without a query it is that of no column, which is empty."""
    matches: ColumnMap = {}
    for field, words in CLAIM_NAMES.items():
        column = next((c for word in words for c in columns if c.path == word and c.kind in CLAIM_KINDS), None)
        if field not in filled and column is not None and not overlaps(column.path, used_paths):
            matches[field] = (column.path,)
    return matches


CLAIM_KINDS = ("text", "word", "texts", "passages")


def _drop_foreign_fields(known: ColumnMap, given: set[str], columns: list[Column], key: Column | None) -> ColumnMap:
    """Drop the columns of a shape that hold something else: steps and citations of other tools, and the answer key."""
    fields = dict(known)
    for column in columns:
        is_own = OWN_LAYOUTS.get(column.path)
        if is_own is not None and column.path not in given and not all(map(is_own, column.values)):
            fields.pop(column.path, None)
        if column is key or (column.path not in given and _is_around_answer(column, columns)):
            fields["answer"] = tuple(path for path in fields.get("answer", ()) if path != column.path)
    return {field: paths for field, paths in fields.items() if paths or field in given or not known.get(field)}


def _is_around_answer(column: Column, columns: Sequence[Column]) -> bool:
    """Tell whether a column is an object around the answer, under a name that no reply has, such as `answerText`."""
    if column.kind != "object" or any(find_text(value, ANSWER_KEYS) for value in column.values):
        return False
    return any(
        other.path.startswith(f"{column.path}.") and other.kind in ("text", "word") and _is_named_answer(other.path)
        for other in columns
    )


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


OWN_LAYOUTS = {"steps": _are_steps, "citations": _are_citations}
"""Columns that other tools fill with something else, and what tells that they are those of a trace."""


def _is_answer_list(column: Column) -> bool:
    """Tell whether a column lists the right answers: texts under the name `answer`, or objects that hold one each."""
    lists = [value for value in column.values if isinstance(value, list)]
    if not lists or len(lists) < len(column.values) or not _is_named_answer(column.path):
        return False
    if all(isinstance(part, str) for parts in lists for part in parts):
        return join_words(column.path.rpartition(".")[2]) in ("answer", "answers")
    parts = [part for parts in lists for part in parts]
    return all(isinstance(part, dict) and not part.keys() & {"role", "type"} for part in parts) and all(
        any(isinstance(part, dict) and isinstance(part.get("answer"), str) for part in parts) for parts in lists
    )


def _is_named_answer(path: str) -> bool:
    return any(field == "answer" for field, _ in rank_fields(path))


def _find_answer_key(columns: list[Column]) -> Column | None:
    """Find a column that is called answer and is the reference: a list, or one beside the prediction of the system."""
    if any(column.values and "reference" in dict(rank_fields(column.path)[:1]) for column in columns):
        return None
    answer_columns = [column for column in columns if _is_named_answer(column.path)]
    written = [column for column in answer_columns if set(split_words(column.path)) & PREDICTED_WORDS]
    predicted = any(
        column.kind == "text"
        or (column.kind == "word" and len(set(map(str, column.values))) > max(2, len(column.values) // 2))
        for column in written
    )
    for column in answer_columns:
        is_plain = join_words(column.path.rpartition(".")[2]) in ("answer", "answers") and column not in written
        if (is_plain and predicted and column.kind in ("text", "word", "texts", "words")) or _is_answer_list(column):
            return column
    return None


def _rank_candidates(
    field: str, columns: list[Column], used_paths: list[str], inferred: ColumnMap
) -> list[tuple[int, Column]]:
    """Rank the columns whose name and content fit a field."""
    matches = []
    used_paths = [path for path in used_paths if not is_record_metadata(path)]
    for column in columns:
        ranks = dict(rank_fields(strip_places(column.path)))
        is_cited = column.path.rpartition(".")[2] == "references"
        if is_filtered(column.path):
            ranks = {"chunks": WORD_RANK}
        elif (
            field in ("answer", "chunks", "reference")
            and _is_search_result(column)
            and (is_cited or not ranks.keys() & {"gold", "reference"})
        ):
            ranks = {"chunks": min(ranks.get("chunks", WORD_RANK), WORD_RANK)}
        if field not in ranks or column.kind not in FIELD_KINDS[field] or overlaps(column.path, used_paths):
            continue
        if not _fits_field(field, column, ranks, inferred):
            continue
        if field == "id" and ("[" in column.path or (column.depth and len(set(column.values)) < len(column.values))):
            # the id of a part, or of what all records lie in
            continue
        # ids alone
        is_bare = field == "chunks" and column.kind in ("object", "objects")
        matches.append((ranks[field] + (2 * WORD_RANK if is_bare else 0), column))
    return sorted(matches, key=lambda item: (item[0], item[1].depth, item[1].place))


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


SCORE_KEYS = frozenset((*CHUNK_SCORE_KEYS, "distance"))


def _fits_field(field: str, column: Column, ranks: dict[str, int], inferred: ColumnMap) -> bool:
    """Tell whether the content of a column can be the field that its name says."""
    kind, by_name = column.kind, ranks[field] < WORD_RANK
    if field in ("query", "answer") and kind in ("texts", "words"):
        return all(isinstance(value, list) and len(value) == 1 for value in column.values)
    if field in ("query", "answer") and kind in ("object", "objects", "passages"):
        keys = QUESTION_KEYS if field == "query" else ANSWER_KEYS
        return not _has_named_part(column) and any(find_text(value, keys) for value in column.values)
    if field in ("query", "answer"):
        return by_name or kind not in ("number", "code")
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
        return is_plain and not all(PASSAGE_ID.fullmatch(str(value)) for value in values)
    if field == "reference" and kind in ("objects", "passages"):
        parts = [item for value in column.values if isinstance(value, list) for item in value]
        return any(isinstance(part, dict) and part.keys() & REFERENCE_KEYS for part in parts)
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


def _is_graded(value: Any) -> bool:
    """Tell whether a list holds results of an evaluator, which say whether a check was passed."""
    return isinstance(value, list) and any(isinstance(item, dict) and "passed" in item for item in value)


def _nests(value: Any) -> bool:
    """Tell whether an object holds objects or lists, so that it is no passage of plain fields."""
    return isinstance(value, dict) and any(isinstance(item, (dict, list)) for item in value.values())


def _has_named_part(column: Column) -> bool:
    """Tell whether an object has keys that name a field of their own."""
    return any(
        isinstance(value, dict)
        and any(
            rank_fields(f"{column.path}.{key}")[:1] and item not in (None, "", [], {})
            for key, item in value.items()
            if key not in ("content", "text", "parts")
        )
        and not any(key in value for key in ("choices", "role", "candidates", "message"))
        for value in column.values
    )


def _split_names(column: Column) -> list[str] | None:
    """Split the first cell of a column of ids or names of chunks that are joined in one text each."""
    if not any(field in ("chunks.id", "chunks.document") for field, _ in rank_fields(column.path)[:1]):
        return None
    cells = [split_joined(value) if isinstance(value, str) else None for value in column.values]
    return cells[0] if cells and all(cells) else None


def _is_joined(column: Column, inferred: ColumnMap, samples: Sequence[RawRecord]) -> bool:
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


def _can_take_parts(inferred: ColumnMap, samples: Sequence[RawRecord]) -> bool:
    """Tell whether the chunks are plain texts, which columns beside them may name and score."""
    for path in inferred.get("chunks", ()):
        for sample in samples:
            value = get_path(sample, path)
            if value is not ABSENT and value is not None:
                return classify(value) in ("texts", "words", "codes")
    return False


def _choose_column(field: str, candidates: list[tuple[int, Column]], name: str) -> tuple[Column, list[Column]]:
    """Choose the column of a field. Raises `InputError` where two claim it with equal right and differ."""
    rank, best = candidates[0]
    rejected = [column for _, column in candidates[1:] if column.values != best.values and field in MAIN_FIELDS]
    rivals = [
        column
        for other, column in candidates[1:]
        if other == rank and column.depth == best.depth and column.values != best.values
    ]
    if rivals and field in ("query", "answer", "reference", "chunks"):
        listing = ", ".join(f"`{column.path}`" for column in (best, *rivals[:5]))
        raise InputError(
            f"{name}: {listing} may each be the {field}; say which, for example: {format_map({field: best.path})}"
        )
    return best, [column for column in rejected if not overlaps(column.path, [best.path])][:3]


def _list_metadata(samples: Sequence[RawRecord], used_paths: list[str]) -> list[str]:
    """List the columns that no field takes, as paths where a part of an object is taken."""
    names: dict[str, None] = {}
    for sample in samples:
        for path, value in list_paths(sample):
            above = any(path.startswith(f"{name}.") for name in names)
            inside = "[" in path or any(other.startswith((f"{path}.", f"{path}[")) for other in used_paths)
            root = path.split(".", 1)[0]
            starred = any(
                "*" in other and (list_numbered([path], other) or list_numbered([root], other)) for other in used_paths
            )
            if not (above or inside or starred or overlaps(path, used_paths)) and value not in (None, ""):
                names[path] = None
    return list(names)
