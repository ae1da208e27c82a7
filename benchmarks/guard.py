"""Measure the guard: certificates, notices of other traffic, and latency.

    python -m training.embedded DATA --keep kept.npz
    python -m benchmarks.guard certificate DATA kept.npz [--draws 1000] [--few]
    python -m benchmarks.guard notice DATA kept.npz [--draws 40] [--answers 10000]
    python -m benchmarks.guard latency
    python -m benchmarks.guard scanners DATA

The risks are those of `embedded` with the source of the answer left out of its training. Certificates are made
of 450 answers (RAGTruth) and checked on all others; with `thinned`, bad answers are left out at random, anew for each
draw, until 18 % are bad. `sources`: whole sources are drawn, six answers each. With --few answers are drawn with
replacement and the bound is checked on all of them, because what else is left of few says little. Notices: traffic
like the calibration, until so many answers are released; and summaries, counted in bad answers released until the
promise is withdrawn. Scanners: the time of each on a paragraph of documentation or a passage of a conversation, seen
for the first time, and the share of these that it flags; the classifiers have seen some of them in training.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks.datasets import read_rows
from ragfault.apps.guard.certificate import RatedAnswer, certify_answers
from ragfault.apps.guard.policy import parse_policy
from ragfault.apps.guard.runtime import Guard
from ragfault.apps.guard.scanning.scanners import SCANNERS, make_scanner
from ragfault.apps.guard.traffic import Ranking, TrafficWatcher, describe_inputs, rank_answer
from ragfault.io.datasets.demo_handbook import write_handbook
from ragfault.io.trace_reader import read_traces
from ragfault.model.records import Chunk, Trace
from training.guard import read_collections, read_paragraphs

LABELLED_ANSWERS = 450
BAD_SHARE = 0.18
POLICY = """
[rails.groundedness]
[rails.injection]
[rails.jailbreak]
[rails.toxicity]
[rails.secrets]
outcome = "fix"
[rails.personal_data]
outcome = "flag"
"""
CHUNKS_PER_TRACE, WORDS_PER_ANSWER, ROUNDS = 5, 150, 5


def load_rated_answers(data: Path, retained: Path, task: str, ranking: Ranking = "risk") -> list[RatedAnswer]:
    """Load the labelled answers of a task of RAGTruth, with the risk by a judge fitted without their source."""
    with np.load(retained) as packed:
        start, odds = packed["start"], packed["answers"]
        numbers = {name: number for number, name in enumerate(packed["ids"].tolist())}
    answers = []
    for row in read_rows(data, "ragtruth_train"):
        number = numbers.get(f"ragtruth {row['id']}")
        if row["task"] != task or number is None:
            continue
        chunks = tuple(Chunk(id=str(n), text=text) for n, text in enumerate(row["contexts"]))
        trace = Trace(id=str(row["id"]), query=row["query"] or "?", chunks=chunks, answer=row["answer"])
        risk = rank_answer(trace, float(1 / (1 + np.exp(-odds[number]))), ranking)
        inputs = describe_inputs(trace, int(start[number + 1] - start[number]), risk)
        answers.append(RatedAnswer(risk, bool(row["spans"]), row["source_id"], inputs))
    return answers


def choose_thinned_answers(bad: Any, rng: np.random.Generator) -> Any:
    """Return the positions that remain after bad answers are left out at random until BAD_SHARE of them is bad."""
    share = BAD_SHARE / (1 - BAD_SHARE) * np.sum(~bad) / np.sum(bad)
    return np.flatnonzero(~bad | (rng.random(bad.size) < share))


def draw_labelled_answers(
    answers: Sequence[RatedAnswer], pool: Any, by_source: bool, with_replacement: bool, rng: np.random.Generator
) -> tuple[list[RatedAnswer], Any]:
    """Draw answers of a pool to label, single ones or whole sources; return them, and the positions to check on."""
    if with_replacement:
        chosen = rng.choice(pool, LABELLED_ANSWERS)
        return [replace(answers[n], group=str(index)) for index, n in enumerate(chosen)], pool
    if not by_source:
        order = rng.permutation(pool)
        return [replace(answers[n], group=str(n)) for n in order[:LABELLED_ANSWERS]], order[LABELLED_ANSWERS:]
    codes = np.unique([answers[n].group for n in pool], return_inverse=True)[1]
    order = pool[np.argsort(rng.permutation(codes.max() + 1)[codes], kind="stable")]
    return [answers[n] for n in order[:LABELLED_ANSWERS]], order[LABELLED_ANSWERS:]


def measure_certificates(data: Path, retained: Path, draws: int, with_replacement: bool) -> None:
    """Print the share released and the share of draws in which the bound is broken."""
    print("task, ranking, answers           alpha  released, best possible  released  nothing promised  bound broken")
    rankings: tuple[Ranking, ...] = ("risk", "words")
    for task in ("QA", "Summary", "Data2txt"):
        for ranking in rankings:
            answers = load_rated_answers(data, retained, task, ranking)
            for thinned, by_source in product((True, False), (False, True)):
                if not (by_source and with_replacement) and (task == "QA" or (thinned and not by_source)):
                    measure_ranking(f"{task}, {ranking}", answers, thinned, by_source, draws, with_replacement)


def measure_ranking(
    name: str, answers: Sequence[RatedAnswer], thinned: bool, by_source: bool, draws: int, with_replacement: bool
) -> None:
    """Print the rows of one ranking of answers; with `thinned`, bad ones are left out anew for each draw."""
    rng = np.random.default_rng(0)
    risks, bad = np.array([answer.risk for answer in answers]), np.array([answer.bad for answer in answers])
    rows = {alpha: list[tuple[float, float, bool]]() for alpha in (0.1, 0.05)}
    for _ in range(draws):
        pool = choose_thinned_answers(bad, rng) if thinned else np.arange(bad.size)
        labelled, rest = draw_labelled_answers(answers, pool, by_source, with_replacement, rng)
        means = np.cumsum(bad[pool][np.argsort(risks[pool])]) / np.arange(1, pool.size + 1)
        for alpha, row in rows.items():
            good = np.flatnonzero(means <= alpha)
            threshold = certify_answers(labelled, alpha=alpha).threshold
            released = bad[rest][risks[rest] <= (-1 if threshold is None else threshold)]
            is_broken = released.size > 0 and bool(released.mean() > alpha)
            row.append(((good[-1] + 1) / pool.size if good.size else 0.0, released.size / rest.size, is_broken))
    for alpha, row in rows.items():
        best, shares, broken_draws = np.array(row).T
        kind = name + ", thinned" * thinned + ", sources" * by_source
        print(
            f"{kind:31}  {alpha:.2f}  {best.mean():22.3f}  {shares.mean():8.3f}  {np.mean(shares == 0):16.3f}  "
            f"{broken_draws.mean():12.3f}",
            flush=True,
        )


def measure_notices(data: Path, retained: Path, draws: int, count: int) -> None:
    """Print how often the promise is withdrawn on unchanged traffic, and after how many bad answers on changed."""
    rng = np.random.default_rng(0)
    answers, summaries = load_rated_answers(data, retained, "QA"), load_rated_answers(data, retained, "Summary")
    pool = choose_thinned_answers(np.array([answer.bad for answer in answers]), rng)
    false_alarms, bad_released = 0, []
    for seed in range(draws):
        labelled, rest = draw_labelled_answers(answers, pool, False, False, rng)
        certified = certify_answers(labelled)
        if certified.threshold is None:
            continue
        limit = certified.threshold
        released = [answers[n] for n in rest if answers[n].risk <= limit]
        watcher = TrafficWatcher(certified.inputs, seed=seed)
        draws_of_traffic = rng.integers(0, len(released), count)
        false_alarms += any(watcher.observe(released[n].inputs) for n in draws_of_traffic)
        released_summaries = [answer for answer in summaries if answer.risk <= limit]
        watcher, bad = TrafficWatcher(certified.inputs, seed=seed), 0
        for n in rng.permutation(len(released_summaries)):
            bad += released_summaries[n].bad
            if watcher.observe(released_summaries[n].inputs):
                break
        bad_released.append(bad)
    runs = len(bad_released)
    print(f"traffic like the calibration: withdrawn in {false_alarms} of {runs} runs of {count:,} released answers")
    print(
        f"summaries after questions: bad answers released until then: median {np.median(bad_released):.0f}, "
        f"most {max(bad_released)}, within 200 in {np.mean(np.array(bad_released) <= 200):.0%} of {runs} runs"
    )


def measure_latency() -> None:
    """Print the time that a decision takes, with five chunks and an answer of 150 words; set OPENBLAS_NUM_THREADS=1."""
    with tempfile.TemporaryDirectory() as folder:
        write_handbook(folder, force=True)
        recorded = [trace for trace in read_traces(Path(folder) / "traces-v1.jsonl") if trace.chunks and trace.answer]
    chunks = [chunk for trace in recorded for chunk in trace.chunks or ()]
    words = " ".join(trace.answer or "" for trace in recorded).split()
    traces = [
        Trace(
            id=str(n),
            query=trace.query,
            answer=" ".join(words[40 * n : 40 * n + WORDS_PER_ANSWER]),
            chunks=tuple(Chunk(id=str(k), text=chunk.text) for k, chunk in enumerate(chunks[n : n + CHUNKS_PER_TRACE])),
        )
        for n, trace in enumerate(recorded[:40])
    ]
    rounds = [[make_chunks_unique(trace, number) for trace in traces] for number in range(ROUNDS + 1)]
    for kind, requests in (("new passages", rounds), ("passages seen before", [traces] * (ROUNDS + 1))):
        for name, policy in (("six rails", POLICY), ("scanners alone", POLICY.replace("[rails.groundedness]\n", ""))):
            asyncio.run(time_decisions(f"{name}, {kind}", Guard(parse_policy(policy)), requests))


SCANNER_OPTIONS: dict[str, dict[str, Any]] = {
    "pattern": {"patterns": [r"(?i)project\s+falcon"]}, "topic": {"forbidden": ["football", "tennis"]},
    "language": {"languages": ["en"]}, "length": {"max_tokens": 2_000},
}  # fmt: skip


def measure_scanners(data: Path) -> None:
    """Print for each scanner its processor time on a text, and the share of benign texts that it flags."""
    texts = {
        "documentation": [row["text"] for row in read_paragraphs(data / "doc_histories")],
        "conversations": [row["text"] for row in read_collections(data / "multi_turn_dev.jsonl.gz")],
    }
    length = np.mean([len(text) for part in texts.values() for text in part])
    print(", ".join(f"{len(part):,} of {name}" for name, part in texts.items()), f"texts, {length:.0f} characters")
    for kind in SCANNERS:
        scan = make_scanner(kind, SCANNER_OPTIONS.get(kind, {}))
        times, flagged = [], {}
        for name, part in texts.items():
            findings = []
            for text in part:
                start = time.process_time()
                findings.append(bool(scan(text)))
                times.append(1000 * (time.process_time() - start))
            flagged[name] = np.mean(findings)
        shares = ", ".join(f"{share:.3f} of {name}" for name, share in flagged.items())
        print(
            f"{kind:14} {np.median(times):.3f} ms, p95 {np.quantile(times, 0.95):.3f} ms; flagged {shares}", flush=True
        )


def make_chunks_unique(trace: Trace, number: int) -> Trace:
    """Give each chunk of a trace a text that no other round has."""
    chunks = (replace(chunk, text=f"{chunk.text} No. {number}-{trace.id}-{chunk.id}") for chunk in trace.chunks or ())
    return replace(trace, chunks=tuple(chunks))


async def time_decisions(name: str, guard: Guard, rounds: Sequence[Sequence[Trace]]) -> None:
    """Print wall and processor time of decisions; the first round is not counted."""
    walls, processors = [], []
    for trace in (trace for traces in rounds for trace in traces):
        wall, processor = time.perf_counter(), time.process_time()
        await guard.decide_async(trace)
        walls.append(1000 * (time.perf_counter() - wall))
        processors.append(1000 * (time.process_time() - processor))
    walls, processors = walls[len(rounds[0]) :], processors[len(rounds[0]) :]
    print(
        f"{name}: {np.median(walls):.1f} ms, p95 {np.quantile(walls, 0.95):.1f} ms; "
        f"processor {np.median(processors):.1f} ms, p95 {np.quantile(processors, 0.95):.1f} ms"
    )


def main() -> None:
    """Measure what is asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guard", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("certificate", "notice", "latency", "scanners"))
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("retained", type=Path, nargs="?")
    parser.add_argument("--draws", type=int)
    parser.add_argument("--answers", type=int, default=10_000)
    parser.add_argument("--few", action="store_true")
    options = parser.parse_args()
    if options.part == "latency":
        measure_latency()
    elif options.part == "scanners" and options.data is not None:
        measure_scanners(options.data)
    elif options.data is None or options.retained is None:
        parser.error("DATA and kept.npz are needed")
    elif options.part == "certificate":
        measure_certificates(options.data, options.retained, options.draws or 1000, options.few)
    else:
        measure_notices(options.data, options.retained, options.draws or 40, options.answers)


if __name__ == "__main__":
    main()
