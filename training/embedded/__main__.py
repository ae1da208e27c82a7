"""Train the embedded judge, and say how well it does on what it has not seen.

    python -m training.embedded.vectors DATA     (once: the table of word vectors)
    python -m training.embedded DATA             (the weights)
    python -m training.embedded DATA --keep kept.npz     (and what the parts say of what they have not seen)
    python -m training.embedded DATA --transfer          (no weights: each task and set by a judge that never saw it)
    python -m training.embedded DATA --transfer --keep parts.npz     (and what its parts say, for training/support.py)
    python -m training.embedded DATA --measure --keep seen.npz       (no weights: sources that were never seen)
    python -m training.embedded DATA --fold 0 --keep first.npz       (the same, a fifth of the sources alone)
    python -m training.embedded DATA --transfer --invariant --keep invariant.npz     (a network that knows no words)

Needs the dependency group `train`. Answers of one source are in one of five folds. Whatever feeds another part
is predicted for claims and answers that its maker has not seen.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from training.embedded import boosting, network
from training.embedded.examples import FOLDS, answers
from training.embedded.fitting import (
    BASE_RATES,
    MONOTONE_COLUMNS,
    Data,
    apply_each,
    arrange,
    bag_out,
    calibrate,
    fit,
    fit_small,
    halfway,
    match_rate,
    score_answers,
)  # fmt: skip
from training.embedded.reporting import report

from ragfault.judges.embedded.features import FEATURE_COLUMNS
from ragfault.judges.embedded.support import TEXT_TYPES, combine_parts
from ragfault.judges.embedded.word_vectors import Array, load_vectors

TARGET = Path(__file__).parents[2] / "src/ragfault/judges/embedded/support.npz"


def crossed(data: Data, inner: Array, every: int, folds: Sequence[int]) -> tuple[Array, Array]:
    """Return the log-odds of each claim by parts that have not seen its fold (claims × parts), and by small trees."""
    parts, small = np.zeros((len(data.owner), 4)), np.zeros(len(data.owner))
    for fold in folds:
        rows = np.flatnonzero(data.fold == fold)
        parts[rows] = apply_each(fit(data, data.fold != fold, inner, every), data, rows)
        small[rows] = fit_small(data, (data.fold != fold) & (data.claims.marks >= 0), rows)
        print(f"fold {fold} of {FOLDS}", flush=True)
    return parts, small


def keep(path: Path, data: Data, parts: Array, small: Array) -> None:
    """Keep what the parts say of claims, and of each answer the odds, the label, its kind and its shape."""
    keyed = data.features[:, FEATURE_COLUMNS["keyed"]]
    odds = combine_parts(parts, keyed)
    answers = data.answers
    np.savez_compressed(
        path, ids=np.array([f"{answer.set} {answer.id}" for answer in answers]), start=data.start, parts=parts,
        small=small, keyed=keyed, odds=odds, answers=score_answers(data, odds),
        kinds=np.array([answer.task if answer.set == "ragtruth" else answer.set for answer in answers]),
        folds=np.array([answer.fold for answer in answers]), bad=np.array([answer.bad for answer in answers]),
    )  # fmt: skip


def transfer(data: Data, inner: Array, every: int, retained: Path | None) -> None:
    """Judge each task and set by models that were fitted on the others, and by words alone."""
    parts, small = np.zeros((len(data.owner), 4)), np.zeros(len(data.owner))
    keyed = data.features[:, FEATURE_COLUMNS["keyed"]]
    worst = np.maximum.reduceat(data.lexical_odds, data.start[:-1])
    kinds = np.array([answer.task if answer.set == "ragtruth" else answer.set for answer in data.answers])
    tasks = np.array([answer.task for answer in data.answers])
    for kind in np.unique(kinds[kinds != "invented"]):
        training_claims = (kinds != kind) & ~((kinds == "invented") & (tasks == kind))
        tested = kinds == kind
        claims = np.flatnonzero(tested[data.owner])
        odds = np.zeros(len(data.owner))
        parts[claims] = apply_each(fit(data, training_claims[data.owner], inner, every), data, claims)
        small[claims] = fit_small(data, training_claims[data.owner] & (data.claims.marks >= 0), claims)
        odds[claims] = combine_parts(parts[claims], keyed[claims])
        some = [answer for answer, inside in zip(data.answers, tested, strict=True) if inside]
        report(some, score_answers(data, odds)[tested], f"{kind}, never seen")
        report(some, worst[tested], f"{kind}, lexical")
    if retained:
        keep(retained, data, parts, small)


def lines(data: Data, odds: Array, probabilities: Array) -> dict[str, Array]:
    """Return for each shape slope and intercept of the calibration of claims and of answers."""
    kinds = np.array([TEXT_TYPES.index(answer.shape) for answer in data.answers])
    is_bad = np.array([answer.bad for answer in data.answers])
    real = np.array([answer.set != "invented" for answer in data.answers])
    marks = data.claims.marks
    claims, thresholds, of_answers = [], [], []
    for kind, name in enumerate(TEXT_TYPES):
        inside = (kinds[data.owner] == kind) & (marks >= 0) & real[data.owner]
        claims.append(calibrate(odds[inside], marks[inside], BASE_RATES[name]))
        thresholds.append(match_rate(odds[inside], marks[inside], BASE_RATES[name], claims[-1]))
        selected = (kinds == kind) & real
        of_answers.append(calibrate(probabilities[selected], is_bad[selected], halfway(is_bad[selected])))
    return {
        "claim_line": np.array(claims),
        "claim_threshold": np.array(thresholds),
        "answer_line": np.array(of_answers),
    }


def write(data: Data, inner: Array, odds: Array, probabilities: Array) -> None:
    """Fit on everything and write the weights."""
    every = np.ones(len(data.owner), bool)
    parts = fit(data, every, inner)
    used_rows = np.unique(np.concatenate(data.claims.rows))
    arrays = {
        **{f"network.{name}": array for name, array in network.arrays(parts.network, used_rows).items()},
        "network.mean": data.scale[0], "network.deviation": data.scale[1],
        **{f"claims.{name}": array for name, array in boosting.pack(parts.trees).items()},
        **{f"monotone.{name}": array for name, array in boosting.pack(parts.monotone, MONOTONE_COLUMNS).items()},
        **{f"bag.{name}": array for name, array in parts.bag.items()},
        **lines(data, odds, probabilities),
    }  # fmt: skip
    np.savez_compressed(TARGET, **arrays)
    print(f"{TARGET.name}: {TARGET.stat().st_size:,} bytes, vectors of {len(load_vectors().rows):,} words")


def main() -> None:
    """Measure, fit on everything, write."""
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
    usable = [answer for answer in answers(options.data) if answer.seen is not None]
    data = arrange(usable, invariant=options.invariant)
    print(f"{len(data.answers):,} answers, {len(data.owner):,} claims", flush=True)
    inner = bag_out(data)
    if options.transfer:
        transfer(data, inner, options.thin, options.keep)
        return
    parts, small = crossed(data, inner, options.thin, range(FOLDS) if options.fold is None else [options.fold])
    if options.fold is not None:
        inside = data.fold == options.fold
        parts, small = parts[inside], small[inside]
        data = arrange([answer for answer in data.answers if answer.fold == options.fold])
    odds = combine_parts(parts, data.features[:, FEATURE_COLUMNS["keyed"]])
    probabilities = score_answers(data, odds)
    report(data.answers, probabilities, "held out")
    if options.keep:
        keep(options.keep, data, parts, small)
    if not options.measure and not options.invariant and options.fold is None:
        write(data, inner, odds, probabilities)


if __name__ == "__main__":
    main()
