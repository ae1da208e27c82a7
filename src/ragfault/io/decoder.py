"""Decoder of trace records: the first record of a file decides the shape, and all records are decoded by it.

A native line goes straight through msgspec; only one that fails there takes the slow path, which names the problem.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from ragfault.io.accounts import MAX_JOINED, Read, RecordAccount, UnreadPaths, cut_lists, format_unread
from ragfault.io.attempts import number_attempts
from ragfault.io.datasets.natural_questions import flatten_natural_questions, has_places
from ragfault.io.datasets.ragtruth import make_ragtruth_flattener
from ragfault.io.error_collector import ErrorCollector
from ragfault.io.field_values import FIELD_NORMALIZERS, MAX_METADATA_DEPTH, InvalidRecord, check_depth, make_json_safe
from ragfault.io.formats import record_shapes
from ragfault.io.formats.column_plans import ReadWithMap, ask_for_map
from ragfault.io.formats.columns import parse_column_map
from ragfault.io.formats.conversations import find_turns, is_outcome_column, list_turn_chunks, split_turns
from ragfault.io.formats.field_names import rank_fields
from ragfault.io.formats.inference import Inference, infer_columns
from ragfault.io.formats.leftovers import UncertainColumns, check_unread
from ragfault.io.formats.passages import SplitMarks, choose_split, split_prompt
from ragfault.io.formats.paths import get_path, remove_paths
from ragfault.io.formats.reading_examples import ReadLeaf, list_read_leaves
from ragfault.io.formats.record_lists import holds_records
from ragfault.io.formats.record_shapes import NATIVE_SHAPE, TRACE_FIELDS
from ragfault.io.formats.texts import parse_list_text
from ragfault.io.native_keys import check_keys, decode_native
from ragfault.io.normalization import (
    JOINED_ID,
    MetadataChoice,
    describe_missing_column,
    find_system_contexts,
    has_path,
    list_column_paths,
    normalize_record,
    normalize_trace,
    starts_at_column,
)
from ragfault.io.payloads.json_records import parse_record
from ragfault.model.errors import MAX_BAD_LINES_SHOWN, InputError
from ragfault.model.records import Chunk, ConversationTurn, Trace
from ragfault.text.normalization import measure_nesting

NoticeCallback = Callable[[str], object]

PROMPT_NOTE = "question and contexts taken out of the prompt"
SYSTEM_NOTE = "contexts taken out of the prompt of the system"
STRONG_RANK = 8
"""Names of the query of a lower rank than this are never those of a document."""
EMPTY_TRACE = Trace(id="", query="")
"""A trace that records nothing: a field with its value is not a column."""
OWN_COLUMNS = {"gold", "latency", "tokens", "error", "metadata"}
"""Columns of a table that ragfault wrote, whatever its version."""
MAX_KNOWN_COLUMNS = 1000
"""Maximum number of column names kept for suggestions."""


class ReadOptions:
    """Options of one reading, the same for all its files."""

    def __init__(  # noqa: PLR0913, PLR0917 - the options of one verb
        self,
        column_map: record_shapes.ColumnMap,
        shape: record_shapes.RecordShape | None,
        notice: NoticeCallback | None,
        max_line: int,
        labeled: bool = False,
        encoding: str | None = None,
        turns: str = "auto",
        id_from: str | None = None,
        accept_unread: bool = False,
        unread: UnreadPaths | None = None,
        on_example: Callable[[tuple[ReadLeaf, ...]], object] | None = None,
    ) -> None:
        self.accept_unread = accept_unread
        """Read the rest where content is not read, instead of refusing the file."""
        self.accounts: dict[str, RecordAccount] = {}
        """Accounts of the records, by the columns they are read with."""
        self.unread: UnreadPaths = {} if unread is None else unread
        self.on_example = on_example
        """Gets the leaves of the first record with their places in its trace; None afterwards."""
        """The paths that are not read, over the whole input."""
        self.encoding, self.turns, self.id_from = encoding, turns, id_from
        if id_from and id_from != "line":
            column_map = {**column_map, "id": (JOINED_ID, *(part.strip() for part in id_from.split(",")))}
        self.column_map, self.shape, self.notice, self.max_line = column_map, shape, notice, max_line
        self.labeled = labeled
        """Keep each row as a trace with all its columns, and let its query be empty."""
        self.keep: MetadataChoice = "all" if labeled else "none" if column_map.keys() - {"id"} else "short"
        """Columns that no field takes which become metadata."""
        self.last_notice: str | None = None
        self.missing_columns = {
            path: field for field, paths in column_map.items() for path in paths if path != JOINED_ID
        }
        """Columns of the map that no record has had so far, each with its field."""
        self.known_columns: dict[str, None] = {}
        """Columns of the records so far, while some of the map are missing."""

    def add_map(self, column_map: Mapping[str, str]) -> ReadOptions:
        """Return the options with a column map added, for a trial that says and counts nothing."""
        merged = {**self.column_map, **parse_column_map(column_map)}
        trial = ReadOptions(merged, self.shape, None, self.max_line, self.labeled, self.encoding, self.turns)
        trial.id_from, trial.accept_unread = self.id_from, self.accept_unread
        return trial

    def notify(self, line: str) -> None:
        """Report a line once, not for each of many files."""
        if self.notice and line != self.last_notice:
            self.last_notice = line
            self.notice(line)

    def is_record(self, names: Iterable[str]) -> bool:
        """Tell whether an object with these keys is a record."""
        names = list(names)
        query = self.column_map.get("query") or (self.shape.columns.get("query", ()) if self.shape else ())
        if any(starts_at_column(path, names) for path in query) or record_shapes.detect_shape(names) is not None:
            return True
        return any(("query", rank) in rank_fields(name) for name in names for rank in range(STRONG_RANK))

    def observe_columns(self, record: dict[str, Any]) -> None:
        """Note which columns of the map a record has."""
        for path in [path for path in self.missing_columns if has_path(record, path)]:
            del self.missing_columns[path]
        if self.missing_columns and len(self.known_columns) < MAX_KNOWN_COLUMNS:
            self.known_columns.update(dict.fromkeys(list_column_paths(record)))

    def check_columns(self) -> None:
        """Raise `InputError` for a column of the map that no record has had."""
        if self.missing_columns and self.known_columns:
            path, field = next(iter(self.missing_columns.items()))
            raise InputError(describe_missing_column(field, path, self.known_columns))


def is_empty(value: Any) -> bool:
    """Tell whether a value says nothing."""
    return value is None or value in ("", [], {})


def has_native_messages(record: dict[str, Any]) -> bool:
    """Tell whether the `messages` of a record, if it has any, are turns as ragfault writes them.

    Elsewhere `messages` are a conversation or the log of an agent, which hold query and answer.
    """
    turns = record.get("messages") or ()
    turns = parse_list_text(turns) if isinstance(turns, str) else turns
    keys = set(ConversationTurn.__struct_fields__)
    return isinstance(turns, (list, tuple)) and all(isinstance(turn, dict) and turn.keys() == keys for turn in turns)


def find_conversation(record: dict[str, Any], columns: record_shapes.ColumnMap) -> list[dict[str, Any]] | None:
    """Find the turns that the query or the history of a record is taken from; None without a conversation."""
    for path in (*columns.get("query", ()), *columns.get("history", ())):
        value = get_path(record, path)
        if isinstance(value, (list, dict)) and (turns := find_turns(value)) is not None:
            return turns
    return None


class TraceDecoder:
    """Decoder of the records of one file; its first records decide what its columns are."""

    def __init__(self, name: str, options: ReadOptions) -> None:
        self.name, self.options = name, options
        self.columns: record_shapes.ColumnMap | None = None
        self.flatten: Callable[[dict[str, Any]], dict[str, Any]] | None = None
        self.shape: record_shapes.RecordShape | None = None
        self.is_native = self.is_table = False
        self.known_keys: set[str] = set()
        """Keys that held something in a record whose columns were inferred."""
        self.filled: frozenset[str] = frozenset()
        """Fields that some record so far had."""
        self.bases: dict[str, str] = {}
        """Field → by what its column was recognised."""
        self.split_marks: SplitMarks | None = None
        """Marks at which a text is split to chunks; None: no record had chunks so far."""
        self.header: list[str] = []
        self.unrecognized_count = 0
        self.read_with_map: ReadWithMap | None = None
        """Reads the first records of the file by a map; None: only the records with uncertain columns are known."""
        self.attempts: Counter[str] = Counter()
        """Test → attempts so far, in a form that does not number them."""
        self.joining = RecordAccount(options.unread)
        """Account of what is lost where records are made of lines or documents."""

    def read_header(self, names: list[str]) -> None:
        """Check the columns of a table against the map; raises `InputError` for one that is not there."""
        self.is_table = True
        for field, paths in self.options.column_map.items():
            for path in paths:
                if path != JOINED_ID and not starts_at_column(path, names):
                    raise InputError(f"{self.name}: {describe_missing_column(field, path, names)}")
                if path in names:
                    self.options.missing_columns.pop(path, None)
        self.header = names

    def recognize_native(self, payloads: Sequence[Any]) -> bool:
        """Tell whether a file is in ragfault's own form by its first lines, so that nothing is to be inferred.

        Each line has to be a whole trace by itself. Metadata are looked through where chunks or answers are missing:
        another tool may have put them there.
        """
        if self.options.column_map or self.options.labeled or self.options.shape not in (None, NATIVE_SHAPE):
            return False
        traces: list[Trace] = []
        for line in payloads:
            try:
                trace = self._decode_native_line(line) if type(line) is bytes else None
            except InvalidRecord:
                return False
            if trace is None or (trace.metadata and (trace.chunks is None or trace.answer is None)):
                return False
            if trace.chunks is None and split_prompt(trace.query):
                return False
            traces.append(trace)
        if not traces or not any(trace.chunks is not None or trace.answer is not None for trace in traces):
            return False
        self.shape, self.is_native, self.columns = NATIVE_SHAPE, True, dict(NATIVE_SHAPE.columns)
        self.known_keys = set(TRACE_FIELDS)
        self.filled = frozenset(
            name for name in TRACE_FIELDS if any(getattr(trace, name) != getattr(EMPTY_TRACE, name) for trace in traces)
        )
        self.options.notify(
            f"read as {self.shape.title} ({', '.join(name for name in TRACE_FIELDS if name in self.filled)})"
        )
        return True

    def inspect(self, records: list[dict[str, Any]]) -> None:
        """Infer the columns from the first records. Raises `InputError` where they do not tell the fields."""
        if records:
            self._detect_shape(records)

    def decode_record(self, payload: Any) -> Trace:
        """Decode a payload to a trace. Raises `InvalidRecord`, and `InputError` for columns that tell no fields."""
        if self.is_native and type(payload) is bytes:
            trace = self._decode_native_line(payload)
            if trace is not None:
                return trace
        if isinstance(payload, InvalidRecord):
            raise payload
        if isinstance(payload, Trace):
            return normalize_trace(payload, check=True, empty_query=self.options.labeled)
        record = self._parse(payload)
        if self.columns is None:
            self._detect_shape([record])
        trace = self._read_record(record)
        self.account_for(record, [trace])
        return trace

    def _parse(self, payload: Any) -> dict[str, Any]:
        if not isinstance(payload, bytes):
            check_depth(payload)
            return dict(payload)
        constants: list[str] = []
        record = parse_record(payload, constants.append)
        if "NaN" in constants:
            self.options.notify("NaN is not valid JSON; it is read as null")
        return record

    def _read_record(self, record: dict[str, Any]) -> Trace:
        if self.flatten:
            record = self.flatten(record)
        if any(key not in self.known_keys and not is_empty(value) for key, value in record.items()):
            self._infer([record])
        if self.options.missing_columns:
            self.options.observe_columns(record)
        keep, labeled, columns = self.options.keep, self.options.labeled, self.columns or {}
        trace = normalize_record(
            record, columns, keep, self.is_table, labeled, self.split_marks or "headings", self.shape
        )
        return self._mark_blank(trace, any(has_path(record, path) for path in columns.get("answer", ())))

    def _mark_blank(self, trace: Trace, has_field: bool) -> Trace:
        """Give a trace a blank answer if its record has a field for it that says nothing, while others say something.

        A field that is empty in every record records no answers, and a pipeline of which a step failed has none to
        record. A table with columns for what only ragfault writes was written by it, which escapes a blank answer.
        """
        is_own_table = self.is_table and OWN_COLUMNS <= set(self.header) <= set(TRACE_FIELDS)
        has_failed = trace.error is not None or any(step.error for step in trace.steps or ())
        is_blank = (
            trace.answer is None and not has_failed and has_field and "answer" in self.filled and not is_own_table
        )
        return replace(trace, answer="") if is_blank else trace

    def account_for(self, record: dict[str, Any], traces: Sequence[Trace], is_sample: bool = False) -> None:
        """Enter a record and its traces in the account. Raises `InputError` for content that is not read."""
        if self.options.labeled or not isinstance(record, dict):
            return
        self._check_news(self.account.add(record, traces, self._read_turns, is_sample), [record])

    def account_for_joining(self, records: list[dict[str, Any]], join: Read) -> None:
        """Enter what is lost where the first records are joined, or one is a document of several. Raises as above."""
        records = [cut_lists(record) for record in records[:MAX_JOINED]]
        joined = join(records)
        if not self.options.labeled and joined != records:
            news = self.joining.add(records, joined, join)
            # a list of records that says less than the one that is read is named, and not asked about
            lesser = {path for path in news if any(holds_records(record, path) for record in records)}
            self._check_news({path: part for path, part in news.items() if path not in lesser}, [])

    def _check_news(self, news: dict[str, Any], records: list[dict[str, Any]]) -> None:
        if self.options.accept_unread or self.options.column_map or (self.shape is not None and self.shape.closed):
            return
        columns = self.columns or {}
        own = records[0].get("metadata") if records else None
        if self.shape is NATIVE_SHAPE and not {"chunks", "answer"} <= self.filled and own:
            news = {**news, "metadata": own}
        try:
            read = {field: paths for field, paths in columns.items() if field in self.filled}
            check_unread(news, read, self.name)
        except UncertainColumns as uncertain:
            raise ask_for_map(uncertain, self.read_with_map or partial(self._try_map, records)) from None

    @property
    def account(self) -> RecordAccount:
        """The account of records with these columns."""
        key = f"{self.shape.name if self.shape else ''} {self.columns}"
        return self.options.accounts.setdefault(key, RecordAccount(self.options.unread))

    def decode_native_record(self, line: bytes) -> Trace:
        """Decode a record whose shape is expected to be ragfault's own: then it is taken as it is, without inference.

        Inspecting the columns of a record takes as long as decoding a hundred. One of any other shape, or whose query
        is a prompt that holds the chunks, is inspected alone: no other record decides anything about it. Raises as
        `decode_record`.
        """
        trace = None
        # decode_record says what is wrong
        with contextlib.suppress(InvalidRecord):
            trace = self._decode_native_line(line)
        if trace is not None and (trace.chunks is not None or not split_prompt(trace.query)):
            return trace
        try:
            return TraceDecoder(self.name, self.options).decode_record(line)
        except (InvalidRecord, InputError) as error:
            if trace is not None:
                return trace
            if isinstance(error, InputError):
                record = parse_record(line)
                # it lacks the query, rather than known columns
                if record.keys() <= set(Trace.__struct_fields__):
                    normalize_record(record, dict(NATIVE_SHAPE.columns))
            raise

    def decode_records(self, payload: Any) -> list[Trace]:
        """Decode a payload to its trace, or to one for each turn: if asked to, or if turns have chunks of their own.

        Raises as above.
        """
        if self.is_native and type(payload) is bytes and (trace := self._decode_native_line(payload)) is not None:
            if self.options.on_example is not None:
                self._note_example(parse_record(payload), [trace])
            return [trace] if self.options.turns == "auto" else self._split_turns(trace, None)
        if isinstance(payload, (InvalidRecord, Trace)):
            return self._split_turns(self.decode_record(payload), None)
        record = self._parse(payload)
        if self.columns is None:
            self._detect_shape([record])
        traces = self._read_turns(record)
        self.account_for(record, traces)
        if self.options.on_example is not None:
            self._note_example(record, traces)
        test = None if self.shape is None else self.shape.identify_test(record)
        return traces if test is None else number_attempts(traces, test, self.attempts)

    def _note_example(self, record: dict[str, Any], traces: Sequence[Trace]) -> None:
        """Note where the leaves of the first record come out, and by what each column was recognised."""
        columns = self.columns or {}
        title = (
            "ragfault's own field" if self.shape is NATIVE_SHAPE else f"format {self.shape.title}" if self.shape else ""
        )
        bases = {field: self.bases.get(field) or title for field in columns}
        bases |= dict.fromkeys(self.options.column_map, "column map")
        report, self.options.on_example = self.options.on_example, None
        if report is not None:
            report(list_read_leaves(record, traces, columns, bases, {**self.joining.unread, **self.account.unread}))

    def _read_turns(self, record: dict[str, Any]) -> list[Trace]:
        return self._split_turns(self._read_record(record), record)

    def _split_turns(self, trace: Trace, record: dict[str, Any] | None) -> list[Trace]:
        is_single = self.options.turns == "last" or (self.options.turns == "auto" and self.is_native)
        if is_single or self.options.labeled or not trace.history:
            return [trace]
        chunks = [] if record is None else self._list_turn_chunks(record)
        if self.options.turns == "auto" and not any(chunks[:-1]):
            return [trace]
        return list(split_turns(trace, chunks))

    def _list_turn_chunks(self, record: dict[str, Any]) -> list[tuple[Chunk, ...] | None]:
        """List the chunks of each turn of the user in a record."""
        record = self.flatten(record) if self.flatten else record
        turns = find_conversation(record, self.columns or {})
        normalize = FIELD_NORMALIZERS["chunks"]
        return [
            msgspec.convert(normalize(chunks), tuple[Chunk, ...]) if chunks else None
            for chunks in list_turn_chunks(turns or [])
        ]

    def _decode_native_line(self, line: bytes) -> Trace | None:
        """Decode a native line by msgspec alone; return None where it needs the slow path."""
        try:
            keys = check_keys(line)
            trace = self._mark_blank(decode_native(line), keys.answer is not None)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        is_nested = line.count(b"{") + line.count(b"[") > MAX_METADATA_DEPTH
        if is_nested and measure_nesting(line.decode())[0] > MAX_METADATA_DEPTH:
            return None
        is_plain = (
            bool(trace.query.strip())
            and trace.time is None
            and type(trace.reference) is not tuple
            and trace.error != ""
            and b'"image"' not in line
        )
        if is_plain:
            return trace
        return normalize_trace(trace, check=not trace.query.strip(), empty_query=self.options.labeled)

    def _detect_shape(self, records: list[dict[str, Any]]) -> None:
        """Find the shape and the columns from the first records."""
        keys = dict.fromkeys(key for record in records for key in record)
        columns, shape = self.options.column_map, self.options.shape or record_shapes.detect_shape(keys, records)
        if shape is not None and shape.name == "natural_questions" and (columns or not any(map(has_places, records))):
            # a map is of the columns as they stand, not of what is made of their places
            shape = None
        if shape is not None and shape.name == "ragtruth":
            self.flatten = make_ragtruth_flattener(self.name, self.options.max_line)
        elif shape is not None and shape.name == "natural_questions":
            self.flatten = flatten_natural_questions
        self.shape = None if shape is None or shape.spans else shape
        self.columns = {**(self.shape.columns if self.shape else {}), **columns}
        if "messages" not in columns and not all(map(has_native_messages, records)):
            self.columns.pop("messages", None)
        try:
            flat = [self.flatten(record) if self.flatten else record for record in records]
            notes = self._infer(flat)
        except (InvalidRecord, InputError) as wrong:
            self.columns = None
            if isinstance(wrong, InvalidRecord):
                raise InputError(f"{self.name}: {wrong}") from None
            raise
        prompts = [get_path(record, path) for path in self.columns.get("query", ()) for record in flat]
        is_open = "chunks" not in self.filled
        has_prompts = is_open and any(isinstance(p, str) and split_prompt(p) for p in prompts)
        has_system = is_open and any(find_system_contexts(find_conversation(record, self.columns)) for record in flat)
        added = [note for note, is_there in ((PROMPT_NOTE, has_prompts), (SYSTEM_NOTE, has_system)) if is_there]
        notes = notes._replace(notes=(*notes.notes, *added))
        is_native = self.shape is NATIVE_SHAPE and self.columns == self.shape.columns
        self.is_native = is_native and not has_prompts
        self._account_for_samples(records)
        self._announce_columns(flat, notes)

    def _account_for_samples(self, records: list[dict[str, Any]]) -> None:
        """Add the first records to the account, before the notices on the file."""
        for record in records:
            # the reading of the file names the fault of a record that is none
            with contextlib.suppress(InvalidRecord, ValueError, RecursionError):
                if not self.is_native or self._decode_native_line(msgspec.json.encode(make_json_safe(record))) is None:
                    self.account_for(record, self._read_turns(record), is_sample=True)

    def _infer(self, records: list[dict[str, Any]]) -> Inference:
        """Extend the columns by those of new records; those of a closed shape are all that is read."""
        columns = self.columns or {}
        present = {
            field for field, paths in columns.items() if any(has_path(r, path) for r in records for path in paths)
        }
        if self.shape is not None and self.shape.closed:
            spare = dict.fromkeys(
                key for record in records for key in remove_paths(record, list(self.shape.list_paths()))
            )
            matches = Inference(columns, (), tuple(spare), frozenset(present))
        else:
            given = {*self.options.column_map}
            if self.shape is not None and self.shape.drop:
                given |= present
                records = [remove_paths(record, list(self.shape.drop)) for record in records]
            try:
                matches = infer_columns(records, columns, given, self.name, self.filled, self.options.labeled)
            except UncertainColumns as uncertain:
                raise ask_for_map(uncertain, self.read_with_map or partial(self._try_map, records)) from None
        matches = matches._replace(columns=self._drop_rivals_of_turns(records, matches.columns))
        self.columns = matches.columns
        for path in matches.columns.get("chunks", ()):
            if self.split_marks is None and any(has_path(record, path) for record in records):
                self.split_marks = choose_split(path, [get_path(record, path) for record in records])
        self.filled |= matches.filled
        self.bases |= matches.bases
        self.known_keys |= {key for record in records for key, value in record.items() if not is_empty(value)}
        return matches

    def _try_map(self, records: list[dict[str, Any]], column_map: Mapping[str, str], _: ErrorCollector) -> list[Trace]:
        """Read records by a column map. Raises `InvalidRecord` for the first bad one."""
        trial = TraceDecoder(self.name, self.options.add_map(column_map))
        trial.is_table = self.is_table
        trial.inspect(records)
        return [trace for record in records for trace in trial.decode_records(record)]

    def _drop_rivals_of_turns(
        self, records: list[dict[str, Any]], columns: record_shapes.ColumnMap
    ) -> record_shapes.ColumnMap:
        """Drop inferred columns beside a conversation that holds the same itself.

        Contexts beside turns with chunks of their own are those of an answer key, and an expected outcome tells what
        should happen, not what should be spoken.
        """
        conversations = [turns for record in records if (turns := find_conversation(record, columns)) is not None]
        if not conversations:
            return columns
        own = self.options.column_map
        texts = [" ".join(f"{turn['text']} {turn.get('chunks', '')}" for turn in turns) for turns in conversations]
        dropped = {"chunks"} if any(any(list_turn_chunks(turns)) for turns in conversations) else set()
        for path in columns.get("reference", ()):
            values = [get_path(record, path) for record in records]
            pairs = [(value, spoken) for value, spoken in zip(values, texts, strict=False) if isinstance(value, str)]
            if is_outcome_column(path, pairs):
                dropped.add("reference")
        return {field: paths for field, paths in columns.items() if field not in dropped or field in own}

    def _announce_columns(self, records: list[dict[str, Any]], matches: Inference) -> None:
        first_paths: dict[str, str] = {}
        for field, paths in matches.columns.items():
            for path in paths[:1] * (paths[0:1] == (JOINED_ID,)) or paths:
                if any(has_path(record, path) for record in records):
                    first_paths.setdefault(field, path)
        title = self.shape.title if self.shape else "records"
        if self.shape is NATIVE_SHAPE and any(path != field for field, path in first_paths.items()):
            title = "records"
        listing = ", ".join(path if path == field else f"{field}: {path}" for field, path in first_paths.items())
        mapped = " by a column map" if self.options.column_map else ""
        named = (
            [path for path in matches.metadata if path not in self.account.unread]
            if self.options.keep != "none"
            else []
        )
        spare = ", ".join(named[:10]) + (", …" if len(named) > 10 else "")
        unread = format_unread({**self.joining.unread, **self.account.unread})
        more = (f"; metadata: {spare}" if spare else "") + (f"; not read: {unread}" if unread else "")
        notes = [*matches.notes, *(["passages split at headings and rules"] if self.split_marks == "headings" else [])]
        note = f"; {'; '.join(notes)}" if notes else ""
        self.options.notify(f"read as {title}{mapped} ({listing}){note}{more}")

    def check_recognized(self, collector: ErrorCollector) -> None:
        """Stop at a file whose first records are all of no known shape; raises `InputError`."""
        self.unrecognized_count += self.columns is None
        if self.unrecognized_count >= MAX_BAD_LINES_SHOWN and not collector.good_count:
            raise InputError(f"{self.name}: {collector.bad_lines[-1].problem if collector.bad_lines else 'no traces'}")
