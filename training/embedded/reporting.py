"""Reporting: how well scores of answers agree with what people said."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from training.embedded.examples import Answer

from ragfault.judges.embedded.vectors import Array
from ragfault.stats import auroc, auroc_within_groups, choose_threshold

__all__ = ["report"]


def report(answers: Sequence[Answer], told: Array, name: str) -> None:
    """Print the figures of some answers: RAGTruth as a whole and by task, then the other sets."""
    bad = np.array([one.bad for one in answers])
    sets = np.array([one.set for one in answers])
    print(f"{name}:")
    for one in dict.fromkeys(sets):
        held = sets == one
        _line(one, answers, bad, told, held)
        tasks = np.array([each.task for each in answers])
        if one == "ragtruth":
            for task in dict.fromkeys(tasks[held]):
                _line(f"  {task}", answers, bad, told, held & (tasks == task))


def _line(name: str, answers: Sequence[Answer], bad: Array, told: Array, held: Array) -> None:
    groups = [f"{one.task} {one.model}" for one, inside in zip(answers, held, strict=True) if inside]
    score, label = told[held], bad[held]
    inner = auroc_within_groups(score, label, groups)
    f1, balanced = (choose_threshold(score, label, goal) for goal in ("f1", "balanced_accuracy"))
    figures = {
        "AUROC": auroc(score, label), "within": inner and inner.value, "best F1": f1 and f1.value,
        "best balanced accuracy": balanced and balanced.value,
    }  # fmt: skip
    told_ = "  ".join(f"{key} {value:.3f}" for key, value in figures.items() if value is not None)
    print(f"  {name:18} n {held.sum():6,}  bad {label.mean():.2f}  {told_}", flush=True)
