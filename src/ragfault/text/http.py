"""HTTP for all clients: an opener that returns every response as it is, and the header Retry-After."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.request import HTTPErrorProcessor, build_opener

from ragfault.text.times import assume_utc


class PlainResponses(HTTPErrorProcessor):
    """Handler that returns the response whatever its status is; a redirect is a response like any other."""

    def http_response(self, request: Any, response: Any) -> Any:  # noqa: ARG002 - the protocol of urllib
        """Return the response itself: a key must not go where a redirect points."""
        return response

    https_response = http_response


URL_OPENER = build_opener(PlainResponses)
"""Opener of addresses that raises OSError or HTTPException if there is no response, and never for a status."""


def parse_retry_after(value: str | None, milliseconds: str | None = None) -> float | None:
    """Parse `Retry-After` (seconds or a date), or the header `retry-after-ms` before it, into seconds from now.

    At least 0, and unbounded: the caller limits it. None where neither requests a wait that can be parsed.

    >>> [parse_retry_after(text) for text in ("7", "1.5", "Wed, 21 Oct 2015 07:28:00 GMT", "soon", None)]
    [7.0, 1.5, 0.0, None, None]
    >>> parse_retry_after("1", "250")
    0.25
    """
    for text, unit in ((milliseconds, 1000.0), (value, 1.0)):
        try:
            seconds = float(text or "") / unit
        except ValueError:
            continue
        return seconds if 0 <= seconds < float("inf") else None
    try:
        moment = assume_utc(parsedate_to_datetime((value or "").strip()))
        return max(0.0, (moment - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None
