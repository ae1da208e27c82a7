"""Laws of spans: what OTLP says is held whole and within bounds, and every vocabulary makes the same trace."""

import contextlib
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otlp_spans import (
    ANSWER,
    MS,
    QUERY,
    START,
    TEXTS,
    build_documents,
    build_openinference,
    build_span,
    encode_attributes,
    encode_json,
    encode_json_request,
    encode_protobuf,
    encode_protobuf_request,
    encode_span,
    format_id,
    request,
)
from ragfault.io.field_values import InvalidRecord
from ragfault.io.otel.otlp import decode_request
from ragfault.io.otel.spans import DEFAULT_LIMITS, OtelSpan, SpanEvent
from ragfault.io.otel.trace_mapping import build_trace
from ragfault.model.errors import InputError
from ragfault.model.records import TokenCounts

JSON = "application/json"
QUICK = settings(max_examples=60, deadline=None)

try:
    import opentelemetry.proto.trace.v1.trace_pb2  # noqa: F401

    FORMS = [encode_json_request, encode_protobuf_request]
except ImportError:
    FORMS = [encode_json_request]
forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__.split("_")[0])

needs_proto = pytest.mark.skipif(len(FORMS) == 1, reason="the extra otlp is not installed")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = texts | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
names = texts.filter(lambda name: not name.endswith(".vector"))
attribute_sets = st.dictionaries(names, values, max_size=4)
moments = st.integers(0, 2**63 - 1)
events = st.builds(SpanEvent, name=texts, time=moments, attributes=attribute_sets)
operations = st.builds(
    OtelSpan,
    trace=st.integers(0, 2**60).map(lambda number: format_id(number, 32)),
    id=st.integers(0, 2**60).map(lambda number: format_id(number, 16)),
    parent=st.none() | st.integers(0, 2**60).map(lambda number: format_id(number, 16)),
    name=texts,
    start=moments,
    end=moments,
    status=st.sampled_from(["unset", "ok", "error"]),
    message=texts,
    attributes=attribute_sets,
    events=st.lists(events, max_size=2).map(tuple),
    resource=attribute_sets,
)


# --- decoding --------------------------------------------------------------------------------------


@forms
@QUICK
@given(request_spans=st.lists(operations, max_size=3))
@pytest.mark.long
def test_decoded_spans_equal_sent_spans(form, request_spans):
    """Every field of a span comes through protobuf and JSON as it was."""
    body, content = form(request_spans)
    decoded = decode_request(body, content_type=content)
    assert sorted(decoded.spans, key=repr) == sorted(request_spans, key=repr)
    assert (decoded.rejected, decoded.cut_count, decoded.message) == ({}, 0, "")


def test_names_of_enums_and_base64_ids_are_taken():
    """In JSON an enum may be its name, an id base64 or of capitals, and a 64-bit number a number or a text."""
    record = encode_span(build_span(1, 5, 9, "search", held={}))
    record |= {"kind": "SPAN_KIND_CLIENT", "status": {"code": "STATUS_CODE_ERROR"}, "traceId": "A" * 32}
    record |= {"spanId": "AAAAAAAAAAE=", "startTimeUnixNano": 5, "attributes": [{"key": "n", "value": {"intValue": 3}}]}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [record]}]}]}).encode()
    [results] = decode_request(body, content_type=JSON).spans
    assert (results.status, results.start, results.attributes) == ("error", 5, {"n": 3})
    assert (results.trace, results.id) == ("a" * 32, "0000000000000001")


@pytest.mark.parametrize("given", [2**63, -(2**70), str(2**64 - 1), str(10**40), "1_0", "x"])
def test_numbers_beyond_64_bits_are_texts(given):
    """A whole number that protobuf could not hold is read as its text, and the span can be encoded."""
    record = encode_span(build_span(0, 5, 9, "ask", held={}))
    record |= {"attributes": [{"key": "n", "value": {"intValue": given}}], "endTimeUnixNano": given}
    results = decode_request(
        json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [record]}]}]}).encode(), content_type=JSON
    )
    for decoded in results.spans:
        assert decoded.attributes["n"] in (str(given), 10)
        assert decoded.end in (0, 10)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(results.spans), type=tuple[OtelSpan, ...]) == results.spans


@forms
def test_spans_without_ids_are_counted_and_the_rest_is_taken(form):
    """A span without a trace or span id is rejected with its reason; those beside it are not lost."""
    good = build_span(0, 0, 1, "a", held={})
    bad = msgspec.structs.replace(good, trace="0" * 32)
    worse = msgspec.structs.replace(good, id="0" * 16)
    body, content = form([good, bad, worse, good])
    results = decode_request(body, content_type=content)
    assert results.spans == (good, good)
    assert (results.rejected, results.rejected_count) == ({"no trace id": 1, "no span id": 1}, 2)
    assert results.message == "2 rejected: no trace id (1), no span id (1)"


def test_a_malformed_span_is_one_span_lost():
    """A span of wrong types is rejected with the place of the fault, and the others are taken."""
    sent = request([build_span(0, 0, 1, "a", held={}), build_span(1, 0, 1, "b", held={})])
    sent["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"] = ["no", "name"]
    results = decode_request(json.dumps(sent).encode(), content_type=JSON)
    assert [decoded.name for decoded in results.spans] == ["b"]
    assert results.rejected == {"malformed: Expected `str`, got `array` - at `$.name`": 1}


