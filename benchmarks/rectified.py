"""What a few labels of people are worth beside a judge on every trace: coverage and width of rectified intervals.

    python -m benchmarks.rectified
    python -m benchmarks.rectified DATA_FOLDER [JUDGE] [TRACES]

The first draws samples whose true mean is known: 2,000 traces, of which 20, 50 or 200 are labelled. With 2,000
simulations a share that is truly 95 % is seen between 94.0 % and 96.0 %. The second takes answers of RAGTruth to
sources that the judge was not fitted on (the truth of each is the share of its claims that people left unmarked),
labels 5 % (10 %) of them at random, 400 times, and asks whether the mean of all of them by people is inside.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.judge import held, rows, trace

from ragfault.judges import load_judge
from ragfault.metrics import compute_score, parse_metric
from ragfault.stats import mean_interval, ppi_mean
from ragfault.stats.clusters import FloatArray

TRACES, SIZES, SIMULATIONS, DRAWS = 2000, (20, 50, 200), 2000, 400


class Drawn(NamedTuple):
    """One sample: what the judge says of each trace, what people would say, and who moves together."""

    judged: FloatArray
    people: FloatArray
    clusters: FloatArray | None = None
    chances: FloatArray | None = None
    """With which each trace is drawn, up to a factor."""


# --- populations -----------------------------------------------------------------------------------


def binary(rng: np.random.Generator, agreement: float, bias: float, share: float = 0.8) -> Drawn:
    """0/1: the judge repeats people with a probability, else answers at random; a bias turns some of its zeros to 1."""
    people = (rng.uniform(size=TRACES) < share).astype(float)
    anew = (rng.uniform(size=TRACES) < share).astype(float)
    judged = np.where(rng.uniform(size=TRACES) < agreement, people, anew)
    return Drawn(np.where(rng.uniform(size=TRACES) < bias, 1.0, judged), people)


def rare(rng: np.random.Generator, agreement: float, bias: float) -> Drawn:
    """The hard case of 0/1: one in twenty is bad."""
    return binary(rng, agreement, bias, 0.95)


def shares(rng: np.random.Generator, agreement: float, bias: float) -> Drawn:
    """Shares of one to eight claims that hold, as groundedness has them; the judge sees each claim so or anew."""
    claims = rng.integers(1, 9, size=TRACES)
    level = rng.beta(6, 1.5, size=TRACES)
    people = rng.binomial(claims, level)
    anew = rng.binomial(claims, rng.permutation(level))
    judged = np.where(rng.uniform(size=TRACES) < agreement, people, anew) / claims
    return Drawn(judged + bias * (1 - judged), people / claims)


def talks(rng: np.random.Generator, agreement: float, bias: float) -> Drawn:
    """Shares in conversations of five turns that move together, labelled turn by turn."""
    talk = np.repeat(np.arange(TRACES // 5), 5)
    shared = rng.normal(size=TRACES // 5)[talk]
    people = 0.8 * shared + 0.6 * rng.normal(size=TRACES)
    noise = 0.8 * rng.normal(size=TRACES // 5)[talk] + 0.6 * rng.normal(size=TRACES)
    judged = agreement * people + np.sqrt(1 - agreement**2) * noise
    return Drawn(judged + bias, people, talk.astype(float))


def doubted(rng: np.random.Generator, agreement: float, bias: float) -> Drawn:
    """Shares of claims, of which those that the judge doubts are likelier to be labelled."""
    found = shares(rng, agreement, bias)
    doubt = np.sqrt(np.maximum(found.judged * (1 - found.judged), 0.01))
    return found._replace(chances=0.5 / TRACES + 0.5 * doubt / doubt.sum())


POPULATIONS: dict[str, tuple[Callable[..., Drawn], float, tuple[float, float]]] = {
    "0/1, 80 % good": (binary, 0.8, (0.0, 1.0)),
    "0/1, 95 % good": (rare, 0.95, (0.0, 1.0)),
    "shares of claims": (shares, 0.8, (0.0, 1.0)),
    "the same, drawn by doubt": (doubted, 0.8, (0.0, 1.0)),
    "conversations of 5": (talks, 0.0, (-np.inf, np.inf)),
}


class Cell(NamedTuple):
    """One cell of the table."""

    population: str
    agreement: float
    bias: float
    labelled: int


class Seen(NamedTuple):
    """What came of a cell."""

    inside: float
    """How often the truth is in the rectified interval."""
    alone: float
    """How often in that of the labels alone."""
    ratio: float
    """The width of the one by that of the other."""


def simulate(cell: Cell) -> Seen:
    """How often the truth is inside, of rectified intervals and of labels alone, and how wide they are."""
    make, truth, bounds = POPULATIONS[cell.population]
    rng = np.random.default_rng(7)
    inside, widths = np.zeros(2), np.zeros((SIMULATIONS, 2))
    for at in range(SIMULATIONS):
        found = make(rng, cell.agreement, cell.bias)
        said = labelled(rng, found, cell.labelled)
        known = np.isfinite(said)
        groups = None if found.clusters is None else found.clusters[known]
        rectified = ppi_mean(
            found.judged, said, found.clusters, sampling_probabilities=found.chances, bounds=bounds
        ).interval
        if rectified is None:
            continue
        alone = mean_interval(said[known], groups, bounds=bounds)
        inside += [each.low <= truth <= each.high for each in (rectified, alone)]
        widths[at] = rectified.high - rectified.low, alone.high - alone.low
    wide = np.median(widths, axis=0)
    return Seen(*(inside / SIMULATIONS).tolist(), float(wide[0] / wide[1]))


def labelled(rng: np.random.Generator, found: Drawn, n: int) -> FloatArray:
    """What people say of some traces drawn at random."""
    said = np.full(found.people.size, np.nan)
    chosen = rng.choice(found.people.size, n, replace=False)
    if found.chances is not None:
        chosen = np.flatnonzero(rng.uniform(size=said.size) < n * found.chances)
    said[chosen] = found.people[chosen]
    return said


def table() -> None:
    """One line for each population and judge, with the figures by number of labels."""
    sizes = " / ".join(map(str, SIZES))
    print(f"| values | judge is right | bias | inside at {sizes} labels | labels alone | width by theirs |")
    print("|---|---|---|---|---|---|")
    lines = [(name, right, bias) for name in POPULATIONS for right in (0.0, 0.5, 0.9) for bias in (0.0, 0.2)]
    with ProcessPoolExecutor(2) as pool:
        found = pool.map(simulate, [Cell(*line, n) for line in lines for n in SIZES])
        for name, right, bias in lines:
            cells = [next(found) for _ in SIZES]
            shares = [
                " / ".join(f"{100 * share:.1f}" for share in each)
                for each in list(zip(*cells, strict=True))[:2]
            ]
            ratios = " / ".join(f"{cell.ratio:.2f}" for cell in cells)
            print(f"| {name} | {right:.0%} | {bias:g} | {shares[0]} | {shares[1]} | {ratios} |", flush=True)


# --- real labels -----------------------------------------------------------------------------------


def answers(folder: Path, name: str, size: int) -> tuple[Drawn, list[str]]:
    """Groundedness of answers by the judge and by people, claim by claim, with the source and task of each."""
    metric = parse_metric("groundedness")
    kept = [row for row in rows(folder, "ragtruth_train") if held(row)]
    kept = [kept[at] for at in np.random.default_rng(1).permutation(len(kept))[:size]]
    judged, people, sources, tasks = [], [], [], []
    for row, seen in zip(kept, load_judge(name).observe([trace(row) for row in kept]), strict=True):
        found = compute_score(metric, trace(row), seen)
        if found.value is not None and seen.claim:
            marked = [
                any(c.start < s["end"] and s["start"] < c.end for s in row["spans"]) for c in seen.claim
            ]
            judged.append(found.value)
            people.append(1 - sum(marked) / len(marked))
            sources.append(row["source_id"])
            tasks.append(row["task"])
    numbers = {source: at for at, source in enumerate(dict.fromkeys(sources))}
    codes = np.array([numbers[source] for source in sources], dtype=np.float64)
    return Drawn(np.array(judged), np.array(people), codes), tasks


def real(folder: Path, name: str = "embedded", size: int = 2000) -> None:
    """How often the mean by people is inside where they label 5 % of the answers, and how wide the interval is."""
    found, tasks = answers(folder, name, size)
    print(
        "| answers | n | labels | by people | by the judge | correlation | inside | alone | width | alone | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for task in ("all", *sorted(set(tasks))):
        kept = np.array([task in ("all", each) for each in tasks])
        assert found.clusters is not None
        one = Drawn(found.judged[kept], found.people[kept], found.clusters[kept])
        for share in (0.05, 0.1):
            print(f"| {task} | {one.people.size} | {_drawn(one, share)} |", flush=True)


def _drawn(found: Drawn, share: float) -> str:
    """The figures of many draws of labels."""
    rng, n = np.random.default_rng(3), round(share * found.people.size)
    truth, inside, widths = float(found.people.mean()), np.zeros(2), np.zeros((DRAWS, 2))
    assert found.clusters is not None
    for at in range(DRAWS):
        said = labelled(rng, found, n)
        known = np.isfinite(said)
        rectified = ppi_mean(found.judged, said, found.clusters, bounds=(0, 1)).interval
        assert rectified is not None
        alone = mean_interval(said[known], found.clusters[known], bounds=(0, 1))
        inside += [each.low <= truth <= each.high for each in (rectified, alone)]
        widths[at] = rectified.high - rectified.low, alone.high - alone.low
    wide, inside = np.median(widths, axis=0), inside / DRAWS
    judged, alike = found.judged.mean(), np.corrcoef(found.judged, found.people)[0, 1]
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
