"""Faults of the operation of steps, seen in a trace without a model: failures, repetitions, answers without reading."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from ragfault.diagnosis.steps.moves import is_result
from ragfault.model.records import Step, StepKind, Trace
from ragfault.text.normalization import split_content_words

MAX_STEPS = 200
"""Steps of a trace that are looked at: a trace with more of them is judged by its first ones."""
REPEATED, OTHER = 0.9, 0.5
"""Jaccard index of the words of two inputs from which on they ask the same, and below which they do not."""
CALL_ERROR = re.compile(
    r"no tool call|(no such|unknown|unexpected|missing|invalid|bad) (tool|function|argument|param\w*|json)"
    r"|not a valid|validation error|malformed|could ?n[o']t (be )?parse|failed to parse",
    re.IGNORECASE,
)
"""Errors that say that the call was wrong, not that the tool failed."""

OperationFaultKind = Literal["error", "wrong_call", "repeated_call", "nothing_new", "unfounded_answer", "retried"]
"""Kinds of faults; "retried": a call that failed and was answered when it was made again."""


class OperationFault(Struct, frozen=True):
    """One fault of the operation of a step, in the kind of step that made it."""

    step: str
    """The id of the step on which it is seen."""
    kind: StepKind | None
    fault: OperationFaultKind

    @property
    def is_lasting(self) -> bool:
        """Return whether no other attempt succeeded."""
        return self.fault != "retried"


def list_operation_faults(trace: Trace) -> tuple[OperationFault, ...]:
    """List the faults of the operation of the steps of a trace, each in the kind of step that made it.

    A step that failed is its own fault, but a call that could not be executed is one of the step that planned it. A
    call that asks what an earlier one was answered is one of the step that planned it; a retrieval that returns the
    list of an earlier one to another query is its own. An answer is unfounded where nothing was read before it.

    >>> steps = [Step(id=name, kind="retrieve", input=name, chunks=("a",)) for name in ("ferry", "dog")]
    >>> [(fault.step, fault.fault) for fault in list_operation_faults(Trace(id="1", query="?", steps=tuple(steps)))]
    [('dog', 'nothing_new')]
    """
    steps = drop_copies(trace.steps or ())[:MAX_STEPS]
    return (*_list_failures(steps), *_list_repetitions(steps), *_list_unfounded(trace, steps))


def drop_copies(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return steps without those that were logged again.

    A step that is called again has another start. Without starts, a log that holds every step equally often, more than
    once, wrote each again.

    >>> steps = Step(id="1", kind="retrieve", start=0.0), Step(id="2", kind="generate", start=9.0)
    >>> [step.id for step in drop_copies((*steps, *steps))]
    ['1', '2']
    """
    first: dict[object, Step] = {}
    counts: Counter[object] = Counter()
    for step in steps:
        key = (step.kind, step.name, step.input, step.output, step.chunks, step.start, step.error)
        first.setdefault(key, step)
        counts[key] += 1
    is_timed = all(step.start is not None for step in steps)
    is_logged_again = is_timed or (len(counts) > 1 and len(set(counts.values())) == 1)
    return tuple(first.values()) if is_logged_again else steps


def find_caller(steps: tuple[Step, ...], place: int) -> Step:
    """Find the step that planned a call: its parent, else the plan right before it; else the call itself."""
    step = steps[place]
    parent = next((other for other in steps if other.id == step.parent and other.kind in ("plan", "route")), None)
    if parent is not None:
        return parent
    before = next((other for other in reversed(steps[:place]) if not is_result(other)), None)
    return before if before is not None and before.kind == "plan" else step


def _list_failures(steps: tuple[Step, ...]) -> Iterator[OperationFault]:
    for index, step in enumerate(steps):
        if step.error is None:
            continue
        if _is_answered_later(steps, index):
            yield OperationFault(step.id, step.kind, "retried")
        elif is_result(step) and CALL_ERROR.search(step.error):
            yield OperationFault(step.id, find_caller(steps, index).kind, "wrong_call")
        else:
            yield OperationFault(step.id, step.kind, "error")


def _is_answered_later(steps: tuple[Step, ...], place: int) -> bool:
    """Return whether a failed step succeeds when it is made again: with its input, or without one right after it."""
    failed = steps[place]
    for step in steps[place + 1 :]:
        if (step.kind, step.name, step.input) == (failed.kind, failed.name, failed.input):
            if step.error is None:
                return True
        elif not failed.input:
            return False
    return False


def _list_repetitions(steps: tuple[Step, ...]) -> Iterator[OperationFault]:
    calls: list[tuple[Step, frozenset[str]]] = []
    for index, step in enumerate(steps):
        if not is_result(step) or step.error is not None or not step.input:
            continue
        words = frozenset(split_content_words(step.input))
        shares = [
            (len(words & others) / max(1, len(words | others)), other)
            for other, others in calls
            if (other.kind, other.name) == (step.kind, step.name)
        ]
        if any(share >= REPEATED for share, _ in shares):
            yield OperationFault(step.id, find_caller(steps, index).kind, "repeated_call")
        elif step.chunks and any(share < OTHER and other.chunks == step.chunks for share, other in shares):
            yield OperationFault(step.id, step.kind, "nothing_new")
        calls.append((step, words))


def _list_unfounded(trace: Trace, steps: tuple[Step, ...]) -> Iterator[OperationFault]:
    """List the first answer of a trace where none of the steps before it returned anything to read.

    Where no step lists chunks although the trace has some, the retrieval is not recorded as a step.
    """
    if trace.chunks and not any(step.chunks for step in steps):
        return
    for step in steps:
        if step.kind in ("generate", "cite"):
            yield OperationFault(step.id, step.kind, "unfounded_answer")
            return
        if step.kind in ("retrieve", "rerank", "tool", "read") and (step.chunks or step.output):
            return
