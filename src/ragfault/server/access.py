"""Access: who may ask for what. Tokens are random, kept as hashes, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ragfault.errors import UsageError
from ragfault.server.bodies import Rates
from ragfault.server.settings import Settings, loopback
from ragfault.store import Role, Store, Token

__all__ = ["COOKIE", "Access", "hashed", "issue", "require"]

COOKIE = "ragfault"
"""The cookie that a browser may carry its token in; it counts for looking, and for forms with their own token."""

GRANTS: dict[Role, frozenset[Role]] = {
    "admin": frozenset(("read", "ingest", "admin")),
    "read": frozenset(("read",)),
    "ingest": frozenset(("ingest",)),
}
FRESH = 5.0
"""Seconds for which the tokens of the store are remembered."""


def hashed(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def issue(store: Store, name: str, role: Role) -> str:
    """Make a token, keep its hash under a name, and return it: it is shown once. One of the same name ends."""
    if not name:
        raise UsageError("a token has a name, by which it can be dropped.")
    token = "rf_" + secrets.token_urlsafe(32)
    store.save_token(Token(name=name, role=role, hash=hashed(token), created=time.time())).result()
    return token


class Access:
    """The tokens that count."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._store = store
        own = settings.token
        self._own = (
            None if own is None else Token(name="--token", role="admin", hash=hashed(own), created=0.0)
        )
        self._local = loopback(settings.host)
        self._rates = Rates(settings.limits.rate)
        self._salt = secrets.token_bytes(32)
        self._known: tuple[Token, ...] = ()
        self._read = -FRESH
        self._lock = threading.Lock()

    def tokens(self) -> tuple[Token, ...]:
        """All that count, those of the store at most a few seconds old."""
        with self._lock:
            if time.monotonic() - self._read > FRESH:
                self._known, self._read = self._store.tokens(), time.monotonic()
            return self._known if self._own is None else (self._own, *self._known)

    def forget(self) -> None:
        """Read the tokens of the store anew at the next question."""
        self._read = -FRESH

    @property
    def open(self) -> bool:
        """Whether nobody needs a token: on loopback, where none was ever made."""
        return self._local and not self.tokens()

    def token(self, request: Request, *, cookie: bool = True) -> Token | None:
        """The token that a request carries, if it is one."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            given = request.cookies.get(COOKIE, "") if cookie else ""
        return self.find(given.strip())

    def find(self, given: str) -> Token | None:
        """The token that a text is, if it is one."""
        mark = hashed(given)
        found = None
        for token in self.tokens():
            if hmac.compare_digest(token.hash, mark) and given:
                found = token
        return found

    def check(self, request: Request, role: Role) -> None:
        """Raise 401 or 403 where a request may not do this, 429 where its client looks too often.

        What is sent has a rate of its own: ingest counts what it refuses.
        """
        if role != "ingest":
            self._rates.check(request.client.host if request.client else "")
        if self.open:
            return
        token = self.token(request, cookie=role == "read" or getattr(request.state, "form", False))
        if token is None:
            raise HTTPException(
                401, "a token is needed: Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"}
            )
        if role not in GRANTS[token.role]:
            raise HTTPException(403, f'the token "{token.name}" is for {token.role}, not for {role}.')

    def stamp(self, request: Request) -> str:
        """What a form carries to show that it was made here, for whoever looks."""
        return hmac.new(self._salt, request.cookies.get(COOKIE, "").encode(), "sha256").hexdigest()

    def stamped(self, request: Request, stamp: str) -> None:
        """Raise 403 where a form was not made here; else let the cookie count for it."""
        if not hmac.compare_digest(stamp.encode("utf-8", "replace"), self.stamp(request).encode()):
            raise HTTPException(
                403, "this form was not made by this server, or long ago. Load the page again."
            )
        request.state.form = True


def require(role: Role) -> Callable[[Request], Awaitable[None]]:
    """A dependency of routes that need a role."""

    async def check(request: Request) -> None:
        request.app.state.access.check(request, role)

    return check
