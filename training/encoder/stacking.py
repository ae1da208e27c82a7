"""Fit the stack of the judge encoder on kept claims, and measure it beside the judge embedded on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from ragfault.judges.embedded.support import TEXT_TYPES, combine_claims
from ragfault.judges.encoder.judge import VERBATIM_ODDS
from ragfault.judges.encoder.stack import INPUTS, PASSING, SupportStack
from ragfault.stats.bootstrap import bootstrap_estimates
from ragfault.stats.classification import RankedScores, calibration_error
from ragfault.stats.estimates import BootstrapEstimate
from training.embedded.rates import BASE_RATES, calibrate, compute_prior, match_rate
from training.encoder.claims import WeighedAnswer, list_fitted, list_measured, weigh_answers

# Column of the inputs: what the encoder reads of support, and what the embedded judge says against it.
READ, WORDS = 0, 2
RIDGE = 1.0
# Of equal weight they rank contrast .017 better, and RAGTruth .013 worse.
SET_WEIGHTS = {"ragtruth": 2.0, "authored": 1.0}
# A type of text with fewer answers has the calibration of single claims.
MIN_ANSWERS = 50
FOLDS = 5


def fit_weights(answers: Sequence[WeighedAnswer]) -> np.ndarray:
    """Fit the weights of the stack, the intercept last; bad and good claims of a set count alike."""
    inputs = np.concatenate([item.inputs for item in answers])
    marks = np.concatenate([item.answer.marks for item in answers])
    sets = np.repeat([item.answer.set for item in answers], [len(item.inputs) for item in answers])
    weights = np.zeros(len(marks))
    for name, set_weight in SET_WEIGHTS.items():
        for mark in (0, 1):
            inside = (sets == name) & (marks == mark)
            weights[inside] = 1_000 * set_weight / max(1, inside.sum())
    mean, deviation = inputs.mean(0), inputs.std(0) + 1e-9
    known = marks >= 0
    model = LogisticRegression(C=RIDGE, max_iter=1_000).fit(
        ((inputs - mean) / deviation)[known], marks[known], sample_weight=weights[known]
    )
    slopes = model.coef_[0] / deviation
    return np.append(slopes, model.intercept_[0] - slopes @ mean)


def apply_weights(item: WeighedAnswer, weights: np.ndarray) -> np.ndarray:
    """Return the log-odds that the claims of an answer are not supported."""
    return np.where(item.is_verbatim, VERBATIM_ODDS, item.inputs @ weights[:-1] + weights[-1])


def cross_fit(answers: Sequence[WeighedAnswer]) -> list[np.ndarray]:
    """Return the log-odds of the claims of each answer by weights that were fitted on other groups."""
    odds: list[np.ndarray] = [np.zeros(0)] * len(answers)
    groups = [item.answer.group for item in answers]
    for fitted, left in GroupKFold(FOLDS).split(groups, groups=groups):
        weights = fit_weights([answers[place] for place in fitted])
        for place in left:
            odds[place] = apply_weights(answers[place], weights)
    return odds


def calibrate_at_half(odds: np.ndarray, marks: np.ndarray, prior: float) -> tuple[float, float]:
    """Fit a calibration that is shifted so that as many claims are below one half as are bad, if `prior` of all are.

    A claim is called unsupported below one half, and an answer passes if its claims do. Without the shift a claim is
    called so too rarely: where one claim in ten is bad, most of the doubtful ones are good.
    """
    slope, intercept = calibrate(odds, marks, prior)
    threshold = match_rate(odds, marks, prior, (slope, intercept))
    return slope, intercept + np.log(threshold / (1 - threshold))


def fit_claim_lines(answers: Sequence[WeighedAnswer], odds: Sequence[np.ndarray]) -> np.ndarray:
    """Return the calibration of claims of each type of text; a rare type has that of single claims."""
    types = np.array([item.text_type for item in answers])
    lines = {}
    for number, name in enumerate(TEXT_TYPES):
        places = np.flatnonzero(types == number)
        if len(places) >= MIN_ANSWERS:
            marks = np.concatenate([answers[place].answer.marks for place in places])
            values = np.concatenate([odds[place] for place in places])
            lines[name] = calibrate_at_half(values[marks >= 0], marks[marks >= 0], BASE_RATES[name])
    return np.array([lines.get(name, lines["claim"]) for name in TEXT_TYPES])


def fit_answer_lines(
    answers: Sequence[WeighedAnswer], odds: Sequence[np.ndarray], claim_lines: np.ndarray
) -> np.ndarray:
    """Return the calibration of answers of each type of text: where a claim does not pass, and where all do.

    Whether an answer passes is decided by its claims, so each side has a line of its own: one line for both puts
    answers of records, of which two in three are bad, at one half though all of their claims pass. Answers of systems
    are calibrated as they come. Single claims are authored, of which more are bad than of any system's, so that they
    count as if the share of `BASE_RATES`, halfway to one half, were.
    """
    types = np.array([item.text_type for item in answers])
    is_system = np.array([item.answer.set == "ragtruth" for item in answers])
    bad = np.array([item.answer.bad for item in answers])
    worst = np.array([combine_claims(values) for values in odds])
    stack = SupportStack(np.zeros(len(INPUTS)), claim_lines, np.zeros((len(TEXT_TYPES), 2, 2)), relevance=np.zeros(3))
    passes = np.array(
        [
            stack.predict_support(values, TEXT_TYPES[number]).min() >= PASSING
            for values, number in zip(odds, types, strict=True)
        ]
    )
    lines = {}
    for number, name in enumerate(TEXT_TYPES):
        inside = (types == number) & (is_system if name != "claim" else True)
        if inside.sum() >= MIN_ANSWERS:
            ratio = get_claim_ratio(bad[inside]) if name == "claim" else 1.0
            sides = [inside & (passes == side) for side in (False, True)]
            lines[name] = [calibrate(worst[side], bad[side], shift_share(bad[side].mean(), ratio)) for side in sides]
    return np.array([lines.get(name, lines["claim"]) for name in TEXT_TYPES])


def get_claim_ratio(bad: np.ndarray) -> float:
    """Return by what the odds that a single claim is bad are multiplied to reach the share it is calibrated to."""
    rate = BASE_RATES["claim"]
    target = compute_prior(np.array([rate]))
    share = float(bad.mean())
    return target / (1 - target) * (1 - share) / share


def shift_share(share: float, ratio: float) -> float:
    """Return a share whose odds are multiplied by a ratio."""
    odds = ratio * share / (1 - share)
    return float(odds / (1 + odds))


def fit_stack(data: Path) -> SupportStack:
    """Fit the stack, print how it does on what it was not fitted on, and return it."""
    fitted = list(weigh_answers(list_fitted(data)))
    weights = fit_weights(fitted)
    print("weights", dict(zip(INPUTS, weights.round(2).tolist(), strict=True)), flush=True)
    odds = cross_fit(fitted)
    claim_lines = fit_claim_lines(fitted, odds)
    stack = SupportStack(weights, claim_lines, fit_answer_lines(fitted, odds, claim_lines), relevance=np.zeros(3))
    measured = list(weigh_answers(list_measured(data)))
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
    grounded = [
        stack.predict_groundedness(values, TEXT_TYPES[item.text_type])
        for item, values in zip(answers, odds, strict=True)
    ]
    called = np.array(grounded) < 0.5
    rates = [float((called == bad)[bad == value].mean()) for value in (True, False)]
    error = calibration_error(grounded, ~bad)
    print(f"{name}: {len(answers):,} answers, {bad.mean():.2f} bad", end="; ")
    print(f"calibration error {error:.3f}, balanced accuracy {np.mean(rates):.3f}")
    for label, estimate in compare_judges(scores, bad, [item.answer.group for item in answers]).items():
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
