"""Traces a second on one core, and peak memory, of each judge that is installed, side by side in one run.

    python -m benchmarks.judge_speed [DATA] [--count 200] [--slow 20]

Without DATA the traces are those of the demo handbook, both versions; with DATA, a folder that holds RAGTruth's
training file, one answer of each of so many sources. No two traces share a chunk: in the demo every sentence of a
chunk gets a word of its own, so that nothing is remembered from one trace to the next. `minilm` judges `--slow` of
them, spread over all, and is compared with `lexical` on just those.

Each judge has a process of its own, one thread and, where the system can, one core; the first trace is judged
before the clock starts, and neither it nor loading counts. Five rounds in which the judges take turns; seconds are
those of the processor, medians of five. Peak memory is that of the whole process, loading and traces included. For
comparison `cross-encoder`: the model of minilm alone, on each claim with its evidence and nothing else, neither
relevance nor words.
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

from ragfault.errors import MissingExtra
from ragfault.judges import JUDGES, load_judge
from ragfault.records import Trace

ROOT = Path(__file__).parent.parent
ROUNDS = 5
MODEL = "cross-encoder"
"""The model of minilm by itself."""
SLOW = ("minilm", MODEL)
MEASURE = "lexical"
"""What the others are compared with."""
ALONE = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM")}


class Spent(NamedTuple):
    """What one process needed for its traces."""

    rate: float
    """Traces for each second of the processor."""
    memory: float
    """MiB at the most."""


def demo(count: int) -> list[Trace]:
    """Return traces of the demo, in which no two chunks share a sentence."""
    from msgspec.structs import replace

    from ragfault.io.datasets import load_handbook

    result = [trace for traces in load_handbook().traces.values() for trace in traces]
    return [
        replace(
            trace,
            id=str(number),
            chunks=tuple(
                replace(chunk, id=f"{number}-{i}", text=own(chunk.text, number))
                for i, chunk in enumerate(trace.chunks or ())
            ),
        )
        for number, trace in enumerate(spread(result, count))
    ]


def own(text: str, number: int) -> str:
    """Return a text each of whose lines and sentences begins with a word that only this trace has."""
    word = "Q" + "".join("abcdefghij"[int(digit)] for digit in str(number))
    return re.sub(r"(^[^\w\n]*(?=\w)|(?<=[.!?]) (?=[A-Z]))", rf"\1{word} ", text, flags=re.MULTILINE)


def ragtruth(folder: Path, count: int) -> list[Trace]:
    """Return answers of RAGTruth, each of another source."""
    from benchmarks.judge import rows, trace

    content = rows(folder, "ragtruth_train")
    random.Random(0).shuffle(content)
    result = {row["source_id"]: trace(row) for row in content}
    return list(result.values())[:count]


def spread(traces: Sequence[Trace], count: int) -> list[Trace]:
    """Return so many traces, at equal steps."""
    count = min(count, len(traces))
    return [traces[i * len(traces) // count] for i in range(count)]


def described(traces: Sequence[Trace]) -> str:
    """Return how much there is to read in a trace, on average."""
    from ragfault.judges.checks.claims import extract_claims

    chunks = [trace.chunks or () for trace in traces]
    message = statistics.mean(len(extract_claims(trace.answer or "")) for trace in traces)
    return (
        f"{len(traces)} traces, on average {message:.1f} claims, {statistics.mean(map(len, chunks)):.1f} chunks with "
        f"{statistics.mean(sum(len(chunk.text) for chunk in item) for item in chunks):,.0f} characters"
    )


def model() -> Callable[[Trace], object]:
    """Return each claim with its evidence, through the model alone."""
    from ragfault.judges.checks.claims import extract_claims, strip_marks
    from ragfault.judges.checks.lexicon import load_idf
    from ragfault.judges.checks.passages import Passage, SentenceIndex
    from ragfault.judges.lexical.features import parse_statement
    from ragfault.judges.minilm.encoder import (
        MAX_CLAIM_TOKENS,
        MAX_EVIDENCE_TOKENS,
        encode_pair,
        load_encoder,
        load_tokenizer,
        locate_weights,
    )
    from ragfault.judges.minilm.judge import get_sentence_text, select_evidence

    split, network = load_tokenizer(locate_weights()), load_encoder(locate_weights())

    def run(trace: Trace) -> object:
        index = SentenceIndex([Passage(chunk.id, chunk.text) for chunk in trace.chunks or ()])
        rows = []
        for text in (strip_marks(claim.text) for claim in extract_claims(trace.answer or "")):
            places = select_evidence(parse_statement(text, load_idf()), index)
            rows.append(
                encode_pair(
                    split,
                    text,
                    [get_sentence_text(index, place) for place in places],
                    MAX_CLAIM_TOKENS,
                    MAX_EVIDENCE_TOKENS,
                )
            )
        return network.run(rows)

    return run


def judged(name: str) -> Callable[[Trace], object]:
    """Return what a judge does with a trace."""
    judge = load_judge(name)

    def run(trace: Trace) -> object:
        (verdicts,) = judge.observe([trace])
        if verdicts.failures:
            sys.exit(f"{name} failed on trace {trace.id}: {verdicts.failures}")
        return verdicts

    return run


def child(name: str, path: Path) -> None:
    """Judge the traces of a file in a process of its own, and print the time and memory."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    traces = msgspec.json.decode(path.read_bytes(), type=list[Trace])
    run = model() if name == MODEL else judged(name)
    run(traces[0])
    start = time.process_time()
    for trace in traces[1:]:
        run(trace)
    rate = (len(traces) - 1) / (time.process_time() - start)
    print(msgspec.json.encode(Spent(rate, memory())).decode())


