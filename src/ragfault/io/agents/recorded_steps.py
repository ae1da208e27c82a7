"""Outputs of recorded steps, which stand in for steps of an agent that is run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ragfault.model.records import Chunk, StepKind, Trace

StepOutput = str | tuple[Chunk, ...]


class RecordedSteps:
    """The outputs of the steps of one kind in a trace, in order; an agent takes them instead of doing these steps.

    The output of a step is its chunks where it lists them, else its text. Steps that failed have none.

    >>> from ragfault.model.records import Step
    >>> trace = Trace(id="1", query="And dogs?", steps=(Step(id="1", kind="rewrite", output="dogs on ferries"),))
    >>> recorded = RecordedSteps(trace, "rewrite")
    >>> recorded.take("rewrite", lambda: "dogs"), recorded.take("rewrite", lambda: "dogs")
    ('dogs on ferries', 'dogs')
    """

    def __init__(self, trace: Trace | None = None, kind: StepKind | None = None) -> None:
        self.kind = kind
        chunks = {chunk.id: chunk for chunk in (trace.chunks if trace else None) or ()}
        steps = [step for step in (trace.steps if trace else None) or () if step.kind == kind and step.error is None]
        outputs: list[StepOutput | None] = [
            step.output if step.chunks is None else tuple(chunks[name] for name in step.chunks if name in chunks)
            for step in steps
        ]
        self.outputs = [output for output in outputs if output is not None] if kind else []
        self._left = list(self.outputs)

    def take(self, kind: StepKind, act: Callable[[], Any]) -> Any:
        """Return the next recorded output of a kind of step; where there is none, do the step."""
        return self._left.pop(0) if kind == self.kind and self._left else act()
