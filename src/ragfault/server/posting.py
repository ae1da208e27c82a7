"""Posting: one attempt to send a body to an address, and what became of it."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ragfault import __version__

__all__ = ["PATIENCE", "Attempt", "post", "seconds"]

PATIENCE = 10.0
"""Seconds for which an answer is waited for."""
LONGEST = 300.0
"""Seconds that a receiver may ask to be left alone, at most."""
LATER = (408, 425, 429)
"""Answers, beside those from 500 on, after which another attempt may go better."""
READ = 100_000
"""Bytes of an answer that are read."""


class Attempt(NamedTuple):
    """What became of one attempt."""

    fault: str | None = None
    """What is wrong; None: it came through."""
    again: bool = False
    """Whether another attempt may go better."""
    wait: float = 0.0
    """Seconds that the receiver asked to be left alone."""
    code: int = 0
    """The answer; 0: there was none, or it was a yes."""
    body: bytes = b""
    """What was answered, where it came through."""


class _Still(HTTPRedirectHandler):
    """Follows nobody elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


OPENER = build_opener(_Still)


def post(url: str, body: bytes, headers: dict[str, str], who: str) -> Attempt:
    """Send a body once; redirects are not followed, so that nothing goes to where nobody said."""
    asked = Request(url, body, {"User-Agent": f"ragfault/{__version__}", **headers}, method="POST")
    try:
        with OPENER.open(asked, timeout=PATIENCE) as answer:
            return Attempt(body=answer.read(READ))
    except HTTPError as error:
        with error:
            again = error.code in LATER or error.code >= 500
            return Attempt(
                f"{who} answered {error.code}", again, seconds(error.headers.get("Retry-After")), error.code
            )
    except (URLError, OSError, HTTPException) as error:
        return Attempt(f"{who} cannot be reached: {getattr(error, 'reason', error)}", True)
    except ValueError as error:  # an address or a header that cannot be written down
        return Attempt(f"{who} cannot be asked: {type(error).__name__}")


def seconds(said: str | None) -> float:
    """The seconds that a `Retry-After` asks for, as a number or as a date; 0 where it says nothing that is understood.

    >>> seconds("7"), seconds("soon"), seconds(None), seconds("Wed, 21 Oct 2015 07:28:00 GMT"), seconds("9999")
    (7.0, 0.0, 0.0, 0.0, 300.0)
    """
    said = (said or "").strip()
    found = 0.0
    if said.isascii() and said.isdigit():
        found = float(said[:9])
    elif said:
        with contextlib.suppress(ValueError, TypeError):
            moment = parsedate_to_datetime(said)
            aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            found = (aware - datetime.now(UTC)).total_seconds()
    return min(LONGEST, max(0.0, found))
