"""Serving: the application behind uvicorn, until it is told to end."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ragfault.errors import MissingExtra, OutputError
from ragfault.server.application import app
from ragfault.server.settings import Settings

__all__ = ["run"]

DRAIN = 20
"""Seconds for which requests under way are waited for at the end."""


def run(settings: Settings, notice: Callable[[str], None] = lambda _: None) -> None:
    """Serve until a signal ends it: no new requests, those under way answered, scores stored, the store let go.

    Raises MissingExtra, UsageError, and OutputError where the port is taken.
    """
    try:
        import uvicorn
    except ImportError:
        raise MissingExtra("the server", "server") from None
    from ragfault.server.listening import patient

    made = app(settings)
    config = uvicorn.Config(
        made,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN,
        h11_max_incomplete_event_size=65536,
        limit_concurrency=1000,
        http=patient(settings.limits.patience),
    )
    try:
        listening = _listening(config)
    except OutputError:
        made.state.desk.store.close()
        raise
    host, port = listening.getsockname()[:2]
    told = f"ragfault listens on http://{f'[{host}]' if ':' in host else host}:{port}"

    class Server(uvicorn.Server):
        """One that says when it answers."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                notice(told)

    with _quietly():
        Server(config).run(sockets=[listening])


def _listening(config: Any) -> socket.socket:
    """The socket that the server listens on; raises OutputError where the port is taken."""
    try:
        found: socket.socket = config.bind_socket()
    except SystemExit:
        raise OutputError(
            f"cannot listen on {config.host}:{config.port}: the port is taken. Name another with --port."
        ) from None
    found.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )  # connections take it over: no waiting for more
    return found


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Let a signal that ended the server in order be the end of it: uvicorn raises it once more when all is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
