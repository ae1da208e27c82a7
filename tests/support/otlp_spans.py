"""Spans for tests: operations put down as OTLP, in JSON and in protobuf, and the spans of a small RAG system."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ragfault.io.otel.spans import OtelSpan, SpanEvent

QUERY = "When does the last ferry leave?"
ANSWER = "The last ferry leaves at 22:40."
TEXTS = ("The last ferry leaves at 22:40 from the north pier.", "Dogs travel free on every ferry of the fleet.")
START = 1_790_000_000_000_000_000
MS = 1_000_000


def format_id(number: int, digits: int) -> str:
    return f"{number + 1:0{digits}x}"


def build_span(place: int, start: int, end: int, name: str, parent: int | None = 0, **more: Any) -> OtelSpan:
    """Build span number `place` of trace 0 from start and end in milliseconds and its attributes."""
    trace = more.pop("trace", 0)
    known = {key: more.pop(key) for key in ("status", "message", "events", "resource") if key in more}
    return OtelSpan(
        trace=format_id(trace, 32),
        id=format_id(trace * 100 + place, 16),
        parent=None if place == 0 or parent is None else format_id(trace * 100 + parent, 16),
        name=name,
        start=START + trace * 10**9 + start * MS,
        end=START + trace * 10**9 + end * MS,
        attributes=more.pop("held", more),
        **known,
    )


def build_documents(*texts: str, prefix: str = "retrieval.documents") -> dict[str, Any]:
    return {
        f"{prefix}.{place}.document.{part}": value
        for place, text in enumerate(texts)
        for part, value in {"id": f"p{place}", "content": text, "score": 0.9 - place / 10}.items()
    }


def build_openinference(trace: int = 0, query: str = QUERY, answer: str = ANSWER) -> list[OtelSpan]:
    """Return the spans of one question in OpenInference: a chain around a retriever and a model."""
    prompt = f"{' '.join(TEXTS)} {query}"
    return [
        build_span(
            0,
            0,
            100,
            "ask",
            trace=trace,
            held={
                "openinference.span.kind": "CHAIN",
                "input.value": query,
                "output.value": answer,
                "session.id": "visit-7",
                "user.id": "u1",
                "metadata": '{"release": "v3"}',
                "tag.tags": ["ferry"],
            },
            resource={"service.name": "service"},
        ),
        build_span(
            1,
            10,
            30,
            "search",
            trace=trace,
            held={"openinference.span.kind": "RETRIEVER", "input.value": query, **build_documents(*TEXTS)},
        ),
        build_span(
            2,
            40,
            90,
            "write",
            trace=trace,
            held={
                "openinference.span.kind": "LLM",
                "llm.model_name": "small-1",
                "llm.input_messages.0.message.role": "user",
                "llm.input_messages.0.message.content": prompt,
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.content": answer,
                "llm.token_count.prompt": 60,
                "llm.token_count.completion": 9,
            },
        ),
    ]


# --- as OTLP ---------------------------------------------------------------------------------------


def encode_value(given: Any) -> dict[str, Any]:
    if isinstance(given, bool):
        return {"boolValue": given}
    if isinstance(given, int):
        return {"intValue": str(given)}
    if isinstance(given, float):
        return {"doubleValue": given}
    if isinstance(given, str):
        return {"stringValue": given}
    if isinstance(given, list):
        return {"arrayValue": {"values": [encode_value(part) for part in given]}}
    if isinstance(given, dict):
        return {"kvlistValue": {"values": encode_attributes(given)}}
    return {}


def encode_attributes(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": encode_value(given)} for name, given in attributes.items()]


def encode_event(given: SpanEvent) -> dict[str, Any]:
    return {"name": given.name, "timeUnixNano": str(given.time), "attributes": encode_attributes(given.attributes)}


def encode_span(recorded: OtelSpan) -> dict[str, Any]:
    """Return a span as OTLP has it in JSON."""
    return {
        "traceId": recorded.trace,
        "spanId": recorded.id,
        **({"parentSpanId": recorded.parent} if recorded.parent else {}),
        "name": recorded.name,
        "kind": 1,
        "startTimeUnixNano": str(recorded.start),
        "endTimeUnixNano": str(recorded.end),
        "attributes": encode_attributes(recorded.attributes),
        "events": [encode_event(part) for part in recorded.events],
        "status": {"code": ("unset", "ok", "error").index(recorded.status), "message": recorded.message},
    }


def request(operations: Iterable[OtelSpan]) -> dict[str, Any]:
    """Return an export request in JSON, one group per resource."""
    groups: list[tuple[dict[str, Any], list[Any]]] = []
    for item in operations:
        mine = next((spans for resource, spans in groups if resource == item.resource), None)
        if mine is None:
            groups.append((item.resource, mine := []))
        mine.append(encode_span(item))
    return {
        "resourceSpans": [
            {"resource": {"attributes": encode_attributes(resource)}, "scopeSpans": [{"spans": spans}]}
            for resource, spans in groups
        ]
    }


def encode_json(operations: Iterable[OtelSpan]) -> bytes:
    return json.dumps(request(operations)).encode()


def encode_protobuf(operations: Iterable[OtelSpan]) -> bytes:
    """Return the same request in protobuf; ids there are bytes, not base64."""
    from base64 import b64encode

    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    sent = request(operations)
    for part in sent["resourceSpans"]:
        for item in part["scopeSpans"][0]["spans"]:
            for key in ("traceId", "spanId", "parentSpanId"):
                if key in item:
                    item[key] = b64encode(bytes.fromhex(item[key])).decode()
    return ParseDict(sent, ExportTraceServiceRequest()).SerializeToString()


def encode_protobuf_request(operations: Iterable[OtelSpan]) -> tuple[bytes, str]:
    return encode_protobuf(operations), "application/x-protobuf"


def encode_json_request(operations: Iterable[OtelSpan]) -> tuple[bytes, str]:
    return encode_json(operations), "application/json"
