"""TREC files: what is read, what is refused, and the way there and back."""

import gzip
import random

import pyarrow as pa
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from ragfault.evaluation.evaluator import evaluate
from ragfault.io.formats.trec import read_qrels, read_run, read_trec, write_trec
from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import BadTraces, InputError, OutputError
from ragfault.model.records import Chunk, Gold, Trace

RUN = "q1 Q0 d1 1 9.5 bm25\nq1 Q0 d2 2 -3e-2 bm25\nq2 Q0 d1 1 4 bm25\n"
ROWS = [("q1", "d1", 9.5), ("q1", "d2", -0.03), ("q2", "d1", 4.0)]
QRELS = "q1 0 d1 2\nq1 0 d3 -1\nq3 0 d1 1\n"


@pytest.fixture
def write(tmp_path):
    """Write text or bytes to a file and return its path."""

    def put(content, name="a.run"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return put


def rows(table):
    return [tuple(row.values()) for row in table.to_pylist()]


# --- columns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        RUN,
        RUN.replace(" ", "\t"),
        RUN.replace(" ", "  "),
        RUN.replace(" ", " \t "),
        RUN.replace("\n", "\r\n"),
        RUN.replace("\n", " \n"),
        RUN.replace("\n", "\n\n"),
        RUN.replace(" bm25", ""),
        RUN.replace("bm25", "my own tag"),
        RUN.replace("q2 Q0", "q2  Q0"),
        "  " + RUN,
        "\ufeff" + RUN,
        RUN.rstrip("\n"),
    ],
)
def test_white_space_is_insignificant(write, content):
    """Any white space between the fields, empty lines and an absent tag all read the same."""
    assert rows(read_run(write(content))) == ROWS


def test_a_double_space_that_keeps_the_count(write):
    """A doubled space in a line without a tag is seen, though the number of columns fits."""
    for line in ("51  Q0 123 1 0.5\n", "51 Q0  123 1 0.5\n", "51 Q0 123  1 0.5\n", "51 Q0 123 1  0.5\n"):
        assert rows(read_run(write(line))) == [("51", "123", 0.5)]


def test_quotes_and_words_for_nothing_are_ids(write):
    """Ids may hold quotes, and may be called null or NaN."""
    text = 'null Q0 "d,1" 1 3 t\n"q Q0 NaN 2 2 t\n\'é Q0 NA 1 1 t\n'
    assert rows(read_run(write(text))) == [("null", '"d,1"', 3.0), ('"q', "NaN", 2.0), ("'é", "NA", 1.0)]


def test_only_plain_blanks_separate(write):
    """A no-break space is a part of an id, to both readers."""
    assert rows(read_run(write("q\u00a01 Q0 d 1 2 t\n"))) == [("q\u00a01", "d", 2.0)]
    assert rows(read_run(write("q\u00a01  Q0 d 1 2 t\n"))) == [("q\u00a01", "d", 2.0)]


def test_qrels(write):
    """Grades are read as numbers, negative and fractional ones too."""
    assert rows(read_qrels(write("q 0 a -1\nq 0 b 0.5\n"))) == [("q", "a", -1.0), ("q", "b", 0.5)]


@pytest.mark.parametrize("ending", ["gz", "zst"])
@pytest.mark.parametrize("space", [" ", "  "])
def test_compressed_files(write, ending, space):
    """The end of the name says how a file is compressed."""
    content = RUN.replace(" ", space).encode()
    packed = gzip.compress(content) if ending == "gz" else pa.compress(content, "zstd", asbytes=True)
    assert rows(read_run(write(packed, f"a.run.{ending}"))) == ROWS


def test_both_readers_agree(write):
    """The fast and the careful reader give the same table of a larger file."""
    rng = random.Random(5)
    lines = [f"q{rng.randint(0, 99)} Q0 d{number} {number} {rng.uniform(-9, 9)!r} t\n" for number in range(3000)]
    fast, careful = (read_run(write("".join(lines))), read_run(write("".join(lines).replace("Q0", " Q0 "), "b.run")))
    assert rows(fast) == rows(careful)
    assert fast.schema.names == careful.schema.names == ["query", "chunk", "score"]


# --- bad lines -------------------------------------------------------------------------------------


