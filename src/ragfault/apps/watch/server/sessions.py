"""Sessions of signed-in browsers: the cookie carries the id of a session, never a token."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable

from ragfault.apps.watch.server.storage.records import AccessToken, BrowserSession
from ragfault.apps.watch.server.storage.store import TraceStore

# sessions above which the oldest ends
MAX_SESSIONS = 10_000


def hash_secret(text: str) -> str:
    """Return the hash of a token or session id that the store keeps; both are random, so that no slow one is needed."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class SessionTable:
    """The sessions of a store, held in memory: the server owns its store, so that nobody else changes them.

    A session is found by the hash of its id, which is random: the time of a look-up says nothing about another id.
    """

    def __init__(self, store: TraceStore, hours: float, clock: Callable[[], float] = time.time) -> None:
        self._store, self._seconds, self._clock = store, 3600 * hours, clock
        self._lock = threading.Lock()
        self._sessions = {session.hash: session for session in store.read_sessions()}

    def begin(self, token: AccessToken, address: str) -> str:
        """Begin a session for a token; return its id, which only the browser keeps."""
        id, now = secrets.token_urlsafe(32), self._clock()
        session = BrowserSession(
            hash=hash_secret(id), token=token.hash, created=now, expires=now + self._seconds, address=address
        )
        with self._lock:
            self._sessions[session.hash] = session
            ended = [other.hash for other in self._sessions.values() if other.expires <= now]
            if len(self._sessions) - len(ended) > MAX_SESSIONS:
                ended.append(min(self._sessions.values(), key=lambda other: other.created).hash)
            for hash in ended:
                self._sessions.pop(hash, None)
        for hash in ended:
            self._store.delete_session(hash)
        self._store.save_session(session).result()
        return id

    def get_session(self, id: str) -> BrowserSession | None:
        """Return the session with an id; None where there is none, or it has expired."""
        session = self._sessions.get(hash_secret(id)) if id else None
        return session if session is not None and self._clock() < session.expires else None

    def end(self, id: str) -> None:
        """End a session for good."""
        self._end_hashes([hash_secret(id)])

    def end_token(self, token_hash: str) -> int:
        """End all sessions of a token; return their number."""
        with self._lock:
            hashes = [session.hash for session in self._sessions.values() if session.token == token_hash]
        self._end_hashes(hashes)
        return len(hashes)

    def count_token(self, token_hash: str) -> int:
        """Count the live sessions of a token."""
        now = self._clock()
        with self._lock:
            return sum(other.token == token_hash and now < other.expires for other in self._sessions.values())

    def _end_hashes(self, hashes: list[str]) -> None:
        with self._lock:
            known = [hash for hash in hashes if self._sessions.pop(hash, None) is not None]
        for hash in known:
            self._store.delete_session(hash).result()
