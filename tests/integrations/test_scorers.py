"""Scorers for other tools: their own objects, with the values and reasons of ragfault."""

from __future__ import annotations

import math
import uuid
from pathlib import Path

import pytest

from ragfault.integrations.evaluators import (
    build_langfuse_evaluator,
    build_langsmith_evaluator,
    build_promptfoo_assertion,
)
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


@pytest.mark.long
def test_deepeval_scores_test_cases():
    """A test case passes by the score and has the reason; a metric that is undefined on it is skipped."""
    pytest.importorskip("deepeval", reason="deepeval is not installed")
    from deepeval import evaluate
    from deepeval.evaluate import DisplayConfig
    from deepeval.test_case import LLMTestCase

    from ragfault.integrations.deepeval import build_metrics

    cases = [
        LLMTestCase(input="When?", actual_output=answer, retrieval_context=CONTEXTS) for answer in (GROUNDED, INVENTED)
    ]
    metrics = build_metrics(["groundedness", "context_recall"], "lexical")
    result = evaluate(cases, metrics=metrics, display_config=DisplayConfig(print_results=False))
    rows = [[(item.name, item.score, item.success) for item in case.metrics_data] for case in result.test_results]
    assert rows == [[("groundedness", 1.0, True)], [("groundedness", 0.0, False)]]
    assert INVENTED in result.test_results[1].metrics_data[0].reason
    assert (metrics[1].measure(cases[0]), metrics[1].is_successful()) == (None, None)


@pytest.mark.long
def test_ragas_averages_what_is_defined():
    """A data set of Ragas has a column for each metric, NaN where it is undefined."""
    pytest.importorskip("ragas", reason="ragas is not installed")
    from ragas import EvaluationDataset, evaluate

    from ragfault.integrations.ragas import build_metrics

    row = {"user_input": "When?", "retrieved_contexts": CONTEXTS}
    rows = [{**row, "response": GROUNDED, "reference": GROUNDED}, {**row, "response": INVENTED}]
    metrics = build_metrics(["groundedness", "context_recall"], "lexical")
    result = evaluate(EvaluationDataset.from_list(rows), metrics=metrics, show_progress=False)
    assert [item["groundedness"] for item in result.scores] == [1.0, 0.0]
    assert result.scores[0]["context_recall"] == 1.0
    assert math.isnan(result.scores[1]["context_recall"])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:'upload_results' parameter is in beta")
def test_langsmith_gets_scores_and_reasons():
    """An experiment that is not uploaded has a result for each metric."""
    langsmith = pytest.importorskip("langsmith", reason="langsmith is not installed")
    from langsmith.schemas import Example

    inputs = {"question": "When does the last ferry leave?"}
    examples = [Example(id=uuid.uuid4(), dataset_id=uuid.uuid4(), inputs=inputs, outputs={"reference": GROUNDED})]
    results = langsmith.evaluate(
        lambda _: {"answer": INVENTED, "contexts": CONTEXTS},
        data=examples,
        evaluators=[build_langsmith_evaluator(["groundedness", "context_recall"], "lexical")],
        upload_results=False,
        client=langsmith.Client(api_key="none", api_url="http://127.0.0.1:9"),
    )
    [row] = results
    grounded, recall = row["evaluation_results"]["results"]
    assert (grounded.key, grounded.score, grounded.comment) == ("groundedness", 0.0, f"unsupported: {INVENTED}")
    assert (recall.key, recall.score) == ("context_recall", 1.0)


@pytest.mark.long
def test_langfuse_gets_evaluations():
    """An experiment has an evaluation for each metric that is defined."""
    langfuse = pytest.importorskip("langfuse", reason="langfuse is not installed")
    client = langfuse.Langfuse(
        public_key="none", secret_key="none", base_url="http://127.0.0.1:9", tracing_enabled=False
    )
    result = client.run_experiment(
        name="ferries",
        data=[{"input": {"question": "When?", "contexts": CONTEXTS}, "expected_output": None}],
        task=lambda **_: GROUNDED,
        evaluators=[build_langfuse_evaluator(["groundedness", "context_recall"], "lexical")],
    )
    assert [(item.name, item.value) for item in result.item_results[0].evaluations] == [("groundedness", 1.0)]


def test_promptfoo_gets_a_grade_with_its_reason():
    """A Python assertion returns what promptfoo reads; without a score the output passes."""
    get_assert = build_promptfoo_assertion("groundedness", "lexical")
    variables = {"question": "When?", "contexts": CONTEXTS}
    assert get_assert(GROUNDED, {"vars": variables}) == {"pass": True, "score": 1.0, "reason": ""}
    refused = get_assert(INVENTED, {"vars": variables})
    assert (refused["pass"], refused["score"]) == (False, 0.0)
    assert INVENTED in refused["reason"]
    undefined = build_promptfoo_assertion("context_recall", "lexical")(GROUNDED, {"vars": variables})
    assert undefined["pass"]
    assert "reference" in undefined["reason"]
