"""Learn how much each observation on a pair of runs speaks for a stage, on the fault bench.

    python training/stages.py [--data FOLDER] [--cache FOLDER] [--size 300] [--seeds 1] [--strengths medium]

Faults of known stage are put into the system of `benchmarks/faults` over the demo handbook and, with `--data`, over
`squad2_*.jsonl.gz` of that folder; those of `DEVELOPED` in `benchmarks/faults/unseen` into its system `shop`. Of every
pair of runs the evidence is collected. A multinomial logistic model over the stages of the fault's branch has one
weight of at least 0 for each observation and stage, drawn towards a common one (towards a larger one for what hardly
any other stage shows), and a prior for each stage, drawn towards 0. The temperature is fitted on kinds of faults that
were held out, each scored by weights that saw it on no corpus, and is at least 1.
Writes `src/ragfault/analysis/comparison/stages/weights.toml` and prints how often the first stage is right.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.faults.__main__ import METRICS
from benchmarks.faults.corpora import Corpus, handbook_corpus, squad_corpus
from benchmarks.faults.injection import FAULTS, STRENGTHS, Strength, pair
from benchmarks.faults.unseen.__main__ import build_pairs, systems
from benchmarks.faults.unseen.kinds import DEVELOPED, KINDS
from msgspec.structs import replace

from ragfault.analysis import bisect, pair_runs
from ragfault.analysis.comparison.decision_tree import BRANCHES, STAGES_BY_BRANCH, STAGES_BY_LAYER
from ragfault.analysis.comparison.paired_runs import PairedRuns
from ragfault.analysis.comparison.records import StageEvidence
from ragfault.analysis.comparison.stages.evidence import collect_evidence
from ragfault.analysis.comparison.stages.paired_traces import read_pairs
from ragfault.analysis.comparison.stages.ranking import StageWeights, score_stages
from ragfault.evaluation import evaluate
from ragfault.io.runs import Run

TARGET = Path(__file__).parents[1] / "src/ragfault/analysis/comparison/stages/weights.toml"
COMMON = 2.0
"""Weight of evidence that no trial has shown; others are drawn towards it."""
DIRECT = (
    "setting",
    "rewritten",
    "other value",
    "order by score",
    "sign",
    "floor",
    "answer of another query",
    "repeated",
    "in no time",
)
"""Evidence that hardly any other stage shows, whose weights are drawn towards twice the common one."""
UNUSUAL = -1.0
"""Logit towards which that of stages is drawn which are not usual in a branch."""
SPREAD = 1.0
"""Standard deviation of the weights about it, and of the priors about 0."""
SAMPLES = 2
"""Samples of half of the pairs that are drawn beside the whole."""
EMPTY = StageWeights(1.0, COMMON, UNUSUAL, 0, 0.0, 0.0, {}, {})


class Trial(NamedTuple):
    """Evidence of one pair of runs, and the stages that are right."""

    corpus: str
    kind: str
    usual: Sequence[str]
    others: Sequence[str]
    right: frozenset[str]
    evidence: Sequence[StageEvidence]

    @property
    def stages(self) -> list[str]:
        """The stages that are ranked."""
        return list(score_stages(self.usual, self.others, self.evidence, EMPTY))


def trials(corpus: Corpus, folder: Path, size: int, seeds: int, strengths: Sequence[Strength]) -> list[Trial]:
    """Return the trials of a corpus; runs that the folder holds already are not made again."""
    cases = []
    names = [name for name, fault in FAULTS.items() if fault.branch]
    for seed in range(seeds):
        for name in names:
            for strength in strengths:
                places = [folder / f"{corpus.name}-{seed}-{side}" for side in ("base", f"{name}-{strength}")]
                if not all(place.exists() for place in places):
                    sides = pair(corpus, name, strength, n=min(size, len(corpus.questions)), seed=seed)
                    for side, place in zip(sides, places, strict=True):
                        if not place.exists():
                            evaluate(side, place, metrics=METRICS, judge="lexical")
                paired = pair_runs(*(Run.open(place) for place in places))
                branch = next(key for key in STAGES_BY_BRANCH if key[0] == str(FAULTS[name].branch))
                cases += sample_trials(corpus.name, name, branch, FAULTS[name].stages, paired, seed)
    return cases


def sample_trials(
    corpus: str, kind: str, branch: str, right: Iterable[str], paired: PairedRuns, seed: int
) -> Iterator[Trial]:
    """Yield a trial of all pairs, and of samples of half of them."""
    layer = next((item.layer for item in BRANCHES if item.name == branch), "retrieval")
    rng = np.random.default_rng(seed)
    for share in (1.0, *[0.5] * SAMPLES):
        mask = rng.random(len(paired.pairing)) < share
        evidence = collect_evidence(read_pairs(paired, mask))
        usual, others = STAGES_BY_BRANCH.get(branch, ()), STAGES_BY_LAYER.get(layer, ())
        yield Trial(corpus, kind, usual, others, frozenset(right), evidence)


def shop_trials(folder: Path, seeds: int) -> Iterator[Trial]:
    """Yield the trials of the developed kinds in the system `shop`, in the branch that bisection names."""
    parts, questions = next(systems(None))
    names = sorted(name for name in DEVELOPED if KINDS[name].stages)
    for seed in range(seeds):
        for name, paired in build_pairs(parts, questions, names, seed, 200, True, folder):
            first = next(iter(bisect(paired).faults), None)
            if first is not None and first.layer in KINDS[name].layers:
                yield from sample_trials(parts.name, name, first.branch, KINDS[name].stages, paired, seed)


def fit(cases: Sequence[Trial], steps: int = 400, rate: float = 0.05) -> StageWeights:
    """Fit weights and priors by gradient ascent of the penalised likelihood that a right stage is named."""
    stages = sorted({stage for case in cases for stage in case.stages})
    keys = sorted({f"{item.name}: {item.stage}" for case in cases for item in case.evidence if item.stage in stages})
    place = {key: at for at, key in enumerate([*keys, *stages, "unusual"])}
    most = max(len(case.stages) for case in cases)
    features = np.zeros((len(cases), most, len(place)))
    right = np.zeros((len(cases), most))
    there = np.zeros((len(cases), most))
    for at, case in enumerate(cases):
        for row, stage in enumerate(case.stages):
            there[at, row], right[at, row] = 1.0, stage in case.right
            features[at, row, place[stage]] = 1.0
            features[at, row, place["unusual"]] = stage not in case.usual
            for item in case.evidence:
                if item.stage == stage:
                    features[at, row, place[f"{item.name}: {stage}"]] += item.strength
    shown = right.any(axis=1)  # a right stage that nothing speaks for is not ranked, and teaches nothing
    features, right, there = features[shown], right[shown], there[shown]
    centre = np.array([COMMON * (1 + (key.split(":")[0] in DIRECT)) for key in keys] + [0.0] * len(stages) + [UNUSUAL])
    weights = centre.copy()
    per = len(cases) / len({(case.corpus, case.kind) for case in cases})  # trials of one kind are not independent
    for _ in range(steps):
        logits = features @ weights
        odds = np.exp(logits - logits.max(axis=1, keepdims=True)) * there
        inside = odds * right
        pull = inside / inside.sum(axis=1, keepdims=True) - odds / odds.sum(axis=1, keepdims=True)
        gradient = np.einsum("csf,cs->f", features, pull) / per - (weights - centre) / SPREAD**2
        weights += rate * gradient
        weights[: len(keys)] = np.maximum(weights[: len(keys)], 0.0)
    table = {key: round(float(weights[place[key]]), 3) for key in keys}
    return StageWeights(
        temperature=1.0,
        common_weight=COMMON,
        branch_logits=round(float(weights[place["unusual"]]), 3),
        trials=0,
        first_accuracy=0.0,
        top_accuracy=0.0,
        prior_logits={stage: round(float(weights[place[stage]]), 3) for stage in stages},
        weights=dict.fromkeys(DIRECT, 2 * COMMON) | table,
    )


def logits_of(case: Trial, table: StageWeights) -> np.ndarray:
    """Return the scores of the stages of a trial."""
    return np.array(list(score_stages(case.usual, case.others, case.evidence, table).values()))


def hold_out(cases: Sequence[Trial]) -> list[tuple[Trial, np.ndarray]]:
    """Score each trial by a model that did not see its kind of fault."""
    scored = []
    for kind in sorted({case.kind for case in cases}):
        table = fit([case for case in cases if case.kind != kind], steps=150)
        scored += [(case, logits_of(case, table)) for case in cases if case.kind == kind]
    return scored


def likelihood(scored: Sequence[tuple[Trial, np.ndarray]], temperature: float) -> float:
    """Return the mean log likelihood of a right stage at a temperature."""
    total = 0.0
    for case, logits in scored:
        odds = np.exp((logits - logits.max()) / temperature)
        total += np.log(max(1e-3, odds[[stage in case.right for stage in case.stages]].sum() / odds.sum()))
    return total / len(scored)


def report(scored: Sequence[tuple[Trial, np.ndarray]]) -> tuple[float, float]:
    """Print per kind of fault how often the right stage is first and among three; return both shares."""
    first, three = [], []
    by_kind: dict[str, list[tuple[bool, bool, str]]] = {}
    for case, logits in scored:
        order = [case.stages[at] for at in np.argsort(-logits, kind="stable")]
        hit = order[0] in case.right, bool(case.right & set(order[:3]))
        first.append(hit[0])
        three.append(hit[1])
        by_kind.setdefault(case.kind, []).append((*hit, order[0]))
    for kind, hits in by_kind.items():
        wrong = sorted({named for right, _, named in hits if not right})
        print(
            f"{kind:22s} first {np.mean([h[0] for h in hits]):4.0%}  among three {np.mean([h[1] for h in hits]):4.0%}",
            wrong,
        )
    return float(np.mean(first)), float(np.mean(three))


def write(table: StageWeights) -> None:
    """Write the weights as TOML."""
    lines = ["# Written by training/stages.py; do not edit.\n"]
    for name in ("temperature", "common_weight", "branch_logits", "trials", "first_accuracy", "top_accuracy"):
        lines.append(f"{name} = {getattr(table, name)}")
    for name, entries in (("prior_logits", table.prior_logits), ("weights", table.weights)):
        lines += ["", f"[{name}]", *(f'"{key}" = {value}' for key, value in sorted(entries.items()))]
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--size", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--strengths", nargs="+", choices=STRENGTHS, default=["medium"])
    asked = parser.parse_args()
    corpora = [handbook_corpus()] + ([squad_corpus(asked.data)] if asked.data else [])
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.cache or Path(temporary)
        cases = [
            case for corpus in corpora for case in trials(corpus, folder, asked.size, asked.seeds, asked.strengths)
        ]
        cases += shop_trials(folder, asked.seeds)
    scored = hold_out(cases)
    first, three = report(scored)
    temperature = max(np.arange(1.0, 5.0, 0.1), key=lambda value: likelihood(scored, value))
    table = fit(cases)
    print(f"held out: first {first:.1%}, among three {three:.1%} of {len(scored)}; temperature {temperature:.1f}")
    write(
        replace(
            table,
            temperature=round(float(temperature), 2),
            trials=len(scored),
            first_accuracy=round(first, 3),
            top_accuracy=round(three, 3),
        )
    )


if __name__ == "__main__":
    main()
