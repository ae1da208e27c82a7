"""Base rates of bad claims, and the calibration of log-odds to them."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from ragfault.judges.embedded.word_vectors import Array

__all__ = ["BASE_RATES", "calibrate", "compute_prior", "match_rate"]

BASE_RATES = {"answer": 0.12, "claim": 0.3, "dialogue": 0.3, "record": 0.15, "summary": 0.08}
"""Type of text → the share of bad claims as if which their probabilities are calibrated: what people mark in answers of
RAG systems; single claims and turns of dialogues come from sets that were balanced by hand, and are given more.
For answers see `compute_prior`."""


def compute_prior(labels: Array) -> float:
    """Return the prior for calibration: halfway, in log-odds, between the share of bad labels and one half.

    At one half a threshold at even odds is the best one for balanced accuracy in each type of text; at the share of
    the labels the types keep their difference. Halfway costs little of either.
    """
    bad_share = labels.mean()
    return float(np.sqrt(bad_share) / (np.sqrt(bad_share) + np.sqrt(1 - bad_share)))


def match_rate(odds: Array, labels: Array, prior: float, calibration: tuple[float, float]) -> float:
    """Return the probability of support below which as many claims fall as are bad, where `prior` of all are bad.

    The share of unsupported claims is then the one that people mark, where the base rate is right.
    """
    bad_share = labels.mean()
    sample_weights = np.where(labels == 1, prior / bad_share, (1 - prior) / (1 - bad_share))
    order = np.argsort(-odds, kind="stable")
    share = np.cumsum(sample_weights[order]) / sample_weights.sum()
    threshold_odds = odds[order][min(int(np.searchsorted(share, prior)), len(odds) - 1)]
    return float(1 / (1 + np.exp(calibration[0] * threshold_odds + calibration[1])))


def calibrate(odds: Array, labels: Array, prior: float) -> tuple[float, float]:
    """Fit slope and intercept of calibrated log-odds by logistic regression, weighted as if `prior` of all were bad."""
    bad_share = labels.mean()
    sample_weights = np.where(labels == 1, prior / bad_share, (1 - prior) / (1 - bad_share))
    model = LogisticRegression(C=100.0).fit(odds[:, None], labels, sample_weight=sample_weights)
    return float(model.coef_[0, 0]), float(model.intercept_[0])
