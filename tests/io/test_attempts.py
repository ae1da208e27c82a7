"""Laws of several attempts of one query, and of recorded requests: both survive every form."""

import pyarrow.parquet as pq
import pytest

from ragfault.evaluation.evaluator import evaluate
from ragfault.io.formats.arrow import table_to_traces, traces_to_table
from ragfault.io.trace_reader import TraceDigest, read_traces
from ragfault.io.trace_writer import write_traces
from ragfault.model.errors import BadTraces
from ragfault.model.records import ConversationTurn, Trace

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


def test_an_attempt_that_is_repeated_is_a_bad_line(tmp_path):
    """`id` and `attempt` together are unique."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "1", "query": "a", "attempt": 2}\n' * 2)
    with pytest.raises(BadTraces) as error:
        list(read_traces(path))
    assert (error.value.good, error.value.count) == (1, 1)
    assert len(list(read_traces(path, unique="none"))) == 2


def test_a_run_holds_one_attempt_of_a_query(tmp_path):
    """Verdicts name their trace by its id, so that a second attempt in the same run is refused."""
    write_traces(ATTEMPTS, tmp_path / "t.jsonl")
    with pytest.raises(BadTraces):
        evaluate(tmp_path / "t.jsonl", tmp_path / "run", metrics="error")


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
