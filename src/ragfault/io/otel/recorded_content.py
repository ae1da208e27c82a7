"""Content of spans: questions, answers, prompts, messages, models and tokens that instrumentations record."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec

from ragfault.io.formats.paths import parse_embedded
from ragfault.io.formats.texts import join_text
from ragfault.io.otel.semantic_conventions import (
    COMPLETION_ATTRIBUTES,
    COMPLETION_PREFIXES,
    COMPLETION_TOKEN_ATTRIBUTES,
    FINISH_ATTRIBUTES,
    FINISH_KEYS,
    INPUT_ATTRIBUTES,
    LISTED_EVENTS,
    MODEL_ATTRIBUTES,
    OUTPUT_ATTRIBUTES,
    PARAMETER_OBJECTS,
    PROMPT_ATTRIBUTES,
    PROMPT_PREFIXES,
    PROMPT_TOKEN_ATTRIBUTES,
    QUERY_ATTRIBUTES,
    REQUEST_PARAMETERS,
    USAGE_ATTRIBUTE,
    get_first_attribute,
    parse_count,
)
from ragfault.io.otel.span_tree import SpanStep, read_once
from ragfault.io.otel.spans import OtelSpan, SpanEvent
from ragfault.model.records import TokenCounts

MAX_SEARCH_DEPTH = 12
"""Maximum depth of the search for a question, an answer or the reason of its end."""
QUESTION_KEYS = (
    *("query", "question", "query_str", "user_input", "user_query", "input", "prompt", "text", "q"),
    *("query_bundle", "message", "messages", "content", "inputs", "args", "kwargs", "parts", "data"),
)
ANSWER_KEYS = (
    *("answer", "response", "output", "result", "output_text", "completion", "text", "content"),
    *("message", "messages", "generations", "choices", "outputs", "return_values", "data", "kwargs"),
    *("update", "parts"),
)
"""The keys that are searched, in order."""
JSON_PREFIXES = ("traceloop.entity.", "gen_ai.task.")
"""Prefixes of attributes whose value is always JSON."""
USER_ROLES = ("user", "human", "HumanMessage")
ASSISTANT_ROLES = ("assistant", "ai", "model", "AIMessage", "AIMessageChunk")
PAIR_ROLES = (*USER_ROLES, *ASSISTANT_ROLES, "system", "developer", "tool")
"""Roles of a message that is written as a pair: its role and its text."""


class RecordedMessage(NamedTuple):
    """A message to or from a model."""

    role: str
    text: str


def get_recorded_value(attributes: dict[str, Any], names: Collection[str]) -> Any:
    """Return the first of these attributes that is set, without quotes where its JSON is a mere text.

    >>> get_recorded_value({"traceloop.entity.output": '"In 1040."'}, ["output.value", "traceloop.entity.output"])
    'In 1040.'
    """
    if attributes.keys().isdisjoint(names):
        return None
    for name in names:
        value = attributes.get(name)
        if value or (value is not None and value not in ("", [], {})):
            return unquote_json(value) if name.startswith(JSON_PREFIXES) else value
    return None


def unquote_json(value: Any) -> Any:
    """Parse a text that is a JSON string; return anything else unchanged."""
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        try:
            return msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeError):
            return value
    return value


def collect_numbered(attributes: dict[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Collect objects from attributes named `PREFIX NUMBER . PART`, in the order of their numbers.

    >>> collect_numbered({"doc.1.text": "b", "doc.0.text": "a", "doc.0.score": 0.5}, "doc.")
    [{'text': 'a', 'score': 0.5}, {'text': 'b'}]
    """
    objects: dict[int, dict[str, Any]] = {}
    length = len(prefix)
    for name in [name for name in attributes if name.startswith(prefix)]:
        place, _, part = name[length:].partition(".")
        if place.isdecimal() and len(place) < 10:
            objects.setdefault(int(place), {})[part] = attributes[name]
    return [objects[place] for place in sorted(objects)] if len(objects) > 1 else list(objects.values())


