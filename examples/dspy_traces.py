"""DSPy: every call of a program becomes a trace, scored while the program goes on.

Run it with `python examples/dspy_traces.py`; it asks no network and needs no key, because its model is made up.
"""

from __future__ import annotations

from importlib.metadata import version

import dspy
from dspy.utils import DummyLM

from ragfault.evaluation.online.background import BackgroundScorer
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.integrations.dspy import DSPyTraceCallback

HANDBOOK = ["The last ferry to the island leaves at 22:40 every evening.", "Dogs travel free on the ferry, on a lead."]


class Program(dspy.Module):
    """Retrieves and answers; put your own program in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.respond = dspy.ChainOfThought("context, question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        return self.respond(context=HANDBOOK, question=question)


def main() -> None:
    """Ask twice, once with an answer that the handbook does not support, and print what was scored."""
    print(f"dspy {version('dspy')}")
    result: list[ScoredTrace] = []
    text = ("The last ferry leaves at 22:40.", "The last ferry leaves at noon on Sundays.")
    model = DummyLM([{"reasoning": "It says so.", "answer": answer} for answer in text])
    with (
        BackgroundScorer(result.append, metrics=["context_relevance", "groundedness"]) as background,
        dspy.context(lm=model, callbacks=[DSPyTraceCallback(background, route="counter")]),
    ):
        for _ in text:
            Program()(question="When does the last ferry leave?")
    for scored in result:
        print(f"{scored.trace.query} → {scored.trace.answer}")
        print(f"  {len(scored.trace.chunks or ())} chunks by {scored.trace.model}")
        print(f"  groundedness {scored.values['groundedness']:.2f}")


if __name__ == "__main__":
    main()
