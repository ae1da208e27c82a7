"""Asking the user's own model again, behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from ragfault.io.otel.trace_mapping import REQUEST_KEY
from ragfault.io.redaction import parse_redaction_kinds
from ragfault.judges.llm.settings import LLMSettings, endpoint_location
from ragfault.judges.llm.transport.model_transport import LLMSession
from ragfault.judges.llm.transport.reply_cache import CachedReply, ModelCall, ModelCaller, ModelMessage
from ragfault.model.errors import JudgeError, JudgeStopped
from ragfault.model.grouping import group_by
from ragfault.model.records import Chunk, ConversationTurn, Trace, Usage
from ragfault.text.redaction import detect_sensitive, replace_sensitive

NANO = 1_000_000_000
"""Stored costs are in billionths of a US$."""
RECORDED_SETTINGS = ("temperature", "max_tokens", "top_p", "frequency_penalty", "presence_penalty")
"""Settings of a recorded request that it is asked with again; a seed is not, since attempts are to differ."""

RequestSettings = tuple[tuple[str, float], ...]
"""Settings of a request, by name; empty: those of the command."""


class AskedRequest(NamedTuple):
    """A request with its chunks, as a model and as an app of the user get it."""

    messages: tuple[ConversationTurn, ...]
    """Empty for an app of the user."""
    trace: Trace
    chunks: tuple[Chunk, ...]
    attempt: int
    """Number of this among equal requests, from 1: each of them is asked."""
    settings: RequestSettings = ()


class AskedAnswer(NamedTuple):
    """What was answered, or why nothing was, and what it cost when it was first asked for."""

    text: str | None
    error: str | None = None
    prompt: int | None = None
    """Tokens of the request; None where they are not known."""
    completion: int | None = None
    """Tokens of the answer."""
    cost: float | None = None
    """US$."""
    seconds: float | None = None


def describe_answer(reply: CachedReply) -> AskedAnswer:
    """Return a stored reply as an answer, with its cost."""
    cost = None if reply.cost is None else reply.cost / NANO
    return AskedAnswer(reply.text, None, reply.prompt, reply.completion, cost, reply.seconds)


class Asker(Protocol):
    """Whatever answers requests again."""

    @property
    def name(self) -> str:
        """What is asked, and where."""
        ...

    @property
    def usage(self) -> Usage | None:
        """Calls, tokens and cost so far; None where nothing is known of them."""
        ...

    def ask(self, requests: Sequence[AskedRequest]) -> list[AskedAnswer]:
        """Answer requests, in their order. Raises StoppedPartly where no further one can be answered."""
        ...

    def close(self) -> None:
        """Wait for what is in flight, and store it."""
        ...


def read_settings(trace: Trace) -> RequestSettings:
    """Read the settings that the request of a trace was recorded with; empty where none were.

    >>> read_settings(Trace(id="1", query="When?", metadata={"request_settings": {"temperature": 0.7, "seed": 4}}))
    (('temperature', 0.7),)
    """
    recorded = trace.metadata.get(REQUEST_KEY)
    if not isinstance(recorded, dict):
        return ()
    known = ((name, recorded.get(name)) for name in RECORDED_SETTINGS)
    return tuple((name, value) for name, value in known if isinstance(value, int | float) and value >= 0)


def apply_settings(base: LLMSettings, recorded: RequestSettings, fixed: frozenset[str]) -> LLMSettings:
    """Return settings with those of a recorded request, but for names that the command fixes.

    >>> base = LLMSettings(model="m", parameters={"top_p": 0.5})
    >>> recorded = (("temperature", 0.7), ("max_tokens", 90), ("top_p", 1))
    >>> found = apply_settings(base, recorded, frozenset({"temperature"}))
    >>> found.temperature, found.max_tokens, found.parameters
    (0.0, 90, {'top_p': 0.5})
    """
    own: dict[str, Any] = {name: value for name, value in recorded if name not in fixed}
    direct = {name: own.pop(name) for name in ("temperature", "max_tokens") if name in own}
    if "max_tokens" in direct:
        direct["max_tokens"] = max(1, int(direct["max_tokens"]))
    return msgspec.structs.replace(base, **direct, parameters={**own, **base.parameters})


class ModelAsker:
    """A model behind an OpenAI-compatible endpoint, with the cache, the budget and the retries of the judge.

    `fixed` names the settings that the command gives; all others are those that each request was recorded with.
    """

    def __init__(
        self, settings: LLMSettings, budget_id: str, *, fresh: bool = True, fixed: frozenset[str] = frozenset()
    ) -> None:
        # The reply is free text: a schema would change the request.
        self._settings = msgspec.structs.replace(settings, structured="none")
        self._budget_id, self._fresh, self._fixed = budget_id, fresh, fixed
        self._sessions: dict[RequestSettings, LLMSession] = {}
        self._usage = Usage()

    @property
    def name(self) -> str:
        settings = self._settings
        return f"{settings.provider}/{settings.model} at {endpoint_location(settings)}"

    @property
    def usage(self) -> Usage:
        # The sessions share one budget, and with it the count.
        return next((session.usage for session in self._sessions.values()), self._usage)

    def ask(self, requests: Sequence[AskedRequest]) -> list[AskedAnswer]:
        """Answer requests, those with the same settings at once within the limits of the endpoint."""
        results: list[AskedAnswer | JudgeStopped | None] = [None] * len(requests)
        groups = group_by(range(len(requests)), lambda place: requests[place].settings)
        for settings, places in groups.items():
            answers = self._ask_group(self._open(settings), [requests[place] for place in places])
            for place, answer in zip(places, answers, strict=True):
                results[place] = answer
            if any(isinstance(answer, JudgeStopped) for answer in answers):
                break
        return raise_stop(results)

    def _open(self, settings: RequestSettings) -> LLMSession:
        if settings not in self._sessions:
            own = apply_settings(self._settings, settings, self._fixed)
            self._sessions[settings] = LLMSession(own, self._budget_id, fresh=self._fresh)
            self._fresh = False
        return self._sessions[settings]

    @staticmethod
    def _ask_group(session: LLMSession, requests: Sequence[AskedRequest]) -> list[AskedAnswer | JudgeStopped]:
        async def work(caller: ModelCaller) -> list[AskedAnswer | JudgeStopped]:
            async def ask_one(request: AskedRequest) -> AskedAnswer | JudgeStopped:
                async with session.admission:
                    try:
                        reply = await caller.ask(build_model_call(request))
                    except JudgeStopped as error:
                        return error
                    except JudgeError as error:
                        return AskedAnswer(None, str(error))
                return describe_answer(reply.record)

            return list(await asyncio.gather(*map(ask_one, requests)))

        return session.run(work)

    def close(self) -> None:
        """Wait for what is in flight, and store it."""
        while self._sessions:
            _, session = self._sessions.popitem()
            try:
                session.close()
            finally:
                self._usage = session.usage


class StoppedPartly(JudgeStopped):
    """The replay ended before its last call; the answers until then are in `answers`."""

    answers: tuple[AskedAnswer | None, ...] = ()


def raise_stop(results: Sequence[AskedAnswer | JudgeStopped | None]) -> list[AskedAnswer]:
    """Return the answers; raise StoppedPartly with those that there are if a call could not be made."""
    stopped = next((result for result in results if isinstance(result, JudgeStopped)), None)
    if stopped is not None:
        error = StoppedPartly(*stopped.args)
        error.answers = tuple(result if isinstance(result, AskedAnswer) else None for result in results)
        raise error from stopped
    return [result for result in results if isinstance(result, AskedAnswer)]


def build_text_redactor(kinds: str | None) -> Callable[[str], str]:
    """Build the function that redacts a text of which nothing else is known, such as an answer.

    >>> build_text_redactor("email")("Ask ann@example.org."), build_text_redactor(None)("Ask ann@example.org.")
    ('Ask [email].', 'Ask ann@example.org.')
    """
    chosen = () if kinds is None else parse_redaction_kinds(kinds)

    def redact(text: str) -> str:
        return replace_sensitive(text, detect_sensitive(text, chosen), lambda span: f"[{span.kind}]")

    return redact if chosen else str


def ask_until_stopped(
    asker: Asker, requests: Sequence[AskedRequest], redact: Callable[[str], str]
) -> tuple[list[AskedAnswer | None], str | None]:
    """Answer requests as far as the budget and the endpoint allow, and say why no further one was answered."""
    answers: list[AskedAnswer | None] = []
    stopped = None
    try:
        answers += asker.ask(requests) if requests else []
    except StoppedPartly as error:
        answers += error.answers
        stopped = str(error)
    return [answer and answer._replace(text=answer.text and redact(answer.text)) for answer in answers], stopped


def build_model_call(request: AskedRequest) -> ModelCall:
    """Build the call of a recorded request: its messages and nothing else.

    The result of a tool is sent as a message of the user: an endpoint takes it only after the call that asked for it.
    """
    messages = tuple(
        ModelMessage(role="user" if turn.role == "tool" else turn.role, text=turn.text) for turn in request.messages
    )
    digest = hashlib.sha256(msgspec.json.encode(("answer", messages))).hexdigest()
    return ModelCall(kind="answer", messages=messages, schema={}, content=digest, vote=request.attempt)