def test_a_request_beyond_the_limit_is_refused():
    """No more is decoded than a request may hold."""
    with pytest.raises(InputError, match="more than 100 bytes"):
        decode_request(bytes(101), limits=DEFAULT_LIMITS._replace(body=100))


@forms
def test_what_is_too_much_is_cut_and_counted(form):
    """Long texts, many attributes, events and values, and deep nesting are cut, and the cuts are counted."""
    deep = "end"
    for _ in range(10):
        deep = [deep]
    attributes = {"text": "x" * 50, "many": list(range(20)), "deep": deep}
    record = build_span(0, 0, 1, "a", held=attributes, events=tuple(SpanEvent(name="e") for _ in range(9)))
    body, content = form([record])
    limits = DEFAULT_LIMITS._replace(text=10, items=5, events=3, depth=4)
    results = decode_request(body, content_type=content, limits=limits)
    [cut] = results.spans
    assert (cut.attributes["text"], cut.attributes["many"], len(cut.events)) == ("x" * 10, [0, 1, 2, 3, 4], 3)
    assert cut.attributes["deep"] == [[[[None]]]]
    assert (results.cut_count, results.message) == (4, "4 values cut for their size")
    assert (
        len(
            decode_request(body, content_type=content, limits=DEFAULT_LIMITS._replace(attributes=2)).spans[0].attributes
        )
        == 2
    )


@forms
def test_spans_beyond_the_count_or_too_long_are_rejected(form):
    """Spans beyond the number of one request, and those that are too long by themselves, are counted out."""
    body, content = form([build_span(place, 0, 1, "a", held={"x": "y" * 999 * (place == 3)}) for place in range(4)])
    results = decode_request(body, content_type=content, limits=DEFAULT_LIMITS._replace(spans=2))
    assert (len(results.spans), results.rejected) == (2, {"more than 2 in one request": 2})
    results = decode_request(body, content_type=content, limits=DEFAULT_LIMITS._replace(span=900))
    assert (len(results.spans), results.rejected) == (3, {"longer than 900 bytes": 1})


def test_json_that_opens_too_much_is_refused():
    """Nesting without end and objects without number are errors of the request, not of the machine."""
    with pytest.raises(InputError, match=r"more than 2,000,000 objects"):
        decode_request(b'{"resourceSpans":' + b"[" * 5_000_000, content_type=JSON)
    with pytest.raises(InputError, match=r"more than 2,000,000 objects"):
        decode_request(b'{"resourceSpans":[' + b"1," * 5_000_000, content_type=JSON)
    with pytest.raises(InputError, match=r"not an OTLP message|nested"):
        decode_request(b'{"resourceSpans":' + b"[" * 100_000, content_type=JSON)
    value = b'{"arrayValue":{"values":[' * 5_000 + b"]}}" * 5_000
    span = b'{"traceId":"%s","spanId":"%s","attributes":[{"key":"a","value":%s}]}' % (b"a" * 32, b"b" * 16, value)
    with pytest.raises(InputError, match="nested too deeply"):
        decode_request(b'{"resourceSpans":[{"scopeSpans":[{"spans":[%s]}]}]}' % span, content_type=JSON)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\x0a\x00" * 3_000_000, "more than 2,000,000 objects"),
        (b"\x0a\x80\x80\x80\x02" + b"\x12\x00" * 2**21, "more than 2,000,000 objects"),
        (bytes(21 * 2**20), "more than 20,971,520 bytes"),
    ],
    ids=["resources", "scopes", "length"],
)
@needs_proto
@pytest.mark.long
def test_protobuf_that_opens_too_much_is_refused(body, message):
    """Parts without number in few bytes are an error of the request, before they take memory."""
    with pytest.raises(InputError, match=message):
        decode_request(body)


@needs_proto
def test_a_resource_that_is_too_long_is_cut():
    """A resource longer than a span may be is left out and counted, and its spans are taken."""
    record = build_span(0, 0, 1, "a", held={}, resource={"service.name": "x" * 999})
    for body, content in (encode_json_request([record]), encode_protobuf_request([record])):
        results = decode_request(body, content_type=content, limits=DEFAULT_LIMITS._replace(span=800))
        assert ([decoded.resource for decoded in results.spans], results.cut_count) == ([{}], 1)


@needs_proto
@QUICK
@given(st.binary(max_size=300), st.sampled_from(["traces", "logs"]), st.sampled_from(["application/x-protobuf", JSON]))
def test_any_bytes_are_taken_or_refused(body, signal, content):
    """Whatever comes is decoded or an InputError, and nothing else."""
    with contextlib.suppress(InputError):
        decode_request(body, signal, content_type=content)


@needs_proto
@QUICK
@given(st.data())
def test_a_damaged_request_is_taken_or_refused(data):
    """Of a request with bytes changed or missing some spans come, or it is refused; it never fails otherwise."""
    body = bytearray(encode_protobuf(build_openinference()))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InputError, InvalidRecord):
        build_trace(decode_request(bytes(body[: data.draw(st.integers(0, len(body)))])).spans)


