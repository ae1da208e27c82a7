"""Laws of the choice of metrics by the tags of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ragfault.errors import UnknownName, UsageError
from ragfault.evaluation import evaluate
from ragfault.evaluation.metric_choices import parse_choices
from ragfault.judges import load_judge
from ragfault.records import Chunk, Latency, Trace, Verdicts

CHUNK = Chunk(id="a", text="The ferry leaves at ten.")


class CountingJudge:
    """The lexical judge, which remembers the traces that it was asked about."""

    def __init__(self) -> None:
        self.judge = load_judge("lexical")
        self.offers, self.fingerprint = self.judge.offers, self.judge.fingerprint
        self.asked: list[str] = []

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        self.asked += [trace.id for trace in traces]
        return list(self.judge.observe(traces))


def make_trace(name: str, **fields: object) -> Trace:
    return Trace(id=name, query="When does it leave?", chunks=(CHUNK,), answer="The ferry leaves at ten.", **fields)


def test_a_tag_selects_the_metrics_of_its_traces(tmp_path: Path):
    """Others get all metrics; what is not asked for is undefined with the tag, and needs no judge."""
    traces = [
        make_trace("faq", route="faq", latency=Latency(total=5.0)),
        make_trace("beta", metadata={"tags": ["beta", "new"]}),
        make_trace("both", route="faq", metadata={"tags": ["beta"]}, latency=Latency(total=5.0)),
        make_trace("rest", latency=Latency(total=5.0)),
    ]
    judge = CountingJudge()
    run = evaluate(
        traces, tmp_path / "run", judge=judge, metrics=["refusal"],
        metrics_by=["route=faq:latency", "tags=beta:groundedness"],
    )  # fmt: skip
    scores = {(score.trace, score.metric): (score.value, score.reason) for score in run.scores()}
    assert len(scores) == 12
    assert {key for key, (value, _) in scores.items() if value is not None} == {
        ("faq", "latency"), ("beta", "groundedness"), ("both", "latency"), ("both", "groundedness"),
        ("rest", "latency"), ("rest", "groundedness"), ("rest", "refusal"),
    }  # fmt: skip
    assert scores["faq", "groundedness"] == (None, "not asked for where route=faq")
    assert scores["both", "refusal"] == (None, "not asked for where route=faq, tags=beta")
    assert judge.asked == ["beta", "both", "rest"]


def test_commas_within_parameters_separate_nothing():
    """A metric keeps its parameters; a set of metrics may be named."""
    [choice] = parse_choices(["metadata.kind = a b : context_relevance(low=0, medium=1), operation"])
    assert (choice.field, choice.value) == ("kind", "a b")
    assert {"context_relevance(low=0, medium=1)", "latency"} <= set(choice.metrics)


def test_what_cannot_be_read_is_refused():
    """A choice has a field, a value and known metrics."""
    with pytest.raises(UsageError, match="FIELD=VALUE:METRIC"):
        parse_choices(["faq:latency"])
    with pytest.raises(UnknownName, match="latency"):
        parse_choices(["route=faq:latensy"])
