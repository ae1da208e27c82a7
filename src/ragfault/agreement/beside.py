"""Two judges on the same traces: how far their verdicts agree, what metrics come to by each, where they differ most."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from msgspec import Struct

from ragfault.agreement.figures import Terms
from ragfault.agreement.gathering import Where, rank
from ragfault.agreement.judging import judged
from ragfault.agreement.records import Speed
from ragfault.agreement.scores import METRICS, compared
from ragfault.agreement.verdicts import ORDER, Both, Kind, both
from ragfault.errors import InputError, UsageError
from ragfault.judges import load_judge
from ragfault.metrics import parse, score
from ragfault.ports import Judge
from ragfault.records import Layer, Trace, Verdicts
from ragfault.runs import Run
from ragfault.sources import read_traces
from ragfault.stats import Difference, Estimate, Interval, bootstrap
from ragfault.stats.agreement import Crossed
from ragfault.stats.groups import Floats

__all__ = ["JudgesCompared", "KindAgreement", "MetricPair", "Split", "compare_judges", "compare_runs"]

SPLITS = 20
"""So many items on which the judges differ are named."""


class KindAgreement(Struct, frozen=True, kw_only=True):
    """How far two judges agree on verdicts of one kind."""

    kind: Kind
    n: int
    """Items on which both have a word."""
    alone: tuple[int, int]
    """Items on which only the first, or only the second, has one."""
    accuracy: Estimate
    kappa: Estimate
    """Cohen's; linear in the levels of relevance. None where both always say the same one word."""
    alpha: Estimate
    """Krippendorff's; ordinal for the levels of relevance."""


class MetricPair(Struct, frozen=True, kw_only=True):
    """What a metric comes to by each of two judges, on the same traces."""

    metric: str
    layer: Layer
    n: int
    """Traces on which both have a value."""
    means: tuple[Interval, Interval]
    difference: Difference
    """The mean of the second less that of the first."""
    correlation: Estimate


class Split(Struct, frozen=True, kw_only=True):
    """An item on which two judges differ."""

    trace: str
    query: str
    kind: Kind
    item: str
    words: tuple[Any, Any]
    reasons: tuple[str | None, str | None]
    gap: float


class JudgesCompared(Struct, frozen=True, kw_only=True):
    """Two judges on the same traces."""

    judges: tuple[str, str]
    """Their fingerprints."""
    traces: int
    kinds: tuple[KindAgreement, ...]
    metrics: tuple[MetricPair, ...]
    splits: tuple[Split, ...]
    """Where they differ most, the furthest apart of each kind first, the kinds in turn."""
    differ: int
    """Items on which they differ in all."""
    failed: tuple[int, int]
    """Traces on which each lost something."""
    speeds: tuple[Speed | None, Speed | None] = (None, None)
    """What the judging cost; None for verdicts of a run."""
    seed: int = 0


def _quiet(*_: object) -> None:
    """Tell nobody."""


def compare_judges(  # noqa: PLR0913 - the options of one verb
    one: str | Judge,
    other: str | Judge,
    traces: Where | Iterable[Trace],
    *,
    options: tuple[dict[str, Any], dict[str, Any]] = ({}, {}),
    limit: int | None = None,
    workers: int = 1,
    resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[int, int], None] = _quiet,
    **reading: Any,
) -> JudgesCompared:
    """Have two judges look at the same traces, and say how far they agree.

    Each is a name (made with its `options`) or an object of the port's shape; `traces` and `reading` are what
    `read_traces` takes; with a `limit` so many are drawn at random. Intervals are over conversations, else over traces.
    What two named judges spend together counts against the budget of each.

    Raises InputError where there is no trace.

    >>> from ragfault import Chunk
    >>> chunk = Chunk(id="a", text="The office opens at 7:30.")
    >>> trace = Trace(id="1", query="When does it open?", chunks=(chunk,), answer="It opens at 7:30.")
    >>> found = compare_judges("lexical", "embedded", [trace])
    >>> [(kind.kind, kind.n) for kind in found.kinds]
    [('chunk', 1), ('use', 1), ('claim', 1), ('refusal', 1)]
    """
    named = isinstance(traces, str | Path) or (
        isinstance(traces, Sequence)
        and len(traces) > 0
        and all(isinstance(each, str | Path) for each in traces)
    )
    found = list(read_traces(cast(Where, traces), **reading) if named else cast("Iterable[Trace]", traces))
    if not found:
        raise InputError("there is no trace to compare judges on.")
    if limit is not None:
        kept = set(sorted((trace.id for trace in found), key=lambda name: rank(name, seed))[:limit])
        found = [trace for trace in found if trace.id in kept]
    made = [
        load_judge(each, **given) if isinstance(each, str) else each
        for each, given in zip((one, other), options, strict=True)
    ]
    purse = f"compare {uuid.uuid4().hex}"
    seen = [
        judged(judge, found, workers, progress, purse if isinstance(each, str) else None)
        for judge, each in zip(made, (one, other), strict=True)
    ]
    prints = (made[0].fingerprint, made[1].fingerprint)
    terms = Terms(resamples, seed)
    return _made(found, (seen[0][0], seen[1][0]), prints, (seen[0][1], seen[1][1]), terms)


