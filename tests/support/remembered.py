"""The lexical judge, asked once in a process about each trace: many tests judge the same traces of the demo."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ragfault.judges.loading import load_judge
from ragfault.model.protocols import Judge
from ragfault.model.records import Trace, Verdicts


class RememberingJudge:
    """A judge that gives the verdicts of another one, which depend on the trace and on nothing else."""

    def __init__(self, judge: Judge) -> None:
        self.fingerprint, self.offers = judge.fingerprint, judge.offers
        self._judge = judge
        self._verdicts: dict[bytes, Verdicts] = {}

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        keys = [msgspec.msgpack.encode(trace) for trace in traces]
        new = {key: trace for key, trace in zip(keys, traces, strict=True) if key not in self._verdicts}
        self._verdicts.update(zip(new, self._judge.observe(list(new.values())), strict=True))
        return [self._verdicts[key] for key in keys]


LEXICAL = RememberingJudge(load_judge("lexical"))
