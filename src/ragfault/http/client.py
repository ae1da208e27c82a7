"""Requests to a server of ragfault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request

import msgspec

from ragfault.model.errors import InputError, UsageError
from ragfault.report.safe_text import clean_text
from ragfault.text.http import URL_OPENER

# seconds to wait for a response
DOWNLOAD_TIMEOUT = 600


def fetch_incidents(url: str, token: str | None) -> Any:
    """Return `/incidents.json` of a server. Raises UsageError for an invalid URL, InputError where it cannot be read.

    The token, if any, needs the role `read`.
    """
    return msgspec.json.decode(download(f"{url.rstrip('/')}/incidents.json?limit=10", token))


def download(url: str, token: str | None, method: str = "GET", body: bytes | None = None) -> bytes:
    """Return the whole response of a server. Raises as `open_url` does."""
    with open_url(url, token, method, body) as answer:
        content: bytes = answer.read()
        return content


@contextmanager
def open_url(url: str, token: str | None, method: str = "GET", body: bytes | None = None) -> Iterator[Any]:
    """Open the response of a server; redirects are not followed.

    Raises UsageError for an invalid URL, InputError where the server refuses or cannot be reached.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(f'"{url[:80]}" is not the address of a server: http://127.0.0.1:4318')
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with URL_OPENER.open(Request(url, body, headers, method=method), timeout=DOWNLOAD_TIMEOUT) as answer:
            if 300 <= answer.status < 400:
                place = clean_text(answer.headers.get("Location") or "")[:200]
                raise InputError(f"{urlsplit(url).netloc} redirects to {place or 'nowhere'}: give that server")
            if answer.status >= 400:
                raise InputError(f"the server refuses: {_read_detail(answer.read())}")
            yield answer
    except (OSError, HTTPException) as error:
        raise InputError(f"cannot reach {urlsplit(url).netloc}: {getattr(error, 'reason', error)}.") from None


def _read_detail(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["detail"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