def extract_messages(value: Any, depth: int = 0) -> list[RecordedMessage]:
    """Extract the messages of a value: a list, nested lists, or an object around them.

    >>> extract_messages('[{"role": "user", "parts": [{"type": "text", "content": "When?"}]}]')
    [RecordedMessage(role='user', text='When?')]
    """
    value = parse_embedded(value)
    if depth > MAX_SEARCH_DEPTH:
        return []
    if (message := _extract_message(value)) is not None:
        return [message]
    if isinstance(value, dict):
        inner = next((value[key] for key in ("messages", "generations", "choices") if key in value), None)
        return [] if inner is None else extract_messages(inner, depth + 1)
    if isinstance(value, list):
        return [
            message for item in value if isinstance(item, (dict, list)) for message in extract_messages(item, depth + 1)
        ]
    return []


def _extract_message(value: Any) -> RecordedMessage | None:
    """Read a value as a message of OpenAI, gen_ai, LangChain or OpenInference, or as a pair of role and text."""
    if isinstance(value, list) and len(value) == 2 and value[0] in PAIR_ROLES and isinstance(value[1], str):
        return RecordedMessage(value[0], value[1])
    if not isinstance(value, dict):
        return None
    # the class, in JavaScript
    named = {"type": path[-1]} if isinstance(path := value.get("id"), list) and path else {}
    for wrapper in ("message", "kwargs", "data"):
        inner = value.get(wrapper)
        if isinstance(inner, dict) and (message := _extract_message({**named, **inner})) is not None:
            return message
    who = value.get("role") or value.get("message.role") or value.get("type")
    body = next((value[key] for key in ("content", "parts", "message.content") if value.get(key)), None)
    if not isinstance(who, str) or body is None:
        return None
    text = _extract_text(body)
    return RecordedMessage(who, text) if text else None


def _extract_text(body: Any, depth: int = 0) -> str:
    """Join the texts of a content."""
    if isinstance(body, str):
        return body
    if isinstance(body, list) and depth < MAX_SEARCH_DEPTH:
        return "\n".join(text for item in body if (text := _extract_text(item, depth + 1)))
    if isinstance(body, dict) and body.get("type", "text") in ("text", "input_text", "output_text"):
        inner = next((body[key] for key in ("text", "content") if isinstance(body.get(key), str)), "")
        return str(inner)
    return ""


def get_last_text(messages: Sequence[RecordedMessage], roles: tuple[str, ...]) -> str | None:
    """Return the last text of one of these roles."""
    return next((message.text for message in reversed(messages) if message.role in roles), None)


def extract_question(value: Any) -> str | None:
    """Extract the question of an input: a text, the last user message, or the value of a usual key.

    >>> extract_question("When?"), extract_question('{"query_bundle": {"query_str": "When?", "embedding": null}}')
    ('When?', 'When?')
    >>> extract_question('{"args": [3], "kwargs": {}}') is None
    True
    """
    return _search_text(value, QUESTION_KEYS, USER_ROLES)


def extract_answer(value: Any) -> str | None:
    """Extract the answer of an output: a text, the last assistant message, or the value of a usual key.

    >>> extract_answer('{"context": ["Oslo, 1040"], "answer": "In 1040."}'), extract_answer("In 1040.")
    ('In 1040.', 'In 1040.')
    """
    return _search_text(value, ANSWER_KEYS, ASSISTANT_ROLES)


