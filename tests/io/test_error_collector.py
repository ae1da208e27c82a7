"""Laws of bad input and bad output: every bad line is reported with its position, and nothing good is lost."""

import gzip
import json
import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.evaluation.evaluator import evaluate
from ragfault.io.error_collector import IdSet
from ragfault.io.field_values import InvalidRecord
from ragfault.io.formats.json_stream import iterate_elements
from ragfault.io.formats.record_shapes import NATIVE_SHAPE
from ragfault.io.normalization import normalize_record
from ragfault.io.trace_reader import read_traces, summarize_input
from ragfault.io.trace_writer import write_traces
from ragfault.model.errors import BadTraces, InputError, OutputError, UnknownName
from ragfault.model.records import Chunk, Trace

GOOD = b'{"id": "good", "query": "q"}'
OPEN = b'{"id": "bad", "query": "q", '


def mixed(path, *lines):
    """Write a file with a good line, the given lines, and another good line."""
    path.write_bytes(b"\n".join([GOOD, *lines, GOOD.replace(b"good", b"last")]) + b"\n")
    return path


def read_bad_lines(where, **how):
    """Return the ids of the good traces and the bad lines."""
    reported = []
    return [trace.id for trace in read_traces(where, on_bad=reported.append, **how)], reported


CASES = {
    "malformed": (b'{"id": "bad", "query"', "malformed JSON"),
    "not an object": (b"[1, 2]", r"Expected `object`, got `array`"),
    "wrong type": (
        OPEN + b'"chunks": [{"id": "a"}, {"id": "b"}, {"id": "c", "score": "x"}]}',
        r"\$\.chunks\[2\]\.score",
    ),
    "wrong type of answer": (OPEN + b'"answer": {"a": 1, "b": 2}}', r"\$\.answer"),
    "wrong gold": (OPEN + b'"gold": {"a": "much"}}', r"\$\.gold"),
    "missing query": (b'{"id": "bad", "answer": "a"}', "field `query` is missing"),
    "null query": (b'{"id": "bad", "query": null}', "field `query` is missing"),
    "infinite score": (
        OPEN + b'"chunks": [{"id": "a", "score": Infinity}]}',
        r"Infinity is not a number - at `\$\.chunks\[0\]\.score`",
    ),
    "gold without a name": (OPEN + b'"gold": [{"id": ["a"]}]}', r"got `array` - at `\$\.gold`"),
    "infinity": (OPEN + b'"gold": {"a": -Infinity}}', r"Infinity is not a number"),
    "out of range": (OPEN + b'"chunks": [{"id": "a", "score": 1e999}]}', r"Infinity is not a number"),
    "too large": (OPEN + b'"turn": 99999999999999999999}', r"out of range - at `\$\.turn`"),
    "too many digits": (OPEN + b'"turn": ' + b"9" * 5000 + b"}", "malformed JSON"),
    "UTF-8": (OPEN + b'"answer": "\xff\xfe"}', "invalid UTF-8 at byte 40"),
    "surrogate": (OPEN + b'"answer": "\\ud800"}', "half a character"),
    "nested": (OPEN + b'"metadata": {"a": ' + b"[" * 200 + b"]" * 200 + b"}}", "nested more than 128"),
    "bomb": (OPEN + b'"metadata": ' + b'{"a":' * 10**5 + b"1" + b"}" * 10**5 + b"}", "nested"),
    "duplicate": (GOOD, 'duplicate id "good"'),
    "empty chunk": (OPEN + b'"chunks": [{}]}', r"without id and text - at `\$\.chunks\[0\]`"),
    "time": (OPEN + b'"time": "noon"}', r"\"noon\" is not a time"),
    "turn": (OPEN + b'"turn": -1}', r"-1 is less than nothing - at `\$\.turn`"),
    "tokens": (OPEN + b'"tokens": {"prompt": -4}}', r"-4 is less than nothing - at `\$\.tokens\.prompt`"),
    "latency": (OPEN + b'"latency": -0.5}', r"-0\.5 is less than nothing - at `\$\.latency\.total`"),
    "absurd latency": (
        OPEN + b'"latency": {"total": 1e308}}',
        r"1e\+308 is more than any trace takes - at `\$\.latency",
    ),
    "absurd tokens": (
        OPEN + b'"tokens": {"prompt": 1000000000000000}}',
        r"is more than any trace takes - at `\$\.tokens",
    ),
    "absurd step": (
        OPEN + b'"steps": [{"id": "s", "duration": 1e200}]}',
        r"more than any trace takes - at `\$\.steps\[0",
    ),
}


