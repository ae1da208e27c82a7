"""Train the embedded judge, and say how well it does on what it has not seen.

    python -m training.embedded.vectors DATA     (once: the table of word vectors)
    python -m training.embedded DATA             (the weights)
    python -m training.embedded DATA --keep kept.npz     (and what the parts say of what they have not seen)
    python -m training.embedded DATA --transfer kept.npz (no weights: each task and set by a judge that never saw it)

Needs the dependency group `train`. Answers of one source are in one of five folds. Whatever feeds another part
is predicted for claims and answers that its maker has not seen.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from training.embedded import boosting, network
from training.embedded.examples import FOLDS, answers
from training.embedded.fitting import (
    ANSWER_ROUNDS,
    Data,
    apply,
    arrange,
    bag_out,
    calibrate,
    fit,
    halfway,
    weights,
    whole,
)  # fmt: skip
from training.embedded.reporting import report

from ragfault.judges.embedded.support import TEXT_TYPES
from ragfault.judges.embedded.vectors import Array, load_vectors

TARGET = Path(__file__).parents[2] / "src/ragfault/judges/embedded/support.npz"
PRIOR = 0.4
"""The share of bad claims as if which their probabilities are calibrated; for answers see `fitting.halfway`."""


def crossed(data: Data, inner: Array) -> Array:
    """The log-odds of each claim by parts that have not seen its fold."""
    odds = np.zeros(len(data.owner))
    for fold in range(FOLDS):
        at = np.flatnonzero(data.fold == fold)
        odds[at] = apply(fit(data, data.fold != fold, inner), data, at)
        print(f"fold {fold + 1} of {FOLDS}", flush=True)
    return odds


def stacked(data: Data, odds: Array, chosen: Array, at: Array, *, style: bool = False) -> Array:
    """The log-odds of some answers by trees fitted on the chosen ones."""
    rows = whole(data, odds, style=style)
    bad = np.array([one.bad for one in data.answers])
    trees = boosting.boost(
        rows[chosen], bad[chosen], weights(data)[chosen], ANSWER_ROUNDS, **boosting.ANSWERS
    )
    return trees.predict(rows[at], raw_score=True)


def measure(data: Data, odds: Array) -> Array:
    """Print what cross-validation shows, with style and without; return the log-odds of the answers."""
    fold = np.array([one.fold for one in data.answers])
    told = {}
    for style in (True, False):
        told[style] = np.zeros(len(fold))
        for one in range(FOLDS):
            told[style][fold == one] = stacked(data, odds, fold != one, fold == one, style=style)
        report(data.answers, told[style], "with style" if style else "without style")
    return told[False]


def transfer(data: Data, inner: Array, odds: Array) -> None:
    """Each task and set, judged by parts that have seen nothing of it."""
    kinds = np.array([one.task if one.set == "ragtruth" else one.set for one in data.answers])
    tasks = np.array([one.task for one in data.answers])
    for kind in np.unique(kinds[kinds != "invented"]):
        other = (kinds != kind) & ~((kinds == "invented") & (tasks == kind))
        mixed = odds.copy()
        held = kinds == kind
        at = np.flatnonzero(held[data.owner])
        mixed[at] = apply(fit(data, other[data.owner], inner), data, at)
        told = stacked(data, mixed, other, held)
        report(
            [one for one, inside in zip(data.answers, held, strict=True) if inside],
            told,
            f"{kind}, never seen",
        )


def lines(data: Data, odds: Array, told: Array) -> dict[str, Array]:
    """For each shape slope and intercept of the calibration of claims and of answers."""
    kinds = np.array([TEXT_TYPES.index(one.shape) for one in data.answers])
    bad = np.array([one.bad for one in data.answers])
    real = np.array([one.set != "invented" for one in data.answers])
    marks = data.claims.marks
    claims, whole_ = [], []
    for kind in range(len(TEXT_TYPES)):
        inside = (kinds[data.owner] == kind) & (marks >= 0) & real[data.owner]
        claims.append(calibrate(odds[inside], marks[inside], PRIOR))
        held = (kinds == kind) & real
        whole_.append(calibrate(told[held], bad[held], halfway(bad[held])))
    return {"claim_line": np.array(claims), "answer_line": np.array(whole_)}


def write(data: Data, inner: Array, odds: Array, told: Array) -> None:
    """Fit on everything and write the weights."""
    every = np.ones(len(data.owner), bool)
    parts = fit(data, every, inner)
    rows = whole(data, odds)
    bad = np.array([one.bad for one in data.answers])
    trees = boosting.boost(rows, bad, weights(data), ANSWER_ROUNDS, **boosting.ANSWERS)
    seen = np.unique(np.concatenate(data.claims.rows))
    packed = {
        **{f"network.{name}": part for name, part in network.arrays(parts.network, seen).items()},
        "network.mean": data.scale[0], "network.deviation": data.scale[1],
        **{f"claims.{name}": part for name, part in boosting.pack(parts.trees).items()},
        **{f"answers.{name}": part for name, part in boosting.pack(trees).items()},
        **{f"bag.{name}": part for name, part in parts.bag.items()},
        **lines(data, odds, told),
    }  # fmt: skip
    np.savez_compressed(TARGET, **packed)
    print(f"{TARGET.name}: {TARGET.stat().st_size:,} bytes, vectors of {len(load_vectors().rows):,} words")


def main() -> None:
    """Measure, fit on everything, write."""
    parser = argparse.ArgumentParser(
        prog="python -m training.embedded",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--transfer", type=Path, help="measure tasks and sets that were never seen, from what was kept"
    )
    parser.add_argument("--keep", type=Path, help="keep here what the parts say of what they have not seen")
    options = parser.parse_args()
    data = arrange([one for one in answers(options.data) if one.seen is not None])
    print(f"{len(data.answers):,} answers, {len(data.owner):,} claims", flush=True)
    inner = bag_out(data)
    if options.transfer:
        with np.load(options.transfer) as packed:
            transfer(data, inner, packed["odds"])
        return
    odds = crossed(data, inner)
    told = measure(data, odds)
    if options.keep:
        ids = np.array([f"{one.set} {one.id}" for one in data.answers])
        np.savez_compressed(options.keep, ids=ids, start=data.start, odds=odds, answers=told)
    write(data, inner, odds, told)


if __name__ == "__main__":
    main()
