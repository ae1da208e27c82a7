"""Middleware for requests below a root path, and for HEAD; the networks of proxies whose headers are trusted."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def list_trusted_networks(proxies: Sequence[str]) -> list[str]:
    """List the networks of proxies, those of IPv4 also as a socket of IPv6 names them. Raises ValueError.

    >>> list_trusted_networks(["10.0.0.0/8", "::1"])
    ['10.0.0.0/8', '::1/128', '::ffff:10.0.0.0/104']
    """
    networks = [ipaddress.ip_network(text.strip()) for text in proxies]
    mapped = [
        f"::ffff:{network.network_address}/{96 + network.prefixlen}" for network in networks if network.version == 4
    ]
    return [*map(str, networks), *mapped]


class RootPathMiddleware:
    """Middleware that takes the root path off the paths of requests, and puts it before those of redirects."""

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app, self._root = app, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._root:
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        if path == self._root or path.startswith(f"{self._root}/"):
            scope = {**scope, "path": path[len(self._root) :] or "/"}

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                location = headers.get("location", "")
                if location.startswith("/") and not location.startswith("//"):
                    headers["location"] = self._root + location
            await send(message)

        await self._app(scope, receive, sending)


class HeadMiddleware:
    """Middleware that answers HEAD as GET, without a body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self._app({**scope, "method": "GET"}, receive, sending)
