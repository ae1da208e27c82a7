"""Repair of steps: an agent is run again with the outputs of one kind of step from another version or a reference."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.comparison.ablation.experiment_cache import CachedJudge
from ragfault.comparison.ablation.parts import strip_outputs
from ragfault.comparison.ablation.settings import RepairSettings
from ragfault.comparison.compare import default_margin
from ragfault.diagnosis.run_table import RunTable
from ragfault.diagnosis.steps.differences import list_kinds_in_order
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.agents.recorded_steps import RecordedSteps
from ragfault.io.runs.run import MetricInfo
from ragfault.judges.loading import load_judge
from ragfault.model.errors import InputError
from ragfault.model.protocols import Judge
from ragfault.model.records import StepKind, Trace
from ragfault.model.settings import accept_fields
from ragfault.stats.differences import paired_differences
from ragfault.stats.estimates import Difference
from ragfault.stats.significance import holm_adjust, sign_flip_tests
from ragfault.text.number_format import format_signed

Agent = Callable[[Trace, RecordedSteps], Trace]
"""An agent that can be run again: it takes a question and the steps that it is to take as recorded."""

MAX_COPIES = 128
"""Times as many questions as there are, beyond which no number is given."""
LEAST_SHARE = 0.5
"""Share of what was lost that the repair of a step must recover to name it."""
Values = NDArray[np.float64]


class StepRepair(Struct, frozen=True, kw_only=True):
    """Effect of the repair of one kind of step on one metric."""

    kind: StepKind
    metric: str
    difference: Difference
    """The metric with the repaired step less without it, on the same questions."""
    p: float
    """p-value of the sign-flip test of no effect."""
    adjusted: float
    """The same, corrected by Holm over kinds of steps and metrics."""
    share: float | None
    """Part of the loss that the repair recovers; None where no loss of the metric is shown."""
    is_recovered: bool
    """True where the effect is shown and recovers at least half of a loss that is shown."""


class StepRepairs(Struct, frozen=True, kw_only=True):
    """The kind of step whose repair recovers the answers of an agent."""

    sentence: str
    status: Literal["fault", "no fault", "cannot tell"]
    """no fault: the agent answered every question, and each interval excludes a loss beyond the margin."""
    faulty_kind: StepKind | None
    """The earliest kind of step whose repair recovers a metric, where no earlier one may; None: it cannot be told, or
    nothing was lost."""
    questions: int
    kinds: tuple[StepKind, ...]
    """The kinds of steps that were repaired, in the order in which they run."""
    losses: dict[str, Difference]
    """Metric → the agent as it is less the traces that the repairs are taken from."""
    repairs: tuple[StepRepair, ...]
    errors: dict[str, int] = {}
    """Kind of step, or "none" → questions on which the agent failed."""
    first_error: str = ""
    """The first error of the agent without a repair."""
    blank: int = 0
    """Questions that the agent without a repair left unanswered."""
    judge: str


@accept_fields(RepairSettings)
def repair_steps(
    agent: Agent, source: Iterable[Trace], questions: Iterable[Trace], settings: RepairSettings
) -> StepRepairs:
    """Run an agent again with the steps of each kind replaced by recorded ones, and name the kind that recovers it.

    `source` are traces whose steps are right: of another version, or references written by people. They pair with
    `questions` (traces of which the query, the answer key and the history are used) by id. Each kind of step with an
    output is replaced alone, and all after it is done anew. A step that comes after the faulty one carries the right
    result as well, so that the earliest kind whose repair recovers at least half of a loss is named, unless the
    interval of an earlier one leaves that open, too.

    A metric is compared question by question: sign-flip tests, corrected by Holm over kinds and metrics, intervals by
    conversation. Nothing was lost only where the agent answered every question and each interval excludes a loss of
    `margin` (a share of the metric's range) or more; about 140 questions show that where all values are alike. An agent
    that raises, or ends the process, fails that question. Raises InputError where no question pairs with a source that
    has steps, and UsageError for a confidence outside of 0 to 1 or a margin that is not above 0.

    >>> from ragfault.model.records import Step
    >>> source = [
    ...     Trace(id=name, query=name, reference=name, answer=name, steps=(Step(id="1", kind="rewrite", output=name),))
    ...     for name in "ABCDEFGH"
    ... ]
    >>> agent = lambda question, recorded: replace(question, answer=recorded.take("rewrite", lambda: "?"))
    >>> repair_steps(agent, source, source, metrics=["exact_match"], judge="none").faulty_kind
    'rewrite'
    """
    metrics, judge = settings.metrics, settings.judge
    sources, starts = _pair_sources(source, questions)
    kinds = [
        kind
        for kind in list_kinds_in_order(sources)
        if kind is not None and any(RecordedSteps(trace, kind).outputs for trace in sources)
    ]
    cached = CachedJudge(load_judge(judge) if isinstance(judge, str) else judge)
    names: tuple[StepKind | None, ...] = (None, *kinds)
    values: dict[str, Values] = {}
    errors: dict[str, int] = {}
    failed: list[str] = []
    blank = 0
    with tempfile.TemporaryDirectory() as folder:
        measures, values["source"], clusters = _score(sources, Path(folder) / "source", metrics, cached)
        for index, kind in enumerate(names):
            traces = [
                _run(agent, start, RecordedSteps(trace, kind)) for start, trace in zip(starts, sources, strict=True)
            ]
            if kind is None:
                failed = [trace.error for trace in traces if trace.error is not None]
                blank = sum(trace.error is None and not (trace.answer or "").strip() for trace in traces)
            _, values[kind or "none"], _ = _score(traces, Path(folder) / (kind or "none"), metrics, cached)
            errors[kind or "none"] = sum(trace.error is not None for trace in traces)
            settings.on_progress(index + 1, len(names))
    repairs = StepRepairs(
        sentence="",
        status="cannot tell",
        faulty_kind=None,
        questions=len(starts),
        kinds=tuple(kinds),
        losses={},
        repairs=(),
        errors={name: n for name, n in errors.items() if n},
        blank=blank,
        judge=cached.fingerprint,
        first_error=failed[0] if failed else "",
    )
    return _decide(repairs, values, measures, clusters, settings)


def _pair_sources(source: Iterable[Trace], questions: Iterable[Trace]) -> tuple[list[Trace], list[Trace]]:
    by_id = {trace.id: trace for trace in source if trace.steps}
    starts = [replace(strip_outputs(trace), steps=None) for trace in questions if trace.id in by_id]
    if not starts:
        raise InputError(
            f"no question has the id of one of the {len(by_id):,} traces with steps: the two are paired by their ids."
        )
    return [by_id[start.id] for start in starts], starts


def _run(agent: Agent, start: Trace, recorded: RecordedSteps) -> Trace:
    try:
        result = agent(start, recorded)
        if not isinstance(result, Trace):
            raise TypeError(f"it returned {type(result).__name__}, not a Trace")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an error of user code fails one question, not the experiment
        return replace(start, error=f"{type(error).__name__}: {error}")
    return replace(result, id=start.id, query=start.query)


def _score(
    traces: Sequence[Trace], path: Path, metrics: Sequence[str], judge: Judge
) -> tuple[tuple[MetricInfo, ...], Values, Any]:
    matrix = RunTable(evaluate(traces, path, judge=judge, metrics=list(metrics)))
    return matrix.measures, np.array(matrix.values, float), matrix.clusters


def _decide(
    start: StepRepairs,
    values: dict[str, Values],
    measures: Sequence[MetricInfo],
    clusters: Any,
    settings: RepairSettings,
) -> StepRepairs:
    """Test every kind of step on every metric, and name the earliest one that recovers a loss."""
    confidence, margin, seed = settings.confidence, settings.margin, settings.seed
    kinds = start.kinds
    losses = _compare(values["source"], values["none"], measures, clusters, confidence, seed)
    effects = [(kind, _compare(values["none"], values[kind], measures, clusters, confidence, seed)) for kind in kinds]
    adjusted = iter(holm_adjust([test[1] for _, tests in effects for test in tests if test is not None]))
    repairs = []
    for kind, tests in effects:
        for measure, loss, test in zip(measures, losses, tests, strict=True):
            if test is None:
                continue
            p, sign = next(adjusted), _sign(measure)
            is_lost = loss is not None and _is_shown(loss, measure, confidence)
            share = -test[0].mean / loss[0].mean if loss is not None and is_lost else None
            recovers = share is not None and share >= LEAST_SHARE and p <= 1 - confidence and sign * test[0].mean > 0
            repairs.append(
                StepRepair(
                    kind=kind,
                    metric=measure.name,
                    difference=test[0],
                    p=test[1],
                    adjusted=p,
                    share=share,
                    is_recovered=recovers,
                )
            )
    best = next((repair for repair in repairs if repair.is_recovered), None)
    doubtful = _list_doubtful(best, repairs, measures, losses) if best else []
    pairs = list(zip(measures, losses, strict=True))
    shown_losses = {m.name: loss[0] for m, loss in pairs if loss is not None and _is_shown(loss, m, confidence)}
    faulty = best.kind if best and not doubtful else None
    result = replace(
        start,
        faulty_kind=faulty,
        repairs=tuple(repairs),
        status="fault" if faulty else "cannot tell",
        losses={measure.name: loss[0] for measure, loss in pairs if loss is not None},
    )
    if shown_losses and result.errors.get("none", 0) + result.blank < result.questions:
        return replace(result, sentence=_describe(best, kinds, shown_losses, doubtful))
    means = np.array(
        [np.mean(column[np.isfinite(column)] if np.isfinite(column).any() else 0.0) for column in values["source"].T]
    )
    margins = [default_margin(measure, mean, margin) for measure, mean in zip(measures, means, strict=True)]

    def count_needed(index: int) -> int | None:
        both = values["source"][:, [index]], values["none"][:, [index]]
        return _count_needed(*both, measures[index], clusters, margins[index], (confidence, seed))

    reason = _explain_doubt(result, pairs, margins, count_needed)
    if reason:
        return replace(result, sentence=f"cannot tell: {reason}")
    sentence = "no loss is shown between the source and the agent: there is nothing to repair"
    return replace(result, sentence=sentence, status="no fault")


def _sign(measure: MetricInfo) -> int:
    return 1 if measure.better == "higher" else -1


def _is_shown(loss: tuple[Difference, float], measure: MetricInfo, confidence: float) -> bool:
    return loss[1] <= 1 - confidence and _sign(measure) * loss[0].mean < 0


def _explain_doubt(
    result: StepRepairs,
    pairs: Sequence[tuple[MetricInfo, tuple[Difference, float] | None]],
    margins: Sequence[float],
    count_needed: Callable[[int], int | None],
) -> str:
    """Say why it cannot be told that nothing was lost; "" where each metric shows it."""
    if failed := result.errors.get("none", 0):
        return f"the agent failed on {failed} of {result.questions} questions, first with {result.first_error}"
    if result.blank:
        return f"the agent gave no answer to {result.blank} of {result.questions} questions"
    if not result.losses:
        return "no metric has a value for the answers of both the source and the agent"
    for index, ((measure, loss), margin) in enumerate(zip(pairs, margins, strict=True)):
        if loss is not None and not _excludes_loss(loss[0], measure, margin):
            needed = count_needed(index)
            more = "" if needed is None else f"; about {needed:,} questions like these would exclude it"
            return f"{measure.name} may have lost more than {margin:.2g} on {loss[0].n} questions{more}"
    return ""


def _excludes_loss(loss: Difference, measure: MetricInfo, margin: float) -> bool:
    return loss.clusters >= 2 and min(_sign(measure) * end for end in (loss.low, loss.high)) >= -margin


def _count_needed(
    before: Values, after: Values, measure: MetricInfo, clusters: Any, margin: float, terms: tuple[float, int]
) -> int | None:
    """Count the questions that would exclude a loss of the margin if all were like these; None: not by MAX_COPIES."""
    labels = np.arange(len(before)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    size = int((np.isfinite(before) & np.isfinite(after)).sum())
    confidence, seed = terms

    def excludes(copies: int) -> bool:
        several = np.concatenate([labels + copy * len(labels) for copy in range(copies)])
        old, new = np.tile(before, (copies, 1)), np.tile(after, (copies, 1))
        [loss] = _compute_losses(old, new, [measure], several, confidence, seed)
        return loss is not None and _excludes_loss(loss, measure, margin)

    upper = 2
    while not excludes(upper):
        upper *= 2
        if upper > MAX_COPIES:
            return None
    return size * next(copies for copies in range(upper // 2 + 1, upper + 1) if copies == upper or excludes(copies))


def _compare(
    before: Values, after: Values, measures: Sequence[MetricInfo], clusters: Any, confidence: float, seed: int
) -> list[tuple[Difference, float] | None]:
    """Return for each metric the paired difference and its p-value; None without a pair."""
    differences = _compute_losses(before, after, measures, clusters, confidence, seed)
    defined = np.isfinite(before) & np.isfinite(after)
    old, new = (np.where(defined, values, 0.0) for values in (before, after))
    tests = sign_flip_tests(old, new, clusters, defined=defined, seed=seed)
    return [
        None if difference is None or test is None else (difference, test.p)
        for difference, test in zip(differences, tests, strict=True)
    ]


def _compute_losses(
    before: Values, after: Values, measures: Sequence[MetricInfo], clusters: Any, confidence: float, seed: int
) -> tuple[Difference | None, ...]:
    defined = np.isfinite(before) & np.isfinite(after)
    old, new = (np.where(defined, values, 0.0) for values in (before, after))
    bounds = [(-math.inf if m.low is None else m.low, math.inf if m.high is None else m.high) for m in measures]
    return paired_differences(old, new, clusters, defined=defined, bounds=bounds, confidence=confidence, seed=seed)


def _list_doubtful(
    best: StepRepair,
    repairs: Sequence[StepRepair],
    measures: Sequence[MetricInfo],
    losses: Sequence[tuple[Difference, float] | None],
) -> list[StepKind]:
    """List the kinds before the best one whose repair may recover half of the loss as well, by its interval."""
    measure, loss = next(
        (m, loss[0]) for m, loss in zip(measures, losses, strict=True) if loss is not None and m.name == best.metric
    )
    rivals: list[StepKind] = []
    for repair in repairs:
        if repair is best:
            return rivals
        best_case = repair.difference.high if measure.better == "higher" else -repair.difference.low
        if repair.metric == best.metric and LEAST_SHARE * abs(loss.mean) <= best_case < math.inf:
            rivals.append(repair.kind)
    return rivals


def _describe(
    best: StepRepair | None, kinds: Sequence[StepKind], lost: dict[str, Difference], doubtful: Sequence[StepKind]
) -> str:
    if best is None or best.share is None:
        return f"cannot tell: no repair of one kind of step is shown to recover half of what {', '.join(lost)} lost"
    before = kinds[: kinds.index(best.kind)]
    if doubtful:
        return (
            f"cannot tell whether {best.kind} steps broke, or {' or '.join(doubtful)} steps before them: the repair of "
            f"either may recover half of what {best.metric} lost"
        )
    rest = f"; the repair of what runs before ({', '.join(before)}) does not" if before else ""
    gain, loss = best.difference.mean, lost[best.metric].mean
    recovered = f"{best.metric} recovers {format_signed(gain)} of {format_signed(loss)}"
    return f"{best.kind} steps broke: with those of the source {recovered}{rest}"
