"""Measure replays: whether causes are proven and refuted rightly on models whose faults are programmed.

    python -m benchmarks.replay [--count 100] [--noise 0.2] [--attempts 3] [--seed 0]
    python -m benchmarks.replay --shares 1000 [--pairs 50]

For each of six causes there are traces of which it is the true cause, and traces of which it is not: the answer was bad
for another reason, or by chance. A model on this machine (tests/support/programmed_model.py) answers the requests; with
the noise it ignores its program, and answers faithfully, with an invention, with a refusal or from any passage. The
causes are given, so that errors of the diagnosis do not count.

With --shares, so many changes of known shares are simulated: how often the intervals of the whole change, of the share
of each part, of their interaction, and of the gain of a fix hold the true value.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import numpy as np
from msgspec.structs import replace

from endpoint import serve_model
from programmed_model import PLACES, ProgrammedServer, answer
from ragfault.apps.replay.asking import ModelAsker
from ragfault.apps.replay.cause_replay import replay_causes
from ragfault.apps.replay.experiments.change_replay import divide_change
from ragfault.apps.replay.experiments.experiment import ExperimentAnswers
from ragfault.apps.replay.planning import plan_causes
from ragfault.apps.replay.records import CauseProof
from ragfault.apps.replay.settings import ReplaySettings
from ragfault.comparison.ablation.attribution import factorial_design
from ragfault.diagnosis.causes.records import AnswerCause, AnswerRating, Stage
from ragfault.diagnosis.run_table import RunTable
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.judges.llm.settings import LLMSettings
from ragfault.model.causes import CauseName
from ragfault.model.records import Chunk, ConversationTurn, Gold, Trace
from ragfault.stats.differences import paired_difference


class PlantedCause(NamedTuple):
    """A cause, and how the traces are made of which it is said."""

    cause: CauseName
    stage: Stage
    is_true: bool
    program: str
    layout: str
    """Passages of the request: `lacking`, `first`, `third`, `outdated`, `unanswerable`."""


PLANTS = (
    PlantedCause("not_retrieved", "retrieval", True, "invents if absent", "lacking"),
    PlantedCause("not_retrieved", "retrieval", False, "invents", "lacking"),
    PlantedCause("not_shown", "retrieval", True, "faithful", "lacking"),
    PlantedCause("not_shown", "retrieval", False, "refuses", "lacking"),
    PlantedCause("wrong_source", "source", True, "invents if absent", "outdated"),
    PlantedCause("wrong_source", "source", False, "invents", "outdated"),
    PlantedCause("refused", "generation", True, "refuses", "first"),
    PlantedCause("refused", "generation", False, "loses the third", "third"),
    PlantedCause("contradicted", "generation", True, "invents", "first"),
    PlantedCause("contradicted", "generation", False, "confuses passages", "first"),
    PlantedCause("answered_unanswerable", "generation", True, "invents", "unanswerable"),
    PlantedCause("answered_unanswerable", "generation", False, "takes the nearest", "unanswerable"),
    PlantedCause("refused", "generation", False, "faithful", "first"),
    PlantedCause("contradicted", "generation", False, "faithful", "first"),
)
"""True causes, causes that another part of the system is to blame for, and two of answers that were bad by chance."""


def make_trace(number: int, plant: PlantedCause, draw: random.Random) -> Trace:
    """Make the trace of a bad answer, without the answer."""
    place = f"{PLACES[number % len(PLACES)]} {number}"
    time = f"{draw.randint(7, 11)}:{draw.randint(10, 59)}"
    right = Chunk(id=f"g{number}", text=f"Opening times, section {number}.\nThe {place} opens at {time} on all days.")
    others = [
        Chunk(
            id=f"o{number}-{at}",
            text=f"About the city, page {at} of {number}.\nThe {PLACES[(number + at) % len(PLACES)]} "
            f"{number + 5000 * at} opens at {12 + at}:{draw.randint(10, 59)}.",
        )
        for at in range(1, 5)
    ]
    old = Chunk(
        id=f"w{number}", text=f"Times of 2019, number {number}.\nThe {place} opens at 6:{draw.randint(10, 59)}."
    )
    chunks = {
        "lacking": others,
        "first": [right, *others[:3]],
        "third": [*others[:2], right, others[2]],
        "outdated": [old, right, *others[:2]],
        "unanswerable": others,
    }[plant.layout]
    context = "\n\n".join(f"[{at}] {chunk.text}" for at, chunk in enumerate(chunks, 1))
    query = f"When does the {place} open?"
    answerable = plant.layout != "unanswerable"
    return Trace(
        id=f"{PLANTS.index(plant)}-{number}",
        query=query,
        chunks=tuple(chunks),
        messages=(
            ConversationTurn(role="system", text=f"Answer from the passages. [program: {plant.program}]"),
            ConversationTurn(role="user", text=f"Passages:\n{context}\n\nQuestion: {query}"),
        ),
        reference=f"It opens at {time}." if answerable else None,
        gold=Gold(chunks={right.id: 1.0}) if answerable else None,
        answerable=answerable,
        metadata={"right": right.text},
    )


def is_right(trace: Trace, text: str) -> bool:
    """Return whether an answer is right, as the program knows it."""
    if trace.answerable is False:
        return "don't know" in text
    return trace.reference is not None and trace.reference.split()[-1].rstrip(".") in text


def answer_badly(trace: Trace, draw: random.Random, noise: float) -> Trace:
    """Return a trace with a bad answer that its model gives; of a model that works one that is bad by chance."""
    messages = [{"role": turn.role, "content": turn.text} for turn in trace.messages or ()]
    while is_right(trace, text := answer(messages, draw, max(noise, 0.05))):
        continue
    return replace(trace, answer=text, metadata={})


def make_run(folder: Path, count: int, noise: float, seed: int) -> tuple[Run, list[AnswerCause]]:
    """Evaluate the traces of every plant as one run, and name the cause that each was given."""
    draw = random.Random(seed)
    traces, causes, corpus = [], [], []
    for plant in PLANTS:
        for _ in range(count):
            trace = make_trace(len(traces), plant, draw)
            corpus.append(Chunk(id=f"g{len(traces)}", text=trace.metadata["right"]))
            traces.append(answer_badly(trace, draw, noise))
            chunk = trace.chunks[0].id if plant.layout == "outdated" and trace.chunks else None
            rating = AnswerRating(outcome="bad", probability=1.0, source="answer key")
            causes.append(
                AnswerCause(
                    trace=trace.id, query=trace.query, rating=rating, stage=plant.stage, cause=plant.cause, chunk=chunk
                )
            )
    # A trace of its own holds the passages that retrieval missed: the run knows their texts.
    traces.append(Trace(id="corpus", query="Which passages are there?", chunks=tuple(corpus), answer="Many."))
    return evaluate(traces, folder / "run", judge="lexical", metrics=["completeness"]), causes


def measure(count: int, noise: float, attempts: int, seed: int) -> dict[PlantedCause, list[CauseProof]]:
    """Replay the traces of every plant, and return what the replay says of each."""
    with tempfile.TemporaryDirectory() as name, serve_model({}, ProgrammedServer, noise=noise, seed=seed) as server:
        run, causes = make_run(Path(name), count, noise, seed)
        settings = ReplaySettings(sample=0, attempts=attempts)
        planned = plan_causes(run, causes, settings, needs_messages=True)
        asker = ModelAsker(LLMSettings(model="m", base_url=server.url, cache="none", concurrency=32), "benchmark")
        try:
            report = replay_causes(RunTable(run), planned, asker, settings)
        finally:
            asker.close()
    result: dict[PlantedCause, list[CauseProof]] = {plant: [] for plant in PLANTS}
    for proof in report.proofs:
        result[PLANTS[int(proof.trace.split("-")[0])]].append(proof)
    print(f"noise of the unchanged requests {report.noise:.3f}")
    return result


SIMULATED_CHANGES: dict[str, tuple[tuple[float, tuple[float, float, float, float]], ...]] = {
    "chunks break a third": ((0.35, (0.9, 0.1, 0.9, 0.1)), (0.5, (0.9, 0.9, 0.9, 0.9)), (0.15, (0.1, 0.1, 0.1, 0.1))),
    "prompt breaks a fifth": ((0.2, (0.9, 0.9, 0.1, 0.1)), (0.6, (0.95,) * 4), (0.2, (0.05,) * 4)),
    "both break some": ((0.25, (0.9, 0.1, 0.9, 0.1)), (0.2, (0.9, 0.9, 0.15, 0.15)), (0.55, (0.7,) * 4)),
    "only together": ((0.3, (0.9, 0.9, 0.9, 0.1)), (0.5, (0.9,) * 4), (0.2, (0.1,) * 4)),
    "harm and help": ((0.3, (0.8, 0.3, 0.7, 0.2)), (0.1, (0.2, 0.7, 0.2, 0.7)), (0.6, (0.9, 0.85, 0.9, 0.8))),
    "few, and no noise": ((0.08, (1.0, 0.0, 1.0, 0.0)), (0.82, (1.0,) * 4), (0.1, (0.0,) * 4)),
    "nothing, noisy": ((1.0, (0.8,) * 4),),
    "nothing": ((0.8, (0.98,) * 4), (0.2, (0.02,) * 4)),
}
"""Change → kinds of queries: their share, and the chance of a right answer as baseline, with the chunks of the
candidate, with its prompt, and as candidate."""


def measure_shares(replications: int, pairs: int) -> None:
    """Print how often the intervals of simulated changes hold the true value."""
    design = factorial_design(2)
    print(f"{replications} changes of {pairs} pairs; change, chunks, prompt, interaction, gain of a fix")
    for name, kinds in SIMULATED_CHANGES.items():
        weights, chances = np.array([kind[0] for kind in kinds]), np.array([kind[1] for kind in kinds]).T
        truths = chances @ weights
        expected = [design.total @ truths, *(design.shares @ truths), design.interactions[0][2] @ truths]
        covered = np.zeros(5)
        for seed in range(replications):
            draw = np.random.default_rng(seed)
            sampled = chances[:, draw.choice(len(weights), pairs, p=weights)]
            values = (draw.random(sampled.shape) < sampled).astype(float)
            attribution = divide_change(
                ExperimentAnswers((), (), values, list(range(pairs)), None), ("chunks", "prompt"), 0
            )
            assert attribution.total is not None
            intervals = [
                effect.difference for effect in (attribution.total, *attribution.shares, *attribution.interactions)
            ]
            intervals.append(paired_difference(values[1], values[0], bounds=(0, 1)))
            truth = [*expected, truths[0] - truths[1]]
            covered += [
                item.low - 1e-9 <= value <= item.high + 1e-9 for item, value in zip(intervals, truth, strict=True)
            ]
        print(f"{name:24}", *(f"{share:6.3f}" for share in covered / replications), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=100, help="traces of each plant")
    parser.add_argument("--noise", type=float, default=0.2)
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shares", type=int, default=0, help="simulate so many changes")
    parser.add_argument("--pairs", type=int, default=50, help="pairs of a simulated change")
    arguments = parser.parse_args()
    if arguments.shares:
        measure_shares(arguments.shares, arguments.pairs)
        return
    measured = measure(arguments.count, arguments.noise, arguments.attempts, arguments.seed)
    print(
        f"{'cause':24}{'truth':8}{'program':20}{'proven':>8}{'refuted':>8}{'open':>6}{'none':>6}{'calls':>7}{'most':>6}"
    )
    totals: Counter[str] = Counter()
    for plant, proofs in measured.items():
        outcomes = Counter(proof.outcome for proof in proofs)
        calls = [len(proof.answers) for proof in proofs]
        rightly = outcomes["proven" if plant.is_true else "refuted"]
        wrongly = outcomes["refuted" if plant.is_true else "proven"]
        totals += Counter(rightly=rightly, wrongly=wrongly, undecided=outcomes["not decided"], calls=sum(calls))
        totals += Counter(not_replayed=outcomes["not replayed"], traces=len(proofs))
        print(
            f"{plant.cause:24}{'true' if plant.is_true else 'false':8}{plant.program:20}{outcomes['proven']:8}"
            f"{outcomes['refuted']:8}{outcomes['not decided']:6}{outcomes['not replayed']:6}"
            f"{sum(calls) / len(calls):7.2f}{max(calls):6}"
        )
    decided = totals["rightly"] + totals["wrongly"]
    print(
        f"decided rightly {totals['rightly'] / decided:.3f} of {decided}; "
        f"not decided {totals['undecided'] / totals['traces']:.3f} of {totals['traces']}; "
        f"{totals['calls'] / totals['traces']:.2f} calls a trace"
    )


if __name__ == "__main__":
    main()
