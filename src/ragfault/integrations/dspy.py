"""DSPy integration: calls of a program become traces, and a search of generators calls a program."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from ragfault.model.errors import UsageError, require_extra

with require_extra("ragfault.integrations.dspy", "dspy", "pip install dspy"):
    import dspy
    from dspy.utils.callback import ACTIVE_CALL_ID, BaseCallback

from ragfault.apps.tune.generators.search import AnswerQuestion
from ragfault.integrations.recorder import TraceDelivery, TraceRecorder, TraceSink, to_documents
from ragfault.io.otel.recorded_content import extract_question
from ragfault.model.records import Latency, Trace
from ragfault.retrieval.generation.answering import LLM_PREFIX, order_chunks, write_instructions
from ragfault.retrieval.generation.settings import GeneratorConfig

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


def load_language_model(config: GeneratorConfig) -> Any:
    """Return the language model of DSPy that settings name: `llm:openai/gpt-4o` is `dspy.LM("openai/gpt-4o")`."""
    return dspy.LM(
        config.model.removeprefix(LLM_PREFIX), temperature=config.temperature, max_tokens=config.max_tokens, cache=False
    )


def answer_with_program(
    program: Any,
    *,
    question: str = "question",
    context: str | None = "context",
    answer: str = "answer",
    load_model: Callable[[GeneratorConfig], Any] = load_language_model,
) -> AnswerQuestion:
    """Return the function by which `search_generators(…, answer=…)` calls a DSPy program under settings.

    Model, temperature and length are those of the language model; prompt and format are the instructions of every
    predictor, and examples its demonstrations, in a copy of the program. It gets the query as `question`, and the
    texts of the chunks as `context` (None: it retrieves by itself); its output `answer` is the answer. A program that
    fails leaves a trace with `error`. Raises UsageError for settings that ask for citations: a program states its own.

    >>> program = dspy.Predict("context, question -> answer")
    >>> model = dspy.utils.DummyLM([{"answer": "At ten."}])
    >>> answer_question = answer_with_program(program, load_model=lambda config: model)
    >>> answer_question(GeneratorConfig(model="llm:m"), Trace(id="1", query="When?", chunks=()), 0).answer
    'At ten.'
    """

    def answer_question(config: GeneratorConfig, trace: Trace, repetition: int) -> Trace:  # noqa: ARG001
        if config.citations != "none":
            raise UsageError('a DSPy program is not asked for citations. Leave "citations" out of the settings.')
        chunks = order_chunks(trace.chunks or (), config)
        inputs = {question: trace.query} | ({} if context is None else {context: [chunk.text for chunk in chunks]})
        model = config.model.removeprefix(LLM_PREFIX)
        asked = replace(trace, chunks=chunks, model=model, answer=None, citations=None, error=None)
        start = time.perf_counter()
        try:
            with dspy.context(lm=load_model(config)):
                prediction = _apply_settings(program, config, question, answer)(**inputs)
        except Exception as error:  # noqa: BLE001 - whatever the program raises is a failed answer
            return replace(asked, error=f"{type(error).__name__}: {error}")
        ms = 1000 * (time.perf_counter() - start)
        return replace(asked, answer=str(prediction[answer]), latency=Latency(generation=ms, total=ms))

    return answer_question


def _apply_settings(program: Any, config: GeneratorConfig, question: str, answer: str) -> Any:
    """Return a copy of a program with the instructions and the examples of settings."""
    copied = program.deepcopy()
    examples = [dspy.Example({question: example.query, answer: example.answer}) for example in config.examples]
    for predictor in copied.predictors():
        predictor.signature = predictor.signature.with_instructions(write_instructions(config))
        predictor.demos = examples or predictor.demos
    return copied
