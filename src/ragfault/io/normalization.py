"""Normalization of records: map columns to fields, normalize the values, and validate the trace.

Keys that belong to no field go to `metadata`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from ragfault.io.agents.message_logs import read_agent_log
from ragfault.io.citations import name_cited_chunk
from ragfault.io.field_values import (
    FIELD_NORMALIZERS,
    UNREADABLE_LIST,
    InvalidRecord,
    as_chunk_object,
    as_list,
    get_json_type,
    make_json_safe,
    name_infinity,
    normalize_flag,
    parse_cell,
)
from ragfault.io.formats.conversations import (
    ANSWER_KEYS,
    QUESTION_KEYS,
    find_role,
    find_text,
    find_turns,
    split_conversation,
)
from ragfault.io.formats.field_names import is_negated_name
from ragfault.io.formats.passages import (
    SplitMarks,
    align_joined,
    find_passages,
    split_contexts,
    split_joined,
    split_named_passages,
    split_passages,
    split_prompt,
)
from ragfault.io.formats.paths import (
    ABSENT,
    ColumnFunction,
    count_spread,
    get_path,
    get_root,
    parse_embedded,
    remove_paths,
)
from ragfault.io.formats.record_shapes import (
    NATIVE_SHAPE,
    TRACE_FIELDS,
    ColumnMap,
    RawRecord,
    RecordShape,
    convert_values,
)
from ragfault.io.formats.texts import keep_short_values, parse_list_text, says_nothing
from ragfault.io.gold_values import name_gold_texts, normalize_gold
from ragfault.io.payloads.recorded_requests import find_request
from ragfault.model.records import Chunk, Citation, ConversationTurn, Latency, Step, TokenCounts, Trace
from ragfault.model.rules import is_wordless_image, read_image
from ragfault.text.times import assume_utc

MetadataChoice = Literal["all", "short", "none"]
"""Columns that no field takes which become metadata: all, those with short values, none."""
INT64_LIMIT = 2**63
MAX_AMOUNT = 10**15
"""Milliseconds and tokens below which a trace takes: sums of squares of larger ones overflow, and say nothing."""
LISTED_RECORDS = {"chunks": Chunk, "history": ConversationTurn, "messages": ConversationTurn, "steps": Step}
"""Field of a trace → the records that it lists."""
INVALID_CHOICE = re.compile(r"^Invalid enum value .* at `\$\.(\w+)\[\d+\]\.(\w+)`$")


def normalize_record(
    record: RawRecord,
    columns: ColumnMap,
    keep: MetadataChoice = "short",
    parse_cells: bool = False,
    empty_query: bool = False,
    split: SplitMarks = "headings",
    shape: RecordShape | None = None,
) -> Trace:
    """Convert a record to a trace.

    `keep` says which columns that no field takes become metadata: all of them, those with short values, or none.
    `parse_cells` reads cells of text as the numbers and
    JSON they hold; `empty_query` allows a column of queries without text; `split` names the marks at which a text is
    split to chunks; `shape` says how a tool writes its values. The id may be left empty: naming
    such traces is for the reader, who knows the others. Raises `InvalidRecord`, with the path of the invalid value.

    >>> names = {"query": ("question",), "chunks": ("docs",)}
    >>> trace = normalize_record({"question": "When?", "docs": ["In 1040."], "tag": 3}, names)
    >>> trace.query, trace.chunks[0].id, trace.chunks[0].text, trace.metadata
    ('When?', 't-b7624af79cc7', 'In 1040.', {'tag': 3})
    """
    is_native = shape is NATIVE_SHAPE
    values, taken = _extract_values(record, columns)
    _drop_absent_chunks(values, columns)
    if shape is not None:
        values = convert_values(values, shape)
        taken += shape.drop
    _split_conversation(values)
    _split_rendered_prompt(values)
    taken += _read_agent_steps(record, values, columns, shape)
    if parse_cells:
        values = {name: parse_cell(name, value) for name, value in values.items()}
        values = {name: value for name, value in values.items() if value is not None}
    if split != "headings" and isinstance(values.get("chunks"), str):
        chunks = parse_list_text(values["chunks"])
        is_text = isinstance(chunks, str) and not UNREADABLE_LIST.match(chunks)
        values["chunks"] = split_named_passages(chunks) or split_passages(chunks, split) if is_text else chunks
    has_content = values.get("answer") is not None or any(has_path(record, path) for path in columns.get("query", ()))
    if values.get("query") is None and empty_query and has_content:
        values["query"] = ""
    if values.get("query") is None:
        names = " or ".join(f"`{path}`" for path in columns.get("query", ("query",)))
        raise InvalidRecord("field `query` is missing" + ("" if names == "`query`" else f" (column {names})"))
    if keep != "all" and not is_native and isinstance(values.get("metadata"), dict):
        values["metadata"] = keep_short_values(values["metadata"]) or {}
    fields = _build_fields(values)
    if keep != "none":
        spare = {key: value for key, value in remove_paths(record, taken).items() if value is not None}
        fields["metadata"] = {**(spare if keep == "all" else keep_short_values(spare) or {}), **fields["metadata"]}
    fields["metadata"] = make_json_safe(fields["metadata"])
    try:
        trace = msgspec.convert(fields, Trace)
    except msgspec.ValidationError as error:
        raise InvalidRecord(f"{error}{_list_choices(str(error))}") from None
    return normalize_trace(trace, check=True, empty_query=empty_query)


def _list_choices(message: str) -> str:
    """List the values that a field may have, where the message says that it has another one."""
    place = INVALID_CHOICE.search(message)
    if place is None or place[1] not in LISTED_RECORDS:
        return ""
    hint = get_type_hints(LISTED_RECORDS[place[1]])[place[2]]
    choices = [value for item in (hint, *get_args(hint)) if get_origin(item) is Literal for value in get_args(item)]
    return f": one of {', '.join(choices)}"


def describe_missing_column(field: str, path: str, available: Iterable[str]) -> str:
    """Describe that a map names a column that does not exist.

    >>> describe_missing_column("chunks", "dox", ["question", "docs"])
    'no column `dox` to read `chunks` from. Did you mean "docs"? There are: question, docs'
    """
    names = list(available)
    close = get_close_matches(path, names, n=1, cutoff=0.5)
    offer = f' Did you mean "{close[0]}"?' if close else ""
    shown = ", ".join(names[:30]) + (", …" if len(names) > 30 else "")
    return f"no column `{path}` to read `{field}` from.{offer} There are: {shown or 'none'}"


def list_column_paths(record: RawRecord) -> Iterator[str]:
    """Yield the columns of a record, and the keys of those that are objects, as dotted paths."""
    for name, value in record.items():
        yield name
        if isinstance(value, dict):
            yield from (f"{name}.{key}" for key in value)


def starts_at_column(path: str, names: Iterable[str]) -> bool:
    """Tell whether a path begins at one of these columns; a function does."""
    return isinstance(path, ColumnFunction) or bool(get_root(dict.fromkeys(names), path))


def has_path(record: RawRecord, path: str) -> bool:
    """Tell whether a path exists; null and an empty list on the way count as existing.

    >>> has_path({"docs": [{"text": None}]}, "docs.0.text"), has_path({"docs": None}, "docs.0.text")
    (True, True)
    >>> has_path({"docs": [{"text": "a"}]}, "docs.0.page"), has_path({"docs": "a"}, "docs.0")
    (False, False)
    """
    ends = (i for i, letter in enumerate(path) if letter in ".[")
    return get_path(record, path) is not ABSENT or any(get_path(record, path[:end]) in (None, []) for end in ends)


def _extract_values(record: RawRecord, columns: ColumnMap) -> tuple[dict[str, Any], list[str]]:
    """Return the value of each field, and the paths that were used as a field."""
    values: dict[str, Any] = {}
    taken: list[str] = []
    for name, paths in columns.items():
        if name == "id" and len(paths) > 1 and paths[0] == JOINED_ID:
            values[name] = _join_id(record, paths[1:])
            continue
        for path in paths:
            value = get_path(record, path)
            if value is ABSENT:
                continue
            taken.append(path)
            is_missing = value is None or (isinstance(value, float) and math.isnan(value))
            if not is_missing and not (name == "reference" and value == [] and path != name):
                values[name] = value
                if name == "answerable" and is_negated_name(path) and (flag := normalize_flag(value)) in (True, False):
                    values[name] = not flag
                break
    if isinstance(values.get("metadata"), dict):
        values["metadata"] = remove_paths(
            values["metadata"], [path.removeprefix("metadata.") for path in taken if path.startswith("metadata.")]
        )
    return values, taken


def _drop_absent_chunks(values: dict[str, Any], columns: ColumnMap) -> None:
    """Join what a path found in many places to one list of chunks, where no column stands beside it."""
    paths = columns.get("chunks", ())
    chunks = values.get("chunks")
    if not isinstance(chunks, list) or not any("*" in path or count_spread(path) for path in paths):
        return
    if not any(name.startswith("chunks.") for name in values):
        for _ in range(max(1, *map(count_spread, paths))):
            chunks = [item for chunk in chunks for item in (chunk if isinstance(chunk, list) else [chunk])]
        values["chunks"] = [item for item in chunks if item not in (None, "")]


def _read_agent_steps(
    record: RawRecord, values: dict[str, Any], columns: ColumnMap, shape: RecordShape | None
) -> list[str]:
    """Take the steps from the messages of an agent, and what no other column holds; return the columns used up."""
    log = None if values.get("steps") is not None else read_agent_log(record)
    if log is None or not log.steps:
        return []
    values["steps"] = log.steps
    roots = {name: {root for path in paths for root in get_root(record, path)} for name, paths in columns.items()}
    own = {name for name, names in roots.items() if names & set(log.columns)}
    if own & {"query", "history"}:
        own |= {name for name in ("answer", "chunks") if not roots.get(name)}
        if log.query and values.get("query") != log.query:
            values |= {"query": log.query, "history": log.history or None}
    if shape is not None and shape.chunks:
        # the format says what names a chunk: the id of a file names many
        own.discard("chunks")
    given = {"chunks": log.chunks or None, "answer": log.answer, "query": log.query}
    for name, value in given.items():
        if value is not None and (values.get(name) is None or name in own - {"query"}):
            values[name] = value
    return [name for name in log.columns if name in ("steps", "trajectory")]


JOINED_ID = "+"
"""Marks an id that is joined of several columns."""


def _join_id(record: RawRecord, paths: Sequence[str]) -> str:
    """Join the values of several columns to one id."""
    parts = [get_path(record, path) for path in paths]
    return "/".join("" if part is ABSENT or part is None else str(part) for part in parts)


def _split_conversation(values: dict[str, Any]) -> None:
    """Take the query from a conversation: its last turn of the user; earlier turns are the history.

    What follows that turn is the answer, and what tools returned the chunks, where no other column holds them.
    """
    query, history = values.get("query"), values.get("history")
    if isinstance(query, str) and query[:1] not in ("[", "{"):
        if history is not None and (turns := find_turns(history)) is not None:
            _drop_repeated_turns(values, turns)
        return
    content = history if query is None else query
    turns = None if content is None else find_turns(content)
    if turns is not None and (parts := split_conversation(turns)) is not None:
        if query is None:
            values.pop("history")
        values |= {"query": parts.pop("query"), **{k: v for k, v in parts.items() if values.get(k) is None}}
        if history is not None and query is not None and (other := find_turns(history)) is not None:
            _drop_repeated_turns(values, other)
    elif query is not None and not isinstance(query, (int, float)):
        listed = parse_list_text(query) if isinstance(query, str) else query
        # a text such as "[0]" is a query, and not a list of one
        is_plain = isinstance(query, str) and isinstance(listed, list) and not any(isinstance(i, dict) for i in listed)
        if not is_plain and (text := find_text(listed, QUESTION_KEYS)) is not None:
            values["query"] = text


def _split_rendered_prompt(values: dict[str, Any]) -> None:
    """Take question and contexts out of a query that is a whole prompt, where no column holds contexts.

    The prompt, after the turns before it, is then the request to the model.
    """
    query, history = values.get("query"), values.get("history")
    if not isinstance(query, str) or values.keys() & {"chunks", "chunks.id", "chunks.text"}:
        return
    parts = split_prompt(query)
    values["query"], values["chunks"] = parts or (query, find_system_contexts(history) or None)
    if parts is not None and values.get("messages") is None and (history is None or isinstance(history, list)):
        values["messages"] = [*(history or ()), {"role": "user", "text": query}]


def find_system_contexts(turns: Any) -> list[str]:
    """Find the passages in the prompt of the system among the turns before a question.

    >>> find_system_contexts([{"role": "system", "text": "Context:\\nThe ferry leaves at nine."}])
    ['The ferry leaves at nine.']
    """
    prompts = [turn["text"] for turn in find_turns(turns) or () if turn["role"] == "system"]
    return next((contexts for prompt in reversed(prompts) if (contexts := split_contexts(prompt))), [])


def _drop_repeated_turns(values: dict[str, Any], turns: list[dict[str, Any]]) -> None:
    """Leave the query and what follows it out of a history that repeats them."""
    parts = split_conversation(turns)
    if parts is None or parts["query"].strip() != str(values["query"]).strip():
        return
    values["history"] = parts.get("history")
    for name in ("answer", "chunks"):
        if values.get(name) is None and name in parts:
            values[name] = parts[name]


def _build_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Convert values to the fields of a trace as plain objects."""
    fields: dict[str, Any] = {name: values[name] for name in TRACE_FIELDS if name in values}
    metadata = fields.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise InvalidRecord(f"Expected `object`, got `{get_json_type(metadata)}` - at `$.metadata`")
    fields["metadata"] = dict(metadata)
    fields.update({"answer": message} if (message := _parse_message(fields.get("answer"))) is not None else {})
    if not isinstance(fields.get("answer", ""), str):
        is_blank = says_nothing(fields["answer"], ANSWER_KEYS)
        fields["answer"] = find_text(fields["answer"], ANSWER_KEYS) or ("" if is_blank else fields["answer"])
    parallel = _set_nested_fields(fields, values)
    if parallel:
        fields["chunks"] = _merge_chunk_columns(fields.get("chunks"), parallel)
    for name, form in FIELD_NORMALIZERS.items():
        if fields.get(name) is not None:
            fields[name] = form(fields[name])
    fields |= find_request(fields)
    if fields.get("gold") is not None:
        fields["gold"] = normalize_gold(fields["gold"])
    if isinstance(values.get("gold"), (str, list)) and isinstance(fields["gold"].get("chunks"), dict):
        fields["gold"]["chunks"] = name_gold_texts(fields["gold"]["chunks"], fields.get("chunks") or [])
    if isinstance(fields.get("citations"), list):
        fields["citations"] = [name_cited_chunk(item, fields.get("chunks") or []) for item in fields["citations"]]
    _keep_extra_keys(fields)
    fields.setdefault("id", "")
    return fields


