"""Whether answers are right: by the one decision of `evaluate`, on the judge and the gold of the run."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ragfault.diagnosis.causes.rating import rate_answer
from ragfault.diagnosis.causes.records import AnswerOutcome
from ragfault.diagnosis.diagnosis import diagnose_trace
from ragfault.io.runs.run import Manifest
from ragfault.judges.assembly import observe_traces
from ragfault.judges.loading import DEFAULT_JUDGE, JUDGES, load_judge
from ragfault.model.errors import UsageError
from ragfault.model.gold_evidence import apply_gold
from ragfault.model.protocols import Judge
from ragfault.model.records import GoldMode, Trace

BATCH = 64
"""Answers that the judge sees at once."""


def load_run_judge(manifest: Manifest, name: str | None) -> Judge:
    """Load the judge that is named, else that of the run.

    Raises UsageError where that of the run is paid, or is not here.
    """
    if name is not None:
        return load_judge(name)
    own = manifest.judge.partition("/")[0]
    if own in JUDGES:
        return load_judge(own)
    raise UsageError(
        f"the run was judged by {manifest.judge}, which is used again only where it is named: --judge llm:MODEL, "
        f"or --judge {DEFAULT_JUDGE}"
    )


class AnswerRater:
    """Rates answers as `evaluate` does; the same answer to the same chunks is judged once."""

    def __init__(self, judge: Judge, gold: GoldMode) -> None:
        self.judge, self._gold = judge, gold
        self._known: dict[tuple[object, ...], AnswerOutcome] = {}

    def rate(self, traces: Sequence[Trace]) -> list[AnswerOutcome]:
        """Rate the answers of traces: right, bad or unsure."""
        keys = [_make_key(trace) for trace in traces]
        new = {key: trace for key, trace in zip(keys, traces, strict=True) if key not in self._known}
        waiting = list(new.items())
        for start in range(0, len(waiting), BATCH):
            batch = waiting[start : start + BATCH]
            # One trace has several answers, and a judge names its verdicts by the trace.
            asked = [replace(trace, id=str(number)) for number, (_, trace) in enumerate(batch)]
            for (key, trace), verdicts in zip(batch, observe_traces(self.judge, asked), strict=True):
                own = replace(verdicts, trace=trace.id)
                seen = apply_gold(trace, own) if self._gold == "apply" else own
                self._known[key] = rate_answer(trace, seen, diagnose_trace(trace, seen)).outcome
        return [self._known[key] for key in keys]

    def learn(self, trace: Trace, outcome: AnswerOutcome) -> None:
        """Take over the outcome of a recorded answer, which may rest on labels of people."""
        self._known[_make_key(trace)] = outcome


def _make_key(trace: Trace) -> tuple[object, ...]:
    chunks = tuple((chunk.id, chunk.text) for chunk in trace.chunks or ())
    return trace.id, " ".join((trace.answer or "").split()), chunks
