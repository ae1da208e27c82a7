"""Haystack: pipelines whose runs become traces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

try:
    from haystack.tracing.tracer import Span, Tracer
except ImportError:
    from ragfault.errors import MissingExtra

    raise MissingExtra("ragfault.plugins.haystack", "haystack", "pip install haystack-ai") from None

from ragfault.plugins.recording import Delivery, Recorder, To, documents
from ragfault.sources.spans.contents import asked

__all__ = ["TraceTracer"]

KINDS = {"Retriever": "RETRIEVER", "WebSearch": "RETRIEVER", "Joiner": "RERANKER", "Ranker": "RERANKER"}
"""What the class of a component that gives documents is called → what it does."""


class _Step(Span):
    """A run of a pipeline or a component, with what it was given and gave."""

    def __init__(self, key: str, tags: Mapping[str, Any]) -> None:
        self.key, self.tags = key, dict(tags)

    def set_tag(self, key: str, value: Any) -> None:
        """Keep a tag."""
        self.tags[key] = value

    set_content_tag = set_tag  # traces are made of texts, whatever HAYSTACK_CONTENT_TRACING_ENABLED says


_active: ContextVar[_Step | None] = ContextVar("active", default=None)


class TraceTracer(Tracer):
    """A tracer of Haystack that makes a trace of each run of a pipeline, for a background, a function or a file.

    `haystack.tracing.enable_tracing(TraceTracer(background))`; `haystack.tracing.disable_tracing()` ends it. The
    trace holds query, documents, answer, model, tokens, times and errors, of plain and async pipelines.
    """

    def __init__(self, to: To, *, route: str | None = None) -> None:
        self._recorder = Recorder(to, route)
        self.delivery: Delivery = self._recorder.delivery

    @contextlib.contextmanager
    def trace(
        self, operation_name: str, tags: dict[str, Any] | None = None, parent_span: Span | None = None
    ) -> Iterator[Span]:
        """One run of a pipeline or a component."""
        step = _Step(uuid4().hex, tags or {})
        above = parent_span if isinstance(parent_span, _Step) else _active.get()
        name = step.tags.get("haystack.component.name") or operation_name
        self._recorder.begin(step.key, str(name), None if above is None else above.key)
        token, error = _active.set(step), None
        try:
            yield step
        except BaseException as raised:
            error = raised
            raise
        finally:
            with contextlib.suppress(
                ValueError
            ):  # where a pipeline that streams is ended from another context
                _active.reset(token)
            self._end(step, error)

    def current_span(self) -> Span | None:
        """The run that is under way here."""
        return _active.get()

    def _end(self, step: _Step, error: BaseException | None) -> None:
        held: dict[str, Any] = {}
        try:
            held = _told(step.tags)
        except Exception as fault:  # noqa: BLE001 - whatever a component gave, its pipeline goes on
            self.delivery.pass_over(fault)
        self._recorder.end(step.key, held, error)


def _told(tags: dict[str, Any]) -> dict[str, Any]:
    """What a run says of itself, in the words of OpenInference and gen_ai."""
    given, made = tags.get("haystack.component.input") or {}, tags.get("haystack.component.output") or {}
    if "haystack.component.type" not in tags:
        return _whole(
            tags.get("haystack.pipeline.input_data") or {}, tags.get("haystack.pipeline.output_data") or {}
        )
    kind = next((kind for end, kind in KINDS.items() if end in str(tags["haystack.component.type"])), None)
    if kind is not None:
        found = documents(made["documents"]) if "documents" in made else None
        return {
            "openinference.span.kind": kind,
            "input.value": _asked(given),
            "gen_ai.retrieval.documents": found,
        }
    return _replied(given, made) if "replies" in made else {}


def _replied(given: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """What a generator was asked, said and took."""
    prompt = given.get("messages") or given.get("prompt")
    prompts = prompt if isinstance(prompt, list) else [prompt or ""]
    first = next(iter(made["replies"]), "")
    meta = getattr(first, "meta", None) or next(iter(made.get("meta") or ()), None) or {}
    usage = meta.get("usage") or {}
    return {
        "openinference.span.kind": "LLM",
        "gen_ai.input.messages": [_message(one) for one in prompts],
        "gen_ai.output.messages": [_message(first, "assistant")],
        "gen_ai.response.model": meta.get("model"),
        "gen_ai.usage.input_tokens": usage.get("prompt_tokens") or usage.get("input_tokens"),
        "gen_ai.usage.output_tokens": usage.get("completion_tokens") or usage.get("output_tokens"),
    }


def _whole(given: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """What a pipeline was asked, and what it answered where a component builds answers."""
    parts = [part for part in given.values() if isinstance(part, Mapping)]
    query = next((found for part in (*parts, given) if (found := _asked(part))), None)
    answers = [
        one for part in made.values() if isinstance(part, Mapping) for one in part.get("answers") or ()
    ]
    said = next((one.data for one in answers if isinstance(getattr(one, "data", None), str)), None)
    return {"openinference.span.kind": "CHAIN", "input.value": query, "output.value": said}


def _asked(given: Mapping[str, Any]) -> str | None:
    return asked({key: value for key, value in given.items() if isinstance(value, str)})


def _message(one: Any, role: str = "user") -> dict[str, str]:
    return {
        "role": getattr(getattr(one, "role", None), "value", role),
        "content": str(getattr(one, "text", one) or ""),
    }
