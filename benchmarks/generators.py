"""Measure the choice of a generator: false gains, detected gains, and the best of six within a share of the calls.

    python -m benchmarks.generators simulated
    python -m benchmarks.generators null [--replays 2000]
    python -m benchmarks.generators attainable [--replays 3000]
    python -m benchmarks.generators ragtruth DATA/ragtruth_train.jsonl.gz

Simulated answers are right or wrong; a share of the questions is as hard for every generator, the others for each by
itself. `null`: false gains where none is better than the present generator, in several situations. `attainable`: what
other schedules of a race show within the same calls, and what is shown where the best generator is known. RAGTruth has
the answers of six models to the same sources, and people say which are faithful: the value of an answer is 1 where no
span of it is marked.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import read_rows
from ragfault.apps.tune.generators.choice import ChoiceTerms, choose_from_table
from ragfault.apps.tune.generators.records import GeneratorChoice
from ragfault.stats.intervals import wilson_interval

GENERATORS = 6
CALL_SHARE = 0.3


def simulate_values(means: list[float], questions: int, common_share: float, seed: int) -> Any:
    """Return 0/1 values, generators by questions; `common_share` of the questions are as hard for every generator."""
    rng = np.random.default_rng((seed, 2))
    own_levels, shared_levels = rng.random((len(means), questions)), rng.random(questions)
    level = np.where(rng.random(questions) < common_share, shared_levels, own_levels)
    return (level < np.array(means)[:, None]).astype(float)


def shuffle_names(table: Any, rng: np.random.Generator) -> Any:
    """Return the table with the generators shuffled on every question, so that nothing differs."""
    return np.take_along_axis(table, np.argsort(rng.random(table.shape), axis=0), axis=0)


def choose_generator(table: Any, seed: int, share: float | None, holdout: float = 0.5) -> GeneratorChoice:
    """Choose among the generators of a table, within a share of the calls of its grid."""
    names = [str(i) for i in range(len(table))]
    questions = table.shape[1]
    calls = None if share is None else int(share * table.size + 1e-6)
    terms = ChoiceTerms(calls=calls, holdout=holdout, seed=seed)
    return choose_from_table(names, table, [str(i) for i in range(questions)], terms)


def has_gain(choice: GeneratorChoice) -> bool:
    """Return whether a choice shows a gain on its held-out questions."""
    return choice.gain is not None and choice.gain.verdict == "gains"


def format_rate(hits: int, n: int) -> str:
    """Format a share with its Wilson interval."""
    low, high = wilson_interval(hits, n)
    return f"{hits / n:.1%} [{low:.1%}, {high:.1%}]"


def report_simulated_gains(replays: int, row_number: int | None) -> None:
    """Print false and planted gains over numbers of generators and of questions."""
    print(f"{replays} replays each; a gain of 5 points is planted in one generator of those named")
    print("| generators | questions | common | calls | nothing differs: gain shown | planted: chosen | shown | bias |")
    print("|---|---|---|---|---|---|---|---|")
    situations = (
        (2, 400, 0.8, None),
        (2, 400, 0.9, None),
        (6, 400, 0.8, CALL_SHARE),
        (6, 400, 0.8, None),
        (6, 400, 0.9, CALL_SHARE),
        (6, 800, 0.9, CALL_SHARE),
        (6, 1600, 0.8, CALL_SHARE),
    )
    for generators, questions, common, share in (
        situations if row_number is None else situations[row_number - 1 : row_number]
    ):
        false_gains = detected_gains = right_choices = 0
        biases = []
        for seed in range(replays):
            level = [0.75] * generators
            false_gains += has_gain(choose_generator(simulate_values(level, questions, common, seed), seed, share))
            choice = choose_generator(simulate_values([*level[:-1], 0.8], questions, common, seed), seed, share)
            is_right = choice.chosen == str(generators - 1)
            right_choices += is_right
            detected_gains += has_gain(choice) and is_right
            if choice.gain is not None and is_right:
                biases.append(choice.gain.difference.mean - 0.05)
        print(
            f"| {generators} | {questions} | {common:.0%} | {'all' if share is None else f'{share:.0%}'} "
            f"| {format_rate(false_gains, replays)} | {format_rate(right_choices, replays)} "
            f"| {format_rate(detected_gains, replays)} | {np.mean(biases):+.3f} |",
            flush=True,
        )


def simulate_null(situation: str, generators: int, questions: int, common: float, seed: int) -> Any:
    """Return values of generators of which none is better than the first.

    "skewed": nine of ten values are 1, the others anything below; "copies": all but the last mostly give the answer
    of the first; "worse": half of the others lose a tenth of their right answers.
    """
    table = simulate_values([0.9 if situation == "skewed" else 0.75] * generators, questions, common, seed)
    rng = np.random.default_rng((seed, 1))
    if situation == "skewed":
        return np.maximum(table, rng.random(table.shape) ** 2)
    if situation == "copies":
        table[1:-1] = np.where(rng.random((generators - 2, questions)) < 0.95, table[0], table[1:-1])
    if situation == "worse":
        half = (generators - 1) // 2
        table[1 : 1 + half] *= rng.random((half, questions)) < 0.9
    return table


def run_race(rounds: Sequence[tuple[int, int]], tables: Any) -> tuple[Any, Any]:
    """Return the winner of each table's race, and its test statistic.

    Each round is the number of rivals that remain, and the number of questions that they and the first answer.
    """
    names = np.tile(np.arange(1, tables.shape[1]), (len(tables), 1))
    gaps = tables[:, 1:] - tables[:, :1]
    sums = squares = np.zeros(names.shape)
    begin = 0
    for rivals, questions in rounds:
        best = np.argsort(-sums, axis=1, kind="stable")[:, :rivals]
        names, sums, squares = (np.take_along_axis(part, best, axis=1) for part in (names, sums, squares))
        part = gaps[:, :, begin : begin + questions]
        sums = sums + np.take_along_axis(part.sum(axis=2), names - 1, axis=1)
        squares = squares + np.take_along_axis((part**2).sum(axis=2), names - 1, axis=1)
        begin += questions
    winner = sums.argmax(axis=1)[:, None]
    name, total, square = (np.take_along_axis(part, winner, axis=1)[:, 0] for part in (names, sums, squares))
    return name, total / np.sqrt(np.maximum(square, 1))


def report_attainable_gains(replays: int) -> None:
    """Print how often the best schedules detect a gain of 5 points, at a threshold with a level of exactly 5 %."""
    calls = int(CALL_SHARE * GENERATORS * 400)
    schedules = [((5, 400),), ((1, calls // 2),)]
    for first in (20, 30, 40, 50, 60, 80):
        for rivals, second in ((1, 0), *((rest, size) for rest in (2, 3) for size in (15, 30, 45, 60, 80))):
            left = (calls - GENERATORS * first - (rivals + 1) * second) // 2
            if left > 0:
                schedules.append(((5, first), (rivals, second), (1, min(left, 400 - first - second))))
    for common in (0.8, 0.9):
        level = [0.75] * GENERATORS
        null, planted = (
            np.array([simulate_values(means, 400, common, seed + extra) for seed in range(replays)], np.float32)
            for means, extra in ((level, 0), ([*level[:-1], 0.8], replays))
        )
        rows = []
        for rounds in schedules:
            generators = [0, GENERATORS - 1] if rounds[0][0] == 1 else list(range(GENERATORS))
            threshold = float(np.quantile(run_race(rounds, null[:, generators])[1], 0.95))
            names, statistics = run_race(rounds, planted[:, generators])
            is_right = names == len(generators) - 1
            rows.append((float(np.mean(is_right & (statistics > threshold))), float(is_right.mean()), rounds))
        print(f"{common:.0%} common, {replays} replays: all calls {rows[0][0]:.1%}; the best known {rows[1][0]:.1%}")
        for shown, is_right, rounds in sorted(rows[2:], reverse=True)[:3]:
            print(
                f"  {calls} calls: chosen {is_right:.1%}, shown {shown:.1%} by (rivals, questions) {rounds}", flush=True
            )


def report_false_gains(replays: int, row_number: int | None) -> None:
    """Print false gains in several situations in which no generator is better than the present one."""
    print(f"{replays} replays each")
    print("| situation | generators | questions | common | calls | gain shown |")
    print("|---|---|---|---|---|---|")
    situations = (
        ("equal", 6, 400, 0.8, None),
        ("equal", 6, 400, 0.8, CALL_SHARE),
        ("equal", 6, 100, 0.8, None),
        ("equal", 6, 200, 0.95, None),
        ("equal", 3, 200, 0.8, None),
        ("equal", 8, 200, 0.8, None),
        ("skewed", 6, 200, 0.8, None),
        ("copies", 6, 200, 0.8, None),
        ("worse", 6, 200, 0.8, None),
        ("equal", 6, 400, 0.9, CALL_SHARE),
        ("worse", 6, 400, 0.8, CALL_SHARE),
    )
    for situation, generators, questions, common, share in (
        situations if row_number is None else situations[row_number - 1 : row_number]
    ):
        false_gains = sum(
            has_gain(choose_generator(simulate_null(situation, generators, questions, common, seed), seed, share))
            for seed in range(replays)
        )
        calls = "all" if share is None else f"{share:.0%}"
        row = f"| {situation} | {generators} | {questions} | {common:.0%} | {calls} |"
        print(f"{row} {format_rate(false_gains, replays)} |", flush=True)


def read_ragtruth(path: Path, task: str) -> tuple[list[str], Any]:
    """Return the models and the table of faithful answers, models by sources that all of them answered."""
    faithful: dict[str, dict[str, float]] = defaultdict(dict)
    for row in read_rows(path.parent, path.name.removesuffix(".jsonl.gz")):
        if row["task"] == task:
            faithful[row["source_id"]][row["model"]] = 1.0 - row["label"]
    models = sorted({model for answers in faithful.values() for model in answers})
    complete = [answers for answers in faithful.values() if len(answers) == len(models)]
    return models, np.array([[answers[model] for answers in complete] for model in models])


def report_ragtruth(path: Path, replays: int, questions: int, task_number: int | None) -> None:
    """Print how often the best model, or one within noise of it, is chosen, for how many calls."""
    limit = f"race and measurement within {CALL_SHARE:.0%} of the grid's calls"
    print(f"{replays} replays of {questions} sources each, {limit}")
    print(
        "| task | best model | best or within noise | calls | gain shown over the worst | nothing differs: gain shown |"
    )
    print("|---|---|---|---|---|---|")
    tasks = ("QA", "Summary", "Data2txt")
    for task in tasks if task_number is None else tasks[task_number - 1 : task_number]:
        models, table = read_ragtruth(path, task)
        means = table.mean(axis=1)
        order = np.argsort(means)
        worst_first = table[[order[0], *(i for i in range(len(models)) if i != order[0])]]
        true_means = worst_first.mean(axis=1)
        near_best = false_gains = detected_gains = 0
        call_shares: list[float] = []
        choice_counts: Counter[int] = Counter()
        for seed in range(replays):
            rng = np.random.default_rng((seed, 2))
            sample = worst_first[:, rng.choice(table.shape[1], min(questions, table.shape[1]), replace=False)]
            choice = choose_generator(sample, seed, CALL_SHARE)
            choice_index = int(choice.chosen)
            gaps = sample[true_means.argmax()] - sample[choice_index]
            noise = 1.96 * gaps.std(ddof=1) / np.sqrt(len(gaps))
            near_best += true_means.max() - true_means[choice_index] <= noise
            call_shares.append((choice.calls + choice.proof_calls) / choice.grid_calls)
            detected_gains += has_gain(choice)
            choice_counts[choice_index] += 1
            false_gains += has_gain(choose_generator(shuffle_names(sample, rng), seed, CALL_SHARE))
        best, best_share = models[int(order[-1])], choice_counts[int(true_means.argmax())] / replays
        print(
            f"| {task} | {best} {means.max():.3f}, next {np.sort(means)[-2]:.3f} "
            f"| {format_rate(near_best, replays)}; the best itself {best_share:.0%} | at most {max(call_shares):.1%} "
            f"| {format_rate(detected_gains, replays)} | {format_rate(false_gains, replays)} |",
            flush=True,
        )


def main() -> None:
    """Measure as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("on", choices=["simulated", "null", "attainable", "ragtruth"])
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("--replays", type=int, default=400)
    parser.add_argument("--questions", type=int, default=400)
    parser.add_argument("--row", type=int, help="Only this row of the table, from 1.")
    arguments = parser.parse_args()
    start = time.monotonic()
    if arguments.on == "simulated":
        report_simulated_gains(arguments.replays, arguments.row)
    elif arguments.on == "null":
        report_false_gains(arguments.replays, arguments.row)
    elif arguments.on == "attainable":
        report_attainable_gains(arguments.replays)
    elif arguments.path is None:
        parser.error("ragtruth needs the path of the file")
    else:
        report_ragtruth(arguments.path, arguments.replays, arguments.questions, arguments.row)
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
