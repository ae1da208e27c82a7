"""Sameness: which parts cannot move a metric, because what the metric reads is the very same with either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragfault.isolation.memory import SIGHTLESS
from ragfault.isolation.parts import System
from ragfault.metrics import Metric
from ragfault.records import Trace

__all__ = ["sight", "still"]

READ = frozenset({"query", "chunks", "reference", "facts", "gold"})
"""The fields that an answer does not change."""


def sight(traces: Sequence[Trace]) -> tuple[int, ...]:
    """What was retrieved for every query, and what should have been, as hashes."""
    return tuple(
        hash(repr(([(chunk.id, chunk.text) for chunk in trace.chunks or ()], trace.gold))) for trace in traces
    )


def still(
    metrics: Sequence[Metric], baseline: System, candidate: System, sights: Mapping[int, tuple[int, ...]]
) -> list[list[int]]:
    """For each metric the parts that cannot move it.

    A part that is one and the same callable in both systems moves nothing. A part whose swap never changed a
    chunk moves no metric that reads query, chunks and answer key alone.
    """
    one = {at for at, name in enumerate(baseline) if baseline[name] is candidate[name]}
    blind = {at for at in range(len(baseline)) if _blind(at, sights)}
    return [sorted(one | (blind if _sightless(metric) else set())) for metric in metrics]


def _sightless(metric: Metric) -> bool:
    """Whether a metric reads nothing of the answer."""
    kind = metric.definition
    return (
        kind.layer == "retrieval"
        and READ.issuperset(kind.fields)
        and set(SIGHTLESS).issuperset(kind.verdicts)
    )


def _blind(part: int, sights: Mapping[int, tuple[int, ...]]) -> bool:
    """Whether swapping a part left the chunks of every query as they were, in all configurations run."""
    bit = 1 << part
    return all(sights[mask] == sights.get(mask | bit, sights[mask]) for mask in sights)