def _search_text(value: Any, keys: tuple[str, ...], roles: tuple[str, ...], depth: int = 0) -> str | None:
    value = parse_embedded(value)
    if isinstance(value, str):
        return value if value.strip() else None
    if depth > MAX_SEARCH_DEPTH:
        return None
    if isinstance(value, list):
        if last_text := get_last_text(extract_messages(value), roles):
            return last_text
        parts = [] if _extract_message(value) else [item for item in value if _extract_message(item) is None]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) > 1 and len(texts) == len(parts):
            return join_text(texts) if roles == ASSISTANT_ROLES else max(texts, key=lambda text: " " in text.strip())
        return next((text for part in parts if (text := _search_text(part, keys, roles, depth + 1))), None)
    if not isinstance(value, dict):
        return None
    if (message := _extract_message(value)) is not None and "role" in value:
        return message.text
    for key in keys:
        if value.get(key) and (text := _search_text(value[key], keys, roles, depth + 1)):
            return text
    only = next(iter(value.values())) if len(value) == 1 and "name" not in value else None
    return _search_text(only, keys, roles, depth + 1) if isinstance(only, (str, dict)) else None


UNKNOWN_MODEL = "unknown"
"""Placeholder of some instrumentations for a missing model name."""


@read_once
def get_query(step: SpanStep) -> str | None:
    """Return the question that a step was asked, if recorded."""
    return next(filter(None, (_get_span_query(item, step.role) for item in step.records)), None)


def _get_span_query(span: OtelSpan, role: str) -> str | None:
    attributes = span.attributes
    if role in ("retriever", "reranker") and isinstance(
        query := get_first_attribute(attributes, QUERY_ATTRIBUTES), str
    ):
        return query
    if role == "llm":
        return get_last_text(_get_prompt_messages(span), USER_ROLES) or extract_question(
            get_recorded_value(attributes, INPUT_ATTRIBUTES)
        )
    return extract_question(get_recorded_value(attributes, INPUT_ATTRIBUTES)) or get_last_text(
        _get_prompt_messages(span), USER_ROLES
    )


@read_once
def get_output(step: SpanStep) -> str | None:
    """Return the text that a step produced, if recorded."""
    return next(filter(None, (_get_span_output(item, step.role) for item in step.records)), None)


def _get_span_output(span: OtelSpan, role: str) -> str | None:
    output = extract_answer(get_recorded_value(span.attributes, OUTPUT_ATTRIBUTES))
    if output and role != "llm":
        return output
    events = {"gen_ai.choice": "assistant"}
    completed = _get_messages(span, COMPLETION_ATTRIBUTES, COMPLETION_PREFIXES, events, "assistant")
    spoken = get_last_text(completed, ASSISTANT_ROLES) or (completed[-1].text if completed else None)
    return spoken or output


@read_once
def get_prompt(step: SpanStep) -> str:
    """Return the full prompt of a model call; empty where it was not recorded."""
    for item in step.records:
        if messages := _get_prompt_messages(item):
            return "\n".join(message.text for message in messages)
        raw = parse_embedded(get_recorded_value(item.attributes, INPUT_ATTRIBUTES))
        if raw is not None:
            listed = extract_messages(raw) if isinstance(raw, list) else ()
            return "\n".join(message.text for message in listed) or _join_json_texts(raw)
    return ""


def _join_json_texts(raw: Any) -> str:
    """Join all texts within a value, in their order."""
    texts: list[str] = []
    left = [raw]
    while left:
        value = left.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, (list, dict)):
            left += reversed(value.values() if isinstance(value, dict) else value)
    return "\n".join(texts)


def get_request(step: SpanStep) -> list[RecordedMessage]:
    """Return the messages that a model was given, in their order; a plain prompt is one of the user."""
    for item in step.records:
        if messages := _get_prompt_messages(item):
            return messages
        raw = parse_embedded(get_recorded_value(item.attributes, INPUT_ATTRIBUTES))
        if messages := extract_messages(raw):
            return messages
        if isinstance(raw, str) and raw.strip():
            return [RecordedMessage("user", raw)]
        prompts = raw.get("prompts") if isinstance(raw, dict) else None
        if isinstance(prompts, list) and len(prompts) == 1 and isinstance(prompts[0], str):
            return [RecordedMessage("user", prompts[0])]
    return []


