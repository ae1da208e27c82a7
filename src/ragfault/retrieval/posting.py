"""Posting JSON to a service: tried again where that helps, with the key in the header and nowhere else."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any

from ragfault.errors import RagfaultError, UsageError

__all__ = ["ServiceFailed", "key_of", "post"]

LARGEST = 64 * 2**20
"""An answer of more bytes than this is not read."""
AGAIN = (408, 409, 429, 500, 502, 503, 504)
"""What a service answers when another try may help."""
PAUSE, LONGEST = 0.5, 20.0
"""Seconds before the second try, doubled each time, and the longest pause."""


class ServiceFailed(RagfaultError):
    """A service gave no answer that can be used; says which, and why."""


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: a key must not go where it was not sent."""

    def redirect_request(self, *_: Any) -> None:
        return None


OPENER = urllib.request.build_opener(_Stay)


def key_of(service: str, names: Sequence[str]) -> str:
    """The key of a service, from the environment alone. Raises UsageError where there is none."""
    for name in names:
        if os.environ.get(name):
            return os.environ[name]
    raise UsageError(f"{service} wants a key. Set the environment variable {' or '.join(names)}.")


def post(
    url: str,
    body: Any,
    *,
    key: str = "",
    headers: Mapping[str, str] | None = None,
    timeout: float = 30.0,
    tries: int = 4,
) -> Any:
    """What a service answers to a JSON body.

    A try that meets a limit, a fault of the server or a broken line is made again, `tries` times in all, after the
    pause that the service asks for. Raises UsageError for an address that is none of http, ServiceFailed where no try
    helped.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(f"{url} is no address of a service: it begins with http:// or https://.")
    head = {"Content-Type": "application/json", **(headers or {})}
    if key:
        head["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(url, json.dumps(body).encode(), head, method="POST")
    for turn in range(1, tries + 1):
        try:
            with OPENER.open(request, timeout=timeout) as answer:
                return _read(url, answer.read(LARGEST + 1))
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(500).decode("utf-8", "replace")
            reason, wait = f"{error.code} {said}".strip(), error.headers.get("Retry-After")
            if error.code not in AGAIN:
                break
        except (urllib.error.URLError, HTTPException, OSError) as error:
            reason, wait = str(getattr(error, "reason", error)) or type(error).__name__, None
        if turn < tries:
            time.sleep(_pause(turn, wait))
    raise ServiceFailed(_hidden(f"{_place(url)} gave no answer: {reason}", key))


def _read(url: str, packed: bytes) -> Any:
    if len(packed) > LARGEST:
        raise ServiceFailed(f"{_place(url)} answered with more than {LARGEST >> 20} MiB.")
    try:
        return json.loads(packed)
    except ValueError:
        raise ServiceFailed(f"{_place(url)} answered with what is not JSON.") from None


def _pause(turn: int, wait: str | None) -> float:
    if wait is not None and wait.strip().isdigit():
        return min(float(wait), LONGEST)
    return min(PAUSE * 2.0 ** (turn - 1), LONGEST)


def _place(url: str) -> str:
    """The address without what may be secret in it."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _hidden(text: str, key: str) -> str:
    return text.replace(key, "***") if key else text
