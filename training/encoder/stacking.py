"""Fit the stack of the judge encoder on kept claims, and measure it beside the judge embedded on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from ragfault.judges.embedded.support import combine_claims
from ragfault.judges.encoder.judge import VERBATIM_ODDS
from ragfault.judges.encoder.stack import INPUTS, SupportStack, predict_groundedness, share_prior
from ragfault.stats.bootstrap import bootstrap_estimates
from ragfault.stats.classification import RankedScores, calibration_error
from ragfault.stats.estimates import BootstrapEstimate
from training.encoder.claims import (
    WeighedAnswer,
    list_fitted,
    list_measured,
    list_other_languages,
    list_test_languages,
    weigh_answers,
)

# Column of the inputs: what the encoder reads of support, and what the embedded judge says against it.
READ, WORDS = 0, 2
RIDGE = 1.0
FOLDS = 5


def fit_weights(answers: Sequence[WeighedAnswer]) -> np.ndarray:
    """Fit the weights of the stack, the intercept last; both sets count alike, and bad and good claims of each."""
    inputs = np.concatenate([item.inputs for item in answers])
    marks = np.concatenate([item.answer.marks for item in answers])
    sets = np.repeat([item.answer.set for item in answers], [len(item.inputs) for item in answers])
    weights = np.zeros(len(marks))
    for name in set(sets):
        for mark in (0, 1):
            inside = (sets == name) & (marks == mark)
            weights[inside] = 1_000 / max(1, inside.sum())
    mean, deviation = inputs.mean(0), inputs.std(0) + 1e-9
    known = marks >= 0
    model = LogisticRegression(C=RIDGE, max_iter=1_000).fit(
        ((inputs - mean) / deviation)[known], marks[known], sample_weight=weights[known]
    )
    slopes = model.coef_[0] / deviation
    return np.append(slopes, model.intercept_[0] - slopes @ mean)


def apply_weights(item: WeighedAnswer, weights: np.ndarray) -> np.ndarray:
    """Return the log-odds that the claims of an answer are not supported."""
    return np.where(item.is_verbatim, VERBATIM_ODDS, share_prior(item.inputs @ weights[:-1] + weights[-1]))


def cross_fit(answers: Sequence[WeighedAnswer]) -> list[np.ndarray]:
    """Return what the inputs of each answer's claims weigh, by weights that were fitted on other groups."""
    weighed: list[np.ndarray] = [np.zeros(0)] * len(answers)
    groups = [item.answer.group for item in answers]
    for fitted, left in GroupKFold(FOLDS).split(groups, groups=groups):
        weights = fit_weights([answers[place] for place in fitted])
        for place in left:
            weighed[place] = answers[place].inputs @ weights[:-1] + weights[-1]
    return weighed


