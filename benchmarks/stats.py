"""Check the statistics by simulation: coverage of intervals, level of tests.

    python benchmarks/stats.py --simulations 1000

Samples are drawn from populations whose true difference is known, at n = 8, 30 and 200 pairs (clustered: that many
conversations of 1 to 5 turns). Prints Markdown tables. With 1,000 simulations a share that is truly 5 % is seen
between 3.6 % and 6.4 %, and one that is truly 95 % between 93.6 % and 96.4 %.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np

from ragfault.stats.bootstrap import Clusters, FloatArray
from ragfault.stats.differences import paired_difference, unpaired_differences
from ragfault.stats.estimates import Interval
from ragfault.stats.intervals import correct_share, mean_interval, wilson_interval
from ragfault.stats.sequences import confidence_sequence, locate_change_point
from ragfault.stats.significance import equivalence_test, holm_adjust, sign_flip_test, sign_flip_tests

SIZES = (8, 30, 200)
MARGIN = 0.05
RESAMPLES = 999


class PairedSample(NamedTuple):
    """One sample of paired scores."""

    before: FloatArray
    after: FloatArray
    clusters: Clusters | None


def draw_binary(rng: np.random.Generator, n: int, shift: float) -> PairedSample:
    """Draw 0/1 scores, 80 % ones; in the candidate three in ten are drawn again."""
    before = (rng.uniform(size=n) < 0.8).astype(float)
    anew = (rng.uniform(size=n) < 0.8 + shift / 0.3).astype(float)
    return PairedSample(before, np.where(rng.uniform(size=n) < 0.3, anew, before), None)


def draw_skewed(rng: np.random.Generator, n: int, shift: float) -> PairedSample:
    """Draw scores near 1 with a long lower tail; in the candidate half of them are drawn again."""
    before, anew = (0.06 + 0.94 * rng.beta(4, 1, size=n) for _ in range(2))
    return PairedSample(before, np.where(rng.uniform(size=n) < 0.5, anew, before) + shift, None)


def draw_lopsided(rng: np.random.Generator, n: int, shift: float) -> PairedSample:
    """Draw rare large drops (15 % of traces) and small rises that balance them in the mean."""
    drop = rng.uniform(size=n) < 0.15
    change = np.where(drop, -0.6 * rng.beta(2, 2, size=n), 0.09 / 0.85 * rng.uniform(size=n))
    before = rng.uniform(0.66, 0.8, size=n)
    return PairedSample(before, before + change + shift, None)


def draw_clustered(rng: np.random.Generator, n: int, shift: float) -> PairedSample:
    """Draw scores of conversations of 1 to 5 turns that share more than half of their variance."""
    turns = rng.integers(1, 6, size=n)
    shared = np.repeat(rng.uniform(-0.17, 0.17, size=n), turns)
    before = rng.uniform(0.3, 0.7, size=turns.sum())
    change = shared + rng.uniform(-0.12, 0.12, size=turns.sum())
    return PairedSample(before, before + change + shift, np.repeat(np.arange(n), turns))


KINDS: dict[str, Callable[[np.random.Generator, int, float], PairedSample]] = {
    "binary": draw_binary,
    "skewed": draw_skewed,
    "lopsided": draw_lopsided,
    "clustered": draw_clustered,
}


def simulate(kind: str, n: int, simulations: int) -> tuple[Counter[str], Counter[str]]:
    """Count how often intervals contain the true difference and how often tests reject a true hypothesis."""
    coverage: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    draw = KINDS[kind]
    for number in range(simulations):
        rng = np.random.default_rng([n, number])
        count_covered(draw, rng, n, coverage)
        count_rejections(draw, rng, n, rejected)
    return coverage, rejected


def count_covered(draw: Callable[..., PairedSample], rng: np.random.Generator, n: int, coverage: Counter[str]) -> None:
    first, second = draw(rng, n, 0.0), draw(rng, n, 0.0)
    sides = None if first.clusters is None else (first.clusters, second.clusters)
    [unpaired] = unpaired_differences(first.before, second.after, sides, bounds=[(0, 1)], resamples=RESAMPLES)
    assert unpaired is not None
    intervals = {
        "mean": mean_interval(first.after - TRUE_MEANS[draw], first.clusters, bounds=shift_bounds(TRUE_MEANS[draw])),
        "paired": paired_difference(*first, bounds=(0, 1), resamples=RESAMPLES),
        "paired, t": paired_difference(*first, resamples=0),
        "unpaired": unpaired,
    }
    for name, interval in intervals.items():
        coverage[name] += interval.low <= 0 <= interval.high
    if first.clusters is None:
        band = confidence_sequence(first.after - first.before, (-1, 1))
        coverage["confidence sequence"] += bool(band.low[-1] <= 0 <= band.high[-1])


TRUE_MEANS = {draw_binary: 0.8, draw_skewed: 0.812, draw_lopsided: 0.73, draw_clustered: 0.5}


def shift_bounds(truth: float) -> tuple[float, float]:
    return -truth, 1 - truth


def count_rejections(
    draw: Callable[..., PairedSample], rng: np.random.Generator, n: int, rejected: Counter[str]
) -> None:
    first = draw(rng, n, 0.0)
    draw(rng, n, 0.0)  # not used: later draws stay those of the printed figures
    rejected["sign flip"] += sign_flip_test(*first, resamples=RESAMPLES).p <= 0.05
    eight = [draw(rng, n, 0.0) for _ in range(8)] if first.clusters is None else []
    if eight:
        before, after = (np.stack([pairs[side] for pairs in eight], axis=1) for side in (0, 1))
        tests = sign_flip_tests(before, after, resamples=2 * RESAMPLES + 1)
        rejected["Holm, 8 metrics"] += min(holm_adjust([test.p for test in tests if test])) <= 0.05
    for name, shift in (("equivalence, true drop = margin", -MARGIN), ("equivalence, no change", 0.0)):
        difference = paired_difference(*draw(rng, n, shift), bounds=(0, 1), resamples=0)
        rejected[name] += equivalence_test(difference, MARGIN).p < 0.05


def yield_sequence_table(simulations: int) -> Iterator[str]:
    """Yield how often a band checked after every value ever misses the mean."""
    yield "| population | confidence sequence ever misses | t interval ever misses | width at 1,000 |"
    yield "|---|---|---|---|"
    for name, draw in (
        ("binary, 80 % ones", lambda rng: (rng.uniform(size=1000) < 0.8).astype(float)),
        ("beta(8, 2)", lambda rng: rng.beta(8, 2, size=1000)),
    ):
        missed = repeated = 0
        width = 0.0
        for number in range(simulations // 4):
            values = draw(np.random.default_rng([7, number]))
            band = confidence_sequence(values)
            missed += bool(((band.low > 0.8) | (band.high < 0.8)).any())
            width += float(band.high[-1] - band.low[-1]) / (simulations // 4)
            n = np.arange(10, 1001)
            means = np.cumsum(values)[9:] / n
            spreads = np.sqrt(np.maximum(np.cumsum(values**2)[9:] / n - means**2, 1e-12) / (n - 1))
            repeated += bool((np.abs(means - 0.8) > 2.0 * spreads).any())
        shares = [format_share(count, simulations // 4) for count in (missed, repeated)]
        yield f"| {name} | {shares[0]} | {shares[1]} | {width:.3f} |"


def yield_change_point_table(simulations: int) -> Iterator[str]:
    """Yield how often the interval of a fall by one deviation, after 25 of 40 values, contains its step."""
    count, covered = simulations // 4, 0
    for number in range(count):
        values = np.random.default_rng([9, number]).beta(8, 2, size=40)
        values[25:] -= 0.12
        change = locate_change_point(values, resamples=199)
        covered += change.low <= 25 <= change.high
    yield f"True step of a change point in its interval: {format_share(covered, count)}"


def yield_bca_table() -> Iterator[str]:
    """Yield the distance of BCa from Student's t as samples grow, and from BCa with another seed."""
    yield "| pairs | BCa to t | BCa to BCa of another seed |"
    yield "|---|---|---|"
    for n in (200, 2000, 20_000, 50_000):
        distances = np.zeros(2)
        for number in range(8):
            pairs = draw_lopsided(np.random.default_rng([n, number]), n, 0.0)
            t = paired_difference(*pairs, resamples=0)
            first, second = (paired_difference(*pairs, resamples=2000, seed=seed) for seed in (0, 1))
            for index, other in enumerate((t, second)):
                gap = max(abs(first.low - other.low), abs(first.high - other.high)) / (t.high - t.low)
                distances[index] += gap / 8
        yield f"| {n:,} | {100 * distances[0]:.1f} % | {100 * distances[1]:.1f} % |"


