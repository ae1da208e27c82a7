"""Measure how well faulty steps are located, beside trivial baselines and published judges.

    python -m benchmarks.steps SHARED [--page docs/benchmarks-steps.md]

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
from training.steps import (
    Array,
    LabelledRun,
    RunKind,
    apply_outcomes,
    cross_sets,
    fit,
    load_runs,
    predict_unseen,
    split_folds,
    weigh_outcome,
)

from ragfault.analysis.steps.model import chain_hazards

COLUMNS = (
    "system", "first faulty step", "less “TRIVIAL”", "among three", "90 % set holds", "members", "steps in it",
    "steps labelled right", "precision", "recall",
)  # fmt: skip
SEEDS, RESAMPLES, FARTHEST = 3, 2000, 9
NAMES = {"search": "AgentProcessBench, HotpotQA", "team": "Who&When, teams made by an algorithm"}


class System(NamedTuple):
    """What one system says of every run, for each draw of the folds."""

    name: str
    posteriors: list[list[Array]]
    labels: list[list[Array]]


def predict_by_place(runs: Sequence[LabelledRun], seed: int) -> list[Array]:
    """Return posteriors from the place of a step alone, counted on other questions."""
    posteriors: list[Array] = [np.empty(0)] * len(runs)
    for fold in split_folds(runs, seed):
        rest = [run for n, run in enumerate(runs) if n not in set(fold)]
        seen, faulty = np.ones((FARTHEST + 1, 2)) * 2, np.ones((FARTHEST + 1, 2)) * 0.3
        for run in rest:
            count = len(run.steps) if run.first is None or run.first < 0 else run.first + 1
            for index in range(count):
                cell = min(index, FARTHEST), int(index == len(run.steps) - 1)
                seen[cell] += 1
                faulty[cell] += index == run.first
        for n in fold:
            size = len(runs[n].steps)
            cells = [(min(i, FARTHEST), int(i == size - 1)) for i in range(size)]
            rates = [faulty[cell] / seen[cell] for cell in cells]
            posteriors[n] = chain_hazards(np.array(rates))
    return posteriors


def build_systems(runs: Sequence[LabelledRun], kind: RunKind) -> list[System]:
    """Build our systems and the trivial ones."""
    ours, known, labels, places = [], [], [], []
    for seed in range(SEEDS):
        posteriors, own, shares = predict_unseen(runs, kind, seed)
        place = predict_by_place(runs, seed)
        if kind == "team":
            place = [weigh_outcome(p, "failed", np.zeros(2)) for p in place]
        ours.append(posteriors if kind == "search" else apply_outcomes(runs, posteriors, shares))
        known.append(apply_outcomes(runs, posteriors, shares))
        labels.append(own)
        places.append(place)
    blank = [[np.array([np.nan] * len(run.steps)) for run in runs]] * SEEDS
    right = [[np.array([0.0] * len(run.steps) + [1.0]) for run in runs]] * SEEDS
    every = [[np.array([1.0] + [0.0] * len(run.steps)) for run in runs]] * SEEDS
    ones = [[np.ones(len(run.steps)) for run in runs]] * SEEDS
    systems = [System("ragfault" if kind == "team" else "ragfault, no reference", ours, labels)]
    if kind == "search":
        systems.append(System("ragfault, with the reference", known, blank))
    systems += [System("place of the step alone", places, blank)]
    if kind == "search":
        systems.append(System("every step right", right, ones))
    return [*systems, System("mark everything", every, [[-row for row in rows] for rows in ones])]


def score_first(runs: Sequence[LabelledRun], posteriors: Sequence[Array], among: int = 1) -> Array:
    """Return for each run whether the truth is among the most probable entries (steps alone, if several)."""
    if among == 1:
        return np.array([float(p.argmax() == run.target) for run, p in zip(runs, posteriors, strict=True)])
    return np.array([float(run.target in np.argsort(-p[:-1])[:among]) for run, p in zip(runs, posteriors, strict=True)])


def score_labels(runs: Sequence[LabelledRun], labels: Sequence[Array]) -> tuple[Array, Array]:
    """Return for each run the number of right labels, and of labels."""
    pairs = [
        [(a, b) for a, b in zip(run.labels, own, strict=True) if a is not None]
        for run, own in zip(runs, labels, strict=True)
    ]
    return np.array([sum(a == b for a, b in part) for part in pairs]), np.array([len(part) for part in pairs])


def interval(runs: Sequence[LabelledRun], top: Array, bottom: Array | None = None) -> str:
    """Return the mean of differences of runs (or a ratio of sums) with its 95 % interval over questions."""
    bottom = np.ones(len(runs)) if bottom is None else bottom
    groups = sorted({run.group for run in runs})
    sums = np.array([
        [sum(part[n] for n, run in enumerate(runs) if run.group == group) for part in (top, bottom)] for group in groups
    ])  # fmt: skip
    samples = np.random.default_rng(0).integers(0, len(groups), (RESAMPLES, len(groups)))
    ratios = sums[samples, 0].sum(1) / sums[samples, 1].sum(1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return f"{top.sum() / bottom.sum():+.3f} ({low:+.3f} to {high:+.3f})"


def average(rows: Sequence[Array]) -> Array:
    """Return the mean over the draws of the folds."""
    mean: Array = np.mean(rows, axis=0)
    return mean


def measure(runs: Sequence[LabelledRun], kind: RunKind) -> list[str]:
    """Return the table of one benchmark in Markdown."""
    systems = build_systems(runs, kind)
    trivial = "every step right" if kind == "search" else "place of the step alone"
    base = next(system for system in systems if system.name == trivial)
    base_hits = average([score_first(runs, p) for p in base.posteriors])
    lines = ["| " + " | ".join(COLUMNS).replace("TRIVIAL", trivial) + " |", "|" + "---|" * len(COLUMNS)]
    for system in systems:
        hits = average([score_first(runs, p) for p in system.posteriors])
        three = average([score_first(runs, p, 3) for p in system.posteriors])
        difference = "" if system is base else interval(runs, hits - base_hits)
        cells = [system.name, f"{hits.mean():.3f}", difference, f"{three.mean():.3f}" if kind == "team" else ""]
        if system.name == "mark everything":
            cells[1:] = [""] * 3  # it names no first step
        cells += (
            _describe_sets(runs, system) if system.name not in ("every step right", "mark everything") else [""] * 3
        )
        cells += [*_describe_labels(runs, system, kind), *_describe_marks(runs, system)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _describe_sets(runs: Sequence[LabelledRun], system: System) -> list[str]:
    sets = [cross_sets(runs, posteriors) for posteriors in system.posteriors]
    covered = [run.target >= 0 and bool(row[run.target]) for rows in sets for run, row in zip(runs, rows, strict=True)]
    sizes = [row.sum() for rows in sets for row in rows]
    return [
        f"{np.mean(covered):.3f}",
        f"{np.mean(sizes):.2f}",
        f"{np.mean([r[:-1].sum() for s in sets for r in s]):.2f}",
    ]


def _describe_labels(runs: Sequence[LabelledRun], system: System, kind: RunKind) -> list[str]:
    if kind == "team" or np.isnan(system.labels[0][0]).any():
        return [""]
    counts = [score_labels(runs, labels) for labels in system.labels]
    return [f"{average([right for right, _ in counts]).sum() / counts[0][1].sum():.3f}"]


def _describe_marks(runs: Sequence[LabelledRun], system: System) -> list[str]:
    """Describe the precision and recall of what is named as first faulty step; "mark everything" names all."""
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


def measure_transfer(search: Sequence[LabelledRun], team: Sequence[LabelledRun]) -> list[str]:
    """Return accuracy on runs of another kind, and on agents and questions that were both left out."""
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
        values = [score_first(target, posteriors), score_first(target, posteriors, 3), score_first(target, place)]
        lines.append("| " + " | ".join([*names, *(f"{value.mean():.3f}" for value in values)]) + " |")
    lines.append(_leave_agents_out(search))
    return lines


def _leave_agents_out(runs: Sequence[LabelledRun]) -> str:
    """Train without an agent and without the questions it is tested on; agents are the fifth part of each question."""
    rows = {id(run): n % 5 for n, run in enumerate(runs)}
    hits = []
    for fold in split_folds(runs, 0, 3):
        for agent in range(5):
            rest = [run for n, run in enumerate(runs) if n not in set(fold) and rows[id(run)] != agent]
            tested = [runs[n] for n in fold if rows[id(runs[n])] == agent]
            model = fit(rest, "search")
            hits += list(score_first(tested, [chain_hazards(model.predict_hazards(run.features)) for run in tested]))
    return f"| other agents, other questions | agents that search | {np.mean(hits):.3f} | | |"


def list_judges(folder: Path) -> list[str]:
    """Return the published judges, the best first."""
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
        "search": lambda: measure(search, "search"), "judges": lambda: list_judges(options.shared),
        "team": lambda: measure(team, "team"), "transfer": lambda: measure_transfer(search, team),
    }  # fmt: skip
    for name, build in tables.items():
        lines = build()
        print(f"## {name}\n" + "\n".join(lines) + "\n", flush=True)
        if options.page:
            write_table(options.page, name, lines)


if __name__ == "__main__":
    main()
