"""Laws of several attempts of one query, and of recorded requests: both survive every form."""

import json
import shutil
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ragfault.diagnosis.run_table import RunTable
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.formats.arrow import table_to_traces, traces_to_table
from ragfault.io.payloads.inspect_log import ZSTD
from ragfault.io.trace_reader import TraceDigest, read_traces
from ragfault.io.trace_writer import write_traces
from ragfault.model.errors import BadTraces, InputError
from ragfault.model.records import Chunk, ConversationTurn, Trace

REPEATS = Path(__file__).parent / "repeats"
REQUEST = (ConversationTurn(role="system", text="Be brief."), ConversationTurn(role="user", text="When does it open?"))
ATTEMPTS = [
    Trace(id="1", query="When does it open?", answer="At seven.", messages=REQUEST),
    Trace(id="1", query="When does it open?", answer="At eight.", attempt=2),
]


@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.csv", "t.tsv", "t.parquet"])
def test_attempts_and_requests_survive_each_format(name, tmp_path):
    """Two attempts of one id are two traces, and are written and read without a loss."""
    write_traces(ATTEMPTS, tmp_path / name)
    assert list(read_traces(tmp_path / name)) == ATTEMPTS


def test_a_table_without_the_columns_is_read(tmp_path):
    """A run of an earlier version has neither column: its traces are first attempts without a request."""
    table = traces_to_table(ATTEMPTS[:1]).drop_columns(["attempt", "messages"])
    pq.write_table(table, tmp_path / "old.parquet")
    [trace] = table_to_traces(pq.read_table(tmp_path / "old.parquet"))
    assert (trace.attempt, trace.messages) == (1, None)


def test_a_native_record_with_a_column_of_its_own_keeps_its_request(tmp_path):
    """A further column takes a record off the fast path, and does not turn its request into a history."""
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"id": "1", "query": "When?", "answer": "Now.", "tag": 3, "messages": [{"role": "user", "text": "When?"}]}'
    )
    [trace] = read_traces(path)
    assert (trace.messages, trace.history) == ((ConversationTurn(role="user", text="When?"),), None)


def test_messages_of_other_tools_are_a_conversation(tmp_path):
    """Turns that ragfault did not write are the conversation before the query."""
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"id": "1", "query": "When?", "answer": "Now.", "messages": [{"role": "user", "content": "Hello"},'
        ' {"role": "assistant", "content": "Hi"}]}'
    )
    [trace] = read_traces(path)
    assert trace.messages is None
    assert [turn.text for turn in trace.history] == ["Hello", "Hi"]


@pytest.mark.parametrize("role", ["system", "user"])
def test_turns_that_hold_all_chunks_are_the_request(role, tmp_path):
    """What shows every chunk is what the generator got; the turns before it are the history, without the answer."""
    shown = {"role": role, "content": "Passages:\nIt opens at nine.\n\nWhen does it open?"}
    asked = [{"role": "user", "content": "When does it open?"}] if role == "system" else []
    earlier = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    turns = [shown, *earlier, *asked] if role == "system" else [*earlier, shown]
    record = {"id": "1", "query": "When does it open?", "chunks": ["It opens at nine."], "answer": "At nine."}
    (tmp_path / "t.jsonl").write_text(
        json.dumps({**record, "messages": [*turns, {"role": "assistant", "content": "At nine."}]})
    )
    [trace] = read_traces(tmp_path / "t.jsonl")
    assert [turn.text for turn in trace.messages] == [turn["content"] for turn in turns]
    assert [turn.text for turn in trace.history] == ["Hello", "Hi"]


