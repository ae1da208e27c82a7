"""DSPy integration: calls of a program become traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragfault.model.errors import require_extra

with require_extra("ragfault.integrations.dspy", "dspy", "pip install dspy"):
    import dspy
    from dspy.utils.callback import ACTIVE_CALL_ID, BaseCallback

from ragfault.integrations.recorder import TraceDelivery, TraceRecorder, TraceSink, to_documents
from ragfault.io.otel.recorded_content import extract_question

CONTEXT_FIELDS = ("context", "contexts", "passages", "documents", "chunks")
"""Inputs of a predictor, and outputs of a retriever, that are passages."""
ANSWER_FIELDS = ("answer", "response", "output", "result")
REASONING_FIELDS = ("reasoning", "rationale")


class DSPyTraceCallback(BaseCallback):  # type: ignore[misc]
    """A callback of DSPy that makes a trace of each outermost call, for a background scorer, a function or a file.

    `dspy.configure(callbacks=[DSPyTraceCallback(background)])`. Chunks are the passages in the input
    `context` (or `passages`, `documents`) of a predictor, else the result of a retriever within the program.
    """

    def __init__(self, sink: TraceSink, *, route: str | None = None) -> None:
        self._recorder = TraceRecorder(sink, route)
        self.delivery: TraceDelivery = self._recorder.delivery

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Begin the span of a module."""
        arguments = _merge_arguments(inputs)
        attributes = {"openinference.span.kind": "CHAIN", "input.value": extract_question(_select_texts(arguments))}
        self._recorder.begin(call_id, type(instance).__name__, ACTIVE_CALL_ID.get(), attributes)
        passages = next((arguments[name] for name in CONTEXT_FIELDS if isinstance(arguments.get(name), list)), None)
        if (
            passages is not None
            and isinstance(instance, dspy.Predict)
            and (documents := to_documents(passages)) is not None
        ):
            retrieval = {"openinference.span.kind": "RETRIEVER", "gen_ai.retrieval.documents": documents}
            self._recorder.begin(f"{call_id} context", "context", call_id, retrieval)
            self._recorder.end(f"{call_id} context")

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """End the span of a module."""
        fields = dict(outputs.items()) if isinstance(outputs, dspy.Prediction) else {}
        passages = next((fields[name] for name in CONTEXT_FIELDS if isinstance(fields.get(name), list)), None)
        if passages is not None and not any(name in fields for name in ANSWER_FIELDS):
            attributes = {"openinference.span.kind": "RETRIEVER", "gen_ai.retrieval.documents": to_documents(passages)}
            self._recorder.end(call_id, attributes, exception)
            return
        texts = {name: text for name, text in _select_texts(fields).items() if name not in REASONING_FIELDS}
        answer = next((texts[name] for name in ANSWER_FIELDS if name in texts), None) or next(
            reversed(texts.values()), None
        )
        self._recorder.end(call_id, {"output.value": answer}, exception)

    def on_tool_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Begin the span of a tool."""
        attributes = {
            "openinference.span.kind": "TOOL",
            "input.value": extract_question(_select_texts(_merge_arguments(inputs))),
        }
        self._recorder.begin(call_id, str(getattr(instance, "name", "tool")), ACTIVE_CALL_ID.get(), attributes)

    def on_tool_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """End the span of a tool."""
        text = outputs if isinstance(outputs, str) else None
        self._recorder.end(call_id, {"output.value": text}, exception)

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Begin the span of a model call."""
        arguments = _merge_arguments(inputs)
        messages = arguments.get("messages") or [{"role": "user", "content": arguments.get("prompt") or ""}]
        model = getattr(instance, "model", None)
        attributes = {
            "openinference.span.kind": "LLM",
            "gen_ai.input.messages": messages,
            "gen_ai.request.model": model,
        }
        self._recorder.begin(call_id, type(instance).__name__, ACTIVE_CALL_ID.get(), attributes)

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """End the span of a model call."""
        usage = getattr(outputs, "usage", None)
        attributes: dict[str, Any] = {
            "gen_ai.output.messages": [{"role": "assistant", "content": _get_completion(outputs)}]
        }
        for name, key in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")):
            value = usage.get(name) if isinstance(usage, dict) else getattr(usage, name, None)
            attributes |= {f"gen_ai.usage.{key}": value} if isinstance(value, int) else {}
        self._recorder.end(call_id, attributes, exception)


def _merge_arguments(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their names."""
    keywords = {name: value for name, value in inputs.items() if name not in ("args", "kwargs")}
    positional = {f"argument {position}": value for position, value in enumerate(inputs.get("args") or ())}
    return {**keywords, **(inputs.get("kwargs") or {}), **positional}


def _select_texts(arguments: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in arguments.items() if isinstance(value, str) and value}


def _get_completion(outputs: Any) -> str:
    output = outputs[0] if isinstance(outputs, list) and outputs else outputs
    return str(output.get("text", "") if isinstance(output, dict) else getattr(output, "text", output) or "")
