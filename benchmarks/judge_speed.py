"""Measure traces a second on one core, and peak memory, of each installed judge, side by side in one run.

    python -m benchmarks.judge_speed [DATA] [--count 200] [--slow 20]

Without DATA the traces are those of the demo handbook, both versions; with DATA, a folder that holds RAGTruth's
training file, one answer of each of so many sources. No two traces share a chunk: in the demo every sentence of a
chunk gets a word of its own, so that nothing is remembered from one trace to the next. `encoder` judges `--slow` of
them, spread over all, and is compared with `lexical` on just those.

Each judge has a process of its own, one thread and, where the system can, one core; the first trace is judged
before the clock starts, and neither it nor loading counts. Five rounds in which the judges take turns; seconds are
those of the processor, medians of five. Peak memory is that of the whole process, loading and traces included.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ragfault.judges.loading import JUDGES, load_judge
from ragfault.model.errors import MissingExtra
from ragfault.model.records import Trace

ROOT = Path(__file__).parent.parent
ROUNDS = 5
SLOW_JUDGES = ("encoder",)
REFERENCE_JUDGE = "lexical"
"""The judge to which the others are compared."""
SINGLE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM")}


class JudgeCost(NamedTuple):
    """Speed and memory of one process."""

    rate: float
    """Traces a second of processor time."""
    memory: float
    """Peak memory in MiB."""


def load_demo_traces(count: int) -> list[Trace]:
    """Return traces of the demo, in which no two chunks share a sentence."""
    from msgspec.structs import replace

    from ragfault.io.datasets.demo_handbook import load_handbook

    result = [trace for traces in load_handbook().traces.values() for trace in traces]
    return [
        replace(
            trace,
            id=str(number),
            chunks=tuple(
                replace(chunk, id=f"{number}-{i}", text=mark_sentences(chunk.text, number))
                for i, chunk in enumerate(trace.chunks or ())
            ),
        )
        for number, trace in enumerate(select_evenly(result, count))
    ]


def mark_sentences(text: str, number: int) -> str:
    """Put a word that only this trace has before each line and sentence of a text."""
    word = "Q" + "".join("abcdefghij"[int(digit)] for digit in str(number))
    return re.sub(r"(^[^\w\n]*(?=\w)|(?<=[.!?]) (?=[A-Z]))", rf"\1{word} ", text, flags=re.MULTILINE)


def load_ragtruth_traces(folder: Path, count: int) -> list[Trace]:
    """Return traces of RAGTruth, one of each source."""
    from benchmarks.datasets import build_trace, read_rows

    content = read_rows(folder, "ragtruth_train")
    random.Random(0).shuffle(content)
    result = {row["source_id"]: build_trace(row) for row in content}
    return list(result.values())[:count]


def select_evenly(traces: Sequence[Trace], count: int) -> list[Trace]:
    """Return at most `count` traces, at equal steps."""
    count = min(count, len(traces))
    return [traces[i * len(traces) // count] for i in range(count)]


def describe_traces(traces: Sequence[Trace]) -> str:
    """Describe the mean numbers of claims, chunks and characters of a trace."""
    from ragfault.judges.checks.claims import extract_claims

    chunks = [trace.chunks or () for trace in traces]
    claims = statistics.mean(len(extract_claims(trace.answer or "")) for trace in traces)
    return (
        f"{len(traces)} traces, on average {claims:.1f} claims, {statistics.mean(map(len, chunks)):.1f} chunks with "
        f"{statistics.mean(sum(len(chunk.text) for chunk in item) for item in chunks):,.0f} characters"
    )


def load_judge_runner(name: str) -> Callable[[Trace], object]:
    """Return a function that judges one trace, and exits where the judge fails."""
    judge = load_judge(name)

    def run(trace: Trace) -> object:
        (verdicts,) = judge.observe([trace])
        if verdicts.failures:
            sys.exit(f"{name} failed on trace {trace.id}: {verdicts.failures}")
        return verdicts

    return run


def measure_in_process(name: str, path: Path) -> None:
    """Judge the traces of a file in this process, and print speed and memory as JSON."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    traces = msgspec.json.decode(path.read_bytes(), type=list[Trace])
    run = load_judge_runner(name)
    run(traces[0])
    start = time.process_time()
    for trace in traces[1:]:
        run(trace)
    rate = (len(traces) - 1) / (time.process_time() - start)
    print(msgspec.json.encode(JudgeCost(rate, measure_peak_memory())).decode())


