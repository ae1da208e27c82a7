"""What a day of traces takes: machines, money and storage, from the measured cost of one trace by each judge.

    python -m benchmarks.capacity --measure FILE     measures, and writes the figures to FILE
    python -m benchmarks.capacity FILE               the tables of docs/capacity.md from them

Measured is processor time, which neighbours on a machine disturb less than seconds: that of the process that drives
and that of its workers, each as the slope between N traces and 3 N, so that starting and loading count for nothing.
The traces are those of the demo, with texts of their own in every chunk and answer, so that no judge can remember
what it has seen. What a model takes in tokens is that of docs/cost.md; its price is genai-prices'. All else is an
assumption, and an option.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.scale import UNJUDGED, varied
from msgspec.structs import replace

from ragfault.io import write_traces
from ragfault.records import Trace

JUDGES = {"none": 2000, "lexical": 500, "embedded": 300, "minilm": 8}
"""The judges, each with the least number of traces it is measured on."""
FEW = 100
"""So many traces tell what the driver costs."""
DAY = 86_400
VOLUMES = {"1M": 10**6, "100M": 10**8, "10B": 10**10}
PROMPT, COMPLETION, ASKING = 3811, 534, 12.0
"""Tokens and processor milliseconds of a trace by a judge that asks a model (docs/cost.md)."""

CODE = """
import resource, sys
from ragfault.evaluation import evaluate
def main():
    path, out, judge, *metrics = sys.argv[1:]
    evaluate(path, out, judge=judge, metrics=metrics or "default", workers=2, batch=256, force=True)
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        print(used.ru_utime + used.ru_stime)
if __name__ == "__main__":
    main()
"""


class Cost(msgspec.Struct):
    """What one trace costs by one judge."""

    driver: float | None
    """Processor milliseconds of the process that drives: counting, handing out, putting together; None: too few
    traces to tell, and it does the same for every judge."""
    worker: float
    """Processor milliseconds of the workers: reading, judging, computing, writing."""
    verdicts: float
    """Bytes of the verdicts on disk."""
    scores: float


class Measured(msgspec.Struct):
    """What was measured."""

    text: float
    """Bytes of a trace as a line of JSON."""
    costs: dict[str, Cost]


# --- measuring -------------------------------------------------------------------------------------


def distinct(count: int) -> Iterator[Trace]:
    """Yield traces of which no two share a chunk or an answer."""
    for number, trace in enumerate(varied(count)):
        chunks = trace.chunks and tuple(
            replace(chunk, text=f"{chunk.text} Noted {number}-{i}.") for i, chunk in enumerate(trace.chunks)
        )
        yield replace(trace, chunks=chunks, answer=trace.answer and f"{trace.answer} This was case {number}.")


def spent(folder: Path, judge: str, count: int) -> tuple[float, float]:
    """Return the processor seconds of the driver and of the workers."""
    write_traces(distinct(count), folder / "traces.jsonl", force=True)
    metrics = UNJUDGED if judge == "none" else []
    script = folder / "evaluate.py"
    script.write_text(CODE)
    command = [sys.executable, str(script), str(folder / "traces.jsonl"), str(folder / "run"), judge, *metrics]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    driver, workers = map(float, done.stdout.split()[-2:])
    return driver, workers


def measured(folder: Path, judge: str, least: int) -> Cost:
    """Return the cost of a trace, as the slope between two counts."""
    small, large = (spent(folder, judge, count) for count in (least, 3 * least))
    driver, worker = (1000 * (large[at] - small[at]) / (2 * least) for at in (0, 1))
    sizes = {name: (folder / "run" / f"{name}.parquet").stat().st_size for name in ("verdicts", "scores")}
    driver = driver if least >= FEW else None
    return Cost(driver, worker, sizes["verdicts"] / (3 * least), sizes["scores"] / (3 * least))


def measure(where: Path) -> None:
    """Measure every judge and write the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        costs = {}
        for judge, least in JUDGES.items():
            costs[judge] = measured(folder, judge, least)
            print(judge, costs[judge], flush=True)
        write_traces(distinct(1000), folder / "traces.jsonl", force=True)
        text = (folder / "traces.jsonl").stat().st_size / 1000
    where.write_bytes(msgspec.json.format(msgspec.json.encode(Measured(text, costs))) + b"\n")