def test_an_unknown_content_type_is_refused():
    """Only protobuf and JSON are OTLP."""
    with pytest.raises(InputError, match=r'content type "text/plain" is not OTLP'):
        decode_request(b"", content_type="text/plain; charset=utf-8")


@forms
def test_embedding_vectors_are_dropped(form):
    """No vector of an embedding is held, in whatever place."""
    attributes = {"embedding.embeddings.0.embedding.vector": [0.5] * 9, "embedding.embeddings.0.embedding.text": "a"}
    hit = SpanEvent(name="db.query.result", attributes={"db.query.result.vector": [0.5], "db.query.result.id": "x"})
    body, content = form([build_span(0, 0, 1, "a", held=attributes, events=(hit,))])
    [decoded] = decode_request(body, content_type=content).spans
    assert decoded.attributes == {"embedding.embeddings.0.embedding.text": "a"}
    assert decoded.events[0].attributes == {"db.query.result.id": "x"}


def test_records_of_a_log_are_events():
    """A rating and the content of a call come as records of a log that name their span."""
    record = {
        "traceId": format_id(0, 32),
        "spanId": format_id(2, 16),
        "timeUnixNano": "5",
        "eventName": "gen_ai.evaluation.result",
        "attributes": encode_attributes({"gen_ai.evaluation.name": "relevance", "gen_ai.evaluation.score.value": 0.5}),
        "body": {"stringValue": "so-so"},
    }
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record, 3]}]}]}).encode()
    results = decode_request(body, "logs", content_type=JSON)
    [event] = results.events
    assert (event.trace, event.span, event.name, event.time) == (
        format_id(0, 32),
        format_id(2, 16),
        record["eventName"],
        5,
    )
    assert (results.rejected_count, event.attributes["body"]) == (1, "so-so")
    trace = build_trace(build_openinference(), results.events)
    assert trace.metadata["evaluations"] == [{"name": "relevance", "score": 0.5}]


@needs_proto
def test_records_of_a_log_in_protobuf_are_the_same():
    """Logs in protobuf are held as logs in JSON are."""
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    sent = ExportLogsServiceRequest()
    record = sent.resource_logs.add().scope_logs.add().log_records.add()
    record.trace_id, record.span_id = bytes.fromhex(format_id(0, 32)), bytes.fromhex(format_id(2, 16))
    record.event_name, record.observed_time_unix_nano = "gen_ai.choice", 7
    record.body.kvlist_value.values.add(key="index").value.int_value = 1
    [event] = decode_request(sent.SerializeToString(), "logs").events
    assert (event.name, event.time, event.attributes) == ("gen_ai.choice", 7, {"body": {"index": 1}})
    assert (event.trace, event.span) == (format_id(0, 32), format_id(2, 16))


# --- mapping ---------------------------------------------------------------------------------------


def gen_ai() -> list[OtelSpan]:
    prompt = [{"id": "p0", "score": 0.9, "content": TEXTS[0]}, {"id": "p1", "score": 0.8, "content": TEXTS[1]}]
    asked = [{"role": "user", "parts": [{"type": "text", "content": QUERY}]}]
    completion = [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}], "finish_reason": "stop"}]
    return [
        build_span(0, 0, 100, "ask", held={"http.request.method": "POST", "gen_ai.conversation.id": "visit-7"}),
        build_span(
            1,
            10,
            30,
            "retrieval handbook",
            held={
                "gen_ai.operation.name": "retrieval",
                "gen_ai.retrieval.query.text": QUERY,
                "gen_ai.retrieval.documents": json.dumps(prompt),
            },
        ),
        build_span(
            2,
            40,
            90,
            "chat small-1",
            held={
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "small",
                "gen_ai.response.model": "small-1",
                "gen_ai.input.messages": json.dumps(asked),
                "gen_ai.output.messages": json.dumps(completion),
                "gen_ai.usage.input_tokens": 60,
                "gen_ai.usage.output_tokens": 9,
            },
        ),
    ]


def events_of_gen_ai() -> list[OtelSpan]:
    """Return spans of the older form: each message of a call is an event."""
    root, search, _ = gen_ai()
    events = (
        SpanEvent(name="gen_ai.system.message", attributes={"content": "Be brief."}),
        SpanEvent(name="gen_ai.user.message", attributes={"content": QUERY}),
        SpanEvent(name="gen_ai.choice", attributes={"message": json.dumps({"content": ANSWER, "role": "assistant"})}),
    )
    write = build_span(
        2,
        40,
        90,
        "chat small-1",
        events=events,
        held={
            "gen_ai.system": "openai",
            "gen_ai.request.model": "small-1",
            "gen_ai.usage.prompt_tokens": 60,
            "gen_ai.usage.completion_tokens": 9,
        },
    )
    return [root, search, write]


