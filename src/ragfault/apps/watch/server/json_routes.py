"""Routes whose handlers return msgspec records, and the OpenAPI 3.1 document that is generated from them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from ragfault.apps.watch.server.state import ServerState


def get_server(request: Request) -> ServerState:
    """Return the state of the server that received a request."""
    server: ServerState = request.app.state.server
    return server


async def _provide_server(request: Request) -> ServerState:
    # FastAPI would call a function that is not async in a thread
    return get_server(request)


Server = Annotated[ServerState, Depends(_provide_server)]
