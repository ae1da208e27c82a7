"""Measure how well faulty steps are located, beside trivial baselines and published judges.

    python -m benchmarks.steps SHARED [--page benchmarks/RESULTS.md]

SHARED holds agent_steps_hotpotqa_dev, its judges and agent_steps_whowhen_dev. Every figure of ours is of a model that
has not seen the question; the folds are drawn three times. Intervals of differences resample questions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.datasets import read_rows
from benchmarks.step_faults import write_table
from ragfault.diagnosis.steps.model import chain_hazards
from training.steps import (
    Array,
    LabelledRun,
    RunKind,
    apply_agreements,
    apply_outcomes,
    cross_sets,
    fit,
    load_runs,
    predict_unseen,
    split_folds,
    weigh_outcome,
)

COLUMNS = (
    "system", "first faulty step", "less “TRIVIAL”", "among three", "90 % set holds", "members", "steps in it",
    "steps labelled right", "precision", "recall",
)  # fmt: skip
SEEDS, RESAMPLES, LAST_PLACE = 3, 2000, 9
NAMES = {"search": "AgentProcessBench, HotpotQA", "team": "Who&When, teams made by an algorithm"}


class SystemPredictions(NamedTuple):
    """Predictions of one system for every run, by draw of the folds."""

    name: str
    posteriors: list[list[Array]]
    labels: list[list[Array]]


def predict_by_place(runs: Sequence[LabelledRun], seed: int) -> list[Array]:
    """Return posteriors from the position of a step alone, counted on other questions."""
    posteriors: list[Array] = [np.empty(0)] * len(runs)
    for fold in split_folds(runs, seed):
        other_runs = [run for n, run in enumerate(runs) if n not in set(fold)]
        counts, faulty = np.ones((LAST_PLACE + 1, 2)) * 2, np.ones((LAST_PLACE + 1, 2)) * 0.3
        for run in other_runs:
            count = len(run.steps) if run.first is None or run.first < 0 else run.first + 1
            for index in range(count):
                cell = min(index, LAST_PLACE), int(index == len(run.steps) - 1)
                counts[cell] += 1
                faulty[cell] += index == run.first
        for n in fold:
            size = len(runs[n].steps)
            cells = [(min(i, LAST_PLACE), int(i == size - 1)) for i in range(size)]
            rates = [faulty[cell] / counts[cell] for cell in cells]
            posteriors[n] = chain_hazards(np.array(rates))
    return posteriors


def build_systems(runs: Sequence[LabelledRun], kind: RunKind) -> list[SystemPredictions]:
    """Build the predictions of ragfault and of the trivial baselines."""
    posteriors_by_seed, with_reference, beside_others, labels, places = [], [], [], [], []
    for seed in range(SEEDS):
        posteriors, step_labels, models = predict_unseen(runs, kind, seed)
        place_posteriors = predict_by_place(runs, seed)
        if kind == "team":
            place_posteriors = [weigh_outcome(p, "failed", np.zeros(2)) for p in place_posteriors]
        posteriors_by_seed.append(posteriors if kind == "search" else apply_outcomes(runs, posteriors, models))
        with_reference.append(apply_outcomes(runs, posteriors, models))
        beside_others.append(apply_agreements(runs, posteriors, models))
        labels.append(step_labels)
        places.append(place_posteriors)
    undefined = [[np.array([np.nan] * len(run.steps)) for run in runs]] * SEEDS
    no_fault = [[np.array([0.0] * len(run.steps) + [1.0]) for run in runs]] * SEEDS
    first_step = [[np.array([1.0] + [0.0] * len(run.steps)) for run in runs]] * SEEDS
    ones = [[np.ones(len(run.steps)) for run in runs]] * SEEDS
    systems = [
        SystemPredictions("ragfault" if kind == "team" else "ragfault, no reference", posteriors_by_seed, labels)
    ]
    if kind == "search":
        systems.append(SystemPredictions("ragfault, beside other runs of the question", beside_others, undefined))
        systems.append(SystemPredictions("ragfault, with the reference", with_reference, undefined))
    systems += [SystemPredictions("place of the step alone", places, undefined)]
    if kind == "search":
        systems.append(SystemPredictions("every step right", no_fault, ones))
    return [*systems, SystemPredictions("mark everything", first_step, [[-row for row in rows] for rows in ones])]


def score_first_faults(runs: Sequence[LabelledRun], posteriors: Sequence[Array], candidates: int = 1) -> Array:
    """Return for each run whether the truth is among the most probable entries (steps alone, if several)."""
    if candidates == 1:
        return np.array([float(p.argmax() == run.target) for run, p in zip(runs, posteriors, strict=True)])
    return np.array(
        [float(run.target in np.argsort(-p[:-1])[:candidates]) for run, p in zip(runs, posteriors, strict=True)]
    )


def count_right_labels(runs: Sequence[LabelledRun], labels: Sequence[Array]) -> tuple[Array, Array]:
    """Return for each run the number of right labels, and of labels."""
    pairs = [
        [(a, b) for a, b in zip(run.labels, predicted, strict=True) if a is not None]
        for run, predicted in zip(runs, labels, strict=True)
    ]
    return np.array([sum(a == b for a, b in part) for part in pairs]), np.array([len(part) for part in pairs])


def format_interval(runs: Sequence[LabelledRun], numerators: Array, denominators: Array | None = None) -> str:
    """Format the mean of differences of runs (or a ratio of sums) with its 95 % interval over questions."""
    denominators = np.ones(len(runs)) if denominators is None else denominators
    groups = sorted({run.group for run in runs})
    members = {group: [n for n, run in enumerate(runs) if run.group == group] for group in groups}
    sums = np.array([[part[members[group]].sum() for part in (numerators, denominators)] for group in groups])
    samples = np.random.default_rng(0).integers(0, len(groups), (RESAMPLES, len(groups)))
    ratios = sums[samples, 0].sum(1) / sums[samples, 1].sum(1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return f"{numerators.sum() / denominators.sum():+.3f} ({low:+.3f} to {high:+.3f})"


def average_draws(rows: Sequence[Array]) -> Array:
    """Return the mean over the draws of the folds."""
    mean: Array = np.mean(rows, axis=0)
    return mean


def build_table(runs: Sequence[LabelledRun], kind: RunKind) -> list[str]:
    """Build the table of one benchmark in Markdown."""
    systems = build_systems(runs, kind)
    trivial = "every step right" if kind == "search" else "place of the step alone"
    base = next(system for system in systems if system.name == trivial)
    base_hits = average_draws([score_first_faults(runs, p) for p in base.posteriors])
    lines = ["| " + " | ".join(COLUMNS).replace("TRIVIAL", trivial) + " |", "|" + "---|" * len(COLUMNS)]
    for system in systems:
        hits = average_draws([score_first_faults(runs, p) for p in system.posteriors])
        three = average_draws([score_first_faults(runs, p, 3) for p in system.posteriors])
        difference = "" if system is base else format_interval(runs, hits - base_hits)
        cells = [system.name, f"{hits.mean():.3f}", difference, f"{three.mean():.3f}" if kind == "team" else ""]
        if system.name == "mark everything":
            cells[1:] = [""] * 3  # it names no first step
        cells += format_sets(runs, system) if system.name not in ("every step right", "mark everything") else [""] * 3
        cells += [*format_labels(runs, system, kind), *format_precision_and_recall(runs, system)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def format_sets(runs: Sequence[LabelledRun], system: SystemPredictions) -> list[str]:
    sets = [cross_sets(runs, posteriors) for posteriors in system.posteriors]
    covered = [run.target >= 0 and bool(row[run.target]) for rows in sets for run, row in zip(runs, rows, strict=True)]
    sizes = [row.sum() for rows in sets for row in rows]
    return [
        f"{np.mean(covered):.3f}",
        f"{np.mean(sizes):.2f}",
        f"{np.mean([r[:-1].sum() for s in sets for r in s]):.2f}",
    ]


def format_labels(runs: Sequence[LabelledRun], system: SystemPredictions, kind: RunKind) -> list[str]:
    if kind == "team" or np.isnan(system.labels[0][0]).any():
        return [""]
    counts = [count_right_labels(runs, labels) for labels in system.labels]
    return [f"{average_draws([right for right, _ in counts]).sum() / counts[0][1].sum():.3f}"]


def format_precision_and_recall(runs: Sequence[LabelledRun], system: SystemPredictions) -> list[str]:
    """Format the precision and recall of the named first faulty steps; "mark everything" names all steps."""
    precision, recall = [], []
    faulty = sum(run.first is not None for run in runs)
    for posteriors in system.posteriors:
        if system.name == "mark everything":
            marked, hits = (
                sum(len(run.steps) for run in runs),
                sum((run.first or 0) >= 0 and run.first is not None for run in runs),
            )
        else:
            named = [
                (p.argmax() == run.target) for run, p in zip(runs, posteriors, strict=True) if p.argmax() < len(p) - 1
            ]
            marked, hits = len(named), sum(named)
        precision.append(hits / marked if marked else np.nan)
        recall.append(hits / faulty)
    shown = "" if np.isnan(precision).any() else f"{np.mean(precision):.3f}"
    return [shown, f"{np.mean(recall):.3f}"]


def build_transfer_table(search: Sequence[LabelledRun], team: Sequence[LabelledRun]) -> list[str]:
    """Build the table of accuracy on runs of another kind, and on agents and questions that were both left out."""
    lines = [
        "| trained on | used on | first faulty step | among three | place alone, its own kind |",
        "|---|---|---|---|---|",
    ]
    failed = [run for run in search if run.first is not None]
    for kind, rest, target, names in (
        ("search", search, team, ("agents that search", "teams, known to have failed")),
        ("team", team, failed, ("teams", "failed runs of agents that search")),
    ):
        model = fit(rest, kind)  # type: ignore[arg-type]
        posteriors = [model.predict_first_fault(run.features, "failed") for run in target]
        place = [weigh_outcome(p, "failed", np.zeros(2)) for p in predict_by_place(target, 0)]
        values = [
            score_first_faults(target, posteriors),
            score_first_faults(target, posteriors, 3),
            score_first_faults(target, place),
        ]
        lines.append("| " + " | ".join([*names, *(f"{value.mean():.3f}" for value in values)]) + " |")
    lines.append(format_unseen_agents(search))
    return lines


def format_unseen_agents(runs: Sequence[LabelledRun]) -> str:
    """Train without an agent and without the questions it is tested on; agents are the fifth part of each question."""
    rows = {id(run): n % 5 for n, run in enumerate(runs)}
    hits = []
    for fold in split_folds(runs, 0, 3):
        for agent in range(5):
            other_runs = [run for n, run in enumerate(runs) if n not in set(fold) and rows[id(run)] != agent]
            tested = [runs[n] for n in fold if rows[id(runs[n])] == agent]
            model = fit(other_runs, "search")
            hits += list(
                score_first_faults(tested, [chain_hazards(model.predict_hazards(run.features)) for run in tested])
            )
    return f"| other agents, other questions | agents that search | {np.mean(hits):.3f} | | |"


def build_judge_table(folder: Path) -> list[str]:
    """Build the table of the published judges, the best first."""
    rows = sorted(read_rows(folder, "agent_steps_hotpotqa_judges_dev"), key=lambda row: -row["first_error_accuracy"])
    cells = [f"| {row['judge']} | {row['first_error_accuracy']:.3f} | {row['step_accuracy']:.3f} |" for row in rows]
    return ["| judge | first faulty step | steps labelled right |", "|---|---|---|", *cells]


def main() -> None:
    """Print the tables, or write them between the marks of a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    search, team = load_runs(options.shared, "search"), load_runs(options.shared, "team")
    tables: dict[str, Callable[[], list[str]]] = {
        "search": lambda: build_table(search, "search"),
        "judges": lambda: build_judge_table(options.shared),
        "team": lambda: build_table(team, "team"),
        "transfer": lambda: build_transfer_table(search, team),
    }
    for name, build in tables.items():
        lines = build()
        print(f"## {name}\n" + "\n".join(lines) + "\n", flush=True)
        if options.page:
            write_table(options.page, name, lines)


if __name__ == "__main__":
    main()
