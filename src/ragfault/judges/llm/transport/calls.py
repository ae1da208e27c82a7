"""Records of a model call: messages, reply, and the protocol of a caller."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from ragfault.errors import JudgeError
from ragfault.records import Usage

CallKind = Literal["retrieval", "generation", "questions", "relevance", "writing"]
"""What a call asks for: the verdicts on what was retrieved, those on what was generated, the questions that an
answer answers, the relevance of passages in quick, or lines that it writes on a text."""


class ModelMessage(Struct, frozen=True):
    """One turn of what is said to a model."""

    role: Literal["system", "user", "assistant"]
    text: str
    images: tuple[str, ...] = ()
    """Addresses of images that go with it: `data:` or `https:`."""


class ModelCall(Struct, frozen=True, kw_only=True):
    """One question to a model."""

    kind: CallKind
    messages: tuple[ModelMessage, ...]
    schema: dict[str, Any]
    """The JSON schema of the reply; strict: every field is required, none may be added."""
    content: str
    """Names what is asked about, all that bears on the reply but model and parameters: a hash of prompt, query,
    chunks, answer … (the mark that fences the texts follows from them)."""
    vote: int = 0
    """Which of several equal calls this is, from 0."""


class ModelReply(NamedTuple):
    """What a model said."""

    text: str
    usage: Usage
    cached: bool
    """Whether it was paid for earlier."""
    truncated: bool = False
    """Whether it broke off at the limit of tokens."""


class CallFailed(JudgeError):
    """A call got no reply in spite of all tries; says why, without any key."""


class ModelCaller(Protocol):
    """Whoever gets replies: from the cache, or from an endpoint within a budget."""

    async def ask(self, call: ModelCall) -> ModelReply:
        """The reply to a call, paid for once.

        Raises CallFailed where this call cannot be answered, Stopped where none can, BudgetSpent where its cost
        cannot be borne.
        """
        ...


class CountingCaller:
    """A caller that counts what the replies came to that it gets from another."""

    def __init__(self, caller: ModelCaller) -> None:
        self._caller = caller
        self.usage = Usage()

    async def ask(self, call: ModelCall) -> ModelReply:
        """The reply of the other."""
        reply = await self._caller.ask(call)
        before, more = self.usage, reply.usage
        self.usage = Usage(
            calls=before.calls + more.calls,
            cached=before.cached + more.cached,
            prompt=before.prompt + more.prompt,
            completion=before.completion + more.completion,
            cost=None if before.cost is None or more.cost is None else before.cost + more.cost,
        )
        return reply
