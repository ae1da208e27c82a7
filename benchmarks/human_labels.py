"""Measure coverage and width of intervals corrected by a few human labels (prediction-powered inference).

    python -m benchmarks.human_labels
    python -m benchmarks.human_labels DATA_FOLDER [JUDGE] [TRACES]

The first form simulates samples with a known mean: 2,000 traces, of which 20, 50 or 200 are labeled. With
2,000 simulations a true share of 95 % is observed between 94.0 % and 96.0 %. The second form takes answers of
RAGTruth to sources that the judge was not fitted on (the truth of each is the share of its claims without a
human mark), labels 5 % (10 %) of them at random, 400 times, and counts how often the interval covers the mean
by human labels.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.datasets import build_trace, is_marked, is_reserved, read_rows
from ragfault.judges.loading import load_judge
from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.stats.bootstrap import FloatArray
from ragfault.stats.intervals import mean_interval
from ragfault.stats.ppi import ppi_mean

TRACES, SIZES, SIMULATIONS, DRAWS = 2000, (20, 50, 200), 2000, 400


class LabelSample(NamedTuple):
    """Values of the judge and of people for each trace, with clusters and sampling weights."""

    judge_values: FloatArray
    human_values: FloatArray
    clusters: FloatArray | None = None
    sampling_weights: FloatArray | None = None
    """Sampling probabilities of the traces, up to a factor."""


# --- populations -----------------------------------------------------------------------------------


def sample_binary(rng: np.random.Generator, agreement: float, bias: float, share: float = 0.8) -> LabelSample:
    """Sample 0/1 values: the judge repeats the label with the probability `agreement`, else is random.

    `bias` is the probability with which the judge's value is set to 1; `share` is the mean of the labels.
    """
    human_values = (rng.uniform(size=TRACES) < share).astype(float)
    random_values = (rng.uniform(size=TRACES) < share).astype(float)
    judge_values = np.where(rng.uniform(size=TRACES) < agreement, human_values, random_values)
    return LabelSample(np.where(rng.uniform(size=TRACES) < bias, 1.0, judge_values), human_values)


def sample_rarely_bad(rng: np.random.Generator, agreement: float, bias: float) -> LabelSample:
    """Sample 0/1 values of which one in twenty is bad."""
    return sample_binary(rng, agreement, bias, 0.95)


def sample_claim_shares(rng: np.random.Generator, agreement: float, bias: float) -> LabelSample:
    """Sample shares of one to eight claims, as for groundedness; the judge repeats a share or draws its own."""
    claims = rng.integers(1, 9, size=TRACES)
    level = rng.beta(6, 1.5, size=TRACES)
    human_counts = rng.binomial(claims, level)
    random_counts = rng.binomial(claims, rng.permutation(level))
    judge_values = np.where(rng.uniform(size=TRACES) < agreement, human_counts, random_counts) / claims
    return LabelSample(judge_values + bias * (1 - judge_values), human_counts / claims)


def sample_conversations(rng: np.random.Generator, agreement: float, bias: float) -> LabelSample:
    """Sample correlated shares in conversations of five turns, labeled turn by turn."""
    conversation = np.repeat(np.arange(TRACES // 5), 5)
    shared = rng.normal(size=TRACES // 5)[conversation]
    human_values = 0.8 * shared + 0.6 * rng.normal(size=TRACES)
    noise = 0.8 * rng.normal(size=TRACES // 5)[conversation] + 0.6 * rng.normal(size=TRACES)
    judge_values = agreement * human_values + np.sqrt(1 - agreement**2) * noise
    return LabelSample(judge_values + bias, human_values, conversation.astype(float))


def sample_by_uncertainty(rng: np.random.Generator, agreement: float, bias: float) -> LabelSample:
    """Sample shares of claims of which uncertain ones are labelled more often."""
    sample = sample_claim_shares(rng, agreement, bias)
    uncertainty = np.sqrt(np.maximum(sample.judge_values * (1 - sample.judge_values), 0.01))
    return sample._replace(sampling_weights=0.5 / TRACES + 0.5 * uncertainty / uncertainty.sum())


POPULATIONS: dict[str, tuple[Callable[..., LabelSample], float, tuple[float, float]]] = {
    "0/1, 80 % good": (sample_binary, 0.8, (0.0, 1.0)),
    "0/1, 95 % good": (sample_rarely_bad, 0.95, (0.0, 1.0)),
    "shares of claims": (sample_claim_shares, 0.8, (0.0, 1.0)),
    "the same, drawn by doubt": (sample_by_uncertainty, 0.8, (0.0, 1.0)),
    "conversations of 5": (sample_conversations, 0.0, (-np.inf, np.inf)),
}


class Scenario(NamedTuple):
    """One simulated setting: population, judge, and number of labels."""

    population: str
    agreement: float
    bias: float
    labels: int


class IntervalComparison(NamedTuple):
    """Coverage and relative width of corrected intervals in one scenario."""

    coverage: float
    """Coverage of the corrected interval."""
    label_coverage: float
    """Coverage of the interval of the labels alone."""
    width_ratio: float
    """Width of the former divided by that of the latter."""


def simulate_scenario(scenario: Scenario) -> IntervalComparison:
    """Return coverage and width of corrected intervals, and of intervals of the labels alone."""
    draw_sample, truth, bounds = POPULATIONS[scenario.population]
    rng = np.random.default_rng(7)
    covered, widths = np.zeros(2), np.zeros((SIMULATIONS, 2))
    for index in range(SIMULATIONS):
        sample = draw_sample(rng, scenario.agreement, scenario.bias)
        labels = label_traces(rng, sample, scenario.labels)
        is_labelled = np.isfinite(labels)
        groups = None if sample.clusters is None else sample.clusters[is_labelled]
        corrected = ppi_mean(
            sample.judge_values, labels, sample.clusters, sampling_probabilities=sample.sampling_weights, bounds=bounds
        ).interval
        if corrected is None:
            continue
        by_labels = mean_interval(labels[is_labelled], groups, bounds=bounds)
        covered += [item.low <= truth <= item.high for item in (corrected, by_labels)]
        widths[index] = corrected.high - corrected.low, by_labels.high - by_labels.low
    median_widths = np.median(widths, axis=0)
    return IntervalComparison(*(covered / SIMULATIONS).tolist(), float(median_widths[0] / median_widths[1]))


def label_traces(rng: np.random.Generator, sample: LabelSample, n: int) -> FloatArray:
    """Return the human values of `n` traces drawn at random, NaN for the others."""
    labels = np.full(sample.human_values.size, np.nan)
    chosen = rng.choice(sample.human_values.size, n, replace=False)
    if sample.sampling_weights is not None:
        chosen = np.flatnonzero(rng.uniform(size=labels.size) < n * sample.sampling_weights)
    labels[chosen] = sample.human_values[chosen]
    return labels


def print_simulations() -> None:
    """Print one line for each population and judge, with the figures by number of labels."""
    sizes = " / ".join(map(str, SIZES))
    print(f"| values | judge is right | bias | coverage at {sizes} labels | labels alone | relative width |")
    print("|---|---|---|---|---|---|")
    lines = [(name, agreement, bias) for name in POPULATIONS for agreement in (0.0, 0.5, 0.9) for bias in (0.0, 0.2)]
    with ProcessPoolExecutor(2) as pool:
        results = pool.map(simulate_scenario, [Scenario(*line, n) for line in lines for n in SIZES])
        for name, agreement, bias in lines:
            cells = [next(results) for _ in SIZES]
            shares = [" / ".join(f"{100 * share:.1f}" for share in item) for item in list(zip(*cells, strict=True))[:2]]
            ratios = " / ".join(f"{cell.width_ratio:.2f}" for cell in cells)
            print(f"| {name} | {agreement:.0%} | {bias:g} | {shares[0]} | {shares[1]} | {ratios} |", flush=True)


# --- real labels -----------------------------------------------------------------------------------


def measure_groundedness(folder: Path, name: str, size: int) -> tuple[LabelSample, list[str]]:
    """Return the groundedness of reserved answers by the judge and by people, and the task of each answer."""
    metric = parse_metric("groundedness")
    selected = [row for row in read_rows(folder, "ragtruth_train") if is_reserved(row)]
    selected = [selected[at] for at in np.random.default_rng(1).permutation(len(selected))[:size]]
    judge_values, human_values, sources, tasks = [], [], [], []
    for row, verdicts in zip(selected, load_judge(name).observe([build_trace(row) for row in selected]), strict=True):
        score = compute_score(metric, build_trace(row), verdicts)
        if score.value is not None and verdicts.claim:
            marked = [is_marked(c, row) for c in verdicts.claim]
            judge_values.append(score.value)
            human_values.append(1 - sum(marked) / len(marked))
            sources.append(row["source_id"])
            tasks.append(row["task"])
    numbers = {source: i for i, source in enumerate(dict.fromkeys(sources))}
    codes = np.array([numbers[source] for source in sources], dtype=np.float64)
    return LabelSample(np.array(judge_values), np.array(human_values), codes), tasks


def print_ragtruth_coverage(folder: Path, name: str, size: int) -> None:
    """Print coverage and width on RAGTruth with labels for 5 % and for 10 % of the answers."""
    sample, tasks = measure_groundedness(folder, name, size)
    print("| answers | n | labels | by people | by the judge | correlation | inside | alone | width | alone | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for task in ("all", *sorted(set(tasks))):
        selected = np.array([task in ("all", item) for item in tasks])
        assert sample.clusters is not None
        task_sample = LabelSample(
            sample.judge_values[selected], sample.human_values[selected], sample.clusters[selected]
        )
        for share in (0.05, 0.1):
            print(f"| {task} | {task_sample.human_values.size} | {format_coverage(task_sample, share)} |", flush=True)


def format_coverage(sample: LabelSample, share: float) -> str:
    """Format the coverage and width of intervals over many random samples of labels."""
    rng, n = np.random.default_rng(3), round(share * sample.human_values.size)
    truth, covered, widths = float(sample.human_values.mean()), np.zeros(2), np.zeros((DRAWS, 2))
    assert sample.clusters is not None
    for index in range(DRAWS):
        labels = label_traces(rng, sample, n)
        is_labelled = np.isfinite(labels)
        corrected = ppi_mean(sample.judge_values, labels, sample.clusters, bounds=(0, 1)).interval
        assert corrected is not None
        by_labels = mean_interval(labels[is_labelled], sample.clusters[is_labelled], bounds=(0, 1))
        covered += [item.low <= truth <= item.high for item in (corrected, by_labels)]
        widths[index] = corrected.high - corrected.low, by_labels.high - by_labels.low
    median_widths, covered = np.median(widths, axis=0), covered / DRAWS
    judge_mean, correlation = sample.judge_values.mean(), np.corrcoef(sample.judge_values, sample.human_values)[0, 1]
    return (
        f"{n} | {truth:.3f} | {judge_mean:.3f} | {correlation:.2f} | {covered[0]:.1%} | {covered[1]:.1%} | "
        f"{median_widths[0]:.3f} | {median_widths[1]:.3f} | {median_widths[0] / median_widths[1]:.2f}"
    )


def main() -> None:
    """Print the table of the simulations, or that of RAGTruth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("judge", nargs="?", default="embedded")
    parser.add_argument("traces", type=int, nargs="?", default=2000)
    options = parser.parse_args()
    if options.data:
        print_ragtruth_coverage(options.data, options.judge, options.traces)
    else:
        print_simulations()


if __name__ == "__main__":
    main()
