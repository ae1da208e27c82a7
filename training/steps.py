"""Train the model of faulty steps and measure it without the questions it was trained on.

python -m training.steps SHARED [--write]

SHARED holds agent_steps_hotpotqa_dev and agent_steps_whowhen_dev. Fitted with scikit-learn, used with numpy alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.stats import betabinom
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression

from ragfault.diagnosis.steps.agreement import Agreement, measure_agreements
from ragfault.diagnosis.steps.features import FEATURE_NAMES, Array, compute_features
from ragfault.diagnosis.steps.localization import detect_outcome
from ragfault.diagnosis.steps.model import (
    MAX_VALUE,
    OUTCOMES,
    Outcome,
    RunKind,
    StepModel,
    chain_hazards,
    select_members,
    weigh_agreement,
    weigh_outcome,
)
from ragfault.diagnosis.steps.moves import group_moves
from ragfault.io.trace_reader import read_traces
from ragfault.judges.embedded.network import TreeEnsemble
from ragfault.model.records import Trace
from training.data_files import Row, read_rows

SEARCH_FEATURES = """
place_end is_last has_call error unexecuted error_before missing covered answer_support answer_pair answer_near
answer_refuses giving_up novel novel_share guess text_length question_length closed choice query_repeat
same_query_before gain new_chunks returned_question text_question repair searches repeats_so_far next_error
answer_read read_before copy queries
"""
FEATURES_BY_KIND: dict[RunKind, tuple[str, ...]] = {"search": tuple(SEARCH_FEATURES.split()), "team": FEATURE_NAMES}
"""The features that each model reads; fewer generalise better from few questions."""
LABELS = ("wrong", "neutral", "right")

FILES: dict[RunKind, str] = {"search": "agent_steps_hotpotqa_dev", "team": "agent_steps_whowhen_dev"}
FOLDS, TREE_COUNT, MIN_LEAF, MIN_LABEL_LEAF, RIDGE, MISS_RATE = 8, 150, 4, 2, 0.03, 0.1
WEIGHTS = Path(__file__).parents[1] / "src/ragfault/diagnosis/steps/weights.npz"
PRIOR_SHAPE, SHAPE_RIDGE = 0.5, 0.1
PRIOR_RIGHT_SHARES = np.array([0.05, 0.95])
"""The share of right answers among runs with and without a fault, to which shares of few runs are smoothed."""


class LabelledRun(NamedTuple):
    """The moves of one run with the labels of people."""

    group: str
    steps: tuple[str, ...]
    features: Array
    first: int | None
    """The index of the first fault, -1 where it is no move, None where there is none."""
    labels: tuple[int | None, ...]
    outcome: Outcome
    """The outcome of the answer by the references; of a team always "failed"."""
    agreement: Agreement | None
    """What other runs of the question answered."""
    text_steps: int
    """Number of labelled steps."""

    @property
    def target(self) -> int:
        """The index of the true entry of a posterior; -2 where there is none."""
        if self.first is None:
            return len(self.steps)
        return self.first if self.first >= 0 else -2


def load_runs(folder: Path, kind: RunKind) -> list[LabelledRun]:
    """Load the runs of one benchmark with the features of their moves."""
    rows, traces = read_rows(folder, FILES[kind]), list(read_traces(folder / f"{FILES[kind]}.jsonl.gz"))
    agreements = measure_agreements(traces)
    return [_build_run(*parts, kind) for parts in zip(rows, traces, agreements, strict=True)]


def _build_run(row: Row, trace: Trace, agreement: Agreement | None, kind: RunKind) -> LabelledRun:
    moves = group_moves(trace)
    steps = tuple(move.step.id for move in moves.moves)
    labels = {str(step["index"]): step.get("label") for step in row["steps"]}
    fault = None
    if row["first_error"] is not None:
        fault = steps.index(str(row["first_error"])) if str(row["first_error"]) in steps else -1
    labelled = sum(label is not None for label in labels.values()) or len(row["steps"])
    return LabelledRun(
        row["source_id"], steps, compute_features(moves), fault, tuple(labels.get(step) for step in steps),
        "failed" if kind == "team" else detect_outcome(trace), agreement, labelled,
    )  # fmt: skip


def fit_arrays(runs: Sequence[LabelledRun], kind: RunKind) -> dict[str, Array]:
    """Fit the hazards, the labels of steps and the weight of the outcome; return them as named arrays."""
    columns = np.array([FEATURE_NAMES.index(name) for name in FEATURES_BY_KIND[kind]])
    rows = np.concatenate([run.features[: _count_hazard_rows(run)] for run in runs])
    faulty = np.concatenate([np.arange(_count_hazard_rows(run)) == run.first for run in runs])
    clipped = np.clip(rows[:, columns], -MAX_VALUE, MAX_VALUE)
    mean, deviation = clipped.mean(0), clipped.std(0) + 1e-9
    linear = LogisticRegression(C=RIDGE, max_iter=3000).fit((clipped - mean) / deviation, faulty)
    forest = ExtraTreesClassifier(
        TREE_COUNT, min_samples_leaf=MIN_LEAF, max_leaf_nodes=32, max_features=0.3, random_state=0
    ).fit(rows[:, columns], faulty)
    arrays = {
        "columns": columns, "mean": mean, "deviation": deviation, "weights": linear.coef_[0],
        "bias": linear.intercept_[0], **_fit_labels(runs, columns),
        "thresholds": np.zeros(len(OUTCOMES)), "right_shares": _estimate_right_shares(runs),
        "agreement": np.array([_fit_agreement(runs, has_fault) for has_fault in (True, False)]),
        **{f"trees.{name}": array for name, array in pack_forest(forest, 1).items()},
    }  # fmt: skip
    return {f"{kind}.{name}": np.asarray(array) for name, array in arrays.items()}


def _count_hazard_rows(run: LabelledRun) -> int:
    """Count the moves that a hazard is trained on: up to the first fault."""
    return len(run.steps) if run.first is None or run.first < 0 else run.first + 1


def _fit_labels(runs: Sequence[LabelledRun], columns: Array) -> dict[str, Array]:
    """Fit the labels of all steps, not of the first faulty one alone."""
    pairs = [
        (row, label) for run in runs for row, label in zip(run.features, run.labels, strict=True) if label is not None
    ]
    if not pairs:
        return {}
    forest = ExtraTreesClassifier(
        TREE_COUNT, min_samples_leaf=MIN_LABEL_LEAF, max_leaf_nodes=32, max_features=0.3, random_state=0
    ).fit(np.array([row for row, _ in pairs])[:, columns], [label for _, label in pairs])
    return {
        f"{label}.{name}": array
        for number, label in enumerate(LABELS)
        for name, array in pack_forest(forest, number).items()
    }


def _estimate_right_shares(runs: Sequence[LabelledRun]) -> Array:
    """Estimate the share of answers that state the reference among runs with a fault and without one, smoothed."""
    shares = []
    for has_fault, share in zip((True, False), PRIOR_RIGHT_SHARES, strict=True):
        selected = [
            run.outcome == "right"
            for run in runs
            if (run.first is not None) == has_fault and run.outcome in ("right", "differs")
        ]
        shares.append((sum(selected) + 2 * share) / (len(selected) + 2))
    return np.array(shares)


def _fit_agreement(runs: Sequence[LabelledRun], has_fault: bool) -> Array:
    """Fit the shapes of a beta-binomial number of runs that agree, held near 0.5; ones where none were compared."""
    agreements = [run.agreement for run in runs if run.agreement is not None and (run.first is not None) == has_fault]
    if not agreements:
        return np.ones(2)
    same, others = np.array([(agreement.same, agreement.others) for agreement in agreements]).T

    def measure_loss(logarithms: Array) -> float:
        likelihood = betabinom.logpmf(same, others, *np.exp(logarithms)).sum()
        return float(SHAPE_RIDGE * ((logarithms - np.log(PRIOR_SHAPE)) ** 2).sum() - likelihood)

    shapes: Array = np.exp(minimize(measure_loss, np.log([PRIOR_SHAPE] * 2), method="Nelder-Mead").x)
    return shapes


def pack_forest(forest: ExtraTreesClassifier, label: int) -> dict[str, Array]:
    """Pack the share of one label in a forest as one table of nodes (see `ragfault.judges.embedded.network`)."""
    roots: list[int] = []
    nodes: list[list[float]] = []

    def add_node(tree: Any, number: int) -> int:
        index = len(nodes)
        if tree.children_left[number] < 0:
            counts = tree.value[number][0]
            nodes.append([0, 0, index, index, counts[label] / counts.sum() / len(forest.estimators_)])
            return index
        nodes.append([tree.feature[number], tree.threshold[number], 0, 0, 0])
        nodes[index][2:4] = [add_node(tree, tree.children_left[number]), add_node(tree, tree.children_right[number])]
        return index

    for estimator in forest.estimators_:
        roots.append(add_node(estimator.tree_, 0))
    feature, threshold, left, right, value = np.array(nodes).T
    return {
        "roots": np.array(roots, np.int32), "feature": feature.astype(np.int16), "bar": threshold.astype(np.float32),
        "left": left.astype(np.int32), "right": right.astype(np.int32), "value": value.astype(np.float32),
    }  # fmt: skip


def split_folds(runs: Sequence[LabelledRun], seed: int, count: int = FOLDS) -> list[list[int]]:
    """Split the indexes of runs into folds by question."""
    groups = sorted({run.group for run in runs})
    np.random.default_rng(seed).shuffle(groups)
    return [[n for n, run in enumerate(runs) if run.group in set(groups[fold::count])] for fold in range(count)]


def predict_unseen(
    runs: Sequence[LabelledRun], kind: RunKind, seed: int
) -> tuple[list[Array], list[Array], list[StepModel]]:
    """Return posteriors and labels of each run by a model that has not seen its question, and that model."""
    posteriors: list[Array] = [np.empty(0)] * len(runs)
    labels: list[Array] = [np.empty(0)] * len(runs)
    models: list[StepModel] = [None] * len(runs)  # type: ignore[list-item]
    for fold in split_folds(runs, seed):
        arrays = fit_arrays([run for n, run in enumerate(runs) if n not in set(fold)], kind)
        model = StepModel.unpack(arrays, kind)
        label_trees = [
            TreeEnsemble.unpack(arrays, f"{kind}.{name}") for name in LABELS if f"{kind}.{name}.roots" in arrays
        ]
        for n in fold:
            posteriors[n] = chain_hazards(model.predict_hazards(runs[n].features))
            label_shares = [trees(runs[n].features[:, model.columns]) for trees in label_trees]
            labels[n] = np.argmax(label_shares, axis=0) - 1 if label_shares else np.empty(0)
            models[n] = model
    return posteriors, labels, models


def apply_outcomes(
    runs: Sequence[LabelledRun], posteriors: Sequence[Array], models: Sequence[StepModel]
) -> list[Array]:
    """Weigh posteriors by the outcomes that the runs record."""
    return [
        weigh_outcome(posterior, run.outcome, model.right_shares)
        for run, posterior, model in zip(runs, posteriors, models, strict=True)
    ]


def apply_agreements(
    runs: Sequence[LabelledRun], posteriors: Sequence[Array], models: Sequence[StepModel]
) -> list[Array]:
    """Weigh posteriors by what other runs of each question answered."""
    return [
        posterior if run.agreement is None else weigh_agreement(posterior, run.agreement, model.agreement)
        for run, posterior, model in zip(runs, posteriors, models, strict=True)
    ]


def calibrate(runs: Sequence[LabelledRun], posteriors: Sequence[Array], miss_rate: float = MISS_RATE) -> float:
    """Return the greatest threshold whose sets contain the true entry often enough, questions weighed equally.

    Conformal prediction with cross-fitted posteriors; the level is corrected for the finite number of runs.
    """
    groups = sorted({run.group for run in runs})
    sizes = {group: sum(run.group == group for run in runs) for group in groups}
    weights = np.array([1 / sizes[run.group] for run in runs])
    target_probabilities = np.array([
        p[run.target] if run.target >= 0 else 0.0 for run, p in zip(runs, posteriors, strict=True)
    ])  # fmt: skip
    is_best = np.array([
        run.target >= 0 and p.argmax() == run.target for run, p in zip(runs, posteriors, strict=True)
    ])  # fmt: skip
    level = min(1.0, (len(runs) + 1) * (1 - miss_rate) / len(runs))
    for threshold in sorted(target_probabilities, reverse=True):
        if weights[is_best | (target_probabilities >= threshold)].sum() / weights.sum() >= level:
            return float(threshold)
    return 0.0


def fit_with_thresholds(runs: Sequence[LabelledRun], kind: RunKind, seeds: int = 2) -> dict[str, Array]:
    """Fit a model on all runs, with thresholds of sets from cross-fitted posteriors."""
    thresholds = np.zeros((seeds, len(OUTCOMES)))
    for seed in range(seeds):
        posteriors, _, models = predict_unseen(runs, kind, seed)
        with_outcomes = apply_outcomes(runs, posteriors, models)
        faulty = [n for n, run in enumerate(runs) if run.first is not None]
        failed = [weigh_outcome(posteriors[n], "failed", models[n].right_shares) for n in faulty]
        with_reference = calibrate(runs, with_outcomes)
        thresholds[seed] = (
            calibrate(runs, posteriors), with_reference, with_reference, calibrate([runs[n] for n in faulty], failed),
            calibrate(runs, apply_agreements(runs, posteriors, models)),
        )  # fmt: skip
    return {**fit_arrays(runs, kind), f"{kind}.thresholds": thresholds.mean(0)}


def describe(name: str, runs: Sequence[LabelledRun], posteriors: Sequence[Array]) -> str:
    """Describe the accuracy of posteriors and the size of their sets, cross-calibrated by question."""
    hits = [p.argmax() == run.target for run, p in zip(runs, posteriors, strict=True)]
    top_three = [run.target in np.argsort(-p[:-1])[:3] for run, p in zip(runs, posteriors, strict=True)]
    members = cross_sets(runs, posteriors)
    covered = [run.target >= 0 and bool(m[run.target]) for run, m in zip(runs, members, strict=True)]
    return (
        f"{name}: first {np.mean(hits):.3f}, among three steps {np.mean(top_three):.3f}, "
        f"sets hold {np.mean(covered):.3f}, "
        f"mean size {np.mean([m.sum() for m in members]):.2f} ({np.mean([m[:-1].sum() for m in members]):.2f} steps of "
        f"{np.mean([run.text_steps for run in runs]):.2f})"
    )


def cross_sets(runs: Sequence[LabelledRun], posteriors: Sequence[Array], seed: int = 1) -> list[Array]:
    """Return the 90 % set of each run with a threshold from the other questions."""
    members: list[Array] = [np.empty(0)] * len(runs)
    for fold in split_folds(runs, seed):
        training = [n for n in range(len(runs)) if n not in set(fold)]
        threshold = calibrate([runs[n] for n in training], [posteriors[n] for n in training])
        for n in fold:
            members[n] = select_members(posteriors[n], threshold)
    return members


def main() -> None:
    """Measure, and with --write train on all runs and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    arrays: dict[str, Array] = {}
    for kind in FILES:
        runs = load_runs(options.shared, kind)
        for seed in range(2):
            posteriors, labels, models = predict_unseen(runs, kind, seed)
            with_outcomes = apply_outcomes(runs, posteriors, models)
            if kind == "search":
                print(describe(f"{kind}, reference not used", runs, posteriors))
                print(describe(f"{kind}, beside other runs", runs, apply_agreements(runs, posteriors, models)))
                pairs = [
                    (a, b)
                    for run, run_labels in zip(runs, labels, strict=True)
                    for a, b in zip(run.labels, run_labels, strict=True)
                    if a is not None
                ]
                print(f"  steps labelled right: {np.mean([a == b for a, b in pairs]):.3f}")
            print(
                describe(
                    f"{kind}, {'reference used' if kind == 'search' else 'known to have failed'}", runs, with_outcomes
                ),
                flush=True,
            )
        if options.write:
            arrays |= fit_with_thresholds(runs, kind)
    if options.write:
        np.savez_compressed(WEIGHTS, **arrays)  # type: ignore[arg-type]
        print(f"{WEIGHTS.name}: {WEIGHTS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
