"""What an operation says: the question it was asked, the prompt it saw, the text it made, its tokens and model."""

from __future__ import annotations

from typing import Any

from ragfault.records import Tokens
from ragfault.sources.spans.contents import (
    MODEL as SPEAKER,
)
from ragfault.sources.spans.contents import (
    USER,
    Message,
    answered,
    asked,
    messages,
    numbered,
    opened,
    said,
    told,
)
from ragfault.sources.spans.operation import Event, Operation
from ragfault.sources.spans.outline import Step
from ragfault.sources.spans.vocabulary import (
    COMPLETED,
    COMPLETION_TOKENS,
    COMPLETIONS,
    INPUT,
    MODEL,
    OUTPUT,
    PROMPT_TOKENS,
    PROMPTED,
    PROMPTS,
    QUERY,
    USAGE,
    first,
    number,
)

__all__ = ["model_of", "output_of", "prompt_of", "query_of", "tokens_of"]

SPOKEN = {
    "gen_ai.user.message": "user",
    "gen_ai.system.message": "system",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
"""Events that hold one message of a prompt each."""

UNKNOWN = "unknown"
"""What some instrumentations write where they find no name of a model."""


def query_of(step: Step) -> str | None:
    """The question that a step was asked, if it says so."""
    for part in step.parts:
        if found := _query(part, step.role):
            return found
    return None


def _query(one: Operation, role: str) -> str | None:
    held = one.attributes
    if role in ("retriever", "reranker") and isinstance(found := first(held, QUERY), str):
        return found
    if role == "llm":
        return said(_prompted(one), USER) or asked(told(held, INPUT))
    return asked(told(held, INPUT)) or said(_prompted(one), USER)


def output_of(step: Step) -> str | None:
    """The text that a step made, if it says so."""
    for part in step.parts:
        if found := _output(part, step.role):
            return found
    return None


def _output(one: Operation, role: str) -> str | None:
    made = answered(told(one.attributes, OUTPUT))
    if made and role != "llm":
        return made
    completed = _completed(one)
    spoken = said(completed, SPEAKER) or (completed[-1].text if completed else None)
    return spoken or made


def prompt_of(step: Step) -> str:
    """All that a model was given to read; empty where it was not recorded."""
    for part in step.parts:
        if found := _prompted(part):
            return "\n".join(message.text for message in found)
        if isinstance(raw := told(part.attributes, INPUT), str):
            return _spelled(raw)
    return ""


def _spelled(raw: str) -> str:
    """The texts within a text of JSON, one after the other."""
    found: list[str] = []
    left = [opened(raw)]
    while left:
        value = left.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, (list, dict)):
            left += value.values() if isinstance(value, dict) else value
    return "\n".join(found)


# --- messages, in attributes and in events ---------------------------------------------------------


def _prompted(one: Operation) -> list[Message]:
    found = _messages(one.attributes, PROMPTS, PROMPTED, "user")
    if found or not one.events:
        return found
    for event in one.events:
        if event.name in SPOKEN:
            if text := _spoken(event):
                found.append(Message(SPOKEN[event.name], text))
        elif event.name.startswith("gen_ai."):
            found += _messages(event.attributes, PROMPTS, (), "user")
    return found


def _completed(one: Operation) -> list[Message]:
    found = _messages(one.attributes, COMPLETIONS, COMPLETED, "assistant")
    if found or not one.events:
        return found
    for event in one.events:
        if event.name == "gen_ai.choice":
            if text := _spoken(event):
                found.append(Message("assistant", text))
        elif event.name.startswith("gen_ai."):
            found += _messages(event.attributes, COMPLETIONS, (), "assistant")
    return found


def _messages(
    held: dict[str, Any], whole: tuple[str, ...], spread: tuple[str, ...], role: str
) -> list[Message]:
    """Messages as one value, as a plain text, or one attribute for each part of each."""
    value = first(held, whole)
    if value is not None:
        found = messages(value)
        if not found and isinstance(value, str) and isinstance(opened(value), str):
            found = [Message(role, value)]
        if found:
            return found
    for prefix in spread:
        if found := [message for part in numbered(held, prefix) if (message := _numbered(part, role))]:
            return found
    return []


def _numbered(part: dict[str, Any], role: str) -> Message | None:
    who = first(part, ("message.role", "role"))
    text = first(part, ("message.content", "content", "prompt.text", "completion.text"))
    if text is None:
        contents = numbered(part, "message.contents.")
        text = "\n".join(str(found) for one in contents if (found := one.get("message_content.text")))
    elif isinstance(text, str) and isinstance(blocks := opened(text), list):
        text = "\n".join(message.text for message in messages([{"role": "user", "content": blocks}])) or text
    return Message(str(who or role), text) if isinstance(text, str) and text else None


def _spoken(event: Event) -> str | None:
    """The words of an event that is one message."""
    held = event.attributes
    for value in (
        held.get("content"),
        held.get("message"),
        held.get("body"),
        held.get("gen_ai.event.content"),
    ):
        if value and (text := answered(value)):
            return text
    return None


# --- figures ---------------------------------------------------------------------------------------


def model_of(step: Step) -> str | None:
    """The model that a step asked, if it says so."""
    for part in step.parts:
        found = first(part.attributes, MODEL)
        if found is not None and found != UNKNOWN:
            return str(found)
    return None


def tokens_of(step: Step) -> Tokens:
    """The tokens that a step took: its own count, else that of the same work recorded again."""
    held = step.operation.attributes
    prompt, completion = number(first(held, PROMPT_TOKENS)), number(first(held, COMPLETION_TOKENS))
    if prompt is None and completion is None and isinstance(usage := opened(held.get(USAGE)), dict):
        prompt = number(first(usage, ("input", "prompt_tokens", "input_tokens")))
        completion = number(first(usage, ("output", "completion_tokens", "output_tokens")))
    if prompt is None and completion is None:
        return total([tokens_of(inner) for inner in step.inner])
    return Tokens(prompt=prompt, completion=completion)


def total(found: list[Tokens]) -> Tokens:
    """The sum of what is known; unknown where nothing is."""
    prompts = [one.prompt for one in found if one.prompt is not None]
    completions = [one.completion for one in found if one.completion is not None]
    return Tokens(
        prompt=sum(prompts) if prompts else None, completion=sum(completions) if completions else None
    )
