"""Security of every listener: response headers, checks of the origin, and crashes as problems."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ragfault.http.addresses import is_loopback
from ragfault.http.problems import problem_response

log = logging.getLogger("ragfault.server")

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""No inline scripts or styles, nothing from other servers."""

SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

CROSS_ORIGIN_ERROR = "this came from a page of another server."

INTERNAL_ERROR = "something failed that should not have. It is in the server's log."


class SecurityMiddleware:
    """Middleware that sets security headers, checks the origin of requests and turns crashes into problems.

    On loopback, requests to foreign host names are rejected: a page elsewhere could otherwise reach the server by a
    name that resolves to this machine.
    """

    def __init__(self, app: ASGIApp, local: bool) -> None:
        self._app, self._is_local = app, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        problem = self._check_origin(Headers(scope=scope))
        if problem:
            await problem_response(403, problem)(scope, receive, sending)
            return
        try:
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            # the client has disconnected
            return
        except Exception as error:
            if begun:
                raise
            log.error("a request failed", exc_info=error)
            await problem_response(500, INTERNAL_ERROR)(scope, receive, sending)

    def _check_origin(self, headers: Headers) -> str | None:
        """Return why a request is rejected; None where it is accepted."""
        host = headers.get("host", "")
        if self._is_local and not is_loopback(_split_url(f"//{host}").hostname or ""):
            return f'this server answers to names of this machine only, not to "{host[:80]}".'
        origin = headers.get("origin")
        if origin is not None and _split_url(origin).netloc.lower() != host.lower():
            return CROSS_ORIGIN_ERROR
        loaded = headers.get("sec-fetch-mode", "navigate") != "navigate"
        if loaded and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return CROSS_ORIGIN_ERROR
        return None


def _split_url(url: str) -> SplitResult:
    """Split a URL; an invalid one is empty."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def require_role(role: Literal["read", "ingest", "admin"]) -> Callable[[Request], Awaitable[None]]:
    """Return a route dependency that requires a role."""

    async def check(request: Request) -> None:
        request.app.state.access.check_role(request, role)

    return check
