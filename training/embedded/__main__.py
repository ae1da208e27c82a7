"""Train the embedded judge, and measure it on sources, tasks and sets that were held out.

    python -m training.embedded.vectors DATA     (once: the table of word vectors)
    python -m training.embedded DATA             (the weights)
    python -m training.embedded DATA --keep kept.npz     (and the cross-fitted predictions of each model)
    python -m training.embedded DATA --transfer          (no weights: each task and set by a judge that never saw it)
    python -m training.embedded DATA --transfer --keep parts.npz     (and the predictions, for training/support.py)
    python -m training.embedded DATA --measure --keep seen.npz       (no weights: cross-fitted figures alone)
    python -m training.embedded DATA --fold 0 --keep first.npz       (the same, one held-out fold alone)
    python -m training.embedded DATA --transfer --invariant --keep invariant.npz     (a network without word vectors)

Needs the dependency group `train`. All answers to one source are in one of five folds. A model whose predictions are
inputs of another one is cross-fitted: it predicts claims and answers of folds that it was not trained on.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ragfault.judges.embedded.features import FEATURE_COLUMNS
from ragfault.judges.embedded.support import TEXT_TYPES, combine_parts
from ragfault.judges.embedded.word_vectors import Array, load_vectors
from training.embedded import boosting, network
from training.embedded.examples import FOLDS, load_answers
from training.embedded.fitting import (
    MONOTONE_COLUMNS,
    ClaimDataset,
    build_dataset,
    cross_fit_bag,
    fit_models,
    fit_small,
    predict_odds,
    score_answers,
)  # fmt: skip
from training.embedded.rates import BASE_RATES, calibrate, compute_prior, match_rate
from training.embedded.reporting import report

TARGET = Path(__file__).parents[2] / "src/ragfault/judges/embedded/support.npz"


def predict_out_of_fold(data: ClaimDataset, bag_odds: Array, stride: int, folds: Sequence[int]) -> tuple[Array, Array]:
    """Return the cross-fitted log-odds of each claim by each model (claims × models), and by the small trees."""
    parts, small = np.zeros((len(data.owner), 4)), np.zeros(len(data.owner))
    for fold in folds:
        rows = np.flatnonzero(data.fold == fold)
        parts[rows] = predict_odds(fit_models(data, data.fold != fold, bag_odds, stride), data, rows)
        small[rows] = fit_small(data, (data.fold != fold) & (data.claims.marks >= 0), rows)
        print(f"fold {fold} of {FOLDS}", flush=True)
    return parts, small


def save_predictions(path: Path, data: ClaimDataset, parts: Array, small: Array) -> None:
    """Save the log-odds of each claim by each model, and of each answer log-odds, label, kind and fold."""
    keyed = data.features[:, FEATURE_COLUMNS["keyed"]]
    odds = combine_parts(parts, keyed)
    answers = data.answers
    np.savez_compressed(
        path, ids=np.array([f"{answer.set} {answer.id}" for answer in answers]), start=data.start, parts=parts,
        small=small, keyed=keyed, odds=odds, answers=score_answers(data, odds),
        kinds=np.array([answer.kind for answer in answers]),
        folds=np.array([answer.fold for answer in answers]), bad=np.array([answer.bad for answer in answers]),
    )  # fmt: skip


def measure_transfer(data: ClaimDataset, bag_odds: Array, stride: int, predictions_file: Path | None) -> None:
    """Print the figures of each task and set by models that were fitted on the others, and by the lexical judge."""
    parts, small = np.zeros((len(data.owner), 4)), np.zeros(len(data.owner))
    keyed = data.features[:, FEATURE_COLUMNS["keyed"]]
    worst = np.maximum.reduceat(data.lexical_odds, data.start[:-1])
    kinds = np.array([answer.kind for answer in data.answers])
    tasks = np.array([answer.task for answer in data.answers])
    for kind in np.unique(kinds[kinds != "invented"]):
        training_claims = (kinds != kind) & ~((kinds == "invented") & (tasks == kind))
        tested = kinds == kind
        claims = np.flatnonzero(tested[data.owner])
        odds = np.zeros(len(data.owner))
        parts[claims] = predict_odds(fit_models(data, training_claims[data.owner], bag_odds, stride), data, claims)
        small[claims] = fit_small(data, training_claims[data.owner] & (data.claims.marks >= 0), claims)
        odds[claims] = combine_parts(parts[claims], keyed[claims])
        tested_answers = [answer for answer, inside in zip(data.answers, tested, strict=True) if inside]
        report(tested_answers, score_answers(data, odds)[tested], f"{kind}, never seen")
        report(tested_answers, worst[tested], f"{kind}, lexical")
    if predictions_file:
        save_predictions(predictions_file, data, parts, small)


def calibrate_text_types(data: ClaimDataset, odds: Array, probabilities: Array) -> dict[str, Array]:
    """Return for each type of text slope and intercept of the calibration of claims and of answers."""
    text_types = np.array([TEXT_TYPES.index(answer.text_type) for answer in data.answers])
    is_bad = np.array([answer.bad for answer in data.answers])
    real = np.array([answer.set != "invented" for answer in data.answers])
    marks = data.claims.marks
    claim_lines, thresholds, answer_lines = [], [], []
    for number, name in enumerate(TEXT_TYPES):
        inside = (text_types[data.owner] == number) & (marks >= 0) & real[data.owner]
        claim_lines.append(calibrate(odds[inside], marks[inside], BASE_RATES[name]))
        thresholds.append(match_rate(odds[inside], marks[inside], BASE_RATES[name], claim_lines[-1]))
        selected = (text_types == number) & real
        answer_lines.append(calibrate(probabilities[selected], is_bad[selected], compute_prior(is_bad[selected])))
    return {
        "claim_line": np.array(claim_lines),
        "claim_threshold": np.array(thresholds),
        "answer_line": np.array(answer_lines),
    }


def write_weights(data: ClaimDataset, bag_odds: Array, odds: Array, probabilities: Array) -> None:
    """Fit the models on all claims and write the weights."""
    all_claims = np.ones(len(data.owner), bool)
    models = fit_models(data, all_claims, bag_odds)
    used_rows = np.unique(np.concatenate(data.claims.rows))
    arrays = {
        **{f"network.{name}": array for name, array in network.pack_network(models.network, used_rows).items()},
        "network.mean": data.scale[0], "network.deviation": data.scale[1],
        **{f"claims.{name}": array for name, array in boosting.pack_trees(models.trees).items()},
        **{f"monotone.{name}": array for name, array in boosting.pack_trees(models.monotone, MONOTONE_COLUMNS).items()},
        **{f"bag.{name}": array for name, array in models.bag.items()},
        **calibrate_text_types(data, odds, probabilities),
    }  # fmt: skip
    np.savez_compressed(TARGET, **arrays)
    print(f"{TARGET.name}: {TARGET.stat().st_size:,} bytes, vectors of {len(load_vectors().rows):,} words")


def main() -> None:
    """Measure the models on held-out claims, fit them on all claims, and write the weights."""
    parser = argparse.ArgumentParser(
        prog="python -m training.embedded", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--transfer", action="store_true", help="measure tasks and sets that were never seen")
    parser.add_argument("--measure", action="store_true", help="measure by folds, and write no weights")
    parser.add_argument("--fold", type=int, choices=range(FOLDS), help="measure one fold alone, and write no weights")
    parser.add_argument("--thin", type=int, default=1, help="train the network on every nth claim of RAGTruth")
    parser.add_argument(
        "--invariant", action="store_true",
        help="a network without vectors of its own, on what varies little between kinds of text; write no weights",
    )  # fmt: skip
    parser.add_argument("--keep", type=Path, help="keep here what the parts say of what they have not seen")
    options = parser.parse_args()
    usable = [answer for answer in load_answers(options.data) if answer.features is not None]
    data = build_dataset(usable, invariant=options.invariant)
    print(f"{len(data.answers):,} answers, {len(data.owner):,} claims", flush=True)
    bag_odds = cross_fit_bag(data)
    if options.transfer:
        measure_transfer(data, bag_odds, options.thin, options.keep)
        return
    parts, small = predict_out_of_fold(
        data, bag_odds, options.thin, range(FOLDS) if options.fold is None else [options.fold]
    )
    if options.fold is not None:
        inside = data.fold == options.fold
        parts, small = parts[inside], small[inside]
        data = build_dataset([answer for answer in data.answers if answer.fold == options.fold])
    odds = combine_parts(parts, data.features[:, FEATURE_COLUMNS["keyed"]])
    probabilities = score_answers(data, odds)
    report(data.answers, probabilities, "held out")
    if options.keep:
        save_predictions(options.keep, data, parts, small)
    if not options.measure and not options.invariant and options.fold is None:
        write_weights(data, bag_odds, odds, probabilities)


if __name__ == "__main__":
    main()
