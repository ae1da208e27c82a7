"""Files of labels: read in every layout of the table, with each damaged line by its number; appended line by line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ragfault.io.atomic_files import convert_write_errors, lock_folder, write_atomically
from ragfault.io.field_values import InvalidRecord
from ragfault.io.files import MAX_LINE, get_format_suffix, iterate_lines, open_bytes
from ragfault.io.formats.tables import read_csv_rows
from ragfault.labels.label import Label
from ragfault.labels.reading.layouts import ANY_VALUES, LAYOUTS, ExpectedValues, recognize_row
from ragfault.model.errors import BadLine, BadRows, InputError
from ragfault.model.records import name_attempt
from ragfault.text.number_format import format_count


class LabelFile(NamedTuple):
    """Content of a label file."""

    labels: list[Label]
    bad_lines: list[BadLine]
    """Lines that are not of the layout, in order."""
    good: int
    """Lines that are."""
    blank: int
    """Those of them that nobody filled in."""
    is_torn: bool
    """Whether the last bad line is the last of the file and lacks its end: the writer was killed in the middle."""
    first: Any
    """First row, whatever it is; None without one."""

    @property
    def faults(self) -> list[BadLine]:
        """List the bad lines other than a torn one, which was never acknowledged and which the next label replaces."""
        return self.bad_lines[:-1] if self.is_torn else self.bad_lines


def read_labels(
    path: str | Path,
    layout: str = "verdicts",
    *,
    expected: ExpectedValues = ANY_VALUES,
    notice: Callable[[str], object] = str,
) -> list[Label]:
    """Read the labels of a file, in order: JSON Lines, or CSV or TSV by its name; plain or compressed.

    `layout` is a key of `LAYOUTS`; layouts of values of metrics need the `expected` ones. `notice` gets the number
    of rows that nobody filled in. Raises BadRows for damaged lines, all at once, and InputError for a missing file, and
    for one without labels of this layout.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "labels.csv")
    >>> _ = path.write_text("trace,rubric,value,by\\n7,formal,1,ann\\n")
    >>> [(label.trace, label.subject, label.value) for label in read_labels(path, "rubric values")]
    [('7', ('rubric', 'formal'), 1.0)]
    """
    content = load_label_file(path, layout, expected)
    if content.bad_lines:
        _check_layout(path, layout, content)
        raise BadRows(content.bad_lines, content.good)
    if not content.labels:
        raise InputError(f"{path} holds no {LAYOUTS[layout].noun}. {LAYOUTS[layout].advice}")
    if content.blank:
        notice(f"left out, as nobody filled them in: {format_count(content.blank, 'row')} of {content.good:,}")
    return content.labels


def read_saved_labels(path: str | Path, layout: str = "verdicts") -> list[Label]:
    """Read a file that ragfault writes: none if it does not exist yet, without a last line that was left incomplete.

    Raises BadRows for any other damaged line.
    """
    if not Path(path).exists():
        return []
    content = load_label_file(path, layout)
    if content.faults:
        _check_layout(path, layout, content)
        raise BadRows(content.faults, content.good)
    return content.labels


def _check_layout(path: str | Path, layout: str, content: LabelFile) -> None:
    """Raise InputError for a file of another layout."""
    other = recognize_row(content.first) if isinstance(content.first, dict) else None
    if not content.good and other not in (None, layout):
        raise InputError(
            f"{path} holds {LAYOUTS[str(other)].noun}, and {LAYOUTS[layout].noun} are needed. {LAYOUTS[layout].advice}"
        )


def load_label_file(path: str | Path, layout: str, expected: ExpectedValues = ANY_VALUES) -> LabelFile:
    """Load the labels of a file, and collect all lines that are not of the layout.

    Raises InputError for a file that cannot be opened.
    """
    labels: list[Label] = []
    bad_lines: list[BadLine] = []
    good = blank = 0
    is_torn, first = False, None
    seen: set[str] = set()
    for line, row, is_last in iterate_label_rows(path):
        first = row if first is None else first
        try:
            row_labels = _convert_row(row, layout, expected, seen)
        except InvalidRecord as error:
            bad_lines.append(BadLine(str(path), line, str(error)))
            is_torn = is_last
            continue
        good += 1
        blank += not row_labels
        labels += row_labels
    return LabelFile(labels, bad_lines, good, blank, is_torn, first)


def _convert_row(row: Any, layout: str, expected: ExpectedValues, seen: set[str]) -> list[Label]:
    """Convert a row; `seen` are the traces of the rows before, each of which a layout may hold only once."""
    if isinstance(row, InvalidRecord):
        raise row
    row = _name_attempt(row)
    row_labels = LAYOUTS[layout].convert(row, expected)
    if LAYOUTS[layout].is_unique:
        trace = str(row.get("trace") or row.get("id"))
        if trace in seen:
            raise InvalidRecord(f'a second row for the trace "{trace[:80]}"')
        seen.add(trace)
    return row_labels


def _name_attempt(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row about an attempt of a query with the id that this attempt has in a run."""
    attempt = str(row.get("attempt") or "")
    if not attempt.isdecimal():
        return row
    named = {name: value for name, value in row.items() if name != "attempt"}
    key = next((name for name in ("trace", "id") if row.get(name) not in (None, "")), None)
    return named if key is None else {**named, key: name_attempt(str(row[key]), int(attempt))}


