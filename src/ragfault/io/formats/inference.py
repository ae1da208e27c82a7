"""Inference of the fields of records: by the names of their columns, then by what these hold.

What looks like a question, an answer, contexts, a reference or a conversation is never left over in silence: where its
name does not say what it is, and that field is still free, the reading stops with the `--map` that takes it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ragfault.errors import InputError
from ragfault.io.formats.conversations import ANSWER_KEYS, QUESTION_KEYS, find_text
from ragfault.io.formats.field_names import WORD_RANK, is_metadata_container, is_metadata_name, rank_fields
from ragfault.io.formats.passages import classify, find_text_key, is_spread_passages
from ragfault.io.formats.paths import ABSENT, get_path, list_numbered, list_paths

ColumnMap = dict[str, tuple[str, ...]]
RawRecord = dict[str, Any]

MAX_LISTED = 30
"""Most columns that a message names."""
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
NUMBERED = re.compile(r"(.*?[^\d])?(\d{1,3})(\D*)")
MAIN_FIELDS = ("query", "chunks", "answer", "reference", "history")


class Column(NamedTuple):
    """A column, or a path into one, with what the samples hold there."""

    path: str
    kind: str
    values: tuple[Any, ...]
    """The values that are there, in order."""
    place: int

    @property
    def depth(self) -> int:
        return self.path.count(".") + self.path.count("[")


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
    columns = _list_columns(samples)
    inferred, notes = dict(known), []
    filled = {
        field
        for field, paths in known.items()
        if any(get_path(sample, path) not in (ABSENT, None, "") for path in paths for sample in samples)
    } | set(given)
    taken = [path for field in filled for path in known.get(field, ()) if not path.startswith("+")]
    for field in FIELD_KINDS:
        if field in filled or (field.startswith("chunks.") and not _can_take_parts(inferred, samples)):
            continue
        candidates = _rank_candidates(field, columns, taken, inferred)
        if not candidates:
            continue
        best, passed = _choose_column(field, candidates, name)
        path = best.path.replace("[0]", "[]") if field.startswith("chunks") else best.path
        inferred[field] = (*inferred.get(field, ()), path)
        filled.add(field)
        taken.append(best.path)
        notes += [f"{field} from {best.path} rather than {other.path}" for other in passed]
    if "query" not in filled and "history" in filled and _is_conversation(inferred["history"], samples):
        filled.add("query")
    if not labeled:
        _check_leftovers(columns, taken, filled | set(filled_before), name, samples, inferred)
    return Inference(inferred, tuple(notes), tuple(_list_metadata(samples, taken)), frozenset(filled))


def _list_columns(samples: Sequence[RawRecord]) -> list[Column]:
    """List the columns and paths of the samples with their content, numbered columns joined to one."""
    values: dict[str, list[Any]] = {}
    for sample in samples:
        for path, value in list_paths(sample, is_leaf=_is_chunks_object):
            if not _is_below_container(path):
                values.setdefault(path, []).append(value)
                for part in _list_item_paths(path, value):
                    values.setdefault(part, []).append(get_path(sample, part))
    for path in [path for path in values if _is_below_passages(path, values)]:
        del values[path]
    for pattern, names in _find_numbered(values).items():
        for path in names:
            del values[path]
        lists = [matches for sample in samples if isinstance(matches := get_path(sample, pattern), list)]
        matches = [[text for text in texts if text] for texts in lists]
        values[pattern] = [texts for texts in matches if texts]
    return [
        Column(path, _choose_kind(content), tuple(value for value in content if classify(value) != "empty"), place)
        for place, (path, content) in enumerate(values.items())
    ]


def _is_below_passages(path: str, values: dict[str, list[Any]]) -> bool:
    """Tell whether a path enters a list of passages, which is read as a whole."""
    ends = [match.start() for match in re.finditer(r"\[0\]", path)]
    return any(
        any(field == "chunks" for field, _ in rank_fields(path[:end]))
        and any(classify(value) in ("passages", "texts") for value in values.get(path[:end], ()))
        for end in ends
    )


def _is_chunks_object(value: Any) -> bool:
    """Tell whether an object is passages as a whole, whose keys are no columns."""
    return is_spread_passages(value) and not any(rank_fields(str(key)) for key in value if key in ("query", "answer"))


def _is_below_container(path: str) -> bool:
    parts = path.split(".")
    return any(is_metadata_container(part) for part in parts[:-1])


def _list_item_paths(path: str, value: Any) -> list[str]:
    """List the paths of passages that lie within the items of a list, as results of a search call do."""
    items = value if isinstance(value, list) and any(isinstance(item, dict) for item in value) else []
    keys = {
        key: None
        for item in items
        if isinstance(item, dict) and not item.keys() & {"role", "speaker", "from", "sender"}
        for key, part in item.items()
        if isinstance(part, list) and key not in ("content", "parts", "summary", "sentences")
        if classify(part) in ("passages", "texts")
    }
    return [f"{path}[].{key}" for key in keys] if len(items) > 1 else []


def _find_numbered(values: dict[str, list[Any]]) -> dict[str, list[str]]:
    """Find columns that differ in a number alone and hold texts or passages: pattern → columns."""
    groups: dict[str, list[str]] = {}
    for path in values:
        if "[" not in path and (match := NUMBERED.fullmatch(path.rpartition(".")[2])):
            above = path.rpartition(".")[0]
            pattern = f"{match[1] or ''}*{match[3]}"
            groups.setdefault(f"{above}.{pattern}" if above else pattern, []).append(path)
    return {
        pattern: names
        for pattern, names in groups.items()
        if (len(names) > 1 or any(field == "chunks" for field, _ in rank_fields(pattern.replace("*", ""))))
        and pattern != "*"
        and list_numbered(values, pattern)
    }


def _choose_kind(values: Sequence[Any]) -> str:
    """Choose the kind of a column by the kinds of its values: the richest that is there."""
    kinds = {classify(value) for value in values} - {"empty"}
    order = ("conversation", "passages", "texts", "text", "words", "objects", "object", "lists", "word", "codes")
    return next((kind for kind in order if kind in kinds), next(iter(kinds), "empty"))


def _is_conversation(paths: Sequence[str], samples: Sequence[RawRecord]) -> bool:
    return any(classify(get_path(sample, path)) == "conversation" for path in paths for sample in samples)


def _rank_candidates(
    field: str, columns: list[Column], taken: list[str], inferred: ColumnMap
) -> list[tuple[int, Column]]:
    """Rank the columns whose name and content fit a field."""
    matches = []
    for column in columns:
        ranks = dict(rank_fields(column.path.replace("*", "").replace("[]", "")))
        if field not in ranks or column.kind not in FIELD_KINDS[field] or _overlaps(column.path, taken):
            continue
        if not _fits_field(field, column, ranks, inferred):
            continue
        matches.append((ranks[field], column))
    return sorted(matches, key=lambda item: (item[0], item[1].depth, item[1].place))


def _overlaps(path: str, taken: Iterable[str]) -> bool:
    """Tell whether a path, or one above or below it, is taken."""
    roots = (".", "[")
    return any(
        path == other
        or (path.startswith(other) and path[len(other)] in roots and not path.startswith(f"{other}[]."))
        or (other.startswith(path) and other[len(path)] in roots and not other.startswith(f"{path}[]."))
        for other in taken
    )


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
    if field == "reference" and kind == "object":
        return any(isinstance(value, dict) and value.keys() & REFERENCE_KEYS for value in column.values)
    if field == "steps":
        return all(isinstance(v, list) and all(isinstance(p, dict) and "kind" in p for p in v) for v in column.values)
    if field == "chunks" and kind in ("object", "objects"):
        return by_name and not _has_named_part(column) and not any(_nests(value) for value in column.values)
    if field == "chunks":
        return by_name or kind not in ("word", "words")
    if field == "gold" and kind in ("text", "word", "object"):
        return any(part in column.path.lower() for part in ("context", "chunk", "gold", "facts"))
    return True


REFERENCE_KEYS = frozenset(("text", "answer", "value", "content", "aliases"))
"""Keys of the object that a reference is written as."""


def _nests(value: Any) -> bool:
    """Tell whether an object holds objects or lists, so that it is no passage of plain fields."""
    return isinstance(value, dict) and any(isinstance(part, (dict, list)) for part in value.values())


def _has_named_part(column: Column) -> bool:
    """Tell whether an object has keys that name a field of their own."""
    return any(
        isinstance(value, dict)
        and any(
            rank_fields(f"{column.path}.{key}")[:1] and part not in (None, "", [], {})
            for key, part in value.items()
            if key not in ("content", "text", "parts")
        )
        and not any(key in value for key in ("choices", "role", "candidates", "message"))
        for value in column.values
    )


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
    others = [column for _, column in candidates[1:] if column.values != best.values and field in MAIN_FIELDS]
    rivals = [
        column
        for other, column in candidates[1:]
        if other == rank and column.depth == best.depth and column.values != best.values
    ]
    if rivals and field in ("query", "answer", "reference", "chunks"):
        named = ", ".join(f"`{column.path}`" for column in (best, *rivals[:5]))
        raise InputError(
            f"{name}: {named} may each be the {field}; say which, for example: {_format_map({field: best.path})}"
        )
    return best, [column for column in others if not _overlaps(column.path, [best.path])][:3]


def _check_leftovers(
    columns: list[Column],
    taken: list[str],
    filled: set[str],
    name: str,
    samples: Sequence[RawRecord],
    inferred: ColumnMap,
) -> None:
    """Raise `InputError` where a column that no field takes looks like one that is free."""
    free = [field for field in ("query", "chunks", "answer", "reference") if field not in filled]
    spare = [
        column
        for column in columns
        if not _overlaps(column.path, taken) and _is_content(column) and not _is_explained(column.path, filled)
    ]
    spare = [column for column in spare if not any(other.path.startswith(f"{column.path}[].") for other in spare)]
    known_texts = _collect_texts(inferred, samples)
    offered: dict[str, str] = {}
    reasons: list[str] = []
    for field in free:
        fitting = [column for column in spare if _looks_like(field, column, known_texts)]
        if not fitting:
            continue
        best = max(fitting, key=lambda column: _score_guess(field, column))
        offered[field] = best.path
        reasons.append(f"`{best.path}` looks like {FIELD_LOOKS[field]}")
        spare = [column for column in spare if not _overlaps(column.path, [best.path])]
        if field == "query" and best.kind == "conversation":
            filled = {*filled, "query"}
    if "query" not in filled | offered.keys() and (thread := _find_thread(columns)) is not None:
        path, key = thread
        offered = {field: other for field, other in offered.items() if other != path}
        offered |= {"query": f"{path}[0].{key}", "answer": f"{path}[-1].{key}"}
        reasons = [reason for reason in reasons if not reason.startswith(f"`{path}`")]
        reasons.append(f"`{path}` looks like a conversation without roles")
    shown = _format_columns(samples)
    if "query" not in filled and "query" not in offered:
        raise InputError(
            f"{name}: no column for `query`; there are: {shown}. "
            "Name the one that holds the question: --map query=COLUMN"
        )
    if offered:
        lacking = "" if "query" in filled else "no column for `query`; "
        raise InputError(
            f"{name}: {lacking}{', '.join(reasons)}; there are: {shown}. Paste what is right: {_format_map(offered)} "
            f"(what is none of these: --map metadata.NAME=COLUMN)"
        )


def _find_thread(columns: list[Column]) -> tuple[str, str] | None:
    """Find a list of objects with texts, perhaps turns of speakers with own names, and the key of the texts."""
    for column in columns:
        first = column.values[0] if column.kind == "passages" else None
        if isinstance(first, list) and len(first) > 1 and all(isinstance(turn, dict) for turn in first):
            key = find_text_key(first[0])
            if key is not None and all(isinstance(turn.get(key), str) for turn in first):
                return column.path, key
    return None


def _is_explained(path: str, filled: set[str]) -> bool:
    """Tell whether the name of a column, or of what it lies in, says a field that another column fills."""
    return any(field in filled for part in path.split(".") for field, _ in rank_fields(part)[:1])


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
    parts = column.path.replace("*", "").replace("[]", "").split(".")
    if any(is_metadata_container(part) for part in parts):
        return False
    if column.kind in ("conversation", "passages", "texts"):
        return not is_metadata_name(parts[-1]) or column.kind != "texts"
    return column.kind in ("text", "word") and not is_metadata_name(parts[-1])


def _looks_like(field: str, column: Column, known_texts: list[str]) -> bool:
    """Tell whether a column that no name explains may be the field."""
    if field == "query":
        return column.kind in ("text", "conversation")
    if field == "chunks":
        return column.kind in ("passages", "texts")
    if column.kind not in ("text", "word"):
        return False
    texts = [value for value in column.values if isinstance(value, str)]
    if column.kind == "text" and sum(len(text.split()) for text in texts) >= 3 * len(texts):
        return True
    if len(texts) > 2 and len(set(texts)) * 2 <= len(texts):
        return False  # a few values over and over: a category
    if field == "answer" and len(texts) > 2 and len(set(texts)) >= 0.8 * len(texts):
        return True
    matches = [any(text.lower() in known for known in known_texts) for text in texts]
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
        asked = sum(text.rstrip().endswith(("?", "？", "؟")) for text in texts) / max(1, len(texts))
        length = sum(map(len, texts)) / max(1, len(texts))
        return (asked or float(column.kind == "conversation"), -length, -column.place)
    order = ("word", "text", "texts", "passages", "conversation")
    return (order.index(column.kind) if column.kind in order else -1, -column.depth, -column.place)


def _format_map(offered: dict[str, str]) -> str:
    """Format a map as flags to paste into a shell."""
    return " ".join(f"--map {shlex.quote(f'{field}={path}')}" for field, path in offered.items())


def _format_columns(samples: Sequence[RawRecord]) -> str:
    names = list(dict.fromkeys(str(key) for sample in samples for key in sample))
    return (", ".join(names[:MAX_LISTED]) + (", …" if len(names) > MAX_LISTED else "")) or "none"


def _list_metadata(samples: Sequence[RawRecord], taken: list[str]) -> list[str]:
    """List the columns that no field takes, as paths where a part of an object is taken."""
    names: dict[str, None] = {}
    for sample in samples:
        for path, value in list_paths(sample):
            above = any(path.startswith(f"{name}.") for name in names)
            inside = "[" in path or any(other.startswith((f"{path}.", f"{path}[")) for other in taken)
            root = path.split(".", 1)[0]
            starred = any(
                "*" in other and (list_numbered([path], other) or list_numbered([root], other)) for other in taken
            )
            if not (above or inside or starred or _overlaps(path, taken)) and value not in (None, ""):
                names[path] = None
    return list(names)
