"""A killed paid run resumes: nothing that arrived is paid again, and its budget holds."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from endpoint import make_traces
from installed import skip_without

skip_without("openai", reason="needs the extra llm")

from ragfault.io.runs.run import Run
from ragfault.io.runs.writer import RUN_TABLES
from ragfault.io.trace_writer import write_traces

CONCURRENCY = 8
TRACES = 150
KILLS = 5
WAIT_SECONDS = 120

pytestmark = [pytest.mark.long, pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs signals")]


class Elsewhere:
    """An endpoint in a process of its own."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"

    def counts(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/counts", timeout=30) as reply:
            return dict(json.load(reply))


@contextlib.contextmanager
def elsewhere() -> Iterator[Elsewhere]:
    command = [sys.executable, str(Path(__file__).parents[1] / "support" / "endpoint.py"), "0", "--delay", "0.05"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Elsewhere(int(process.stdout.readline()))
        finally:
            process.kill()


def begun(
    folder: Path, server: Elsewhere, out: str, *flags: str, cache: str = "cache", quiet: bool = True
) -> subprocess.Popen[str]:
    """Start an evaluation by the command line."""
    command = [sys.executable, "-m", "ragfault", "evaluate", "traces.jsonl", "-o", out, "--batch", "8"]
    command += ["-q"] * quiet
    command += ["--judge", "llm:m", "--base-url", server.url, "--concurrency", str(CONCURRENCY), *flags]
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAGFAULT_")}
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**env, "RAGFAULT_CACHE": f"{cache}.sqlite"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def killed(process: subprocess.Popen[str], server: Elsewhere, calls: int) -> None:
    """Kill an evaluation after so many further calls, wherever it then is."""
    target = server.counts()["calls"] + calls
    deadline = time.monotonic() + WAIT_SECONDS
    while server.counts()["calls"] < target and process.poll() is None:
        assert time.monotonic() < deadline, "the evaluation sends no calls"
        time.sleep(0.001)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it ended before it could be killed"


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    message = process.communicate(timeout=300)[1]
    return process.returncode, message


def settled(server: Elsewhere) -> dict[str, Any]:
    """Return the counters of the endpoint once no call is in flight there."""
    before, now = None, server.counts()
    deadline = time.monotonic() + WAIT_SECONDS
    while before != now:
        assert time.monotonic() < deadline, "the endpoint does not come to rest"
        time.sleep(0.2)
        before, now = now, server.counts()
    return now


def tables(path: Path) -> list[bytes]:
    return [(path / f"{name}.parquet").read_bytes() for name in RUN_TABLES]


def test_a_run_killed_five_times_pays_again_for_what_was_under_way_alone(tmp_path: Path):
    """After five kills at random points the run is the very same; calls in flight alone are paid twice, and count."""
    write_traces(make_traces(TRACES), tmp_path / "traces.jsonl")
    draw = random.Random(7)
    with elsewhere() as server:
        assert ended(begun(tmp_path, server, "calm", cache="calm")) == (0, "")
        calm = settled(server)["paid"]
        for _ in range(KILLS):
            killed(begun(tmp_path, server, "run"), server, draw.randint(1, 25))
        code, message = ended(begun(tmp_path, server, "run"))
        assert (code, message) == (0, "")
        paid = settled(server)["paid"] - calm
    assert calm == 2 * TRACES
    assert calm <= paid <= calm + KILLS * CONCURRENCY
    spent = Run.open(tmp_path / "run").manifest.usage
    assert spent is not None
    assert paid <= spent.calls <= calm + KILLS * CONCURRENCY
    assert tables(tmp_path / "run") == tables(tmp_path / "calm")


def test_a_budget_holds_over_kills(tmp_path: Path):
    """However often a run is killed and taken up again, what the endpoint served stays within its budget."""
    write_traces(make_traces(TRACES), tmp_path / "traces.jsonl")
    draw = random.Random(8)
    most = 150_000
    flags = ("--max-tokens", "200", "--budget")
    with elsewhere() as server:
        for _ in range(3):
            killed(begun(tmp_path, server, "run", *flags, f"{most} tokens"), server, draw.randint(1, 8))
        for _ in range(2):
            code, message = ended(begun(tmp_path, server, "run", *flags, f"{most} tokens"))
            assert code == 3
            assert "BudgetExceeded: the budget is spent" in message
            assert settled(server)["tokens"] <= most
        code, message = ended(begun(tmp_path, server, "run", *flags, "2m tokens"))
        assert (code, message) == (0, "")
        assert settled(server)["paid"] <= 2 * TRACES + 3 * CONCURRENCY


def test_an_interrupted_run_keeps_what_was_under_way(tmp_path: Path):
    """Ctrl-C waits for the replies to what was sent: going on afterwards repeats nothing at all."""
    write_traces(make_traces(TRACES), tmp_path / "traces.jsonl")
    with elsewhere() as server:
        process = begun(tmp_path, server, "run", quiet=False)
        deadline = time.monotonic() + WAIT_SECONDS
        while server.counts()["calls"] < 40:
            assert time.monotonic() < deadline, "the evaluation sends no calls"
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        code, message = ended(process)
        assert code == 130, message
        assert "Finished work is kept" in message
        assert "waiting for the replies to calls under way, which are kept" in message
        assert "Traceback" not in message
        assert ended(begun(tmp_path, server, "run")) == (0, "")
        assert settled(server)["paid"] == 2 * TRACES
