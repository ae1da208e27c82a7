"""Laws of label files: each layout gives labels, in whatever encoding, and each damaged line is named by its number."""

from __future__ import annotations

import csv
import gzip
import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ragfault.io.formats.tables import find_delimiter
from ragfault.labels.label import Label
from ragfault.labels.reading.label_files import encode_label, read_labels, read_saved_labels, write_labels
from ragfault.labels.reading.layouts import LAYOUTS, ExpectedValues, recognize_row
from ragfault.model.errors import BadRows, InputError
from ragfault.model.records import Trace

FOLDER = Path(__file__).parent / "layouts"
FILES = {path.stem.replace("-", " "): path for path in sorted(FOLDER.iterdir())}
EXPECTED = ExpectedValues({"groundedness": (0, 1), "refusal": (0, 1)}, ("old", "new"))


def at(minute: int) -> datetime:
    return datetime(2031, 5, 4, 9, minute, tzinfo=UTC)


def label(trace: str, subject: tuple[str | int, ...], value: object, **more: object) -> Label:
    return Label(trace=trace, subject=subject, value=value, **more)  # type: ignore[arg-type]


SEEN = {"annotator": "ann", "time": at(30), "shown": "a-1"}
HARD = {"chance": 0.5, "note": "hard"}
LABELS = {
    "verdicts": [
        label("q1", ("claim", 0, 9), "supported", **SEEN),
        label("q1", ("chunk", "c", "level"), "high", **SEEN),
        label("q1", ("chunk", "c", "relevance"), 0.9, **SEEN),
        label("q2", ("claim",), (), **HARD),
        label("q2", ("fact", "It is old."), "contradicted", **HARD),
        label("q2", ("missing",), ("the year",), **HARD),
        label("q3", ("answer", "refused"), True, annotator="Ben"),
        label("q3", ("aspect", "when"), False, annotator="Ben"),
    ],
    "reviews": [
        label("q1", ("item",), "accepted", annotator="ann", time=at(30), shown="item-1"),
        label("q2", ("item",), "rejected", annotator="ben", time=at(31), shown="item-2", note="off the subject"),
        label(
            "q3",
            ("item",),
            "accepted",
            annotator="ben",
            time=at(32),
            shown="new",
            edited=Trace(id="q3", query="When does the ferry leave?"),
        ),
    ],
    "preferences": [
        label("q1", ("preference", "old", "new"), 1.0, annotator="ann"),
        label("q3", ("preference", "new", "old"), 0.5),
    ],
    "rubric values": [
        label("q1", ("rubric", "formal"), 1.0, annotator="ann"),
        label("q2", ("rubric", "formal"), 0.5, annotator="ben", note="too short"),
        label("q3", ("rubric", ""), 0.0),
    ],
    "generator values": [
        label("q1", ("metric", "groundedness", "old"), 0.5),
        label("q1", ("metric", "groundedness", "new"), 1.0),
    ],
    "metric values": [
        label("q1", ("metric", "groundedness"), 0.75),
        label("q2", ("metric", "groundedness"), 1.0),
        label("q2", ("metric", "refusal"), 0.0),
    ],
}
"""Layout → the labels of its file."""


