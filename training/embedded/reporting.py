"""Reporting: how well scores of answers agree with what people said."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from training.embedded.examples import Answer

from ragfault.judges.embedded.word_vectors import Array
from ragfault.stats import auroc, auroc_within_groups, choose_threshold

__all__ = ["report"]


def report(answers: Sequence[Answer], reported: Array, name: str) -> None:
    """Print the figures of some answers: RAGTruth as a whole and by task, then the other sets."""
    bad = np.array([answer.bad for answer in answers])
    sets = np.array([answer.set for answer in answers])
    print(f"{name}:")
    for fromkey in dict.fromkeys(sets):
        content = sets == fromkey
        _line(fromkey, answers, bad, reported, content)
        tasks = np.array([answer.task for answer in answers])
        if fromkey == "ragtruth":
            for task in dict.fromkeys(tasks[content]):
                _line(f"  {task}", answers, bad, reported, content & (tasks == task))


def _line(name: str, answers: Sequence[Answer], bad: Array, reported: Array, content: Array) -> None:
    groups = [f"{answer.task} {answer.model}" for answer, inside in zip(answers, content, strict=True) if inside]
    score, label = reported[content], bad[content]
    inner = auroc_within_groups(score, label, groups)
    f1, balanced = (choose_threshold(score, label, goal) for goal in ("f1", "balanced_accuracy"))
    figures = {
        "AUROC": auroc(score, label), "within": inner and inner.value, "best F1": f1 and f1.value,
        "best balanced accuracy": balanced and balanced.value,
    }  # fmt: skip
    listed = "  ".join(f"{key} {value:.3f}" for key, value in figures.items() if value is not None)
    print(f"  {name:18} n {content.sum():6,}  bad {label.mean():.2f}  {listed}", flush=True)