def get_request_parameters(step: SpanStep) -> dict[str, Any]:
    """Return the settings of the request that were recorded: temperature, top_p, the longest reply, the seed.

    Names are those of OpenAI's requests; a value that is not a number is left out.
    """
    for item in step.records:
        listed = parse_embedded(get_first_attribute(item.attributes, PARAMETER_OBJECTS))
        settings = dict(listed) if isinstance(listed, dict) else {}
        settings |= {
            name: item.attributes[f"gen_ai.request.{name}"]
            for name in REQUEST_PARAMETERS
            if f"gen_ai.request.{name}" in item.attributes
        }
        numbers = {REQUEST_PARAMETERS[name]: value for name, value in settings.items() if name in REQUEST_PARAMETERS}
        numbers = {name: value for name, value in numbers.items() if isinstance(value, int | float)}
        if numbers:
            return numbers
    return {}


def get_replies(step: SpanStep) -> set[str]:
    """Return the texts of the assistant in what a step was given: the answers of earlier turns."""
    messages = [message for item in step.records for message in _get_prompt_messages(item)]
    return {message.text for message in messages if message.role in ASSISTANT_ROLES}


def _list_events(span: OtelSpan) -> Sequence[SpanEvent]:
    """List the events of a span, also those that are recorded as one attribute."""
    listed = parse_embedded(get_first_attribute(span.attributes, LISTED_EVENTS))
    if not isinstance(listed, list):
        return span.events
    known = [item for item in listed if isinstance(item, dict) and isinstance(item.get("event.name"), str)]
    return [*span.events, *(SpanEvent(name=item["event.name"], attributes=item) for item in known)]


