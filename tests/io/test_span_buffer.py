"""Laws of joining: however spans come, the same traces go out, within bounds, and nothing is lost without a count."""

import json
from itertools import chain

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otlp_spans import ANSWER, QUERY, TEXTS, build_openinference, build_span, encode_json, format_id, request
from ragfault.io.otel.span_buffer import SpanBuffer
from ragfault.io.otel.spans import OtelSpan, SpanEvent
from ragfault.io.otel.trace_mapping import build_trace
from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import BadTraces, InputError

QUICK = settings(max_examples=60, deadline=None)


def spans_of(count: int):
    return [build_openinference(trace=number, query=f"{QUERY} ({number})") for number in range(count)]


def traces_of(joined):
    return {collected.trace: build_trace(collected.spans, collected.events) for collected in joined}


# --- the window ------------------------------------------------------------------------------------


@QUICK
@given(st.data())
def test_any_order_and_any_batching_give_the_same_traces(data):
    """Spans of several traces, shuffled, sent twice, in batches of any size, make the traces of spans in order."""
    groups = spans_of(data.draw(st.integers(1, 4)))
    sent = list(chain(*groups))
    doubled = data.draw(st.lists(st.sampled_from(sent), max_size=6))
    shuffled = data.draw(st.permutations(sent + doubled))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(shuffled)), max_size=5)))
    window, now = SpanBuffer(settle_time=100), 0
    for begin, end in zip([0, *cuts], [*cuts, len(shuffled)], strict=True):
        window.add(shuffled[begin:end], now)
        assert window.pop_finished(now) == []
        now += 1
    released = window.pop_finished(now + 100)
    assert traces_of(released) == {group[0].trace: build_trace(group) for group in groups}
    assert (window.counts.accepted, window.counts.duplicates, window.counts.settled) == (
        len(sent),
        len(doubled),
        len(groups),
    )
    assert (len(window), window.size) == (0, 0)


@QUICK
@given(st.permutations([0, 1, 2]), st.lists(st.integers(0, 2), max_size=4))
def test_of_two_records_of_a_span_the_fuller_stays(order, more):
    """A span that is sent before it ended and again after counts as it was in the end, in whatever order they come."""
    [group] = spans_of(1)
    early = msgspec.structs.replace(group[0], end=0, attributes={})
    sent = [early, *group[1:]]
    window = SpanBuffer()
    window.add([sent[place] for place in (*order, *more)], now=0)
    window.add([group[0], early], now=1)
    [joined] = window.pop_finished(now=99)
    assert joined.spans == tuple(group)


def test_a_trace_waits_for_its_root_and_then_for_the_rest():
    """Without its root a trace waits for `longest`; with it, for `settle` more."""
    [group] = spans_of(1)
    window = SpanBuffer(settle_time=5, max_wait=50)
    window.add(group[1:], now=0)
    assert window.pop_finished(now=49) == []
    window.add(group[:1], now=49.5)
    assert [span.reason for span in window.pop_finished(now=50)] == ["expired"]
    window = SpanBuffer(settle_time=5, max_wait=50)
    window.add(group[:1], now=0)
    window.add(group[1:2], now=4)
    assert window.pop_finished(now=4.9) == []
    [joined] = window.pop_finished(now=5)
    assert (joined.reason, len(joined.spans)) == ("settled", 2)
    window.add(group[1:], now=6)
    assert (window.counts.late, len(window)) == (2, 0)


def test_a_trace_without_a_root_goes_out_in_the_end():
    """What never gets a root goes out after `longest`, and says that it is not whole."""
    [group] = spans_of(1)
    window = SpanBuffer(settle_time=5, max_wait=50)
    window.add(group[1:], now=0)
    [joined] = window.pop_finished(now=50)
    assert (joined.reason, window.counts.expired) == ("expired", 1)
    assert build_trace(joined.spans).query == f"{QUERY} (0)"


def test_memory_is_bounded_and_what_is_pushed_out_is_counted():
    """Where what waits takes too much room, the oldest go out early: those with a root before those without."""
    window = SpanBuffer(max_bytes=40_000)
    groups = spans_of(40)
    window.add(groups[0][1:], now=0)
    out = []
    for number, group in enumerate(groups[1:], 1):
        window.add(group, now=number / 100)
        out += window.pop_finished(now=number / 100)
        assert window.size <= 40_000
    assert [span.trace for span in out] == [group[0].trace for group in groups[1 : len(out) + 1]]
    assert {span.reason for span in out} == {"crowded"}
    assert window.counts.crowded == len(out) > 5
    left = list(window.flush())
    assert left[0].trace == groups[0][0].trace
    assert len(out) + len(left) == 40


@pytest.mark.parametrize(
    "attributes",
    [
        {"name": "x" * 10_000},
        {"message": "x" * 10_000},
        {"attributes": {"x" * 10_000: 1}},
        {"attributes": {"a": [{"x" * 10_000: None}]}},
        {"resource": {"service.name": "x" * 10_000}},
        {"events": (SpanEvent(name="x" * 10_000),)},
    ],
)
def test_no_text_of_a_span_is_without_weight(attributes):
    """Wherever a long text stands, it counts towards the room."""
    window = SpanBuffer()
    window.add([OtelSpan(trace=format_id(1, 32), id=format_id(1, 16), **attributes)], now=0)
    assert window.size > 10_000


