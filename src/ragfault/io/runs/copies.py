"""Copies of one trace, which count once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragfault.model.records import Trace

if TYPE_CHECKING:
    pass


def group_trace(trace: Trace) -> str:
    """Return what copies of a trace share: its conversation, else its query with the same chunks and history."""
    contents = [chunk.text or chunk.id for chunk in trace.chunks or ()]
    return trace.conversation or repr((trace.query, trace.history, contents))
