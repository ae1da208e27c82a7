"""Spans of OpenTelemetry, decoded, joined by trace and read as the traces of a RAG system."""

from ragfault.sources.spans.decoding import decode
from ragfault.sources.spans.joining import Counts, Joined, Window
from ragfault.sources.spans.mapping import to_trace
from ragfault.sources.spans.operation import LIMITS, Decoded, Event, Limits, Operation
from ragfault.sources.spans.origin import Origin, origin_of

__all__ = [
    "LIMITS",
    "Counts",
    "Decoded",
    "Event",
    "Joined",
    "Limits",
    "Operation",
    "Origin",
    "Window",
    "decode",
    "origin_of",
    "to_trace",
]
