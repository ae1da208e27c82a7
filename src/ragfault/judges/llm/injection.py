"""Injection: texts of a trace that look like orders to whoever judges it."""

from __future__ import annotations

from ragfault.records import Injection, Trace

__all__ = ["injections"]


def injections(trace: Trace) -> tuple[Injection, ...]:
    """What in a trace looks like an order to the judge."""
    return ()
