"""What goes around every request: headers that keep a browser in, and the rule that loopback stays loopback."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ragfault.server.problems import problem
from ragfault.server.settings import loopback

__all__ = ["POLICY", "Guarded"]

log = logging.getLogger("ragfault.server")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing inline, nothing from elsewhere."""

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


FOREIGN = "this came from a page of another server."
FAILED = "something failed that should not have. It is in the server's log."


class Guarded:
    """An application whose every answer has these headers, and which on loopback answers to loopback names only.

    A page elsewhere can make a browser send requests here, or give a name of its own the address of this machine: what
    comes under a foreign name, or from a foreign page, is refused.
    """

    def __init__(self, app: ASGIApp, local: bool) -> None:
        self._app, self._local = app, local

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
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        fault = self._fault(Headers(scope=scope))
        if fault:
            await problem(403, fault)(scope, receive, sending)
            return
        try:
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            return  # nobody is there to be told
        except Exception as error:
            if begun:
                raise
            log.error("a request failed", exc_info=error)
            await problem(500, FAILED)(scope, receive, sending)

    def _fault(self, headers: Headers) -> str | None:
        """Why a request is refused, if it is."""
        host = headers.get("host", "")
        if self._local and not loopback(_name(f"//{host}")):
            return f'this server answers to names of this machine only, not to "{host[:80]}".'
        origin = headers.get("origin")
        if origin is not None and _place(origin) != host.lower():
            return FOREIGN
        loaded = headers.get("sec-fetch-mode", "navigate") != "navigate"
        if loaded and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return FOREIGN
        return None


def _name(url: str) -> str:
    """The host of an address; empty where there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _place(url: str) -> str:
    """Host and port of an address; empty where there are none."""
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""