def read_rows(path: Path) -> list[dict[str, object]]:
    """Return the rows of a file as objects."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line]
    return list(csv.DictReader(io.StringIO(text), delimiter=find_delimiter(text.encode(), ",")))


def test_each_layout_has_a_file():
    assert set(FILES) == set(LAYOUTS) == set(LABELS)


@pytest.mark.parametrize("layout", LABELS)
def test_each_layout_gives_its_labels(layout: str):
    """The file of a layout is recognised by its columns, and gives the labels that were written into it."""
    assert recognize_row(read_rows(FILES[layout])[0], EXPECTED) == layout
    assert read_labels(FILES[layout], layout, expected=EXPECTED) == LABELS[layout]


@pytest.mark.parametrize("layout", LABELS)
@pytest.mark.parametrize(
    "saved", ["labels.jsonl", "labels.jsonl.gz", "labels", "labels.csv", "labels.csv.gz", "utf-16"]
)
def test_the_same_rows_give_the_same_labels_however_they_are_saved(layout: str, saved: str, tmp_path: Path):
    """JSON Lines and CSV, plain or compressed, in UTF-8 or UTF-16: the labels are the same."""
    rows = read_rows(FILES[layout])
    is_nested = any(isinstance(cell, dict) for row in rows for cell in row.values())
    path = tmp_path / (saved if saved != "utf-16" else "labels.jsonl")
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if ".csv" in saved and not is_nested:
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
        text = buffer.getvalue()
    elif ".csv" in saved:
        pytest.skip("verdicts have no table")
    content = text.encode("utf-16" if saved == "utf-16" else "utf-8")
    path.write_bytes(gzip.compress(content) if saved.endswith(".gz") else content)
    assert read_labels(path, layout, expected=EXPECTED) == LABELS[layout]


DAMAGE = {
    "verdicts": '{"trace": "q4", "verdicts": {"chunk": [{"chunk": "c"}]}}',
    "reviews": '{"item": "q4", "by": "ann", "time": "2031-05-04T09:30:00Z", "decision": "perhaps", "shown": "x"}',
    "preferences": "q4,,,,3,old,new,",
    "rubric values": "q4;formal;1.5;;",
    "generator values": '{"generator": "older", "trace": "q4", "groundedness": 1}',
    "metric values": "q1\t1\t",
}
"""Layout → a damaged last line of its file."""


@pytest.mark.parametrize("layout", LABELS)
def test_each_damaged_line_is_named_by_its_number(layout: str, tmp_path: Path):
    """Rows of wrong content, broken lines and bytes that are no text are all named, with the lines where they begin."""
    path = tmp_path / FILES[layout].name
    good = FILES[layout].read_bytes()
    path.write_bytes(good + DAMAGE[layout].encode() + b"\n" + b"\xff\xfe\n")
    last = good.count(b"\n")
    with pytest.raises(BadRows) as caught:
        read_labels(path, layout, expected=EXPECTED)
    assert [(bad.where, bad.line) for bad in caught.value.bad_lines] == [(str(path), last + 1), (str(path), last + 2)]


@pytest.mark.parametrize("layout", [name for name, layout in LAYOUTS.items() if not layout.holds_metrics])
def test_a_file_of_another_layout_is_named(layout: str):
    """The error says what the file holds, and what is needed."""
    needed = "verdicts" if layout != "verdicts" else "preferences"
    with pytest.raises(InputError) as caught:
        read_labels(FILES[layout], needed, expected=EXPECTED)
    assert not isinstance(caught.value, BadRows)
    assert LAYOUTS[layout].noun in str(caught.value)
    assert LAYOUTS[needed].noun in str(caught.value)


@pytest.mark.parametrize("layout", [name for name, layout in LAYOUTS.items() if layout.build])
def test_what_is_written_is_read_as_it_was(layout: str, tmp_path: Path):
    """Each label becomes one line, and the file cut anywhere within its last line holds the labels before it."""
    path = tmp_path / "labels.jsonl"
    write_labels(path, LABELS[layout], layout)
    assert read_labels(path, layout) == LABELS[layout]
    last = encode_label(LABELS[layout][-1], layout)
    for cut in range(2, len(last), 7):
        path.write_bytes(b"".join(encode_label(label, layout) for label in LABELS[layout][:-1]) + last[:-cut])
        assert read_saved_labels(path, layout) == LABELS[layout][:-1]


def test_a_file_without_labels_says_how_to_get_some(tmp_path: Path):
    for name, layout in LAYOUTS.items():
        (tmp_path / "empty.jsonl").write_text("\n")
        with pytest.raises(InputError) as caught:
            read_labels(tmp_path / "empty.jsonl", name)
        assert layout.advice in str(caught.value)


def test_labels_of_an_attempt_name_its_trace(tmp_path):
    """A row with an attempt is about the trace that has this attempt in a run."""
    path = tmp_path / "labels.csv"
    path.write_text("id,attempt,groundedness\n7,1,1\n7,2,0\n")
    labels = read_labels(path, "metric values", expected=EXPECTED)
    assert [item.trace for item in labels] == ["7", "7#2"]
