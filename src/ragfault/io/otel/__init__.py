"""OpenTelemetry spans: decode them, collect them by trace, and build RAG traces from them."""

from ragfault.io.otel.otlp import decode_request
from ragfault.io.otel.span_buffer import CollectedTrace, SpanBuffer
from ragfault.io.otel.span_tree import TraceOrigin, locate_origin
from ragfault.io.otel.spans import DEFAULT_LIMITS, DecodedRequest, OtelSpan, SpanEvent
from ragfault.io.otel.trace_mapping import build_trace

__all__ = [
    "DEFAULT_LIMITS", "CollectedTrace", "DecodedRequest", "OtelSpan", "SpanBuffer", "SpanEvent", "TraceOrigin",
    "build_trace", "decode_request", "locate_origin",
]  # fmt: skip
