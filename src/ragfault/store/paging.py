"""Pages by key: the key of a line as text, and a line as a list shows it."""

from __future__ import annotations

import base64
import math
from typing import Any

import msgspec

from ragfault.errors import UsageError
from ragfault.store.records import Line, State, Wanted

__all__ = ["SHOWN", "check_limit", "closed", "line", "opened"]

SHOWN = 300
"""Characters of query and answer in a list."""

MOST = 1000
"""Lines to a page, at most."""


def check_limit(wanted: Wanted) -> None:
    """Raise UsageError for a page of a length that none has."""
    if not 1 <= wanted.limit <= MOST:
        raise UsageError(f"a page has 1 to {MOST:,} lines, got {wanted.limit}.")


def closed(value: float, number: int) -> str:
    """The key of a line, as text."""
    return base64.urlsafe_b64encode(msgspec.json.encode([value, number])).decode().rstrip("=")


def opened(text: str) -> tuple[float, int]:
    """The key that a text is."""
    try:
        packed = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        value, number = msgspec.json.decode(packed, type=tuple[float, int])
    except (ValueError, msgspec.MsgspecError):
        raise UsageError(
            f'"{text[:60]}" is the key of no page. Take the `next` of the page before.'
        ) from None
    if not math.isfinite(value) or abs(number) >= 2**63:
        raise UsageError("the key of a page is out of range. Take the `next` of the page before.")
    return value, number


def line(row: tuple[Any, ...], state: State | None, values: dict[str, float]) -> Line:
    """A line of a row of number, id, time, route, model, query, answer, error."""
    _, id, time, route, model, query, answer, error = row
    return Line(
        id=id,
        time=time,
        route=route or None,
        model=model,
        query=query,
        answer=answer,
        error=error,
        state=state or ("error" if error else "waiting"),
        values=dict(sorted(values.items())),
    )