def fit_line(answers: Sequence[WeighedAnswer], weighed: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return slope and intercept of the calibration, by maximum likelihood over claims and answers of systems.

    The odds against an answer are the sum of those against its five worst claims, which share its prior odds. So one
    line serves both, and all texts: a line for each type of text tells data sets apart by their share of bad answers,
    and ranks no text better.
    """
    systems = [place for place, item in enumerate(answers) if item.answer.set == "ragtruth"]
    marks = np.concatenate([answers[place].answer.marks for place in systems])
    bad = np.array([answers[place].answer.bad for place in systems])

    def mean_loss(line: np.ndarray) -> float:
        slope, intercept = line
        odds = [
            np.where(answers[place].is_verbatim, VERBATIM_ODDS, share_prior(slope * weighed[place] + intercept))
            for place in systems
        ]
        worst = np.array([combine_claims(values) for values in odds])
        sides = ((np.concatenate(odds)[marks >= 0], marks[marks >= 0]), (worst, bad))
        return sum(float(np.logaddexp(0, np.where(labels == 1, -values, values)).mean()) for values, labels in sides)

    slope, intercept = minimize(mean_loss, [1.0, 0.0], method="Nelder-Mead").x
    return float(slope), float(intercept)


def fit_stack(data: Path) -> SupportStack:
    """Fit the stack, print how it does on what it was not fitted on, and return it."""
    fitted = weigh_answers(list_fitted(data))
    weights = fit_weights(fitted)
    print("weights", dict(zip(INPUTS, weights.round(2).tolist(), strict=True)), flush=True)
    slope, intercept = fit_line(fitted, cross_fit(fitted))
    print(f"calibration: slope {slope:.2f}, intercept {intercept:.2f}", flush=True)
    weights *= slope
    weights[-1] += intercept
    stack = SupportStack(weights, relevance=np.zeros(3), answering=np.zeros(2))
    measured = weigh_answers(list_measured(data))
    for name in dict.fromkeys(item.answer.set for item in measured):
        print_set(name, [item for item in measured if item.answer.set == name], stack)
    return stack


def fit_multilingual_stack(data: Path) -> SupportStack:
    """Fit the stack of the multilingual model, print how it does in each language on another writer, and return it."""
    # The embedded judge knows no words of these languages: what the encoder reads of support has the only weight.
    fitted = [item._replace(inputs=item.inputs[:, [READ]]) for item in weigh_answers(list_other_languages(data))]
    weights = np.zeros(len(INPUTS))
    weights[[READ, -1]] = fit_weights(fitted)
    print("weights", dict(zip(INPUTS, weights.round(2).tolist(), strict=True)), flush=True)
    stack = SupportStack(weights, relevance=np.zeros(3), answering=np.zeros(2))
    measured = weigh_answers(list_test_languages(data))
    for name in dict.fromkeys(item.answer.set for item in measured):
        print_set(name, [item for item in measured if item.answer.set == name], stack)
    return stack


def print_set(name: str, answers: Sequence[WeighedAnswer], stack: SupportStack) -> None:
    """Print the AUROC of bad answers by each judge, the gain over each, with intervals, and the calibration error."""
    odds = [apply_weights(item, stack.weights) for item in answers]
    scores = {
        "embedded": [combine_claims(item.inputs[:, WORDS]) for item in answers],
        "read alone": [combine_claims(-item.inputs[:, READ]) for item in answers],
        "stack": [combine_claims(values) for values in odds],
    }
    bad = np.array([item.answer.bad for item in answers], bool)
    grounded = [predict_groundedness(values) for values in odds]
    called = np.array(grounded) < 0.5
    rates = [float((called == bad)[bad == value].mean()) for value in (True, False)]
    error = calibration_error(grounded, ~bad)
    print(f"{name}: {len(answers):,} answers, {bad.mean():.2f} bad", end="; ")
    print(f"calibration error {error:.3f}, balanced accuracy {np.mean(rates):.3f}")
    for label, estimate in compare_judges(scores, bad, [item.answer.group for item in answers]).items():
        if estimate.value is None or estimate.low is None or estimate.high is None:
            print(f"    {label:24} undefined", flush=True)
        else:
            print(f"    {label:24} {estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]", flush=True)
    if name == "contrast":
        for judge, values in scores.items():
            print(f"    both above the falsehood, {judge:10} {share_both_above(answers, values):.3f}")


def compare_judges(
    scores: Mapping[str, Sequence[float]], bad: np.ndarray, groups: Sequence[str]
) -> dict[str, BootstrapEstimate]:
    """Return the AUROC of each judge, and that of the last less each other one, resampled by groups."""
    ranked = {name: RankedScores(values, bad) for name, values in scores.items()}
    *others, last = ranked

    def compute(weights: np.ndarray) -> np.ndarray:
        areas = {name: item.auroc(*item.class_weights(weights)) for name, item in ranked.items()}
        return np.column_stack([*areas.values(), *(areas[last] - areas[name] for name in others)])

    names = [*ranked, *(f"{last} less {name}" for name in others)]
    return dict(zip(names, bootstrap_estimates(compute, list(groups)), strict=True))


def share_both_above(answers: Sequence[WeighedAnswer], scores: Sequence[float]) -> float:
    """Return the share of contrast pairs whose paraphrase and copied passage are both rated above the falsehood."""
    pairs: dict[str, dict[str, float]] = {}
    for item, score in zip(answers, scores, strict=True):
        pairs.setdefault(item.answer.group, {})[item.answer.id] = score
    complete = [pair for pair in pairs.values() if len(pair) == 3]
    return float(np.mean([max(pair["true"], pair["copied"]) < pair["false"] for pair in complete]))
