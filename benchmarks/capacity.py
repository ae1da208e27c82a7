"""What a day of traces takes: machines, money and storage, from the measured cost of one trace by each judge.

    python -m benchmarks.capacity --measure FILE     measures, and writes the figures to FILE
    python -m benchmarks.capacity FILE               the tables of benchmarks/RESULTS.md from them
    python -m benchmarks.capacity FILE --check JUDGE --traces N --folder FOLDER
                                                     a run of N traces, killed three times on its way, beside them

Measured is processor time, which neighbours on a machine disturb less than seconds: that of the process that drives
and that of its workers, each as the slope between N traces and 3 N, so that starting and loading count for nothing.
The traces are those of the demo, with texts of their own in every chunk and answer, so that no judge can remember
what it has seen. What a model takes in tokens is measured, too; its price is genai-prices'. All else is an
assumption, and an option.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow.parquet as pq
from msgspec.structs import replace

from benchmarks.scale import UNJUDGED, vary_demo_traces
from ragfault.io.trace_writer import write_traces
from ragfault.model.records import Trace

JUDGES = {"none": 2000, "lexical": 500, "embedded": 300, "encoder": 24}
"""The judges, each with the least number of traces it is measured on."""
KILLS, BATCH = 3, 1024
"""Kills of a checked run, and traces of its batches."""
DRIVER_MIN_TRACES = 100
"""Fewest traces from which the driver's cost is measured."""
DAY_SECONDS = 86_400
VOLUMES = {"1M": 10**6, "100M": 10**8, "10B": 10**10}
PROMPT_TOKENS, COMPLETION_TOKENS, DRIVER_MS_PER_LLM_TRACE = 3811, 534, 12.0
"""Tokens and processor milliseconds of a trace by a judge that asks a model (benchmarks/RESULTS.md)."""

EVALUATION_SCRIPT = """
import resource, sys
from ragfault.evaluation.evaluator import evaluate
def main():
    path, out, judge, *metrics = sys.argv[1:]
    evaluate(path, out, judge=judge, metrics=metrics or "default", workers=2, batch=256, force=True)
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        print(used.ru_utime + used.ru_stime)
if __name__ == "__main__":
    main()
"""


class JudgeCost(msgspec.Struct):
    """Cost of one trace by one judge."""

    driver_ms: float | None
    """Processor milliseconds of the driver, which splits the work and merges the results; None: too few traces were
    measured. The driver does the same work for every judge."""
    worker_ms: float
    """Processor milliseconds of the workers, which read, judge, compute and write."""
    verdict_bytes: float
    """Bytes of a trace's verdicts on disk."""
    score_bytes: float
    """Bytes of a trace's scores on disk."""


class CostFigures(msgspec.Struct):
    """Measured figures, from which the tables are computed."""

    trace_bytes: float
    """Bytes of a trace as a line of JSON."""
    costs: dict[str, JudgeCost]


# --- measuring -------------------------------------------------------------------------------------


def vary_all_texts(count: int) -> Iterator[Trace]:
    """Yield traces of the demo of which no two share a chunk or an answer."""
    for number, trace in enumerate(vary_demo_traces(count)):
        chunks = trace.chunks and tuple(
            replace(chunk, text=f"{chunk.text} Noted {number}-{i}.") for i, chunk in enumerate(trace.chunks)
        )
        yield replace(trace, chunks=chunks, answer=trace.answer and f"{trace.answer} This was case {number}.")


def measure_processor_seconds(folder: Path, judge: str, count: int) -> tuple[float, float]:
    """Return the processor seconds that the driver and the workers need to evaluate so many traces."""
    write_traces(vary_all_texts(count), folder / "traces.jsonl", force=True)
    metrics = UNJUDGED if judge == "none" else []
    script = folder / "evaluate.py"
    script.write_text(EVALUATION_SCRIPT)
    command = [sys.executable, str(script), str(folder / "traces.jsonl"), str(folder / "run"), judge, *metrics]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    driver, workers = map(float, done.stdout.split()[-2:])
    return driver, workers