def test_every_malformed_line_is_reported(write):
    """All bad lines are reported together with their numbers and problems."""
    path = write(RUN + "q3 Q0 d1\nq3 Q0 d1 1 high t\nq3 Q0 d1 1 nan t\nq3 Q0 d2 1 1.0 t\n")
    with pytest.raises(BadTraces) as caught:
        read_run(path)
    assert [(bad_line.where, bad_line.line, bad_line.text) for bad_line in caught.value.bad_lines] == [
        (str(path), 4, "q3 Q0 d1"),
        (str(path), 5, "q3 Q0 d1 1 high t"),
        (str(path), 6, "q3 Q0 d1 1 nan t"),
    ]
    assert (caught.value.count, caught.value.good) == (3, 4)
    assert "3 fields where there should be query iteration chunk rank score tag" in str(caught.value)
    assert 'the score "high" is not a number' in str(caught.value)


def test_bad_rows_are_not_counted_as_traces(write, tmp_path):
    """A trace of a run is several rows: bad rows are counted as rows, by the reader and by evaluate."""
    path = write("q1 Q0 a 1 0.9 t\nq1 Q0 b 2 0.8 t\nq2 Q0 a 1 x t\nq2\nq3 Q0 a 1 0.5 t\n")
    for read in (lambda: list(read_traces(path)), lambda: evaluate(path, tmp_path / "run", judge="none")):
        with pytest.raises(BadTraces, match=r"^2 rows cannot be read; 2 traces can:"):
            read()


def test_many_bad_lines_are_counted(write):
    """Of many bad lines the first twenty are shown and the rest counted."""
    with pytest.raises(BadTraces, match="and 480 more") as caught:
        read_qrels(write("one two\n" * 500 + "q 0 a 1\n"))
    assert (len(caught.value.bad_lines), caught.value.count, caught.value.good) == (20, 500, 1)


def test_bad_lines_can_be_collected(write):
    """With a list for bad lines the good lines are returned and none of the bad ones is lost."""
    bad_lines = []
    assert rows(read_run(write(RUN + "bad\n" * 30), bad_lines)) == ROWS
    assert [bad_line.line for bad_line in bad_lines] == list(range(4, 34))


@pytest.mark.parametrize("line", [b"q Q0 \xff\xfe 1 2 t", b"q Q0 d 1 1_0 t", b"q Q0 d 1 0x10 t", b"q"])
def test_bad_lines(write, line):
    """A line with invalid UTF-8 or without a number is bad."""
    with pytest.raises(BadTraces) as caught:
        read_run(write(RUN.encode() + line + b"\n"))
    assert [bad_line.line for bad_line in caught.value.bad_lines] == [4]


def test_a_file_of_another_kind_is_one_error(write):
    """A run given as qrels, and traces given as a run, are one error, which says what makes the files of traces."""
    with pytest.raises(InputError, match="is no TREC qrels: no line of it is `query iteration chunk grade`"):
        read_qrels(write(RUN))
    with pytest.raises(
        InputError, match=r"is no TREC run: .*a\.run:1: .*ragfault run convert TRACES run.trec"
    ) as caught:
        read_run(write('{"id": "1", "query": "When does it open?", "answer": "At nine."}\n' * 104))
    assert not isinstance(caught.value, BadTraces)


@pytest.mark.parametrize("content", ["", "\n\n", "  \n"])
@pytest.mark.parametrize("read", [read_run, read_qrels])
def test_an_empty_file_is_an_error(write, content, read):
    """An empty file is no run of no queries but an error that names it."""
    with pytest.raises(InputError, match="is empty"):
        read(write(content))


def test_files_that_cannot_be_read(write, tmp_path):
    """A file that is missing or broken off is an error that names it."""
    with pytest.raises(InputError, match=r"none\.run"):
        read_run(tmp_path / "none.run")
    with pytest.raises(InputError, match=r"a\.run\.gz"):
        read_run(write(gzip.compress(RUN.encode() * 99)[:50], "a.run.gz"))


# --- traces ----------------------------------------------------------------------------------------


def test_traces(write):
    """A run and its qrels become traces, queries without results included."""
    first, second, third = read_trec(write(RUN), write(QRELS, "a.qrels"))
    assert first == Trace(
        id="q1",
        query="q1",
        chunks=(Chunk(id="d1", score=9.5), Chunk(id="d2", score=-0.03)),
        gold=Gold(chunks={"d1": 2.0, "d3": -1.0}),
    )
    assert (second.id, second.gold) == ("q2", None)
    assert (third.id, third.chunks, third.gold) == ("q3", (), Gold(chunks={"d1": 1.0}))


def test_the_order_of_a_trace(write):
    """Chunks are ordered by score as trec_eval orders them, whatever the rank says and the lines do."""
    lines = ["q Q0 a 1 1.0", "p Q0 a 1 1", "q Q0 c 2 1.0", "q Q0 b 3 1.000000001", "q Q0 d 4 7", "q Q0 e 5 -1"]
    traces = list(read_trec(write("\n".join(lines))))
    assert [trace.id for trace in traces] == ["q", "p"]
    assert [chunk.id for chunk in traces[0].chunks] == ["d", "c", "b", "a", "e"]


