"""Measure whether judges together agree better with labels than each alone, and what a second judge adds by share.

    python -m benchmarks.combined_judges DATA_FOLDER [JUDGE …] [--answers 1800] [--sets ragtruth_train …]

Each judge looks at the same answers once, whole groups drawn at random. A jury of each two of them, and of all, learns
its weights from one half of the groups; printed is the AUROC on the other half, of each judge alone and of the juries
with equal and with learned weights. Then for each ordered pair: the share of what the second judge gains over the first
that a cascade keeps, by the share of the answers that the second judge sees, those of which the first is least certain.
Last, the same on the other half, by judges that were calibrated on the one half.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from pathlib import Path

import numpy as np

from ragfault.judges.calibration import wrap_judge
from ragfault.judges.combined import combine_judges
from ragfault.judges.loading import load_judge
from ragfault.labels.judges.calibration import calibrate_judge
from ragfault.labels.judges.figures import assign_folds
from ragfault.labels.judges.measuring import judge_labels
from ragfault.labels.judges.runner import RecordedJudge
from ragfault.labels.judges.units import ScoredUnits, build_units, iterate_answers
from ragfault.labels.reading.labeled_traces import LabeledTrace
from ragfault.labels.settings import LabelSettings
from ragfault.model.protocols import Judge
from ragfault.model.records import Trace
from ragfault.stats.classification import auroc

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)


def judge_once(path: Path, name: str, answers: int) -> tuple[RecordedJudge, Sequence[LabeledTrace]]:
    """Return a judge that replays its verdicts, and the labelled traces."""
    judged = judge_labels(path, LabelSettings(judge=name, limit=answers)).judged
    verdicts = [*judged.verdicts, *judged.claim_verdicts]
    return RecordedJudge(load_judge(name).fingerprint, verdicts), judged.labeled


def rate(judge: Judge, labeled: Sequence[LabeledTrace]) -> ScoredUnits:
    """Return the answers with a label as the judge sees them."""
    return build_units("answer", list(iterate_answers(labeled, judge.observe([item.trace for item in labeled]))))


def measure_balance(called: np.ndarray, label: np.ndarray) -> float:
    """Return the mean of sensitivity and specificity."""
    return float((called[label].mean() + (~called[~label]).mean()) / 2)


def split_labeled(labeled: Sequence[LabeledTrace]) -> tuple[list[Trace], list[LabeledTrace]]:
    """Return the traces to learn from, and the held-out ones with their labels."""
    learns = np.array(assign_folds([item.group for item in labeled], 0)) % 2 == 0
    train = [item.trace for item, flag in zip(labeled, learns, strict=True) if flag]
    return train, [item for item, flag in zip(labeled, learns, strict=True) if not flag]


def print_juries(judges: dict[str, RecordedJudge], labeled: Sequence[LabeledTrace]) -> None:
    """Print held-out AUROC of each judge and of each jury."""
    train, tested = split_labeled(labeled)

    def rank(judge: Judge) -> float:
        units = rate(judge, tested)
        return auroc(units.score, units.label) or 0.0

    alone = {name: rank(judge) for name, judge in judges.items()}
    print(f"  {len(train)} answers to learn from, {len(tested)} held out; AUROC alone:", end=" ")
    print(", ".join(f"{name} {value:.4f}" for name, value in alone.items()))
    groups = [*combinations(judges, 2), *([tuple(judges)] if len(judges) > 2 else [])]
    for names in groups:
        jury = combine_judges([judges[name] for name in names])
        calibration = calibrate_judge(train, judge=jury)
        line = calibration.get_line("answer")
        weights = ":".join(f"{weight:.2f}" for weight in line.weights) if line else "equal"
        learned, best = rank(wrap_judge(jury, calibration)), max(alone[name] for name in names)
        print(
            f"  jury:{','.join(names)}: equal {rank(jury):.4f}, learned {learned:.4f} ({weights}), "
            f"learned less the best {learned - best:+.4f}"
        )


def print_cascades(judges: Mapping[str, Judge], labeled: Sequence[LabeledTrace]) -> None:
    """Print the share of the gain that a cascade keeps, for pairs whose second judge is better."""
    units = {name: rate(judge, labeled) for name, judge in judges.items()}
    for first, second in permutations(judges, 2):
        before, after = units[first], units[second]
        label = before.label
        ranks = auroc(before.score, label) or 0.0, auroc(after.score, label) or 0.0
        balances = measure_balance(before.called, label), measure_balance(after.called, label)
        if ranks[1] - ranks[0] < 0.01:
            continue
        order = np.argsort(np.abs(before.score - 0.5), kind="stable")
        for share in SHARES:
            seen = np.zeros(label.size, bool)
            seen[order[: int(share * label.size)]] = True
            rank = auroc(np.where(seen, after.score, before.score), label) or 0.0
            balance = measure_balance(np.where(seen, after.called, before.called), label)
            print(
                f"  {first} → {second}, {share:.0%} seen: {(rank - ranks[0]) / (ranks[1] - ranks[0]):.0%} of the gain "
                f"in AUROC, {(balance - balances[0]) / (balances[1] - balances[0]):.0%} in balanced accuracy"
            )


def print_calibrated(judges: dict[str, RecordedJudge], labeled: Sequence[LabeledTrace]) -> None:
    """Print the same on the held-out answers, by judges that were calibrated on the others."""
    train, tested = split_labeled(labeled)
    print("  calibrated on the answers to learn from:")
    print_cascades(
        {name: wrap_judge(judge, calibrate_judge(train, judge=judge)) for name, judge in judges.items()}, tested
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("judges", nargs="*", default=["encoder", "embedded", "lexical"])
    parser.add_argument("--answers", type=int, default=1800)
    parser.add_argument("--sets", nargs="+", default=["ragtruth_train"])
    options = parser.parse_args()
    for name in options.sets:
        print(name)
        judged = {
            judge: judge_once(options.data / f"{name}.jsonl.gz", judge, options.answers) for judge in options.judges
        }
        labeled = next(iter(judged.values()))[1]
        judges = {judge: recorded for judge, (recorded, _) in judged.items()}
        print_juries(judges, labeled)
        print_cascades(judges, labeled)
        print_calibrated(judges, labeled)


if __name__ == "__main__":
    main()
