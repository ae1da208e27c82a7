"""Measure the cost of judging with a language model: calls and tokens a trace, for ragfault and other tools.

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

from benchmarks.costs.server import CountingEndpoint
from benchmarks.costs.traces import export_plain, make_traces

ROOT = Path(__file__).parent.parent
RAGFAULT = "ragfault"
BROKEN_REPLY_INTERVAL = 10
"""In the second pass, one of so many replies is broken off."""
COMPLETION_PRICE_RATIO = 4
"""Price of a received token over that of a sent one, with most services."""
TIMEOUT_SECONDS = 900
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
DEEPEVAL_WITHOUT_REASONS = "deepeval, no reasons"
TOOLS = (RAGFAULT, "ragas", "deepeval", DEEPEVAL_WITHOUT_REASONS, "trulens", "phoenix")
TOOL_ENVIRONMENT = {
    "OPENAI_API_KEY": "none",
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "RAGAS_DO_NOT_TRACK": "true",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}
"""Environment of the tools: no telemetry, and a key that is not valid anywhere."""


class ToolRun(NamedTuple):
    """Result of one pass of a tool over all traces."""

    version: str
    metrics: dict[str, dict[str, Any]]
    """Metric → processor time, and how many values were scored, lost and raised."""
    counts: dict[str, dict[str, int]]
    """Metric → calls and tokens."""

    def sum_counts(self, name: str) -> int:
        """Return the sum of a count over all metrics."""
        return sum(results[name] for results in self.counts.values())

    @property
    def weighted_tokens(self) -> int:
        """Tokens, weighted by their price in sent tokens."""
        return self.sum_counts("prompt") + COMPLETION_PRICE_RATIO * self.sum_counts("completion")

    @property
    def cpu_ms_per_call(self) -> float:
        """Processor milliseconds of the tool's process for each call."""
        return 1000 * sum(results["cpu"] for results in self.metrics.values()) / self.sum_counts("calls")


def install_tools(folder: Path, tools: Sequence[str]) -> None:
    """Create a virtual environment for each of the other tools."""
    for tool, packages in ((tool, packages) for tool, packages in PEERS.items() if tool in tools):
        venv.create(folder / tool, with_pip=True)
        command = [get_interpreter(folder, tool), "-m", "pip", "install", "-q", "--no-cache-dir", *packages]
        subprocess.run(command, check=True)
        print(f"{tool}: {', '.join(packages)}", flush=True)


def get_interpreter(folder: Path, tool: str) -> str:
    """Return the path of the interpreter in which a tool runs."""
    path = "Scripts/python.exe" if os.name == "nt" else "bin/python"
    return sys.executable if tool == RAGFAULT else str(folder / tool / path)


def run_tool(tool: str, folder: Path, file: Path, broken_interval: int) -> ToolRun:
    """Run a tool over the traces of a file, in a process of its own."""
    name = tool.partition(",")[0]
    environment = {
        **os.environ,
        **TOOL_ENVIRONMENT,
        "PYTHONPATH": str(ROOT),
        "WITH_REASONS": "no" if tool == DEEPEVAL_WITHOUT_REASONS else "yes",
    }
    with CountingEndpoint(json.loads(file.read_text(encoding="utf-8")), spoil=broken_interval) as endpoint:
        command = [get_interpreter(folder, name), "-m", f"benchmarks.costs.run_{name}", str(file), endpoint.url]
        done = subprocess.run(
            command, capture_output=True, cwd=file.parent, env=environment, timeout=TIMEOUT_SECONDS, check=False
        )
        if done.returncode or not done.stdout:
            sys.exit(f"{tool} failed:\n{done.stderr.decode(errors='replace')[-3000:]}")
        message = json.loads(done.stdout)
        if message["refused"]:
            print(f"{tool} asked in vain for {message['refused']}", file=sys.stderr)
        return ToolRun(message["version"], message["metrics"], endpoint.get_counts())


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def format_ratio(value: float, reference: float | None) -> str:
    """Format the ratio to a reference count, or a dash without one."""
    return f"{value / reference:.1f}" if reference else "–"


