"""DSPy programs as generators of a search."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from ragfault import Trace
from ragfault.model.errors import UsageError
from ragfault.model.records import Chunk


@pytest.mark.filterwarnings("ignore")
def test_settings_of_a_dspy_program_are_searched_and_proved() -> None:
    """A program that quotes where its prompt says so is found; its own instructions and examples stay as they were."""
    dspy = pytest.importorskip("dspy", reason="dspy is not installed")
    from dspy.utils import DummyLM

    from ragfault.apps.tune.generators.dspy_program import answer_with_program
    from ragfault.apps.tune.generators.search import GeneratorSpace, search_generators
    from ragfault.apps.tune.settings import GeneratorSettings
    from ragfault.judges.loading import load_judge
    from ragfault.retrieval.generation.settings import AnswerExample, GeneratorConfig

    shown: list[str] = []

    class QuotingModel(DummyLM):  # type: ignore[misc]
        """Copies the first passage where it is told to quote, and invents otherwise."""

        def forward(self, prompt: Any = None, messages: Any = None, **options: Any) -> Any:
            text = "\n".join(message["content"] for message in messages)
            shown.append(text)
            passage = re.findall(r"Gate \d+ opens at nine\.", text)[-1]
            self.answers = iter([{"answer": passage if "Quote" in text else "The moon is made of old cheese."}])
            return super().forward(prompt=prompt, messages=messages, **options)

    program = dspy.Predict("context, question -> answer")
    instructions = program.signature.instructions
    questions = [
        Trace(id=str(n), query=f"When does gate {n} open?", chunks=(Chunk(id="a", text=f"Gate {n} opens at nine."),))
        for n in range(60)
    ]
    answer = answer_with_program(program, load_model=lambda config: QuotingModel([]))
    present = GeneratorConfig(model="llm:m", examples=(AnswerExample(query="Is it far?", answer="Two miles."),))
    choice, config = search_generators(
        questions,
        present,
        GeneratorSpace(prompt=("Quote the passage.",)),
        GeneratorSettings(metric="groundedness"),
        judge=load_judge("lexical"),
        answer=answer,
    )
    assert config.prompt == "Quote the passage."
    assert choice.gain is not None
    assert choice.gain.verdict == "gains"
    assert all("Two miles." in text for text in shown)
    assert (program.signature.instructions, program.demos) == (instructions, [])

    def break_down(config: GeneratorConfig) -> Any:
        raise KeyError("no model")

    assert answer(present, msgspec.structs.replace(questions[0], error="timeout"), 0).error is None
    failed = answer_with_program(program, load_model=break_down)(present, questions[0], 0)
    assert (failed.answer, failed.error) == (None, "KeyError: 'no model'")
    with pytest.raises(UsageError, match="not asked for citations"):
        answer(GeneratorConfig(model="llm:m", citations="ids"), questions[0], 0)