def test_errors_of_one_kind_are_counted_once(tmp_path):
    """Lines whose problems differ in a number, an id or a value are one entry with their count and an example."""
    kinds = [
        [OPEN + b'"time": "noon %d"}' % number for number in range(30)],
        [OPEN + b'"turn": -%d}' % number for number in range(1, 4)],
        [OPEN + b'"chunks": [{"id": "a"}' + b", 7" * number + b"]}" for number in (1, 2)],
        [b'{"id": "x%d"}' % number for number in range(2)],
    ]
    path = mixed(tmp_path / "t.jsonl", *(line for lines in kinds for line in lines))
    for fail in (lambda: list(read_traces(path)), lambda: evaluate(path, tmp_path / "run", judge="lexical")):
        with pytest.raises(BadTraces) as caught:
            fail()
        head, *entries, _ = str(caught.value).splitlines()
        assert head == "37 of 39 traces cannot be read:"
        assert [('"noon 0"' in entries[0]), "-1 is less" in entries[1], "got `int`" in entries[2]] == [True] * 3
        counts = ["(30 lines like this: 2, 3, 4, 5, 6, …)", "(3 lines like this: 32, …)", "(2 lines like this: 35, …)"]
        assert [entry.endswith(count) for entry, count in zip(entries, counts, strict=False)] == [True] * 3
        assert len(entries) == len(kinds)


@pytest.mark.parametrize("case", CASES)
def test_bad_lines(case, tmp_path):
    """A bad line is named with its number, reason and text; the lines around it are read."""
    line, problem = CASES[case]
    path = mixed(tmp_path / "t.jsonl", line)
    good, [bad_line] = read_bad_lines(path)
    assert good == ["good", "last"]
    assert (bad_line.where, bad_line.line, bad_line.text) == (str(path), 2, line.decode("utf-8", "replace"))
    with pytest.raises(BadTraces, match=problem) as caught:
        list(read_traces(path))
    assert (caught.value.good, caught.value.count) == (2, 1)
    assert [trace.id for trace in read_traces(path, on_bad="skip")] == ["good", "last"]
    assert summarize_input(path).bad_count == 1