def langfuse() -> list[OtelSpan]:
    results = [{"id": "p0", "page_content": TEXTS[0]}, {"id": "p1", "page_content": TEXTS[1]}]
    return [
        build_span(
            0,
            0,
            100,
            "ask",
            held={
                "langfuse.observation.type": "span",
                "langfuse.observation.input": json.dumps({"args": [QUERY], "kwargs": {}}),
                "langfuse.observation.output": ANSWER,
                "session.id": "visit-7",
                "langfuse.trace.tags": '["ferry"]',
                "langfuse.release": "v3",
                "langfuse.trace.metadata.team": '"north"',
            },
        ),
        build_span(
            1,
            10,
            30,
            "search",
            held={
                "langfuse.observation.type": "retriever",
                "langfuse.observation.input": QUERY,
                "langfuse.observation.output": json.dumps(results),
            },
        ),
        build_span(
            2,
            40,
            90,
            "write",
            held={
                "langfuse.observation.type": "generation",
                "langfuse.observation.model.name": "small-1",
                "langfuse.observation.input": json.dumps([{"role": "user", "content": QUERY}]),
                "langfuse.observation.output": json.dumps({"role": "assistant", "content": ANSWER}),
                "langfuse.observation.usage_details": '{"input": 60, "output": 9, "total": 69}',
                "langfuse.observation.prompt.name": "service",
                "langfuse.observation.prompt.version": 4,
            },
        ),
    ]


def traceloop() -> list[OtelSpan]:
    hits = tuple(
        SpanEvent(
            name="db.query.result",
            attributes={
                "db.query.result.id": f"p{place}",
                "db.query.result.document": text,
                "db.query.result.distance": 0.1,
                "db.query.result.metadata": "{'page': 3}",
            },
        )
        for place, text in enumerate(TEXTS)
    )
    return [
        build_span(
            0,
            0,
            100,
            "ask.workflow",
            held={
                "traceloop.span.kind": "workflow",
                "traceloop.entity.input": json.dumps({"args": [], "kwargs": {"question": QUERY}}),
                "traceloop.entity.output": json.dumps(ANSWER),
                "traceloop.association.properties.session_id": "visit-7",
            },
        ),
        build_span(1, 10, 30, "chroma.query", held={"db.system": "chroma"}, events=hits),
        build_span(
            2,
            40,
            90,
            "openai.chat",
            held={
                "llm.request.type": "chat",
                "gen_ai.request.model": "small-1",
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": QUERY,
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.content": ANSWER,
                "gen_ai.usage.prompt_tokens": 60,
                "gen_ai.usage.completion_tokens": 9,
            },
        ),
    ]


@pytest.mark.parametrize("spans", [build_openinference, gen_ai, events_of_gen_ai, langfuse, traceloop])
def test_every_vocabulary_makes_the_same_trace(spans):
    """One question told in the words of each instrumentation is the same trace in all that matters."""
    trace = build_trace(spans())
    assert (trace.id, trace.query, trace.answer) == (format_id(0, 32), QUERY, ANSWER)
    assert [(chunk.id, chunk.text) for chunk in trace.chunks] == [("p0", TEXTS[0]), ("p1", TEXTS[1])]
    assert (trace.model, trace.conversation, trace.tokens) == (
        "small-1",
        "visit-7",
        TokenCounts(prompt=60, completion=9),
    )
    assert (trace.latency.retrieval, trace.latency.generation, trace.latency.total) == (20.0, 50.0, 100.0)
    assert trace.time.timestamp() == START / 1e9
    assert (trace.route.removesuffix(".workflow"), trace.error) == ("ask", None)
    names = [step.name for step in trace.steps]
    assert names == [span.name for span in spans() if "http.request.method" not in span.attributes]
    [search] = [step for step in trace.steps if step.kind == "retrieve"]
    assert (search.name, search.start, search.duration) == (spans()[1].name, 10.0, 20.0)
    outer = None if trace.steps[0] is search else trace.steps[0].id
    assert (search.chunks, search.parent) == (("p0", "p1"), outer)


def test_metadata_names_user_and_release():
    """User, tags, release, prompt version and the system's own metadata are kept."""
    assert build_trace(build_openinference()).metadata == {
        "release": "v3",
        "user": "u1",
        "tags": ["ferry"],
        "service": "service",
    }
    assert build_trace(langfuse()).metadata == {
        "team": "north",
        "tags": ["ferry"],
        "release": "v3",
        "prompt": "service",
        "prompt_version": 4,
    }


def changed(place: int, spans: list[OtelSpan], **more: object) -> list[OtelSpan]:
    trace = [*spans]
    trace[place] = msgspec.structs.replace(trace[place], **more)
    return trace


def test_the_reranker_decides_the_chunks():
    """The chunks are those of the reranker before the model, in its order; the retriever's step stays."""
    attributes = {"openinference.span.kind": "RERANKER", "reranker.query": QUERY}
    attributes |= build_documents(TEXTS[1], prefix="reranker.output_documents")
    attributes |= build_documents(*TEXTS, prefix="reranker.input_documents")
    trace = build_trace([*build_openinference(), build_span(3, 31, 39, "rerank", held=attributes)])
    assert trace.chunks[0].text == TEXTS[1]
    assert [step.name for step in trace.steps] == ["ask", "search", "rerank", "write"]
    assert [step.chunks and len(step.chunks) for step in trace.steps] == [None, 2, 1, None]
    assert trace.latency.retrieval == 28.0


def test_what_came_after_the_answer_was_not_seen():
    """A retrieval that ended after the model began is not what the model saw."""
    late = build_span(
        3, 91, 95, "related", held={"openinference.span.kind": "RETRIEVER", **build_documents("Something else.")}
    )
    assert len(build_trace([*build_openinference(), late]).chunks) == 2


