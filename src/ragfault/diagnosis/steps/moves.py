"""The moves of a trace: each step that decides something, with the results that it led to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from ragfault.model.records import Chunk, Step, Trace
from ragfault.text.normalization import split_content_words

RESULT_KINDS = ("tool", "memory", "retrieve", "rerank", "read")
CALLER_KINDS = ("plan", None)
"""Kinds of steps whose tool calls follow as steps of their own."""
MAX_CHARACTERS = 20_000
"""Characters of what a move wrote, asked and read that are looked at."""


class Move:
    """A step that decides something, with its results up to the next one."""

    def __init__(self, step: Step, results: tuple[Step, ...], chunks: tuple[Chunk, ...]) -> None:
        self.step, self.results, self.chunks = step, results, chunks

    @cached_property
    def text(self) -> str:
        """The text that the step wrote, empty where it is the result of a tool."""
        return "" if is_result(self.step) else (self.step.output or "")[:MAX_CHARACTERS]

    @cached_property
    def query(self) -> str:
        """The input of the tool calls of the step, one line each; empty where it called none."""
        asked = [part.input for part in self.results if part.input] or ([self.step.input] if self.step.input else [])
        return "\n".join(dict.fromkeys(asked))[:MAX_CHARACTERS] if self.is_call else ""

    @cached_property
    def is_call(self) -> bool:
        return bool(self.results) or is_result(self.step)

    @cached_property
    def returned(self) -> str:
        """The output of the tools, chunks included."""
        outputs = [part.output for part in (self.step, *self.results) if is_result(part) and part.output]
        texts = (f"{chunk.document or ''} {chunk.text[:MAX_CHARACTERS]}" for chunk in self.chunks)
        return "\n".join([*outputs, *texts])[:MAX_CHARACTERS]

    @cached_property
    def errors(self) -> list[str]:
        return [part.error for part in (self.step, *self.results) if part.error]

    @property
    def is_recorded(self) -> bool:
        """True where the record has more of the move than that it happened."""
        return bool(self.text or self.query or self.returned or self.errors)

    @cached_property
    def query_words(self) -> frozenset[str]:
        return frozenset(split_content_words(self.query))

    @cached_property
    def text_words(self) -> frozenset[str]:
        return frozenset(split_content_words(self.text))

    @cached_property
    def returned_words(self) -> frozenset[str]:
        return frozenset(split_content_words(self.returned))


class Moves(NamedTuple):
    """The moves of one trace in order."""

    trace: Trace
    moves: tuple[Move, ...]


def is_result(step: Step) -> bool:
    """Tell whether a step is the work of a tool or a store and not a decision of a model."""
    return step.kind in RESULT_KINDS


def group_moves(trace: Trace) -> Moves:
    """Group the steps of a trace to moves: a step of a model with the tool calls below or directly after it.

    Steps that only enclose others, such as the agent as a whole, are no moves. A step of a pipeline is one of its own.

    >>> steps = (Step(id="1", kind="plan"), Step(id="2", kind="retrieve", parent="1"), Step(id="3", kind="generate"))
    >>> [(move.step.id, len(move.results)) for move in group_moves(Trace(id="1", query="?", steps=steps)).moves]
    [('1', 1), ('3', 0)]
    """
    chunks = {chunk.id: chunk for chunk in trace.chunks or ()}
    steps = trace.steps or ()
    if trace.answer and steps and steps[-1].kind == "generate" and steps[-1].output is None:
        steps = (*steps[:-1], replace(steps[-1], output=trace.answer))
    grouped: list[tuple[Step, list[Step]]] = []
    places: dict[str, int] = {}
    for step in _drop_enclosing(steps):
        caller = places.get(step.parent or "")
        if is_result(step) and caller is None and grouped and grouped[-1][0].kind in CALLER_KINDS:
            caller = len(grouped) - 1 if not is_result(grouped[-1][0]) else None
        if is_result(step) and caller is not None:
            grouped[caller][1].append(step)
            continue
        places[step.id] = len(grouped)
        grouped.append((step, []))
    return Moves(
        trace,
        tuple(
            Move(
                step,
                tuple(results),
                tuple(chunks[name] for name in dict.fromkeys(_list_ids(step, results)) if name in chunks),
            )
            for step, results in grouped
        ),
    )


def _list_ids(step: Step, results: list[Step]) -> Iterator[str]:
    for part in (step, *results):
        yield from part.chunks or ()


def _drop_enclosing(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Leave out steps that have decisions below them: the agent or the chain that the others belong to."""
    enclosing = {step.parent for step in steps if step.parent and not is_result(step)}
    callers = {step.parent for step in steps if step.parent and is_result(step)}
    for step in steps:
        if step.id in enclosing and step.kind != "plan":
            continue
        if step.id in callers and step.id in enclosing:
            continue
        yield step
