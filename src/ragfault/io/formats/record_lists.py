"""Lists of records: the ones within a document, and the rows of one query joined to its record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ragfault.io.field_values import InvalidRecord, to_number
from ragfault.io.formats.conversations import QUESTION_KEYS, find_text, has_roles
from ragfault.io.formats.field_names import rank_fields
from ragfault.io.formats.field_words import join_words, split_words
from ragfault.io.formats.passages import TEXT_KEY_RANKS, classify
from ragfault.io.formats.paths import ABSENT, get_path, list_paths, parse_embedded
from ragfault.io.formats.record_shapes import NATIVE_SHAPE, detect_shape
from ragfault.io.formats.turn_records import find_turn_key
from ragfault.model.grouping import group_positions

RawRecord = dict[str, Any]
MAX_DEPTH = 5
"""Deepest list of records within a document."""
PLURALS = {"queries": "query", "questions": "question", "inputs": "input", "prompts": "prompt"}
TABLE_KEYS = (
    ("columns", "data"), ("columns", "rows"), ("columns", "values"), ("header", "rows"), ("headers", "rows"),
)  # fmt: skip
"""Keys of the names of the columns of a table, and of its rows."""
ROW_NAMES = frozenset(
    ("rank", "position", "pid", "docid", "passageid", "chunkid", "documentid", "contextid", "nodeid", "docrank")
)
"""Names of columns that tell the rows of one query apart."""


class CallKeys(NamedTuple):
    """Columns of rows that are calls: the trace, the call and the call above it."""

    trace: str
    call: str
    parent: str


def find_call_keys(samples: Sequence[RawRecord]) -> CallKeys | None:
    """Find the columns that tell of which trace and below which call a row is; None where rows are no calls of traces.

    >>> row = {"trace_id": "t", "id": "a", "parent_id": None, "inputs": {"question": "When?"}}
    >>> find_call_keys([row, {**row, "id": "b", "parent_id": "a"}])
    CallKeys(trace='trace_id', call='id', parent='parent_id')
    """
    names = {join_words(key): key for row in samples for key in row}
    trace = names.get("rootspanid") or names.get("traceid")
    call = names.get("spanid") or names.get("callid") or names.get("id")
    parent = names.get("parentid") or names.get("parentspanid") or names.get("spanparents") or names.get("parentcallid")
    if trace is None or call is None or parent is None:
        return None
    keys = CallKeys(trace, call, parent)
    call_ids = {str(row.get(call)) for row in samples}
    return keys if any(get_parent(row, keys) in call_ids for row in samples) else None


def get_parent(row: RawRecord, keys: CallKeys) -> str | None:
    """Return the call that a row is below, or None."""
    parent = row.get(keys.parent)
    parent = parent[0] if isinstance(parent, list) and parent else parent
    return None if parent in (None, "", []) else str(parent)


def is_record(value: RawRecord, query_paths: Sequence[str] = ()) -> bool:
    """Tell whether an object is a record: its query is there by name, or a conversation is.

    >>> is_record({"inputs": {"question": "When?"}}), is_record({"version": 2, "rows": [{"question": "When?"}]})
    (True, False)
    """
    if any(get_path(value, path) is not ABSENT for path in query_paths) or find_turn_key(value) is not None:
        return True
    for path, content in list_paths(value):
        fields = [] if "[" in path else [field for field, _ in rank_fields(path)]
        kind = classify(content) if "query" in fields or "history" in fields else ""
        if kind == "conversation" or ("query" in fields and kind in ("text", "word")):
            return True
        parts = content if isinstance(content, list) else [content]
        names = {str(key) for part in parts if isinstance(part, dict) for key in part} - {"content", "text"}
        own_names = any(map(rank_fields, names))
        if (
            "query" in fields
            and kind in ("object", "passages")
            and not own_names
            and find_text(content, QUESTION_KEYS) is not None
        ):
            return True
    return False


def is_record_line(head: bytes, query_paths: Sequence[str] = ()) -> bool:
    """Tell whether the first of several lines is a record, though it has a list under a usual key such as `results`.

    >>> is_record_line(b'{"item": {"question": "When?"}, "results": [{"score": 1}]}\\n{}')
    True
    >>> is_record_line(b'{"prompt": "p", "results": [{"question": "When?"}]}\\n{}')
    False
    """
    line, end, rest = head.partition(b"\n")
    value = parse_embedded(line.decode("utf-8", "replace")) if end and rest.strip() else None
    if not isinstance(value, dict) or not is_record(value, query_paths):
        return False
    return not any(isinstance(item, list) and expand_document(item, query_paths) for item in value.values())


def expand_document(value: Any, query_paths: Sequence[str] = (), depth: int = 0) -> list[RawRecord] | None:
    """Expand a document to the records it lists; None where it is a record itself or lists none.

    A list of records may lie under any key, its objects below ids; a table may be written by its columns, or as their
    names beside lists of cells. Texts and numbers that stand above a list belong to each of its records.

    >>> expand_document({"run": 3, "entries": [{"question": "When?"}]})
    [{'run': 3, 'question': 'When?'}]
    >>> expand_document({"question": ["When?", "Who?"], "answer": ["In 1040.", "Harald."]})[1]
    {'question': 'Who?', 'answer': 'Harald.'}
    """
    if depth > MAX_DEPTH or not isinstance(value, (dict, list)):
        return None
    if isinstance(value, list):
        return _expand_list(value, query_paths, depth)
    for expand in (_read_cells, _read_column_lists, _read_objects_by_id):
        if rows := expand(value):
            return _expand_list(rows, query_paths, depth)
    is_answered = any(_holds_answer(key, item) for key, item in value.items())
    is_bare = not is_answered and not has_query_text(value)
    for key, item in value.items() if is_bare else ():
        if isinstance(item, list) and all(isinstance(row, dict) for row in item) and find_call_keys(item):
            # the calls of traces, which are joined later
            return _inherit(value, key, item)
    by_ids = is_bare and any(map(_holds_objects_by_id, value.values()))
    if is_answered or (not by_ids and is_record(value, query_paths)):
        return None
    groups: dict[str, list[RawRecord]] = {}
    for key, item in value.items():
        inner = expand_document(item, query_paths, depth + 1) if isinstance(item, (dict, list)) else None
        if inner:
            groups[key] = _inherit(value, key, inner)
    return _join_groups(groups) or None


def _join_groups(groups: dict[str, list[RawRecord]]) -> list[RawRecord]:
    """Join the lists of records of one document: those that say most, each with its key as the route.

    A list of tests or a summary next to the results of a run is not more records.

    >>> asked = [{"id": 1, "question": "When?"}]
    >>> answered = [{**asked[0], "answer": "In 1040."}]
    >>> _join_groups({"tests": asked, "results": answered})
    [{'id': 1, 'question': 'When?', 'answer': 'In 1040.'}]
    >>> [(row["id"], row["route"]) for row in _join_groups({"bm25": answered, "dense": answered})]
    [('bm25/1', 'bm25'), ('dense/1', 'dense')]
    """
    if len(groups) > 1:
        ranks = {key: _rank_rows(rows) for key, rows in groups.items()}
        groups = {key: rows for key, rows in groups.items() if ranks[key] == max(ranks.values())}
    rows = [row for part in groups.values() for row in part]
    is_shared = share_ids(groups.values())
    if len(groups) < 2 or (len(groups) > MAX_ROUTES and not is_shared):
        return rows
    return [mark_row(key, row) if is_shared else {"route": key, **row} for key, part in groups.items() for row in part]


def _is_id_field(key: str) -> bool:
    return "id" in {field for field, _ in rank_fields(key)[:1]}


def holds_records(document: RawRecord, path: str) -> bool:
    """Tell whether a path of a document leads to, or into, a list of records.

    >>> document = {"run": {"tests": [{"vars": {"question": "When?"}}]}, "tags": [{"name": "a"}]}
    >>> holds_records(document, "run.tests[].vars"), holds_records(document, "tags[].name")
    (True, False)
    """
    value = get_path(document, path.partition("[]")[0])
    return isinstance(value, list) and expand_document(value) is not None


def _rank_rows(rows: Sequence[RawRecord]) -> tuple[bool, int]:
    """Rank a list of records: whether it has the layout of a tool, and how much of a trace its records say."""
    shape = detect_shape(rows[0], rows[:1])
    fields = {
        field
        for path, content in list_paths(rows[0])
        for field, _ in rank_fields(path)[:1]
        if content not in (None, "", [])
    }
    return shape is not None and shape is not NATIVE_SHAPE, len(fields & CONTENT_FIELDS)


def _holds_answer(name: str, value: Any) -> bool:
    """Tell whether a value is the answer of a record, which none of the records below it could take over."""
    return isinstance(value, str) and classify(value) == "text" and "answer" in {f for f, _ in rank_fields(name)[:1]}


def _inherit(value: RawRecord, key: str, rows: Sequence[RawRecord]) -> list[RawRecord]:
    """Return the rows below a key with what stands above them."""
    above = {name: content for name, content in value.items() if name != key and _is_inherited(name, content)}
    return [{**above, **row} for row in rows]


def _is_inherited(name: str, value: Any) -> bool:
    """Tell whether what stands above a list belongs to its records: no object, and no query or answer."""
    fields = {field for field, _ in rank_fields(name)[:1]}
    return isinstance(value, (str, int, float, bool)) and not fields & {"query", "answer", "reference", "time", "id"}


def _expand_list(rows: list[Any], query_paths: Sequence[str], depth: int) -> list[RawRecord] | None:
    """Return the rows that are records, and those within rows that hold some."""
    if not rows or not all(isinstance(row, dict) for row in rows) or has_roles(rows):
        return None
    lists: list[list[RawRecord]] = []
    for row in rows:
        inner = [row] if is_record(row, query_paths) else expand_document(row, query_paths, depth + 1)
        if inner is None:
            return None
        lists.append(inner)
    key = find_group_key(rows, lists)
    marked = (
        [mark_row(row[key], part) for part in inner] if key else inner for row, inner in zip(rows, lists, strict=True)
    )
    return [part for inner in marked for part in inner]


MAX_ROUTES = 12
"""Lists of records in one object from which on its keys are ids, and name no routes."""


def find_group_key(rows: Sequence[RawRecord], lists: Sequence[Sequence[RawRecord]]) -> str | None:
    """Find what names each of several rows, if the lists of records within them share ids: a text that always differs.

    >>> runs = [{"provider": name, "queries": [{"id": 1, "question": "When?"}]} for name in "ab"]
    >>> find_group_key(runs, [run["queries"] for run in runs])
    'provider'
    """
    if len(rows) < 2 or not share_ids(lists):
        return None
    texts = {key: {row.get(key) for row in rows if isinstance(row.get(key), str)} for key in rows[0]}
    return next((key for key, values in texts.items() if len(values) == len(rows)), None)


def share_ids(lists: Iterable[Sequence[RawRecord]]) -> bool:
    """Tell whether an id stands in several lists of records."""
    ids = [{str(row[key]) for row in rows for key in filter(_is_id_field, row)} for rows in lists]
    return len(set().union(*ids)) < sum(map(len, ids))


def mark_row(name: str, row: RawRecord) -> RawRecord:
    """Put the name of its list into the id and the route of a record.

    >>> mark_row("dense", {"qid": 1, "question": "When?"})
    {'route': 'dense', 'qid': 'dense/1', 'question': 'When?'}
    """
    return {"route": name, **row, **{key: f"{name}/{row[key]}" for key in list(filter(_is_id_field, row))[:1]}}


def _read_cells(value: RawRecord) -> list[RawRecord] | None:
    """Read a table that is written as the names of its columns beside lists of cells."""
    for names_key, rows_key in TABLE_KEYS:
        names, rows = value.get(names_key), value.get(rows_key)
        if isinstance(names, list):
            names = [name.get("name") if isinstance(name, dict) else name for name in names]
        if not (isinstance(names, list) and isinstance(rows, list) and all(isinstance(name, str) for name in names)):
            continue
        if rows and all(isinstance(row, list) and len(row) == len(names) for row in rows):
            return [dict(zip(names, row, strict=True)) for row in rows]
    return None


def _read_column_lists(value: RawRecord) -> list[RawRecord] | None:
    """Read a table that is written by its columns: lists, or objects by the ids of the rows."""
    for name, content in value.items():
        plain = PLURALS.get(name.lower(), name)
        if not any(field == "query" for field, _ in rank_fields(plain)):
            continue
        if isinstance(content, list) and classify(content) in ("texts", "words"):
            columns = {key: item for key, item in value.items() if isinstance(item, list) and len(item) == len(content)}
            if len(columns) > 1:
                rest = {key: item for key, item in value.items() if _is_inherited(key, item)}
                rows = [{key: item[i] for key, item in columns.items()} for i in range(len(content))]
                return [{**rest, **{(plain if k == name else k): v for k, v in row.items()}} for row in rows]
        if isinstance(content, dict) and content and all(isinstance(item, str) for item in content.values()):
            tables = {
                key: item for key, item in value.items() if isinstance(item, dict) and item.keys() & content.keys()
            }
            if len(tables) > 1 and not any(_is_field_name(row) for row in content):
                return [
                    {"id": row, **{(plain if key == name else key): item.get(row) for key, item in tables.items()}}
                    for row in content
                ]
    return None


def _read_objects_by_id(value: RawRecord) -> list[RawRecord] | None:
    """Read records that are the values of an object, by their ids."""
    parts = list(value.values())
    if len(parts) < 2 or not all(isinstance(part, dict) for part in parts) or any(map(_is_field_name, value)):
        return None
    rows = {key: part for key, part in value.items() if is_record(part)}
    if len(rows) < max(2, RECORD_SHARE * len(parts)) or any(map(_holds_objects_by_id, parts)):
        return None
    value, parts = rows, list(rows.values())
    shared = set.intersection(*(set(part) for part in parts))
    return [{"id": key, **item} for key, item in value.items()] if 2 * len(shared) >= len(parts[0]) else None


RECORD_SHARE = 0.9
"""Objects of which at least this share are records are records by their ids; others sum them up."""


def _holds_objects_by_id(value: Any, depth: int = 0) -> bool:
    """Tell whether an object, or one below it, is records by their ids."""
    if not isinstance(value, dict) or depth > MAX_DEPTH or not any(isinstance(part, dict) for part in value.values()):
        return False
    parts = (_holds_objects_by_id(part, depth + 1) for part in value.values())
    return any(parts) or _read_objects_by_id(value) is not None


def _is_field_name(key: str) -> bool:
    """Tell whether a key names a field or a text, so that it is no id."""
    return bool(rank_fields(str(key))) or join_words(str(key)) in TEXT_KEY_RANKS


def has_query_text(record: RawRecord) -> bool:
    """Tell whether a record has a text that is a query by its name."""
    return any(
        isinstance(item, str) and any(field == "query" for field, _ in rank_fields(key)) for key, item in record.items()
    )


class RowGroups(NamedTuple):
    """Columns by which the rows of one query, one for each passage, are recognised and joined."""

    query: str
    chunks: str
    key: tuple[str, ...]
    """Columns that are equal in all rows of a record."""
    varying: frozenset[str]
    """Columns that belong to a passage."""
    once: frozenset[str]
    """Columns of the record that one of its rows may hold alone, such as the answer."""


def find_row_groups(samples: Sequence[RawRecord], columns: dict[str, tuple[str, ...]]) -> RowGroups | None:
    """Find out whether rows are passages of a query: consecutive rows repeat the query and differ in one passage.

    >>> rows = [{"qid": 1, "q": "When?", "passage": "a b c"}, {"qid": 1, "q": "When?", "passage": "d e f"}]
    >>> find_row_groups(rows, {"id": ("qid",), "query": ("q",), "chunks": ("passage",)}).key
    ('qid', 'q')
    """
    content = {
        field: next((p for p in paths if any(p in row for row in samples)), None) for field, paths in columns.items()
    }
    query, chunks, name = content.get("query"), content.get("chunks"), content.get("id")
    attempt = content.get("attempt")
    if query is None or chunks is None:
        return None
    texts = [row.get(chunks) for row in samples]
    if not all(
        text is None or (isinstance(text, str) and classify(text) in ("text", "word", "empty")) for text in texts
    ):
        return None
    runs = _split_runs(samples, query)
    pairs = [pair for run in runs for pair in pairwise(run)]
    once = frozenset(p for field in ("answer", "reference") if (p := content.get(field)))
    if not any(first.get(chunks) != second.get(chunks) for first, second in pairs):
        return None
    varying = {key for first, second in pairs for key in second if first.get(key) != second.get(key)}
    varying -= once | {chunks, attempt or ""}
    rows_named = {key for key in samples[0] if "".join(split_words(key)) in ROW_NAMES}
    differs = any(_differ(first, second, once) for first, second in pairs)
    is_own_trace = name in varying and not varying & rows_named - {name} and not _has_query_id(runs, name or "")
    if name is not None and is_own_trace and (differs or not _has_group_id(runs, name)):
        return None
    if name is None and not varying & rows_named and differs:
        return None
    key = tuple(dict.fromkeys(item for item in (name, attempt, query) if item and item not in varying))
    return RowGroups(query, chunks, key, frozenset(varying | rows_named - set(key)), once)


def _split_runs(samples: Sequence[RawRecord], query: str) -> list[list[RawRecord]]:
    runs: list[list[RawRecord]] = []
    for row in samples:
        if runs and row.get(query) is not None and runs[-1][-1].get(query) == row.get(query):
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _has_query_id(runs: list[list[RawRecord]], name: str) -> bool:
    """Tell whether another column than `name` names the queries."""
    keys = [key for key in runs[0][0] if key != name and any(field == "id" for field, _ in rank_fields(key))]
    return any(all(len({str(row.get(key)) for row in run}) == 1 for run in runs) for key in keys)


def _has_group_id(runs: list[list[RawRecord]], name: str) -> bool:
    """Tell whether some id is the same in all rows of a query and differs between queries, such as `source_id`."""
    keys = [key for key in runs[0][0] if key != name and split_words(key)[-1:] == ("id",)]
    keys = [key for key in keys if not set(split_words(key)) & {"user", "session", "conversation", "thread", "tenant"}]
    values = {key: [{str(row.get(key)) for row in run} for run in runs] for key in keys}
    return len(runs) > 1 and any(
        all(len(ids) == 1 for ids in groups) and len(set.union(*groups)) == len(runs) for groups in values.values()
    )


def _differ(first: RawRecord, second: RawRecord, columns: Iterable[str]) -> bool:
    return any(first.get(key) and second.get(key) and first[key] != second[key] for key in columns)


def join_rows(
    rows: Iterable[tuple[int, Any]], groups: RowGroups, parse: Callable[[Any], RawRecord]
) -> Iterator[tuple[int, Any]]:
    """Join consecutive rows of one query to a record with the list of its passages."""
    seen: set[int] = set()
    open_rows: list[RawRecord] = []
    first = 0
    for number, payload in rows:
        try:
            row = payload if number == 0 else parse(payload)
        except InvalidRecord:
            row = None
        if number == 0 or row is None:
            yield number, payload
            continue
        same = open_rows and all(open_rows[0].get(key) == row.get(key) for key in groups.key)
        if same and not any(_differ(before, row, groups.once) for before in open_rows):
            open_rows.append(row)
            continue
        if open_rows:
            yield first, _join_group(open_rows, groups)
        mark = hash(tuple(str(row.get(key)) for key in (*groups.key, *groups.once)))
        if mark in seen:
            yield number, InvalidRecord("rows of this query are above already: sort the file by its query")
            open_rows = []
            continue
        seen.add(mark)
        open_rows, first = [row], number
    if open_rows:
        yield first, _join_group(open_rows, groups)


MAX_OPEN_EVENTS = 1000
"""Most requests whose further lines are waited for."""
CONTENT_FIELDS = frozenset(("query", "chunks", "answer"))
ID_WORDS = frozenset(("id", "uuid", "guid", "req", "request", "trace", "correlation", "session", "call"))


def find_event_key(samples: Sequence[RawRecord]) -> str | None:
    """Find the id that joins lines which are the steps of one request: one asks, others retrieve and answer.

    >>> lines = [{"req": "id-1", "question": "When?"}, {"req": "id-1", "answer": "In 1040."}]
    >>> find_event_key(lines), find_event_key([{"id": "1", "question": "When?", "answer": "In 1040."}])
    ('req', None)
    """
    if any(row.keys() >= {"event_id", "sample_id", "data"} for row in samples):
        # a log of OpenAI's evals
        return "sample_id"
    parts = [{key: field for key in row if (field := _find_content(key, row[key]))} for row in samples]
    asking = [i for i, fields in enumerate(parts) if "query" in fields.values()]
    if not asking or len(asking) == len(samples) or not any(parts[p] for p in range(len(samples)) if p not in asking):
        return None
    for key in sorted(samples[0], key=lambda key: not _is_id_name(key)):
        if not all(isinstance(row.get(key), (str, int)) for row in samples):
            continue
        groups = group_positions(row[key] for row in samples)
        fields = [[field for place in places for field in parts[place].values()] for places in groups.values()]
        asked = sum("query" in group for group in fields)
        several = sum(len(places) > 1 for places in groups.values())
        if (
            all(len(set(group)) == len(group) for group in fields)
            and 2 * asked > len(groups)
            and 2 * several > len(groups)
        ):
            return key
    return None


def _is_id_name(key: str) -> bool:
    return bool(set(split_words(key)) & ID_WORDS) or any(field == "id" for field, _ in rank_fields(key))


def _find_content(key: str, value: Any) -> str | None:
    field = next((field for field, _ in rank_fields(key)[:1]), None)
    return field if field in CONTENT_FIELDS and value not in (None, "") else None


def join_events(
    rows: Iterable[tuple[int, Any]], key: str, parse: Callable[[Any], RawRecord]
) -> Iterator[tuple[int, Any]]:
    """Join the lines of each request to one record, also where others stand between; the first value counts."""
    waiting: dict[Any, tuple[int, RawRecord]] = {}
    for number, payload in rows:
        try:
            row = payload if number == 0 else parse(payload)
        except InvalidRecord:
            row = None
        if not isinstance(row, dict) or row.get(key) is None:
            # of such a log
            if not isinstance(row, dict) or row.keys().isdisjoint(("spec", "final_report")):
                yield number, payload
            continue
        first, record = waiting.pop(row[key], (number, {}))
        if any(name in record and _find_content(name, value) == "query" for name, value in row.items()):
            # the id asks again
            yield first, record
            first, record = number, {}
        inner = {k: {**row[k], **v} for k, v in record.items() if isinstance(v, dict) and isinstance(row.get(k), dict)}
        waiting[row[key]] = first, {**row, **record, **inner}
        if len(waiting) > MAX_OPEN_EVENTS:
            yield waiting.pop(next(iter(waiting)))
    yield from waiting.values()


def _join_group(rows: list[RawRecord], groups: RowGroups) -> RawRecord:
    """Join rows: what varies belongs to the passages, the rest to the record."""
    record: RawRecord = {}
    shared = {groups.chunks, *groups.key, *groups.once}
    varying = groups.varying | {
        key for row in rows for key in row if key not in shared and row[key] != rows[0].get(key)
    }
    for row in rows:
        for key, value in row.items():
            if key not in varying and record.get(key) in (None, ""):
                record[key] = value
    passages = []
    for row in rows:
        if row.get(groups.chunks) in (None, ""):
            continue
        spare = {key: value for key, value in row.items() if key in varying and value is not None}
        passages.append({**{_name_part(key): value for key, value in spare.items()}, "text": row[groups.chunks]})
    if passages and all(isinstance(to_number(item.get("rank")), float) for item in passages):
        passages.sort(key=lambda part: to_number(part["rank"]) or 0.0)
    return {**record, groups.chunks: passages}


def _name_part(key: str) -> str:
    words = split_words(key)
    if words and words[-1] in ("score", "similarity"):
        return "score"
    return "rank" if words and words[-1] in ("rank", "position") else key