def compare_runs(one: Run, other: Run, *, resamples: int = 1000, seed: int = 0) -> JudgesCompared:
    """The same of two runs that are there: on the traces of one id whose chunks and answer are the same in both.

    Raises UsageError where they share no such trace.
    """
    there = {trace.id: trace for trace in other.traces()}
    found = [trace for trace in one.traces() if trace.id in there and _alike(trace, there[trace.id])]
    if not found:
        raise UsageError(
            f"{one.path} and {other.path} share no trace with the same chunks and answer: their judges looked at "
            "different things. Judge the traces of one again: ragfault evaluate TRACES --judge …"
        )
    seen = [{each.trace: each for each in run.verdicts([t.id for t in found])} for run in (one, other)]
    verdicts = [[side[trace.id] for trace in found] for side in seen]
    prints = (one.manifest.judge, other.manifest.judge)
    return _made(found, (verdicts[0], verdicts[1]), prints, (None, None), Terms(resamples, seed))


def _alike(one: Trace, two: Trace) -> bool:
    """Whether two traces show a judge the same."""
    chunks = [[(chunk.id, chunk.text) for chunk in each.chunks or ()] for each in (one, two)]
    return one.answer == two.answer and one.query == two.query and chunks[0] == chunks[1]


def _made(
    traces: Sequence[Trace],
    seen: tuple[Sequence[Verdicts], Sequence[Verdicts]],
    prints: tuple[str, str],
    speeds: tuple[Speed | None, Speed | None],
    terms: Terms,
) -> JudgesCompared:
    groups = [trace.conversation or f"={trace.id}" for trace in traces]
    items = [
        each
        for place, (trace, one, other) in enumerate(zip(traces, *seen, strict=True))
        for each in both(place, trace, one, other)
    ]
    differ = _differ(items, traces)
    kinds = [(kind, [each for each in items if each.kind == kind]) for kind in ORDER]
    return JudgesCompared(
        judges=prints,
        traces=len(traces),
        kinds=tuple(_kind(kind, found, seen, groups, terms) for kind, found in kinds if found),
        metrics=_metrics(traces, seen, groups, terms),
        splits=tuple(_split(traces[each.trace], each) for each in differ[:SPLITS]),
        differ=len(differ),
        failed=(sum(bool(each.failures) for each in seen[0]), sum(bool(each.failures) for each in seen[1])),
        speeds=speeds,
        seed=terms.seed,
    )


def _differ(items: Sequence[Both], traces: Sequence[Trace]) -> list[Both]:
    """Items on which the judges differ, the furthest apart of each kind first, the kinds in turn."""
    found = [each for each in items if each.words[0] != each.words[1]]
    found.sort(key=lambda each: (-each.gap, traces[each.trace].id))
    turns: Counter[Kind] = Counter()
    placed = []
    for each in found:
        placed.append((turns[each.kind], each))
        turns[each.kind] += 1
    return [each for _, each in sorted(placed, key=lambda pair: pair[0])]


def _split(trace: Trace, each: Both) -> Split:
    return Split(
        trace=trace.id,
        query=trace.query,
        kind=each.kind,
        item=each.item,
        words=each.words,
        reasons=each.reasons,
        gap=each.gap,
    )


def _kind(
    kind: Kind,
    found: Sequence[Both],
    seen: tuple[Sequence[Verdicts], Sequence[Verdicts]],
    groups: Sequence[str],
    terms: Terms,
) -> KindAgreement:
    """Accuracy, kappa and alpha of one kind of verdict."""
    ranked = kind == "chunk"
    crossed = Crossed([each.words[0] for each in found], [each.words[1] for each in found], ORDER[kind])

    def statistic(weights: Floats) -> Floats:
        tables = crossed.tables(weights)
        kappa = crossed.kappa(tables, "linear" if ranked else "none")
        alpha = crossed.alpha(tables, "ordinal" if ranked else "nominal")
        return np.stack([crossed.accuracy(tables), kappa, alpha], axis=1)

    names = [groups[each.trace] for each in found]
    accuracy, kappa, alpha = bootstrap(statistic, names, resamples=terms.resamples, seed=terms.seed)
    part = "answer" if kind == "refusal" else kind
    counts = [sum(_count(getattr(each, part)) for each in side) - len(found) for side in seen]
    alone = (counts[0], counts[1])
    return KindAgreement(kind=kind, n=len(found), alone=alone, accuracy=accuracy, kappa=kappa, alpha=alpha)


def _count(held: Any) -> int:
    return len(held) if isinstance(held, tuple) else int(held is not None)


def _metrics(
    traces: Sequence[Trace],
    seen: tuple[Sequence[Verdicts], Sequence[Verdicts]],
    groups: Sequence[str],
    terms: Terms,
) -> tuple[MetricPair, ...]:
    """Every metric that rests on verdicts, on the traces that both judges score."""
    found = []
    for metric in map(parse, METRICS[1:]):
        if not metric.definition.verdicts:
            continue
        rows, names = [], []
        for trace, group, *pair in zip(traces, groups, *seen, strict=True):
            values = [score(metric, trace, each).value for each in pair]
            if None not in values:
                rows.append(values[::-1])
                names.append(group)
        if rows:
            told = compared(metric, np.array(rows, np.float64), names, terms)
            found.append(
                MetricPair(
                    metric=told.metric,
                    layer=told.layer,
                    n=told.n,
                    means=(told.people, told.judge),
                    difference=told.difference,
                    correlation=told.correlation,
                )
            )
    return tuple(found)