def test_files_with_the_same_ids_are_versions_that_are_evaluated_apart(tmp_path):
    """A file that repeats the ids of another is named with the command for it; within one file ids repeat by line."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(b'{"id": "1", "query": "q"}\n{"id": "2", "query": "r"}\n')
    with pytest.raises(BadTraces) as caught:
        list(read_traces(tmp_path))
    message = str(caught.value)
    assert message.startswith("2 of 4 traces have an id that a file before theirs has.")
    assert all(f'ragfault.evaluate("{tmp_path}/{name}.jsonl", "runs/{name}")' in message for name in ("a", "b"))
    assert 'id_from="line"' in message
    (tmp_path / "b.jsonl").write_bytes(b'{"id": "3", "query": "q"}\n{"id": "3", "query": "r"}\n')
    with pytest.raises(BadTraces, match=r"b.jsonl:2: duplicate id \"3\", first on line 1: make ids unique"):
        list(read_traces(tmp_path))


@pytest.mark.parametrize("case", ["wrong type", "missing query", "infinite score", "duplicate"])
def test_bad_array_elements(case, tmp_path):
    """A bad element of a JSON array has the number of the line on which it begins."""
    line, _ = CASES[case]
    text = b"[\n" + GOOD + b",\n" + line + b",\n" + GOOD.replace(b"good", b"last") + b"]"
    (tmp_path / "t.json").write_bytes(text)
    good, [bad_line] = read_bad_lines(tmp_path / "t.json")
    assert (good, bad_line.line) == (["good", "last"], 3)


@pytest.mark.parametrize(
    ("text", "good", "bad_line"),
    [
        ('[{"id": "1", "query": "a"},\n{"id": "2", "query": "b"}', "12", (2, "the list is not closed")),
        ('[{"id": "1", "query": "a"},\n{"id": "2", "que', "1", (2, "the list is not closed")),
        ('[{"id": "1", "query": "a"},\n', "1", (2, "the list is not closed")),
        ('{"data": [{"id": "1", "query": "a"}', "1", (1, "the list is not closed")),
        ('{"data": [{"id": "1", "query": "a"}]\n, "n": ', "1", (2, "the object is not closed")),
        ('{\n"id": "1", "query": "a"', "", (1, "the object is not closed")),
        ('[{"id": "1", "query": "a"}}', "1", (1, "malformed JSON")),
        ('[{"id": "1", "query": "a"}]]', "1", (1, "malformed JSON")),
        ('[{"id": "1", "query": "a"}]\nend\n[{"id": "2", "query": "b"}]', "12", (2, "malformed JSON")),
    ],
)
def test_broken_documents(text, good, bad_line, tmp_path):
    """A document that breaks off, or is closed wrongly, gives its good elements and one bad line at that place."""
    (tmp_path / "t.json").write_text(text)
    ids, [reported] = read_bad_lines(tmp_path / "t.json")
    assert ("".join(ids), reported.line) == (good, bad_line[0])
    assert bad_line[1] in reported.problem


@pytest.mark.parametrize("step", [1, 7, 10**6])
def test_documents_in_a_row(step, tmp_path):
    """Documents that follow one another in a file are all read, whatever each of them is."""
    texts = (
        '[{"id": "1", "query": "a"}] [{"id": "2", "query": "b"}]',
        '{"data": [{"id": "3", "query": "c"}], "data_format": 1}\n{"data": [{"id": "4", "query": "d"}]}',
        '\ufeff{\n "id": "5", "query": "e", "rows": [{"a": 1}]\n}\n{"id": "6", "query": "f"},',
        '{\n "data": [1, 2], "id": "7", "query": "g"}\n[]',
    )
    import io

    class Slow(io.BytesIO):
        def read(self, size=-1):
            return super().read(min(size, step))

    body = io.BufferedReader(Slow("\n".join(texts).encode()), 1)
    assert [json.loads(text)["id"] for _, text, _ in iterate_elements(body, 10**6)] == list("1234567")
    for number, text in enumerate(texts):
        (tmp_path / "t.json").write_text(text)
        assert len(list(read_traces(tmp_path / "t.json"))) == 2 if number < 3 else 1


def test_lists_in_lines(tmp_path):
    """Whether lines are records or documents is told by their keys: a list called `data` does not make a document."""
    (tmp_path / "t.jsonl").write_text('{"data": [{"n": 1}], "id": "1", "query": "a"}\n{"query": "b"}\n')
    assert [trace.query for trace in read_traces(tmp_path / "t.jsonl")] == ["a", "b"]
    (tmp_path / "t.jsonl").write_text('{"data": [1, 2], "q": "a"}\n{"data": [3], "q": "b"}\n')
    assert [trace.query for trace in read_traces(tmp_path / "t.jsonl", map={"query": "q"})] == ["a", "b"]
    (tmp_path / "t.jsonl").write_text('{"results": [{"query": "a"}]}\n{"results": [{"query": "b"}, {"query": "c"}]}\n')
    assert [trace.query for trace in read_traces(tmp_path / "t.jsonl")] == ["a", "b", "c"]


def test_many_bad_lines(tmp_path):
    """Of many bad lines of one kind the first twenty are kept, and all are counted."""
    (tmp_path / "t.jsonl").write_bytes(GOOD + b"\n" + b"{\n" * 500)
    with pytest.raises(BadTraces) as caught:
        list(read_traces(tmp_path / "t.jsonl"))
    assert (len(caught.value.bad_lines), caught.value.count) == (20, 500)
    assert "(500 lines like this" in str(caught.value)


def test_numbers_that_are_no_json(tmp_path):
    """NaN, which many tools write for what is missing, is read as null and said to be; infinity is kept as text."""
    line = OPEN + b'"answer": NaN, "chunks": [{"id": "a", "score": NaN}], '
    line += b'"metadata": {"a": NaN, "b": [Infinity, -Infinity, 1]}}'
    notices = []
    traces = read_traces(mixed(tmp_path / "t.jsonl", line), notice=notices.append)
    trace = next(trace for trace in traces if trace.id == "bad")
    assert (trace.answer, trace.metadata) == ("", {"a": None, "b": ["Infinity", "-Infinity", 1]})
    assert trace.chunks[0].score is None
    assert notices[-1] == "NaN is not valid JSON; it is read as null"
    list(read_traces(mixed(tmp_path / "t.jsonl", OPEN + b'"answer": "NaN"}'), notice=notices.append))
    assert notices[-1] != "NaN is not valid JSON; it is read as null"


def test_long_lines(tmp_path):
    """A line under the limit is read, one above it refused, and the ones around it are read."""
    line = OPEN + b'"answer": "' + b"x" * 2000 + b'"}'
    path = mixed(tmp_path / "t.jsonl", line)
    assert len(list(read_traces(path, max_line=3000))) == 3
    good, [bad_line] = read_bad_lines(path, max_line=1000)
    assert good == ["good", "last"]
    assert (bad_line.line, bad_line.problem) == (2, "the line is longer than 1,000 bytes")
    (tmp_path / "t.json").write_bytes(b"[\n" + GOOD + b",\n" + line + b",\n" + GOOD.replace(b"good", b"last") + b"\n]")
    good, [bad_line] = read_bad_lines(tmp_path / "t.json", max_line=1000)
    assert (good, bad_line.line) == (["good", "last"], 3)
    (tmp_path / "t.csv").write_text(f"id,query\n1,q\n2,{'x' * 2000}\n3,q\n")
    good, results = read_bad_lines(tmp_path / "t.csv", max_line=1000)
    assert good[0] == "1"
    assert results


def limited(code, megabytes=500):
    """Run code in a process that may not have more memory than this; its output."""
    space = megabytes * 2**20
    done = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (space, space)),
        capture_output=True,
        text=True,
        check=False,
        env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.long
def test_huge_line(tmp_path):
    """A line of 50 MB is read; one of 800 MB, packed into a few, is refused within little memory."""
    path = mixed(tmp_path / "t.jsonl", OPEN + b'"answer": "' + b"x" * 50_000_000 + b'"}')
    assert [len(trace.answer or "") for trace in read_traces(path)] == [0, 50_000_000, 0]
    with gzip.open(tmp_path / "bomb.jsonl.gz", "wb", 1) as file:
        file.write(GOOD + b"\n")
        for _ in range(800):
            file.write(b"x" * 2**20)
    code = (
        "from ragfault.io.trace_reader import read_traces\nfound = []\n"
        f"print(len(list(read_traces({str(tmp_path / 'bomb.jsonl.gz')!r}, on_bad=found.append))), len(found))"
    )
    assert limited(code).split() == ["1", "1"]


PEAK = """
import resource, sys
from ragfault.model.records import Chunk, Trace
from ragfault.io.trace_reader import read_traces
from ragfault.io.trace_writer import write_traces
count, path = int(sys.argv[1]), sys.argv[2]
made = (Trace(id=str(n), query="q", chunks=(Chunk(id=str(n), text=f"{n} " * 300),)) for n in range(count))
assert write_traces(made, path) == sum(1 for _ in read_traces(path)) == count
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["t.jsonl.gz", "t.json", "t.csv", "t.parquet"])
def test_bounded_memory(name, tmp_path):
    """Ten times the traces, written and read, take no more memory but the few bytes of their ids."""
    peaks = []
    for count in (2_000, 20_000):
        args = [sys.executable, "-c", PEAK, str(count), str(tmp_path / f"{count}{name}")]
        peaks.append(int(subprocess.run(args, capture_output=True, check=True).stdout))
    assert peaks[1] < peaks[0] + 25, peaks