def measure_judge_cost(folder: Path, judge: str, count: int) -> JudgeCost:
    """Return the cost of a trace: the slope between `count` traces and three times as many."""
    small = measure_processor_seconds(folder, judge, count)
    large = measure_processor_seconds(folder, judge, 3 * count)
    driver, worker = (1000 * (large[side] - small[side]) / (2 * count) for side in (0, 1))
    sizes = {name: (folder / "run" / f"{name}.parquet").stat().st_size for name in ("verdicts", "scores")}
    driver = driver if count >= DRIVER_MIN_TRACES else None
    return JudgeCost(driver, worker, sizes["verdicts"] / (3 * count), sizes["scores"] / (3 * count))


def measure_judges(path: Path) -> None:
    """Measure every judge and write the figures to a file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        costs = {}
        for judge, count in JUDGES.items():
            costs[judge] = measure_judge_cost(folder, judge, count)
            print(judge, costs[judge], flush=True)
        write_traces(vary_all_texts(1000), folder / "traces.jsonl", force=True)
        trace_bytes = (folder / "traces.jsonl").stat().st_size / 1000
    path.write_bytes(msgspec.json.format(msgspec.json.encode(CostFigures(trace_bytes, costs))) + b"\n")


# --- a large run beside the figures ----------------------------------------------------------------


class Attempt(NamedTuple):
    """One attempt at a run, until it was killed or done."""

    cpu_seconds: float
    peak_memory: float
    """MiB."""
    exit_code: int


def check_figures(figures: CostFigures, judge: str, count: int, folder: Path) -> None:
    """Evaluate many traces in one process that is killed on its way, and print its cost beside that of the figures."""
    write_traces(vary_all_texts(count), folder / "traces.jsonl", force=True)
    limits = [*(count * kill // (KILLS + 1) for kill in range(1, KILLS + 1)), sys.maxsize]
    attempts = [evaluate_until(folder, judge, limit) for limit in limits]
    for number, attempt in enumerate(attempts, 1):
        print(
            f"attempt {number}: {attempt.cpu_seconds:,.0f} s of processor time, {attempt.peak_memory:,.0f} MiB, "
            f"exit code {attempt.exit_code}"
        )
    judged = count_rows(folder / "run")
    measured = 1000 * sum(attempt.cpu_seconds for attempt in attempts) / count
    cost = figures.costs[judge]
    expected = cost.worker_ms + get_driver_cost(cost, figures)
    print(f"{judged:,} of {count:,} traces judged once each; {measured:.2f} ms a trace, by the figures {expected:.2f}")


def evaluate_until(folder: Path, judge: str, limit: int) -> Attempt:
    """Evaluate the traces of a folder, and kill the process once `limit` traces are done, unless it ends before."""
    command = [sys.executable, "-m", "ragfault", "evaluate", str(folder / "traces.jsonl"), "-o", str(folder / "run")]
    process = subprocess.Popen([*command, "--judge", judge, "--batch", str(BATCH), "--quiet"])
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if BATCH * count_parts(folder / "run.partial" / "parts") >= limit:
            process.kill()
            break
        time.sleep(1)
    _, status, usage = os.wait4(process.pid, 0)
    return Attempt(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status))


def count_parts(parts: Path) -> int:
    """Return the number of finished parts; 0 before the first and while they are put together."""
    try:
        return len(os.listdir(parts))
    except FileNotFoundError:
        return 0


def count_rows(path: Path) -> int:
    """Return the number of different traces among the verdicts of a run; each has one row."""
    names = pq.read_table(path / "verdicts.parquet", columns=["trace"])["trace"]
    assert len(names) == len(names.unique())
    return len(names)


# --- the tables ------------------------------------------------------------------------------------


def compute_llm_price(model: str) -> float:
    """Return the price of a trace by a model in US$."""
    from genai_prices import Usage, calc_price

    return float(calc_price(Usage(input_tokens=PROMPT_TOKENS, output_tokens=COMPLETION_TOKENS), model).total_price)


def list_judges(figures: CostFigures, options: argparse.Namespace) -> Iterator[tuple[str, float, float, float]]:
    """Yield for each judge its name, the milliseconds of driver and workers, and the US$ of a model, for one trace."""
    for judge, cost in figures.costs.items():
        yield f"`{judge}`", get_driver_cost(cost, figures), cost.worker_ms, 0.0
    for model in options.models:
        driver_ms = get_driver_cost(figures.costs["lexical"], figures) + DRIVER_MS_PER_LLM_TRACE
        yield f"`llm:{model}`", driver_ms, 0.0, compute_llm_price(model)


def get_driver_cost(cost: JudgeCost, figures: CostFigures) -> float:
    """Return the driver's milliseconds, or those with the embedded judge where they were not measured."""
    embedded_cost = figures.costs["embedded"].driver_ms
    assert embedded_cost is not None
    return embedded_cost if cost.driver_ms is None else cost.driver_ms


