"""Reader of traces: stream the traces of files or tables, or count, check and fingerprint them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import partial
from hashlib import blake2b
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import replace

from ragfault.io import files
from ragfault.io.accounts import UnreadPaths
from ragfault.io.agents.calls import join_calls
from ragfault.io.agents.crew_logs import are_crew_records, join_crew_tasks
from ragfault.io.citations import read_citations
from ragfault.io.decoder import EMPTY_TRACE, NoticeCallback, ReadOptions, TraceDecoder
from ragfault.io.documents import join_chunk_texts
from ragfault.io.error_collector import ErrorCollector, OnBad, TraceLocations, Uniqueness
from ragfault.io.field_values import InvalidRecord, build_plain_row, check_depth
from ragfault.io.files import MAX_LINE, InputPaths, describe_type, iterate_inputs
from ragfault.io.formats import record_shapes, tables
from ragfault.io.formats.columns import parse_column_map
from ragfault.io.formats.reading_examples import ReadLeaf
from ragfault.io.formats.record_lists import (
    expand_document,
    find_call_keys,
    find_event_key,
    find_group_key,
    find_row_groups,
    join_events,
    join_rows,
    mark_row,
)
from ragfault.io.formats.turn_records import expand_answers, expand_rows, expand_turns, find_answer_lists, find_turn_key
from ragfault.io.normalization import normalize_trace
from ragfault.io.otel.exported_spans import read_parquet_span_rows
from ragfault.io.otel.span_buffer import SpanFileReader, contains_spans
from ragfault.io.payloads.file_payloads import iterate_payloads
from ragfault.io.payloads.json_records import parse_record
from ragfault.io.payloads.typed_values import has_typed_values, unwrap_rows
from ragfault.model.errors import MAX_BAD_LINES_SHOWN, BadLine, InputError, UnknownName
from ragfault.model.records import Citation, Trace


def read_traces(  # noqa: PLR0913 - the options of one verb
    where: InputPaths | tables.TableLike | Iterable[Mapping[str, Any] | Trace],
    *,
    map: Mapping[str, str | Callable[[Any], Any]] | str | Path | None = None,
    shape: str | None = None,
    qrels: str | os.PathLike[str] | None = None,
    on_bad: OnBad = "raise",
    notice: NoticeCallback | None = None,
    max_line: int = MAX_LINE,
    labeled: bool = False,
    locations: TraceLocations | None = None,
    encoding: str | None = None,
    turns: Literal["auto", "last", "each"] = "auto",
    id_from: str | None = None,
    documents: InputPaths | None = None,
    unique: Uniqueness = "attempt",
    accept_unread: bool = False,
    unread: UnreadPaths | None = None,
    on_example: Callable[[tuple[ReadLeaf, ...]], object] | None = None,
) -> Iterator[Trace]:
    """Yield the traces of one or many files, in order, as a stream with a memory need that does not grow.

    `where` is a path, `-` for standard input, a directory, a glob, or a list of these; or in memory: a frame of pandas
    or polars, a dataset of Hugging Face, a table of Arrow, or records as dicts. Files are JSON Lines
    (plain, gzip, Zstandard), a JSON array, CSV, TSV, Parquet, Arrow, or a TREC run (with `qrels`).

    `map` says which foreign column is which field (a dict, or the path of a TOML file); without it the shape is
    recognised from the first record and reported to `notice`, or forced by `shape`. Without a map, columns that no
    field takes are kept in `metadata`; with one, only what it names and what the shape knows is read. `labeled` reads
    a set with labels of people: all columns are kept, each row stays a trace, no column is asked about, and a query may
    be empty. A chunk without an id is named by its text, a trace without one by its query: `q-`, 12 hex digits, and
    from the second trace of the same query on `#2`, `#3` … in their order. A time without an offset is taken as UTC.

    Bad lines never stop the reading. `on_bad="raise"` yields every good trace and then raises `BadTraces`, with the
    first 20 bad lines, the first of each further kind, and the count of all; a callable gets each bad line as it comes,
    with the text of the line; "skip" leaves them out. A line of more than `max_line` bytes is bad, and so is the end of
    a truncated file. `encoding` names that of text files which are not UTF-8; `turns="each"` makes every turn of a
    conversation a trace, "last" the last one, "auto" every turn if earlier turns have chunks of their own.
    `id_from` names the columns that ids are made of, joined by commas, or "line".

    Every leaf of a foreign record is read as a field, kept as metadata, or not read. Metadata are short values, and
    objects and lists of these: no text of more than 80 characters, unless it is an address, and no list of objects.
    `unread` is filled with the paths of all that is not read; the first line to `notice` lists those with the most
    text. Text that looks like chunks, answers or queries and is not read is an `InputError`, unless `accept_unread`
    allows it, or a map or a complete shape says what is read.
    `on_example` is called once with the leaves of the first record and their places in its trace; spans have none.
    `locations` is filled with the file and line of each trace by its id. Chunks that have an id and no text get that of
    the document with this id in `documents`, a corpus as `read_documents` takes it. A trace whose `id` and `attempt`
    another one has is a bad line; `unique="id"` allows one attempt of each query, `unique="none"` any repetition.

    Raises `InputError` for files that are not there, cannot be read, are empty or not recognised, and for a
    column of `map` that is not in a table, or in no record of the whole input; `UnknownName` for a shape or map
    key that does not exist – both before the first trace where they can.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "old.jsonl"
    >>> _ = path.write_text('{"user_input": "When?", "retrieved_contexts": ["In 1040."], "response": "1040"}')
    >>> [trace] = read_traces(path, notice=print)
    read as Ragas (query: user_input, chunks: retrieved_contexts, answer: response)
    >>> trace.query, trace.chunks[0].text, trace.answer
    ('When?', 'In 1040.', '1040')
    """
    if not callable(on_bad) and on_bad not in ("raise", "skip"):
        raise UnknownName("way to treat bad lines", str(on_bad), ["raise", "skip", "a callable"])
    plan = ReadOptions(
        parse_column_map(map),
        record_shapes.get_shape(shape) if shape and shape != "trec" else None,
        notice,
        max_line,
        labeled,
        encoding,
        turns,
        id_from,
        accept_unread,
        {} if unread is None else unread,
        on_example,
    )
    traces = _read_input(where, plan, ErrorCollector(on_bad, locations, unique=unique), shape == "trec", qrels)
    if documents is not None:
        traces = join_chunk_texts(traces, documents, notice)
    return traces if labeled else read_citations(traces, plan.notify)


def _read_input(where: Any, plan: ReadOptions, collector: ErrorCollector, trec: bool, qrels: Any) -> Iterator[Trace]:
    if tables.is_memory_table(where):
        name, rows = tables.describe_memory_table(where), tables.read_memory_rows(where)
        span_rows = partial(tables.read_memory_span_rows, where)
        return _read_memory(name, rows, span_rows, plan, collector)
    if not isinstance(where, (str, os.PathLike)):
        where = list(iterate_inputs(where))
        if where and all(isinstance(item, (Mapping, Trace)) for item in where):
            plain = (row if isinstance(row, Trace) else build_plain_row(dict(row)) for row in where)
            return _read_memory("records in memory", enumerate(plain, 1), None, plan, collector)
    return _read_files(files.expand_paths(cast(InputPaths, where)), plan, collector, trec, qrels)


def iterate_traces(source: Iterable[Mapping[str, Any] | Trace] | tables.TableLike) -> Iterator[Trace]:
    """Yield traces of memory: checked one by one as those of files are, or read from records as dicts and from frames.

    Raises what `read_traces` raises; InputError for a trace that cannot be written and read again.

    >>> [trace.query for trace in iterate_traces([{"question": "When?"}])]
    ['When?']
    """
    if tables.is_memory_table(source):
        yield from read_traces(source)
        return
    items = iterate_inputs(source)
    first = next(items, None)
    if not isinstance(first, Trace):
        yield from () if first is None else read_traces([first, *items])
        return
    for item in chain([first], items):
        if not isinstance(item, Trace):
            raise InputError(f"a source has only Trace records, or only dicts: {describe_type(item)} follows a Trace")
        try:
            yield normalize_trace(item, check=True, empty_query=True)
        except InvalidRecord as error:
            raise InputError(f"trace {item.id}: {error}") from None


def _read_memory(
    name: str,
    rows: Iterator[tuple[int, Any]],
    list_span_rows: Callable[[], Iterator[tuple[int, Any]]] | None,
    options: ReadOptions,
    collector: ErrorCollector,
) -> Iterator[Trace]:
    """Read rows in memory; where they are spans, as `list_span_rows` lists them."""
    payloads, joined = _detect_spans(rows, options)
    if joined:
        spans = SpanFileReader(options, collector)
        yield from spans.read_file(name, list_span_rows() if list_span_rows else payloads)
        yield from spans.read_remaining()
    else:
        yield from _decode_traces(name, payloads, options, collector)
    options.check_columns()
    collector.raise_errors([name])


def _read_files(
    names: list[str], options: ReadOptions, collector: ErrorCollector, trec: bool, qrels: Any
) -> Iterator[Trace]:
    spans = SpanFileReader(options, collector)
    for name in names:
        stream = files.open_bytes(name, options.encoding, options.notify)
        with stream.body as body:
            if not body.peek(1):
                if stream.read_error:
                    collector.report(name, 1, stream.read_error, b"")
                continue
            form = "trec" if trec else files.detect_format(name, body)
            if form == "trec":
                yield from _read_trec_file(name, qrels, collector, options)
                continue
            payloads, joined = _detect_spans(iterate_payloads(name, form, stream, options), options)
            if joined:
                yield from spans.read_file(name, read_parquet_span_rows(name) if form == "parquet" else payloads)
            else:
                yield from _decode_traces(name, payloads, options, collector)
    yield from spans.read_remaining()
    options.check_columns()
    collector.raise_errors(names)


def _detect_spans(payloads: Iterator[tuple[int, Any]], options: ReadOptions) -> tuple[Iterator[tuple[int, Any]], bool]:
    """Return the same payloads, and whether the first of them that can be told apart are spans."""
    samples: list[tuple[int, Any]] = []
    are_spans: bool | None = None
    while are_spans is None and len(samples) < MAX_BAD_LINES_SHOWN and (item := next(payloads, None)):
        samples.append(item)
        are_spans = contains_spans(item[1], options)
    return chain(samples, payloads), bool(are_spans)


def _read_trec_file(name: str, qrels: Any, collector: ErrorCollector, options: ReadOptions) -> Iterator[Trace]:
    from ragfault.io.formats.trec import read_trec

    if name == "-":
        raise InputError("a TREC run cannot be read from standard input: name the file")
    options.notify("read as a TREC run" + (f" with the judgements of {qrels}" if qrels else ""))
    bad_lines: list[BadLine] = []
    for number, trace in enumerate(read_trec(Path(name), Path(qrels) if qrels else None, bad_lines), 1):
        if collector.accept(trace, name, number, b""):
            yield trace
    collector.add_bad_rows(bad_lines)


MAX_COMPARED = 4
"""Documents of records whose ids are compared."""
SAMPLE_SIZE = 32
"""Records that decide what the columns of a file are."""


def _parse_samples(payloads: list[tuple[int, Any]]) -> list[dict[str, Any]]:
    """Parse the first payloads as records, without those that are none."""
    records: list[dict[str, Any]] = []
    for number, payload in payloads:
        try:
            record = _parse_payload(payload)
        except InvalidRecord:
            continue
        record = msgspec.to_builtins(record) if isinstance(record, Trace) else record
        if number != 0 and isinstance(record, dict):
            records.append(record)
    return records


def _decode_traces(
    name: str, payloads: Iterator[tuple[int, Any]], options: ReadOptions, collector: ErrorCollector
) -> Iterator[Trace]:
    decoder = TraceDecoder(name, options)
    line = place = 0
    samples = list(islice(payloads, SAMPLE_SIZE))
    payloads = chain(samples, payloads)
    decoder.read_with_map = partial(_read_samples, name, samples, options)
    if not decoder.recognize_native([payload for _, payload in samples]):
        payloads = _infer_records(payloads, decoder, options)
    for number, payload in payloads:
        if number == 0:
            continue
        previous, line = line, number if number > 0 else line + 1
        # of the records of one document
        place = place + 1 if line == previous else 1
        try:
            matches = decoder.decode_records(payload)
        except InvalidRecord as wrong:
            collector.report(name, line, str(wrong), payload)
            decoder.check_recognized(collector)
            continue
        for trace in matches:
            own = f"{Path(name).name}:{line}" + (f".{place}" if place > 1 else "")
            identified = replace(trace, id=own) if options.id_from == "line" else trace
            identified = identified if identified.id else collector.assign_id(identified)
            if collector.accept(identified, name, line, payload):
                yield identified


def _read_samples(
    name: str,
    samples: list[tuple[int, Any]],
    options: ReadOptions,
    column_map: Mapping[str, str],
    collector: ErrorCollector,
) -> list[Trace]:
    """Read the first payloads of a file by a column map. Raises as the reading of the file does."""
    collector.unique = "none"
    return list(_decode_traces(name, iter(samples), options.add_map(column_map), collector))


def _infer_records(
    payloads: Iterator[tuple[int, Any]], decoder: TraceDecoder, options: ReadOptions
) -> Iterator[tuple[int, Any]]:
    """Let the decoder infer the columns from the first records, and join what several lines say of one trace."""
    raw_records, payloads = _peek_records(payloads)
    payloads = _join_lines(payloads, options)
    samples = list(islice(payloads, SAMPLE_SIZE))
    if samples and samples[0][0] == 0:
        decoder.read_header(samples[0][1])
    records = _parse_samples(samples)
    decoder.account_for_joining(raw_records, partial(_join_samples, options))
    decoder.inspect(records)
    payloads = chain(samples, payloads)
    answers = None if options.labeled else find_answer_lists(records, decoder.columns or {})
    if answers is not None:
        options.notify(f"the answers in `{answers}` are attempts at one question")
        return expand_rows(payloads, _parse_payload, partial(expand_answers, path=answers))
    groups = None if options.labeled else find_row_groups(records, decoder.columns or {})
    if groups is None:
        return payloads
    options.notify(f"rows of one query are its passages: {groups.chunks}")
    return join_rows(payloads, groups, _parse_payload)


def _join_lines(payloads: Iterator[tuple[int, Any]], options: ReadOptions) -> Iterator[tuple[int, Any]]:
    """Make records of what a file holds: the values, documents and lines that they are written in."""
    return _join_events(_expand_turns(_expand_documents(_unwrap_values(payloads, options), options), options), options)


def _join_samples(options: ReadOptions, records: list[dict[str, Any]]) -> list[Any]:
    """Join the first lines again without notices, to find out what the records depend on."""
    quiet = copy(options)
    quiet.notice = None
    return _parse_samples(list(_join_lines(iter(list(enumerate(records, 1))), quiet)))


def _peek_records(payloads: Iterator[tuple[int, Any]]) -> tuple[list[dict[str, Any]], Iterator[tuple[int, Any]]]:
    """Return the first records, and the same payloads."""
    samples = list(islice(payloads, SAMPLE_SIZE))
    return _parse_samples(samples), chain(samples, payloads)


def _unwrap_values(payloads: Iterator[tuple[int, Any]], options: ReadOptions) -> Iterator[tuple[int, Any]]:
    """Take values out of the objects that name their types, where the first records have such."""
    records, payloads = _peek_records(payloads)
    if not any(map(has_typed_values, records)):
        return payloads
    options.notify("values are taken out of objects that name their types")
    return unwrap_rows(payloads, _parse_payload)


def _expand_turns(payloads: Iterator[tuple[int, Any]], options: ReadOptions) -> Iterator[tuple[int, Any]]:
    """Make a record of each turn, if the turns of the first records are records of their own."""
    records, payloads = _peek_records(payloads)
    stays_one = options.labeled or options.turns == "last" or options.column_map.keys() & {"query", "history"}
    if stays_one or not any(find_turn_key(record) for record in records):
        return payloads
    options.notify("turns with a question, an answer and chunks of their own are traces")
    return expand_rows(payloads, _parse_payload, expand_turns)


def _join_events(payloads: Iterator[tuple[int, Any]], options: ReadOptions) -> Iterator[tuple[int, Any]]:
    """Join the lines of one request, where the first ones are steps of requests."""
    records, payloads = _peek_records(payloads)
    if options.labeled or not records:
        return payloads
    if are_crew_records(records):
        options.notify("tasks of one crew are the steps of one trace")
        return join_crew_tasks(payloads, _parse_payload)
    if (calls := find_call_keys(records)) is not None:
        options.notify(f"lines of one `{calls.trace}` are the calls of one trace")
        return join_calls(payloads, calls, _parse_payload)
    if (key := find_event_key(records)) is not None:
        options.notify(f"lines of one `{key}` are the steps of one trace")
        return join_events(payloads, key, _parse_payload)
    return payloads


def _parse_payload(payload: Any) -> Any:
    """Parse a payload as a record; a trace stays one. Raises `InvalidRecord`."""
    if isinstance(payload, InvalidRecord):
        raise payload
    if isinstance(payload, bytes):
        return parse_record(payload)
    check_depth(payload)
    return payload


def _expand_documents(payloads: Iterator[tuple[int, Any]], options: ReadOptions) -> Iterator[tuple[int, Any]]:
    """Yield the records of documents one by one, where the first payload is a document of records."""
    first = next(payloads, None)
    if first is None:
        return
    query = options.column_map.get("query") or ()
    if not isinstance(first[1], (bytes, dict)) or _expand_payload(first[1], query) is None:
        yield from chain([first], payloads)
        return
    documents, payloads = _peek_records(chain([first], payloads))
    key = find_group_key(documents, [expand_document(document, query) or [] for document in documents[:MAX_COMPARED]])
    for number, payload in payloads:
        records = _expand_payload(payload, query)
        for record in records or [payload]:
            yield number, mark_row(str(_parse_payload(payload).get(key)), record) if key and records else record


def _expand_payload(payload: Any, query_paths: tuple[str, ...]) -> list[dict[str, Any]] | None:
    try:
        return expand_document(_parse_payload(payload), query_paths)
    except InvalidRecord:
        return None


class InputSummary(msgspec.Struct, frozen=True):
    """Summary of an input after one pass."""

    count: int
    """Traces that can be read."""
    fingerprint: str
    """32 hex digits that stand for these traces in this order, whatever file or format they are in."""
    shape: str
    """Format of the records: "read as Ragas (user_input, …)"; several, joined, for files that differ."""
    bad_count: int = 0
    """Number of lines that are no trace."""
    bad_lines: tuple[BadLine, ...] = ()
    """The first bad lines, and the first of each further kind."""
    bad_kinds: dict[str, int] = {}
    """Bad lines by kind: problems that differ in a number or a quoted value alone are of one."""
    has_generated_ids: bool = False
    """Some ids were derived from queries: such an id depends on the traces before it."""
    fields: dict[str, int] = {}
    """Fields with the number of traces that have them."""
    unread: UnreadPaths = {}
    """Paths of the records that are not read, with their records and characters."""
    example: tuple[ReadLeaf, ...] = ()
    """The leaves of the first record, each with its place in the trace that was read; of spans there is none."""


def count_nothing(_: object) -> None:
    """Ignore a trace or a bad line, which the summary counts."""


def summarize_input(
    where: InputPaths,
    *,
    map: Mapping[str, str | Callable[[Any], Any]] | str | Path | None = None,
    shape: str | None = None,
    qrels: str | os.PathLike[str] | None = None,
    max_line: int = MAX_LINE,
    on_trace: Callable[[Trace], object] = count_nothing,
    on_bad: Callable[[BadLine], object] = count_nothing,
    with_example: bool = True,
    **reading: Any,
) -> InputSummary:
    """Count, check and fingerprint the traces of an input in one pass.

    Takes and raises what `read_traces` does (its other options in `reading`), but returns the bad lines. `on_trace` and
    `on_bad` are called with each trace and each bad line as it comes. Standard input is spent afterwards. Without
    `with_example` the summary has none: to make it takes longer than to read a small file.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "t.jsonl"
    >>> _ = path.write_text('{"id": "1", "query": "When?"}\\n{"id": "2"}\\n')
    >>> summary = summarize_input(path)
    >>> summary.count, summary.bad_count, summary.bad_lines[0].line, len(summary.fingerprint)
    (1, 1, 2, 32)
    """
    digest = TraceDigest()
    notices: list[str] = []
    collector = ErrorCollector(on_bad)
    generated = False
    fields: Counter[str] = Counter()
    unread: UnreadPaths = {}
    example: list[ReadLeaf] = []
    for trace in read_traces(
        where,
        map=map,
        shape=shape,
        qrels=qrels,
        on_bad=collector.add_bad_line,
        notice=notices.append,
        max_line=max_line,
        unread=unread,
        on_example=example.extend if with_example else None,
        **reading,
    ):
        digest.add(trace)
        on_trace(trace)
        generated = generated or trace.id.startswith("q-")
        fields.update(name for name in SURVEYED_FIELDS if getattr(trace, name) is not None)
    shape = "; ".join(dict.fromkeys(notices))
    kinds, lines = collector.kinds, tuple(collector.bad_lines)
    return InputSummary(
        count=digest.count,
        fingerprint=digest.fingerprint,
        shape=shape,
        bad_count=collector.bad_count,
        bad_lines=lines,
        bad_kinds=kinds,
        has_generated_ids=generated,
        fields=dict(fields),
        unread=unread,
        example=tuple(example),
    )


SURVEYED_FIELDS = ("history", "chunks", "answer", "citations", "reference", "facts", "gold")
"""Fields that decide which metrics can be computed."""


def explain_missing_fields(summary: InputSummary) -> str | None:
    """Explain that no trace has chunks or an answer, so that nothing but `error` can be measured; None otherwise.

    >>> explain_missing_fields(InputSummary(2, "", "", fields={"answer": 1})) is None
    True
    """
    if not summary.count or "chunks" in summary.fields or "answer" in summary.fields:
        return None
    return (
        "warning: no trace has retrieved contexts or an answer, so that nothing but `error` can be measured. Where the "
        "input holds them, name their columns: --map chunks=COLUMN --map answer=COLUMN"
    )


class TraceDigest:
    """Incremental fingerprint of a sequence of traces.

    >>> first, second = TraceDigest(), TraceDigest()
    >>> first.add(Trace(id="1", query="When?"))
    >>> (first.count, second.count, first.fingerprint == second.fingerprint)
    (1, 0, False)
    """

    def __init__(self) -> None:
        self.count = 0
        self._hash = blake2b(digest_size=16)
        self._encode = msgspec.msgpack.Encoder(order="deterministic").encode

    def add(self, trace: Trace) -> None:
        """Add the next trace."""
        self.count += 1
        self._hash.update(self._encode(_list_field_values(trace)))

    @property
    def fingerprint(self) -> str:
        """Return 32 hex digits for the traces so far."""
        return self._hash.hexdigest()


OPTIONAL_DIGEST_FIELDS = ("attempt", "history", "messages", "answerable", "finish_reason")
"""Fields that enter the fingerprint only if they are set, so that traces without them keep their fingerprint."""
DIGEST_FIELDS = tuple(name for name in Trace.__struct_fields__ if name not in OPTIONAL_DIGEST_FIELDS)
"""Fields that always enter the fingerprint, in this order."""
CITATION_SIZE = 3
READ_DIGEST_FIELDS = attrgetter(*DIGEST_FIELDS)
PLAIN_TYPES = frozenset({str, float, int, bool, dict, type(None)})


def _list_field_values(trace: Trace) -> list[Any]:
    """List the values of the fields, defaults included: a default that was written out makes no difference."""
    values: list[Any] = _list_values(READ_DIGEST_FIELDS(trace))
    given = ((name, getattr(trace, name)) for name in OPTIONAL_DIGEST_FIELDS)
    optional = ((name, _list_values(value)) for name, value in given if value != getattr(EMPTY_TRACE, name))
    return [*values, *(part for pair in optional for part in pair)]


def _list_values(value: Any) -> Any:
    """Replace records by the lists of their values, however deep they nest."""
    if isinstance(value, msgspec.Struct):
        # citations without a place have the fingerprint of the time before places were read
        size = CITATION_SIZE if isinstance(value, Citation) and value.start is None else None
        value = msgspec.structs.astuple(value)[:size]
    if isinstance(value, tuple):
        return [item if type(item) in PLAIN_TYPES else _list_values(item) for item in value]
    return value
