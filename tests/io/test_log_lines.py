"""Laws of logs whose lines hold objects behind a text, and of YAML files."""

import json

import pytest

from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import BadTraces, InputError

RECORDS = [
    {"question": "When does the ferry leave?", "chunks": ["It leaves at nine."], "answer": "At nine."},
    {"question": "What does a dog cost?", "chunks": ["Dogs are free."], "answer": "Nothing, dogs are free."},
]
QUERIES = [record["question"] for record in RECORDS]
LINES = {
    "t.log": "2026-01-02 12:00:00,123 INFO rag {}",
    "t.jsonl": "INFO:rag.pipeline:{}",
    "t.txt": "Jan 02 12:00:00 host rag[812]: {}",
    "t": "[2026-01-02T12:00:00Z] [rag] trace={} took=12ms",
}


def write(folder, name, text):
    """Write a file, and return its path."""
    path = folder / name
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("form", [json.dumps, repr])
@pytest.mark.parametrize("name", LINES)
def test_objects_behind_a_text_are_the_records_of_a_log(name, form, tmp_path):
    """Each line gives the object that it holds, as JSON or Python print it, whatever the file is called."""
    text = "server started\n" + "".join(LINES[name].format(form(record)) + "\n" for record in RECORDS)
    notices = []
    traces = list(read_traces(write(tmp_path, name, text), notice=notices.append))
    assert [trace.query for trace in traces] == QUERIES
    assert [chunk.text for trace in traces for chunk in trace.chunks] == ["It leaves at nine.", "Dogs are free."]
    assert any("1 lines of the log hold no object" in line for line in notices)


def test_a_line_that_breaks_off_is_a_bad_line(tmp_path):
    """An object that is not closed is listed with its line, and the other lines are read."""
    text = f"INFO rag {json.dumps(RECORDS[0])}\nINFO rag {json.dumps(RECORDS[1])[:40]}\n"
    traces = []
    with pytest.raises(BadTraces) as caught:
        traces.extend(read_traces(write(tmp_path, "t.log", text), on_bad="raise"))
    assert [line.line for line in caught.value.bad_lines] == [2]


def test_a_comment_is_no_line_of_a_log(tmp_path):
    """A record that is commented out stays out."""
    text = f"# {json.dumps(RECORDS[0])}\n{json.dumps(RECORDS[1])}\n"
    assert [trace.query for trace in read_traces(write(tmp_path, "t.jsonl", text))] == QUERIES[1:]


YAML = """
common: &chunks
  - It leaves at nine.
records:
  - {question: When does the ferry leave?, chunks: *chunks, answer: At nine.}
  - {question: What does a dog cost?, chunks: [Dogs are free.], answer: "Nothing, dogs are free."}
"""


def test_yaml_is_read_in_each_of_its_forms(tmp_path):
    """A list, a document with a list, and several documents give the same queries."""
    yaml = pytest.importorskip("yaml")
    texts = [YAML, yaml.safe_dump(RECORDS), yaml.safe_dump_all(RECORDS)]
    for text in texts:
        assert [trace.query for trace in read_traces(write(tmp_path, "t.yaml", text))] == QUERIES


@pytest.mark.parametrize(
    "text",
    [
        "- !!python/object/apply:os.system ['true']",
        "question: &a [*a]",
        "question: 'Why?\nanswer: [",
        "a0: &a0 [x, x]\n" + "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(9)),
    ],
    ids=["object", "within itself", "broken", "aliases"],
)
def test_yaml_that_creates_objects_or_repeats_without_bound_is_refused(text, tmp_path):
    """No tag is run, and no alias fills the memory."""
    pytest.importorskip("yaml")
    with pytest.raises(InputError):
        list(read_traces(write(tmp_path, "t.yaml", text)))


def test_settings_in_a_folder_are_not_read_as_traces(tmp_path):
    """YAML is read if it is named; a folder stands for its files of traces."""
    write(tmp_path, "config.yaml", "k: 5")
    write(tmp_path, "t.jsonl", json.dumps(RECORDS[0]))
    assert [trace.query for trace in read_traces(tmp_path)] == QUERIES[:1]
