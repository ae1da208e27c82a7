"""Audit log: who did what, in the store and in a file; and the log of requests."""

from __future__ import annotations

import json
import logging
import sys
import time
from concurrent.futures import Future
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ragfault.apps.watch.server.request_limits import RateLimiter
from ragfault.apps.watch.server.storage.records import AuditRecord
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.io.atomic_files import convert_write_errors

AUDIT_FILE = "audit.jsonl"
# days for which the store keeps the audit log; the file has its own bound
AUDIT_DAYS = 400
# bytes of a log file, after which it is renamed and a new one begun
MAX_FILE_BYTES = 50_000_000
# renamed files of a log that stay
OLD_FILES = 4
REFUSALS_PER_SECOND = 1.0
"""Refused sign-ins and tokens that are recorded, on average: more would let strangers fill the log."""
REPEATS_PER_SECOND = 1 / 3600
"""Refusals of one wrong token from one address that are recorded: a client that repeats it stands there each hour."""
# characters of a target or detail, and of a user agent in the log of requests
MAX_TEXT = 300


class AuditLog:
    """Record of changes, sign-ins and downloads, written before they are acknowledged."""

    def __init__(self, store: TraceStore, path: Path) -> None:
        self._store = store
        self._file = _open_log(path)
        self._refusals = RateLimiter(REFUSALS_PER_SECOND)
        self._repeats = RateLimiter(REPEATS_PER_SECOND, 1)
        store.delete_audit(time.time() - 86400 * AUDIT_DAYS)

    def record(self, request: Request, action: str, target: str = "", detail: str = "", who: str = "") -> None:
        """Record an action of the client of a request, and wait until it is stored."""
        self._add(request, action, target, detail, who).result()

    def _add(self, request: Request, action: str, target: str = "", detail: str = "", who: str = "") -> Future[None]:
        entry = AuditRecord(
            time=time.time(),
            who=who or getattr(request.state, "who", "") or "unknown",
            action=action,
            target=target[:MAX_TEXT],
            detail=detail[:MAX_TEXT],
            address=client_address(request),
        )
        self._write_line(entry)
        return self._store.add_audit(entry)

    def record_refusal(self, request: Request) -> None:
        """Record a refused sign-in, unless too many came at once."""
        if not self._refusals.take("all"):
            self.record(request, "sign_in_refused")

    def record_wrong_token(self, request: Request, digest: str) -> None:
        """Record a refused bearer token by its hash, once an hour for each address, without waiting for the store."""
        client = f"{client_address(request)} {digest}"
        if self._repeats.take(client):
            return
        if self._refusals.take("all"):
            self._repeats.refund(client)
        else:
            self._add(request, "token_refused", request.url.path)

    def _write_line(self, entry: AuditRecord) -> None:
        line = {**msgspec.to_builtins(entry), "time": _format_moment(entry.time)}
        self._file.handle(_make_record(line))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def client_address(request: Request) -> str:
    """Return the address of the client of a request: behind a trusted proxy, that which the proxy names."""
    return request.client.host if request.client else ""


class RequestLogMiddleware:
    """Middleware that writes a line of JSON for each request: never a token, a query string, or a body."""

    def __init__(self, app: ASGIApp, log: logging.Handler) -> None:
        self._app, self._log = app, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, clock = time.time(), time.perf_counter()
        status, size = 0, 0

        async def sending(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            size += len(message.get("body", b""))
            await send(message)

        state = scope.setdefault("state", {})
        try:
            await self._app(scope, receive, sending)
        finally:
            agent = next((value for name, value in scope["headers"] if name == b"user-agent"), b"")
            line = {
                "time": _format_moment(began),
                "address": (scope.get("client") or ("",))[0],
                "who": state.get("who"),
                "method": scope["method"],
                "path": scope["path"][:1000],
                "status": status,
                "bytes": size,
                "milliseconds": round(1000 * (time.perf_counter() - clock), 1),
                "agent": agent.decode("latin-1")[:MAX_TEXT],
            }
            self._log.handle(_make_record(line))


def open_request_log(place: str) -> logging.Handler:
    """Open the log of requests: a file, or "-" for standard output. Raises OutputError where it cannot be written."""
    return logging.StreamHandler(sys.stdout) if place == "-" else _open_log(Path(place))


def _open_log(path: Path) -> RotatingFileHandler:
    """Return a log file, opened with its first line. Raises OutputError where it cannot be written."""
    with convert_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
        return RotatingFileHandler(path, maxBytes=MAX_FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8", delay=True)


def _make_record(line: dict[str, Any]) -> logging.LogRecord:
    return logging.LogRecord("ragfault.server", logging.INFO, "", 0, json.dumps(line), None, None)


def _format_moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
