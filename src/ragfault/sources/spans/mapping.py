"""From the operations of one trace to the trace of a RAG system."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from ragfault.records import Chunk, Latency, Timing, Tokens, Trace
from ragfault.sources.spans.circumstances import error_of, metadata_of, named
from ragfault.sources.spans.contents import answered, asked
from ragfault.sources.spans.operation import Event, Operation
from ragfault.sources.spans.outline import Outline, Step, outlined
from ragfault.sources.spans.passages import chunks_of
from ragfault.sources.spans.speaking import model_of, output_of, prompt_of, query_of, tokens_of, total
from ragfault.sources.spans.vocabulary import CONVERSATION, ROUTE, TRACE_INPUT, TRACE_OUTPUT, Role
from ragfault.sources.values import Wrong

__all__ = ["to_trace"]

TIMED: tuple[Role, ...] = (
    "retriever",
    "reranker",
    "llm",
    "embedding",
    "chain",
    "agent",
    "tool",
    "guard",
)
RETRIEVAL: tuple[Role, ...] = ("retriever", "reranker")
OUTER: tuple[Role, ...] = ("chain", "agent", "tool")

TELLING = 16
"""How many characters of a passage must stand in a prompt to be no chance."""

Stage = tuple[Step, tuple[Chunk, ...] | None]
"""A retriever or reranker, and what it gave."""


def to_trace(operations: Iterable[Operation], events: Iterable[Event] = ()) -> Trace | None:
    """The trace that the operations of one trace of OpenTelemetry stand for; None where none has to do with RAG.

    The query is the input of the outermost chain, else the retriever's, else what the user last said to the
    model; the chunks are the last that a retriever or reranker gave before the model answered, and those of
    earlier ones that its prompt shows; the answer is the output of the outermost chain, else the model's. What
    was recorded twice counts once. `events` are records of a log that name spans of the trace. Raises `Wrong`
    where the operations hold no query.

    >>> held = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.query.text": "When?"}
    >>> trace = to_trace([Operation(trace="a", id="b", name="search", end=2_000_000, attributes=held)])
    >>> trace.query, trace.route, trace.latency.retrieval
    ('When?', 'search', 2.0)
    """
    operations, events = tuple(operations), tuple(events)
    outline = outlined(_joined(operations, events)) if operations else None
    if outline is None or not outline.steps:
        return None
    query = _query(outline)
    if query is None:
        raise Wrong(
            f"no span of the trace {outline.root.trace} holds a query: is the recording of inputs switched off?"
        )
    stages = [(step, _chunks(step)) for step in outline.of(*RETRIEVAL)]
    writers = [step for step in outline.of("llm") if not set(step.within) & set(RETRIEVAL)]
    answer = _answer(outline, writers)
    return Trace(
        id=outline.root.trace,
        query=query,
        chunks=_seen(stages, max(writers, key=_ending) if writers else None),
        answer=answer,
        route=str(named(outline, ROUTE) or outline.root.name) or None,
        time=_moment(outline.root.start),
        conversation=_text(named(outline, CONVERSATION)),
        model=next((model for step in reversed(writers) if (model := model_of(step))), None),
        latency=_latency(outline, writers),
        timings=_timings(outline, stages),
        tokens=_tokens(outline),
        error=error_of(outline, answer),
        metadata=metadata_of(outline, events),
    )


def _joined(operations: Iterable[Operation], events: Sequence[Event]) -> Iterable[Operation]:
    """The operations, each with the records of a log that name it among its events."""
    if not events:
        return operations
    mine: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.time):
        mine.setdefault(event.span, []).append(event)
    return [
        msgspec.structs.replace(one, events=(*one.events, *mine[one.id])) if one.id in mine else one
        for one in operations
    ]


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _ending(step: Step) -> tuple[int, int, str]:
    return step.operation.end, step.operation.start, step.operation.id


# --- question and answer ---------------------------------------------------------------------------


def _query(outline: Outline) -> str | None:
    given = asked(named(outline, TRACE_INPUT))
    if given:
        return given
    outer = [step for step in outline.of(*OUTER) if not step.within]
    rest = [step for step in outline.of(*OUTER) if step.within]
    for step in (*outer, *outline.of(*RETRIEVAL), *rest, *outline.of("llm")):
        if found := query_of(step):
            return found
    return None


def _answer(outline: Outline, writers: Sequence[Step]) -> str | None:
    given = answered(named(outline, TRACE_OUTPUT))
    if given:
        return given
    outer = [step for step in outline.of("chain", "agent") if not step.within]
    for step in (*sorted(outer, key=_ending, reverse=True), *sorted(writers, key=_ending, reverse=True)):
        if found := output_of(step):
            return found
    return None


# --- chunks ----------------------------------------------------------------------------------------


def _chunks(step: Step) -> tuple[Chunk, ...] | None:
    for part in step.parts:
        found = chunks_of(part, step.role)
        if found is not None:
            return found
    return None


def _seen(stages: Sequence[Stage], writer: Step | None) -> tuple[Chunk, ...] | None:
    """The chunks that the writer of the answer saw, as far as the records tell."""
    known = [(step, chunks) for step, chunks in stages if chunks is not None]
    if writer is not None:
        before = [stage for stage in known if stage[0].operation.end <= writer.operation.start]
        known = before or known
    if not known:
        return None
    known.sort(key=lambda stage: _ending(stage[0]))
    last, chunks = known[-1]
    prompt = prompt_of(writer) if writer is not None and len(known) > 1 else ""
    if not prompt:
        return _beside(known, last)
    shown = [stage for stage in known if any(_shows(prompt, chunk) for chunk in stage[1])]
    if shown:
        last, chunks = shown[-1]
    met = {chunk.id for chunk in chunks} | {chunk.text for chunk in chunks}
    earlier = [chunk for step, found in known if step is not last for chunk in found]
    return chunks + _new([chunk for chunk in earlier if _shows(prompt, chunk)], met)


def _beside(known: Sequence[tuple[Step, tuple[Chunk, ...]]], last: Step) -> tuple[Chunk, ...]:
    """What the last stage gave, after what retrievers gave that ran beside it in the same step."""
    together = [
        chunk
        for step, chunks in sorted(known, key=lambda stage: (stage[0].operation.start, stage[0].operation.id))
        if step is last or _parallel(step, last)
        for chunk in chunks
    ]
    return _new(together, set())


def _parallel(step: Step, last: Step) -> bool:
    one, other = step.operation, last.operation
    overlap = one.start < other.end and other.start < one.end
    return overlap and one.parent == other.parent and step.role == last.role == "retriever"


def _new(chunks: Sequence[Chunk], met: set[str]) -> tuple[Chunk, ...]:
    """The chunks whose id and text have not been met."""
    found = []
    for chunk in chunks:
        if chunk.id not in met and not (chunk.text and chunk.text in met):
            met |= {chunk.id, chunk.text}
            found.append(chunk)
    return tuple(found)


def _shows(prompt: str, chunk: Chunk) -> bool:
    text = chunk.text.strip()
    return len(text) >= TELLING and text in prompt


# --- time and tokens -------------------------------------------------------------------------------


def _moment(nanoseconds: int) -> datetime | None:
    if not nanoseconds:
        return None
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)


def _latency(outline: Outline, writers: Sequence[Step]) -> Latency:
    return Latency(
        retrieval=_covered(outline.of(*RETRIEVAL)),
        generation=_covered(writers),
        total=_whole(outline),
    )


def _whole(outline: Outline) -> float:
    """Milliseconds that the root took; where it is not there, or does not say, from the first begin to the last end."""
    if outline.root.took and outline.root.parent is None:
        return outline.root.took / 1e6
    return max(0, max(one.end for one in outline.operations) - outline.root.start) / 1e6


def _covered(steps: Sequence[Step]) -> float | None:
    """Milliseconds in which one of the steps ran at least."""
    if not steps:
        return None
    spent = reached = 0
    for start, end in sorted((step.operation.start, step.operation.end) for step in steps):
        spent += max(0, end - max(start, reached))
        reached = max(reached, end)
    return spent / 1e6


def _timings(outline: Outline, stages: Sequence[Stage]) -> tuple[Timing, ...]:
    given = {step.operation.id: None if chunks is None else len(chunks) for step, chunks in stages}
    return tuple(
        Timing(
            name=step.operation.name,
            start=max(0, step.operation.start - outline.root.start) / 1e6,
            took=step.operation.took / 1e6,
            chunks=given.get(step.operation.id),
        )
        for step in outline.of(*TIMED)
    )


def _tokens(outline: Outline) -> Tokens | None:
    found = total([tokens_of(step) for step in outline.of("llm")])
    return None if found == Tokens() else found