def format_money(amount: float) -> str:
    """Format US$ with the digits that are significant."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:,.2f}"


def print_costs(figures: CostFigures, options: argparse.Namespace) -> None:
    """Print the tables: cost of a trace, cost of a day, and storage."""
    rows = list(list_judges(figures, options))
    print("| judge | worker, CPU ms | driver, CPU ms | a model, US$ | US$ for a million |\n|---|---|---|---|---|")
    for name, driver, worker, model in rows:
        compute = 1e6 * (driver + worker) / 1000 / options.utilisation / 3600 * options.cpu_hour
        print(f"| {name} | {worker:.2f} | {driver:.2f} | {model:.5f} | {format_money(compute + 1e6 * model)} |")
    print(
        "\n| judge | traces a day | processors busy | machines | drivers | machines, US$ a day | model, US$ a day |"
        "\n|---|---|---|---|---|---|---|"
    )
    for (name, driver, worker, model), (volume, count) in itertools.product(rows, VOLUMES.items()):
        processors = count * (driver + worker) / 1000 / DAY_SECONDS / options.utilisation
        drivers = max(1, -(-count * driver / 1000 / DAY_SECONDS / options.utilisation // 1))
        machines = max(1, -(-processors // options.cores))
        print(
            f"| {name} | {volume} | {processors:,.2f} | {machines:,.0f} | {drivers:,.0f} | "
            f"{format_money(processors * 24 * options.cpu_hour)} | {format_money(count * model)} |"
        )
    print_storage(figures, options)


def print_storage(figures: CostFigures, options: argparse.Namespace) -> None:
    """Print the bytes of a trace and the storage of a day."""
    cost = figures.costs["embedded"]
    packed_bytes = figures.trace_bytes / options.packing
    size = packed_bytes + cost.verdict_bytes + cost.score_bytes
    print(
        f"\nA trace is {figures.trace_bytes:,.0f} bytes of JSON; in a run {packed_bytes:,.0f} of it, "
        f"{cost.verdict_bytes:,.0f} of verdicts and {cost.score_bytes:,.0f} of scores: {size:,.0f} together."
    )
    print(f"\n| traces a day | GB a day | GB kept {options.days} days | US$ a month |\n|---|---|---|---|")
    for volume, count in VOLUMES.items():
        day = count * size / 1e9
        retained = day * options.days
        print(f"| {volume} | {day:,.1f} | {retained:,.0f} | {format_money(retained * options.gb_month)} |")


def main() -> None:
    parser: Any = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("figures", type=Path)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--models", nargs="*", default=["gpt-4o-mini", "gpt-4o"])
    parser.add_argument("--cores", type=int, default=16, help="processors of a machine")
    parser.add_argument("--cpu-hour", type=float, default=0.04, help="US$ for a processor and an hour")
    parser.add_argument("--gb-month", type=float, default=0.023, help="US$ for a gigabyte and a month")
    parser.add_argument("--utilisation", type=float, default=0.7, help="share of the time that a processor works")
    parser.add_argument("--packing", type=float, default=3.0, help="how many times smaller texts are in Parquet")
    parser.add_argument("--days", type=int, default=30, help="how long runs are kept")
    parser.add_argument("--check", metavar="JUDGE", choices=JUDGES, help="evaluate many traces beside the figures")
    parser.add_argument("--traces", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where a checked run is written")
    options = parser.parse_args()
    if options.measure:
        measure_judges(options.figures)
    figures = msgspec.json.decode(options.figures.read_bytes(), type=CostFigures)
    if options.check:
        check_figures(figures, options.check, options.traces, options.folder)
    else:
        print_costs(figures, options)


if __name__ == "__main__":
    main()
