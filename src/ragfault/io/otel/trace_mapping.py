"""Mapping of the spans of one trace to a RAG trace: query, chunks, answer, steps, metadata and error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, cast

import msgspec

from ragfault.io.field_values import InvalidRecord, make_json_safe, parse_cell
from ragfault.io.formats.conversations import find_role
from ragfault.io.formats.paths import parse_embedded
from ragfault.io.formats.texts import says_nothing
from ragfault.io.otel.agent_spans import (
    asks_for_tools,
    get_agent_name,
    get_call_input,
    get_call_output,
    get_step_name,
    list_tool_calls,
)
from ragfault.io.otel.guard_events import GUARD_EVENT, MAX_DECISIONS, parse_guard_attributes
from ragfault.io.otel.recorded_content import (
    ANSWER_KEYS,
    extract_answer,
    extract_question,
    get_finish_reason,
    get_model,
    get_output,
    get_prompt,
    get_query,
    get_recorded_value,
    get_replies,
    get_request,
    get_request_parameters,
    get_tokens,
    sum_tokens,
    unquote_json,
)
from ragfault.io.otel.retrieved_chunks import extract_chunks, extract_reply_chunks
from ragfault.io.otel.semantic_conventions import (
    COMPLETION_ATTRIBUTES,
    COMPLETION_PREFIXES,
    CONVERSATION_ATTRIBUTES,
    INPUT_ATTRIBUTES,
    METADATA_ATTRIBUTES,
    METADATA_OBJECTS,
    OUTPUT_ATTRIBUTES,
    REFERENCE_ATTRIBUTES,
    ROUTE_ATTRIBUTES,
    TRACE_INPUT_ATTRIBUTES,
    TRACE_OUTPUT_ATTRIBUTES,
    SpanRole,
    get_first_attribute,
)
from ragfault.io.otel.span_tree import SpanStep, SpanTree, build_span_tree
from ragfault.io.otel.spans import RATING_EVENT, OtelSpan, SpanEvent
from ragfault.model.grouping import group_by
from ragfault.model.records import Chunk, ConversationTurn, Latency, Step, StepKind, TokenCounts, Trace

REQUEST_KEY = "request_settings"
"""Key of the metadata that holds the settings of the request to the model."""
METADATA_PREFIXES = tuple(f"{name}." for name in METADATA_OBJECTS)
EVALUATION_FIELDS = {
    "name": "gen_ai.evaluation.name",
    "score": "gen_ai.evaluation.score.value",
    "label": "gen_ai.evaluation.score.label",
    "reason": "gen_ai.evaluation.explanation",
}


def get_trace_attribute(tree: SpanTree, names: Sequence[str]) -> Any:
    """Return the first of these attributes on the root, else on another span, else on the resource."""
    if tree.attribute_names.isdisjoint(names):
        return None
    value = get_first_attribute(tree.root.attributes, names)
    if value is not None:
        return value
    for span in tree.spans:
        value = get_first_attribute(span.attributes, names)
        if value is not None:
            return value
    return get_first_attribute(tree.root.resource, names)


def collect_metadata(tree: SpanTree, events: Sequence[SpanEvent]) -> dict[str, Any]:
    """Collect user, tags, release, service, environment, prompt, own metadata, ratings and guard decisions."""
    metadata: dict[str, Any] = {}
    for key, names in METADATA_ATTRIBUTES.items():
        safe = get_trace_attribute(tree, names)
        if safe is not None and not str(safe).startswith("unknown_service"):
            metadata[key] = parse_cell("metadata", safe) if key == "tags" else safe
    metadata.update(_iterate_own_metadata(tree))
    known = {span.id for span in tree.spans}
    groups = [*(span.events for span in tree.spans), [event for event in events if event.span not in known]]
    rated = list(chain.from_iterable(groups))
    ratings: list[dict[str, Any]] = []
    for group in groups:
        given = [
            {key: event.attributes[name] for key, name in EVALUATION_FIELDS.items() if name in event.attributes}
            for event in group
            if event.name == RATING_EVENT and len(event.attributes) > 1
        ]
        # each row of a trace may repeat its ratings
        ratings += [rating for rating in given if rating not in ratings]
    if ratings:
        metadata["evaluations"] = ratings
    guarded = sorted((event for event in rated if event.name == GUARD_EVENT), key=lambda event: event.time)
    if guarded:
        metadata["guard_decisions"] = [parse_guard_attributes(event.attributes) for event in guarded[-MAX_DECISIONS:]]
    try:
        safe = make_json_safe(metadata)
    except InvalidRecord:
        return {key: value for key, value in metadata.items() if isinstance(value, (str, int))}
    return dict(safe)


def _iterate_own_metadata(tree: SpanTree) -> Iterator[tuple[str, Any]]:
    """Yield the metadata that the system gave its root, or its outermost step."""
    first = tree.steps[0].span
    for span in (tree.root,) if first is tree.root else (first, tree.root):
        for name in METADATA_OBJECTS:
            value = parse_embedded(span.attributes.get(name))
            if isinstance(value, dict):
                # Arrow fills in the others
                yield from ((key, item) for key, item in value.items() if item is not None)
        for name, value in span.attributes.items():
            if name.startswith(METADATA_PREFIXES):
                prefix = next(known for known in METADATA_PREFIXES if name.startswith(known))
                yield name[len(prefix) :], unquote_json(parse_embedded(value))


def describe_error(tree: SpanTree, answer: str | None) -> str | None:
    """Return the error of the root, else that of a step where there is no answer."""
    failed = [span for span in tree.spans if _has_failed(span)]
    if tree.root in failed:
        return _describe_failure(tree.root, failed)
    return _describe_failure(failed[-1], failed) if failed and answer is None else None


def _has_failed(span: OtelSpan) -> bool:
    return span.status == "error" or span.attributes.get("langfuse.observation.level") == "ERROR"


def _describe_failure(span: OtelSpan, failed: Sequence[OtelSpan]) -> str:
    """Return the error message of a span, else that of another that failed."""
    for item in (span, *reversed(failed)):
        message = (
            item.message or item.attributes.get("langfuse.observation.status_message") or _describe_exception(item)
        )
        if message:
            return str(message)
    return str(span.attributes.get("error.type") or "failed")


def _describe_exception(span: OtelSpan) -> str | None:
    for event in reversed(span.events):
        if event.name == "exception":
            kind, text = (event.attributes.get(f"exception.{item}") for item in ("type", "message"))
            return ": ".join(str(item) for item in (kind, text) if item) or None
    return None


STEP_KINDS: dict[SpanRole, StepKind] = {
    "retriever": "retrieve", "reranker": "rerank", "llm": "generate", "planner": "plan", "tool": "tool",
    "memory": "memory",
}  # fmt: skip
"""The kind of step by the role of its span; chains, agents, embeddings and guards have none. A call of a model that
asks for tools, or is part of a plan, is a plan."""
WRITER_KINDS = (None, "generate", "cite", "plan")
"""Stated kinds of calls of a model that may write the answer: one that rewrites the question does not."""
RETRIEVAL_ROLES: tuple[SpanRole, ...] = ("retriever", "reranker")
OUTER_ROLES: tuple[SpanRole, ...] = ("chain", "agent", "tool")

MIN_QUOTE_LENGTH = 16
"""Minimum length of a passage for its occurrence in a prompt to be no coincidence."""

RetrievalStage = tuple[SpanStep, tuple[Chunk, ...] | None]
"""A retriever or reranker and its chunks."""


def build_trace(spans: Iterable[OtelSpan], events: Iterable[SpanEvent] = ()) -> Trace | None:
    """Build a trace from the spans of one trace; None where none has to do with RAG.

    The query is the input of the outermost chain, else the retriever's, else the last user message; the chunks are the
    last retrieved before the model answered, and earlier ones that its prompt shows; the answer is the output of the
    outermost chain, else the model's. `events` are log records of its spans. Raises `InvalidRecord` without a query.

    >>> held = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.query.text": "When?"}
    >>> trace = build_trace([OtelSpan(trace="a", id="b", name="search", end=2_000_000, attributes=held)])
    >>> trace.query, trace.route, trace.latency.retrieval
    ('When?', 'search', 2.0)
    """
    spans, events = tuple(spans), tuple(events)
    outline = build_span_tree(_attach_events(spans, events)) if spans else None
    if outline is None or not outline.steps:
        return None
    query = _get_trace_query(outline)
    if query is None:
        if not outline.select_steps(*OUTER_ROLES, *RETRIEVAL_ROLES, "llm"):
            # embeddings, guards and judges alone are not the way of a query
            return None
        raise InvalidRecord(
            f"no span of the trace {outline.root.trace} holds a query: is the recording of inputs switched off?"
        )
    stages = [(step, _get_step_chunks(step)) for step in outline.select_steps(*RETRIEVAL_ROLES)]
    writers = [
        step
        for step in outline.select_steps("llm")
        if not set(step.outer_roles) & set(RETRIEVAL_ROLES) and step.kind in WRITER_KINDS
    ]
    answer = _get_trace_answer(outline, writers)
    error = describe_error(outline, answer)
    writer = _find_writer(writers, answer)
    planners = [step for step in writers if _choose_kind(step) == "plan"]
    chunks = _select_chunks(stages, writer, planners)
    return Trace(
        id=outline.root.trace,
        query=query,
        chunks=_get_reply_chunks(outline) if chunks is None else chunks,
        answer="" if answer is None and error is None and _records_blank(outline, writers) else answer,
        messages=_get_messages(writer),
        reference=extract_answer(get_trace_attribute(outline, REFERENCE_ATTRIBUTES)),
        route=str(get_trace_attribute(outline, ROUTE_ATTRIBUTES) or outline.root.name) or None,
        time=_convert_to_datetime(outline.root.start),
        conversation=None if (talk := get_trace_attribute(outline, CONVERSATION_ATTRIBUTES)) is None else str(talk),
        finish_reason=None if writer is None else get_finish_reason(writer),
        model=next((model for step in (writer, *reversed(writers)) if step and (model := get_model(step))), None),
        latency=Latency(
            retrieval=_measure_covered_time(outline.select_steps(*RETRIEVAL_ROLES)),
            generation=_measure_covered_time(writers),
            total=_measure_total(outline),
        ),
        steps=_build_steps(outline, stages),
        tokens=_drop_empty(sum_tokens([get_tokens(step) for step in outline.select_steps("llm")])),
        error=error,
        metadata=_add_request_settings(collect_metadata(outline, events), writer),
    )


def _get_messages(writer: SpanStep | None) -> tuple[ConversationTurn, ...] | None:
    """Return the request that the writer of the answer got; None where it was not recorded, or in part.

    A message whose role has no name among those of chats would be sent as another, so that it was another request.
    """
    request = [] if writer is None else get_request(writer)
    roles = [find_role(message.role) for message in request]
    if not request or None in roles:
        return None
    return tuple(
        ConversationTurn(role=cast(Any, role), text=message.text) for role, message in zip(roles, request, strict=True)
    )


def _add_request_settings(metadata: dict[str, Any], writer: SpanStep | None) -> dict[str, Any]:
    """Add the settings of the request to the metadata, unless the system has a key of that name."""
    settings = {} if writer is None else get_request_parameters(writer)
    return {REQUEST_KEY: settings, **metadata} if settings else metadata


def _attach_events(spans: Iterable[OtelSpan], events: Sequence[SpanEvent]) -> Iterable[OtelSpan]:
    """Attach log records to the spans that they name."""
    if not events:
        return spans
    by_span = group_by(sorted(events, key=lambda event: event.time), lambda event: event.span)
    return [
        msgspec.structs.replace(span, events=(*span.events, *by_span[span.id])) if span.id in by_span else span
        for span in spans
    ]


def _get_end_order(step: SpanStep) -> tuple[int, int, str]:
    return step.span.end, step.span.start, step.span.id


def _find_writer(writers: Sequence[SpanStep], answer: str | None) -> SpanStep | None:
    """Find the last call of a model whose output is the answer, else the last of all: one may follow for a title."""
    ordered = sorted(writers, key=_get_end_order, reverse=True)
    return next((step for step in ordered if answer and get_output(step) == answer), ordered[0] if ordered else None)


def _select_last_turn(outer: Sequence[SpanStep]) -> Sequence[SpanStep]:
    """Select the steps from the last one on that was given the output of an earlier one as an answer before."""
    turns = [
        at for at, step in enumerate(outer) if at and get_replies(step) & {get_output(before) for before in outer[:at]}
    ]
    return outer[turns[-1] :] if turns else outer


def _get_trace_query(tree: SpanTree) -> str | None:
    given = extract_question(get_trace_attribute(tree, TRACE_INPUT_ATTRIBUTES))
    if given:
        return given
    outer = _select_last_turn([step for step in tree.select_steps(*OUTER_ROLES) if not step.outer_roles])
    rest = [step for step in tree.select_steps(*OUTER_ROLES) if step.outer_roles]
    first = [step for step in tree.select_steps("stage") if step.kind in ("rewrite", "route")]
    steps = (*outer, *first, *tree.select_steps(*RETRIEVAL_ROLES), *rest, *tree.select_steps("llm"))
    return next(filter(None, map(get_query, steps)), None)


def _get_trace_answer(tree: SpanTree, writers: Sequence[SpanStep]) -> str | None:
    given = extract_answer(get_trace_attribute(tree, TRACE_OUTPUT_ATTRIBUTES))
    if given:
        return given
    outer = [step for step in tree.select_steps("chain", "agent") if not step.outer_roles]
    steps = (*sorted(outer, key=_get_end_order, reverse=True), *sorted(writers, key=_get_end_order, reverse=True))
    return next(filter(None, map(get_output, steps)), None)


def _records_blank(tree: SpanTree, writers: Sequence[SpanStep]) -> bool:
    """Tell whether the output of the whole system, or of the last call of a model, was recorded and says nothing."""
    last = max(writers, key=_get_end_order, default=None)
    if last is not None and (asks_for_tools(last) or not last.span.complete):
        return False
    outer = [step.span for step in tree.select_steps("chain", "agent") if not step.outer_roles]
    spans = (tree.root, *outer, *(last.records if last is not None else ()))
    names = (*TRACE_OUTPUT_ATTRIBUTES, *OUTPUT_ATTRIBUTES, *COMPLETION_ATTRIBUTES)
    return any(
        says_nothing(value, ANSWER_KEYS)
        for span in spans
        for name, value in span.attributes.items()
        if name in names or (name.startswith(COMPLETION_PREFIXES) and name.endswith("content"))
    )


def _get_step_chunks(step: SpanStep) -> tuple[Chunk, ...] | None:
    recorded = (extract_chunks(item, step.role) for item in step.records)
    return next((chunks for chunks in recorded if chunks is not None), None)


def _get_reply_chunks(tree: SpanTree) -> tuple[Chunk, ...] | None:
    """Return the contexts that the output of the whole system names, where no retriever recorded any."""
    outer = [step.span for step in tree.select_steps(*OUTER_ROLES) if not step.outer_roles]
    return next((chunks for span in (tree.root, *outer) if (chunks := extract_reply_chunks(span)) is not None), None)


def _select_chunks(
    stages: Sequence[RetrievalStage], writer: SpanStep | None, planners: Sequence[SpanStep]
) -> tuple[Chunk, ...] | None:
    """Select the chunks that the writer of the answer saw, as far as recorded.

    What cannot be looked up in its prompt counts as seen where a model that went on to call tools could read it.
    """
    known = [(step, chunks) for step, chunks in stages if chunks is not None]
    if writer is not None:
        before = [stage for stage in known if stage[0].span.end <= writer.span.start]
        known = before or known
    if not known:
        return None
    known.sort(key=lambda stage: _get_end_order(stage[0]))
    last, chunks = known[-1]
    read = [step for step, _ in known if any(step.span.end <= call.span.start for call in planners)]
    prompt = get_prompt(writer) if writer is not None and len(known) > 1 else ""
    if not prompt:
        return _merge_read_chunks(known, last, read)
    shown = [stage for stage in known if any(_is_in_prompt(prompt, chunk) for chunk in stage[1])]
    if shown:
        last, chunks = shown[-1]
    met = {chunk.id for chunk in chunks} | {chunk.text for chunk in chunks}
    earlier = [(step, chunk) for step, stage_chunks in known if step is not last for chunk in stage_chunks]
    seen = [chunk for step, chunk in earlier if _is_in_prompt(prompt, chunk) or (not chunk.text and step in read)]
    return chunks + _drop_known_chunks(seen, met)


def _merge_read_chunks(
    known: Sequence[tuple[SpanStep, tuple[Chunk, ...]]], last: SpanStep, read: Sequence[SpanStep]
) -> tuple[Chunk, ...]:
    """Merge the chunks of the last stage with those of retrievers that ran beside it, or that an agent read before."""
    together = [
        chunk
        for step, chunks in sorted(known, key=lambda stage: (stage[0].span.start, stage[0].span.id))
        if step is last or step in read or _are_parallel(step, last)
        for chunk in chunks
    ]
    return _drop_known_chunks(together, set())


def _are_parallel(step: SpanStep, last: SpanStep) -> bool:
    first, other = step.span, last.span
    overlap = first.start < other.end and other.start < first.end
    return overlap and first.parent == other.parent and step.role == last.role == "retriever"


def _drop_known_chunks(chunks: Sequence[Chunk], known: set[str]) -> tuple[Chunk, ...]:
    """Drop chunks whose id or text is known."""
    new = []
    for chunk in chunks:
        if chunk.id not in known and not (chunk.text and chunk.text in known):
            known |= {chunk.id, chunk.text}
            new.append(chunk)
    return tuple(new)


def _is_in_prompt(prompt: str, chunk: Chunk) -> bool:
    text = chunk.text.strip()
    return len(text) >= MIN_QUOTE_LENGTH and text in prompt


def _convert_to_datetime(nanoseconds: int) -> datetime | None:
    if not nanoseconds:
        return None
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)


def _measure_total(tree: SpanTree) -> float | None:
    """Measure the milliseconds of the root; without it, from the first start to the last end, if all are recorded."""
    if tree.root.duration and tree.root.parent is None:
        return tree.root.duration / 1e6
    if not all(span.complete for span in tree.spans):
        return None
    return max(0, max(span.end for span in tree.spans) - tree.root.start) / 1e6 or None


def _measure_covered_time(steps: Sequence[SpanStep]) -> float | None:
    """Measure the milliseconds in which at least one of the steps ran; None where the end of one is not recorded."""
    if not steps or not all(step.span.complete for step in steps):
        return None
    spent = reached = 0
    for start, end in sorted((step.span.start, step.span.end) for step in steps):
        spent += max(0, end - max(start, reached))
        reached = max(reached, end)
    return spent / 1e6


def _build_steps(tree: SpanTree, stages: Sequence[RetrievalStage]) -> tuple[Step, ...]:
    chunk_ids = {step.span.id: tuple(chunk.id for chunk in chunks) for step, chunks in stages if chunks is not None}
    return tuple(
        Step(
            id=step.span.id,
            parent=step.parent,
            kind=_choose_kind(step),
            name=get_step_name(step),
            agent=get_agent_name(step),
            input=_shorten_text(_get_step_input(step)),
            output=_shorten_text(_get_step_output(step, chunk_ids)),
            chunks=chunk_ids.get(step.span.id),
            start=max(0, step.span.start - tree.root.start) / 1e6,
            duration=step.span.duration / 1e6 if step.span.complete else None,
            tokens=_drop_empty(get_tokens(step)) if step.role == "llm" else None,
            error=_describe_failure(step.span, ()) if _has_failed(step.span) else None,
        )
        for step in tree.steps
        if step.role != "part"
    )


def _choose_kind(step: SpanStep) -> StepKind | None:
    if step.kind is not None:
        return step.kind
    if step.role == "llm" and ("planner" in step.outer_roles or asks_for_tools(step)):
        return "plan"
    return STEP_KINDS.get(step.role)


MAX_STEP_TEXT = 20_000
"""Characters of the input and of the output of a step, each: a prompt repeats the chunks that the trace has."""


def _get_step_input(step: SpanStep) -> str | None:
    """Return what a step was given: the whole prompt of a model, else the question, else what was recorded."""
    if step.role == "llm":
        return get_prompt(step) or None
    given = get_call_input(step) if step.role in ("tool", "memory") else None
    return given or get_query(step) or _get_recorded_text(step, INPUT_ATTRIBUTES, {})


def _get_step_output(step: SpanStep, with_chunks: Mapping[str, object]) -> str | None:
    """Return what a step wrote or returned; of a call of a model that only asks for tools, the calls."""
    given = get_call_output(step) if step.role in ("tool", "memory") else None
    spoken = get_output(step)
    if step.role == "llm" and (calls := "\n".join(list_tool_calls(step))):
        given = f"{spoken}\n{calls}" if spoken and spoken not in calls else calls
    return given or spoken or _get_recorded_text(step, OUTPUT_ATTRIBUTES, with_chunks)


def _get_recorded_text(step: SpanStep, names: Sequence[str], with_chunks: Mapping[str, object]) -> str | None:
    """Return what was recorded as text, JSON where it is none; None for steps whose chunks say it."""
    if step.span.id in with_chunks:
        return None
    for item in step.records:
        value = get_recorded_value(item.attributes, names)
        if value is not None:
            return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    return None


def _shorten_text(text: str | None) -> str | None:
    """Cut a text that is too long, and say so.

    >>> _shorten_text("x" * 20_005)[-24:]
    'xx … (5 characters more)'
    """
    if not text or len(text) <= MAX_STEP_TEXT:
        return text or None
    return f"{text[:MAX_STEP_TEXT]} … ({len(text) - MAX_STEP_TEXT:,} characters more)"


def _drop_empty(tokens: TokenCounts) -> TokenCounts | None:
    return None if tokens == TokenCounts() else tokens
