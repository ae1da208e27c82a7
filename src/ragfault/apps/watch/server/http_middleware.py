"""Middleware for requests behind a reverse proxy (client address, scheme, root path), and for HEAD."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# addresses of `X-Forwarded-For` that are read, from the last one back
MAX_FORWARDED = 20

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(texts: Sequence[str]) -> tuple[IPNetwork, ...]:
    """Parse addresses and networks of proxies. Raises ValueError for anything else.

    >>> parse_networks(["10.0.0.0/8", "::1"])
    (IPv4Network('10.0.0.0/8'), IPv6Network('::1/128'))
    """
    return tuple(ipaddress.ip_network(text.strip()) for text in texts)


class ProxyMiddleware:
    """Middleware that strips the root path, and believes the headers of trusted proxies alone.

    Of `X-Forwarded-For` the last address counts that is not itself a trusted proxy: what stands before it, anybody may
    have written.
    """

    def __init__(self, app: ASGIApp, trusted: Sequence[str], root_path: str) -> None:
        self._app, self._trusted, self._root = app, parse_networks(trusted), root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._trusted and self._is_trusted((scope.get("client") or ("",))[0]):
            scope = self._apply_headers(scope)
        if not self._root:
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

    def _apply_headers(self, scope: Scope) -> Scope:
        """Return the scope with client and scheme as the proxy names them."""
        headers, changed = Headers(scope=scope), dict(scope)
        chain = [part.strip() for text in headers.getlist("x-forwarded-for") for part in text.split(",")]
        for text in reversed(chain[-MAX_FORWARDED:]):
            address = _parse_address(text)
            if address is None:
                break
            changed["client"] = (address, 0)
            if not self._is_trusted(address):
                break
        scheme = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        if scheme in ("http", "https"):
            changed["scheme"] = scheme
        return changed

    def _is_trusted(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._trusted if network.version == address.version)


def _parse_address(text: str) -> str | None:
    """Return an address without its port; None for anything else.

    >>> [_parse_address(text) for text in ("192.0.2.7:51000", "[2001:db8::1]:443", "2001:db8::1", "unknown")]
    ['192.0.2.7', '2001:db8::1', '2001:db8::1', None]
    """
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


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
