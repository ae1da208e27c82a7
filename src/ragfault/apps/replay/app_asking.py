"""Asking an app of the user again: a function, or an address."""

from __future__ import annotations

import hashlib
import inspect
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request

import msgspec

from ragfault.apps.replay.asking import AskedAnswer, AskedRequest, describe_answer, raise_stop
from ragfault.judges.llm.settings import redact_secrets
from ragfault.judges.llm.transport.endpoint_client import FATAL_STATUSES, RETRY_STATUSES, compute_delay
from ragfault.judges.llm.transport.reply_cache import (
    CachedReply,
    CacheFile,
    load_reply,
    resolve_cache_path,
    store_reply,
)
from ragfault.model.errors import JudgeError, JudgeStopped, UsageError
from ragfault.model.records import Chunk, ConversationTurn, Trace
from ragfault.options.functions import load_function
from ragfault.text.http import URL_OPENER, parse_retry_after

APP_THREADS = 8
"""Calls of an app of the user at once."""
APP_TIMEOUT = 120.0
"""Seconds for one call of an address."""
APP_TRIES = 6
"""Tries of a call of an address that meets a temporary fault, as many as a judge makes."""

AnswerFunction = Callable[[str, tuple[Chunk, ...], tuple[ConversationTurn, ...]], Any]
Redact = Callable[[str], str]


def to_answer(value: Any) -> str:
    """Return the text of what an app answered: a text, a trace, or an object with the key `answer`.

    Raises TypeError for anything else.
    """
    if isinstance(value, Trace) and value.answer is not None:
        return value.answer
    if isinstance(value, dict) and isinstance(value.get("answer"), str):
        return str(value["answer"])
    if isinstance(value, str):
        return value
    raise TypeError(f"it returned {type(value).__name__}, not an answer")


def to_chunk(value: Any, number: int) -> Chunk:
    """Return a chunk of what a retriever returned: a chunk, a text, or an object with `id` and `text`.

    Raises TypeError for anything else.
    """
    if isinstance(value, Chunk):
        return value
    if isinstance(value, str):
        return Chunk(id=f"retrieved-{number}", text=value)
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return Chunk(id=str(value.get("id", f"retrieved-{number}")), text=value["text"])
    raise TypeError(f"it returned {type(value).__name__}, not a chunk")


class AppAsker:
    """An app of the user that is called with query, chunks and history; its answers are stored, and asked for once.

    `redact` is applied to an answer before it is stored.
    """

    usage = None

    def __init__(
        self, name: str, answer: Callable[[AskedRequest], str], version: str, cache: str | None, redact: Redact = str
    ) -> None:
        self.name, self._answer, self._version, self._redact = name, answer, version, redact
        path = resolve_cache_path(cache)
        self._file = None if path is None else CacheFile(path)

    def ask(self, requests: Sequence[AskedRequest]) -> list[AskedAnswer]:
        """Answer requests, several at once; one on which the app fails has its error.

        Raises StoppedPartly where no further call of an address can succeed.
        """
        stopped: list[JudgeStopped] = []

        def ask_one(request: AskedRequest) -> AskedAnswer | JudgeStopped | None:
            if stopped:
                return None
            try:
                return self._ask_one(request)
            except JudgeStopped as error:
                stopped.append(error)
                return error

        with ThreadPoolExecutor(APP_THREADS) as pool:
            return raise_stop(list(pool.map(ask_one, requests)))

    def _ask_one(self, request: AskedRequest) -> AskedAnswer:
        key = self._build_key(request)
        stored = None if self._file is None else load_reply(self._file, key)
        if stored is None:
            began = time.monotonic()
            try:
                text = self._redact(self._answer(request))
            except JudgeStopped:
                raise
            except (Exception, SystemExit) as error:  # noqa: BLE001 - an error of user code fails one request only
                return AskedAnswer(None, self._redact(f"{type(error).__name__}: {error}"))
            seconds = time.monotonic() - began
            stored = CachedReply(text, False, "answer", "app", self.name, 0, 0, 0, int(time.time()), seconds)
            if self._file is not None:
                with self._file.transaction() as connection:
                    store_reply(connection, key, stored)
        # An app says nothing of its tokens.
        return describe_answer(stored)._replace(prompt=None, completion=None, cost=None)

    def _build_key(self, request: AskedRequest) -> bytes:
        trace = request.trace
        parts = (self.name, self._version, trace.query, request.chunks, trace.history, request.attempt)
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).digest()

    def close(self) -> None:
        """Close the file of the answers."""
        if self._file is not None:
            self._file.close()


def load_app(name: str, cache: str | None = None, redact: Redact = str) -> AppAsker:
    """Load an app `MODULE:FUNCTION` of query, chunks and history.

    Its stored answers are those of the file as it is now: after a change in it, the app is asked anew.
    """
    function: AnswerFunction = load_function(name)
    try:
        version = hashlib.sha256(Path(inspect.getfile(function)).read_bytes()).hexdigest()
    except (OSError, TypeError):
        version = ""

    def answer(request: AskedRequest) -> str:
        return to_answer(function(request.trace.query, request.chunks, request.trace.history or ()))

    return AppAsker(name, answer, version, cache, redact)


def load_address(url: str, cache: str | None = None, redact: Redact = str) -> AppAsker:
    """Load an address that takes `{"query", "chunks", "history"}` and returns `{"answer"}`, both as JSON.

    A temporary fault (HTTP 429 or 5xx, a broken connection) is met with another try, as by a judge that asks a model.
    Raises UsageError for an address that is not of the web.
    """
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise UsageError(f'"{url[:80]}" is not an address: http://127.0.0.1:8000/answer')
    place = urlsplit(url)._replace(query="", fragment="").geturl().partition("://")[2].rpartition("@")[2]

    def answer(request: AskedRequest) -> str:
        trace = request.trace
        body = msgspec.json.encode({"query": trace.query, "chunks": request.chunks, "history": trace.history or ()})
        return to_answer(msgspec.json.decode(_post(url, place, body)))

    return AppAsker(place, answer, "", cache, redact)


def _post(url: str, place: str, body: bytes) -> bytes:
    """Return the response of an address, after a few tries.

    Raises JudgeStopped where it cannot be reached or refuses every call, JudgeError where it fails on this one.
    """
    fault: JudgeError | JudgeStopped = JudgeError("not tried")
    for attempt in range(1, APP_TRIES + 1):
        wait = None
        request = Request(url, body, {"Content-Type": "application/json"}, method="POST")
        try:
            with URL_OPENER.open(request, timeout=APP_TIMEOUT) as response:
                content: bytes = response.read()
                status = response.status
                wait = parse_retry_after(response.headers.get("retry-after"))
        except (OSError, HTTPException) as error:
            reason = redact_secrets(str(getattr(error, "reason", error)) or type(error).__name__)
            fault = JudgeStopped(f"cannot reach {place}: {reason}, in {attempt} tries. See that it runs")
        else:
            if status == 200:
                return content
            if status in FATAL_STATUSES:
                raise JudgeStopped(f"{place} refuses every call (HTTP {status})")
            fault = JudgeError(f"HTTP {status}, in {attempt} tries")
            if status not in RETRY_STATUSES and status < 500:
                raise fault
        if attempt < APP_TRIES:
            time.sleep(compute_delay(attempt, wait))
    raise fault
