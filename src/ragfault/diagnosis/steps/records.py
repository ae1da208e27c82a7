"""Records of faulty steps."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ragfault.model.records import Layer, StepKind

FaultyStepKind = Literal[
    "call_not_executed",
    "tool_failed",
    "step_failed",
    "repeated_call",
    "nothing_new",
    "off_target",
    "unfounded_answer",
    "unsupported_answer",
    "refused_answer",
    "unsupported_statement",
    "unexplained",
]
"""The kind of a step's fault, as its evidence shows it."""


StepStatus = Literal["fault", "no fault", "cannot tell"]
"""What can be told of the steps of a trace."""


class StepSuspect(Struct, frozen=True, kw_only=True):
    """A step that may be the first faulty one."""

    step: str
    """The id of the step in its trace."""
    layer: Layer
    kind: StepKind | None = None
    """The kind of the step."""
    fault: FaultyStepKind = "unexplained"
    evidence: tuple[str, ...] = ()
    """What was seen, in sentences."""
    agent: str | None = None


class FaultyStep(Struct, frozen=True, kw_only=True):
    """The first faulty step of one trace, or that there is none, or that it cannot be told."""

    trace: str
    status: StepStatus
    """"fault": the answer is known or taken to be wrong, or a step failed; "no fault": it is taken to be right."""
    outcome: Literal["unknown", "right", "differs", "failed", "compared"]
    """What is known of the answer: that it states a reference, that it states none, that the trace failed, or how many
    other runs of the question give the same answer."""
    same_answers: int = 0
    other_runs: int = 0
    """Other runs of the question that were compared, 0 where none were, and how many of them give the same answer."""
    best: StepSuspect | None = None
    """The first step that failed, else the last one; None if there is no fault, or if the step cannot be told."""
    suspects: tuple[StepSuspect, ...] = ()
    """Of a fault the best step, the others against which something was seen, and the last one. If it cannot be told
    whether a step is faulty, those against which something was seen."""
    step_count: int
    """The number of steps that could be faulty."""
    reason: str | None = None
    """Why nothing can be told."""


class StepFindings(Struct, frozen=True, kw_only=True):
    """The faulty steps of the traces of a run."""

    traces: tuple[FaultyStep, ...] = ()
    without_steps: int = 0
    """The number of traces that record no steps, or none that could be judged."""
    faults: dict[str, int] = {}
    """Kind of fault → in how many traces the best step has it, most frequent first."""
    population: int = 0
    """Traces of the run of which a random sample was looked at; 0: all were."""
