"""Measure the cost of an evaluation by the number of traces and machines: time, memory, and the overhead of a cluster.

    python -m benchmarks.scale linear [--counts 10000 100000 1000000] [--workers 1 2] [--judge none]
    python -m benchmarks.scale cluster [--count 10000] [--judge embedded] [--rounds 3]
    python -m benchmarks.scale lost [--count 10000] [--judge embedded]

The traces are those of the demo, varied. `linear` evaluates so many of them in processes of their own; with
`--judge none`, by five metrics that read no verdict. `cluster` sets a Ray cluster of two nodes on this machine, one
processor each, against two worker processes, in rounds that alternate; what starting the cluster takes stands
apart. `lost` kills a worker and removes a node while they work, and compares the tables with those of one process.
For each: traces a second, processor time for a trace in all processes together (which neighbours on the machine
disturb less), and the peak memory of the largest process and of the one that drives.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.io.trace_writer import write_traces
from ragfault.metrics.selection import DEFAULT_METRICS
from ragfault.model.records import Trace

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
OBJECT_STORE_BYTES = 100 * 2**20
UNJUDGED = ["recall@5", "ndcg@10", "latency", "error", "empty_retrieval"]
"""Some metrics that read no verdict."""
TABLES = ("traces", "verdicts", "causes", "scores")


# --- traces ----------------------------------------------------------------------------------------


def vary_demo_traces(count: int) -> Iterator[Trace]:
    """Yield traces of the demo with other numbers, chunks in other orders and ids of their own."""
    chance = random.Random(0)
    traces = [trace for version in load_handbook().traces.values() for trace in version]
    for number, trace in zip(range(count), itertools.cycle(traces), strict=False):
        chunks = list(trace.chunks or ())
        if number % 3 == 0:
            chance.shuffle(chunks)
        if chunks:
            chunks[-1] = replace(chunks[-1], text=f"{chunks[-1].text} As of {chance.randrange(1000, 9999)}.")
        yield replace(
            trace,
            id=f"{number:09d}",
            query=f"{trace.query} (case {number})",
            chunks=None if trace.chunks is None else tuple(chunks),
            metadata={"shop": number % 40},
        )


# --- watching --------------------------------------------------------------------------------------


class ProcessUsage(NamedTuple):
    """Resources that a tree of processes used."""

    seconds: float
    cpu_seconds: float
    largest_memory: float
    """MiB of the largest process at its peak."""
    driver_memory: float
    """MiB of the first process at its peak."""


class ProcessMonitor:
    """Recorder of the resources of a process and its descendants, from /proc, until it is stopped."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.cpu_seconds: dict[int, float] = {}
        self.peak: dict[int, float] = {}
        self.before: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.record_usage()
        self.before = dict(self.cpu_seconds)
        self.start = time.perf_counter()
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            self.record_usage()

    def record_usage(self) -> None:
        """Record the processor time and the peak memory of every process of the tree."""
        parents: dict[int, int] = {}
        times: dict[int, float] = {}
        for place in Path("/proc").iterdir():
            if place.name.isdigit():
                try:
                    fields = (place / "stat").read_text().rsplit(") ", 1)[1].split()
                except OSError:
                    continue
                parents[int(place.name)] = int(fields[1])
                times[int(place.name)] = (int(fields[11]) + int(fields[12])) / CLOCK_TICKS
        for pid in list_descendants(parents, self.root):
            self.cpu_seconds[pid] = times[pid]
            self.peak[pid] = max(self.peak.get(pid, 0), read_peak_memory(pid))

    def stop(self) -> ProcessUsage:
        """Stop recording and return the resources used since the start."""
        seconds = time.perf_counter() - self.start
        self._stop.set()
        self._thread.join()
        self.record_usage()
        spent = sum(value - self.before.get(pid, 0) for pid, value in self.cpu_seconds.items())
        return ProcessUsage(seconds, spent, max(self.peak.values()), self.peak[self.root])


def list_descendants(parents: dict[int, int], root: int) -> set[int]:
    """Return a process and all its descendants."""
    processes = {root} & parents.keys()
    while children := {pid for pid, above in parents.items() if above in processes} - processes:
        processes |= children
    return processes