def print_costs(results: dict[str, ToolRun], cpu: dict[str, float], count: int) -> None:
    """Print calls, tokens and processor time a trace, and their ratios to ragfault."""
    reference = results.get(RAGFAULT)
    rows = []
    for tool, row in results.items():
        answered = len(METRICS) if tool == RAGFAULT else len(row.metrics)
        cells = [f"{tool} ({row.version.split()[-1]})", f"{answered} of {len(METRICS)}"]
        for name in ("calls", "prompt", "completion"):
            value = row.sum_counts(name)
            cells += [f"{value / count:,.1f}" if name == "calls" else f"{value / count:,.0f}"]
            cells += [format_ratio(value, reference.sum_counts(name) if reference else None)]
        cells += [format_ratio(row.weighted_tokens, reference.weighted_tokens if reference else None)]
        cpu_per_trace = f"{cpu[tool] * row.sum_counts('calls') / count:.0f}"
        rows.append([*cells, f"{row.sum_counts('embeddings') / count:.0f}", f"{cpu[tool]:.1f}", cpu_per_trace])
    head = (
        "tool", "metrics", "calls/trace", "×", "prompt tokens/trace", "×", "completion tokens/trace", "×",
        "price ×", "embedding calls/trace", "CPU ms/call", "CPU ms/trace",
    )  # fmt: skip
    print_table(head, rows)


def print_calls_by_metric(results: dict[str, ToolRun], count: int) -> None:
    """Print the calls a trace by metric, of the other tools."""
    peers = {tool: row for tool, row in results.items() if tool != RAGFAULT}
    rows = [
        [
            metric,
            *(
                f"{row.counts.get(metric, {}).get('calls', 0) / count:.1f}" if metric in row.metrics else "none"
                for row in peers.values()
            ),
        ]
        for metric in METRICS
    ]
    print_table(("metric", *peers), rows)


def print_broken_replies(results: dict[str, ToolRun], clean: dict[str, ToolRun]) -> None:
    """Print the outcomes of the pass in which replies were broken off."""
    rows = []
    for tool, row in results.items():
        outcomes: Counter[str] = Counter(other=count_changed_values(row, clean[tool]))
        for metric in row.metrics.values():
            outcomes.update({name: metric.get(name, 0) for name in ("scored", "lost", "raised")})
        outcomes["same"] = outcomes["scored"] - outcomes["other"]
        total = outcomes["scored"] + outcomes["lost"] + outcomes["raised"]
        extra_calls = row.sum_counts("calls") - clean[tool].sum_counts("calls")
        cells = [tool, f"{row.sum_counts('spoilt')} of {row.sum_counts('calls')}", f"{extra_calls:+d}"]
        rows.append([*cells, *(f"{outcomes[name] / total:.1%}" for name in ("same", "other", "lost", "raised"))])
    head = ("tool", "replies broken", "calls more", "same value", "another value", "NaN or none", "an exception")
    print_table(head, rows)


def count_changed_values(row: ToolRun, clean: ToolRun) -> int:
    """Count the values that differ from the clean pass."""
    return sum(
        left is not None and right is not None and left >= 0 and abs(left - right) > 1e-9
        for name, metric in row.metrics.items()
        for pair in zip(metric["values"], clean.metrics[name]["values"], strict=True)
        for left, right in zip(*pair, strict=False)
    )


def measure_tools(folder: Path, tools: Sequence[str], count: int, rounds: int) -> None:
    """Run all tools by turns and print the tables."""
    sample = make_traces(count + 1)
    with tempfile.TemporaryDirectory() as path:
        file = Path(path, "traces.json")
        file.write_text(json.dumps([export_plain(trace) for trace in sample]), encoding="utf-8")
        file.with_suffix(".whole.json").write_bytes(msgspec.json.encode(sample))
        runs: dict[str, list[ToolRun]] = {tool: [] for tool in tools}
        for _ in range(rounds):
            for tool in tools:
                runs[tool].append(run_tool(tool, folder, file, 0))
        clean_runs = {tool: passes[0] for tool, passes in runs.items()}
        broken_runs = {tool: run_tool(tool, folder, file, BROKEN_REPLY_INTERVAL) for tool in tools}
    sample = sample[:-1]
    size = statistics.mean(sum(len(chunk.text) for chunk in trace.chunks or ()) for trace in sample)
    claims = statistics.mean(len(export_plain(trace)["said"]) for trace in sample)
    print(f"{len(sample)} traces: 5 chunks with {size:,.0f} characters, {claims:.1f} claims, a reference each")
    cpu = {tool: statistics.median(row.cpu_ms_per_call for row in passes) for tool, passes in runs.items()}
    print_costs(clean_runs, cpu, len(sample))
    print_calls_by_metric(clean_runs, len(sample))
    print_broken_replies(broken_runs, clean_runs)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.judge_cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--install", type=Path, metavar="DIR")
    action.add_argument("--run", type=Path, metavar="DIR")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS)
    options = parser.parse_args()
    if options.install:
        install_tools(options.install, options.tools)
    else:
        measure_tools(options.run, options.tools, options.count, options.rounds)


if __name__ == "__main__":
    main()
