"""Comparing a million paired traces: differences with bootstrap intervals and sign-flip tests, against a scipy loop.

    python benchmarks/bisection.py [--traces 1000000] [--metrics 20] [--resamples 2000]

Times `ragfault.stats.differences.paired_differences` and `sign_flips` on all metrics at once, and scipy.stats.bootstrap
metric by metric with few resamples, scaled up to as many (scipy holds each batch of resamples in memory;
batch=1 is its fastest setting here). Peak memory is that of the process after ragfault's part, less the
inputs.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from scipy import stats as scipy_stats

from ragfault.stats.differences import paired_differences
from ragfault.stats.significance import sign_flip_tests

SCIPY_RESAMPLES = 20


def measure_peak_memory() -> float:
    """Return the peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--traces", type=int, default=1_000_000)
    parser.add_argument("--metrics", type=int, default=20)
    parser.add_argument("--resamples", type=int, default=2000)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    old = rng.uniform(size=(options.traces, options.metrics))
    new = np.clip(old + rng.normal(0, 0.1, size=old.shape), 0, 1)
    input_memory = measure_peak_memory()
    bounds = [(0.0, 1.0)] * options.metrics

    start = time.perf_counter()
    differences = paired_differences(old, new, bounds=bounds, resamples=options.resamples)
    bootstrap_seconds = time.perf_counter() - start
    start = time.perf_counter()
    sign_flip_tests(old, new, resamples=options.resamples)
    flip_seconds = time.perf_counter() - start
    start = time.perf_counter()
    paired_differences(old, new, bounds=bounds)
    sign_flip_tests(old, new)
    default_seconds = time.perf_counter() - start
    memory = measure_peak_memory() - input_memory

    start = time.perf_counter()
    change = new[:, 0] - old[:, 0]
    scipy_stats.bootstrap(
        (change,), np.mean, n_resamples=SCIPY_RESAMPLES, batch=1, method="percentile", vectorized=True
    )
    scipy_seconds = (time.perf_counter() - start) / SCIPY_RESAMPLES * options.resamples * options.metrics

    assert differences[0] is not None
    print(f"{options.traces:,} pairs × {options.metrics} metrics, {options.resamples:,} resamples\n")
    print("| | seconds |\n|---|---|")
    print(f"| ragfault, bootstrap intervals | {bootstrap_seconds:.1f} |")
    print(f"| ragfault, sign-flip tests | {flip_seconds:.1f} |")
    print(f"| ragfault as `compare` uses them (normal limits at this size) | {default_seconds:.1f} |")
    scaling = f"metric by metric (scaled from {SCIPY_RESAMPLES} resamples of one)"
    print(f"| scipy.stats.bootstrap, {scaling} | {scipy_seconds:.0f} |")
    ratio = scipy_seconds / bootstrap_seconds
    print(f"\nThe bootstrap is {ratio:.1f} × as fast; memory beyond the inputs {memory:,.0f} MiB.")


if __name__ == "__main__":
    main()