def test_an_attempt_that_is_repeated_is_a_bad_line(tmp_path):
    """`id` and `attempt` together are unique."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "1", "query": "a", "attempt": 2}\n' * 2)
    with pytest.raises(BadTraces) as error:
        list(read_traces(path))
    assert (error.value.good, error.value.count) == (1, 1)
    assert len(list(read_traces(path, unique="none"))) == 2


def test_a_duplicate_names_both_lines(tmp_path):
    """The error about a repeated attempt names its own line and the line that has the attempt first."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "1", "query": "a"}\n' + '{"id": "1", "query": "a", "attempt": 2}\n' * 2)
    with pytest.raises(BadTraces) as error:
        evaluate(path, tmp_path / "run", metrics="error")
    [line] = error.value.bad_lines
    assert line.line == 3
    assert "attempt 2, first on line 2" in line.problem


def read_attempts(path, **options):
    """Evaluate a file, and return id, query id and attempt of each trace of the run."""
    run = evaluate(path, path.with_suffix(".run"), metrics="error", **options)
    traces = list(run.traces())
    ids = [trace.id for trace in traces]
    assert [verdicts.trace for verdicts in run.verdicts()] == ids == [score.trace for score in run.scores()]
    assert len(set(ids)) == len(ids)
    return [(trace.id, trace.query_id, trace.attempt) for trace in traces]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_id_names_one_attempt_of_a_run(workers, tmp_path):
    """In a run the id of an attempt after the first ends with its number, for any number of workers."""
    write_traces(ATTEMPTS, tmp_path / "t.jsonl")
    assert read_attempts(tmp_path / "t.jsonl", workers=workers) == [("1", "1", 1), ("1#2", "1", 2)]


def test_ids_stay_if_no_query_has_several_attempts(tmp_path):
    """A number of attempts without a second attempt of any query changes no id."""
    (tmp_path / "t.jsonl").write_text('{"id": "1", "query": "a", "attempt": 2}\n{"id": "2", "query": "b"}\n')
    assert [name for name, _, _ in read_attempts(tmp_path / "t.jsonl")] == ["1", "2"]


def test_attempts_of_a_run_are_those_of_its_traces(tmp_path):
    """Traces that were exported from a run have the same ids and attempts when they are evaluated again."""
    write_traces(ATTEMPTS, tmp_path / "t.jsonl")
    first = read_attempts(tmp_path / "t.jsonl")
    write_traces(evaluate(ATTEMPTS, tmp_path / "r", metrics="error").traces(), tmp_path / "again.jsonl")
    assert read_attempts(tmp_path / "again.jsonl") == first


def test_repeated_ids_are_numbered_on_request(tmp_path):
    """With `unique="none"` a repeated id is the next attempt of its query."""
    (tmp_path / "t.jsonl").write_text('{"id": "1", "query": "a"}\n' * 3)
    assert [number for _, _, number in read_attempts(tmp_path / "t.jsonl", unique="none")] == [1, 2, 3]


