"""Laws of the choice of metrics by the tags of a trace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from ragfault.cli.commands import run_command
from ragfault.evaluation.evaluator import evaluate
from ragfault.evaluation.metric_choices import parse_choices
from ragfault.judges.loading import load_judge
from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.records import Chunk, Latency, Trace, Verdicts

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
        traces,
        tmp_path / "run",
        judge=judge,
        metrics=["refusal"],
        metrics_by=["route=faq:latency", "tags=beta:groundedness"],
    )
    scores = {(score.trace, score.metric): (score.value, score.reason) for score in run.scores()}
    assert len(scores) == 12
    assert {key for key, (value, _) in scores.items() if value is not None} == {
        ("faq", "latency"),
        ("beta", "groundedness"),
        ("both", "latency"),
        ("both", "groundedness"),
        ("rest", "latency"),
        ("rest", "groundedness"),
        ("rest", "refusal"),
    }
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


def test_a_tag_that_no_trace_has_is_named_with_those_that_there_are(tmp_path: Path):
    """A mistyped value would otherwise compute all metrics unseen."""
    notices: list[str] = []
    evaluate(
        [make_trace("1", route="faq"), make_trace("2", route="legal")],
        tmp_path / "run",
        judge="lexical",
        metrics=["error"],
        metrics_by=["route=fag:refusal", "route=faq:error", "team=a:error"],
        on_notice=notices.append,
    )
    assert notices[-2:] == [
        "no trace has route=fag, so its metrics were chosen for none. Values of route: faq, legal.",
        "no trace has team=a, so its metrics were chosen for none. Values of team: none.",
    ]


def test_an_estimate_counts_the_traces_that_will_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Traces whose tag chooses no metric that reads a verdict cost nothing."""
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"\n".join(msgspec.json.encode(make_trace(name, route=name)) for name in ("a", "b", "c")))
    command = ["evaluate", str(path), "--judge", "llm:m", "--dry-run", "--json", "-m", "groundedness"]
    counts = []
    for choice in ([], ["--metrics-by", "route=a:latency"]):
        assert run_command([*command, *choice]) == 0
        counts.append(json.loads(capsys.readouterr().out)["traces"])
    assert counts == [3, 2]


@pytest.mark.parametrize(
    ("metrics", "kinds"),
    [
        (["groundedness"], ["generation"]),
        (["context_relevance"], ["retrieval"]),
        (["groundedness", "context_relevance"], ["generation", "retrieval"]),
        (["wrong_refusal"], ["generation", "retrieval"]),
    ],
)
def test_a_model_is_asked_for_what_the_metrics_read_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metrics: list[str], kinds: list[str]
):
    """A call of which no metric reads a verdict is not made."""
    path = tmp_path / "traces.jsonl"
    path.write_bytes(msgspec.json.encode(make_trace("1")))
    flags = [flag for metric in metrics for flag in ("-m", metric)]
    assert run_command(["evaluate", str(path), "--judge", "llm:m", "--dry-run", "--json", *flags]) == 0
    assert sorted(item["kind"] for item in json.loads(capsys.readouterr().out)["kinds"]) == kinds
