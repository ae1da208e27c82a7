"""Laws of the account of records: each leaf comes out in a field, in metadata or in the list of what is not read."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.io.accounts import format_place, make_path
from ragfault.io.trace_reader import read_traces, summarize_input
from ragfault.model.errors import BadTraces, InputError
from tests.support.foreign_records import RECORDS

MARK = "qxmark"
SHAPES = {
    f"shape {path.stem}": json.loads(path.read_text("utf-8"))["records"]
    for path in sorted((Path(__file__).parent / "shapes").glob("*.json"))
}
FIXTURES = {**{name: [record] for name, (record, _) in RECORDS.items()}, **SHAPES}
LONG = "It leaves at nine from the old pier, and in winter it leaves at ten from the new one."


def list_leaves(value, place=()):
    """Yield the places of the leaves of a value that say something."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from list_leaves(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from list_leaves(item, (*place, index))
    elif value is not None and value != "":
        yield place


def mark_leaf(value, place, is_instead):
    """Return a value with a marker in one leaf: a word after or instead of a text, another number, the other flag."""
    if place:
        altered = dict(value) if isinstance(value, dict) else list(value)
        altered[place[0]] = mark_leaf(altered[place[0]], place[1:], is_instead)
        return altered
    if isinstance(value, bool):
        return not value
    return (MARK if is_instead else f"{value} {MARK}") if isinstance(value, str) else value + 1000


def read(records):
    """Read records; return their traces as plain objects, and the paths that are not read."""
    unread = {}
    traces = read_traces([dict(record) for record in records], accept_unread=True, unread=unread)
    return msgspec.to_builtins(list(traces)), unread


def find_outcomes(records):
    """Find where the leaf of each path comes out, as `find_marker` says; of the leaves of one path the last stands."""
    before, _ = read(records)
    places = {format_place(place[1:]): place for place in list_leaves(records)}
    return {path: find_outcome(records, before, place) for path, place in places.items()}


def find_outcome(records, before, place):
    """Find where the marker of a leaf comes out: as a word of a text, else in the place of the text."""
    outcome = find_marker(records, before, place, is_instead=False)
    return find_marker(records, before, place, is_instead=True) if outcome == "lost" else outcome


def find_marker(records, before, place, is_instead):
    """Find where the marker of a leaf comes out: the fields of the trace that change, "refused", or "not read"."""
    try:
        after, unread = read(mark_leaf(records, place, is_instead))
    except (InputError, BadTraces):
        return "refused"
    fields = {
        field
        for old, new in zip(before, after, strict=False)
        for field in old | new
        if old.get(field) != new.get(field)
    }
    if fields or len(before) != len(after):
        return ", ".join(sorted(fields)) or "number of traces"
    # a record within a document has paths of its own
    paths = [make_path(place[start:end]) for start in range(1, len(place)) for end in range(start + 1, len(place) + 1)]
    return "not read" if unread.keys() & set(paths) else "lost"


@pytest.mark.parametrize("name", FIXTURES)
def test_no_leaf_of_a_record_is_lost(name):
    """A marker in a leaf changes a field of the trace, or its path is listed as not read."""
    assert [path for path, outcome in find_outcomes(FIXTURES[name]).items() if outcome == "lost"] == []


def test_each_leaf_comes_out_at_its_place():
    """Fields, short metadata, and content that no field takes are told apart leaf by leaf."""
    record = {
        "question": "When does the ferry leave?",
        "contexts": [{"text": LONG, "page": 3, "window": f"{LONG} {LONG}"}],
        "answer": "At nine.",
        "user": {"tier": "gold", "note": LONG},
        "checks": [{"name": "style", "passed": True}],
        "tags": ["a", "b"],
    }
    assert find_outcomes([record]) == {
        "question": "id, query",
        "contexts[].text": "chunks",
        "contexts[].page": "chunks",
        "contexts[].window": "not read",
        "answer": "answer",
        "user.tier": "metadata",
        "user.note": "not read",
        "checks[].name": "not read",
        "checks[].passed": "not read",
        "tags[]": "metadata",
    }


LEAVES = st.one_of(
    st.integers(-9, 99), st.booleans(), st.sampled_from(["gold", "a b", LONG, f"{LONG} And so on.", "7"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "note", "n2", "text"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(["spare", "extra", "x1", "remarks", "thing"]), VALUES, max_size=3))
def test_no_leaf_of_a_column_of_any_form_is_lost(spare):
    """The same is true of columns of any form beside a question, a context and an answer."""
    record = {
        "question": "When does the ferry leave?",
        "contexts": ["At nine."],
        "answer": "It leaves at nine.",
        **spare,
    }
    try:
        before, _ = read([record])
    except InputError:
        return
    for place in list_leaves([record]):
        assert find_outcome([record], before, place) != "lost", place


def test_a_later_record_may_not_lose_a_long_text():
    """A text that one record holds and no trace does is listed, though the same path was read before."""
    records = [
        {"messages": [{"role": "user", "content": "When?"}, {"role": "assistant", "content": LONG}]},
        {
            "messages": [
                {"role": "user", "content": "Why?"},
                *({"role": "assistant", "content": f"{n} {LONG}"} for n in "ab"),
            ]
        },
    ]
    traces, unread = read(records)
    assert [trace["answer"] for trace in traces] == [LONG, f"b {LONG}"]
    assert unread["messages[].content"].characters == len(f"a {LONG}")


def test_content_that_no_field_takes_is_asked_about(tmp_path):
    """Passages in a place where no reader looks stop the reading, unless they are accepted."""
    log = [{"retrieved_passages": [LONG, f"So: {LONG}"]}] * 2
    record = {"input": "When?", "actual_output": "At nine.", "retrieval_context": ["It is green."], "log": log}
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"log\[\]\.retrieved_passages"):
        list(read_traces(path))
    [trace] = read_traces(path, accept_unread=True)
    assert [chunk.text for chunk in trace.chunks] == ["It is green."]
    assert summarize_input(path, accept_unread=True).unread["log"].characters > len(LONG)


def test_a_prompt_around_what_is_read_is_not_asked_about():
    """A text that holds the query and a chunk of its trace is listed as not read, and no more."""
    prompt = [
        {"role": "user", "content": f"Answer with care, and only from what follows.\n{LONG}\nWhen does it leave?"}
    ]
    record = {
        "input": "When does it leave?",
        "retrieval_context": [LONG],
        "actual_output": "At nine.",
        "prompts": [prompt],
    }
    traces, unread = read([record])
    assert (len(traces), list(unread)) == (1, ["prompts"])
    assert len(list(read_traces([record]))) == 1