def read_peak_memory(pid: int) -> float:
    """Return the peak memory of a process in MiB."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    match = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(match[1]) / 1024 if match else 0


def build_command(path: Path, out: Path, judge: str, workers: int) -> list[str]:
    """Return the command line of an evaluation."""
    metrics = UNJUDGED if judge == "none" else DEFAULT_METRICS
    flags = [part for name in metrics for part in ("-m", str(name))]
    start = [sys.executable, "-m", "ragfault", "evaluate", str(path), "-o", str(out), "-q", "--force"]
    return [*start, "--judge", judge, "-w", str(workers), *flags]


def measure_evaluation(path: Path, out: Path, judge: str, workers: int) -> ProcessUsage:
    """Measure an evaluation in a process of its own."""
    process = subprocess.Popen(build_command(path, out, judge, workers))
    monitor = ProcessMonitor(process.pid)
    process.wait()
    usage = monitor.stop()
    if process.returncode:
        raise SystemExit(process.returncode)
    return usage


def format_row(name: str, count: int, usage: ProcessUsage) -> str:
    """Format a line of the table."""
    rate, milliseconds = count / usage.seconds, 1000 * usage.cpu_seconds / count
    return (
        f"| {name} | {count:,} | {usage.seconds:,.1f} | {rate:,.0f} | {milliseconds:.2f} "
        f"| {usage.driver_memory:,.0f} | {usage.largest_memory:,.0f} |"
    )


HEAD = (
    "| where | traces | seconds | traces/s | CPU ms a trace | driver, peak MiB | largest process, peak MiB |\n"
    "|---|---|---|---|---|---|---|"
)


# --- the three tasks -------------------------------------------------------------------------------


def measure_linear_cost(options: argparse.Namespace, folder: Path) -> None:
    """Measure the cost of a trace at each count."""
    print(f"judge {options.judge}, load {os.getloadavg()[0]:.1f}\n\n{HEAD}", flush=True)
    for count in options.counts:
        path = folder / "traces.jsonl"
        write_traces(vary_demo_traces(count), path, force=True)
        for workers in options.workers:
            usage = measure_evaluation(path, folder / "run", options.judge, workers)
            print(format_row(f"{workers} worker{'s' * (workers > 1)}", count, usage), flush=True)
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")


def start_cluster() -> Any:
    """Start a Ray cluster of two nodes on this machine, one processor each; return it and the second node."""
    # Ray gives its workers a low priority; on a machine that others share, that would be measured.
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    from ray.cluster_utils import Cluster

    given = {"num_cpus": 1, "object_store_memory": OBJECT_STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={**given, "include_dashboard": False})
    second = cluster.add_node(**given)
    cluster.wait_for_nodes()
    return cluster, second


def measure_on_ray(
    address: str, path: Path, out: Path, judge: str, progress: Callable[[int, int], None] = lambda *_: None
) -> ProcessUsage:
    """Measure an evaluation on a cluster, including the cluster's own processes."""
    from ragfault.evaluation.evaluator import evaluate
    from ragfault.executors import RayExecutor

    monitor = ProcessMonitor(os.getpid())
    evaluate(
        path,
        out,
        judge=judge,
        metrics=UNJUDGED if judge == "none" else "default",
        executor=RayExecutor(address),
        force=True,
        on_progress=progress,
    )
    return monitor.stop()


def is_equal(first: Path, second: Path) -> bool:
    """Return whether the tables of two runs are equal, byte for byte."""
    return all((first / f"{n}.parquet").read_bytes() == (second / f"{n}.parquet").read_bytes() for n in TABLES)


def compare_cluster(options: argparse.Namespace, folder: Path) -> None:
    """Compare a Ray cluster with plain worker processes."""
    path = folder / "traces.jsonl"
    write_traces(vary_demo_traces(options.count), path)
    start = time.perf_counter()
    ray_cluster, _ = start_cluster()
    print(f"two nodes are there after {time.perf_counter() - start:.1f} s; judge {options.judge}\n\n{HEAD}", flush=True)
    ratios: list[tuple[float, float]] = []
    for _ in range(options.rounds):
        pool_usage = measure_evaluation(path, folder / "pool", options.judge, 2)
        print(format_row("2 processes", options.count, pool_usage), flush=True)
        ray_usage = measure_on_ray(ray_cluster.address, path, folder / "ray", options.judge)
        print(format_row("2 Ray nodes", options.count, ray_usage), flush=True)
        ratios.append((ray_usage.seconds / pool_usage.seconds, ray_usage.cpu_seconds / pool_usage.cpu_seconds))
    ray_cluster.shutdown()
    wall, cpu = (statistics.median(pair[at] for pair in ratios) for at in (0, 1))
    print(f"\nRay takes {wall:.2f} × the seconds and {cpu:.2f} × the processor time of two processes (medians).")
    print(f"The tables are {'the same' if is_equal(folder / 'pool', folder / 'ray') else 'DIFFERENT'}.")


def measure_losses(options: argparse.Namespace, folder: Path) -> None:
    """Kill a worker and remove a node during an evaluation, and compare the tables with those of one process."""
    path = folder / "traces.jsonl"
    write_traces(vary_demo_traces(options.count), path)
    measure_evaluation(path, folder / "one", options.judge, 1)
    ray_cluster, second = start_cluster()
    events: list[str] = []

    def break_cluster(count: int, total: int) -> None:
        if not events and count > total / 4:
            events.append(f"a worker killed after {count:,} traces")
            os.kill(find_worker(), signal.SIGKILL)
        elif len(events) == 1 and count > total / 2:
            events.append(f"a node removed after {count:,}")
            ray_cluster.remove_node(second, allow_graceful=False)

    usage = measure_on_ray(ray_cluster.address, path, folder / "ray", options.judge, break_cluster)
    ray_cluster.shutdown()
    print(f"{HEAD}\n{format_row('2 Ray nodes, then 1', options.count, usage)}\n\n{'; '.join(events)}.")
    print(f"The tables are {'the same' if is_equal(folder / 'one', folder / 'ray') else 'DIFFERENT'}.")


def find_worker() -> int:
    """Return the process id of a worker that runs a task."""
    listing = subprocess.run(["pgrep", "-f", "ray::_do"], capture_output=True, text=True, check=True).stdout
    return int(listing.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", choices=["linear", "cluster", "lost"])
    parser.add_argument("--counts", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--judge")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.judge = options.judge or ("none" if options.task == "linear" else "embedded")
    with tempfile.TemporaryDirectory() as folder:
        {"linear": measure_linear_cost, "cluster": compare_cluster, "lost": measure_losses}[options.task](
            options, Path(folder)
        )


if __name__ == "__main__":
    main()
