"""Which bad answers of a run are asked again, with which requests; nothing is asked yet."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ragfault.apps.replay.app_asking import to_chunk
from ragfault.apps.replay.asking import AskedRequest, read_settings
from ragfault.apps.replay.interventions import (
    KnownPassages,
    PlannedProof,
    ProofRefused,
    ReplayCase,
    list_relevant,
    plan_proof,
)
from ragfault.apps.replay.requests.chunk_places import RequestRefused
from ragfault.apps.replay.requests.pooled import read_templates
from ragfault.apps.replay.requests.request_template import RequestTemplate, render_request
from ragfault.apps.replay.settings import TRACES_OF_CAUSE, ReplaySettings
from ragfault.diagnosis.causes.records import AnswerCause
from ragfault.diagnosis.causes.selection import parse_causes
from ragfault.diagnosis.run_table import RunTable
from ragfault.io.documents import read_documents
from ragfault.io.redaction import Redactor
from ragfault.io.runs.run import Run
from ragfault.model.causes import CauseName
from ragfault.model.errors import UsageError
from ragfault.model.grouping import group_by
from ragfault.model.records import Chunk, ConversationTurn, Trace, Verdicts

RetrieveFunction = Callable[[str], Iterable[Any]]
"""The retriever of the user: the chunks of a query."""


class PlannedReplay(NamedTuple):
    """A bad answer with the requests that put its cause to the proof, or the reason why there are none."""

    case: ReplayCase
    plan: PlannedProof | None = None
    same: tuple[ConversationTurn, ...] = ()
    """The recorded request; empty for an app."""
    changed: tuple[ConversationTurn, ...] = ()
    refused: str = ""


class PlannedRun(NamedTuple):
    """All replays of a run, before the first call."""

    replays: tuple[PlannedReplay, ...]
    answers: Mapping[CauseName, int]
    """Cause → bad answers of the run with it, replayed or not."""

    @property
    def requests(self) -> list[AskedRequest]:
        """The recorded requests that will be asked again."""
        traces = [(item.same, item.case.trace) for item in self.replays if item.plan is not None]
        return [AskedRequest(same, trace, trace.chunks or (), 1, read_settings(trace)) for same, trace in traces]


def plan_replays(
    source: RunTable, settings: ReplaySettings, *, needs_messages: bool, retrieve: RetrieveFunction | None = None
) -> PlannedRun:
    """Plan the replays of a run: draw traces of each cause, find their chunks in their requests, and change these.

    Nothing is asked yet. Raises UsageError where no answer of the run is bad for one of the causes.
    """
    chosen = list_causes(source, settings)
    if not chosen:
        raise UsageError("the run has no bad answer with a cause to replay: ragfault report shows its causes.")
    return plan_causes(source.run, chosen, settings, needs_messages=needs_messages, retrieve=retrieve)


def list_causes(source: RunTable, settings: ReplaySettings) -> list[AnswerCause]:
    """List the bad answers of a run with their causes, as far as the settings name these."""
    names = parse_causes(settings.causes)
    return [cause for cause in source.causes if cause.cause is not None and (not names or cause.cause in names)]


def plan_causes(
    run: Run,
    causes: Sequence[AnswerCause],
    settings: ReplaySettings,
    *,
    needs_messages: bool,
    retrieve: RetrieveFunction | None = None,
) -> PlannedRun:
    """Plan the replays of causes that are known: of each name a sample of its traces."""
    groups = group_by(causes, lambda cause: cause.cause)
    sampled = [cause for group in groups.values() for cause in _draw(group, settings)]
    cases = _build_cases(run, sampled, settings, retrieve)
    answers = {name: len(group) for name, group in groups.items() if name is not None}
    return PlannedRun(tuple(_plan_requests(cases, needs_messages=needs_messages)), answers)


def _draw(group: Sequence[AnswerCause], settings: ReplaySettings) -> list[AnswerCause]:
    """Draw a random sample of the traces of a cause, the same for the same seed."""
    count = TRACES_OF_CAUSE if settings.sample is None else settings.sample
    return random.Random(settings.seed).sample(list(group), count) if 0 < count < len(group) else list(group)


def _build_cases(
    run: Run, causes: Sequence[AnswerCause], settings: ReplaySettings, retrieve: RetrieveFunction | None
) -> list[ReplayCase]:
    by_id = {cause.trace: cause for cause in causes}
    evidence = list(run.evidence(list(by_id)))
    passages = _collect_passages(run, [trace for trace, _ in evidence], settings.corpus)
    redactor = None if settings.redact is None else Redactor(settings.redact)
    return [_build_case(trace, verdicts, by_id[trace.id], passages, redactor, retrieve) for trace, verdicts in evidence]


def _build_case(
    trace: Trace,
    verdicts: Verdicts,
    cause: AnswerCause,
    passages: KnownPassages,
    redactor: Redactor | None,
    retrieve: RetrieveFunction | None,
) -> ReplayCase:
    gold = passages.find_gold(trace.gold)
    retrieved = None if retrieve is None else _retrieve(retrieve, trace.query)
    if redactor is not None:
        trace, (gold, others) = redact_together(redactor, trace, gold, retrieved or ())
        retrieved = None if retrieved is None else others
    return ReplayCase(trace, cause, gold, list_relevant(trace, verdicts, gold), retrieved)


def redact_together(
    redactor: Redactor, trace: Trace, *others: tuple[Chunk, ...]
) -> tuple[Trace, list[tuple[Chunk, ...]]]:
    """Redact a trace with chunks that it does not show, so that equal values have equal placeholders in all."""
    shown = trace.chunks or ()
    joined = replace(trace, chunks=(*shown, *(chunk for chunks in others for chunk in chunks)))
    redacted = redactor.redact_trace(joined).trace
    remaining = (redacted.chunks or ())[len(shown) :]
    groups = []
    for chunks in others:
        groups.append(remaining[: len(chunks)])
        remaining = remaining[len(chunks) :]
    return replace(redacted, chunks=trace.chunks and (redacted.chunks or ())[: len(shown)]), groups


def _retrieve(retrieve: RetrieveFunction, query: str) -> tuple[Chunk, ...]:
    """Return the chunks of the user's retriever. Raises UsageError where it fails: it does for every query then."""
    try:
        return tuple(to_chunk(item, number) for number, item in enumerate(retrieve(query), 1))
    except Exception as error:
        raise UsageError(f"the retriever failed on a query: {type(error).__name__}: {error}") from error


