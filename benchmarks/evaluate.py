"""Traces a second of `ragfault evaluate` with the full default metric set and the embedded judge.

    python benchmarks/evaluate.py [TRACES] [--map FIELD=COLUMN …] [--count N] [--memory]

Without TRACES the demo handbook is repeated. Times whole processes with 1 and 2 workers, in five rounds that
alternate. With --memory, the peak memory of the largest process for N and 10 N traces.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from ragfault.io import read_traces, write_traces
from ragfault.io.datasets import load_handbook
from ragfault.records import Trace

ROUNDS = 5


def sample(where: str | None, maps: dict[str, str] | None) -> list[Trace]:
    """Return the traces to repeat."""
    return list(read_traces(where, map=maps)) if where else list(load_handbook().traces["v1"])


def repeated(traces: list[Trace], count: int) -> Iterator[Trace]:
    """Yield the traces again and again, under ids of their own, up to a count."""
    for number, trace in zip(range(count), itertools.cycle(traces), strict=False):
        yield replace(trace, id=f"{number}")


def evaluate(path: Path, out: Path, workers: int) -> float:
    """Return the wall-clock seconds of one evaluation."""
    command = [sys.executable, "-m", "ragfault", "evaluate", str(path), "-o", str(out), "-q", "--force"]
    start = time.perf_counter()
    subprocess.run([*command, "--workers", str(workers)], check=True)
    return time.perf_counter() - start


def peak(path: Path, out: Path) -> float:
    """Return the MiB of the largest process of one evaluation, measured by a process that runs nothing else."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    command = [sys.executable, "-m", "ragfault", "evaluate", str(path), "-o", str(out), "-q", "--force"]
    done = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("traces", nargs="?")
    parser.add_argument("--map", action="append", default=[], metavar="FIELD=COLUMN")
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--memory", action="store_true")
    asked = parser.parse_args()
    traces = sample(asked.traces, dict(pair.split("=", 1) for pair in asked.map) or None)
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "traces.jsonl"), Path(folder, "run")
        write_traces(repeated(traces, asked.count), path)
        if asked.memory:
            print("| traces | peak memory of the largest process |\n|---|---|")
            for count in (asked.count, 10 * asked.count):
                write_traces(repeated(traces, count), path, force=True)
                print(f"| {count:,} | {peak(path, out):,.0f} MiB |")
            return
        spent: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(ROUNDS):
            for workers, times in spent.items():
                times.append(evaluate(path, out, workers))
        print(f"{asked.count:,} traces, default metrics, embedded judge, whole process:\n")
        print("| workers | seconds, median | traces/s |\n|---|---|---|")
        for workers, times in spent.items():
            middle = statistics.median(times)
            print(f"| {workers} | {middle:.1f} | {asked.count / middle:,.0f} |")
        print(f"\n2 workers are {statistics.median(spent[1]) / statistics.median(spent[2]):.2f} × as fast as 1.")


if __name__ == "__main__":
    main()