# --- the tables ------------------------------------------------------------------------------------


def price(model: str) -> float:
    """Return the price of a trace by a model in US$."""
    from genai_prices import Usage, calc_price

    return float(calc_price(Usage(input_tokens=PROMPT, output_tokens=COMPLETION), model).total_price)


def list_judges(figures: Measured, options: argparse.Namespace) -> Iterator[tuple[str, float, float, float]]:
    """Yield the name of every judge, the driver's and the workers' milliseconds, and a model's US$ for a trace."""
    for judge, cost in figures.costs.items():
        yield f"`{judge}`", same(cost, figures), cost.worker, 0.0
    for model in options.models:
        yield f"`llm:{model}`", same(figures.costs["lexical"], figures) + ASKING, 0.0, price(model)


def same(cost: Cost, figures: Measured) -> float:
    """Return the driver's cost, or that with the embedded judge where it was not measured."""
    other = figures.costs["embedded"].driver
    assert other is not None
    return other if cost.driver is None else cost.driver


def money(amount: float) -> str:
    """Format US$ with the digits that are significant."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:,.2f}"


def tables(figures: Measured, options: argparse.Namespace) -> None:
    """Print the cost of a trace and of a day."""
    rows = list(list_judges(figures, options))
    print("| judge | worker, CPU ms | driver, CPU ms | a model, US$ | US$ for a million |\n|---|---|---|---|---|")
    for name, driver, worker, model in rows:
        compute = 1e6 * (driver + worker) / 1000 / options.utilisation / 3600 * options.cpu_hour
        print(f"| {name} | {worker:.2f} | {driver:.2f} | {model:.5f} | {money(compute + 1e6 * model)} |")
    print(
        "\n| judge | traces a day | processors busy | machines | drivers | machines, US$ a day | model, US$ a day |"
        "\n|---|---|---|---|---|---|---|"
    )
    for (name, driver, worker, model), (volume, count) in itertools.product(rows, VOLUMES.items()):
        busy = count * (driver + worker) / 1000 / DAY / options.utilisation
        drivers = max(1, -(-count * driver / 1000 / DAY / options.utilisation // 1))
        print(
            f"| {name} | {volume} | {busy:,.2f} | {max(1, -(-busy // options.cores)):,.0f} | {drivers:,.0f} | "
            f"{money(busy * 24 * options.cpu_hour)} | {money(count * model)} |"
        )
    stored(figures, options)


def stored(figures: Measured, options: argparse.Namespace) -> None:
    """Print the storage of a day."""
    cost = figures.costs["embedded"]
    size = figures.text / options.packing + cost.verdicts + cost.scores
    print(
        f"\nA trace is {figures.text:,.0f} bytes of JSON; in a run {figures.text / options.packing:,.0f} of it, "
        f"{cost.verdicts:,.0f} of verdicts and {cost.scores:,.0f} of scores: {size:,.0f} together."
    )
    print(f"\n| traces a day | GB a day | GB kept {options.days} days | US$ a month |\n|---|---|---|---|")
    for volume, count in VOLUMES.items():
        day = count * size / 1e9
        retained = day * options.days
        print(f"| {volume} | {day:,.1f} | {retained:,.0f} | {money(retained * options.gb_month)} |")


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
    options = parser.parse_args()
    if options.measure:
        measure(options.figures)
    tables(msgspec.json.decode(options.figures.read_bytes(), type=Measured), options)


if __name__ == "__main__":
    main()
