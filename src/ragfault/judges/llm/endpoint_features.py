"""What an endpoint takes of a request: found out from what it refuses."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ragfault.judges.llm.calls import Call, Message
from ragfault.judges.llm.settings import Settings

__all__ = ["Features", "body", "lowered", "supposed"]

NEXT: dict[str, Literal["object", "none"]] = {"schema": "object", "object": "none"}
OTHER: dict[str, Literal["max_tokens", "max_completion_tokens"]] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
SHAPES = ("response_format", "json_schema", "json_object", "structured output", "grammar", "guided")
REFUSALS = (
    "support",
    "unknown",
    "unrecognized",
    "unexpected",
    "extra",
    "not permitted",
    "not allowed",
    "instead",
)


class Features(NamedTuple):
    """What requests are made of."""

    shape: Literal["schema", "object", "none"] = "schema"
    """What holds the reply to its schema."""
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name of the longest reply."""
    swapped: bool = False
    """Whether the other name was refused."""
    temperature: bool = True
    """Whether a temperature is taken."""


def supposed(settings: Settings) -> Features:
    """What is tried first."""
    new = settings.provider in ("openai", "azure") and settings.base_url is None
    return Features(
        shape="schema" if settings.structured == "auto" else settings.structured,
        limit="max_completion_tokens" if new else "max_tokens",
    )


def lowered(sent: Features, status: int, said: str, parameter: str, settings: Settings) -> Features | None:
    """What is left to try after a refusal that speaks of what was sent; None where it speaks of something else.

    >>> lowered(Features(), 400, "response_format is not supported", "", Settings(model="m")).shape
    'object'
    >>> lowered(Features(), 400, "maximum context length is 8192 tokens", "", Settings(model="m"))
    """
    said = f"{parameter} {said}".lower()
    if settings.structured == "auto" and sent.shape in NEXT and any(word in said for word in SHAPES):
        return sent._replace(shape=NEXT[sent.shape])
    if status not in (400, 422) or not (parameter or any(word in said for word in REFUSALS)):
        return None
    if sent.limit in said and not sent.swapped and any(word in said for word in REFUSALS):
        return sent._replace(limit=OTHER[sent.limit], swapped=True)
    if sent.temperature and settings.temperature is not None and "temperature" in said:
        return sent._replace(temperature=False)
    return None


def body(call: Call, features: Features, settings: Settings) -> dict[str, Any]:
    """The request of a call."""
    made: dict[str, Any] = {
        "model": settings.model,
        "messages": [_turn(message) for message in call.messages],
        features.limit: settings.max_tokens,
        **settings.parameters,
    }
    if features.temperature and settings.temperature is not None:
        made["temperature"] = settings.temperature
    if features.shape == "schema":
        schema = {"name": call.kind, "strict": True, "schema": call.schema}
        made["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif features.shape == "object":
        made["response_format"] = {"type": "json_object"}
    return made


def _turn(message: Message) -> dict[str, Any]:
    if not message.images:
        return {"role": message.role, "content": message.text}
    parts: list[dict[str, Any]] = [{"type": "text", "text": message.text}]
    parts += [{"type": "image_url", "image_url": {"url": address}} for address in message.images]
    return {"role": message.role, "content": parts}