JUDGES = {"good, 0.90 and 0.95": (0.90, 0.95), "fair, 0.75 and 0.85": (0.75, 0.85), "weak, 0.55 and 0.80": (0.55, 0.80)}
TRUE_SHARES = (0.0, 0.05, 0.2, 0.5, 0.9)


def yield_correction_table(simulations: int) -> Iterator[str]:
    """Yield how often shares corrected for a judge's error, and uncorrected ones, contain the truth."""
    yield (
        "| judge: sensitivity and specificity | run | labelled | "
        + " | ".join(f"{100 * truth:.0f} % bad" for truth in TRUE_SHARES)
        + " | uncorrected, 20 % | undefined |"
    )
    yield "|---" * (len(TRUE_SHARES) + 5) + "|"
    for name, (se, sp) in JUDGES.items():
        for n, labelled in ((30, 30), (100, 100), (1000, 100), (1000, 1000)):
            cells = [count_corrected(se, sp, n, labelled, truth, simulations) for truth in TRUE_SHARES]
            coverage = [format_share(inside, defined) for inside, defined, _ in cells]
            undefined = 1 - sum(defined for _, defined, _ in cells) / (simulations * len(TRUE_SHARES))
            uncorrected = format_share(cells[TRUE_SHARES.index(0.2)][2], simulations)
            shares = " | ".join(coverage)
            yield f"| {name} | {n} | {labelled} + {labelled} | {shares} | {uncorrected} | {100 * undefined:.1f} % |"


