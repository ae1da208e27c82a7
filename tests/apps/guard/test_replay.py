"""Replay: a policy on past traffic decides as it would live, and its risk and cost are those of the labels."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ragfault.apps.guard.certificate import Certificate, RouteCertificate
from ragfault.apps.guard.cli import read_bad_answers
from ragfault.apps.guard.policy import GuardPolicy, parse_policy
from ragfault.apps.guard.replay import replay_run
from ragfault.apps.guard.runtime import Guard
from ragfault.cli.commands import run_command
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.labels.label import fingerprint_answer
from ragfault.model.errors import UsageError
from ragfault.model.records import Chunk, Trace

POLICY = "[rails.groundedness]\n[rails.secrets]\noutcome = 'fix'"


def make_traces() -> list[Trace]:
    """Make ten supported and five unsupported answers on two routes, and one with a key."""
    traces = []
    for i in range(16):
        chunk = Chunk(id="a", text=f"The office in room {i} opens at {i % 9 + 1}:30 on weekdays.")
        answer = "The captain plays the violin in Vienna." if i % 3 == 0 else f"Room {i} opens at {i % 9 + 1}:30."
        answer = f"{chunk.text} AKIA1BCDEFGHIJKLMNO2" if i == 15 else answer
        traces.append(
            Trace(id=f"t{i}", query="When?", chunks=(chunk,), answer=answer, route="web" if i % 2 else "mail")
        )
    return traces


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("runs") / "run"
    evaluate(make_traces(), out=path, judge="lexical")
    return Run.open(str(path))


def load(text: str = POLICY) -> GuardPolicy:
    return parse_policy(text)


def test_a_replay_decides_as_the_guard_does_live(run: Run) -> None:
    live = [Guard(load(), judge="lexical").decide(trace).outcome for trace in make_traces()]
    replay = replay_run(run, load())
    assert replay.total.outcomes == {outcome: live.count(outcome) for outcome in set(live)}
    assert {"pass", "block"} <= set(live)
    assert not replay.promised
    assert [part.route for part in replay.routes] == ["mail", "web"]
    assert sum(part.n for part in replay.routes) == replay.total.n == 16


def test_risk_and_false_blocks_come_from_labels(run: Run) -> None:
    replay = replay_run(run, load("[rails.groundedness]"), labels={"t0": False, "t1": True, "t2": False})
    assert replay.total.risk is not None
    assert replay.total.risk.mean == 0.5
    assert replay.rails[0].false_blocks is not None
    assert replay.rails[0].false_blocks.mean == 1.0
    assert replay_run(run, load()).total.risk is None


def test_answers_of_one_conversation_count_as_one(tmp_path: Path) -> None:
    """A share is less sure where most answers are of one conversation than where each is of its own."""
    alone = [replace(trace, id=f"{at}-{trace.id}") for at in range(4) for trace in make_traces()]
    alone = [replace(trace, query=f"{trace.query} ({at})") for at, trace in enumerate(alone)]
    talk = [replace(trace, conversation="c" if at < len(alone) // 2 else None) for at, trace in enumerate(alone)]
    replays = [
        replay_run(evaluate(traces, tmp_path / name, judge="lexical"), load())
        for name, traces in (("alone", alone), ("talk", talk))
    ]
    shares = [[replay.total.released, replay.rails[0].blocked] for replay in replays]
    for before, after in zip(*shares, strict=True):
        assert before.mean == after.mean
        assert after.high - after.low > 1.2 * (before.high - before.low)


def test_labels_of_another_run_are_refused(run: Run) -> None:
    """Labels of none of the answers are not replaced by the judge's own risk without a word."""
    with pytest.raises(UsageError, match="are they of another run"):
        replay_run(run, load(), labels={"elsewhere": True}, costs=(20, 1))


def test_labels_of_an_earlier_answer_do_not_count(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    row = {"trace": "t0", "verdicts": {"claim": [{"start": 0, "end": 39, "support": "unsupported"}]}}
    path.write_text(json.dumps(row))
    assert read_bad_answers(run, str(path)) == {"t0": True}
    path.write_text(json.dumps({**row, "answer": fingerprint_answer(make_traces()[0])}))
    assert read_bad_answers(run, str(path)) == {"t0": True}
    path.write_text(json.dumps({**row, "answer": fingerprint_answer(make_traces()[1])}))
    assert read_bad_answers(run, str(path)) == {}


def test_costs_are_refused_beside_a_certificate_by_words(run: Run, tmp_path: Path) -> None:
    """A threshold by cost is of the judge's risk, and would be taken for one."""
    part = RouteCertificate(route=None, delta=0.1, n=90, groups=90, bad=3, design_effect=1.0, threshold=0.5)
    certificate = Certificate(
        alpha=0.1, delta=0.1, date="2031-05-04", judge=run.manifest.judge, routes=(part,), ranking="words"
    )
    path = tmp_path / "certificate.json"
    path.write_bytes(msgspec.json.encode(certificate))
    policy = load(f"certificate = '{path}'\n[rails.groundedness]")
    assert replay_run(run, policy).promised
    with pytest.raises(UsageError, match="certify with ranking"):
        replay_run(run, policy, costs=(20, 1))


def test_the_command_prints_the_replay_also_as_json(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    assert run_command(["guard", "replay", str(run.path), str(policy), "--cost", "5", "1"]) == 2
    assert "20 independent answers in either half" in capsys.readouterr().err
    assert run_command(["guard", "replay", str(run.path), str(policy)]) == 0
    assert "Without a certificate nothing is promised" in capsys.readouterr().out
    assert run_command(["guard", "replay", str(run.path), str(policy), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["n"] == 16
