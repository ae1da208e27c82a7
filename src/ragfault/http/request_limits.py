"""Limits on requests, of every listener."""

from __future__ import annotations

from msgspec import Struct


class RequestLimits(Struct, frozen=True, kw_only=True):
    """Limits on requests; what exceeds them is rejected with the reason, and counted."""

    # bytes of a compressed request body
    body: int = 8_000_000
    # bytes of a decompressed request body
    decompressed: int = 32_000_000
    # bytes of one trace as JSON
    trace: int = 1_000_000
    # traces in one request
    traces: int = 10_000
    # traces waiting to be judged above which ingest answers 429
    unscored: int = 100_000
    # requests waiting to be written above which ingest answers 429
    pending_writes: int = 256
    rate: float = 0.0
    """Average requests per second of one client, bursts of twice as many; 0: unlimited. Reading has the same limit."""
    # seconds within which the head of a request and its body must arrive
    timeout: float = 60.0