def memory() -> float:
    """Return MiB that this process had at the most."""
    status = Path("/proc/self/status")
    if status.is_file():  # what is told otherwise holds the parent's memory too
        result = re.search(r"VmHWM:\s+(\d+)", status.read_text(encoding="ascii"))
        if result:
            return int(result[1]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 1024)


def spent(name: str, path: Path) -> Spent:
    """Return what a fresh process needs."""
    command = [sys.executable, "-m", "benchmarks.judge_speed", "--child", name, str(path)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, **ALONE})
    return msgspec.json.decode(done.stdout, type=Spent)


def installed() -> list[str]:
    """Return the judges that can be made here; it says which cannot, and why."""
    result = []
    for name in JUDGES:
        try:
            load_judge(name)
        except MissingExtra as error:
            print(f"Without {name}: {error}\n", file=sys.stderr)
        else:
            result.append(name)
    order = sorted(result, key=lambda name: (name in SLOW, name == "embedded", name != "none"))
    return [*order, MODEL] if "minilm" in result else order


def measured(names: Sequence[str], files: dict[bool, Path]) -> dict[tuple[str, bool], list[Spent]]:
    """Return by judge, and whether on the few traces: what each round took."""
    tasks = [(name, name in SLOW) for name in names]
    if any(few for _, few in tasks):
        tasks.append((MEASURE, True))
    result: dict[tuple[str, bool], list[Spent]] = {task: [] for task in tasks}
    for turn in range(ROUNDS):
        for name, few in tasks[turn % len(tasks) :] + tasks[: turn % len(tasks)]:
            result[name, few].append(spent(name, files[few]))
    return result


def table(result: dict[tuple[str, bool], list[Spent]]) -> None:
    """Print medians."""
    middle = {task: statistics.median(item.rate for item in item) for task, item in result.items()}
    print(f"\n| judge | traces | traces/s, one core | {MEASURE} = 1 | peak memory, MiB |\n|---|---|---|---|---|")
    for (name, few), values in result.items():
        rate, memory_ = middle[name, few], statistics.median(item.memory for item in values)
        kind, ratio = "few" if few else "all", rate / (middle[MEASURE, few] or float("nan"))
        print(f"| `{name}` | {kind} | {figure(rate)} | {figure(ratio)} | {memory_:,.0f} |")


def figure(value: float) -> str:
    """Return a number with three digits that count.

    >>> figure(1234567.0), figure(4.0123), figure(0.01321)
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
        child(options.child[0], Path(options.child[1]))
        return
    full = ragtruth(options.data, options.count) if options.data else demo(options.count)
    traces = {False: full, True: spread(full, options.slow)}
    print(f"all: {described(traces[False])}\nfew: {described(traces[True])}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        files = {few: Path(folder, f"{few}.json") for few in traces}
        for few, content in traces.items():
            files[few].write_bytes(msgspec.json.encode(content))
        table(measured(installed(), files))


if __name__ == "__main__":
    main()