PROMPT_EVENTS = {
    "gen_ai.user.message": "user",
    "gen_ai.system.message": "system",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
"""Events that hold one message of a prompt each."""


def _get_prompt_messages(span: OtelSpan) -> list[RecordedMessage]:
    return _get_messages(span, PROMPT_ATTRIBUTES, PROMPT_PREFIXES, PROMPT_EVENTS, "user")


def _get_messages(
    span: OtelSpan, names: tuple[str, ...], prefixes: tuple[str, ...], message_events: dict[str, str], role: str
) -> list[RecordedMessage]:
    """Return messages from attributes, else from events: of one message each, or with the attributes of all."""
    if messages := _collect_messages(span.attributes, names, prefixes, role):
        return messages
    for event in _list_events(span):
        if event.name in message_events:
            if text := _get_event_text(event):
                messages.append(RecordedMessage(message_events[event.name], text))
        elif event.name.startswith("gen_ai."):
            messages += _collect_messages(event.attributes, names, (), role)
    return messages


def _collect_messages(
    attributes: dict[str, Any], names: tuple[str, ...], prefixes: tuple[str, ...], role: str
) -> list[RecordedMessage]:
    """Collect messages from one value, from a plain text, or from numbered attributes."""
    value = get_first_attribute(attributes, names)
    if value is not None:
        messages = extract_messages(value)
        if not messages and isinstance(value, str) and isinstance(parse_embedded(value), str):
            messages = [RecordedMessage(role, value)]
        if messages:
            return messages
    names_joined = "\n".join(attributes)
    for prefix in prefixes:
        numbered = collect_numbered(attributes, prefix) if prefix in names_joined else ()
        if messages := [message for item in numbered if (message := _parse_numbered_message(item, role))]:
            return messages
    return []


def _parse_numbered_message(part: dict[str, Any], role: str) -> RecordedMessage | None:
    who = get_first_attribute(part, ("message.role", "role"))
    text = get_first_attribute(part, ("message.content", "content", "prompt.text", "completion.text"))
    if text is None:
        contents = collect_numbered(part, "message.contents.")
        text = "\n".join(str(content) for block in contents if (content := block.get("message_content.text")))
    elif isinstance(text, str) and isinstance(blocks := parse_embedded(text), list):
        text = "\n".join(message.text for message in extract_messages([{"role": "user", "content": blocks}])) or text
    return RecordedMessage(str(who or role), text) if isinstance(text, str) and text else None


def _get_event_text(event: SpanEvent) -> str | None:
    """Return the text of an event that is one message."""
    attributes = event.attributes
    values = (attributes.get(name) for name in ("content", "message", "body", "gen_ai.event.content"))
    return next(filter(None, (extract_answer(value) for value in values if value)), None)


def get_model(step: SpanStep) -> str | None:
    """Return the model that a step called, if recorded."""
    for item in step.records:
        model = get_first_attribute(item.attributes, MODEL_ATTRIBUTES)
        if model is not None and model != UNKNOWN_MODEL:
            return str(model)
    return None


@read_once
def get_finish_reason(step: SpanStep) -> str | None:
    """Return why a call of a model stopped, as an attribute or the recorded reply says; None where neither does.

    >>> reply = {"choices": [{"finish_reason": "length", "message": {"content": "At"}}]}
    >>> get_finish_reason(SpanStep(OtelSpan(trace="a", id="b", attributes={"output.value": reply}), "llm"))
    'length'
    """
    for span in step.records:
        reason = get_first_attribute(span.attributes, FINISH_ATTRIBUTES)
        if reason := reason[-1] if isinstance(reason, list) and reason else reason:
            return str(reason)
        names = (*COMPLETION_ATTRIBUTES, *OUTPUT_ATTRIBUTES)
        replies = [span.attributes[name] for name in names if name in span.attributes]
        replies += [event.attributes for event in span.events if event.name == "gen_ai.choice"]
        if reason := next(filter(None, map(_find_finish_reason, replies)), None):
            return reason
    return None


def _find_finish_reason(value: Any, depth: int = 0) -> str | None:
    """Find the reason in a reply, which nests it in choices, generations or the metadata of a message."""
    value = parse_embedded(value)
    if depth > MAX_SEARCH_DEPTH:
        return None
    if isinstance(value, dict):
        given = next((value[key] for key in FINISH_KEYS if isinstance(value.get(key), str)), None)
        return given or next(filter(None, (_find_finish_reason(item, depth + 1) for item in value.values())), None)
    inner = value if isinstance(value, list) else ()
    return next(filter(None, (_find_finish_reason(item, depth + 1) for item in inner)), None)


@read_once
def get_tokens(step: SpanStep) -> TokenCounts:
    """Return the token counts of a step, else those of its duplicates."""
    attributes = step.span.attributes
    prompt = parse_count(get_first_attribute(attributes, PROMPT_TOKEN_ATTRIBUTES))
    completion = parse_count(get_first_attribute(attributes, COMPLETION_TOKEN_ATTRIBUTES))
    if (
        prompt is None
        and completion is None
        and isinstance(usage := parse_embedded(attributes.get(USAGE_ATTRIBUTE)), dict)
    ):
        prompt = _sum_usage(usage, ("input", "prompt"))
        completion = _sum_usage(usage, ("output", "completion"))
    if prompt is None and completion is None:
        return sum_tokens([get_tokens(inner) for inner in step.duplicates])
    return TokenCounts(prompt=prompt, completion=completion)


def _sum_usage(usage: dict[str, Any], kinds: tuple[str, str]) -> int | None:
    """Sum the counts of the input or the output: Langfuse counts what was cached or reasoned apart from the rest.

    Where it is counted under both names, the first one counts.
    """
    for kind in kinds:
        counts = [parse_count(usage[name]) for name in usage if kind in name.lower() and "cost" not in name.lower()]
        if known := [count for count in counts if count is not None]:
            return sum(known)
    return None


def sum_tokens(counts: list[TokenCounts]) -> TokenCounts:
    """Sum the known counts; None if no count is known."""
    prompts = [count.prompt for count in counts if count.prompt is not None]
    completions = [count.completion for count in counts if count.completion is not None]
    return TokenCounts(prompt=sum(prompts) if prompts else None, completion=sum(completions) if completions else None)