def test_retrievers_side_by_side_are_joined():
    """Of retrievers that ran at the same time in the same step the model saw what each of them gave, once."""
    other = "Bicycles pay the fare of a child on all routes."
    beside = build_span(
        3, 12, 28, "words", held={"openinference.span.kind": "RETRIEVER", **build_documents(TEXTS[0], other)}
    )
    unseen = changed(2, build_openinference(), attributes={"openinference.span.kind": "LLM", "output.value": ANSWER})
    chunks = build_trace([*unseen, beside]).chunks
    assert [chunk.text for chunk in chunks] == [*TEXTS]
    renamed = {key: value + "x" if key.endswith(".id") else value for key, value in beside.attributes.items()}
    chunks = build_trace([*unseen, msgspec.structs.replace(beside, attributes=renamed)]).chunks
    assert [chunk.text for chunk in chunks] == [*TEXTS, other]


def test_the_prompt_tells_what_was_seen():
    """Where the prompt was recorded, a retrieval of which it holds nothing is passed over for one that it shows."""
    tools = build_span(
        3, 32, 38, "tools", held={"openinference.span.kind": "RETRIEVER", **build_documents("A list of tools.")}
    )
    assert [chunk.text for chunk in build_trace([*build_openinference(), tools]).chunks] == [*TEXTS]


def test_llamaindex_doubles_count_once():
    """`_retrieve` inside `retrieve` and `complete` inside `predict` are one step each, and their tokens count once."""
    root, search, write = build_openinference()
    search = msgspec.structs.replace(search, name="VectorIndexRetriever.retrieve")
    inner = build_span(3, 12, 28, "VectorIndexRetriever._retrieve", 1, held={"openinference.span.kind": "RETRIEVER"})
    write = msgspec.structs.replace(write, name="FakeLLM.predict")
    again = msgspec.structs.replace(write, id=format_id(4, 16), parent=write.id, name="FakeLLM.complete")
    trace = build_trace([root, search, inner, write, again])
    assert [step.name for step in trace.steps] == ["ask", search.name, write.name]
    assert (trace.tokens, len(trace.chunks)) == (TokenCounts(prompt=60, completion=9), 2)


def test_a_duplicate_span_completes_the_outer_one():
    """Of a call that a framework and a client both recorded, each says what it knows."""
    root, search, write = build_openinference()
    outer = build_span(3, 39, 91, "Model.invoke", held={"openinference.span.kind": "LLM"})
    inner = msgspec.structs.replace(write, parent=outer.id)
    trace = build_trace([root, search, outer, inner])
    assert (trace.model, trace.tokens, trace.latency.generation) == (
        "small-1",
        TokenCounts(prompt=60, completion=9),
        52.0,
    )


def test_a_span_sent_twice_counts_once():
    """Of two records of a span the one that ended later counts, whichever came first."""
    group = build_openinference()
    early = msgspec.structs.replace(group[0], end=0, attributes={})
    assert build_trace([early, *group]) == build_trace([*group, early]) == build_trace(group)


def test_a_model_without_a_name_has_none():
    """Where an instrumentation writes that the model is unknown, it is absent."""
    attributes = build_openinference()[2].attributes | {"llm.model_name": "unknown"}
    assert build_trace(changed(2, build_openinference(), attributes=attributes)).model is None


def test_several_calls_are_summed():
    """Tokens of all calls count, and the model is that of the last, which wrote the answer."""
    rewrite = build_span(
        3,
        1,
        9,
        "rewrite",
        held={
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "tiny",
            "gen_ai.usage.input_tokens": 5,
            "gen_ai.usage.output_tokens": 3,
        },
    )
    trace = build_trace([*build_openinference(), rewrite])
    assert (trace.tokens, trace.model, trace.latency.generation) == (
        TokenCounts(prompt=65, completion=12),
        "small-1",
        58.0,
    )


def test_a_judge_inside_of_the_trace_is_no_part_of_the_system():
    """What an evaluator or a guardrail asks of a model is neither the answer nor paid for by it."""
    judge = build_span(3, 91, 98, "relevance", held={"openinference.span.kind": "EVALUATOR"})
    asks = build_span(4, 92, 97, "chat", 3, held=build_openinference()[2].attributes | {"llm.model_name": "large"})
    assert build_trace([*build_openinference(), judge, asks]) == build_trace(build_openinference())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"status": "error", "message": "no such table"}, "no such table"),
        (
            {"status": "error", "events": (SpanEvent(name="exception", attributes={"exception.type": "KeyError"}),)},
            "KeyError",
        ),
        ({"status": "error"}, "failed"),
        ({"status": "ok"}, None),
    ],
)
def test_the_error_of_the_root_is_the_error(more, message):
    """A root that failed says why: by its status, its exception, or at least that it did."""
    assert build_trace(changed(0, build_openinference(), **more)).error == message


def test_a_failed_step_tells_where_there_is_no_answer():
    """The error of a step is that of the trace where no answer came of it; else it was overcome."""
    failing = changed(1, build_openinference(), status="error", message="timed out")
    assert build_trace(failing).error is None
    mute = {"openinference.span.kind": "CHAIN", "input.value": QUERY}
    assert build_trace(changed(0, failing[:2], attributes=mute)).error == "timed out"


