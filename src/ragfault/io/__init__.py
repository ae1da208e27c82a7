"""Read traces and documents from files of many formats and shapes, and write traces back."""

from ragfault.io.documents import read_documents
from ragfault.io.files import MAX_LINE
from ragfault.io.formats.record_shapes import build_trace_schema
from ragfault.io.trace_reader import InputSummary, TraceDigest, explain_missing_fields, read_traces, summarize_input
from ragfault.io.trace_writer import write_traces

__all__ = [
    "MAX_LINE", "InputSummary", "TraceDigest", "build_trace_schema", "explain_missing_fields", "read_documents",
    "read_traces", "summarize_input", "write_traces",
]  # fmt: skip
