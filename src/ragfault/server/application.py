"""The application: routes, who may ask, what goes around them, and what runs beside them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable

from ragfault.errors import MissingExtra

try:
    from fastapi import FastAPI
except ImportError:
    raise MissingExtra("the server", "server") from None

from starlette.concurrency import run_in_threadpool

from ragfault import __version__
from ragfault.runs.places import writing
from ragfault.server import dashboard, ingest, problems, twins
from ragfault.server.access import Access
from ragfault.server.desk import Desk
from ragfault.server.headers import Guarded
from ragfault.server.patrol import Patrol
from ragfault.server.returning import checked
from ragfault.server.sending import receivers
from ragfault.server.settings import Settings, loopback
from ragfault.server.streaming import Clock, Streamer
from ragfault.store import open_store

__all__ = ["ROUTERS", "app"]

ROUTERS = (twins.public, ingest.router, twins.router, dashboard.pages())
"""In the order in which they are asked."""


def app(settings: Settings, clock: Callable[[], float] | None = None) -> FastAPI:
    """The application, with its store open; its workers begin with the first request and end with the server.

    Raises MissingExtra where the packages of the extra `server` are not installed, and what opening a store raises.

    >>> import tempfile
    >>> made = app(Settings(store=tempfile.mkdtemp(), workers=0))
    >>> made.title
    'ragfault'
    >>> made.state.desk.store.close()
    """
    if clock is None:
        clock = Clock(settings.speed) if settings.demo else time.time
    checked(settings)
    receivers(settings)  # what is wrong with them is told before there is a store
    with writing(settings.files):
        settings.files.mkdir(parents=True, exist_ok=True)
    desk = Desk(settings, open_store(settings.store), clock)
    patrol = Patrol(desk)
    beside: list[Patrol | Streamer] = [patrol]
    if settings.demo:
        beside.append(Streamer(desk, clock(), clock=clock if isinstance(clock, Clock) else None))

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(desk.open)
        for each in beside:
            each.start()
        try:
            yield
        finally:
            for each in reversed(beside):
                await run_in_threadpool(each.close)
            await run_in_threadpool(desk.close)

    made = FastAPI(
        title="ragfault",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    made.state.desk, made.state.patrol = desk, patrol
    made.state.access = Access(settings, desk.store)
    made.add_middleware(Guarded, local=loopback(settings.host))
    problems.install(made)
    for router in ROUTERS:
        made.include_router(router)
    return made
