"""Measure the guard: certificates, notices of other traffic, and latency.

    python -m training.embedded DATA --keep kept.npz
    python -m benchmarks.guard certificate DATA kept.npz [--draws 1000]
    python -m benchmarks.guard notice DATA kept.npz [--draws 40] [--answers 10000]
    python -m benchmarks.guard latency

The risks are those of the default judge with the source of the answer left out of its training. Certificates are made
of 450 answers to questions (RAGTruth QA) and checked on all others; with `thinned`, bad answers are left out at random
until 18 % are bad. `sources`: whole sources are drawn, six answers each. Notices: traffic like the calibration, until
so many answers are released; and summaries, counted in bad answers released until the promise is withdrawn.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from ragfault.guard.certificate import RatedAnswer, certify_answers
from ragfault.guard.policy import parse_policy
from ragfault.guard.runtime import Guard
from ragfault.guard.traffic import Ranking, TrafficWatcher, describe_inputs, rank_answer
from ragfault.io import read_traces
from ragfault.io.datasets import write_handbook
from ragfault.records import Chunk, Trace

LABELS = 450
THINNED = 0.18
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
CHUNKS, WORDS, ROUNDS = 5, 150, 5


def load_answers(data: Path, retained: Path, task: str, ranking: Ranking = "risk") -> list[RatedAnswer]:
    """Load the labelled answers of a task of RAGTruth, with the risk that the judge sees without their source."""
    with np.load(retained) as packed:
        start, odds = packed["start"], packed["answers"]
        place = {name: number for number, name in enumerate(packed["ids"].tolist())}
    answers = []
    with gzip.open(data / "ragtruth_train.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            number = place.get(f"ragtruth {row['id']}")
            if row["task"] != task or number is None:
                continue
            chunks = tuple(Chunk(id=str(n), text=text) for n, text in enumerate(row["contexts"]))
            trace = Trace(id=str(row["id"]), query=row["query"] or "?", chunks=chunks, answer=row["answer"])
            risk = rank_answer(trace, float(1 / (1 + np.exp(-odds[number]))), ranking)
            inputs = describe_inputs(trace, int(start[number + 1] - start[number]), risk)
            answers.append(RatedAnswer(risk, bool(row["spans"]), row["source_id"], inputs))
    return answers


def thin(answers: Sequence[RatedAnswer], rng: np.random.Generator) -> list[RatedAnswer]:
    """Leave out bad answers at random until a share of THINNED is bad."""
    bad = sum(answer.bad for answer in answers)
    share = THINNED / (1 - THINNED) * (len(answers) - bad) / bad
    return [answer for answer in answers if not answer.bad or rng.random() < share]


def draw(answers: Sequence[RatedAnswer], by_source: bool, rng: np.random.Generator) -> tuple[list[RatedAnswer], ...]:
    """Draw answers to label, single ones or whole sources; return them and the rest."""
    if not by_source:
        order = rng.permutation(len(answers))
        single = [replace(answers[n], group=str(n)) for n in order]
        return single[:LABELS], single[LABELS:]
    groups = rng.permutation(sorted({answer.group for answer in answers})).tolist()
    place = {group: number for number, group in enumerate(groups)}
    ordered = sorted(answers, key=lambda answer: place[answer.group])
    return list(ordered[:LABELS]), list(ordered[LABELS:])


def measure_certificates(data: Path, retained: Path, draws: int) -> None:
    """Print the share released and the share of draws in which the bound is broken."""
    print("ranking, answers            alpha  released, best possible  released  nothing promised  bound broken")
    rankings: tuple[Ranking, ...] = ("risk", "words")
    for ranking in rankings:
        measure_ranking(load_answers(data, retained, "QA", ranking), ranking, draws)


def measure_ranking(answers: Sequence[RatedAnswer], ranking: str, draws: int) -> None:
    """Print the rows of one ranking of the answers."""
    rng = np.random.default_rng(0)
    for name, pool in ((f"{ranking}: QA, thinned", thin(answers, rng)), (f"{ranking}: QA", answers)):
        for by_source in (False, True):
            for alpha in (0.1, 0.05):
                shares, broken = [], 0
                for _ in range(draws):
                    labelled, rest = draw(pool, by_source, rng)
                    threshold = certify_answers(labelled, alpha=alpha).threshold
                    released = [answer.bad for answer in rest if threshold is not None and answer.risk <= threshold]
                    shares.append(len(released) / len(rest))
                    broken += bool(released) and bool(np.mean(released) > alpha)
                kind = f"{name}, sources" if by_source else name
                print(
                    f"{kind:30} {alpha:.2f}  {find_best_share(pool, alpha):22.3f}  {np.mean(shares):8.3f}"
                    f"  {np.mean(np.array(shares) == 0):16.3f}  {broken / draws:12.3f}",
                    flush=True,
                )


def find_best_share(answers: Sequence[RatedAnswer], alpha: float) -> float:
    """Return the largest share that a threshold can release with at most a share alpha of bad ones."""
    bad = np.array([answer.bad for answer in sorted(answers, key=lambda answer: answer.risk)])
    means = np.cumsum(bad) / np.arange(1, bad.size + 1)
    good = np.flatnonzero(means <= alpha)
    return float((good[-1] + 1) / bad.size) if good.size else 0.0


def measure_notices(data: Path, retained: Path, draws: int, count: int) -> None:
    """Print how often the promise is withdrawn without a reason, and how late with one."""
    rng = np.random.default_rng(0)
    same, other = thin(load_answers(data, retained, "QA"), rng), load_answers(data, retained, "Summary")
    false, late = 0, []
    for seed in range(draws):
        labelled, rest = draw(same, False, rng)
        part = certify_answers(labelled)
        if part.threshold is None:
            continue
        limit = part.threshold
        released = [answer for answer in rest if answer.risk <= limit]
        watcher = TrafficWatcher(part.inputs, seed=seed)
        taken = rng.integers(0, len(released), count)
        false += any(watcher.observe(released[n].inputs) for n in taken)
        changed = [answer for answer in other if answer.risk <= limit]
        watcher, bad = TrafficWatcher(part.inputs, seed=seed), 0
        for n in rng.permutation(len(changed)):
            bad += changed[n].bad
            if watcher.observe(changed[n].inputs):
                break
        late.append(bad)
    print(f"traffic like the calibration: withdrawn in {false} of {len(late)} runs of {count:,} released answers")
    print(
        f"summaries after questions: bad answers released until then: median {np.median(late):.0f}, "
        f"most {max(late)}, within 200 in {np.mean(np.array(late) <= 200):.0%} of {len(late)} runs"
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
            id=str(n), query=trace.query, answer=" ".join(words[40 * n : 40 * n + WORDS]),
            chunks=tuple(Chunk(id=str(k), text=chunk.text) for k, chunk in enumerate(chunks[n : n + CHUNKS])),
        )
        for n, trace in enumerate(recorded[:40])
    ]  # fmt: skip
    rounds = [[number_chunks(trace, number) for trace in traces] for number in range(ROUNDS + 1)]
    for kind, requests in (("new passages", rounds), ("passages seen before", [traces] * (ROUNDS + 1))):
        for name, policy in (("six rails", POLICY), ("scanners alone", POLICY.replace("[rails.groundedness]\n", ""))):
            asyncio.run(time_decisions(f"{name}, {kind}", Guard(parse_policy(policy)), requests))


def number_chunks(trace: Trace, number: int) -> Trace:
    """Give each chunk of a trace a text of its own."""
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
    asked = argparse.ArgumentParser(
        prog="python -m benchmarks.guard", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("part", choices=("certificate", "notice", "latency"))
    asked.add_argument("data", type=Path, nargs="?")
    asked.add_argument("retained", type=Path, nargs="?")
    asked.add_argument("--draws", type=int)
    asked.add_argument("--answers", type=int, default=10_000)
    chosen = asked.parse_args()
    if chosen.part == "latency":
        measure_latency()
    elif chosen.data is None or chosen.retained is None:
        asked.error("DATA and kept.npz are needed")
    elif chosen.part == "certificate":
        measure_certificates(chosen.data, chosen.retained, chosen.draws or 1000)
    else:
        measure_notices(chosen.data, chosen.retained, chosen.draws or 40, chosen.answers)


if __name__ == "__main__":
    main()