@pytest.mark.parametrize(
    ("output", "expected"),
    [("[]", ()), ('{"documents": []}', ()), (None, ()), ('["<NodeWithScore(node=TextNode(id_=n1))>"]', None)],
)
def test_nothing_retrieved_is_not_nothing_recorded(output, expected):
    """An empty list of passages, and a query without a list, are no chunks; an unreadable list leaves them absent."""
    attributes = {"openinference.span.kind": "RETRIEVER", "input.value": QUERY}
    attributes |= {} if output is None else {"output.value": output}
    assert build_trace(changed(1, build_openinference(), attributes=attributes)).chunks == expected


def test_an_id_that_only_the_output_names_is_used():
    """LangChain names the id of a passage in the output alone; the place in the document comes of its metadata."""
    attributes = {
        "openinference.span.kind": "RETRIEVER",
        "retrieval.documents.0.document.content": TEXTS[0],
        "retrieval.documents.0.document.metadata": '{"source": "times.md", "start_index": 30, "embedding": [1, 2]}',
        "output.value": json.dumps({"documents": [{"id": "d7", "page_content": TEXTS[0]}]}),
    }
    [chunk] = build_trace(changed(1, build_openinference(), attributes=attributes)).chunks
    assert (chunk.id, chunk.document, chunk.start, chunk.end) == ("d7", "times.md", 30, 30 + len(TEXTS[0]))
    assert chunk.metadata == {"source": "times.md", "start_index": 30}


def test_a_route_can_be_named():
    """`ragfault.route` on any span names the route; else it is the name of the root."""
    attributes = build_openinference()[1].attributes | {"ragfault.route": "timetable"}
    assert build_trace(changed(1, build_openinference(), attributes=attributes)).route == "timetable"


def test_traces_without_rag_are_none_and_without_a_query_wrong():
    """Spans that have nothing to do with RAG are no trace; those that do but recorded no question are a fault."""
    assert build_trace([build_span(0, 0, 9, "GET /", held={"http.request.method": "GET"})]) is None
    assert build_trace([]) is None
    with pytest.raises(InvalidRecord, match="holds a query: is the recording of inputs switched off"):
        build_trace([build_span(0, 0, 9, "chat", held={"gen_ai.operation.name": "chat"})])


def test_parents_in_a_circle_do_no_harm():
    """Spans that name each other as parents are read all the same."""
    root, search, write = build_openinference()
    circle = [root, msgspec.structs.replace(search, parent=write.id), msgspec.structs.replace(write, parent=search.id)]
    assert build_trace(circle).query == QUERY
    assert build_trace([msgspec.structs.replace(span, parent=span.id) for span in circle]).query == QUERY


names_known = sorted(
    {
        name
        for spans in (build_openinference, gen_ai, langfuse, traceloop)
        for recorded in spans()
        for name in recorded.attributes
    }
)


@QUICK
@given(
    st.lists(
        st.builds(
            OtelSpan,
            trace=st.just(format_id(0, 32)),
            id=st.integers(0, 4).map(lambda number: format_id(number, 16)),
            parent=st.none() | st.integers(0, 4).map(lambda number: format_id(number, 16)),
            start=st.integers(0, 99),
            end=st.integers(0, 99),
            name=st.sampled_from(["a.b", "a.c", "d"]),
            attributes=st.dictionaries(
                st.sampled_from(names_known),
                values
                | values.map(json.dumps)
                | st.sampled_from(["LLM", "RETRIEVER", "CHAIN", "chat", "retrieval", "generation", "retriever"]),
                max_size=6,
            ),
            events=st.lists(events, max_size=1).map(tuple),
        ),
        max_size=6,
    )
)
@pytest.mark.long
def test_any_attributes_make_a_trace_or_a_reason(recorded):
    """Attributes of any type under any known name make a trace that can be written, none, or a fault."""
    trace = None
    with contextlib.suppress(InvalidRecord):
        trace = build_trace(recorded)
    if trace is not None:
        assert msgspec.json.decode(msgspec.json.encode(trace), type=type(trace)) == trace


@given(st.permutations([*build_openinference(), build_span(3, 31, 33, "x", 1, held={"input.value": "a"})]))
def test_the_order_of_spans_says_nothing(spans):
    """The same spans in any order make the same trace."""
    assert build_trace(spans) == build_trace(sorted(spans, key=lambda recorded: recorded.id))


def test_json_body_is_what_a_collector_writes():
    """The spans of a request read back as the operations that they were made of."""
    assert decode_request(encode_json(build_openinference()), content_type=JSON).spans == tuple(build_openinference())
    assert build_openinference()[0].duration == 100 * MS