def measure_peak_memory() -> float:
    """Return the peak memory of this process in MiB."""
    status = Path("/proc/self/status")
    if status.is_file():  # ru_maxrss includes the memory of the parent at the fork
        result = re.search(r"VmHWM:\s+(\d+)", status.read_text(encoding="ascii"))
        if result:
            return int(result[1]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 1024)


def start_measurement(name: str, path: Path) -> JudgeCost:
    """Measure a judge on the traces of a file, in a new process."""
    command = [sys.executable, "-m", "benchmarks.judge_speed", "--child", name, str(path)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, **SINGLE_THREAD})
    return msgspec.json.decode(done.stdout, type=JudgeCost)


def list_installed_judges() -> list[str]:
    """Return the judges that can be loaded here, and print which cannot, and why."""
    result = []
    for name in JUDGES:
        try:
            load_judge(name)
        except MissingExtra as error:
            print(f"Without {name}: {error}\n", file=sys.stderr)
        else:
            result.append(name)
    return sorted(result, key=lambda name: (name in SLOW_JUDGES, name == "embedded", name != "none"))


def measure_judges(names: Sequence[str], files: dict[bool, Path]) -> dict[tuple[str, bool], list[JudgeCost]]:
    """Return the results of all rounds by judge and whether it judged the few traces."""
    tasks = [(name, name in SLOW_JUDGES) for name in names]
    if any(few for _, few in tasks):
        tasks.append((REFERENCE_JUDGE, True))
    result: dict[tuple[str, bool], list[JudgeCost]] = {task: [] for task in tasks}
    for turn in range(ROUNDS):
        for name, few in tasks[turn % len(tasks) :] + tasks[: turn % len(tasks)]:
            result[name, few].append(start_measurement(name, files[few]))
    return result


def print_table(result: dict[tuple[str, bool], list[JudgeCost]]) -> None:
    """Print the medians of all rounds."""
    medians = {task: statistics.median(item.rate for item in item) for task, item in result.items()}
    print(
        f"\n| judge | traces | traces/s, one core | {REFERENCE_JUDGE} = 1 | peak memory, MiB |\n|---|---|---|---|---|"
    )
    for (name, few), values in result.items():
        rate, memory_ = medians[name, few], statistics.median(item.memory for item in values)
        kind, ratio = "few" if few else "all", rate / (medians[REFERENCE_JUDGE, few] or float("nan"))
        print(f"| `{name}` | {kind} | {format_figure(rate)} | {format_figure(ratio)} | {memory_:,.0f} |")


def format_figure(value: float) -> str:
    """Format a number with three significant digits.

    >>> format_figure(1234567.0), format_figure(4.0123), format_figure(0.01321)
    ('1,230,000', '4.01', '0.0132')
    """
    short = float(f"{value:.3g}")
    return f"{short:,.0f}" if short >= 100 else f"{short:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.judge_speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--slow", type=int, default=20)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        measure_in_process(options.child[0], Path(options.child[1]))
        return
    all_traces = load_ragtruth_traces(options.data, options.count) if options.data else load_demo_traces(options.count)
    traces = {False: all_traces, True: select_evenly(all_traces, options.slow)}
    print(f"all: {describe_traces(traces[False])}\nfew: {describe_traces(traces[True])}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        files = {few: Path(folder, f"{few}.json") for few in traces}
        for few, content in traces.items():
            files[few].write_bytes(msgspec.json.encode(content))
        print_table(measure_judges(list_installed_judges(), files))


if __name__ == "__main__":
    main()
