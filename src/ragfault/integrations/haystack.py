"""Haystack integration: runs of a pipeline become traces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

from ragfault.model.errors import require_extra

with require_extra("ragfault.integrations.haystack", "haystack", "pip install haystack-ai"):
    from haystack.tracing.tracer import Span, Tracer

from ragfault.integrations.recorder import TraceDelivery, TraceRecorder, TraceSink, to_documents
from ragfault.io.otel.recorded_content import extract_question

COMPONENT_KINDS = {"Retriever": "RETRIEVER", "WebSearch": "RETRIEVER", "Joiner": "RERANKER", "Ranker": "RERANKER"}
"""Part of the class name of a component that returns documents → its kind of span."""


class _HaystackSpan(Span):
    """A run of a pipeline or a component, with its inputs and outputs as tags."""

    def __init__(self, key: str, tags: Mapping[str, Any]) -> None:
        self.key, self.tags = key, dict(tags)

    def set_tag(self, key: str, value: Any) -> None:
        """Set a tag."""
        self.tags[key] = value

    # traces need the texts, independent of HAYSTACK_CONTENT_TRACING_ENABLED
    set_content_tag = set_tag


_active_span: ContextVar[_HaystackSpan | None] = ContextVar("active", default=None)


class HaystackTracer(Tracer):
    """A tracer of Haystack that makes a trace of each run of a pipeline, for a background scorer, a function or a file.

    `haystack.tracing.enable_tracing(HaystackTracer(background))`; `haystack.tracing.disable_tracing()` ends
    it. The trace has query, documents, answer, model, tokens, times and errors, of plain and async pipelines.
    """

    def __init__(self, sink: TraceSink, *, route: str | None = None) -> None:
        self._recorder = TraceRecorder(sink, route)
        self.delivery: TraceDelivery = self._recorder.delivery

    @contextlib.contextmanager
    def trace(
        self, operation_name: str, tags: dict[str, Any] | None = None, parent_span: Span | None = None
    ) -> Iterator[Span]:
        """Record one run of a pipeline or a component."""
        span = _HaystackSpan(uuid4().hex, tags or {})
        parent = parent_span if isinstance(parent_span, _HaystackSpan) else _active_span.get()
        name = span.tags.get("haystack.component.name") or operation_name
        self._recorder.begin(span.key, str(name), None if parent is None else parent.key)
        token, error = _active_span.set(span), None
        try:
            yield span
        except BaseException as raised:
            error = raised
            raise
        finally:
            # where a pipeline that streams is ended from another context
            with contextlib.suppress(ValueError):
                _active_span.reset(token)
            self._end_span(span, error)

    def current_span(self) -> Span | None:
        """Return the current run."""
        return _active_span.get()

    def _end_span(self, span: _HaystackSpan, error: BaseException | None) -> None:
        attributes: dict[str, Any] = {}
        try:
            attributes = _describe_component(span.tags)
        except Exception as failure:  # noqa: BLE001 - recording never breaks the pipeline
            self.delivery.reject(failure)
        self._recorder.end(span.key, attributes, error)


def _describe_component(tags: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a run, in the terms of OpenInference and gen_ai."""
    inputs, outputs = tags.get("haystack.component.input") or {}, tags.get("haystack.component.output") or {}
    if "haystack.component.type" not in tags:
        return _describe_pipeline(
            tags.get("haystack.pipeline.input_data") or {}, tags.get("haystack.pipeline.output_data") or {}
        )
    kind = next((kind for name, kind in COMPONENT_KINDS.items() if name in str(tags["haystack.component.type"])), None)
    if kind is not None:
        documents = to_documents(outputs["documents"]) if "documents" in outputs else None
        return {
            "openinference.span.kind": kind,
            "input.value": _extract_query(inputs),
            "gen_ai.retrieval.documents": documents,
        }
    return _describe_generation(inputs, outputs) if "replies" in outputs else {}


def _describe_generation(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a generator: messages, model and tokens."""
    prompt = inputs.get("messages") or inputs.get("prompt")
    prompts = prompt if isinstance(prompt, list) else [prompt or ""]
    reply = next(iter(outputs["replies"]), "")
    meta = getattr(reply, "meta", None) or next(iter(outputs.get("meta") or ()), None) or {}
    usage = meta.get("usage") or {}
    return {
        "openinference.span.kind": "LLM",
        "gen_ai.input.messages": [_to_message(message) for message in prompts],
        "gen_ai.output.messages": [_to_message(reply, "assistant")],
        "gen_ai.response.model": meta.get("model"),
        "gen_ai.usage.input_tokens": usage.get("prompt_tokens") or usage.get("input_tokens"),
        "gen_ai.usage.output_tokens": usage.get("completion_tokens") or usage.get("output_tokens"),
    }


def _describe_pipeline(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the query of a pipeline, and its answer if a component builds answers."""
    parts = [part for part in inputs.values() if isinstance(part, Mapping)]
    query = next((text for part in (*parts, inputs) if (text := _extract_query(part))), None)
    answers = [answer for part in outputs.values() if isinstance(part, Mapping) for answer in part.get("answers") or ()]
    text = next((answer.data for answer in answers if isinstance(getattr(answer, "data", None), str)), None)
    return {"openinference.span.kind": "CHAIN", "input.value": query, "output.value": text}


def _extract_query(inputs: Mapping[str, Any]) -> str | None:
    return extract_question({key: value for key, value in inputs.items() if isinstance(value, str)})


def _to_message(message: Any, role: str = "user") -> dict[str, str]:
    return {
        "role": getattr(getattr(message, "role", None), "value", role),
        "content": str(getattr(message, "text", message) or ""),
    }