def test_one_trace_cannot_take_all():
    """A trace of more spans than it may have loses those that come last, but never its root."""
    window = SpanBuffer(max_spans=10)
    window.add([build_span(place, 0, 1, "step", held={}) for place in range(1, 50)], now=0)
    window.add([build_span(0, 0, 9, "ask", held={})], now=0)
    [joined] = window.pop_finished(now=99)
    assert (len(joined.spans), window.counts.over_limit) == (11, 39)
    assert any(span.parent is None for span in joined.spans)


def test_ids_of_released_traces_are_remembered_for_a_while():
    """The last traces that went out are known as late, and no more than those."""
    window = SpanBuffer(settle_time=0, max_released=2)
    for group in spans_of(3):
        window.add(group, now=0)
        assert len(window.pop_finished(now=0)) == 1
    window.add(spans_of(3)[2], now=0)
    assert window.counts.late == 3
    window.add(spans_of(3)[0], now=0)
    assert len(window.pop_finished(now=0)) == 1


def test_records_of_a_log_join_the_trace_that_they_name():
    """A record of a log waits with the spans of its trace, once; one that names no trace is counted."""
    [group] = spans_of(1)
    rating = SpanEvent(
        name="gen_ai.evaluation.result",
        trace=group[0].trace,
        span=group[2].id,
        attributes={"gen_ai.evaluation.name": "helpful", "gen_ai.evaluation.score.label": "yes"},
    )
    window = SpanBuffer()
    window.add((), now=0, events=[rating, SpanEvent(name="noise")])
    window.add(group, now=0, events=[rating])
    [joined] = window.pop_finished(now=99)
    assert joined.events == (rating,)
    assert (window.counts.without_trace, window.counts.duplicates) == (1, 1)
    assert build_trace(joined.spans, joined.events).metadata["evaluations"] == [{"name": "helpful", "label": "yes"}]


def test_deadlines_do_not_grow_with_released_traces():
    """The list of deadlines does not grow with the traces that went out."""
    window = SpanBuffer(settle_time=0, max_wait=1e9)
    for group in spans_of(3000):
        window.add(group[:1], now=0)
        window.pop_finished(now=0)
    assert len(window._deadlines) < 2500


# --- files -----------------------------------------------------------------------------------------


def lines(path, groups, size=2):
    """Write a file as the collector does: each line is a request of a few spans."""
    sent = list(chain(*groups))
    bodies = [encode_json(sent[place : place + size]) for place in range(0, len(sent), size)]
    path.write_bytes(b"\n".join(bodies) + b"\n")
    return path


def test_a_file_of_the_collector_is_read_as_traces(tmp_path):
    """Lines of OTLP JSON are recognised, and spans of a trace on several lines are joined."""
    notices = []
    path = lines(tmp_path / "spans.jsonl", spans_of(5))
    places = {}
    results = list(read_traces(path, notice=notices.append, locations=places))
    assert results == [build_trace(group) for group in spans_of(5)]
    assert notices == ["read as OpenTelemetry spans"]
    assert places[results[1].id] == (str(path), 2)


def test_spans_of_a_trace_may_stand_in_several_files(tmp_path):
    """A trace whose spans were divided between files that were rotated is one trace."""
    [group] = spans_of(1)
    lines(tmp_path / "a.jsonl", [group[1:]])
    lines(tmp_path / "b.jsonl", [group[:1]])
    assert list(read_traces(tmp_path)) == [build_trace(group)]


def test_a_document_of_otlp_is_read(tmp_path):
    """An export request that is written over many lines, or an array of them, is read too."""
    [group] = spans_of(1)
    path = tmp_path / "spans.json"
    path.write_text(json.dumps(request(group), indent=2))
    assert list(read_traces(path)) == [build_trace(group)]
    path.write_text(json.dumps([request(group[:1]), request(group[1:])]))
    assert list(read_traces(path)) == [build_trace(group)]


def nested(attributes):
    trace = {}
    for name, value in attributes.items():
        place, steps = trace, name.split(".")
        for step in steps[:-1]:
            place = place.setdefault(step, {})
        place[steps[-1]] = value
    return listed(trace)


def listed(value):
    if not isinstance(value, dict):
        return value
    if value and all(key.isdecimal() for key in value):
        return [listed(part) for part in value.values()]
    return {key: listed(part) for key, part in value.items()}


def iso(nanoseconds):
    from datetime import UTC, datetime

    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).isoformat()


def exported(source, flat):
    """Return a span as Phoenix has it in JSON, or as the console exporter of the SDK writes it."""
    record = {
        "name": source.name,
        "context": {"trace_id": ("0x" if flat else "") + source.trace, "span_id": ("0x" if flat else "") + source.id},
        "parent_id": source.parent,
        "start_time": iso(source.start),
        "end_time": iso(source.end),
        "attributes": source.attributes if flat else nested(source.attributes),
        "events": [],
    }
    if flat:
        return record | {"status": {"status_code": "UNSET"}, "resource": {"attributes": source.resource}}
    return record | {
        "status_code": "OK",
        "status_message": "",
        "span_kind": source.attributes["openinference.span.kind"],
    }