def test_steps_have_input_and_output():
    """Of each step there is what it was given and what it made: of a model the whole prompt, of a search its chunks."""
    messages = '[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Oslo, 1040. When?"}]'
    attributes = {
        "root": {"openinference.span.kind": "CHAIN", "input.value": "When?", "output.value": "In 1040."},
        "search": {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.query.text": "When was Oslo founded?"},
        "tool": {
            "openinference.span.kind": "TOOL",
            "input.value": '{"city": "Oslo"}',
            "output.value": '{"year": 1040}',
        },
        "model": {"gen_ai.operation.name": "chat", "gen_ai.input.messages": messages, "output.value": "In 1040."},
        "long": {"openinference.span.kind": "TOOL", "input.value": "x" * 30_000},
    }
    attributes["search"]["gen_ai.retrieval.documents"] = '[{"id": "a", "content": "Oslo, 1040."}]'
    spans = [
        OtelSpan(
            trace="t",
            id=name,
            parent=None if name == "root" else "root",
            name=name,
            start=at,
            end=99,
            attributes=recorded,
        )
        for at, (name, recorded) in enumerate(attributes.items())
    ]
    steps = {step.name: step for step in build_trace(spans).steps}
    assert (steps["root"].input, steps["root"].output) == ("When?", "In 1040.")
    assert (steps["search"].input, steps["search"].output) == ("When was Oslo founded?", None)
    assert steps["search"].chunks == ("a",)
    assert "1040" in steps["tool"].output
    assert "Oslo" in steps["tool"].input
    assert (steps["model"].input, steps["model"].output) == ("Be brief.\nOslo, 1040. When?", "In 1040.")
    assert steps["long"].input.endswith("(10,000 characters more)")


def test_embeddings_alone_are_not_rag():
    """A trace of nothing but embeddings is passed over; a model whose question was not recorded is a fault."""
    recorded = {"openinference.span.kind": "EMBEDDING", "embedding.model_name": "m"}
    assert build_trace([OtelSpan(trace="t", id="1", name="embed", end=9, attributes=recorded)]) is None
    with pytest.raises(InvalidRecord, match="query"):
        build_trace([OtelSpan(trace="t", id="1", name="m", end=9, attributes={"gen_ai.operation.name": "chat"})])


def build_call(number: int, model: str, asked: str, answered: str) -> OtelSpan:
    """Build a call of a model as gen_ai records it, one after the other."""
    fields = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
    fields["gen_ai.input.messages"] = json.dumps([{"role": "user", "content": asked}])
    fields["gen_ai.output.messages"] = json.dumps([{"role": "assistant", "content": answered}])
    return OtelSpan(
        trace="a", id=f"b{number}", parent="r", name="chat", start=number, end=number + 1, attributes=fields
    )


def test_the_model_of_a_trace_is_the_one_that_wrote_its_answer():
    """A call that follows, such as one for a title, is neither the answer's model nor its prompt."""
    root = OtelSpan(trace="a", id="r", name="rag", end=9, attributes={"input.value": QUERY, "output.value": ANSWER})
    calls = [build_call(1, "small", f"Rewrite: {QUERY}", "when"), build_call(2, "large", QUERY, ANSWER)]
    trace = build_trace([root, *calls, build_call(3, "small", "Give a title.", "Oslo")])
    assert (trace.answer, trace.model) == (ANSWER, "large")


def test_of_several_turns_in_one_trace_query_and_answer_are_those_of_the_last():
    """A step that was given an earlier answer as history begins a turn: no question is paired with another's answer."""
    texts = [("user", QUERY), ("assistant", ANSWER), ("user", "And later?"), ("assistant", "In 1060.")]
    messages = [{"role": role, "content": text} for role, text in texts]
    root, *turns = [OtelSpan(trace="a", id="r", name="session", end=9)]
    for at in (1, 3):
        fields = {"gen_ai.operation.name": "invoke_agent"}
        fields |= {
            "gen_ai.input.messages": json.dumps(messages[:at]),
            "gen_ai.output.messages": json.dumps([messages[at]]),
        }
        turns.append(OtelSpan(trace="a", id=f"b{at}", parent="r", name="bot", start=at, end=at + 1, attributes=fields))
    both, first = build_trace([root, *turns]), build_trace([root, turns[0]])
    assert (both.query, both.answer) == ("And later?", "In 1060.")
    assert (first.query, first.answer) == (QUERY, ANSWER)


def test_messages_that_pydantic_ai_lists_in_one_attribute_are_read():
    """The events of a model's call, the messages of the agent's run and its tools, as Logfire records them."""
    asked = {"event.name": "gen_ai.user.message", "role": "user", "content": QUERY}
    called = {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "tool_calls": [{"id": "c"}]}}
    answered = {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": ANSWER}}
    spans = []
    for at, events in ((0, [asked, called]), (4, [asked, answered])):
        fields = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "large", "events": json.dumps(events)}
        spans.append(OtelSpan(trace="a", id=f"b{at}", name="chat", start=at, end=at + 1, attributes=fields))
    fields = {"gen_ai.tool.name": "search", "tool_arguments": '{"q": "Oslo"}', "tool_response": "Founded in 1040."}
    spans.append(OtelSpan(trace="a", id="t", name="running tool", start=2, end=3, attributes=fields))
    trace = build_trace(spans)
    assert (trace.query, trace.answer) == (QUERY, ANSWER)
    assert [step.kind for step in trace.steps[1:]] == ["tool", "generate"]
    assert trace.steps[1].output == "Founded in 1040."
    fields = {"model_name": "large", "all_messages_events": json.dumps([asked, answered]), "final_result": ANSWER}
    assert build_trace([OtelSpan(trace="a", id="r", name="agent run", attributes=fields)]).query == QUERY


