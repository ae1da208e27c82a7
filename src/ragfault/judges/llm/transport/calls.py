"""Records of a model call, and the protocol of a caller."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from ragfault.errors import JudgeError
from ragfault.records import Usage

CallKind = Literal["retrieval", "generation", "questions", "relevance", "writing"]
"""Purpose of a call: verdicts on the retrieval, verdicts on the answer, questions that an answer answers,
relevance of passages, or text.
"""


class ModelMessage(Struct, frozen=True):
    """Turn of a conversation with a model."""

    role: Literal["system", "user", "assistant"]
    text: str
    images: tuple[str, ...] = ()
    """URLs of its images: `data:` or `https:`."""


class ModelCall(Struct, frozen=True, kw_only=True):
    """Request to a model."""

    kind: CallKind
    messages: tuple[ModelMessage, ...]
    schema: dict[str, Any]
    """Strict JSON schema of the reply: every field is required, none may be added."""
    content: str
    """Hash of everything that affects the reply except model and parameters."""
    vote: int = 0
    """Number of this call among equal ones, from 0."""


class ModelReply(NamedTuple):
    """Reply of a model."""

    text: str
    usage: Usage
    cached: bool
    """The reply was paid for earlier."""
    truncated: bool = False
    """The reply ended at the token limit."""


class CallFailed(JudgeError):
    """Error of a call without a reply after all attempts; its message holds no key."""


class ModelCaller(Protocol):
    """Source of replies: a cache, or an endpoint within a budget."""

    async def ask(self, call: ModelCall) -> ModelReply:
        """Return the reply to a call, paid for once.

        Raises CallFailed where this call cannot be answered, JudgeStopped where none can, BudgetExceeded
        where its cost exceeds the budget.
        """
        ...


class CountingCaller:
    """Caller that sums up the usage of the replies of another caller."""

    def __init__(self, caller: ModelCaller) -> None:
        self._caller = caller
        self.usage = Usage()

    async def ask(self, call: ModelCall) -> ModelReply:
        reply = await self._caller.ask(call)
        total, usage = self.usage, reply.usage
        self.usage = Usage(
            calls=total.calls + usage.calls,
            cached=total.cached + usage.cached,
            prompt=total.prompt + usage.prompt,
            completion=total.completion + usage.completion,
            cost=None if total.cost is None or usage.cost is None else total.cost + usage.cost,
        )
        return reply