def test_contradictory_qrels(write):
    """A chunk judged twice with different grades is an error that names it."""
    with pytest.raises(InputError, match='"q" judges chunk "a" twice'):
        list(read_trec(write(RUN), write("q 0 a 1\nq 0 a 2\n", "a.qrels")))
    assert len(list(read_trec(write(RUN), write("q 0 a 1\nq 0 a 1\n", "a.qrels")))) == 3


# --- writing ---------------------------------------------------------------------------------------

ids = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=5)
numbers = st.floats(allow_nan=False, allow_infinity=False)
traces = st.lists(
    st.builds(
        lambda id, chunks, gold: Trace(id=id, query=id, chunks=chunks, gold=Gold(chunks=gold) if gold else None),
        ids,
        st.lists(st.builds(Chunk, id=ids, score=st.none() | numbers), min_size=1, max_size=5).map(tuple),
        st.dictionaries(ids, numbers, max_size=3),
    ),
    max_size=4,
    unique_by=lambda trace: trace.id,
)


@given(traces)
def test_there_and_back(tmp_path_factory, traces):
    """What is written reads back with the same queries, the same order of chunks and the same gold."""
    folder = tmp_path_factory.mktemp("trec")
    write_trec(traces, folder / "a.run", folder / "a.qrels")
    if traces:
        judged = any(trace.gold for trace in traces)
        again = list(read_trec(folder / "a.run", folder / "a.qrels" if judged else None))
        assert [(t.id, [c.id for c in t.chunks], t.gold) for t in again] == [
            (t.id, [c.id for c in t.chunks], t.gold) for t in traces
        ]


def test_scores_survive(tmp_path):
    """Scores that agree with the order are written as they are, in every digit."""
    trace = Trace(id="q", query="q", chunks=(Chunk(id="a", score=0.1 + 0.2), Chunk(id="b", score=-1e-300)))
    write_trec([trace], tmp_path / "a.run.gz")
    assert list(read_trec(tmp_path / "a.run.gz")) == [trace]


def test_trec_eval_reads_it(tmp_path):
    """The reference reader takes both files."""
    trace = Trace(id="q", query="?", chunks=(Chunk(id="b"), Chunk(id="a")), gold=Gold(chunks={"a": 2.0, "z": 0.0}))
    write_trec([trace, Trace(id="none", query="?")], tmp_path / "a.run", tmp_path / "a.qrels")
    with (tmp_path / "a.run").open() as run, (tmp_path / "a.qrels").open() as qrels:
        evaluator = pytrec_eval.RelevanceEvaluator(pytrec_eval.parse_qrel(qrels), {"recip_rank"})
        assert evaluator.evaluate(pytrec_eval.parse_run(run)) == {"q": {"recip_rank": 0.5}}


@pytest.mark.parametrize("id", ["", "two words", "tab\t", "line\n"])
def test_ids_that_cannot_be_written(tmp_path, id):
    """An id that would break the line is refused instead of written."""
    with pytest.raises(OutputError, match="white space"):
        write_trec([Trace(id="q", query="q", chunks=(Chunk(id=id),))], tmp_path / "a.run")


def test_a_place_that_cannot_be_written(tmp_path):
    """A folder that is not there is an error of the output."""
    with pytest.raises(OutputError, match="cannot be written"):
        write_trec([], tmp_path / "none" / "a.run")


@pytest.mark.parametrize("header", ["query-id\tcorpus-id\tscore", "qid\tdocid\tlabel"])
def test_qrels_as_a_table_with_a_header_are_read(header, tmp_path):
    """The qrels of BEIR give what the same qrels of TREC give, for the metrics as for the gold of traces."""
    (tmp_path / "a.tsv").write_text(f"{header}\nq1\td1\t2\nq1\td2\t0\nq2\td3\t1\n")
    (tmp_path / "a.qrels").write_text("q1 0 d1 2\nq1 0 d2 0\nq2 0 d3 1\n")
    assert read_qrels(tmp_path / "a.tsv").to_pylist() == read_qrels(tmp_path / "a.qrels").to_pylist()
    (tmp_path / "a.tsv").write_text(f"{header}\nq1\td1\tmuch\n")
    with pytest.raises(BadTraces, match=r"a\.tsv:2: the grade"):
        read_qrels(tmp_path / "a.tsv")