def build_javascript_message(name: str, text: str) -> dict[str, object]:
    """Build a message as LangChain serializes it in JavaScript: its class is its role."""
    return {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", name], "kwargs": {"content": text}}


@pytest.mark.parametrize(
    "turns",
    [
        [["system", "Be brief."], ["user", QUERY], ["ai", ANSWER]],
        [
            build_javascript_message("SystemMessage", "Be brief."),
            build_javascript_message("HumanMessage", QUERY),
            build_javascript_message("AIMessage", ANSWER),
        ],
    ],
    ids=["pairs", "javascript"],
)
@pytest.mark.parametrize("kind", ["CHAIN", "LLM"])
def test_the_role_of_a_message_is_never_taken_for_its_text(turns, kind):
    """Messages as pairs of role and text, or classes without a role: no system text is asked, no question answers."""
    fields = {
        "openinference.span.kind": kind,
        "input.value": {"messages": turns[:2]},
        "output.value": {"messages": turns},
    }
    trace = build_trace([OtelSpan(trace="a", id="r", name="graph", end=9, attributes=fields)])
    assert (trace.query, trace.answer) == (QUERY, ANSWER)


def test_every_text_of_a_stream_is_in_the_answer():
    """A generator that is traced records the list of what it yielded."""
    fields = {
        "openinference.span.kind": "CHAIN",
        "input.value": QUERY,
        "output.value": {"output": ["In ", "10", "40."]},
    }
    assert build_trace([OtelSpan(trace="a", id="r", name="ask", attributes=fields)]).answer == "In 1040."


@pytest.mark.parametrize(
    "recorded",
    [
        {"args": ["u-17", QUERY], "kwargs": {}},
        {"inputs": {"context": "", "ask": QUERY}, "kwargs": {"name": "LangGraph"}},
    ],
)
def test_neither_an_id_nor_the_name_of_a_chain_is_the_question(recorded):
    """Of the arguments of a traced function the first that is more than a word is asked."""
    fields = {"traceloop.span.kind": "workflow", "traceloop.entity.input": json.dumps(recorded)}
    searched = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.query.text": QUERY}
    spans = [
        OtelSpan(trace="a", id="r", attributes=fields),
        OtelSpan(trace="a", id="s", parent="r", attributes=searched),
    ]
    assert build_trace(spans).query == QUERY


def test_a_prompt_is_known_whether_it_is_recorded_as_a_list_or_as_its_json():
    """Texts of a prompt keep their order, so that what the model saw of several searches can be looked up."""
    messages = [{"role": "system", "content": TEXTS[0]}, {"role": "user", "content": QUERY}]
    for recorded in (messages, json.dumps(messages)):
        fields = {"langfuse.observation.type": "generation", "langfuse.observation.input": recorded}
        [step] = build_trace([OtelSpan(trace="a", id="r", name="llm", attributes=fields)]).steps
        assert step.input == f"{TEXTS[0]}\n{QUERY}"


def test_tokens_that_were_cached_or_reasoned_count():
    """Langfuse lists them beside the rest, and sums under other names; the column of a frame has floats."""
    usage = {
        "input": 10,
        "input_cached_tokens": 50,
        "output": 4,
        "output_reasoning_tokens": 5,
        "total": 69,
        "inputCost": 2,
        "promptTokens": 60,
        "completionTokens": 9,
    }
    for fields in (
        {"langfuse.observation.type": "generation", "langfuse.observation.usage_details": usage},
        {"openinference.span.kind": "LLM", "llm.token_count.prompt": "60.0", "llm.token_count.completion": "9.0"},
    ):
        span = OtelSpan(trace="a", id="r", name="llm", attributes={"input.value": QUERY, **fields})
        assert build_trace([span]).tokens == TokenCounts(prompt=60, completion=9)


REPLY = {"choices": [{"finish_reason": "length", "message": {"role": "assistant", "content": "It opens"}}]}
GENERATION = {"generation_info": {"finish_reason": "length"}, "message": {"kwargs": {"content": "It opens"}}}


@pytest.mark.parametrize(
    "recorded",
    [
        {"gen_ai.response.finish_reasons": ["length"], "gen_ai.completion": "It opens"},
        {"llm.finish_reason": "length", "gen_ai.completion": "It opens"},
        {"gen_ai.output.messages": [{"role": "assistant", "content": "It opens", "finish_reason": "length"}]},
        {"gen_ai.output.messages": [[GENERATION]], "gen_ai.completion": "It opens"},
        {"output.value": json.dumps(REPLY)},
        {"langfuse.observation.output": REPLY},
    ],
    ids=["gen_ai", "openllmetry", "messages", "langchain", "openinference", "langfuse"],
)
def test_why_the_model_stopped_is_read_wherever_it_is_recorded(recorded):
    """As an attribute, or anywhere in the reply that wrote the answer."""
    asked = {"gen_ai.operation.name": "chat", "gen_ai.prompt": "When does it open?"}
    trace = build_trace([OtelSpan(trace="a", id="b", name="chat", end=2, attributes={**asked, **recorded})])
    assert trace is not None
    assert trace.finish_reason == "length"
