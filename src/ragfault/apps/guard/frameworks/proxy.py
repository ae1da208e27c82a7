"""Guard between a client and an OpenAI-compatible endpoint: `ragfault guard proxy`, or any ASGI server.

The client calls the proxy in place of the endpoint, with its own key; the proxy keeps none. Passages are sent in the
field `contexts` of the request (`extra_body` of the client of OpenAI), and reach the endpoint only through the prompt.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from ragfault.apps.guard.decisions import GuardDecision
from ragfault.apps.guard.frameworks.asgi import GuardMiddleware, Receive, Scope, Send, read_body, send_refusal
from ragfault.apps.guard.rails import run_in_thread
from ragfault.apps.guard.runtime import Guard
from ragfault.io.trace_writer import append_json_lines
from ragfault.model.errors import UsageError
from ragfault.text.http import URL_OPENER

PASSED_REQUEST = frozenset(("authorization", "content-type", "accept", "user-agent", "openai-organization",
                            "openai-project", "api-key", "x-api-key"))  # fmt: skip
"""Headers of a request that reach the endpoint."""
PASSED_RESPONSE = frozenset(("content-type", "retry-after", "x-request-id"))
"""Headers of a response that reach the client."""
MAX_RESPONSE = 32_000_000
"""Bytes of a response that are read."""
PASSED_PATHS = ("/models",)
"""Paths without answers that are passed on; others are refused."""


def guard_endpoint(guard: Guard, endpoint: str, *, timeout: float = 120.0) -> GuardMiddleware:
    """Return an ASGI application that passes guarded requests on to an endpoint.

    `endpoint` is its address, with or without the path that clients call it by (https://host/v1). `timeout` is in
    seconds. Raises UsageError for an address that is not http or https.

    >>> from ragfault.apps.guard.policy import parse_policy
    >>> app = guard_endpoint(Guard(parse_policy("[rails.secrets]")), "http://127.0.0.1:11434/v1")
    """
    return GuardMiddleware(EndpointApplication(endpoint, timeout), guard)


def append_decisions(path: str | Path) -> Callable[[GuardDecision], None]:
    """Return a sink that appends each decision to a file, a line of JSON each; OSError where it cannot be written."""
    append = append_json_lines(path)
    Path(path).touch()
    return append


class EndpointApplication:
    """ASGI application that passes each request on to an endpoint, and its whole response back."""

    def __init__(self, endpoint: str, timeout: float) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{endpoint} is not the address of an endpoint, such as https://api.openai.com/v1.")
        self._origin, self._path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
        self._timeout = timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        is_chat = scope["method"] == "POST" and path.endswith("/chat/completions")
        if not is_chat and not (scope["method"] == "GET" and path.rstrip("/").endswith(PASSED_PATHS)):
            await send_refusal(send, 404, f"the proxy passes on chat completions and the list of models, not {path}")
            return
        body = await read_body(receive) if is_chat else None
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name.decode("latin-1").lower() in PASSED_REQUEST
        }
        url = self._origin + (path if self._path and path.startswith(f"{self._path}/") else self._path + path)
        request = urllib.request.Request(url, body, headers, method=scope["method"])
        try:
            status, returned, payload = await run_in_thread(lambda: self._call(request))
        except (OSError, ValueError, HTTPException) as error:
            await send_refusal(send, 502, f"the endpoint gave no response: {error}")
            return
        await send({"type": "http.response.start", "status": status, "headers": returned})
        await send({"type": "http.response.body", "body": payload})

    def _call(self, request: urllib.request.Request) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Return status, headers and body of the response to a request, whatever its status is."""
        with URL_OPENER.open(request, timeout=self._timeout) as response:
            payload = response.read(MAX_RESPONSE + 1)
            if len(payload) > MAX_RESPONSE:
                raise ValueError(f"more than {MAX_RESPONSE:,} bytes")
            headers = [
                (name.lower().encode("latin-1"), value.encode("latin-1"))
                for name, value in response.headers.items()
                if name.lower() in PASSED_RESPONSE
            ]
            return response.status, headers, payload
