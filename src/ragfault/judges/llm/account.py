"""Account of a judge that sends requests to a model: its settings, its session, its budget and its usage."""

from __future__ import annotations

import threading
import uuid
import weakref

from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.transport.model_transport import LLMSession
from ragfault.model.records import Usage


class ModelAccount:
    """Settings of a model, and the session that opens with the first call and charges its budget."""

    def __init__(self, settings: LLMSettings) -> None:
        self.settings = settings
        self._budget_id, self._fresh_budget = f"judge {uuid.uuid4().hex}", True
        self._session: LLMSession | None = None
        self._usage = Usage()
        self._lock = threading.RLock()

    def begin(self, budget_id: str, *, fresh: bool) -> None:
        with self._lock:
            self.end()
            self._budget_id, self._fresh_budget = budget_id, fresh
            self._usage = Usage()
            self._open_session()

    @property
    def usage(self) -> Usage:
        session = self._session
        return session.usage if session is not None else self._usage

    def end(self) -> None:
        """Wait for replies to calls in flight, store them, and close the session."""
        with self._lock:
            session = self._session
            if session is None:
                return
            try:
                session.close()
            finally:
                self._usage = session.usage
                self._session = None

    def _open_session(self) -> LLMSession:
        with self._lock:
            if self._session is None:
                self._session = LLMSession(self.settings, self._budget_id, fresh=self._fresh_budget)
                self._fresh_budget = False
                weakref.finalize(self, LLMSession.close, self._session)
            return self._session
