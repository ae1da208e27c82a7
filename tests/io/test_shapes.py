"""Laws of the formats of other tools: a file each in `io/shapes`, and a fixture each in `tests/io/shapes`."""

import json
from pathlib import Path

import msgspec
import pytest

from ragfault.io.formats.record_shapes import SHAPE_FOLDER, list_shapes, load_shape
from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import InputError, UnknownName

FIXTURES = sorted((Path(__file__).parent / "shapes").glob("*.json"))
OWN = """
signature = [["ask", "found.hits"]]
drop = ["debug"]
[fields]
query = "ask"
chunks = "found.hits"
answer = ["said", "fallback.text"]
"latency.total" = "took"
[chunks]
id = "ref"
text = "body.passage"
gold = "is_right"
[units]
"latency.total" = "s"
"""
RECORD = {
    "ask": "When does the ferry leave?",
    "found": {
        "hits": [
            {"ref": 7, "body": {"passage": "It leaves at nine."}, "is_right": 1, "page": 3},
            {"ref": 8, "body": {"passage": "It is green."}, "is_right": 0},
        ]
    },
    "fallback": {"text": "At nine."},
    "took": 1.5,
    "debug": {"heap": 1},
}


def holds(value, expected):
    """Tell whether a value is the expected one; an object may have more keys."""
    if isinstance(expected, dict):
        return isinstance(value, dict) and all(holds(value.get(key), part) for key, part in expected.items())
    if isinstance(expected, list) and isinstance(value, list):
        return len(value) == len(expected) and all(map(holds, value, expected))
    return value == expected


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_record_of_a_tool_is_read_by_its_format(path, tmp_path):
    """Each fixture is recognised as its format, and gives every field that stands beside it."""
    notices = []
    fixture = json.loads(path.read_text("utf-8"))
    records = fixture["records"]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    traces = msgspec.json.decode(msgspec.json.encode(list(read_traces(tmp_path / "t.jsonl", notice=notices.append))))
    shape = list_shapes()[path.stem]
    assert f"read as {shape.title}" in notices[0]
    assert len(traces) == len(fixture["traces"])
    for trace, expected in zip(traces, fixture["traces"], strict=True):
        for field, value in expected.items():
            assert holds(trace.get(field), value), field


@pytest.mark.parametrize("shape", [shape for shape in list_shapes().values() if shape.name != "ragfault"])
def test_a_format_says_where_it_is_defined(shape):
    """Each format has a title and a source."""
    assert shape.title
    assert shape.source


def test_a_format_of_a_user_is_read(tmp_path):
    """Paths, units, grades of chunks and dropped columns come from the file that --shape names."""
    (tmp_path / "own.toml").write_text(OWN)
    [trace] = read_traces([RECORD], shape=str(tmp_path / "own.toml"))
    assert (trace.query, trace.answer, trace.latency.total) == ("When does the ferry leave?", "At nine.", 1500)
    assert [(c.id, c.text, c.metadata) for c in trace.chunks] == [
        ("7", "It leaves at nine.", {"page": 3}),
        ("8", "It is green.", {}),
    ]
    assert (trace.gold.chunks, trace.metadata) == ({"7": 1.0}, {})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('signature = [["ask"]]', InputError),
        ('[fields]\nquery = "ask"', InputError),
        ('signature = [["ask"]]\n[fields]\nqery = "ask"', UnknownName),
        ('signature = [["ask"]]\nfiels = 1', InputError),
        ('signature = [["ask"]]\n[fields]\nquery = "ask"\n[units]\n"latency.total" = "days"', InputError),
    ],
)
def test_a_wrong_format_file_is_refused(text, error, tmp_path):
    """A file without a signature or fields, or with an unknown key, field or unit, is refused with its name."""
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(error, match=r"own\.toml"):
        load_shape(tmp_path / "own.toml")


def test_the_formats_are_in_the_package():
    """Every file of the folder is a format of its own name."""
    assert {path.stem for path in SHAPE_FOLDER.glob("*.toml")} == list_shapes().keys() - {"ragfault"}


@pytest.mark.parametrize("name", sorted(list_shapes().keys() - {"ragfault", "passages"}))
def test_each_format_is_in_the_list_of_the_docs(name):
    """The page on formats names each file and the page it was taken from."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "foreign-files.md").read_text("utf-8")
    assert f"{name}.toml" in page
    assert list_shapes()[name].source in page
