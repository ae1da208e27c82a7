"""Measure the processor time of whole evaluations without a judge, of this checkout and of another one in turns.

    python -m benchmarks.evaluate [--against CHECKOUT] [--rounds 3]

The traces are those of the demo, varied, and once more with every seventh word of the chunks changed, so that all texts
differ. Each evaluation has a process of its own; both must give the same tables. Modules are imported before the clock
starts, pandas too where it is installed: Arrow imports it at its first array, whoever asks for that.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from msgspec.structs import replace

from benchmarks.scale import UNJUDGED, vary_demo_traces
from ragfault.io.trace_writer import write_traces
from ragfault.model.records import Trace

ROOT = Path(__file__).parent.parent
METRICS = {"five": ",".join(UNJUDGED), "default": "default"}
EVALUATION_SCRIPT = """
import contextlib, sys, time
with contextlib.suppress(ImportError):
    import pandas
import pyarrow.parquet, ragfault.evaluation.evaluator
from ragfault import evaluate
begin = time.process_time()
run = evaluate(sys.argv[1], sys.argv[2], judge="none", metrics=sys.argv[3].split(","), force=True)
print((time.process_time() - begin) / run.manifest.traces * 1000, *sorted(run.manifest.checksums.values()))
"""


def vary_chunk_words(count: int) -> Iterator[Trace]:
    """Yield varied traces with every seventh word of the chunks changed, so that no two share a text."""
    chance = random.Random(1)
    for trace in vary_demo_traces(count):
        chunks = []
        for chunk in trace.chunks or ():
            words = chunk.text.split(" ")
            words[::7] = [word + chance.choice(("a", "is", "er", "o")) for word in words[::7]]
            chunks.append(replace(chunk, text=" ".join(words)))
        yield replace(trace, chunks=None if trace.chunks is None else tuple(chunks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = {"varied": vary_demo_traces(6000), "different": vary_chunk_words(3000)}
        for name, traces in files.items():
            write_traces(traces, Path(folder, f"{name}.jsonl"))
        for _, name, metrics in product(range(options.rounds), files, METRICS):
            tables = set()
            for checkout in (options.against, ROOT) if options.against else (ROOT,):
                paths = f"{folder}/{name}.jsonl", f"{folder}/run"
                command = [sys.executable, "-c", EVALUATION_SCRIPT, *paths, METRICS[metrics]]
                environment = {"PYTHONPATH": str(checkout / "src"), "OPENBLAS_NUM_THREADS": "1"}
                done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
                milliseconds, checksums = done.stdout.split(" ", 1)
                tables.add(checksums)
                print(f"{name} texts, {metrics} metrics, {checkout}: {float(milliseconds):.3f} ms a trace", flush=True)
            if len(tables) > 1:
                sys.exit("the tables differ")


if __name__ == "__main__":
    main()
