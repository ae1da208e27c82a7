"""What judging with a language model costs: calls and tokens a trace, for ragfault and other tools side by side.

    python -m benchmarks.judge_cost --install DIR
    python -m benchmarks.judge_cost --run DIR [--count 20] [--tools ragas deepeval …]

`--install` makes a virtual environment for each other tool below DIR, with the versions named here (about 2 GiB; this
needs the package registry). `--run` has every tool judge the same traces of the demo, five chunks each, with a
reference, by whatever metric of its own answers each of eight questions; ragfault runs from the environment that this
runs in (`pip install 'ragfault[llm]'`). All ask a local endpoint that answers at once and counts: no model is asked
and no other host is reached. Each tool has a process of its own; traces and metrics go one after the other.

Printed: calls and tokens a trace, and the same as ratios to ragfault; the ratio of prices, where a token received
costs as much as four sent; processor time of the tool's process for each call and trace, median of `--rounds`; calls
by metric; and what came of it where every tenth reply was broken off half-way.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from benchmarks.costs.server import Endpoint
from benchmarks.costs.traces import plain, traces

ROOT = Path(__file__).parent.parent
OURS = "ragfault"
SPOIL = 10
"""Every so many replies one is broken off, in the second pass."""
DEARER = 4
"""A token received costs as much as so many sent, with most services."""
LIMIT = 900
"""Seconds for one pass of a tool."""
METRICS = (
    "faithfulness",
    "context_relevance",
    "context_precision",
    "context_recall",
    "answer_relevance",
    "utilisation",
    "attribution",
    "completeness",
)
PEERS = {
    "ragas": ("ragas==0.4.3", "langchain-community==0.3.31", "openai==1.109.1", "instructor==1.3.2"),
    "deepeval": ("deepeval==4.3.1", "openai==3.54.0"),
    "trulens": ("trulens-core==2.16.0", "trulens-feedback==2.16.0", "trulens-providers-openai==2.16.0"),
    "phoenix": ("arize-phoenix-evals==3.9.4", "openai==3.54.0"),
}
"""Tool → what is installed for it. With langchain-community 0.4 ragas 0.4.3 cannot be imported."""
BARE = "deepeval, no reasons"
TOOLS = (OURS, "ragas", "deepeval", BARE, "trulens", "phoenix")
QUIET = {
    "OPENAI_API_KEY": "none",
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "RAGAS_DO_NOT_TRACK": "true",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}
"""No telemetry; a key that opens nothing."""


class Passed(NamedTuple):
    """One pass of a tool over all traces."""

    version: str
    metrics: dict[str, dict[str, Any]]
    """Metric → processor time, and how many values were scored, lost and raised."""
    counts: dict[str, dict[str, int]]
    """Metric → calls and tokens."""

    def total(self, name: str) -> int:
        """Return the sum of a count over all metrics."""
        return sum(results[name] for results in self.counts.values())

    @property
    def price(self) -> int:
        """Tokens, those received as dear as so many sent."""
        return self.total("prompt") + DEARER * self.total("completion")

    @property
    def overhead(self) -> float:
        """Milliseconds of the processor for each call."""
        return 1000 * sum(results["cpu"] for results in self.metrics.values()) / self.total("calls")


def install(folder: Path, tools: Sequence[str]) -> None:
    """Make the environments of other tools."""
    for tool, packages in ((tool, packages) for tool, packages in PEERS.items() if tool in tools):
        venv.create(folder / tool, with_pip=True)
        command = [python(folder, tool), "-m", "pip", "install", "-q", "--no-cache-dir", *packages]
        subprocess.run(command, check=True)
        print(f"{tool}: {', '.join(packages)}", flush=True)


def python(folder: Path, tool: str) -> str:
    """Return the interpreter that a tool runs in."""
    place = "Scripts/python.exe" if os.name == "nt" else "bin/python"
    return sys.executable if tool == OURS else str(folder / tool / place)


def passed(tool: str, folder: Path, file: Path, spoil: int) -> Passed:
    """Run a tool over the traces of a file, in a process of its own."""
    name = tool.partition(",")[0]
    environment = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT), "WITH_REASONS": "no" if tool == BARE else "yes"}
    with Endpoint(json.loads(file.read_text(encoding="utf-8")), spoil=spoil) as endpoint:
        command = [python(folder, name), "-m", f"benchmarks.costs.run_{name}", str(file), endpoint.url]
        done = subprocess.run(
            command, capture_output=True, cwd=file.parent, env=environment, timeout=LIMIT, check=False
        )  # fmt: skip
        if done.returncode or not done.stdout:
            sys.exit(f"{tool} failed:\n{done.stderr.decode(errors='replace')[-3000:]}")
        message = json.loads(done.stdout)
        if message["refused"]:
            print(f"{tool} asked in vain for {message['refused']}", file=sys.stderr)
        return Passed(message["version"], message["metrics"], endpoint.get_counts())


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def ratio(value: float, ours: float | None) -> str:
    """Return the ratio to our count."""
    return f"{value / ours:.1f}" if ours else "–"


def costs(results: dict[str, Passed], cpu: dict[str, float], count: int) -> None:
    """Print calls and tokens a trace, and as ratios."""
    ours = results.get(OURS)
    rows = []
    for tool, row in results.items():
        answered = len(METRICS) if tool == OURS else len(row.metrics)
        cells = [f"{tool} ({row.version.split()[-1]})", f"{answered} of {len(METRICS)}"]
        for name in ("calls", "prompt", "completion"):
            value = row.total(name)
            cells += [f"{value / count:,.1f}" if name == "calls" else f"{value / count:,.0f}"]
            cells += [ratio(value, ours.total(name) if ours else None)]
        cells += [ratio(row.price, ours.price if ours else None)]
        cpu_per_trace = f"{cpu[tool] * row.total('calls') / count:.0f}"
        rows.append([*cells, f"{row.total('embeddings') / count:.0f}", f"{cpu[tool]:.1f}", cpu_per_trace])
    head = (
        "tool", "metrics", "calls/trace", "×", "prompt tokens/trace", "×", "completion tokens/trace", "×",
        "price ×", "embedding calls/trace", "CPU ms/call", "CPU ms/trace",
    )  # fmt: skip
    table(head, rows)


def by_metric(results: dict[str, Passed], count: int) -> None:
    """Print the calls a trace of each metric."""
    others = {tool: row for tool, row in results.items() if tool != OURS}
    rows = [
        [
            metric,
            *(
                f"{row.counts.get(metric, {}).get('calls', 0) / count:.1f}" if metric in row.metrics else "none"
                for row in others.values()
            ),
        ]
        for metric in METRICS
    ]
    table(("metric", *others), rows)


def spoilt(results: dict[str, Passed], clean: dict[str, Passed]) -> None:
    """Print what came of broken replies."""
    rows = []
    for tool, row in results.items():
        ends: Counter[str] = Counter(other=others(row, clean[tool]))
        for metric in row.metrics.values():
            ends.update({name: metric.get(name, 0) for name in ("scored", "lost", "raised")})
        ends["same"] = ends["scored"] - ends["other"]
        total = ends["scored"] + ends["lost"] + ends["raised"]
        more = row.total("calls") - clean[tool].total("calls")
        cells = [tool, f"{row.total('spoilt')} of {row.total('calls')}", f"{more:+d}"]
        rows.append([*cells, *(f"{ends[name] / total:.1%}" for name in ("same", "other", "lost", "raised"))])
    head = ("tool", "replies broken", "calls more", "same value", "another value", "NaN or none", "an exception")
    table(head, rows)


def others(row: Passed, clean: Passed) -> int:
    """Count the values that differ from the clean pass."""
    return sum(
        left is not None and right is not None and left >= 0 and abs(left - right) > 1e-9
        for name, metric in row.metrics.items()
        for pair in zip(metric["values"], clean.metrics[name]["values"], strict=True)
        for left, right in zip(*pair, strict=False)
    )


def measure(folder: Path, tools: Sequence[str], count: int, rounds: int) -> None:
    """Run all and print the tables."""
    sample = traces(count + 1)
    with tempfile.TemporaryDirectory() as path:
        file = Path(path, "traces.json")
        file.write_text(json.dumps([plain(trace) for trace in sample]), encoding="utf-8")
        file.with_suffix(".whole.json").write_bytes(msgspec.json.encode(sample))
        turns: dict[str, list[Passed]] = {tool: [] for tool in tools}
        for _ in range(rounds):
            for tool in tools:
                turns[tool].append(passed(tool, folder, file, 0))
        clean = {tool: passes[0] for tool, passes in turns.items()}
        broken = {tool: passed(tool, folder, file, SPOIL) for tool in tools}
    sample = sample[:-1]
    size = statistics.mean(sum(len(chunk.text) for chunk in trace.chunks or ()) for trace in sample)
    claims = statistics.mean(len(plain(trace)["said"]) for trace in sample)
    print(f"{len(sample)} traces: 5 chunks with {size:,.0f} characters, {claims:.1f} claims, a reference each")
    cpu = {tool: statistics.median(row.overhead for row in passes) for tool, passes in turns.items()}
    costs(clean, cpu, len(sample))
    by_metric(clean, len(sample))
    spoilt(broken, clean)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.judge_cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--install", type=Path, metavar="DIR")
    what.add_argument("--run", type=Path, metavar="DIR")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS)
    options = parser.parse_args()
    if options.install:
        install(options.install, options.tools)
    else:
        measure(options.run, options.tools, options.count, options.rounds)


if __name__ == "__main__":
    main()
