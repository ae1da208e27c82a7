"""A judge with a memory: what was judged in one configuration is not judged again in another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from ragfault.evaluation import observe
from ragfault.ports import Judge, Part
from ragfault.records import Trace, Verdicts
from ragfault.runs import Run

__all__ = ["Remembering"]

SIGHTLESS: tuple[Part, ...] = ("chunk", "missing", "recall")
"""The kinds of verdict that are made without sight of the answer."""


class Remembering:
    """A judge that asks another one, once for each query, chunks and answer.

    Verdicts on the chunks are made without sight of the answer, so those on the same query and chunks are
    kept across answers: a judge that is noisy adds no noise to what a generator cannot change. A verdict
    that was lost to a failure is not kept.
    """

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self._whole: dict[bytes, Verdicts] = {}
        self._chunks: dict[bytes, Verdicts] = {}

    @property
    def offers(self) -> frozenset[Part]:
        """What the judge that is asked offers."""
        return self.judge.offers

    @property
    def fingerprint(self) -> str:
        """That of the judge that is asked."""
        return self.judge.fingerprint

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """The verdicts on each trace: remembered, or asked for."""
        found = [self._whole.get(_key(trace)) for trace in traces]
        new = [trace for trace, seen in zip(traces, found, strict=True) if seen is None]
        asked = iter(observe(self.judge, new)) if new else iter(())
        return [
            self._learned(trace, next(asked)) if seen is None else seen
            for trace, seen in zip(traces, found, strict=True)
        ]

    def learn(self, run: Run) -> None:
        """Take in the verdicts of a run."""
        for trace, seen in zip(run.traces(), run.verdicts(), strict=True):
            self._learned(trace, seen)

    def _learned(self, trace: Trace, seen: Verdicts) -> Verdicts:
        """The verdicts with those on the chunks that are known already, taken into memory."""
        known = self._chunks.get(_key(trace, answered=False))
        if known is not None:
            parts = {part: getattr(known, part) for part in SIGHTLESS}
            lost = {name: why for name, why in seen.failures.items() if parts.get(name) is None}  # type: ignore[call-overload]
            seen = replace(seen, **{n: v for n, v in parts.items() if v is not None}, failures=lost)
        if not seen.failures:
            self._chunks.setdefault(_key(trace, answered=False), seen)
            self._whole.setdefault(_key(trace), seen)
        return seen


def _key(trace: Trace, *, answered: bool = True) -> bytes:
    """What the verdicts on a trace are made from, as a hash; without the answer, what those on its chunks are."""
    chunks = trace.chunks and [(chunk.id, chunk.text, chunk.kind, chunk.document) for chunk in trace.chunks]
    parts: list[object] = [trace.id, trace.query, chunks, trace.reference, trace.facts, trace.gold]
    if answered:
        parts += [trace.answer, _plain(trace.citations)]
    coded = msgspec.msgpack.encode(parts, order="deterministic")
    return blake2b(coded, digest_size=16).digest()


def _plain(items: Iterable[msgspec.Struct] | None) -> list[tuple[object, ...]] | None:
    return None if items is None else [msgspec.structs.astuple(item) for item in items]
