"""Fit the weight of each observation on a pair of runs as evidence for a stage, on the fault bench.

    python training/stages.py [--data FOLDER] [--cache FOLDER] [--size 300] [--seeds 1] [--strengths medium]

Faults of known stage are put into the system of `benchmarks/faults` over the demo handbook and, with `--data`, over
`squad2_*.jsonl.gz` of that folder; those of `DEVELOPED` in `benchmarks/faults/unseen` into its system `shop`. Of every
pair of runs the evidence is collected. A multinomial logistic model over the stages of the fault's branch has one
weight of at least 0 for each observation and stage, shrunk towards a common one (towards a larger one for observations
that hardly any other stage shows), and a prior for each stage, shrunk towards 0. The temperature is fitted on kinds of
faults that were held out, each scored by weights that saw it on no corpus, and is at least 1.
Writes `src/ragfault/comparison/stages/weights.toml` and prints how often the first stage is right.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from benchmarks.faults.__main__ import METRICS
from benchmarks.faults.corpora import Corpus, load_handbook_corpus, load_squad_corpus
from benchmarks.faults.injection import FAULTS, STRENGTHS, Strength, pair
from benchmarks.faults.unseen.__main__ import build_pairs, systems
from benchmarks.faults.unseen.kinds import DEVELOPED, KINDS
from ragfault.comparison.bisection import bisect
from ragfault.comparison.decision_tree import BRANCHES, STAGES_BY_BRANCH, STAGES_BY_LAYER
from ragfault.comparison.paired_runs import PairedRuns, pair_runs
from ragfault.comparison.records import StageEvidence
from ragfault.comparison.stages.evidence import collect_evidence
from ragfault.comparison.stages.paired_traces import read_pairs
from ragfault.comparison.stages.ranking import StageWeights, score_stages
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run

TARGET = Path(__file__).parents[1] / "src/ragfault/comparison/stages/weights.toml"
COMMON_WEIGHT = 2.0
"""Weight of evidence that occurs in no trial; other weights are shrunk towards it."""
DIRECT_EVIDENCE = (
    "setting",
    "rewritten",
    "other value",
    "order by score",
    "sign",
    "floor",
    "answer of another query",
    "repeated",
)
"""Evidence that hardly any other stage shows, whose weights are shrunk towards twice the common one."""
UNUSUAL_LOGIT = -1.0
"""Logit towards which the common logit of stages that are not usual in a branch is shrunk."""
WEIGHT_DEVIATION = 1.0
"""Standard deviation of the weights about the common one, and of the priors about 0."""
HALF_SAMPLES = 2
"""Samples of half of the pairs, each a trial beside the one of all pairs."""
EMPTY_WEIGHTS = StageWeights(1.0, COMMON_WEIGHT, UNUSUAL_LOGIT, 0, 0.0, 0.0, {}, {})


class FaultTrial(NamedTuple):
    """Evidence from one pair of runs, and the stages that are right."""

    corpus: str
    kind: str
    usual: Sequence[str]
    others: Sequence[str]
    right: frozenset[str]
    evidence: Sequence[StageEvidence]

    @property
    def stages(self) -> list[str]:
        """The stages that are ranked."""
        return list(score_stages(self.usual, self.others, self.evidence, EMPTY_WEIGHTS))


def run_trials(corpus: Corpus, folder: Path, size: int, seeds: int, strengths: Sequence[Strength]) -> list[FaultTrial]:
    """Run the trials of a corpus; runs that are in the folder already are not made again."""
    trials = []
    names = [name for name, fault in FAULTS.items() if fault.branch]
    for seed in range(seeds):
        for name in names:
            for strength in strengths:
                folders = [folder / f"{corpus.name}-{seed}-{side}" for side in ("base", f"{name}-{strength}")]
                if not all(folder_path.exists() for folder_path in folders):
                    sides = pair(corpus, name, strength, n=min(size, len(corpus.questions)), seed=seed)
                    for side, folder_path in zip(sides, folders, strict=True):
                        if not folder_path.exists():
                            evaluate(side, folder_path, metrics=METRICS, judge="lexical")
                paired = pair_runs(*(Run.open(folder_path) for folder_path in folders))
                branch = next(key for key in STAGES_BY_BRANCH if key[0] == str(FAULTS[name].branch))
                trials += sample_trials(corpus.name, name, branch, FAULTS[name].stages, paired, seed)
    return trials


def sample_trials(
    corpus: str, kind: str, branch: str, right_stages: Iterable[str], paired: PairedRuns, seed: int
) -> Iterator[FaultTrial]:
    """Yield a trial of all pairs, and of samples of half of them."""
    layer = next((item.layer for item in BRANCHES if item.name == branch), "retrieval")
    rng = np.random.default_rng(seed)
    for share in (1.0, *[0.5] * HALF_SAMPLES):
        mask = rng.random(len(paired.pairing)) < share
        evidence = collect_evidence(read_pairs(paired, mask))
        usual, layer_stages = STAGES_BY_BRANCH.get(branch, ()), STAGES_BY_LAYER.get(layer, ())
        yield FaultTrial(corpus, kind, usual, layer_stages, frozenset(right_stages), evidence)


def run_shop_trials(folder: Path, seeds: int) -> Iterator[FaultTrial]:
    """Run the trials of the developed kinds in the system `shop`, in the branch that bisection names."""
    parts, questions = next(systems(None))
    names = sorted(name for name in DEVELOPED if KINDS[name].stages)
    for seed in range(seeds):
        for name, paired in build_pairs(parts, questions, names, seed, 200, True, folder):
            fault = next(iter(bisect(paired).faults), None)
            if fault is not None and fault.layer in KINDS[name].layers:
                yield from sample_trials(parts.name, name, fault.branch, KINDS[name].stages, paired, seed)


def fit(trials: Sequence[FaultTrial], steps: int = 400, rate: float = 0.05) -> StageWeights:
    """Fit weights and priors by gradient ascent of the penalised likelihood that a right stage is named."""
    stages = sorted({stage for trial in trials for stage in trial.stages})
    keys = sorted({f"{item.name}: {item.stage}" for trial in trials for item in trial.evidence if item.stage in stages})
    positions = {key: i for i, key in enumerate([*keys, *stages, "unusual"])}
    max_stages = max(len(trial.stages) for trial in trials)
    features = np.zeros((len(trials), max_stages, len(positions)))
    is_right = np.zeros((len(trials), max_stages))
    is_candidate = np.zeros((len(trials), max_stages))
    for index, trial in enumerate(trials):
        for row, stage in enumerate(trial.stages):
            is_candidate[index, row], is_right[index, row] = 1.0, stage in trial.right
            features[index, row, positions[stage]] = 1.0
            features[index, row, positions["unusual"]] = stage not in trial.usual
            for item in trial.evidence:
                if item.stage == stage:
                    features[index, row, positions[f"{item.name}: {stage}"]] += item.strength
    has_right = is_right.any(axis=1)  # a right stage that nothing speaks for is not ranked, and teaches nothing
    features, is_right, is_candidate = features[has_right], is_right[has_right], is_candidate[has_right]
    centre = np.array(
        [COMMON_WEIGHT * (1 + (key.split(":")[0] in DIRECT_EVIDENCE)) for key in keys]
        + [0.0] * len(stages)
        + [UNUSUAL_LOGIT]
    )
    weights = centre.copy()
    trials_per_kind = len(trials) / len(
        {(trial.corpus, trial.kind) for trial in trials}
    )  # trials of one kind are not independent
    for _ in range(steps):
        logits = features @ weights
        odds = np.exp(logits - logits.max(axis=1, keepdims=True)) * is_candidate
        inside = odds * is_right
        pull = inside / inside.sum(axis=1, keepdims=True) - odds / odds.sum(axis=1, keepdims=True)
        gradient = np.einsum("csf,cs->f", features, pull) / trials_per_kind - (weights - centre) / WEIGHT_DEVIATION**2
        weights += rate * gradient
        weights[: len(keys)] = np.maximum(weights[: len(keys)], 0.0)
    table = {key: round(float(weights[positions[key]]), 3) for key in keys}
    return StageWeights(
        temperature=1.0,
        common_weight=COMMON_WEIGHT,
        branch_logits=round(float(weights[positions["unusual"]]), 3),
        trials=0,
        first_accuracy=0.0,
        top_accuracy=0.0,
        prior_logits={stage: round(float(weights[positions[stage]]), 3) for stage in stages},
        weights=dict.fromkeys(DIRECT_EVIDENCE, 2 * COMMON_WEIGHT) | table,
    )


def compute_logits(trial: FaultTrial, table: StageWeights) -> np.ndarray:
    """Return the logits of the stages of a trial."""
    return np.array(list(score_stages(trial.usual, trial.others, trial.evidence, table).values()))


def score_new_kinds(trials: Sequence[FaultTrial]) -> list[tuple[FaultTrial, np.ndarray]]:
    """Score each trial by a model that did not see its kind of fault."""
    scored = []
    for kind in sorted({trial.kind for trial in trials}):
        table = fit([trial for trial in trials if trial.kind != kind], steps=150)
        scored += [(trial, compute_logits(trial, table)) for trial in trials if trial.kind == kind]
    return scored


def compute_log_likelihood(scored: Sequence[tuple[FaultTrial, np.ndarray]], temperature: float) -> float:
    """Return the mean log-likelihood of a right stage at a temperature, each trial's likelihood at least 0.001."""
    total = 0.0
    for trial, logits in scored:
        odds = np.exp((logits - logits.max()) / temperature)
        total += np.log(max(1e-3, odds[[stage in trial.right for stage in trial.stages]].sum() / odds.sum()))
    return total / len(scored)


