"""Coverage and width of intervals corrected by a few human labels (prediction-powered inference).

    python -m benchmarks.human_labels
    python -m benchmarks.human_labels DATA_FOLDER [JUDGE] [TRACES]

The first form simulates samples with a known mean: 2,000 traces, of which 20, 50 or 200 are labeled. With
2,000 simulations a true share of 95 % is observed between 94.0 % and 96.0 %. The second form takes answers of
RAGTruth to sources that the judge was not fitted on (the truth of each is the share of its claims without a
human mark), labels 5 % (10 %) of them at random, 400 times, and counts how often the interval covers the mean
by human labels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.judge import is_reserved, rows, trace

from ragfault.judges import load_judge
from ragfault.metrics import compute_score, parse_metric
from ragfault.stats import mean_interval, ppi_mean
from ragfault.stats.bootstrap import FloatArray

TRACES, SIZES, SIMULATIONS, DRAWS = 2000, (20, 50, 200), 2000, 400


class LabelSample(NamedTuple):
    """Sample: judge values, human values, and clusters."""

    judged: FloatArray
    people: FloatArray
    clusters: FloatArray | None = None
    chances: FloatArray | None = None
    """Sampling probabilities, up to a factor."""


# --- populations -----------------------------------------------------------------------------------


def binary(rng: np.random.Generator, agreement: float, bias: float, share: float = 0.8) -> LabelSample:
    """Sample 0/1 values: the judge repeats the label with a probability, else is random; a bias turns zeros
    to 1.
    """
    people = (rng.uniform(size=TRACES) < share).astype(float)
    anew = (rng.uniform(size=TRACES) < share).astype(float)
    judged = np.where(rng.uniform(size=TRACES) < agreement, people, anew)
    return LabelSample(np.where(rng.uniform(size=TRACES) < bias, 1.0, judged), people)


def rare(rng: np.random.Generator, agreement: float, bias: float) -> LabelSample:
    """Sample the hard case of 0/1: one in twenty is bad."""
    return binary(rng, agreement, bias, 0.95)


def shares(rng: np.random.Generator, agreement: float, bias: float) -> LabelSample:
    """Sample shares of one to eight claims, as for groundedness; the judge sees each claim so or anew."""
    claims = rng.integers(1, 9, size=TRACES)
    level = rng.beta(6, 1.5, size=TRACES)
    people = rng.binomial(claims, level)
    anew = rng.binomial(claims, rng.permutation(level))
    judged = np.where(rng.uniform(size=TRACES) < agreement, people, anew) / claims
    return LabelSample(judged + bias * (1 - judged), people / claims)


def talks(rng: np.random.Generator, agreement: float, bias: float) -> LabelSample:
    """Sample correlated shares in conversations of five turns, labeled turn by turn."""
    talk = np.repeat(np.arange(TRACES // 5), 5)
    shared = rng.normal(size=TRACES // 5)[talk]
    people = 0.8 * shared + 0.6 * rng.normal(size=TRACES)
    noise = 0.8 * rng.normal(size=TRACES // 5)[talk] + 0.6 * rng.normal(size=TRACES)
    judged = agreement * people + np.sqrt(1 - agreement**2) * noise
    return LabelSample(judged + bias, people, talk.astype(float))


def doubted(rng: np.random.Generator, agreement: float, bias: float) -> LabelSample:
    """Sample shares of claims where uncertain ones are labeled more often."""
    sample = shares(rng, agreement, bias)
    doubt = np.sqrt(np.maximum(sample.judged * (1 - sample.judged), 0.01))
    return sample._replace(chances=0.5 / TRACES + 0.5 * doubt / doubt.sum())


POPULATIONS: dict[str, tuple[Callable[..., LabelSample], float, tuple[float, float]]] = {
    "0/1, 80 % good": (binary, 0.8, (0.0, 1.0)),
    "0/1, 95 % good": (rare, 0.95, (0.0, 1.0)),
    "shares of claims": (shares, 0.8, (0.0, 1.0)),
    "the same, drawn by doubt": (doubted, 0.8, (0.0, 1.0)),
    "conversations of 5": (talks, 0.0, (-np.inf, np.inf)),
}


class Cell(NamedTuple):
    """Cell of the table."""

    population: str
    agreement: float
    bias: float
    labelled: int


class Seen(NamedTuple):
    """Result of a cell."""

    inside: float
    """Coverage of the corrected interval."""
    alone: float
    """Coverage of the interval of the labels alone."""
    ratio: float
    """Width of the former divided by that of the latter."""


def simulate(cell: Cell) -> Seen:
    """Return coverage and width of corrected intervals and of labels alone."""
    make, truth, bounds = POPULATIONS[cell.population]
    rng = np.random.default_rng(7)
    inside, widths = np.zeros(2), np.zeros((SIMULATIONS, 2))
    for index in range(SIMULATIONS):
        sample = make(rng, cell.agreement, cell.bias)
        labels = labelled(rng, sample, cell.labelled)
        known = np.isfinite(labels)
        groups = None if sample.clusters is None else sample.clusters[known]
        corrected = ppi_mean(
            sample.judged, labels, sample.clusters, sampling_probabilities=sample.chances, bounds=bounds
        ).interval
        if corrected is None:
            continue
        alone = mean_interval(labels[known], groups, bounds=bounds)
        inside += [item.low <= truth <= item.high for item in (corrected, alone)]
        widths[index] = corrected.high - corrected.low, alone.high - alone.low
    wide = np.median(widths, axis=0)
    return Seen(*(inside / SIMULATIONS).tolist(), float(wide[0] / wide[1]))


def labelled(rng: np.random.Generator, sample: LabelSample, n: int) -> FloatArray:
    """Label some traces drawn at random."""
    labels = np.full(sample.people.size, np.nan)
    chosen = rng.choice(sample.people.size, n, replace=False)
    if sample.chances is not None:
        chosen = np.flatnonzero(rng.uniform(size=labels.size) < n * sample.chances)
    labels[chosen] = sample.people[chosen]
    return labels


def table() -> None:
    """Print one line for each population and judge, with the figures by number of labels."""
    sizes = " / ".join(map(str, SIZES))
    print(f"| values | judge is right | bias | coverage at {sizes} labels | labels alone | relative width |")
    print("|---|---|---|---|---|---|")
    lines = [(name, right, bias) for name in POPULATIONS for right in (0.0, 0.5, 0.9) for bias in (0.0, 0.2)]
    with ProcessPoolExecutor(2) as pool:
        sample = pool.map(simulate, [Cell(*line, n) for line in lines for n in SIZES])
        for name, right, bias in lines:
            cells = [next(sample) for _ in SIZES]
            shares = [" / ".join(f"{100 * share:.1f}" for share in item) for item in list(zip(*cells, strict=True))[:2]]
            ratios = " / ".join(f"{cell.ratio:.2f}" for cell in cells)
            print(f"| {name} | {right:.0%} | {bias:g} | {shares[0]} | {shares[1]} | {ratios} |", flush=True)


# --- real labels -----------------------------------------------------------------------------------


def answers(folder: Path, name: str, size: int) -> tuple[LabelSample, list[str]]:
    """Return groundedness by judge and humans, claim by claim, with the task of each answer."""
    metric = parse_metric("groundedness")
    selected = [row for row in rows(folder, "ragtruth_train") if is_reserved(row)]
    selected = [selected[at] for at in np.random.default_rng(1).permutation(len(selected))[:size]]
    judged, people, sources, tasks = [], [], [], []
    for row, seen in zip(selected, load_judge(name).observe([trace(row) for row in selected]), strict=True):
        sample = compute_score(metric, trace(row), seen)
        if sample.value is not None and seen.claim:
            marked = [any(c.start < s["end"] and s["start"] < c.end for s in row["spans"]) for c in seen.claim]
            judged.append(sample.value)
            people.append(1 - sum(marked) / len(marked))
            sources.append(row["source_id"])
            tasks.append(row["task"])
    numbers = {source: i for i, source in enumerate(dict.fromkeys(sources))}
    codes = np.array([numbers[source] for source in sources], dtype=np.float64)
    return LabelSample(np.array(judged), np.array(people), codes), tasks


def real(folder: Path, name: str = "embedded", size: int = 2000) -> None:
    """Print coverage and width on RAGTruth where 5 % of the answers are labeled."""
    sample, tasks = answers(folder, name, size)
    print("| answers | n | labels | by people | by the judge | correlation | inside | alone | width | alone | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for task in ("all", *sorted(set(tasks))):
        selected = np.array([task in ("all", item) for item in tasks])
        assert sample.clusters is not None
        task_sample = LabelSample(sample.judged[selected], sample.people[selected], sample.clusters[selected])
        for share in (0.05, 0.1):
            print(f"| {task} | {task_sample.people.size} | {_sample_figures(task_sample, share)} |", flush=True)


def _sample_figures(sample: LabelSample, share: float) -> str:
    """Return the figures of many samples of labels."""
    rng, n = np.random.default_rng(3), round(share * sample.people.size)
    truth, inside, widths = float(sample.people.mean()), np.zeros(2), np.zeros((DRAWS, 2))
    assert sample.clusters is not None
    for index in range(DRAWS):
        labels = labelled(rng, sample, n)
        known = np.isfinite(labels)
        corrected = ppi_mean(sample.judged, labels, sample.clusters, bounds=(0, 1)).interval
        assert corrected is not None
        alone = mean_interval(labels[known], sample.clusters[known], bounds=(0, 1))
        inside += [item.low <= truth <= item.high for item in (corrected, alone)]
        widths[index] = corrected.high - corrected.low, alone.high - alone.low
    wide, inside = np.median(widths, axis=0), inside / DRAWS
    judged, alike = sample.judged.mean(), np.corrcoef(sample.judged, sample.people)[0, 1]
    return (
        f"{n} | {truth:.3f} | {judged:.3f} | {alike:.2f} | {inside[0]:.1%} | {inside[1]:.1%} | "
        f"{wide[0]:.3f} | {wide[1]:.3f} | {wide[0] / wide[1]:.2f}"
    )


def main() -> None:
    """Print the tables."""
    if len(sys.argv) > 1:
        real(Path(sys.argv[1]), *sys.argv[2:3], *map(int, sys.argv[3:4]))
        return
    table()


if __name__ == "__main__":
    main()
