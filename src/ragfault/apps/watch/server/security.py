"""Security of requests: response headers, origin checks, tokens, roles and CSRF tokens."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ragfault.apps.watch.server.audit_log import client_address
from ragfault.apps.watch.server.request_limits import RateLimiter
from ragfault.apps.watch.server.sessions import SessionTable, hash_secret
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.storage.records import AccessRole, AccessToken
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.http.addresses import is_loopback
from ragfault.model.errors import UnknownName, UsageError

SESSION_COOKIE = "ragfault_session"
"""The cookie that carries the id of a session; it grants reading, and forms that carry a CSRF token."""

ROLE_GRANTS: dict[AccessRole, frozenset[AccessRole]] = {
    "admin": frozenset(("read", "ingest", "admin")),
    "read": frozenset(("read",)),
    "ingest": frozenset(("ingest",)),
}
# seconds for which the tokens of the store are cached
TOKEN_CACHE_SECONDS = 5.0
# the setting that holds the time of the last use of each token, by its hash
USES_SETTING = "token_uses"
# seconds between two writes of these times
USE_SECONDS = 60.0
SIGN_IN_RATE, SIGN_IN_BURST = 0.1, 10
"""Wrong tokens of one address, by sign-in or as bearer: so many a second on average, and so many at once."""
# bearer tokens that are remembered with the address that sent them
MAX_TRIED = 10_000
# characters of the name of a token
MAX_NAME = 80
# days for which a token may be valid
MAX_DAYS = 36_500


def issue_token(store: TraceStore, name: str, role: AccessRole, days: float | None = None, by: str = "") -> str:
    """Create a token and store its hash under a name, replacing one of the same name. Return it; it is shown once.

    It is refused `days` from now on, and never where that is None.
    """
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise UsageError(f"a token has a name of 1 to {MAX_NAME} characters, by which it can be revoked.")
    if days is not None and not 0 < days <= MAX_DAYS:
        raise UsageError(
            f"a token is valid for more than 0 and at most {MAX_DAYS:,} days, or for ever without days; got {days:g}."
        )
    token, now = "rf_" + secrets.token_urlsafe(32), time.time()
    expires = None if days is None else now + 86400 * days
    store.save_token(
        AccessToken(name=name, role=role, hash=hash_secret(token), created=now, expires=expires, by=by)
    ).result()
    return token


class AccessControl:
    """Check of tokens, sessions, roles and CSRF tokens."""

    def __init__(self, settings: ServerSettings, store: TraceStore) -> None:
        self._store = store
        own = settings.token
        self._configured_tokens = (
            () if own is None else (AccessToken(name="--token", role="admin", hash=hash_secret(own), created=0.0),)
        )
        self._is_local = is_loopback(settings.host) and not settings.trusted_proxies
        self.sessions = SessionTable(store, settings.session_hours)
        self._sign_ins = RateLimiter(SIGN_IN_RATE, SIGN_IN_BURST)
        self._tried: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._uses: dict[str, float] = dict(store.read_setting(USES_SETTING, {}))
        self._uses_saved = time.monotonic()
        self._issue_lock = threading.Lock()
        self._rate_limiter = RateLimiter(settings.limits.rate)
        self._salt = secrets.token_bytes(32)
        self._stored_tokens: tuple[AccessToken, ...] = ()
        self._read_at = -TOKEN_CACHE_SECONDS
        self._lock = threading.Lock()

    def tokens(self) -> tuple[AccessToken, ...]:
        """Return all tokens, expired ones too, those of the store at most a few seconds old."""
        with self._lock:
            if time.monotonic() - self._read_at > TOKEN_CACHE_SECONDS:
                self._stored_tokens, self._read_at = self._store.read_tokens(), time.monotonic()
            return (*self._configured_tokens, *self._stored_tokens)

    def invalidate_tokens(self) -> None:
        """Read the tokens of the store again at the next request."""
        self._read_at = -TOKEN_CACHE_SECONDS

    @property
    def is_open(self) -> bool:
        """No token is needed: the server listens on loopback, behind no proxy, and no token exists, expired or not."""
        return self._is_local and not self.tokens()

    def read_token(self, request: Request, *, cookie: bool = True) -> AccessToken | None:
        """Return the valid token of a request; None without one."""
        text = _read_bearer(request)
        if text is not None:
            return self.match_token(text)
        session = self.sessions.get_session(request.cookies.get(SESSION_COOKIE, "")) if cookie else None
        return None if session is None else self._match_hash(session.token)

    def match_token(self, text: str) -> AccessToken | None:
        """Return the valid token with this text; None without one. Compares in constant time."""
        return self._match_hash(hash_secret(text)) if text else None

    def _match_hash(self, digest: str) -> AccessToken | None:
        matched, now = None, time.time()
        for token in self.tokens():
            if hmac.compare_digest(token.hash, digest) and (token.expires is None or now < token.expires):
                matched = token
        return matched

    def sign_in(self, request: Request, text: str) -> str | None:
        """Begin a session for a token; return its id, None for a wrong token.

        Raises 429 where the address of the client sent too many wrong ones, even if this one is right.
        """
        address = client_address(request)
        self._sign_ins.check(address)
        token = self.match_token(text)
        if token is None:
            return None
        self._sign_ins.refund(address)
        request.state.who = token.name
        self._note_use(token)
        return self.sessions.begin(token, address)

    def sign_out(self, request: Request) -> None:
        """End the session of a request."""
        if token := self.read_token(request):
            request.state.who = token.name
        self.sessions.end(request.cookies.get(SESSION_COOKIE, ""))

    def issue(self, name: str, role: AccessRole, days: float | None, by: str) -> str:
        """Create a token while the server runs. Raises UsageError for a name in use, and for a first one not admin."""
        with self._issue_lock:
            self.invalidate_tokens()
            tokens = self.tokens()
            if any(token.name == name for token in tokens):
                raise UsageError(f'there is a token "{name[:MAX_NAME]}". Revoke it first, or choose another name.')
            if role != "admin" and not self._has_admin(tokens):
                raise UsageError(
                    "without an admin token nobody could make another. Make one with the role admin first."
                )
            issued = issue_token(self._store, name, role, days, by)
            self.invalidate_tokens()
            return issued

    def revoke(self, name: str) -> None:
        """Revoke a token and end its sessions. Raises UnknownName, and UsageError for the last admin token."""
        with self._issue_lock:
            self.invalidate_tokens()
            stored = [token for token in self.tokens() if token not in self._configured_tokens]
            token = next((token for token in stored if token.name == name), None)
            if token is None:
                raise UnknownName("token", name, [token.name for token in stored])
            if not self._has_admin([other for other in self.tokens() if other.name != name]):
                raise UsageError(
                    "this is the last admin token. Make another first, or end the server and drop it with: "
                    "ragfault serve token NAME --drop."
                )
            self._store.delete_token(name).result()
            self.sessions.end_token(token.hash)
            self.invalidate_tokens()

    def _has_admin(self, tokens: Iterable[AccessToken]) -> bool:
        now = time.time()
        return any(token.role == "admin" and (token.expires is None or now < token.expires) for token in tokens)

    def last_use(self, token: AccessToken) -> float | None:
        """Return the time of the last use of a token; None for never."""
        return self._uses.get(token.hash)

    def _note_use(self, token: AccessToken) -> None:
        self._uses[token.hash] = time.time()
        if time.monotonic() - self._uses_saved > USE_SECONDS:
            self.save_uses()

    def save_uses(self) -> None:
        """Save when each token was last used."""
        self._uses_saved = time.monotonic()
        known = {token.hash for token in self.tokens()}
        self._uses = {hash: time for hash, time in self._uses.items() if hash in known}
        self._store.save_setting(USES_SETTING, dict(self._uses))

    def check_role(self, request: Request, role: AccessRole) -> None:
        """Raise 401 or 403 where a request lacks the role, 429 where its client reads too often.

        Ingest has its own rate limit, which counts what it rejects.
        """
        if role != "ingest":
            self._rate_limiter.check(client_address(request))
        if self.is_open:
            request.state.who = "local"
            return
        self._check_bearer(request)
        token = self.read_token(request, cookie=request.method == "GET" or getattr(request.state, "form", False))
        if token is None:
            if text := _read_bearer(request):
                request.app.state.audit.record_wrong_token(request, hash_secret(text))
            raise HTTPException(401, "a token is needed: Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"})
        if role not in ROLE_GRANTS[token.role]:
            raise HTTPException(403, f'the token "{token.name}" is for {token.role}, not for {role}.')
        request.state.who = token.name
        self._note_use(token)

    def _check_bearer(self, request: Request) -> None:
        """Raise 429 where an address tries too many wrong tokens, then for right ones too.

        A token that the address has sent before costs nothing: a client with a revoked token, which repeats it, keeps
        no other client of the address out.
        """
        text = _read_bearer(request)
        if not text:
            return
        address = client_address(request)
        key = (address, hash_secret(text))
        if key not in self._tried:
            self._sign_ins.check(address)
            if self._match_hash(key[1]) is not None:
                self._sign_ins.refund(address)
            if len(self._tried) >= MAX_TRIED:
                self._tried.popitem(last=False)
        self._tried[key] = None
        self._tried.move_to_end(key)

    def make_csrf_token(self, request: Request) -> str:
        """Return the CSRF token for the forms of a session."""
        return hmac.new(self._salt, request.cookies.get(SESSION_COOKIE, "").encode(), "sha256").hexdigest()

    def check_csrf_token(self, request: Request, csrf_token: str) -> None:
        """Raise 403 where a form was not made by this server; else accept the cookie for it."""
        if not hmac.compare_digest(csrf_token.encode("utf-8", "replace"), self.make_csrf_token(request).encode()):
            raise HTTPException(403, "this form was not made by this server, or long ago. Load the page again.")
        request.state.form = True


def _read_bearer(request: Request) -> str | None:
    """Return the bearer token of a request, which may be empty; None without one."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None
