"""Export requests of OTLP, over HTTP or out of a file, into operations and events."""

from __future__ import annotations

from typing import Literal

from ragfault.errors import InputError
from ragfault.sources.spans.operation import LIMITS, Decoded, Limits
from ragfault.sources.spans.otlp_json import read_logs_json, read_spans_json
from ragfault.sources.spans.otlp_proto import read_logs_message, read_spans_message
from ragfault.sources.spans.packing import unpacked

__all__ = ["Signal", "decode"]

Signal = Literal["traces", "logs"]


def decode(
    body: bytes,
    signal: Signal = "traces",
    *,
    content: str = "application/x-protobuf",
    encoding: str | None = None,
    limits: Limits = LIMITS,
) -> Decoded:
    """What an export request holds: spans as operations, or the records of a log as events.

    `content` and `encoding` are the headers of the request: protobuf (which needs the extra `otlp`) or JSON,
    gzip or not. A span without ids, too long, malformed, or beyond the number allowed is counted by its reason
    in `rejected`, and the others are taken; embedding vectors are dropped; values beyond the limits are cut
    and counted. Raises `InputError` for a body that is too long, nested too deeply or no such request,
    `MissingExtra` where protobuf cannot be read.

    >>> span = '{"traceId": "0000000000000000000000000000000a", "spanId": "000000000000000b", "name": "chat"}'
    >>> body = '{"resourceSpans": [{"scopeSpans": [{"spans": [%s, {}]}]}]}' % span
    >>> found = decode(body.encode(), content="application/json")
    >>> found.operations[0].name, found.rejected
    ('chat', {'no trace id': 1})
    """
    body = unpacked(body, encoding, limits.body)
    kind = content.split(";", 1)[0].strip().lower()
    if kind == "application/json":
        return read_spans_json(body, limits) if signal == "traces" else read_logs_json(body, limits)
    if kind in ("application/x-protobuf", "application/protobuf", "application/octet-stream"):
        return read_spans_message(body, limits) if signal == "traces" else read_logs_message(body, limits)
    raise InputError(
        f'the content type "{kind[:80]}" is not OTLP: send application/x-protobuf or application/json'
    )