def report(scored: Sequence[tuple[FaultTrial, np.ndarray]]) -> tuple[float, float]:
    """Print per kind of fault how often the right stage is first and among three; return both shares."""
    top_hits, top_three_hits = [], []
    by_kind: dict[str, list[tuple[bool, bool, str]]] = {}
    for trial, logits in scored:
        order = [trial.stages[i] for i in np.argsort(-logits, kind="stable")]
        case_hits = order[0] in trial.right, bool(trial.right & set(order[:3]))
        top_hits.append(case_hits[0])
        top_three_hits.append(case_hits[1])
        by_kind.setdefault(trial.kind, []).append((*case_hits, order[0]))
    for kind, hits in by_kind.items():
        wrong_guesses = sorted({guess for is_right, _, guess in hits if not is_right})
        print(
            f"{kind:22s} first {np.mean([h[0] for h in hits]):4.0%}  among three {np.mean([h[1] for h in hits]):4.0%}",
            wrong_guesses,
        )
    return float(np.mean(top_hits)), float(np.mean(top_three_hits))


def write_weights(table: StageWeights) -> None:
    """Write the weights as TOML."""
    lines = ["# Written by training/stages.py; do not edit.\n"]
    for name in ("temperature", "common_weight", "branch_logits", "trials", "first_accuracy", "top_accuracy"):
        lines.append(f"{name} = {getattr(table, name)}")
    for name, entries in (("prior_logits", table.prior_logits), ("weights", table.weights)):
        lines += ["", f"[{name}]", *(f'"{key}" = {value}' for key, value in sorted(entries.items()))]
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Run the trials, measure the model on held-out kinds, fit it on all kinds, and write the weights."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--size", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--strengths", nargs="+", choices=STRENGTHS, default=["medium"])
    options = parser.parse_args()
    corpora = [load_handbook_corpus()] + ([load_squad_corpus(options.data)] if options.data else [])
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.cache or Path(temporary)
        trials = [
            trial
            for corpus in corpora
            for trial in run_trials(corpus, folder, options.size, options.seeds, options.strengths)
        ]
        trials += run_shop_trials(folder, options.seeds)
    scored = score_new_kinds(trials)
    top, top_three = report(scored)
    temperature = max(np.arange(1.0, 5.0, 0.1), key=lambda value: compute_log_likelihood(scored, value))
    table = fit(trials)
    print(f"held out: first {top:.1%}, among three {top_three:.1%} of {len(scored)}; temperature {temperature:.1f}")
    write_weights(
        replace(
            table,
            temperature=round(float(temperature), 2),
            trials=len(scored),
            first_accuracy=round(top, 3),
            top_accuracy=round(top_three, 3),
        )
    )


if __name__ == "__main__":
    main()
