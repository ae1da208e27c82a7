"""Time the conversion of spans into traces: spans a second of one core, decoded, joined and mapped, by form of OTLP.

    python benchmarks/spans.py --traces 5000

Each trace has four spans in the words of OpenInference (a chain, a retriever, a reranker, a model) and five passages
of --words words, which stand in the retriever, the reranker and the prompt. Requests hold --batch spans, packed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

from ragfault.io.otel.otlp import decode_request
from ragfault.io.otel.span_buffer import SpanBuffer
from ragfault.io.otel.spans import OtelSpan
from ragfault.io.otel.trace_mapping import build_trace

START = 1_790_000_000_000_000_000


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=5000)
    parser.add_argument("--chunks", type=int, default=5)
    parser.add_argument("--words", type=int, default=80)
    parser.add_argument("--batch", type=int, default=512, help="Spans to a request.")
    return parser.parse_args()


def build_document_attributes(prefix: str, trace: int, texts: list[str]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for index, text in enumerate(texts):
        attributes[f"{prefix}.{index}.document.id"] = f"t{trace}-{index}"
        attributes[f"{prefix}.{index}.document.content"] = text
        attributes[f"{prefix}.{index}.document.score"] = 1 / (index + 1)
        attributes[f"{prefix}.{index}.document.metadata"] = json.dumps({"source": f"page-{index}.md"})
    return attributes


def build_spans(trace: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Build the spans of one trace: name, parent, kind and attributes."""
    query = f"When does ferry {trace} leave?"
    texts = [f"{i} " + "harbour " * (options.words - 2) + str(trace) for i in range(options.chunks)]
    answer = "It leaves at 22:40."
    attribute_sets: list[dict[str, Any]] = [
        {"input.value": query, "output.value": answer, "session.id": f"s{trace}"},
        {"input.value": query, **build_document_attributes("retrieval.documents", trace, texts)},
        {"reranker.query": query, **build_document_attributes("reranker.output_documents", trace, texts)},
        {
            "llm.model_name": "small-1",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": "\n".join([*texts, query]),
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": answer,
            "llm.token_count.prompt": 600,
            "llm.token_count.completion": 9,
        },
    ]
    kinds = ("CHAIN", "RETRIEVER", "RERANKER", "LLM")
    return [
        {
            "trace": f"{trace + 1:032x}",
            "id": f"{trace * 4 + i + 1:016x}",
            "parent": None if i == 0 else f"{trace * 4 + 1:016x}",
            "name": kind.lower(),
            "start": START + i * 10_000_000,
            "end": START + (50_000_000 if i == 0 else i * 10_000_000 + 9_000_000),
            "attributes": {"openinference.span.kind": kind, **attributes},
        }
        for i, (kind, attributes) in enumerate(zip(kinds, attribute_sets, strict=True))
    ]


def encode_value(value: Any) -> dict[str, Any]:
    """Return the value of an attribute in the JSON form of OTLP."""
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def encode_json(batch: list[dict[str, Any]]) -> bytes:
    messages = [
        {
            "traceId": item["trace"],
            "spanId": item["id"],
            **({"parentSpanId": item["parent"]} if item["parent"] else {}),
            "name": item["name"],
            "startTimeUnixNano": str(item["start"]),
            "endTimeUnixNano": str(item["end"]),
            "attributes": [{"key": key, "value": encode_value(value)} for key, value in item["attributes"].items()],
        }
        for item in batch
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": messages}]}]}).encode()


def encode_protobuf(batch: list[dict[str, Any]]) -> bytes:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for item in batch:
        span = scope.spans.add(
            trace_id=bytes.fromhex(item["trace"]),
            span_id=bytes.fromhex(item["id"]),
            parent_span_id=bytes.fromhex(item["parent"] or ""),
            name=item["name"],
            start_time_unix_nano=item["start"],
            end_time_unix_nano=item["end"],
        )
        for key, value in item["attributes"].items():
            target = span.attributes.add(key=key).value
            if isinstance(value, int):
                target.int_value = value
            elif isinstance(value, float):
                target.double_value = value
            else:
                target.string_value = value
    return request.SerializeToString()


def build_batches(options: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    pending: list[dict[str, Any]] = []
    for trace in range(options.traces):
        pending += build_spans(trace, options)
        if len(pending) >= options.batch:
            yield pending
            pending = []
    if pending:
        yield pending


def time_stages(bodies: list[bytes], content: str) -> dict[str, float]:
    """Measure the processor seconds of each stage."""
    spent = dict.fromkeys(("decoded", "joined", "mapped"), 0.0)
    buffer, count = SpanBuffer(settle_time=1), 0
    for number, body in enumerate(bodies):
        start = time.process_time()
        decoded_spans = decode_request(gzip.decompress(body), content_type=content).spans
        decoded_time = time.process_time()
        buffer.add(decoded_spans, now=number)
        joined = buffer.pop_finished(now=number)
        joined_time = time.process_time()
        count += sum(build_trace(collected.spans) is not None for collected in joined)
        mapped_time = time.process_time()
        spent["decoded"] += decoded_time - start
        spent["joined"] += joined_time - decoded_time
        spent["mapped"] += mapped_time - joined_time
    start = time.process_time()
    remaining: list[tuple[OtelSpan, ...]] = [collected.spans for collected in buffer.flush()]
    count += sum(build_trace(collected) is not None for collected in remaining)
    spent["mapped"] += time.process_time() - start
    spent["traces"] = count
    return spent


def main() -> None:
    options = parse_arguments()
    forms = {"protobuf": (encode_protobuf, "application/x-protobuf"), "JSON": (encode_json, "application/json")}
    print("| OTLP | MB | spans/s decoded | joined | mapped | all | traces |\n|---|---|---|---|---|---|---|")
    for name, (form, content) in forms.items():
        requests = [form(batch) for batch in build_batches(options)]
        packed = [gzip.compress(body, 1) for body in requests]
        time_stages(packed[:2], content)
        spent = time_stages(packed, content)
        count = options.traces * 4
        traces = spent.pop("traces")
        rates = [f"{count / seconds:,.0f}" for seconds in (*spent.values(), sum(spent.values()))]
        print(f"| {name} | {sum(map(len, requests)) / 1e6:.0f} | {' | '.join(rates)} | {traces:,.0f} |")


if __name__ == "__main__":
    main()