@pytest.mark.parametrize("flat", [True, False])
def test_spans_one_by_one_are_read(flat, tmp_path):
    """Exports with a span on each line, with attributes flat or nested, make the same traces."""
    path = tmp_path / "spans.jsonl"
    groups = spans_of(2)
    path.write_text("\n".join(json.dumps(exported(span, flat)) for span in chain(*groups)))
    for results, group in zip(read_traces(path), groups, strict=True):
        expected = build_trace(group)
        known = msgspec.structs.replace(results, metadata=expected.metadata)
        assert known == expected
        assert results.metadata.items() >= {"release": "v3", "user": "u1"}.items()


def test_a_table_of_spans_is_read(tmp_path):
    """Parquet with a column for each attribute, as Phoenix saves a frame of spans, makes the same traces."""
    rows = []
    for recorded in spans_of(1)[0]:
        attributes = {
            f"attributes.{name}": part for name, part in recorded.attributes.items() if "retrieval" not in name
        }
        if recorded.name == "search":
            attributes["attributes.retrieval.documents"] = [
                {"document.id": f"p{place}", "document.content": text, "document.score": 0.9 - place / 10}
                for place, text in enumerate(TEXTS)
            ]
        rows.append(
            {
                "name": recorded.name,
                "span_kind": recorded.attributes["openinference.span.kind"],
                "context.trace_id": recorded.trace,
                "context.span_id": recorded.id,
                "parent_id": recorded.parent,
                "start_time": recorded.start,
                "end_time": recorded.end,
                "status_code": "OK",
                **attributes,
            }
        )
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: [row.get(name) for row in rows] for name in names})
    for name in ("start_time", "end_time"):
        place = table.column_names.index(name)
        table = table.set_column(place, name, table[name].cast(pa.timestamp("ns", "UTC")))
    path = tmp_path / "spans.parquet"
    pq.write_table(table, path)
    [results] = read_traces(path)
    expected = build_trace(spans_of(1)[0])
    assert msgspec.structs.replace(results, metadata=expected.metadata) == expected


def test_faults_are_reported_with_their_lines(tmp_path):
    """Lines that are no spans, spans without ids, and traces without a query are faults of their lines."""
    path = lines(tmp_path / "spans.jsonl", spans_of(1), size=3)
    bad = request([build_span(0, 0, 1, "chat", trace=7, held={"gen_ai.operation.name": "chat"})])
    worse = request([msgspec.structs.replace(build_span(0, 0, 1, "x", trace=8, held={}), id="0" * 16)])
    path.write_bytes(
        path.read_bytes() + b"\n".join([b"{no", json.dumps(bad).encode(), json.dumps(worse).encode(), b'{"a": 1}'])
    )
    faults = []
    [results] = read_traces(path, on_bad=faults.append)
    assert results.answer == ANSWER
    message = {fault.line: fault.problem for fault in faults}
    assert sorted(message) == [2, 3, 4, 5]
    assert message[2].startswith("malformed JSON")
    assert (
        message[3] == f"no span of the trace {format_id(7, 32)} holds a query: is the recording of inputs switched off?"
    )
    assert message[4] == "1 rejected: no span id (1)"
    assert message[5] == "a span with no trace id"
    with pytest.raises(BadTraces, match="4 of 5 traces cannot be read"):
        list(read_traces(path))


def test_traces_without_rag_are_passed_over(tmp_path):
    """Traces of other work in the same file are no fault; a file of nothing else is an error that says so."""
    path = tmp_path / "spans.jsonl"
    other = [build_span(0, 0, 1, "GET /", trace=9, held={"http.request.method": "GET"})]
    assert len(list(read_traces(lines(path, [*spans_of(1), other])))) == 1
    with pytest.raises(InputError, match="1 trace of spans, and none of a RAG system"):
        list(read_traces(lines(path, [other])))


def test_the_shape_can_be_asked_for_and_takes_no_map(tmp_path):
    """`otlp` forces the reading as spans; a column map beside it is an error."""
    path = lines(tmp_path / "spans.jsonl", spans_of(1))
    assert len(list(read_traces(path, shape="otlp"))) == 1
    with pytest.raises(InputError, match="no say over spans"):
        list(read_traces(path, shape="otlp", map={"query": "input"}))
    path.write_text('{"query": "When?"}\n' * 30)
    with pytest.raises(InputError, match="a span with no trace id"):
        list(read_traces(path, shape="otlp"))


def test_what_was_read_as_traces_before_still_is(tmp_path):
    """A file of traces beside files of spans is read as what it is."""
    lines(tmp_path / "a.jsonl", spans_of(1))
    (tmp_path / "b.jsonl").write_text('{"id": "1", "query": "When?"}\n')
    assert {trace.id for trace in read_traces(tmp_path)} == {format_id(0, 32), "1"}
