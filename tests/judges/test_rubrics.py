"""Laws of rubrics: words become a question in the call on the answer, and nothing gates unmeasured."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endpoint import Server, serve_model
from ragfault.cli.commands import run_command
from ragfault.comparison.gate.gate import gate
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.judges.domain.profile import load_profile
from ragfault.judges.llm.prompts.instructions import load_prompts
from ragfault.judges.llm.settings import LLMSettings
from ragfault.judges.llm.trace_judgment import plan_calls
from ragfault.judges.loading import load_judge
from ragfault.labels.rubrics.learning import format_rubrics, learn_examples, prove_learning
from ragfault.labels.rubrics.proofs import load_rubric_measurement
from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import Chunk, Trace, Verdicts
from ragfault.model.rubrics import Rubric, RubricExample, RubricLevel, load_rubrics, rubric
from scripted import TRACE, judge, make_scripted

FORMAL = rubric("The answer addresses the customer formally.", name="formal")
DETAIL = rubric(
    "The answer is as detailed as the question asks for.",
    name="detail",
    levels=[
        RubricLevel(value=0.5, description="it leaves out a part"),
        RubricLevel(value=0.0, description="it is far too short or too long"),
        RubricLevel(value=1.0, description="it has the detail asked for", example="At noon, from pier 3."),
    ],
    examples=[RubricExample(answer="At noon.", value=0.5, query="When and from where?", reason="no pier")],
)


def observe(reply: Mapping[str, dict[str, Any]], rubrics: Sequence[Rubric] = (FORMAL, DETAIL), trace: Trace = TRACE):
    prompts = load_prompts(load_profile("general"), rubrics)
    caller = make_scripted(rubrics=dict(reply))
    return judge(trace, caller, prompts, rubrics=tuple(rubrics)), caller


def test_rubrics_ride_in_the_same_two_calls():
    """Two rubrics add no call: their words are in the instructions on the answer alone, their ids in its fields."""
    settings = LLMSettings(model="m", rubrics=(FORMAL, DETAIL))
    prompts = load_prompts(load_profile("general"), settings.rubrics)
    retrieval, generation = plan_calls(TRACE, settings, prompts)
    assert generation.messages[1].text.endswith("harm, rubrics (of u1, u2)")
    for words in ("addresses the customer formally", "value 0.5: it leaves out a part.", '"At noon."', "no pier"):
        assert words in generation.messages[0].text
        assert words not in retrieval.messages[0].text


def test_a_verdict_is_a_level_with_the_version_of_the_rubric():
    """A value between levels counts as the nearest, of two as near as the lower; the version is that of the rubric."""
    verdicts, caller = observe({"u1": {"value": 0.8, "reason": "sir"}, "u2": {"value": 0.75}})
    assert [(item.rubric, item.value, item.level) for item in verdicts.rubric or ()] == [
        ("formal", 1.0, "the answer meets the criterion"),
        ("detail", 0.5, "it leaves out a part"),
    ]
    assert [item.version for item in verdicts.rubric or ()] == [FORMAL.version, DETAIL.version]
    assert len(caller.calls) == 2


def test_a_lost_rubric_fails_alone():
    """A value out of range is asked for again and then failed, for that rubric alone; scores of it say so."""
    verdicts, caller = observe({"u1": {"value": 7}})
    assert [item.rubric for item in verdicts.rubric or ()] == ["detail"]
    assert len(caller.calls) == 3
    assert compute_score(parse_metric("rubric(name=formal)"), TRACE, verdicts).status == "failed"


def test_blank_answers_and_judges_without_rubrics_have_no_value():
    """A blank answer and a judge without rubrics are undefined, with the reason."""
    blank, _ = observe({}, trace=msgspec.structs.replace(TRACE, answer=" "))
    assert blank.rubric == ()
    reasons = [
        compute_score(parse_metric("rubric"), trace, Verdicts(trace="7")).reason
        for trace in (TRACE, msgspec.structs.replace(TRACE, answer=" "))
    ]
    assert reasons == ["the judge was given no rubrics", "no answer"]


@given(
    st.sampled_from(["criterion", "level", "example", "name"]), st.text("abc", min_size=1, max_size=5).map("x".__add__)
)
def test_whatever_is_changed_makes_another_version(part: str, text: str):
    """Criterion, level, example and name are part of the version, and of the fingerprint of the judge."""
    changed = {
        "criterion": msgspec.structs.replace(FORMAL, criterion=text),
        "level": msgspec.structs.replace(FORMAL, levels=(FORMAL.levels[0], RubricLevel(value=1.0, description=text))),
        "example": msgspec.structs.replace(FORMAL, examples=(RubricExample(answer=text, value=1.0),)),
        "name": msgspec.structs.replace(FORMAL, name=text),
    }[part]
    fingerprints = {load_judge("llm:ollama/m", rubrics=rubrics).fingerprint for rubrics in ((), (FORMAL,), (changed,))}
    assert changed.version != FORMAL.version
    assert len(fingerprints) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no rubric"),
        ('[A]\ncriterion = "x"', "a name is lower-case"),
        ('[a]\ncriterion = " "', "there is no criterion"),
        ("[a]\nlevels = []", "cannot be read"),
        ('[a]\ncriterion = "x"\nlevels = [{value = 1, description = "y"}]', "two levels or more"),
        ('[a]\ncriterion = "x"\nexamples = [{answer = "y", value = 0.3}]', "is that of a level"),
        ('[a]\ncriterion = "x"\nweight = 2', "unknown field"),
    ],
)
def test_wrong_rubrics_are_refused(text: str, message: str, tmp_path: Path):
    """A file that is no rubric says what is wrong with it."""
    path = tmp_path / "rubrics.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises((InputError, UsageError), match=message):
        load_rubrics(path)


def test_a_rubric_without_a_language_model_is_one_clear_error(tmp_path: Path):
    """Rubrics of a judge of the package are refused before anything is judged, by library and command line."""
    trace = Trace(id="1", query="When?", answer="At noon.")
    with pytest.raises(UsageError, match='this judge is "encoder"'):
        evaluate([trace], tmp_path / "run", metrics=["default", FORMAL])
    with pytest.raises(UsageError, match='ask with judge="llm:MODEL"'):
        evaluate([trace], tmp_path / "run", metrics=["rubric(name=formal)"])
    path = tmp_path / "t.jsonl"
    path.write_bytes(msgspec.json.encode(trace))
    assert run_command(["evaluate", str(path), "-o", str(tmp_path / "run"), "--rubrics", "rubrics.toml"]) == 2


ANSWERS = ("Dear customer, the ferry leaves at noon.", "Hey, noon it is, mate.", "Dear you, it leaves at noon, ok?")


def make_traces() -> list[Trace]:
    """Return 120 answers, of which the scripted model calls two in three formal."""
    chunk = Chunk(id="a", text="The ferry leaves at noon.")
    return [
        Trace(id=f"t{n}", query=f"When does ferry {n} leave?", chunks=(chunk,), answer=f"{ANSWERS[n % 3]} ({n})")
        for n in range(120)
    ]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serve_model() as running:
        monkeypatch.setenv("RAGFAULT_LLM_BASE_URL", running.url)
        yield running


@pytest.mark.long
def test_a_gate_on_a_rubric_needs_its_measured_agreement(server: Server, tmp_path: Path, capsys: Any):
    """A scripted model judges by one word and people by two: kappa is as counted, and the proof opens the gate.

    This shows the machinery and nothing of the quality of any model.
    """
    (tmp_path / "rubrics.toml").write_text(f'[formal]\ncriterion = "{FORMAL.criterion}"\n', encoding="utf-8")
    traces = make_traces()
    (tmp_path / "t.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, traces)))
    asked = ["--judge", "llm:m", "--rubrics", str(tmp_path / "rubrics.toml")]
    run = tmp_path / "run"
    assert run_command(["evaluate", str(tmp_path / "t.jsonl"), "-o", str(run), *asked, "--cache", "none", "-q"]) == 0
    assert server.calls.total() == 240
    assert sum(score.value or 0 for score in Run.open(run).scores() if score.metric == "rubric(name=formal)") == 80
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["trace", "rubric", "value", "by"])
        rows.writerows([trace.id, "formal", int(n % 3 == 0 or n % 12 == 2), "ann"] for n, trace in enumerate(traces))
    threshold = ["gate", str(run), "--threshold", "rubric(name=formal)>=0.5"]
    assert run_command(threshold) == 2
    assert "judge rubric RUN LABELS" in capsys.readouterr().err
    measure = ["judge", "rubric", str(run), str(tmp_path / "labels.csv")]
    assert run_command([*measure, "-o", str(tmp_path / "unrepeated.json")]) == 3
    assert run_command([*threshold, "--rubric-proof", str(tmp_path / "unrepeated.json")]) == 2
    repeat = ["judge", "repeat", str(tmp_path / "t.jsonl"), *asked, "-k", "2", "--limit", "30"]
    assert run_command([*repeat, "-o", str(tmp_path / "repeat.json"), "-q"]) == 0
    proof = tmp_path / "proof.json"
    assert run_command([*measure, "--flakiness", str(tmp_path / "repeat.json"), "-o", str(proof)]) == 0
    [result] = load_rubric_measurement(proof).proofs
    assert (result.labelled, result.repeated, result.consistency) == (120, 30, 1.0)
    assert (result.agreement.value, result.kappa.value) == (0.75, pytest.approx(0.526, abs=0.001))
    assert run_command([*threshold, "--rubric-proof", str(proof)]) == 0
    other = msgspec.structs.replace(load_rubric_measurement(proof).proofs[0], judge="another")
    measured = msgspec.structs.replace(load_rubric_measurement(proof), proofs=(other,))
    with pytest.raises(UsageError, match="another judge or another version"):
        gate(run, ["rubric(name=formal)>=0.5"], rubric_proof=[measured])


class LearningServer(Server):
    """Scripted model that calls every greeting formal until an example shows it that "ok?" is not."""

    def reply(self, messages: Sequence[Mapping[str, Any]]) -> str:
        text = super().reply(messages)
        shown = any(
            "Judged by people" in message["content"] and "ok?" in message["content"] for message in messages[:1]
        )
        is_casual = "noon, ok?" in messages[1]["content"]
        return text.replace('"value": 1.0', '"value": 0.0') if shown and is_casual else text


@pytest.mark.long
def test_examples_from_labels_are_proved_on_other_labels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A scripted model that follows its examples agrees better on held-out labels; one that does not is no proof."""
    traces = make_traces()
    labels = {trace.id: float(n % 3 == 0) for n, trace in enumerate(traces)}
    runs = []
    with serve_model(kind=LearningServer) as running:
        monkeypatch.setenv("RAGFAULT_LLM_BASE_URL", running.url)
        options = {"cache": "none"}
        runs.append(evaluate(traces, tmp_path / "before", judge="llm:m", options=options, metrics=[FORMAL]))
        learnt = learn_examples(FORMAL, runs[0], labels)
        assert not set(learnt.traces) & set(learnt.unseen)
        assert {example.value for example in learnt.rubric.examples} == {0.0, 1.0}
        assert learnt.rubric.version != FORMAL.version
        runs.append(evaluate(traces, tmp_path / "after", judge="llm:m", options=options, metrics=[learnt.rubric]))
    proof = prove_learning(runs[0], runs[1], "formal", labels, learnt.unseen)
    assert proof.helps
    assert proof.before < 0.8
    assert proof.after == 1.0
    assert not prove_learning(runs[0], runs[0], "formal", labels, learnt.unseen).helps
    with pytest.raises(InputError, match="Label more"):
        learn_examples(FORMAL, runs[0], dict(list(labels.items())[:9]))
    rows = "".join(f"{name},{value}\n" for name, value in labels.items())
    (tmp_path / "labels.csv").write_text("trace,value\n" + rows)
    (tmp_path / "rubrics.toml").write_text(format_rubrics([FORMAL]))
    places = {name: str(tmp_path / name) for name in ("before", "after", "labels.csv", "rubrics.toml", "learnt.toml")}
    measure = ["judge", "rubric", places["before"], places["labels.csv"], "--examples", places["learnt.toml"]]
    assert run_command(measure) == 2
    assert run_command([*measure[:4], "--rubrics", places["rubrics.toml"]]) == 2
    assert run_command([*measure, "--rubrics", places["rubrics.toml"], "--before", places["after"]]) == 2
    assert run_command([*measure, "--rubrics", places["rubrics.toml"]]) == 0
    assert load_rubrics(places["learnt.toml"]) == (learnt.rubric,)
    assert run_command([*measure, "--rubrics", places["learnt.toml"], "--force"]) == 2
    assert "another version" in capsys.readouterr().err
    proving = ["judge", "rubric", places["after"], places["labels.csv"], "--before", places["before"], "--json"]
    assert run_command(proving) == 3
    shown = capsys.readouterr()
    assert f"formal: the examples help: agreement {proof.before:.3f} → 1.000" in shown.err
    assert json.loads(shown.out)["proofs"][0]["labelled"] == len(learnt.unseen)