def count_corrected(
    se: float, sp: float, n: int, labelled: int, truth: float, simulations: int
) -> tuple[int, int, int]:
    """Count corrected intervals that contain the truth, defined results, and uncorrected intervals that contain it."""
    rng = np.random.default_rng([n, labelled, round(1000 * truth), round(100 * se)])
    called = rng.binomial(n, truth * se + (1 - truth) * (1 - sp), simulations)
    correct_labels = rng.binomial(labelled, se, simulations), rng.binomial(labelled, sp, simulations)
    coverage = defined = uncorrected = 0
    for positive, x, y in zip(called, *correct_labels, strict=True):
        rate = make_share_interval(positive, n)
        corrected = correct_share(rate, make_share_interval(x, labelled), make_share_interval(y, labelled))
        span = corrected.interval
        defined += span is not None or "another" in str(corrected.reason)
        coverage += span is not None and span.low <= truth <= span.high
        uncorrected += rate.low <= truth <= rate.high
    return coverage, defined, uncorrected


def make_share_interval(count: int, n: int) -> Interval:
    """Return the share that a count is of n, with Wilson's interval."""
    return Interval(count / n, *wilson_interval(count, n), n, n)


def format_share(count: int, of: int) -> str:
    return f"{100 * count / of:.1f} %"


def print_table(title: str, counts_by_case: dict[tuple[str, int], Counter[str]], simulations: int) -> None:
    names = list(dict.fromkeys(name for case_counts in counts_by_case.values() for name in case_counts))
    print(f"\n| {title} | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for (kind, n), case_counts in counts_by_case.items():
        cells = [format_share(case_counts[name], simulations) if name in case_counts else "-" for name in names]
        print(f"| {kind}, n = {n} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--simulations", type=int, default=1000)
    simulations = parser.parse_args().simulations
    start = time.perf_counter()
    cases = [(kind, n) for n in reversed(SIZES) for kind in KINDS]
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        waiting = {case: pool.submit(simulate, *case, simulations) for case in cases}
        results = {(kind, n): waiting[kind, n].result() for kind in KINDS for n in SIZES}
    print_table("coverage of 95 % intervals", {case: coverage for case, (coverage, _) in results.items()}, simulations)
    print_table("rejections at 5 %", {case: tests for case, (_, tests) in results.items()}, simulations)
    for lines in (
        yield_sequence_table(simulations),
        yield_change_point_table(simulations),
        yield_bca_table(),
        yield_correction_table(simulations),
    ):
        print("\n" + "\n".join(lines))
    print(f"\n{simulations} simulations, {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
