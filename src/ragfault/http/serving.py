"""The process that serves an application."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from ragfault.http.addresses import format_address, is_loopback
from ragfault.model.errors import OutputError, require_extra


def serve_application(app: Any, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve an ASGI application until a signal; `announce` gets its address.

    Pages of other servers are refused, as by the server itself.

    Raises MissingExtra, and OutputError where the port is taken.
    """
    with require_extra("a proxy", "server"):
        import uvicorn

        from ragfault.http.security import SecurityMiddleware
    secured = SecurityMiddleware(app, is_loopback(host))
    config = uvicorn.Config(secured, host=host, port=port, log_level="warning", access_log=False, lifespan="off")
    listening = bind_socket(config)
    listening.listen()
    announce(format_address(host, listening.getsockname()[1]))
    uvicorn.Server(config).run(sockets=[listening])


def bind_socket(config: Any) -> socket.socket:
    """Bind the socket to listen on; raises OutputError where the port is taken."""
    try:
        bound: socket.socket = config.bind_socket()
    except SystemExit:
        raise OutputError(
            f"cannot listen on {config.host}:{config.port}: the port is taken. Name another with --port."
        ) from None
    # connections take it over: no waiting for more
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound
