"""Laws of replays: what proves and refutes a cause, what it costs, and what a kill, a fault or a budget leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from installed import skip_without

skip_without("openai", reason="needs the extra llm")

from endpoint import serve_model
from programmed_model import ProgrammedServer
from ragfault.apps.replay.decision import AttemptCounts, decide_proof
from ragfault.apps.replay.interventions import PROOFS
from ragfault.apps.replay.records import ReplayReport
from ragfault.apps.replay.store import load_result
from ragfault.cli.commands import run_command
from ragfault.diagnosis.causes.table import CAUSES
from ragfault.io.runs.run import Run
from ragfault.io.trace_writer import write_traces
from ragfault.model.records import Chunk, ConversationTurn, Trace
from replayed_runs import make_trace
from replayed_runs import write_run as evaluate_traces

TRACES = 6
MOST_CALLS = 4


def write_run(folder: Path, program: str, *, shown: bool = False) -> Path:
    """Evaluate traces of one program as a run, with one that shows the passages which the others lack."""
    traces = [make_trace(number, program, shown=shown) for number in range(TRACES)]
    corpus = tuple(Chunk(id=f"g{at}", text=trace.metadata["right"]) for at, trace in enumerate(traces))
    traces.append(Trace(id="corpus", query="Which passages are there?", chunks=corpus))
    return evaluate_traces(traces, folder / "run").path


@pytest.fixture
def server() -> Iterator[ProgrammedServer]:
    with serve_model({}, ProgrammedServer) as endpoint:
        yield endpoint


def replay(run: Path, url: str, *flags: str) -> tuple[int, ReplayReport | None]:
    """Replay a run from the command line, with a cache of its own."""
    flags = ("--cache", str(run.with_name("cache.sqlite")), *flags)
    code = run_command(["replay", str(run), "--model", "openai:m", "--base-url", url, *flags])
    return code, load_result(Run.open(run), ReplayReport)


def count_outcomes(report: ReplayReport | None) -> dict[str, int]:
    assert report is not None
    return dict(Counter(proof.outcome for proof in report.proofs))


def test_every_cause_has_a_proof_or_a_reason():
    """The table of proofs names each cause of the table of causes."""
    assert set(PROOFS) == set(CAUSES)


def test_a_missing_passage_is_proven_and_an_inventing_model_refutes_it(tmp_path: Path, server: ProgrammedServer):
    """With the gold put in, a model that reads answers right, and one that always invents does not."""
    for program, outcome in (("invents if absent", "proven"), ("invents", "refuted")):
        run = write_run(tmp_path / outcome, program)
        code, report = replay(run, server.url, "--cause", "not-retrieved")
        assert (code, count_outcomes(report)) == (0, {outcome: TRACES})
        assert report is not None
        assert report.counts[0].cause == "not_retrieved"
        assert all(len(proof.answers) <= MOST_CALLS for proof in report.proofs)


def test_a_fault_of_the_generator_stays_with_the_best_request(tmp_path: Path, server: ProgrammedServer):
    """A model that is wrong with the right passage alone is proven faulty; one that other passages mislead is not."""
    for program, outcome in (("invents", "proven"), ("confuses passages", "refuted")):
        run = write_run(tmp_path / outcome, program, shown=True)
        code, report = replay(run, server.url)
        assert report is not None
        assert {proof.stage for proof in report.proofs} == {"generation"}
        assert (code, count_outcomes(report)) == (0, {outcome: TRACES})


def test_an_answer_that_was_bad_by_chance_refutes_its_cause(tmp_path: Path, server: ProgrammedServer):
    """Where the same request gives right answers, no cause is proven."""
    run = write_run(tmp_path, "faithful", shown=True)
    assert count_outcomes(replay(run, server.url)[1]) == {"refuted": TRACES}
    report = load_result(Run.open(run), ReplayReport)
    assert report is not None
    assert all(proof.same_right == proof.same_attempts == 2 for proof in report.proofs)


def test_the_report_of_a_run_shows_its_replays(
    tmp_path: Path, server: ProgrammedServer, capsys: pytest.CaptureFixture[str]
):
    """In the terminal, in Markdown and on the page the report has the proofs, with the answers before and after."""
    run = write_run(tmp_path, "invents if absent")
    run_command(["report", str(run)])
    assert "Replayed causes" not in capsys.readouterr().out
    replay(run, server.url)
    capsys.readouterr()
    for kind in ("terminal", "md", "html"):
        assert run_command(["report", str(run), "--format", kind]) == 0
        shown = capsys.readouterr().out
        assert f"{TRACES} of {TRACES} replayed proven" in shown
        assert "It opens at 4:44." in shown


def test_a_request_asked_before_is_not_paid_again(tmp_path: Path, server: ProgrammedServer):
    """The same command once more sends nothing and says the same."""
    run = write_run(tmp_path, "invents if absent")
    first = replay(run, server.url)
    paid = sum(server.paid.values())
    second = replay(run, server.url)
    assert sum(server.paid.values()) == paid
    assert first[1] is not None
    assert second[1] is not None
    assert second[1].proofs == first[1].proofs


def test_a_dry_run_sends_nothing(tmp_path: Path, server: ProgrammedServer, capsys: pytest.CaptureFixture[str]):
    """The plan counts traces and calls, and no request arrives."""
    run = write_run(tmp_path, "invents if absent")
    assert replay(run, server.url, "--dry-run", "--json", "--price", "1,2")[0] == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["traces"], plan["calls"]) == (TRACES, MOST_CALLS * TRACES)
    assert 0 < plan["cost"] <= plan["max_cost"]
    assert not server.calls


def test_the_model_and_the_price_are_shown_before_the_first_call(
    tmp_path: Path, server: ProgrammedServer, capsys: pytest.CaptureFixture[str]
):
    """The first line on standard error names the model and the most calls."""
    replay(write_run(tmp_path, "invents if absent"), server.url, "--price", "1,2")
    first = capsys.readouterr().err.splitlines()[0]
    assert "openai/m" in first
    assert f"at most {MOST_CALLS * TRACES} calls" in first
    assert "US$" in first


def test_a_budget_ends_a_replay_and_a_larger_one_goes_on(tmp_path: Path, server: ProgrammedServer):
    """What was asked until then decides, nothing is proven without attempts, and what was paid is not paid again."""
    run = write_run(tmp_path, "invents if absent")
    code, report = replay(run, server.url, "--budget", "1500 tokens", "--max-tokens", "300")
    assert code == 3
    assert report is not None
    assert report.stopped is not None
    assert count_outcomes(report)["not decided"] > 0
    code, report = replay(run, server.url, "--budget", "1m tokens", "--max-tokens", "300")
    assert (code, count_outcomes(report)) == (0, {"proven": TRACES})
    assert max(server.delivered.values()) <= 2


def test_faults_of_the_endpoint_are_no_attempts(tmp_path: Path):
    """Where a part of the calls is refused, overloaded or cut, the decisions are the same."""
    with serve_model({"429": 0.2, "500": 0.1}, ProgrammedServer, wait="0.01") as server:
        run = write_run(tmp_path, "invents if absent")
        assert count_outcomes(replay(run, server.url)[1]) == {"proven": TRACES}
        assert server.met["429"] + server.met["500"] > 0


def test_a_model_that_never_answers_decides_nothing(tmp_path: Path):
    """Where every call fails, no cause is proven or refuted, and the reason is there."""
    with serve_model({"filter": 1.0}, ProgrammedServer) as server:
        run = write_run(tmp_path, "invents if absent")
        report = replay(run, server.url)[1]
    assert count_outcomes(report) == {"not decided": TRACES}
    assert report is not None
    assert all("a call failed" in proof.reason for proof in report.proofs)


def test_an_endpoint_that_is_down_leaves_what_was_proven(tmp_path: Path):
    """A replay that got no answer keeps the proofs that an earlier one by the same model stored."""
    run = write_run(tmp_path, "invents if absent")
    with serve_model({}, ProgrammedServer) as server:
        proven = replay(run, server.url)[1]
    after = replay(run, server.url, "--cache", "none")[1]
    assert count_outcomes(after) == count_outcomes(proven) == {"proven": TRACES}


def test_no_text_of_a_trace_is_code_or_markup(tmp_path: Path, server: ProgrammedServer):
    """A chunk that looks like a command, a path or markup is sent and shown as text."""
    hostile = "<script>alert(1)</script> $(touch hacked) ../../etc/passwd {{ 7*7 }}"
    trace = make_trace(1, "invents if absent", shown=False)
    chunk = Chunk(id="../../x", text=f"{hostile}\nPage 9.")
    text = f"Passages:\n[1] {chunk.text}\n\n[2] {trace.chunks[1].text}\n\nQuestion: {trace.query}"  # type: ignore[index]
    from msgspec.structs import replace as change

    traces = [
        change(
            trace,
            chunks=(chunk, trace.chunks[1]),  # type: ignore[index]
            messages=(trace.messages[0], ConversationTurn(role="user", text=text)),  # type: ignore[index]
        ),
        Trace(id="c", query="Which?", chunks=(Chunk(id="g1", text=trace.metadata["right"]),)),
    ]
    run = evaluate_traces(traces, tmp_path / "run").path
    assert count_outcomes(replay(run, server.url)[1]) == {"proven": 1}
    assert not list(tmp_path.rglob("hacked"))
    assert any(hostile in json.dumps(body, ensure_ascii=False) for body in server.bodies)


def test_the_rule_needs_two_attempts():
    """One attempt proves and refutes nothing, whatever it gave."""
    for right in (0, 1):
        for expected in ("right", "bad"):
            assert decide_proof(expected, AttemptCounts(right, 1, 0, 1), 0.0)[0] == "not decided"  # type: ignore[arg-type]


APP = """
import re
CALLS = []

