"""Decisions of the guard: their record, and their way into span events and traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.guard.rails import Outcome, RailResult, Stage
from ragfault.io.otel.guard_events import GUARD_EVENT, MAX_DECISIONS, add_span_event, to_guard_attributes
from ragfault.model.records import Trace

GUARD_FIELD = "guard_decisions"
"""Key of the metadata of a trace that holds its decisions, in the order in which they were made."""
MAX_RESULTS = 100
"""Results of rails that a recorded decision keeps."""
MAX_REASON = 300
"""Characters of a recorded reason."""
SEVERITIES: tuple[Outcome, ...] = ("pass", "flag", "fix", "block")
"""Outcomes, the least severe first."""
SHOWN_ACTIONS = ("mark", "disclaim")
"""Actions that show a blocked answer with a warning."""


class GuardDecision(Struct, frozen=True, kw_only=True):
    """Decision on one request: what the user gets, why, and whether a promise covers it."""

    trace: str
    route: str | None = None
    outcome: Outcome
    """pass and flag: the answer as it is; fix: as fixed; block: the policy's message."""
    stage: Stage | None = None
    """Stage that blocked."""
    text: str | None = None
    """What the user gets; None: no answer was asked about."""
    reason: str = ""
    risk: float | None = None
    threshold: float | None = None
    promised: bool = False
    """The certificate covers this answer."""
    withdrawn: str = ""
    """Input for which the promise was withdrawn."""
    action: str = ""
    """Action that ended the request after the decision: "mark", "ask" …; empty: none."""
    answer: str | None = None
    """Fingerprint of the answer as it was generated, as labels name it; None: there was none yet."""
    results: tuple[RailResult, ...] = ()
    latency: float = 0.0
    """Milliseconds."""

    @property
    def failures(self) -> int:
        """Return the number of rails that failed, open or closed."""
        return sum(result.failed for result in self.results)

    @property
    def abstained(self) -> bool:
        """Return whether the user got the policy's words in place of an answer."""
        return self.outcome == "block" and self.action not in SHOWN_ACTIONS


DecisionSink = Callable[[GuardDecision], object]


def merge_results(results: Iterable[RailResult]) -> tuple[RailResult, ...]:
    """Merge the results of each rail at each stage: the most severe one, with the latencies of all.

    Rails look again after a fix, and at each sentence of a stream.

    >>> one = RailResult(rail="secrets", stage="output", outcome="fix", latency=1.0)
    >>> [(result.outcome, result.latency) for result in merge_results([one, replace(one, outcome="pass")])]
    [('fix', 2.0)]
    """
    merged: dict[tuple[str, str], RailResult] = {}
    for result in results:
        merged_result = merged.get((result.rail, result.stage))
        if merged_result is None:
            merged[result.rail, result.stage] = result
            continue
        worst = max(merged_result, result, key=lambda item: (SEVERITIES.index(item.outcome), item.failed))
        merged[result.rail, result.stage] = replace(
            worst, latency=merged_result.latency + result.latency, failed=merged_result.failed or result.failed
        )
    return tuple(merged.values())


def describe_decision(decision: GuardDecision) -> dict[str, Any]:
    """Describe a decision as traces hold it: without texts of the answer and inputs, defaults left out."""
    results = [
        replace(result, reason=result.reason[:MAX_REASON], inputs=None, weight=1.0, latency=round(result.latency, 3))
        for result in merge_results(decision.results)
    ]
    fields: dict[str, Any] = msgspec.to_builtins(
        replace(
            decision, text=None, reason=decision.reason[:MAX_REASON], results=(), latency=round(decision.latency, 3)
        )
    )
    fields = _drop_defaults(fields)
    if results:
        fields["results"] = [_drop_defaults(msgspec.to_builtins(result)) for result in results[:MAX_RESULTS]]
    return fields


def _drop_defaults(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in fields.items()
        if value is not None and value is not False and value not in ("", [], ()) and name != "weight"
    }


def attach_decisions(trace: Trace, decisions: Sequence[GuardDecision]) -> Trace:
    """Return a trace with decisions on it in `metadata["guard_decisions"]`, as those of spans are read.

    >>> decided = attach_decisions(Trace(id="1", query="When?"), [GuardDecision(trace="1", outcome="flag")])
    >>> decided.metadata, read_decisions(decided)[0].outcome
    ({'guard_decisions': [{'trace': '1', 'outcome': 'flag', 'latency': 0.0}]}, 'flag')
    """
    earlier = trace.metadata.get(GUARD_FIELD)
    records = [*(earlier if isinstance(earlier, list) else ()), *map(describe_decision, decisions)]
    return replace(trace, metadata={**trace.metadata, GUARD_FIELD: records[-MAX_DECISIONS:]})


def read_decisions(trace: Trace) -> tuple[GuardDecision, ...]:
    """Read the decisions on a trace, in the order in which they were made; those that are no decision are left out."""
    records = trace.metadata.get(GUARD_FIELD)
    return parse_decisions(records[:MAX_DECISIONS]) if isinstance(records, list) else ()


def parse_decisions(records: Sequence[Any]) -> tuple[GuardDecision, ...]:
    """Parse the decisions that a trace holds."""
    decisions = []
    for record in records:
        try:
            decisions.append(msgspec.convert(record, GuardDecision))
        except msgspec.ValidationError:
            continue
    return tuple(decisions)


def emit_decision(decision: GuardDecision) -> bool:
    """Add a decision to the active span of OpenTelemetry as an event; return whether there is one that records."""
    return add_span_event(GUARD_EVENT, to_guard_attributes(describe_decision(decision)))
