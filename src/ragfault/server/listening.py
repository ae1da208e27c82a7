"""Listening: connections that say nothing, or never end to say it, are let go."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["patient"]


def patient(patience: float) -> type[asyncio.Protocol]:
    """The protocol of connections that send the head of each request within so many seconds, or are closed."""

    class Patient(H11Protocol):
        """One that is closed where no request is whole in time; answers and bodies have their own patience."""

        waiting: asyncio.TimerHandle | None = None
        last: object = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.waiting = self.loop.call_later(patience, self.tired)

        def connection_lost(self, exc: Exception | None) -> None:
            if self.waiting is not None:
                self.waiting.cancel()
            super().connection_lost(exc)

        def tired(self) -> None:
            """Close where no head has come since it was last looked."""
            if self.cycle is self.last and self.conn.their_state is h11.IDLE:
                self.transport.close()
                return
            self.last = self.cycle if self.conn.their_state is h11.IDLE else None
            self.waiting = self.loop.call_later(patience, self.tired)

    return Patient
