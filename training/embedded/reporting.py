"""Printing the agreement of scores of answers with labels of people."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragfault.judges.embedded.support import logistic
from ragfault.judges.embedded.word_vectors import Array
from ragfault.labels.judges.figures import TARGET_PRECISION
from ragfault.labels.judges.generator_order import MIN_GENERATORS, kendall_tau
from ragfault.stats.classification import RankedScores, auroc, auroc_within_groups, choose_threshold
from training.embedded.examples import Answer

__all__ = ["report"]


def report(answers: Sequence[Answer], probabilities: Array, title: str) -> None:
    """Print the figures of some answers: RAGTruth as a whole and by task, then the other sets."""
    is_bad = np.array([answer.bad for answer in answers])
    sets = np.array([answer.set for answer in answers])
    print(f"{title}:")
    for name in dict.fromkeys(sets):
        selected = sets == name
        _print_line(name, answers, is_bad, probabilities, selected)
        tasks = np.array([answer.task for answer in answers])
        if name == "ragtruth":
            for task in dict.fromkeys(tasks[selected]):
                _print_line(f"  {task}", answers, is_bad, probabilities, selected & (tasks == task))


def _print_line(name: str, answers: Sequence[Answer], is_bad: Array, probabilities: Array, selected: Array) -> None:
    groups = [f"{answer.task} {answer.model}" for answer, inside in zip(answers, selected, strict=True) if inside]
    score, label = probabilities[selected], is_bad[selected]
    within = auroc_within_groups(score, label, groups)
    f1, balanced = (choose_threshold(score, label, goal) for goal in ("f1", "balanced_accuracy"))
    ranked = RankedScores(score, label)
    recall = ranked.recall_at_precision(TARGET_PRECISION, *ranked.class_weights(np.ones((1, len(score)))))[0]
    figures = {
        "AUROC": auroc(score, label), "within": within and within.value, "best F1": f1 and f1.value,
        "best balanced accuracy": balanced and balanced.value, "recall at precision 0.80": recall,
        "order of generators": compare_generators(score, label, groups),
    }  # fmt: skip
    listing = "  ".join(f"{key} {value:.3f}" for key, value in figures.items() if value is not None)
    print(f"  {name:18} n {selected.sum():6,}  bad {label.mean():.2f}  {listing}", flush=True)


def compare_generators(score: Array, label: Array, groups: Sequence[str]) -> float | None:
    """Return Kendall's tau of the generators' order by mean probability and by labels; None for too few of them."""
    names = np.unique(groups)
    members = [np.array(groups) == name for name in names]
    if len(names) < MIN_GENERATORS:
        return None
    rates = (np.array([[values[member].mean() for member in members]]) for values in (label, logistic(score)))
    tau = kendall_tau(*rates)[0]
    return None if np.isnan(tau) else float(tau)
