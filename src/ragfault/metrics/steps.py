"""Metrics of the steps of an agent or a pipeline."""

from __future__ import annotations

import math
import re

from ragfault.metrics.catalog import MetricResult, Undefined, metric
from ragfault.records import Step, Trace, Verdicts
from ragfault.text import split_content_words

MIN_RELEVANCE = 0.5
REPEATED = 0.9
"""Jaccard index of the words of two texts from which on one nearly repeats the other."""
FAILURE_WORDS = re.compile(r"\b(errors?|fail\w*|unavailable|could not|couldn't|unable|timed? ?out)\b", re.IGNORECASE)


@metric(layer="operation", better="lower", fields="steps", source="as recorded")
def step_error(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the steps that failed.

    Steps with an error / steps. In [0, 1]. Undefined without steps.

    >>> steps = (Step(id="1", kind="tool", error="timeout"), Step(id="2", kind="generate"))
    >>> step_error(Trace(id="1", query="q", steps=steps), Verdicts(trace="1"))
    0.5
    """
    if not trace.steps:
        return Undefined("no steps")
    return sum(step.error is not None for step in trace.steps) / len(trace.steps)


@metric(layer="operation", better="lower", fields="steps", source="as recorded, by words")
def swallowed_error(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the failed steps that no later step mentions or repairs.

    A later step repairs a failure if it has the same name (else the same kind) and succeeds; it mentions one if its
    output has a word for failures. In [0, 1]. Undefined without a failed step.

    >>> failed = Step(id="1", kind="tool", name="search", error="timeout")
    >>> steps = (failed, Step(id="2", kind="generate", output="The ferry leaves at nine."))
    >>> swallowed_error(Trace(id="1", query="q", steps=steps), Verdicts(trace="1"))
    1.0
    """
    steps = trace.steps or ()
    failed = [place for place, step in enumerate(steps) if step.error is not None]
    if not failed:
        return Undefined("no failed step" if steps else "no steps")
    return sum(not any(_answers_for(steps[place], later) for later in steps[place + 1 :]) for place in failed) / len(
        failed
    )


def _answers_for(failed: Step, later: Step) -> bool:
    """Tell whether a later step repairs or mentions a failed one."""
    is_same = later.name == failed.name if failed.name else later.kind == failed.kind and later.kind is not None
    return (is_same and later.error is None) or bool(FAILURE_WORDS.search(later.output or ""))


@metric(layer="operation", better="lower", fields="steps", source="repetition, by words")
def redundant_steps(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the steps whose input or output nearly repeats that of an earlier step of their kind.

    A text repeats another if the Jaccard index of their words is 0.9 or above; a call that is tried again after a
    failure repeats nothing. In [0, 1]. Undefined where no step records an input or output.

    >>> steps = tuple(Step(id=name, kind="retrieve", input="ferry timetable") for name in "ab")
    >>> redundant_steps(Trace(id="1", query="q", steps=steps), Verdicts(trace="1"))
    0.5
    """
    steps = [step for step in trace.steps or () if step.input or step.output]
    if not steps:
        return Undefined("no step records an input or output" if trace.steps else "no steps")
    repeated = sum(
        any(_repeats(step, earlier) for earlier in steps[:place] if earlier.error is None)
        for place, step in enumerate(steps)
    )
    return repeated / len(steps)


def _repeats(step: Step, earlier: Step) -> bool:
    pairs = ((step.input, earlier.input), (step.output, earlier.output))
    return step.kind == earlier.kind and any(_nearly_equal(text, other) for text, other in pairs)


def _nearly_equal(text: str | None, other: str | None) -> bool:
    words, others = (frozenset(split_content_words(part or "")) for part in (text, other))
    return bool(words) and len(words & others) >= REPEATED * len(words | others)


def _list_retrievals(trace: Trace) -> list[Step]:
    return [step for step in trace.steps or () if step.kind in ("retrieve", "memory") and step.chunks is not None]


@metric(layer="retrieval", range=(0.0, math.inf), verdicts="chunk", fields="steps chunks", source="by relevance")
def retrieval_gain(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Number of relevant chunks per retrieval step that no earlier step had returned.

    Chunks of medium or high relevance, each counted at the first step that returned it / steps that retrieve. From 0.
    Undefined without a retrieval step that records its chunks.
    """
    steps = _list_retrievals(trace)
    if not steps:
        return Undefined("no retrieval step records its chunks")
    if verdicts.chunk is None:
        return Undefined("the judge offers no chunk verdicts")
    returned = {name for step in steps for name in step.chunks or ()}
    relevant = {verdict.chunk for verdict in verdicts.chunk if verdict.relevance >= MIN_RELEVANCE}
    return len(relevant & returned) / len(steps)


@metric(layer="generation", verdicts="use", fields="steps chunks answer", source="chunk utilisation, by step")
def step_use(trace: Trace, verdicts: Verdicts) -> MetricResult:
    """Share of the retrieval steps of whose chunks the answer used one.

    Retrieval steps with a used chunk / retrieval steps that returned chunks. In [0, 1]. Undefined without such a step
    or an answer.
    """
    steps = [step for step in _list_retrievals(trace) if step.chunks]
    if not steps:
        return Undefined("no retrieval step returned chunks")
    if not trace.answer:
        return Undefined("no answer")
    if verdicts.use is None:
        return Undefined("the judge offers no use verdicts")
    used = {verdict.chunk for verdict in verdicts.use if verdict.used}
    return sum(not used.isdisjoint(step.chunks or ()) for step in steps) / len(steps)