def answer(query, chunks, history):
    place = re.search(r"museum \\\\d+", query)[0]
    with open("calls.txt", "a") as file:
        file.write(query + "\\\\n")
    times = [re.search(rf"{place} opens at ([\\\\d:]+)", chunk.text) for chunk in chunks]
    time = next((found[1] for found in times if found), "3:33")
    return f"It opens at {time}."

def search(query):
    number = int(re.search(r"\\\\d+", query)[0])
    return [{"id": f"g{number}", "text": f"The museum {number} opens at 9:{10 + number}."}]
"""


def test_an_app_of_the_user_answers_with_its_own_retriever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function of query, chunks and history is asked in place of a model, once for each attempt."""
    run = write_run(tmp_path, "invents if absent")
    (tmp_path / "replayed_app.py").write_text(APP.replace("\\\\", "\\"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGFAULT_CACHE", str(tmp_path / "cache.sqlite"))
    names = ["--app", "replayed_app.py:answer", "--retriever", "replayed_app.py:search"]
    for _ in range(2):
        assert run_command(["replay", str(run), *names]) == 0
    report = load_result(Run.open(run), ReplayReport)
    assert count_outcomes(report) == {"proven": TRACES}
    assert report is not None
    assert {proof.intervention for proof in report.proofs} == {"retrieved again"}
    assert len((tmp_path / "calls.txt").read_text().splitlines()) == 3 * TRACES


def test_a_model_needs_recorded_requests(tmp_path: Path, server: ProgrammedServer):
    """Traces without messages are not replayed on a model, and each says why."""
    from msgspec.structs import replace as change

    traces = [change(make_trace(number, "invents", shown=False), messages=None) for number in range(3)]
    run = evaluate_traces(traces, tmp_path / "run").path
    code, report = replay(run, server.url)
    assert (code, count_outcomes(report)) == (3, {"not replayed": 3})
    assert not server.calls


def test_ci_comments_what_is_proven_within_its_budget(tmp_path: Path, server: ProgrammedServer):
    """The comment has the counts and the answers before and after; a model without a budget is asked nothing."""
    run = write_run(tmp_path, "invents if absent")
    (tmp_path / "ragfault.toml").write_text(
        f'[evaluate]\njudge = "lexical"\nmetrics = ["completeness"]\n[llm]\nbase_url = "{server.url}"\n'
        f'cache = "{tmp_path / "cache.sqlite"}"\n',
        encoding="utf-8",
    )
    traces = tmp_path / "traces.jsonl"
    write_traces(Run.open(run).traces(), traces)
    comment = tmp_path / "comment.md"
    job = ["ci", str(traces), "-o", str(tmp_path / "new"), "--config", str(tmp_path / "ragfault.toml")]
    job += ["--comment", str(comment), "--replay", "openai:m"]
    assert run_command(job) == 2
    assert not server.calls
    assert run_command([*job, "--replay-budget", "100k tokens"]) == 0
    text = comment.read_text(encoding="utf-8")
    assert f"{TRACES} of {TRACES} replayed proven" in text
    assert "It opens at 4:44." in text
    paid = sum(server.paid.values())
    assert run_command([*job, "--replay-budget", "1 tokens"]) == 0
    assert sum(server.paid.values()) == paid


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs signals")
def test_a_killed_replay_goes_on_and_pays_nothing_twice(tmp_path: Path):
    """After kills at several points the result is that of a calm run, and only calls in flight are asked again."""
    with serve_model({}, ProgrammedServer, delay=0.1) as server:
        run = write_run(tmp_path, "invents if absent")
        command = [
            sys.executable,
            "-m",
            "ragfault",
            "replay",
            str(run),
            "--model",
            "openai:m",
            "--base-url",
            server.url,
        ]
        command += ["--cache", str(tmp_path / "cache.sqlite"), "--concurrency", "2"]
        for calls in (3, 8, 13):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
            deadline = time.monotonic() + 120
            while sum(server.calls.values()) < calls and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            process.kill()
            process.wait()
        assert subprocess.run(command, check=False, capture_output=True, env=os.environ).returncode == 0
        assert count_outcomes(load_result(Run.open(run), ReplayReport)) == {"proven": TRACES}
        assert sum(server.paid.values()) <= 3 * TRACES + 3 * 2


def test_a_former_verb_names_the_new_one(capsys: pytest.CaptureFixture[str]):
    assert run_command(["ablate", "run"]) == 2
    assert "replay --agent" in capsys.readouterr().err
