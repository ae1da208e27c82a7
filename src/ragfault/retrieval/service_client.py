"""The HTTP client for embedding and reranking services: JSON requests with retries and a bearer key."""

from __future__ import annotations

import json
import os
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any

from ragfault.model.errors import RagfaultError, UsageError
from ragfault.text.http import URL_OPENER, parse_retry_after

MAX_RESPONSE_BYTES = 64 * 2**20
"""An answer of more bytes than this is not read."""
RETRY_STATUSES = (408, 409, 429, 500, 502, 503, 504)
"""Statuses after which a retry may succeed."""
FIRST_PAUSE, MAX_PAUSE = 0.5, 20.0
"""Seconds before the second try, doubled each time, and the longest pause."""


class ServiceFailed(RagfaultError):
    """A service gave no answer that can be used; says which, and why."""


def read_api_key(service: str, variables: Sequence[str]) -> str:
    """Return the key of a service from the environment. Raises UsageError without one."""
    for name in variables:
        if os.environ.get(name):
            return os.environ[name]
    raise UsageError(f"{service} wants a key. Set the environment variable {' or '.join(variables)}.")


def post_json(
    url: str,
    body: Any,
    *,
    key: str = "",
    headers: Mapping[str, str] | None = None,
    timeout: float = 30.0,
    attempts: int = 4,
) -> Any:
    """Return the reply of a service to a JSON body.

    An attempt that fails by a rate limit, a server error or a broken connection is repeated, `attempts` times in all,
    after the pause that the service requests. Raises UsageError for a URL that is not HTTP, ServiceFailed if no attempt
    succeeded.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(f"{url} is not the address of a service: it begins with http:// or https://.")
    head = {"Content-Type": "application/json", **(headers or {})}
    if key:
        head["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(url, json.dumps(body).encode(), head, method="POST")
    for turn in range(1, attempts + 1):
        try:
            with URL_OPENER.open(request, timeout=timeout) as answer:
                if answer.status < 300:
                    return _decode_response(url, answer.read(MAX_RESPONSE_BYTES + 1))
                detail = answer.read(500).decode("utf-8", "replace")
            reason, wait = f"{answer.status} {detail}".strip(), answer.headers.get("Retry-After")
            if answer.status not in RETRY_STATUSES:
                break
        except (OSError, HTTPException) as error:
            reason, wait = str(getattr(error, "reason", error)) or type(error).__name__, None
        if turn < attempts:
            requested = parse_retry_after(wait)
            time.sleep(min(FIRST_PAUSE * 2.0 ** (turn - 1) if requested is None else requested, MAX_PAUSE))
    message = f"{_redact_url(url)} gave no answer: {reason}"
    raise ServiceFailed(message.replace(key, "***") if key else message)


def _decode_response(url: str, data: bytes) -> Any:
    if len(data) > MAX_RESPONSE_BYTES:
        raise ServiceFailed(f"{_redact_url(url)} answered with more than {MAX_RESPONSE_BYTES >> 20} MiB.")
    try:
        return json.loads(data)
    except ValueError:
        raise ServiceFailed(f"{_redact_url(url)} answered with what is not JSON.") from None


def _redact_url(url: str) -> str:
    """Return the address without possible secrets."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
