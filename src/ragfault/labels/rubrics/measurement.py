"""Measurement of the rubrics of a run: agreement with labels beyond chance, and consistency over repetitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragfault.io.runs.copies import group_trace
from ragfault.io.runs.run import AnyRun, open_run
from ragfault.labels.agreement import estimate_agreement
from ragfault.labels.consensus import settle_rubrics
from ragfault.labels.judges.flakiness import JudgeFlakiness
from ragfault.labels.label import Label
from ragfault.labels.rubrics.proofs import RubricMeasurement, RubricProof
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import RubricVerdict
from ragfault.model.rubrics import METRIC_NAME
from ragfault.stats.bootstrap import Resampling


def measure_rubrics(
    source: AnyRun, labels: Sequence[Label], *, flakiness: JudgeFlakiness | None = None, seed: int = 0
) -> RubricMeasurement:
    """Measure each labelled rubric of a run against labels, and by `judge repeat` against itself.

    Kappa is Cohen's, linear where there are more than two values; traces of one conversation are resampled together.
    Raises InputError where no label meets a verdict, UsageError where the flakiness is that of another judge.
    """
    run = open_run(source)
    judge = run.manifest.judge
    if flakiness is not None and flakiness.judge != judge:
        raise UsageError(
            f"the flakiness was measured for {flakiness.judge}, and the run was judged by {judge}: a rubric that was "
            "changed is another one. Repeat it: ragfault judge repeat TRACES --judge llm:MODEL --rubrics FILE -o FILE"
        )
    verdicts: dict[str, dict[str, RubricVerdict]] = {}
    groups: dict[str, str] = {}
    for trace, observed in zip(run.traces(), run.verdicts(), strict=True):
        groups[trace.id] = group_trace(trace)
        for item in observed.rubric or ():
            verdicts.setdefault(item.rubric, {})[trace.id] = item
    if not verdicts:
        raise InputError(f"{run.path} has no rubric verdicts. Evaluate with: --judge llm:MODEL --rubrics FILE")
    settled = settle_rubrics(labels, next(iter(verdicts)) if len(verdicts) == 1 else None)
    if unknown := next((name for name in settled if name not in verdicts), None):
        raise InputError(f'the labels name the rubric "{unknown}", and the run has: {", ".join(verdicts)}.')
    proofs = [_prove_rubric(judge, verdicts[name], values, groups, flakiness, seed) for name, values in settled.items()]
    return RubricMeasurement(judge=judge, proofs=tuple(proofs))


def _prove_rubric(
    judge: str,
    verdicts: Mapping[str, RubricVerdict],
    labels: Mapping[str, float],
    groups: Mapping[str, str],
    flakiness: JudgeFlakiness | None,
    seed: int,
) -> RubricProof:
    common = [trace for trace in labels if trace in verdicts]
    first = next(iter(verdicts.values()))
    if not common:
        raise InputError(f'no label by the rubric "{first.rubric}" is of a trace that the run has a verdict on.')
    pairs = [(labels[trace], verdicts[trace].value) for trace in common]
    values = sorted({value for pair in pairs for value in pair})
    clusters = [groups[trace] for trace in common]
    agreement = estimate_agreement(pairs, values, clusters, ranked=True, resampling=Resampling(seed=seed))
    assert agreement.kappa is not None
    metric = f"{METRIC_NAME}(name={first.rubric})"
    repeats = next((item for item in flakiness.metrics if item.metric == metric), None) if flakiness else None
    return RubricProof(
        rubric=first.rubric,
        version=first.version,
        judge=judge,
        labelled=len(common),
        unlabelled=len(labels) - len(common),
        agreement=agreement.equal,
        kappa=agreement.kappa,
        repeated=repeats.n if repeats else 0,
        consistency=1 - repeats.flips if repeats else None,
    )
