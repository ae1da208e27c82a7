"""DSPy integration: calls of a program become traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

try:
    import dspy
    from dspy.utils.callback import ACTIVE_CALL_ID, BaseCallback
except ImportError:
    from ragfault.errors import MissingExtra

    raise MissingExtra("ragfault.integrations.dspy", "dspy", "pip install dspy") from None

from ragfault.integrations.recorder import TraceDelivery, TraceRecorder, TraceSink, to_documents
from ragfault.io.otel.recorded_content import extract_question

CONTEXT_FIELDS = ("context", "contexts", "passages", "documents", "chunks")
"""Inputs of a predictor, and outputs of a retriever, that are passages."""
ANSWER_FIELDS = ("answer", "response", "output", "result")
REASONING_FIELDS = ("reasoning", "rationale")


class DSPyTraceCallback(BaseCallback):  # type: ignore[misc]
    """A callback of DSPy that makes a trace of each outermost call, for a background, a function or a file.

    `dspy.configure(callbacks=[TraceCallback(background)])`. Chunks are the passages that a predictor is given as
    `context` (or `passages`, `documents`), else what a retriever within the program returned.
    """

    def __init__(self, sink: TraceSink, *, route: str | None = None) -> None:
        self._recorder = TraceRecorder(sink, route)
        self.delivery: TraceDelivery = self._recorder.delivery

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """A module is called."""
        given = _merge_arguments(inputs)
        held = {"openinference.span.kind": "CHAIN", "input.value": extract_question(_select_texts(given))}
        self._recorder.begin(call_id, type(instance).__name__, ACTIVE_CALL_ID.get(), held)
        passages = next((given[name] for name in CONTEXT_FIELDS if isinstance(given.get(name), list)), None)
        if (
            passages is not None
            and isinstance(instance, dspy.Predict)
            and (found := to_documents(passages)) is not None
        ):
            seen = {"openinference.span.kind": "RETRIEVER", "gen_ai.retrieval.documents": found}
            self._recorder.begin(f"{call_id} context", "context", call_id, seen)
            self._recorder.end(f"{call_id} context")

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """A module has returned."""
        made = dict(outputs.items()) if isinstance(outputs, dspy.Prediction) else {}
        passages = next((made[name] for name in CONTEXT_FIELDS if isinstance(made.get(name), list)), None)
        if passages is not None and not any(name in made for name in ANSWER_FIELDS):
            kind = {
                "openinference.span.kind": "RETRIEVER",
                "gen_ai.retrieval.documents": to_documents(passages),
            }
            self._recorder.end(call_id, kind, exception)
            return
        texts = {name: text for name, text in _select_texts(made).items() if name not in REASONING_FIELDS}
        said = next((texts[name] for name in ANSWER_FIELDS if name in texts), None) or next(
            reversed(texts.values()), None
        )
        self._recorder.end(call_id, {"output.value": said}, exception)

    def on_tool_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """A tool is called."""
        held = {
            "openinference.span.kind": "TOOL",
            "input.value": extract_question(_select_texts(_merge_arguments(inputs))),
        }
        self._recorder.begin(call_id, str(getattr(instance, "name", "tool")), ACTIVE_CALL_ID.get(), held)

    def on_tool_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """A tool has returned."""
        said = outputs if isinstance(outputs, str) else None
        self._recorder.end(call_id, {"output.value": said}, exception)

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """A model is asked."""
        given = _merge_arguments(inputs)
        messages = given.get("messages") or [{"role": "user", "content": given.get("prompt") or ""}]
        model = getattr(instance, "model", None)
        held = {
            "openinference.span.kind": "LLM",
            "gen_ai.input.messages": messages,
            "gen_ai.request.model": model,
        }
        self._recorder.begin(call_id, type(instance).__name__, ACTIVE_CALL_ID.get(), held)

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """A model has answered."""
        usage = getattr(outputs, "usage", None)
        held: dict[str, Any] = {
            "gen_ai.output.messages": [{"role": "assistant", "content": _get_completion(outputs)}]
        }
        for name, key in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")):
            value = usage.get(name) if isinstance(usage, dict) else getattr(usage, name, None)
            held |= {f"gen_ai.usage.{key}": value} if isinstance(value, int) else {}
        self._recorder.end(call_id, held, exception)


def _merge_arguments(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names."""
    named = {name: value for name, value in inputs.items() if name not in ("args", "kwargs")}
    placed = {f"argument {place}": value for place, value in enumerate(inputs.get("args") or ())}
    return {**named, **(inputs.get("kwargs") or {}), **placed}


def _select_texts(arguments: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in arguments.items() if isinstance(value, str) and value}


def _get_completion(outputs: Any) -> str:
    first = outputs[0] if isinstance(outputs, list) and outputs else outputs
    return str(first.get("text", "") if isinstance(first, dict) else getattr(first, "text", first) or "")
