"""Asking the user's own system: a model behind an API, a function of the user, or an address."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit
from urllib.request import Request

import msgspec

from ragfault.judges.llm.judge import CHARACTERS_PER_TOKEN, REPLY_TOKENS
from ragfault.judges.llm.settings import LLMSettings, endpoint_location
from ragfault.judges.llm.transport.budget import NANO, load_cost_function
from ragfault.judges.llm.transport.model_transport import LLMSession
from ragfault.judges.llm.transport.reply_cache import (
    CachedReply,
    CacheFile,
    ModelCall,
    ModelCaller,
    ModelMessage,
    load_reply,
    resolve_cache_path,
    store_reply,
)
from ragfault.model.errors import JudgeError, JudgeStopped, UsageError
from ragfault.model.records import Chunk, ConversationTurn, Trace, Usage
from ragfault.options.functions import load_function
from ragfault.text.http import URL_OPENER

APP_THREADS = 8
"""Calls of an app of the user at once."""
APP_TIMEOUT = 120.0
"""Seconds for one call of an address."""


class AskedRequest(NamedTuple):
    """A request with its chunks, as a model and as an app of the user get it."""

    messages: tuple[ConversationTurn, ...]
    """Empty for an app of the user."""
    trace: Trace
    chunks: tuple[Chunk, ...]
    attempt: int
    """Number of this among equal requests, from 1: each of them is asked."""


class AskedAnswer(NamedTuple):
    """What was answered, or why nothing was."""

    text: str | None
    error: str | None = None


class Asker(Protocol):
    """Whatever answers requests again."""

    @property
    def name(self) -> str:
        """What is asked, and where."""
        ...

    @property
    def needs_messages(self) -> bool:
        """Whether it answers recorded requests; else it gets query, chunks and history."""
        ...

    @property
    def usage(self) -> Usage | None:
        """Calls, tokens and cost so far; None where nothing is known of them."""
        ...

    def ask(self, requests: Sequence[AskedRequest]) -> list[AskedAnswer]:
        """Answer requests, in their order. Raises JudgeStopped where no further one can be answered."""
        ...

    def close(self) -> None:
        """Wait for what is in flight, and store it."""
        ...


class ModelAsker:
    """A model behind an OpenAI-compatible endpoint, with the cache, the budget and the retries of the judge."""

    needs_messages = True

    def __init__(self, settings: LLMSettings, budget_id: str, *, fresh: bool = True) -> None:
        # The reply is free text: a schema would change the request.
        self._settings = msgspec.structs.replace(settings, structured="none")
        self._budget_id, self._fresh = budget_id, fresh
        self._session: LLMSession | None = None
        self._usage = Usage()

    @property
    def name(self) -> str:
        settings = self._settings
        return f"{settings.provider}/{settings.model} at {endpoint_location(settings)}"

    @property
    def usage(self) -> Usage:
        return self._usage if self._session is None else self._session.usage

    def ask(self, requests: Sequence[AskedRequest]) -> list[AskedAnswer]:
        """Answer requests, all at once within the limits of the endpoint."""
        if self._session is None:
            self._session = LLMSession(self._settings, self._budget_id, fresh=self._fresh)
            self._fresh = False
        session = self._session

        async def work(caller: ModelCaller) -> list[AskedAnswer | JudgeStopped]:
            async def ask_one(request: AskedRequest) -> AskedAnswer | JudgeStopped:
                async with session.admission:
                    try:
                        reply = await caller.ask(build_model_call(request))
                    except JudgeStopped as error:
                        return error
                    except JudgeError as error:
                        return AskedAnswer(None, str(error))
                return AskedAnswer(reply.text)

            return list(await asyncio.gather(*map(ask_one, requests)))

        return _raise_stop(session.run(work))

    def close(self) -> None:
        if self._session is not None:
            session = self._session
            try:
                session.close()
            finally:
                self._usage = session.usage
                self._session = None


class StoppedPartly(JudgeStopped):
    """The replay ended before its last call; the answers until then are in `answers`."""

    answers: tuple[AskedAnswer | None, ...] = ()


def _raise_stop(results: Sequence[AskedAnswer | JudgeStopped]) -> list[AskedAnswer]:
    """Return the answers; raise StoppedPartly with those that there are if a call could not be made."""
    stopped = next((result for result in results if isinstance(result, JudgeStopped)), None)
    if stopped is not None:
        error = StoppedPartly(*stopped.args)
        error.answers = tuple(result if isinstance(result, AskedAnswer) else None for result in results)
        raise error from stopped
    return [result for result in results if isinstance(result, AskedAnswer)]


def build_model_call(request: AskedRequest) -> ModelCall:
    """Build the call of a recorded request: its messages and nothing else.

    The result of a tool is sent as a message of the user: an endpoint takes it only after the call that asked for it.
    """
    messages = tuple(
        ModelMessage(role="user" if turn.role == "tool" else turn.role, text=turn.text) for turn in request.messages
    )
    digest = hashlib.sha256(msgspec.json.encode(("answer", messages))).hexdigest()
    return ModelCall(kind="answer", messages=messages, schema={}, content=digest, vote=request.attempt)


class PriceEstimate(NamedTuple):
    """What a replay may cost."""

    traces: int
    calls: int
    tokens: int
    """Tokens sent by that many calls, estimated."""
    cost: float | None
    """US$, estimated; None where the price is not known."""
    max_cost: float | None
    """US$ if every reply has the maximum length."""


def estimate_price(settings: LLMSettings, requests: Sequence[Sequence[ConversationTurn]], calls: int) -> PriceEstimate:
    """Estimate the price of so many calls for each request.

    >>> request = [ConversationTurn(role="user", text="x" * 4000)]
    >>> estimate_price(LLMSettings(model="m", price=(1.0, 0.0)), [request], 4)
    PriceEstimate(traces=1, calls=4, tokens=4000, cost=0.004, max_cost=0.004)
    """
    cost = load_cost_function(settings)
    sizes = [sum(len(turn.text) for turn in request) // CHARACTERS_PER_TOKEN for request in requests]
    reply = min(REPLY_TOKENS["answer"], settings.max_tokens)
    costs = [[cost(size, length) for size in sizes] for length in (reply, settings.max_tokens)]
    totals = [None if None in prices else calls * sum(map(int, filter(None, prices))) / NANO for prices in costs]
    return PriceEstimate(len(sizes), calls * len(sizes), calls * sum(sizes), totals[0], totals[1])


AnswerFunction = Callable[[str, tuple[Chunk, ...], tuple[ConversationTurn, ...]], Any]
RetrieveFunction = Callable[[str], Any]


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
    """An app of the user that is called with query, chunks and history; its answers are stored, and asked for once."""

    needs_messages = False
    usage = None

    def __init__(self, name: str, answer: Callable[[AskedRequest], str], version: str, cache: str | None) -> None:
        self.name, self._answer, self._version = name, answer, version
        path = resolve_cache_path(cache)
        self._file = None if path is None else CacheFile(path)

    def ask(self, requests: Sequence[AskedRequest]) -> list[AskedAnswer]:
        """Answer requests, several at once; one on which the app fails has its error."""
        with ThreadPoolExecutor(APP_THREADS) as pool:
            return list(pool.map(self._ask_one, requests))

    def _ask_one(self, request: AskedRequest) -> AskedAnswer:
        key = self._build_key(request)
        stored = None if self._file is None else load_reply(self._file, key)
        if stored is not None:
            return AskedAnswer(stored.text)
        try:
            text = self._answer(request)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an error of user code fails one request only
            return AskedAnswer(None, f"{type(error).__name__}: {error}")
        if self._file is not None:
            reply = CachedReply(text, False, "answer", "app", self.name, 0, 0, 0, int(time.time()))
            with self._file.transaction() as connection:
                store_reply(connection, key, reply)
        return AskedAnswer(text)

    def _build_key(self, request: AskedRequest) -> bytes:
        trace = request.trace
        parts = (self.name, self._version, trace.query, request.chunks, trace.history, request.attempt)
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).digest()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def load_app(name: str, cache: str | None = None) -> AppAsker:
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

    return AppAsker(name, answer, version, cache)


def load_address(url: str, cache: str | None = None) -> AppAsker:
    """Load an address that takes `{"query", "chunks", "history"}` and returns `{"answer"}`, both as JSON.

    Raises UsageError for an address that is not of the web.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise UsageError(f'"{url[:80]}" is not an address: http://127.0.0.1:8000/answer')

    def answer(request: AskedRequest) -> str:
        trace = request.trace
        body = msgspec.json.encode({"query": trace.query, "chunks": request.chunks, "history": trace.history or ()})
        headers = {"Content-Type": "application/json"}
        try:
            with URL_OPENER.open(Request(url, body, headers, method="POST"), timeout=APP_TIMEOUT) as response:
                content = response.read()
                if response.status != 200:
                    raise JudgeError(f"HTTP {response.status}")
        except (OSError, HTTPException) as error:
            raise JudgeError(f"cannot reach {urlsplit(url).netloc}: {getattr(error, 'reason', error)}") from None
        return to_answer(msgspec.json.decode(content))

    return AppAsker(urlsplit(url).netloc + urlsplit(url).path, answer, "", cache)