def _collect_passages(run: Run, traces: Sequence[Trace], corpus: str | None) -> KnownPassages:
    """Collect the passages that the gold of some traces may name, from all chunks of the run and from a corpus."""
    golds = [trace.gold for trace in traces if trace.gold is not None]
    ids = {name for gold in golds for name in gold.chunks}
    documents = {span.document for gold in golds for span in gold.spans}
    texts: dict[str, str] = {}
    for document in read_documents(corpus) if corpus is not None else ():
        if document.id in ids or document.id in documents:
            texts[document.id] = document.text
    passages = KnownPassages(documents=texts)
    for trace in run.traces(fields=["chunks"]) if golds else ():
        for chunk in trace.chunks or ():
            if chunk.id in ids or chunk.document in documents:
                passages.add(chunk)
    return passages


def _plan_requests(cases: Sequence[ReplayCase], *, needs_messages: bool) -> Iterator[PlannedReplay]:
    """Plan the requests of each case; an app of the user gets its chunks, and no request."""
    templates = read_templates([case.trace for case in cases]) if needs_messages else [""] * len(cases)
    for case, template in zip(cases, templates, strict=True):
        plan = plan_proof(case)
        if isinstance(plan, ProofRefused):
            yield PlannedReplay(case, refused=plan.reason)
        elif not needs_messages:
            yield PlannedReplay(case, plan)
        elif plan.chunks is None and case.trace.messages:
            yield PlannedReplay(case, plan, case.trace.messages, case.trace.messages)
        elif isinstance(template, RequestTemplate):
            yield _plan_changed(case, plan, template)
        else:
            yield PlannedReplay(case, refused=template)


def _plan_changed(case: ReplayCase, plan: PlannedProof, template: RequestTemplate) -> PlannedReplay:
    try:
        changed = render_request(template, plan.chunks or ())
    except RequestRefused as error:
        return PlannedReplay(case, refused=str(error))
    same = case.trace.messages or ()
    if changed == same:
        return PlannedReplay(case, refused=f"the request is already what it would be changed to ({plan.intervention})")
    return PlannedReplay(case, plan, same, changed)
