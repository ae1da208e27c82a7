"""The FastAPI application of the server, and the uvicorn process that runs it."""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

from starlette.concurrency import run_in_threadpool
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from ragfault.apps.watch.server.alerts.delivery import build_receivers
from ragfault.apps.watch.server.alerts.scheduler import AlertScheduler
from ragfault.apps.watch.server.api import access_api, json_api
from ragfault.apps.watch.server.app_pages import list_app_routers, open_app_pages
from ragfault.apps.watch.server.audit_log import AUDIT_FILE, AuditLog, RequestLogMiddleware, open_request_log
from ragfault.apps.watch.server.background_thread import BackgroundThread
from ragfault.apps.watch.server.dashboard import pages
from ragfault.apps.watch.server.dashboard.page_host import AppPageHost
from ragfault.apps.watch.server.demo import DemoClock, DemoTraffic
from ragfault.apps.watch.server.http_middleware import HeadMiddleware, RootPathMiddleware, list_trusted_networks
from ragfault.apps.watch.server.ingest import endpoints
from ragfault.apps.watch.server.scoring.otlp_export import check_otlp_settings
from ragfault.apps.watch.server.security import AccessControl
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.state import ServerState
from ragfault.apps.watch.server.storage.backup import delete_copies
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.apps.watch.server.store_guard import StoreGuard
from ragfault.http.addresses import format_address, is_loopback
from ragfault.http.problems import install_handlers
from ragfault.http.security import SecurityMiddleware
from ragfault.http.serving import bind_socket
from ragfault.io.atomic_files import convert_write_errors
from ragfault.model.errors import OutputError, require_extra
from ragfault.model.version import __version__

with require_extra("the server", "server"):
    from fastapi import FastAPI


ROUTERS = (
    json_api.public_router,
    access_api.router,
    endpoints.router,
    json_api.router,
    pages.build_router(),
    *list_app_routers(),
)
"""Routers in order of precedence."""


def create_app(settings: ServerSettings, clock: Callable[[], float] | None = None) -> FastAPI:
    """Create the application with its store open; its workers start and stop with the server.

    Raises MissingExtra without the packages of the extra `server`, and what opening a store raises.

    >>> import tempfile
    >>> app = create_app(ServerSettings(store=tempfile.mkdtemp(), workers=0))
    >>> app.title
    'ragfault'
    >>> app.state.server.store.close()
    """
    if clock is None:
        clock = DemoClock(settings.speed) if settings.demo else time.time
    check_otlp_settings(settings)
    # report errors in the settings before a store is created
    build_receivers(settings)
    opened = open_app_pages(settings.page_files)
    with convert_write_errors(settings.data_folder):
        settings.data_folder.mkdir(parents=True, exist_ok=True)
    delete_copies(settings.data_folder)
    request_log = None if settings.request_log is None else open_request_log(settings.request_log)
    server = ServerState(settings, open_store(settings.store), clock)
    scheduler = AlertScheduler(server)
    workers: list[BackgroundThread] = [scheduler]
    if settings.demo:
        workers.append(DemoTraffic(server, clock(), clock=clock if isinstance(clock, DemoClock) else None))

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(server.open)
        for worker in workers:
            worker.start()
        try:
            yield
        finally:
            for worker in reversed(workers):
                await run_in_threadpool(worker.close)
            app.state.access.save_uses()
            app.state.audit.close()
            if request_log is not None:
                request_log.close()
            await run_in_threadpool(server.close)

    app = FastAPI(
        title="ragfault", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.state.server, app.state.scheduler = server, scheduler
    app.state.host = AppPageHost(server, opened)
    app.state.access = AccessControl(settings, server.store)
    app.state.audit = AuditLog(server.store, settings.data_folder / AUDIT_FILE)
    app.add_middleware(SecurityMiddleware, local=is_loopback(settings.host) and not settings.trusted_proxies)
    app.add_middleware(HeadMiddleware)
    if request_log is not None:
        app.add_middleware(RequestLogMiddleware, log=request_log)
    app.add_middleware(RootPathMiddleware, root_path=settings.root_path)
    if settings.trusted_proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=list_trusted_networks(settings.trusted_proxies))
    install_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    return app


COLLECTION_THRESHOLDS = (20_000, 20, 20)
"""Objects after which garbage is looked for. A server makes many that live for seconds, such as spans that wait for
the others of their trace: with Python's 700 an eighth of the processor of ingest went into looking at them."""

# seconds for which requests in progress may finish at shutdown
SHUTDOWN_SECONDS = 20


def run_server(settings: ServerSettings, announce: Callable[[str], None] = lambda _: None) -> None:
    """Serve until a signal; then finish requests in progress, store scores, and close the store.

    Raises MissingExtra, UsageError, and OutputError where the port is taken, or the store is lost for a minute.
    """
    with require_extra("the server", "server"):
        import uvicorn
    from ragfault.apps.watch.server.request_limits import make_timeout_protocol

    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        # the application believes the proxies that were named, and no other
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        h11_max_incomplete_event_size=65536,
        limit_concurrency=1000,
        http=make_timeout_protocol(settings.limits.timeout),
    )
    try:
        listening = bind_socket(config)
    except OutputError:
        app.state.server.store.close()
        raise
    address = format_address(*listening.getsockname()[:2])

    class Server(uvicorn.Server):
        """Server that announces its address when it is ready."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                announce(f"ragfault listens on {address}")
                announce(f"dashboard: {address}/   traces: {address}/v1/traces (OTLP) or {address}/v1/ragfault/traces")

    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    server = Server(config)
    guard = StoreGuard(app.state.server.store, lambda: setattr(server, "should_exit", True))
    guard.start()
    try:
        with _ignore_repeated_signals():
            server.run(sockets=[listening])
    finally:
        guard.close()
        # frozen objects are not freed at the end, and the bindings of DuckDB list each as a leak
        gc.unfreeze()
    if guard.has_given_up:
        raise OutputError(
            "the store is lost and could not be opened again: look at its disk, and start the server anew."
        )


@contextlib.contextmanager
def _ignore_repeated_signals() -> Iterator[None]:
    """Ignore the signal that uvicorn raises again after it has shut down."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
