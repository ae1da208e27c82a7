"""DSPy programs as generators: the search changes their prompt, examples and model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ragfault.model.errors import UsageError, require_extra

with require_extra("ragfault.apps.tune.generators.dspy_program", "dspy", "pip install dspy"):
    import dspy

from ragfault.apps.tune.generators.search import AnswerQuestion
from ragfault.model.records import Latency, Trace
from ragfault.retrieval.generation.answering import LLM_PREFIX, order_chunks, write_instructions
from ragfault.retrieval.generation.settings import GeneratorConfig


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