def test_id_set():
    """Ids are met once, however many there are, and most of them lie in an array of eight bytes each."""
    seen = IdSet()
    assert all(seen.add(str(n)) for n in range(200_000))
    assert not any(seen.add(str(n)) for n in range(0, 200_000, 97))
    assert "199999" in seen
    assert "x" not in seen
    assert len(seen) == 200_000
    assert len(seen.recent) < 2**16


# --- whole files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.csv", "t.txt", "t.jsonl.gz"])
@pytest.mark.parametrize("text", [b"", b"\n \n"])
def test_empty_file(name, text, tmp_path):
    """A file without a trace is an error that says so, not a run of nothing."""
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    with pytest.raises(InputError, match=r"empty|neither its name"):
        list(read_traces(tmp_path / name))


def test_empty_lists(tmp_path):
    """An empty array and an empty table are empty too."""
    (tmp_path / "t.json").write_text("[]")
    write_traces([], tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("id,query\n")
    for name in ("t.json", "t.parquet", "t.csv"):
        with pytest.raises(InputError, match="empty, there is no trace in it"):
            list(read_traces(tmp_path / name))


def test_absent_files(tmp_path):
    """What is not there is named, before the first trace is asked for."""
    for where, what in [("x.jsonl", "no file"), ("*.jsonl", "no file matches"), (".", "holds no file of traces")]:
        with pytest.raises(InputError, match=what):
            read_traces(tmp_path / where)
    with pytest.raises(InputError, match="no file was named"):
        read_traces([])
    with pytest.raises(InputError, match="cannot be read"):
        read_traces("x" * 5000)


def test_unrecognised(tmp_path):
    """What is no file of traces is refused in words, with what would fix it."""
    (tmp_path / "a.bin").write_bytes(b"\x00\x01\x02" * 100)
    with pytest.raises(InputError, match="neither its name nor its beginning"):
        list(read_traces(tmp_path / "a.bin"))
    (tmp_path / "a.parquet").write_bytes(b"no Parquet")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        list(read_traces(tmp_path / "a.parquet"))
    options = r"no column for `query`; .*there are: id, text\. .*map=.\"query\": "
    (tmp_path / "a.csv").write_text("id,text\n1,x\n")
    pq.write_table(pa.table({"id": ["1"], "text": ["x"]}), tmp_path / "b.parquet")
    (tmp_path / "c.jsonl").write_bytes(b'{"id": "1", "text": "x"}\n' * 30)
    for name in ("a.csv", "b.parquet", "c.jsonl"):
        with pytest.raises(InputError, match=options):
            list(read_traces(tmp_path / name))
    with pytest.raises(InputError, match="no column `question` to read `query` from"):
        list(read_traces(tmp_path / "a.csv", map={"query": "question"}))


def test_absent_columns(tmp_path):
    """A column that a map names and no record has is refused, with the columns there are; rare ones are found."""
    how = {"query": "q", "chunks": "dox"}
    options = r'no column `dox` to read `chunks` from\. Did you mean "docs"\? There are: q, docs'
    (tmp_path / "t.jsonl").write_text('{"q": "a", "docs": ["x"]}\n' * 2)
    (tmp_path / "t.csv").write_text("q,docs\na,x\n")
    pq.write_table(pa.table({"q": ["a"], "docs": ["x"]}), tmp_path / "t.parquet")
    for name in ("t.jsonl", "t.csv", "t.parquet"):
        with pytest.raises(InputError, match=options):
            list(read_traces(tmp_path / name, map=how))
    with pytest.raises(InputError, match=r"`docs\.0\.page`"):
        list(read_traces(tmp_path / "t.jsonl", map={"query": "q", "answer": "docs.0.page"}))
    with pytest.raises(InputError, match=r"`docs\.0`"):
        list(read_traces(tmp_path / "t.csv", map={"query": "q", "chunks": "docs.0"}))
    lines = ['{"q": "a", "why": null}\n'] * 300 + ['{"q": "a", "dox": ["y"]}\n']
    (tmp_path / "t.jsonl").write_text("".join(lines))
    *_, last = read_traces(tmp_path / "t.jsonl", map={**how, "error": "why.text"})
    assert last.chunks[0].text == "y"


def test_truncated(tmp_path):
    """A truncated download gives its whole lines first, and then says that it breaks off."""
    lines = b"".join(b'{"id": "%d", "query": "q%d"}\n' % (n, n * n) for n in range(2000))
    content = gzip.compress(lines)
    (tmp_path / "t.jsonl.gz").write_bytes(content[: len(content) // 2])
    good, [bad_line] = read_bad_lines(tmp_path / "t.jsonl.gz")
    assert good == [str(n) for n in range(len(good))]
    assert len(good) > 100
    assert "truncated" in bad_line.problem
    with pytest.raises(InputError, match="truncated"):
        list(read_traces(tmp_path / "t.jsonl.gz"))
    packed = pa.compress(lines, codec="zstd", asbytes=True)
    (tmp_path / "t.jsonl.zst").write_bytes(packed[: len(packed) // 2])
    assert len(read_bad_lines(tmp_path / "t.jsonl.zst")[1]) == 1
    (tmp_path / "u.jsonl.gz").write_bytes(content[:200] + b"\x00" * 50 + content[250:])
    assert read_bad_lines(tmp_path / "u.jsonl.gz")[1]


def test_bad_table_rows(tmp_path):
    """Rows of a table that are no traces are named by their line, the others are read."""
    (tmp_path / "t.csv").write_bytes(b'id,query,turn\n1,"two\nlines",3\n2,q,x\n3,q\n4,\xff,1\n5,,1\n6,q,\n')
    good, results = read_bad_lines(tmp_path / "t.csv")
    assert good == ["1", "6"]
    assert [bad_line.line for bad_line in results] == [4, 5, 6, 7]
    rows = [{"id": "1", "query": "q", "chunks": [{"id": "a", "score": score}]} for score in (float("inf"), 1.0)]
    rows[1]["id"] = "2"
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    good, [bad_line] = read_bad_lines(tmp_path / "t.parquet")
    assert (good, bad_line.line) == (["2"], 1)
    assert "$.chunks[0].score" in bad_line.problem


@pytest.mark.parametrize("end", ["", "\n"])
def test_open_quotes(end, tmp_path):
    """An unclosed quote makes the line in which it opens bad, with all that follows; one that is
    closed by the quote of another row is bad, too; a quote inside of a value is not.
    """
    text = f'id,query,answer\n1,q,"a\nb"\n2,"q\nr","open\n3,q,a\n4,q,a{end}'
    (tmp_path / "t.csv").write_text(text)
    good, [bad_line] = read_bad_lines(tmp_path / "t.csv")
    assert (good, bad_line.line) == (["1"], 5)
    assert "never closed" in bad_line.problem
    assert bad_line.text == f'2,"q\nr","open\n3,q,a\n4,q,a{end}'.rstrip("\n")
    (tmp_path / "t.csv").write_text(f'id,query\n1,"open\n2,"q"\n3,"he said" so{end}')
    good, [bad_line] = read_bad_lines(tmp_path / "t.csv")
    assert (good, bad_line.line, bad_line.text) == (["3"], 2, '1,"open\n2,"q"')


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda part: (
        st.lists(part, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "text", "start", "end", "chunks", "spans", "doc_id", "x"]), part, max_size=3
        )
    ),
    max_leaves=8,
)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(field=st.sampled_from(Trace.__struct_fields__), value=anything, loose=st.booleans())
def test_any_value(field, value, loose):
    """Whatever a field holds, the record is a valid trace or a bad line, and no other error escapes."""
    try:
        trace = normalize_record({"id": "1", "query": "q", field: value}, NATIVE_SHAPE.columns, parse_cells=loose)
    except InvalidRecord:
        return
    assert msgspec.json.decode(msgspec.json.encode(trace), type=Trace) == trace


@settings(max_examples=60, deadline=None)
@given(
    items=st.lists(st.text(max_size=8) | st.integers() | st.lists(st.text('"\\[]{},', max_size=6))),
    step=st.integers(1, 9),
)
def test_json_scanner(items, step, tmp_path_factory):
    """Arrays are taken apart at their commas, one document after another, wherever the blocks of the reading end."""
    import io

    class Slow(io.BytesIO):
        def read(self, size=-1):
            return super().read(min(size, step))

    parts = [{"n": 0}, *items]
    text = json.dumps({"a": "results", "results": parts, "b": [1]}, indent=1) + json.dumps(items)
    results = iterate_elements(io.BufferedReader(Slow(text.encode()), 1), 10**6)
    assert [json.loads(text) for _, text, _ in results] == parts + items


# --- writing ---------------------------------------------------------------------------------------


def test_existing_output(tmp_path):
    """What exists is not overwritten unless that is asked for."""
    path = tmp_path / "t.jsonl"
    path.write_text("mine")
    with pytest.raises(OutputError, match=r"exists already.*force=True"):
        write_traces([Trace(id="1", query="q")], path)
    assert path.read_text() == "mine"
    write_traces([Trace(id="1", query="q")], path, force=True)
    assert path.read_text() == '{"id":"1","query":"q"}\n'


@pytest.mark.parametrize("name", ["t.jsonl", "t.json.gz", "t.csv.zst", "t.parquet"])
def test_nothing_is_left_after_a_failure(name, tmp_path):
    """When the traces fail on the way, neither the file nor a part of it is left."""

    def failing():
        yield Trace(id="1", query="q")
        raise BadTraces([], 1, 1)

    with pytest.raises(BadTraces):
        write_traces(failing(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet", "out.run"])
def test_nothing_to_convert(name, tmp_path, capsys):
    """Converting an input without a single trace is an error and writes nothing, neither the file nor a side file."""
    from ragfault.cli.commands import run_command

    (tmp_path / "t.jsonl").write_text('{"query": " "}\nnonsense\n')
    assert run_command(["run", "convert", str(tmp_path / "t.jsonl"), str(tmp_path / name), "--skip-bad"]) == 2
    assert "holds no trace, and bad lines: 2." in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


def test_unwritable(tmp_path):
    """A full disk, a missing directory and a directory in the place of a file are told as such."""
    many = [Trace(id=str(n), query="q" * 1000) for n in range(200)]
    with pytest.raises(OutputError, match="the disk is full"):
        write_traces(many, "/dev/full")
    with pytest.raises(OutputError, match="there is no directory"):
        write_traces(many, tmp_path / "no" / "t.jsonl")
    (tmp_path / "d.jsonl").mkdir()
    with pytest.raises(OutputError, match="is a directory"):
        write_traces(many, tmp_path / "d.jsonl")
    with pytest.raises(OutputError, match="cannot write to"):
        write_traces(many, "/proc/t.jsonl")


@pytest.mark.long
def test_full_disk(tmp_path):
    """A file that outgrows what may be written is taken away again."""
    code = (
        "import resource, signal\nfrom ragfault import Trace\nfrom ragfault.model.errors import OutputError\n"
        "from ragfault.io.trace_writer import write_traces\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10**5, 10**5))\n"
        "for name in ('t.jsonl', 't.csv', 't.parquet'):\n"
        "    try: write_traces((Trace(id=str(n), query=str(n ** 9)) for n in range(9**5)), name)\n"
        "    except OutputError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.count("cannot write to") == 3
    assert list(tmp_path.iterdir()) == []


def test_unknown_formats(tmp_path):
    """A format or shape that is not written is refused with those that are."""
    with pytest.raises(UnknownName, match=r'no format "\.xlsx"'):
        write_traces([], tmp_path / "t.xlsx")
    with pytest.raises(UnknownName, match='no shape to write "ragtruth"'):
        write_traces([], tmp_path / "t.jsonl", shape="ragtruth")
    with pytest.raises(InputError, match="next to a TREC run"):
        write_traces([Trace(id="1", query="q", chunks=(Chunk(id="a"),))], tmp_path / "t.jsonl", qrels=tmp_path / "q")


def test_lines_that_end_in_a_carriage_return_alone_are_named_as_such(tmp_path):
    """A CSV file whose lines end in CR is refused with what its lines must end in, not with Python's advice."""
    path = tmp_path / "traces.csv"
    path.write_bytes(b"query,answer\rHow?,So.\rWhen?,Now.\r")
    with pytest.raises(BadTraces, match="a carriage return outside quotes"):
        list(read_traces(path))
    path.write_bytes(path.read_bytes().replace(b"\r", b"\r\n"))
    assert [trace.query for trace in read_traces(path)] == ["How?", "When?"]


@pytest.mark.parametrize("depth", [129, 400, 900])
def test_a_record_nested_too_deep_is_a_bad_line_of_its_own(tmp_path: Path, depth: int):
    """Records of other tools are walked through, so a deep one is refused before, and the others are read."""
    good = {"question": "When does it leave?", "contexts": ["It leaves at nine."], "answer": "At nine."}
    deep: object = "x"
    for _ in range(depth):
        deep = {"a": deep}
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (good, {**good, "meta": deep}, good)))
    with pytest.raises(BadTraces) as error:
        list(read_traces(path))
    assert [bad.line for bad in error.value.bad_lines] == [2]
    assert len(list(read_traces(path, on_bad="skip"))) == 2
    with pytest.raises(BadTraces):
        list(read_traces([{**good, "meta": deep}]))
