"""Scorers for other tools: their own objects, with the values and reasons of ragfault."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from ragfault.integrations.records import RecordScorer, explain_score

CONTEXTS = ["The last ferry leaves at 22:40.", "Dogs travel free on a lead."]
GROUNDED, INVENTED = "The last ferry leaves at 22:40.", "A ticket costs 40 crowns."


def test_a_record_is_read_under_names_of_other_tools():
    """Question, contexts and expectations are recognised by their names, and a text stands for its usual field."""
    scorer = RecordScorer(["groundedness", "context_recall"], "lexical")
    for inputs in (
        {"question": "When?", "contexts": CONTEXTS},
        {"user_input": "When?", "retrieved_contexts": CONTEXTS},
    ):
        scored = scorer.score(inputs, GROUNDED, {"reference": GROUNDED})
        assert scored.trace.query == "When?"
        assert scored.values == {"groundedness": 1.0, "context_recall": 1.0}
    assert "reference" in explain_score(scorer.score(inputs, GROUNDED, None), "context_recall")
    assert INVENTED in explain_score(scorer.score(inputs, INVENTED, None), "groundedness")


@pytest.mark.long
def test_mlflow_gets_values_and_reasons():
    """A scorer for each metric returns a feedback: a value with its reasons, or the reason why there is none."""
    pytest.importorskip("mlflow.genai", reason="mlflow is not installed")
    from ragfault.integrations.mlflow import UNDEFINED, build_scorers

    grounded, recall = build_scorers(["groundedness", "context_recall"], "lexical")
    inputs = {"question": "When does the last ferry leave?", "contexts": CONTEXTS}
    assert grounded(inputs=inputs, outputs=GROUNDED).value == 1.0
    invented = grounded(inputs=inputs, outputs=INVENTED)
    assert invented.value == 0.0
    assert INVENTED in invented.rationale
    assert recall(inputs=inputs, outputs=GROUNDED).error.error_code == UNDEFINED
    assert recall(inputs=inputs, outputs=GROUNDED, expectations={"reference": GROUNDED}).value == 1.0


@pytest.mark.long
def test_inspect_averages_what_is_defined(tmp_path: Path):
    """A task of Inspect has a mean for each metric, over the samples on which it is defined."""
    pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from ragfault.integrations.inspect import score_answers

    samples = [
        Sample(input="When does the last ferry leave?", target=GROUNDED, metadata={"contexts": CONTEXTS}),
        Sample(input="What does a ticket cost?", metadata={"contexts": CONTEXTS}),
    ]
    answers = [ModelOutput.from_content("mockllm/model", answer) for answer in (GROUNDED, INVENTED)]
    for answer in answers:
        answer.usage = ModelUsage(input_tokens=1, output_tokens=1)  # else it downloads what counts tokens
    task = Task(dataset=samples, scorer=score_answers(["groundedness", "context_recall"], "lexical"))
    model = get_model("mockllm/model", custom_outputs=answers)
    [log] = eval(task, model=model, log_dir=str(tmp_path), display="none", max_samples=1)
    assert log.status == "success", log.error
    means = {score.name: score.metrics["mean"].value for score in log.results.scores}
    assert means == {"groundedness": 0.5, "context_recall": 1.0}
    assert math.isnan(log.samples[1].scores["ragfault"].value["context_recall"])
    assert INVENTED in log.samples[1].scores["ragfault"].explanation
