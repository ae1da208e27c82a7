"""Batch endpoints: the same verdicts as by single calls, at their price, within the budget, nothing paid twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from endpoint import make_traces
from installed import skip_without

skip_without("openai", reason="needs the extra llm")

from batch_endpoint import serve_batches
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.io.trace_writer import write_traces
from ragfault.judges.llm.judge import LLMJudge
from ragfault.judges.llm.settings import build_settings
from ragfault.judges.llm.transport.budget import load_cost_function
from ragfault.model.errors import BudgetExceeded, JudgeStopped, UsageError

MODELS = ["m", "anthropic/m"]


def run_evaluation(folder, server, traces, name="run", model="m", notices=None, **options):
    """Evaluate by a batch endpoint."""
    given = {"base_url": server.url, "cache": str(folder / "cache.sqlite"), "batch_api": True, **options}
    notify = (lambda _: None) if notices is None else notices.append
    return evaluate(traces, folder / name, judge=f"llm:{model}", options=given, on_notice=notify)


def read_scores(run):
    return [(score.trace, score.metric, score.status, score.value) for score in run.scores()]


@pytest.mark.parametrize("model", MODELS)
def test_same_scores_as_single_calls(tmp_path, model):
    """A run by batches has the scores of a run by single calls, and hardly any call was made alone."""
    traces = make_traces(12)
    with serve_batches() as server:
        notices = []
        run = run_evaluation(tmp_path, server, traces, model=model, notices=notices)
        alone = sum(server.live.values())
        single = run_evaluation(
            tmp_path, server, traces, "single", model, cache=str(tmp_path / "other.sqlite"), batch_api=False
        )
    assert alone == (0 if model.startswith("anthropic") else 1)
    assert sum(server.batched.values()) == 24 - alone
    assert read_scores(run) == read_scores(single)
    assert run.manifest.usage.calls == single.manifest.usage.calls == 24
    assert any("23 calls sent" in line or "24 calls sent" in line for line in notices)


def test_keys_of_each_protocol(tmp_path, monkeypatch):
    """The key goes into the header of the protocol, and into no other."""
    monkeypatch.setenv("RAGFAULT_LLM_API_KEY", "sk-secret-1")
    for model, header, other in (("m", "authorization", "x-api-key"), ("anthropic/m", "x-api-key", "authorization")):
        with serve_batches() as server:
            run_evaluation(tmp_path, server, make_traces(2), model.replace("/", "-"), model)
        batch = server.headers[-1]
        assert "sk-secret-1" in batch[header]
        assert other not in batch


@pytest.mark.parametrize("model", MODELS)
def test_a_redirect_takes_no_key_elsewhere(tmp_path, monkeypatch, model):
    """An endpoint that redirects gives no reply, and the place that it names gets no request."""
    monkeypatch.setenv("RAGFAULT_LLM_API_KEY", "sk-secret-1")
    with serve_batches() as other:

        class Redirect(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(302)
                self.send_header("Location", f"{other.url}{self.path}")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        with HTTPServer(("localhost", 0), Redirect) as redirect:
            threading.Thread(target=redirect.serve_forever, args=(0.01,), daemon=True).start()
            url = f"http://localhost:{redirect.server_port}"
            judge = LLMJudge(model, base_url=url, batch_api=True, cache=str(tmp_path / "cache.sqlite"))
            with pytest.raises(JudgeStopped, match="302"):
                judge.fetch_in_batches(lambda: make_traces(2))
            redirect.shutdown()
        assert other.headers == []


@pytest.mark.parametrize("model", MODELS)
def test_failed_calls_are_sent_again(tmp_path, model):
    """Calls that a batch leaves unanswered go into a second batch, and then are made alone; no score is lost."""
    with serve_batches() as server:
        server.errors, notices = 2, []
        run = run_evaluation(tmp_path, server, make_traces(5), model=model, notices=notices)
    assert {score.status for score in run.scores() if score.metric == "groundedness"} == {"scored"}
    assert len(server.batches) == 2
    assert any("2 were not answered (no capacity)" in line for line in notices)
    assert max(server.batched.values()) == 1


@pytest.mark.parametrize("model", MODELS)
def test_a_lost_reply_to_a_creation(tmp_path, model):
    """A batch whose creation broke off is found again, and not created twice."""
    with serve_batches(looks=3) as server:
        server.break_after_create = 1
        run_evaluation(tmp_path, server, make_traces(4), model=model)
    assert len(server.batches) == 1


def test_the_price_is_halved_where_the_catalog_has_it():
    """The catalog's price is halved, a configured one is not."""
    known = build_settings("gpt-4o-mini")
    full, half = load_cost_function(known), load_cost_function(known, batch=True)
    assert half(1_000_000, 1000) == -(-full(1_000_000, 1000) // 2) > 0
    own = build_settings("gpt-4o-mini", price=(1.0, 2.0))
    assert load_cost_function(own, batch=True)(1000, 10) == load_cost_function(own)(1000, 10)


def test_the_budget_holds(tmp_path):
    """Of calls that the budget does not allow none is sent, and the same command with more goes on."""
    traces = make_traces(40)
    with serve_batches() as server:
        server.prompt = 2000
        with pytest.raises(BudgetExceeded):
            run_evaluation(tmp_path, server, traces, price=(1.0, 1.0), budget=0.1, max_tokens=100)
        calls = server.batched + server.live
        assert 20 < sum(calls.values()) <= 0.1 / 2020e-6
        assert len(server.batches) < 4
        run = run_evaluation(tmp_path, server, traces, price=(1.0, 1.0), budget=1.0, max_tokens=100)
    assert run.manifest.traces == 40
    assert max((server.batched + server.live).values()) == 1
    assert run.manifest.usage.cost == pytest.approx(80 * 2020e-6)


def test_what_cannot_be(tmp_path):
    """Without a cache, and at a provider without known batches, it is an error of usage."""
    with pytest.raises(UsageError, match="stores its replies in the cache"):
        LLMJudge("m", base_url="http://127.0.0.1:1/v1", batch_api=True, cache="none").observe(make_traces(1))
    judge = LLMJudge("ollama/m", batch_api=True, cache=str(tmp_path / "cache.sqlite"))
    with pytest.raises(UsageError, match="batches of ollama"):
        judge.fetch_in_batches(lambda: make_traces(1))


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs signals")
@pytest.mark.parametrize("model", MODELS)
def test_a_killed_command_pays_nothing_twice(tmp_path, model):
    """A command killed while it waits for its batch finds the batch again, and no call is made twice."""
    write_traces(make_traces(20), tmp_path / "traces.jsonl")
    support = Path(__file__).parents[1] / "support"
    with subprocess.Popen(
        [sys.executable, str(support / "batch_endpoint.py")], stdout=subprocess.PIPE, text=True, cwd=support
    ) as process:
        try:
            url = process.stdout.readline().strip()
            command = [sys.executable, "-m", "ragfault", "evaluate", "traces.jsonl", "-o", "run", "-q", "--batch-api"]
            command += ["--judge", f"llm:{model}", "--base-url", url, "--cache", "cache.sqlite"]
            for _ in range(3):
                killed = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
                wait_for(lambda: ask(url, "counts")["batches"] == 1)
                time.sleep(1)
                killed.kill()
                killed.communicate()
            ask(url, "release")
            subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
            counts = ask(url, "counts")
        finally:
            process.kill()
    alone = 0 if model.startswith("anthropic") else 1
    assert counts == {"live": alone, "batches": 1, "different": 40 - alone, "most": 1}
    assert Run.open(tmp_path / "run").manifest.usage.calls == 40


def ask(url, name):
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/{name}", timeout=30) as reply:
        return json.load(reply)


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)
