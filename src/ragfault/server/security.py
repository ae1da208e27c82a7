"""Security of requests: response headers, origin checks, tokens, roles and CSRF tokens."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Awaitable, Callable
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ragfault.errors import UsageError
from ragfault.server.request_limits import RateLimiter, problem_response
from ragfault.server.settings import ServerSettings, is_loopback
from ragfault.server.storage import AccessRole, AccessToken, TraceStore

log = logging.getLogger("ragfault.server")

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""No inline scripts or styles, nothing from other servers."""

SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


CROSS_ORIGIN_ERROR = "this came from a page of another server."
INTERNAL_ERROR = "something failed that should not have. It is in the server's log."


class SecurityMiddleware:
    """Middleware that sets security headers, checks the origin of requests and turns crashes into problems.

    On loopback, requests to foreign host names are rejected: a page elsewhere could otherwise reach the server by a
    name that resolves to this machine.
    """

    def __init__(self, app: ASGIApp, local: bool) -> None:
        self._app, self._is_local = app, local

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
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        problem = self._check_origin(Headers(scope=scope))
        if problem:
            await problem_response(403, problem)(scope, receive, sending)
            return
        try:
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            return  # the client has disconnected
        except Exception as error:
            if begun:
                raise
            log.error("a request failed", exc_info=error)
            await problem_response(500, INTERNAL_ERROR)(scope, receive, sending)

    def _check_origin(self, headers: Headers) -> str | None:
        """Return why a request is rejected; None where it is accepted."""
        host = headers.get("host", "")
        if self._is_local and not is_loopback(_split_url(f"//{host}").hostname or ""):
            return f'this server answers to names of this machine only, not to "{host[:80]}".'
        origin = headers.get("origin")
        if origin is not None and _split_url(origin).netloc.lower() != host.lower():
            return CROSS_ORIGIN_ERROR
        loaded = headers.get("sec-fetch-mode", "navigate") != "navigate"
        if loaded and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return CROSS_ORIGIN_ERROR
        return None


def _split_url(url: str) -> SplitResult:
    """Split a URL; an invalid one is empty."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


TOKEN_COOKIE = "ragfault"
"""The cookie that carries a browser's token; it grants reading, and forms that carry a CSRF token."""

ROLE_GRANTS: dict[AccessRole, frozenset[AccessRole]] = {
    "admin": frozenset(("read", "ingest", "admin")),
    "read": frozenset(("read",)),
    "ingest": frozenset(("ingest",)),
}
TOKEN_CACHE_SECONDS = 5.0
"""Seconds for which the tokens of the store are cached."""


def hash_token(token: str) -> str:
    """Return the hash of a token that the store keeps."""
    return hashlib.sha256(token.encode()).hexdigest()


def issue_token(store: TraceStore, name: str, role: AccessRole) -> str:
    """Create a token and store its hash under a name, replacing one of the same name. Return it; it is shown once."""
    if not name:
        raise UsageError("a token has a name, by which it can be dropped.")
    token = "rf_" + secrets.token_urlsafe(32)
    store.save_token(AccessToken(name=name, role=role, hash=hash_token(token), created=time.time())).result()
    return token


class AccessControl:
    """Check of tokens, roles and CSRF tokens."""

    def __init__(self, settings: ServerSettings, store: TraceStore) -> None:
        self._store = store
        own = settings.token
        self._configured_tokens = (
            () if own is None else (AccessToken(name="--token", role="admin", hash=hash_token(own), created=0.0),)
        )
        self._is_local = is_loopback(settings.host)
        self._rate_limiter = RateLimiter(settings.limits.rate)
        self._salt = secrets.token_bytes(32)
        self._stored_tokens: tuple[AccessToken, ...] = ()
        self._read_at = -TOKEN_CACHE_SECONDS
        self._lock = threading.Lock()

    def tokens(self) -> tuple[AccessToken, ...]:
        """Return all valid tokens, those of the store at most a few seconds old."""
        with self._lock:
            if time.monotonic() - self._read_at > TOKEN_CACHE_SECONDS:
                self._stored_tokens, self._read_at = self._store.read_tokens(), time.monotonic()
            return (*self._configured_tokens, *self._stored_tokens)

    def invalidate_tokens(self) -> None:
        """Read the tokens of the store again at the next request."""
        self._read_at = -TOKEN_CACHE_SECONDS

    @property
    def is_open(self) -> bool:
        """No token is needed: the server listens on loopback and no token exists."""
        return self._is_local and not self.tokens()

    def read_token(self, request: Request, *, cookie: bool = True) -> AccessToken | None:
        """Return the valid token of a request; None without one."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            given = request.cookies.get(TOKEN_COOKIE, "") if cookie else ""
        return self.match_token(given.strip())

    def match_token(self, text: str) -> AccessToken | None:
        """Return the valid token with this text; None without one. Compares in constant time."""
        digest = hash_token(text)
        matched = None
        for token in self.tokens():
            if hmac.compare_digest(token.hash, digest) and text:
                matched = token
        return matched

    def check_role(self, request: Request, role: AccessRole) -> None:
        """Raise 401 or 403 where a request lacks the role, 429 where its client reads too often.

        Ingest has its own rate limit, which counts what it rejects.
        """
        if role != "ingest":
            self._rate_limiter.check(request.client.host if request.client else "")
        if self.is_open:
            return
        token = self.read_token(request, cookie=role == "read" or getattr(request.state, "form", False))
        if token is None:
            raise HTTPException(401, "a token is needed: Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"})
        if role not in ROLE_GRANTS[token.role]:
            raise HTTPException(403, f'the token "{token.name}" is for {token.role}, not for {role}.')

    def make_csrf_token(self, request: Request) -> str:
        """Return the CSRF token for the forms of a session."""
        return hmac.new(self._salt, request.cookies.get(TOKEN_COOKIE, "").encode(), "sha256").hexdigest()

    def check_csrf_token(self, request: Request, csrf_token: str) -> None:
        """Raise 403 where a form was not made by this server; else accept the cookie for it."""
        if not hmac.compare_digest(csrf_token.encode("utf-8", "replace"), self.make_csrf_token(request).encode()):
            raise HTTPException(403, "this form was not made by this server, or long ago. Load the page again.")
        request.state.form = True


def require_role(role: AccessRole) -> Callable[[Request], Awaitable[None]]:
    """Return a route dependency that requires a role."""

    async def check(request: Request) -> None:
        request.app.state.access.check_role(request, role)

    return check
