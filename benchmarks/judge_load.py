"""Measure the LLM judge under load: traces a second, CPU a call and memory, and the outcomes of faults.

    python benchmarks/judge_load.py [--count 10000] [--concurrency 64] [--delay 0.0] [--faults]

Evaluates traces of two calls each against an endpoint on this machine, in a process of its own, which answers by rule
(tests/support/endpoint.py). With --faults a fifth of all tries is refused, cut, malformed, slow or wrong; then what was
answered is counted: each question once, and every trace × metric with a row.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

ENDPOINT = Path(__file__).parents[1] / "tests" / "support" / "endpoint.py"
sys.path.insert(0, str(ENDPOINT.parent))

from endpoint import make_traces  # noqa: E402 - from the folder of the tests' support
from ragfault.evaluation.evaluator import evaluate  # noqa: E402
from ragfault.io.runs.run import Run  # noqa: E402

FAULTS = {
    "429": 0.04,
    "500": 0.04,
    "503": 0.02,
    "cut": 0.03,
    "malformed": 0.03,
    "wrong": 0.01,
    "unmetered": 0.01,
    "garbage": 0.01,
    "slow": 0.002,
    "filter": 0.008,
}


def start_endpoint(faults: dict[str, float], delay: float) -> tuple[subprocess.Popen[str], str]:
    """Start the endpoint in a process of its own; return the process and its URL."""
    command = [sys.executable, str(ENDPOINT), "0", "--delay", str(delay)]
    process = subprocess.Popen([*command, "--faults", json.dumps(faults)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, f"http://127.0.0.1:{int(process.stdout.readline())}/v1"


def read_counters(url: str) -> dict[str, Any]:
    """Return the counters that the endpoint reports."""
    with urllib.request.urlopen(f"{url}/counts") as reply:
        return dict(json.load(reply))


def print_figures(run: Run, counts: dict[str, Any], wall: float, cpu: float) -> None:
    """Print the figures of a run beside the counters of the endpoint."""
    manifest, usage = run.manifest, run.manifest.usage
    assert usage is not None
    rows = {
        "traces": f"{manifest.traces:,}",
        "calls at the endpoint (tries)": f"{counts['calls']:,}",
        "charged for at the endpoint": f"{counts['paid']:,}",
        "charged for by the run's count": f"{usage.calls:,}",
        "questions answered": f"{counts['different']:,}",
        "answers that arrived": f"{counts['delivered']:,}",
        "rows (traces × metrics)": f"{manifest.scored + manifest.undefined + manifest.failed:,}",
        "of which failed, each with its reason": f"{manifest.failed:,}",
        "seconds": f"{wall:.1f}",
        "traces/s": f"{manifest.traces / wall:,.0f}",
        "calls/s": f"{counts['calls'] / wall:,.0f}",
        "CPU of the client, ms a call (metrics and files included)": f"{1000 * cpu / counts['calls']:.2f}",
        "peak memory of the client": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB",
        "most calls under way": f"{counts['most']:,}",
        "tokens served, and by the run's count": f"{counts['tokens']:,}, {usage.prompt + usage.completion:,}",
    }
    print("| | |\n|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")
    failed = [score for score in run.scores() if score.status == "failed"]
    assert len(list(run.scores())) == manifest.traces * len(manifest.metrics)
    assert all(score.reason for score in failed)
    for reason, count in Counter(score.reason for score in failed).most_common(5):
        print(f"\n{count:,} failed: {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="traces (10,000)")
    parser.add_argument("--concurrency", type=int, default=64, help="calls at once (64)")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that the endpoint thinks (0)")
    parser.add_argument("--faults", action="store_true", help="a fifth of the tries meets a fault")
    arguments = parser.parse_args()
    process, url = start_endpoint(FAULTS if arguments.faults else {}, arguments.delay)
    try:
        with tempfile.TemporaryDirectory() as folder:
            options = {
                "base_url": url,
                "concurrency": arguments.concurrency,
                "timeout": 5.0,
                "tries": 8,
                "cache": f"{folder}/cache.sqlite",
            }
            wall, cpu = time.perf_counter(), time.process_time()
            run = evaluate(make_traces(arguments.count), Path(folder, "run"), judge="llm:m", options=options)
            print_figures(run, read_counters(url), time.perf_counter() - wall, time.process_time() - cpu)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
