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
    BASE_RATES,
    Data,
    apply,
    arrange,
    bag_out,
    calibrate,
    fit,
    halfway,
    match_rate,
    score_answers,
    weights,
)  # fmt: skip
from training.embedded.reporting import report

from ragfault.judges.embedded.support import LEXICAL_WEIGHT, TEXT_TYPES
from ragfault.judges.embedded.word_vectors import Array, load_vectors

TARGET = Path(__file__).parents[2] / "src/ragfault/judges/embedded/support.npz"


def crossed(data: Data, inner: Array) -> Array:
    """Return the log-odds of each claim by parts that have not seen its fold."""
    odds = np.zeros(len(data.owner))
    for fold in range(FOLDS):
        at = np.flatnonzero(data.fold == fold)
        odds[at] = apply(fit(data, data.fold != fold, inner), data, at)
        print(f"fold {fold + 1} of {FOLDS}", flush=True)
    return odds


def stacked(data: Data, odds: Array, chosen: Array, at: Array, *, style: bool = False) -> Array:
    """Return the log-odds of some answers by trees fitted on the chosen ones."""
    rows = score_answers(data, odds, style=style)
    bad = np.array([answer.bad for answer in data.answers])
    trees = boosting.boost(rows[chosen], bad[chosen], weights(data)[chosen], ANSWER_ROUNDS, **boosting.ANSWERS)
    worst = np.maximum.reduceat(data.lexical_odds, data.start[:-1])
    return trees.predict(rows[at], raw_score=True) + LEXICAL_WEIGHT * worst[at]


def measure(data: Data, odds: Array) -> Array:
    """Print what cross-validation shows, with style and without; return the log-odds of the answers."""
    fold = np.array([answer.fold for answer in data.answers])
    reported = {}
    for style in (True, False):
        reported[style] = np.zeros(len(fold))
        for first in range(FOLDS):
            reported[style][fold == first] = stacked(data, odds, fold != first, fold == first, style=style)
        report(data.answers, reported[style], "with style" if style else "without style")
    return reported[False]


def transfer(data: Data, inner: Array, odds: Array) -> None:
    """Judge each task and set by models that were fitted on the others."""
    kinds = np.array([answer.task if answer.set == "ragtruth" else answer.set for answer in data.answers])
    tasks = np.array([answer.task for answer in data.answers])
    for kind in np.unique(kinds[kinds != "invented"]):
        other = (kinds != kind) & ~((kinds == "invented") & (tasks == kind))
        mixed = odds.copy()
        content = kinds == kind
        at = np.flatnonzero(content[data.owner])
        mixed[at] = apply(fit(data, other[data.owner], inner), data, at)
        reported = stacked(data, mixed, other, content)
        report(
            [answer for answer, inside in zip(data.answers, content, strict=True) if inside],
            reported,
            f"{kind}, never seen",
        )


def lines(data: Data, odds: Array, reported: Array) -> dict[str, Array]:
    """Return for each shape slope and intercept of the calibration of claims and of answers."""
    kinds = np.array([TEXT_TYPES.index(answer.shape) for answer in data.answers])
    bad = np.array([answer.bad for answer in data.answers])
    real = np.array([answer.set != "invented" for answer in data.answers])
    marks = data.claims.marks
    claims, thresholds, of_answers = [], [], []
    for kind, name in enumerate(TEXT_TYPES):
        inside = (kinds[data.owner] == kind) & (marks >= 0) & real[data.owner]
        claims.append(calibrate(odds[inside], marks[inside], BASE_RATES[name]))
        thresholds.append(match_rate(odds[inside], marks[inside], BASE_RATES[name], claims[-1]))
        content = (kinds == kind) & real
        of_answers.append(calibrate(reported[content], bad[content], halfway(bad[content])))
    return {
        "claim_line": np.array(claims),
        "claim_threshold": np.array(thresholds),
        "answer_line": np.array(of_answers),
    }


def write(data: Data, inner: Array, odds: Array, reported: Array) -> None:
    """Fit on everything and write the weights."""
    every = np.ones(len(data.owner), bool)
    parts = fit(data, every, inner)
    rows = score_answers(data, odds)
    bad = np.array([answer.bad for answer in data.answers])
    trees = boosting.boost(rows, bad, weights(data), ANSWER_ROUNDS, **boosting.ANSWERS)
    seen = np.unique(np.concatenate(data.claims.rows))
    packed = {
        **{f"network.{name}": part for name, part in network.arrays(parts.network, seen).items()},
        "network.mean": data.scale[0], "network.deviation": data.scale[1],
        **{f"claims.{name}": part for name, part in boosting.pack(parts.trees).items()},
        **{f"answers.{name}": part for name, part in boosting.pack(trees).items()},
        **{f"bag.{name}": part for name, part in parts.bag.items()},
        **lines(data, odds, reported),
    }  # fmt: skip
    np.savez_compressed(TARGET, **packed)
    print(f"{TARGET.name}: {TARGET.stat().st_size:,} bytes, vectors of {len(load_vectors().rows):,} words")


def main() -> None:
    """Measure, fit on everything, write."""
    parser = argparse.ArgumentParser(
        prog="python -m training.embedded", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--transfer", type=Path, help="measure tasks and sets that were never seen, from what was kept")
    parser.add_argument("--keep", type=Path, help="keep here what the parts say of what they have not seen")
    options = parser.parse_args()
    data = arrange([answer for answer in answers(options.data) if answer.seen is not None])
    print(f"{len(data.answers):,} answers, {len(data.owner):,} claims", flush=True)
    inner = bag_out(data)
    if options.transfer:
        with np.load(options.transfer) as packed:
            transfer(data, inner, packed["odds"])
        return
    odds = crossed(data, inner)
    reported = measure(data, odds)
    if options.keep:
        ids = np.array([f"{answer.set} {answer.id}" for answer in data.answers])
        np.savez_compressed(options.keep, ids=ids, start=data.start, odds=odds, answers=reported)
    write(data, inner, odds, reported)


if __name__ == "__main__":
    main()
