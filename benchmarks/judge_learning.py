"""Measure whether a judge that learns from labels agrees better with held-out labels than one that does not.

    python -m benchmarks.judge_learning DATA_FOLDER [JUDGE] [--draws 20]

Of each set of labelled answers some groups are drawn to be labelled, and the judge is calibrated to them; the answers
of all other groups are held out. Printed are, over all draws, the mean squared error of the probability that an answer
is bad (Brier) and F1 at one half, without and with the calibration, and in how many draws the calibration lowered the
error. A line that the labels do not show to help is not applied, which counts as no change.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from benchmarks.datasets import Row, build_trace, read_rows
from ragfault.judges.calibration import calibrate_verdicts
from ragfault.judges.loading import load_judge
from ragfault.labels.judges.calibration import calibrate_judge
from ragfault.labels.judges.runner import RecordedJudge
from ragfault.model.records import Trace, Verdicts

SETS = ("attributionbench_dev", "wice_dev", "begin_dev")
LABEL_COUNTS = (50, 100, 200)
MAX_ANSWERS = 700


def build_labelled_trace(row: Row) -> Trace:
    """Build a trace with its label and its group as metadata."""
    return replace(build_trace(row), metadata={"label": int(row["label"]), "group": row["source_id"]})


def compute_risks(verdicts: Sequence[Verdicts]) -> np.ndarray:
    """Return the probability that each answer is bad."""
    return np.array([1 - item.answer.grounded for item in verdicts])  # type: ignore[union-attr, operator]


def compute_brier_and_f1(truth: np.ndarray, risk: np.ndarray) -> tuple[float, float]:
    """Return the Brier score, and F1 of the bad class at one half."""
    is_positive = risk >= 0.5
    hits = (is_positive & (truth == 1)).sum()
    return float(((risk - truth) ** 2).mean()), float(2 * hits / max(1, is_positive.sum() + truth.sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("judge", nargs="?", default="embedded")
    parser.add_argument("--draws", type=int, default=20)
    options = parser.parse_args()
    judge = load_judge(options.judge)
    for name in SETS:
        chosen = random.Random(0).sample(
            read_rows(options.data, name), k=min(MAX_ANSWERS, len(read_rows(options.data, name)))
        )
        traces = [build_labelled_trace(row) for row in chosen if row.get("answer")]
        pairs = [
            (item, verdicts)
            for item, verdicts in zip(traces, judge.observe(traces), strict=True)
            if verdicts.claim and verdicts.answer is not None and verdicts.answer.grounded is not None
        ]
        groups = sorted({item.metadata["group"] for item, _ in pairs})
        recorded = RecordedJudge(judge.fingerprint, [verdicts for _, verdicts in pairs])
        for size in LABEL_COUNTS:
            if size > len(pairs) / 2:
                continue
            results = [compare_calibration(pairs, groups, recorded, size, seed) for seed in range(options.draws)]
            before, after = np.array([pair[0] for pair in results]), np.array([pair[1] for pair in results])
            lower = int((after[:, 0] < before[:, 0]).sum())
            higher = int((after[:, 0] > before[:, 0]).sum())
            print(
                f"{name:22} {len(pairs):4} answers, {size:3} labels: Brier {before[:, 0].mean():.3f} → "
                f"{after[:, 0].mean():.3f}, F1 {before[:, 1].mean():.3f} → {after[:, 1].mean():.3f}; "
                f"lower error in {lower}, higher in {higher} of {len(results)} draws"
            )


def compare_calibration(
    pairs: Sequence[tuple[Trace, Verdicts]], groups: Sequence[str], judge: RecordedJudge, size: int, seed: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return Brier score and F1 on held-out groups, without and with the labels of the others."""
    order = random.Random(seed).sample(groups, len(groups))
    labelled: list[tuple[Trace, Verdicts]] = []
    names: set[str] = set()
    for group in order:
        if len(labelled) >= size:
            break
        names.add(group)
        labelled += [pair for pair in pairs if pair[0].metadata["group"] == group]
    unlabelled = [pair for pair in pairs if pair[0].metadata["group"] not in names]
    truth = np.array([item.metadata["label"] for item, _ in unlabelled])
    verdicts = [seen for _, seen in unlabelled]
    calibration = calibrate_judge([item for item, _ in labelled], judge=judge, task="answer", group="group")
    calibrated = [calibrate_verdicts(item, calibration) for item in verdicts]
    return compute_brier_and_f1(truth, compute_risks(verdicts)), compute_brier_and_f1(truth, compute_risks(calibrated))


if __name__ == "__main__":
    main()