def iterate_label_rows(path: str | Path) -> Iterator[tuple[int, Any, bool]]:
    """Yield line, row and whether the line is torn: the last one, without its end, and no JSON.

    A row that cannot be read is an InvalidRecord. Empty lines are left out. A heading is no row.
    """
    stream = open_bytes(str(path))
    line = 0
    with stream.body as body:
        suffix = get_format_suffix(str(path))
        if suffix in (".csv", ".tsv"):
            for line, row in read_csv_rows(body, str(path), suffix == ".tsv", MAX_LINE):
                if line:
                    yield line, row, False
        else:
            for line, text, is_complete in iterate_lines(body):
                if not text.strip():
                    continue
                row = _decode_row(text) if is_complete else InvalidRecord(f"longer than {MAX_LINE:,} bytes")
                yield line, row, not text.endswith(b"\n") and not is_json(text)
    if stream.read_error:
        yield line + 1, InvalidRecord(stream.read_error), False


def _decode_row(text: bytes) -> Any:
    try:
        row = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return InvalidRecord(f"not JSON: {error}")
    return row if isinstance(row, dict) else InvalidRecord("not an object with names and values")


def is_json(text: bytes) -> bool:
    """Return whether a text is JSON."""
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def encode_label(label: Label, layout: str = "verdicts") -> bytes:
    """Encode a label as a line of a layout that ragfault writes."""
    build = LAYOUTS[layout].build
    assert build is not None, f"{layout} are only read"
    return msgspec.json.encode(build(label)) + b"\n"


def write_labels(path: str | Path, labels: Iterable[Label], layout: str = "verdicts") -> None:
    """Replace the content of a file by labels, atomically."""
    write_atomically(Path(path), b"".join(encode_label(label, layout) for label in labels))


def append_label(
    path: str | Path, label: Label, layout: str = "verdicts", check: Callable[[], None] = lambda: None
) -> None:
    """Append a label to a file, made if missing, and sync it to disk, one writer at a time.

    `check` runs while no other process writes; if it raises, nothing is written. A last line that a killed process
    left incomplete was never acknowledged, and is overwritten.
    """
    path = Path(path)
    with lock_folder(path), convert_write_errors(path):
        check()
        with path.open("ab+") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(0, length - 1))
            begin = b""
            if file.read(1) not in (b"", b"\n"):
                file.seek(max(0, length - MAX_LINE))
                last = file.read().rpartition(b"\n")[2]
                begin = b"\n" * is_json(last)
                file.truncate(length - len(last) * (not begin))
            file.write(begin + encode_label(label, layout))
            file.flush()
            os.fsync(file.fileno())


def remove_label(path: str | Path, label: Label, layout: str = "verdicts") -> None:
    """Remove the last line that holds a label; other lines, and labels of other people, stay as they are."""
    path = Path(path)
    with lock_folder(path):
        lines = path.read_bytes().splitlines(keepends=True)
        line = encode_label(label, layout).strip()
        last = max((index for index, saved in enumerate(lines) if saved.strip() == line), default=None)
        if last is not None:
            write_atomically(path, b"".join(lines[:last] + lines[last + 1 :]))