def _parse_message(answer: Any) -> Any:
    """Parse an answer that is the JSON of a message, or of a list of messages; None for anything else."""
    if not isinstance(answer, str) or answer[:1] not in ("{", "["):
        return None
    parsed = parse_embedded(answer)
    messages = parsed if isinstance(parsed, list) else [parsed]
    are_messages = messages and all(isinstance(item, dict) and find_role(item.get("role")) for item in messages)
    return parsed if are_messages else None


def _set_nested_fields(fields: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Put values such as `latency.total` into their fields; those of `chunks` come back, for all at once."""
    parallel: dict[str, Any] = {}
    for name, value in values.items():
        field, _, part = name.partition(".")
        if field == "chunks" and part:
            parallel[part] = value
        elif part:
            inner = fields.get(field)
            fields[field] = {**(inner if isinstance(inner, dict) else {}), part: value}
    return parallel


def _keep_extra_keys(fields: dict[str, Any]) -> None:
    """Keep keys that latency, tokens, citations, history and steps do not have as metadata, lists as lists."""
    for field, record in (("latency", Latency), ("tokens", TokenCounts)):
        inner = fields.get(field)
        if isinstance(inner, dict):
            for key in sorted(inner.keys() - set(record.__struct_fields__), key=str):
                _keep_short(fields["metadata"], f"{field}.{key}", inner[key])
    for field, kind in (
        ("citations", Citation),
        ("history", ConversationTurn),
        ("messages", ConversationTurn),
        ("steps", Step),
    ):
        parts = [item if isinstance(item, dict) else {} for item in fields.get(field) or ()]
        for key in dict.fromkeys(key for part in parts for key in part):
            if key not in kind.__struct_fields__:
                _keep_short(fields["metadata"], f"{field}.{key}", [part.get(key) for part in parts])


def _keep_short(metadata: dict[str, Any], name: str, value: Any) -> None:
    if (short := keep_short_values(value)) is not None:
        metadata[name] = short


def _merge_chunk_columns(chunks: Any, parallel: dict[str, Any]) -> list[Any]:
    """Merge parallel columns of lists into chunks; documents of which nothing else is recorded are their ids, too."""
    if chunks is None and "document" in parallel and "text" not in parallel:
        parallel = {"id": parallel["document"], **parallel}
    cell = "|||".join(chunks) if _are_texts(chunks) else chunks
    for name, values in parallel.items():
        if isinstance(cell, str) and isinstance(values, str) and (aligned := align_joined(cell, values)) is not None:
            chunks, parallel = aligned[0], {**parallel, name: aligned[1]}
    rows = [dict(as_chunk_object(chunk)) for chunk in _list_passages(chunks)] if chunks is not None else []
    for item, values in parallel.items():
        column = _list_passages(values)
        if isinstance(values, str):
            column = split_joined(values, len(rows) or None) or column
        if rows and len(column) != len(rows):
            raise InvalidRecord(f"{len(column)} values for `chunks.{item}` and {len(rows)} chunks - at `$.chunks`")
        rows = rows or [{} for _ in column]
        for row, value in zip(rows, column, strict=True):
            row[item] = value
    return [row for row in rows if any(value not in (None, "") for value in row.values())]


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _list_passages(value: Any) -> list[Any]:
    """List the values of a parallel column, or its passages."""
    matches = find_passages(value)
    return matches if matches is not None else as_list(value)


def normalize_trace(trace: Trace, check: bool = False, empty_query: bool = False) -> Trace:
    """Give the time an offset and images their words, unwrap a tuple of one reference, replace an empty error by None.

    A time without an offset is taken as UTC. `check` also looks at its numbers and texts, for records that no JSON
    reader has seen, and replaces Infinity and NaN in metadata; `empty_query` allows a query without text.
    """
    if check:
        own = [chunk.metadata and name_infinity(chunk.metadata) for chunk in trace.chunks or ()]
        if any(own):
            chunks = zip(trace.chunks or (), own, strict=True)
            trace = replace(trace, chunks=tuple(replace(chunk, metadata=data) for chunk, data in chunks))
        trace = replace(trace, metadata=name_infinity(trace.metadata)) if trace.metadata else trace
        check_values(trace, empty_query)
    if trace.time is not None and trace.time.tzinfo is None:
        trace = replace(trace, time=assume_utc(trace.time))
    if any(is_wordless_image(chunk) for chunk in trace.chunks or ()):
        trace = replace(trace, chunks=tuple(map(read_image, trace.chunks or ())))
    if type(trace.reference) is tuple and len(trace.reference) == 1:
        trace = replace(trace, reference=trace.reference[0])
    if trace.error == "":
        trace = replace(trace, error=None)
    return trace


def check_values(trace: Trace, empty_query: bool = False) -> None:
    """Raise `InvalidRecord` for an empty query, NaN, numbers out of range, and texts with a lone surrogate."""
    if not empty_query and not trace.query.strip():
        raise InvalidRecord("field `query` is empty")
    for field, at, value in _iterate_numbers(trace):
        if value is None or 0 <= value < MAX_AMOUNT:
            continue
        place = field.format(at)
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidRecord(f"{'NaN' if math.isnan(value) else 'Infinity'} is not a number - at `$.{place}`")
        if isinstance(value, int) and not -INT64_LIMIT <= value < INT64_LIMIT:
            raise InvalidRecord(f"Number out of range - at `$.{place}`")
        if place.startswith(("latency.", "steps[", "tokens.", "turn", "attempt")) and (
            value < 0 or not place.endswith("start")
        ):
            what = "less than nothing" if value < 0 else "more than any trace takes"
            raise InvalidRecord(f"{value} is {what} - at `$.{place}`")
    try:
        msgspec.msgpack.encode(trace)
    except UnicodeEncodeError:
        raise InvalidRecord("a text holds half a character (a lone surrogate, as in \\ud800)") from None
    except (OverflowError, RecursionError):
        pass


def _iterate_numbers(trace: Trace) -> Iterable[tuple[str, int | str, float | int | None]]:
    """Yield each number with its place, as a format and what it takes: few places are ever named."""
    for index, chunk in enumerate(trace.chunks or ()):
        yield "chunks[{}].score", index, chunk.score
        yield "chunks[{}].start", index, chunk.start
        yield "chunks[{}].end", index, chunk.end
    if trace.gold:
        yield from (("gold.chunks[{}]", name, grade) for name, grade in trace.gold.chunks.items())
        for index, span in enumerate(trace.gold.spans):
            yield from ((f"gold.spans[{{}}].{item}", index, getattr(span, item)) for item in ("start", "end", "grade"))
    if trace.latency is not None:
        yield from ((f"latency.{item}", "", getattr(trace.latency, item)) for item in Latency.__struct_fields__)
    if trace.tokens is not None:
        yield from ((f"tokens.{item}", "", getattr(trace.tokens, item)) for item in TokenCounts.__struct_fields__)
    for index, step in enumerate(trace.steps or ()):
        yield "steps[{}].start", index, step.start
        yield "steps[{}].duration", index, step.duration
        if step.tokens is not None:
            yield "steps[{}].tokens.prompt", index, step.tokens.prompt
            yield "steps[{}].tokens.completion", index, step.tokens.completion
    yield "turn", "", trace.turn
    yield "attempt", "", trace.attempt