@pytest.mark.parametrize("name", ["run_index", "epoch", "repeat", "trial", "iteration", "repeatIndex"])
def test_other_tools_number_attempts_under_names_of_their_own(name, tmp_path):
    """A number that is called a repeat is the attempt, counted from 1 if the file counts from 0."""
    rows = [{"id": "1", "question": "When?", "answer": "Now.", name: number} for number in (0, 1)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert read_attempts(tmp_path / "t.jsonl") == [("1", "1", 1), ("1#2", "1", 2)]


@pytest.mark.parametrize("value", [1767225600, "first"])
def test_times_and_words_are_no_numbers_of_attempts(value, tmp_path):
    """An `epoch` in seconds is metadata."""
    (tmp_path / "t.jsonl").write_text(json.dumps({"id": "1", "question": "When?", "answer": "Now.", "epoch": value}))
    [trace] = read_traces(tmp_path / "t.jsonl")
    assert trace.attempt == 1
    assert trace.metadata["epoch"] == value


@pytest.mark.parametrize("path", sorted(REPEATS.glob("*.json")), ids=lambda path: path.stem)
def test_repeats_of_other_tools_are_attempts(path, tmp_path):
    """The files of promptfoo, Inspect and DeepEval hold three queries with two attempts each."""
    shutil.copy(path, tmp_path / path.name)
    rows = read_attempts(tmp_path / path.name)
    assert Counter(number for _, _, number in rows) == {1: 3, 2: 3}
    assert len({query for _, query, _ in rows}) == 3


def test_tests_and_prompts_next_to_results_are_settings(tmp_path):
    """The results of promptfoo stand next to the prompts, models and tests that they were made from."""
    document = json.loads((REPEATS / "promptfoo.json").read_text())
    results = document["results"]["results"]
    tests = [{"vars": item["vars"], "assert": []} for item in results[:3]]
    failed = {**results[0], "error": "Expected output to contain 7", "failureReason": 1}
    document["results"]["results"] = [failed, *results[1:]]
    document["config"] = {"prompts": ["{{context}} {{question}}"], "providers": ["file://app.py"], "tests": tests}
    (tmp_path / "out.json").write_text(json.dumps(document))
    traces = list(read_traces(tmp_path / "out.json"))
    assert len(traces) == len(results)
    assert {trace.error for trace in traces} == {None}


def pack_log(path, is_packed):
    """Pack the samples of a log as Inspect does: each a file of an archive, compressed by Zstandard or not."""
    samples = json.loads((REPEATS / "inspect.json").read_text())["samples"]
    files = {f"samples/{item['id']}_epoch_{item['epoch']}.json": json.dumps(item, indent=1) for item in samples}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", "{}")
        for name, text in files.items():
            archive.writestr(name, pa.compress(text.encode(), "zstd", asbytes=True) if is_packed else text)
    if is_packed:
        # Python cannot write this kind of archive: the method is a field of both headers of a file
        data, method = bytearray(path.read_bytes()), ZSTD.to_bytes(2, "little")
        for mark, field in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
            for name in files:
                header = data.rindex(mark, 0, data.index(name.encode()) if field == 8 else data.rindex(name.encode()))
                data[header + field : header + field + 2] = method
        path.write_bytes(data)


@pytest.mark.parametrize("is_packed", [True, False])
def test_a_log_of_inspect_is_read_as_it_is(is_packed, tmp_path):
    """The archive that Inspect writes by default holds the same traces as its JSON."""
    pack_log(tmp_path / "offices.eval", is_packed)
    assert list(read_traces(tmp_path / "offices.eval")) == list(read_traces(REPEATS / "inspect.json"))


def test_a_damaged_log_of_inspect_is_an_error(tmp_path):
    """Of a log that was cut off nothing is read."""
    pack_log(tmp_path / "offices.eval", is_packed=False)
    (tmp_path / "offices.eval").write_bytes((tmp_path / "offices.eval").read_bytes()[:2000])
    with pytest.raises(InputError):
        list(read_traces(tmp_path / "offices.eval"))


def test_attempts_with_other_chunks_are_one_query(tmp_path):
    """Attempts of a query count as one, whatever they retrieved; other queries stay apart."""
    traces = [
        Trace(id=name, query=f"When is {name}?", attempt=number, chunks=(Chunk(id=f"{number}", text=f"At {number}."),))
        for name in "ab"
        for number in (1, 2)
    ]
    table = RunTable(evaluate(traces, tmp_path / "run", metrics="error"))
    assert table.queries.tolist() == [0, 0, 1, 1]
    assert len(set(table.clusters.tolist())) == 2


def test_absent_attempts_and_requests_do_not_change_a_fingerprint():
    """A trace without them has the fingerprint of the versions that did not know them."""
    digests = [TraceDigest() for _ in range(3)]
    for digest, trace in zip(
        digests, (*ATTEMPTS, Trace(id="1", query="When does it open?", answer="At seven.")), strict=True
    ):
        digest.add(trace)
    assert len({digest.fingerprint for digest in digests}) == 3
    known = TraceDigest()
    known.add(Trace(id="1", query="When?"))
    assert known.fingerprint == "73af05364e3994710a99e1755be9dcca"
