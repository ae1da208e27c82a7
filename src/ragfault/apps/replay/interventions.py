"""What is changed in a request to prove a cause, and what must happen then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ragfault.apps.replay.records import Expectation, Intervention
from ragfault.diagnosis.causes.records import AnswerCause
from ragfault.model.causes import CauseName
from ragfault.model.gold_evidence import measure_coverage
from ragfault.model.records import Chunk, Gold, Span, Trace, Verdicts
from ragfault.model.rules import RELEVANT_LEVELS


class ReplayCase(NamedTuple):
    """A bad answer with what a replay can put into its request."""

    trace: Trace
    cause: AnswerCause
    gold: tuple[Chunk, ...]
    """The passages that hold the answer, by gold; empty where their texts are not known."""
    relevant: tuple[Chunk, ...]
    """The same by gold, else the shown chunks that the judge finds relevant."""
    retrieved: tuple[Chunk, ...] | None = None
    """What the retriever of the user returns for the query; None without one."""


class PlannedProof(NamedTuple):
    """The change that proves a cause."""

    intervention: Intervention
    expected: Expectation
    """What the answers become if the cause is the one that is named."""
    chunks: tuple[Chunk, ...] | None
    """The chunks of the changed request; None: the request as it was."""


class ProofRefused(NamedTuple):
    """Why a cause cannot be put to the proof."""

    reason: str


NO_GOLD = "the text of no passage that holds the answer is known: give --corpus, or gold in the traces"


def _plan_gold_first(case: ReplayCase) -> PlannedProof | ProofRefused:
    """Put the right passages first; as many of the last chunks leave as come in."""
    if case.retrieved is not None:
        return PlannedProof("retrieved again", "right", case.retrieved)
    if not case.gold:
        return ProofRefused(NO_GOLD)
    shown = case.trace.chunks or ()
    gold_ids = {chunk.id for chunk in case.gold}
    others = [chunk for chunk in shown if chunk.id not in gold_ids]
    room = max(len(shown), len(case.gold)) - len(case.gold)
    return PlannedProof("gold first", "right", (*case.gold, *others[:room]))


def _plan_without_suspect(case: ReplayCase) -> PlannedProof | ProofRefused:
    """Leave out the chunk that the cause names; the right passage takes its place where it was not shown."""
    shown = case.trace.chunks or ()
    if case.cause.chunk is None or case.cause.chunk not in {chunk.id for chunk in shown}:
        return ProofRefused("the cause names no chunk that was shown")
    remaining = tuple(chunk for chunk in shown if chunk.id != case.cause.chunk)
    ids = {chunk.id for chunk in remaining}
    absent = tuple(chunk for chunk in case.gold if chunk.id not in ids and chunk.id != case.cause.chunk)
    return PlannedProof("without the suspected chunk", "right", (*absent, *remaining))


def _plan_gold_only(case: ReplayCase) -> PlannedProof | ProofRefused:
    """Show the right passages and nothing else: what is still wrong then is the generator's fault."""
    if not case.relevant:
        return ProofRefused(NO_GOLD)
    return PlannedProof("gold only", "bad", case.relevant)


def _plan_without_chunks(_: ReplayCase) -> PlannedProof | ProofRefused:
    return PlannedProof("without any chunk", "bad", ())


def _plan_same_again(_: ReplayCase) -> PlannedProof | ProofRefused:
    return PlannedProof("the same again", "bad", None)


def _refuse_failure(_: ReplayCase) -> PlannedProof | ProofRefused:
    return ProofRefused("a step of the pipeline failed, and a replay asks only the model")


def _refuse_undecided(_: ReplayCase) -> PlannedProof | ProofRefused:
    return ProofRefused("no cause is named, so there is none to remove")


PROOFS: Mapping[CauseName, Callable[[ReplayCase], PlannedProof | ProofRefused]] = {
    "failed": _refuse_failure,
    "undecided": _refuse_undecided,
    **dict.fromkeys(("blank", "not_an_answer", "cut_off", "other_language"), _plan_same_again),
    **dict.fromkeys(
        ("query_changed", "history_ignored", "not_shown", "not_retrieved", "wrong_entity", "not_covered"),
        _plan_gold_first,
    ),
    **dict.fromkeys(("stale_source", "wrong_source"), _plan_without_suspect),
    **dict.fromkeys(("refused", "contradicted", "invented", "left_out", "off_topic"), _plan_gold_only),
    "answered_unanswerable": _plan_without_chunks,
}
"""Cause → the change that proves it. A cause before the generator is removed, and the answer must become right. A cause
in the generator cannot be removed from a request: it gets the best request, and the answer must stay bad."""


def plan_proof(case: ReplayCase) -> PlannedProof | ProofRefused:
    """Plan the proof of the cause of a bad answer.

    >>> trace = Trace(id="1", query="When?", chunks=(Chunk(id="a", text="On dogs."),))
    >>> from ragfault.diagnosis.causes.records import AnswerRating
    >>> rating = AnswerRating(outcome="bad", probability=1.0, source="answer key")
    >>> cause = AnswerCause(trace="1", query="When?", rating=rating, stage="retrieval", cause="not_retrieved")
    >>> gold = (Chunk(id="g", text="At ten."),)
    >>> plan = plan_proof(ReplayCase(trace, cause, gold, gold))
    >>> plan.intervention, plan.expected, [chunk.id for chunk in plan.chunks]
    ('gold first', 'right', ['g'])
    """
    assert case.cause.cause is not None
    return PROOFS[case.cause.cause](case)


class KnownPassages:
    """The chunks of a run and of a corpus, in which gold is looked up."""

    def __init__(self, chunks: Iterable[Chunk] = (), documents: Mapping[str, str] | None = None) -> None:
        self._by_id: dict[str, Chunk] = {}
        self._by_document: dict[str, list[Chunk]] = {}
        self._documents = documents or {}
        for chunk in chunks:
            self.add(chunk)

    def add(self, chunk: Chunk) -> None:
        """Add a chunk; the first one with text counts for its id."""
        if not chunk.text.strip() or chunk.id in self._by_id:
            return
        self._by_id[chunk.id] = chunk
        if chunk.document is not None:
            self._by_document.setdefault(chunk.document, []).append(chunk)

    def find_gold(self, gold: Gold | None) -> tuple[Chunk, ...]:
        """Find the passages that gold names; empty where the text of any is not known.

        Of chunks that gold names by their ids all are needed, as it may need several to answer.
        """
        if gold is None:
            return ()
        names = [name for name, grade in gold.chunks.items() if grade > 0]
        known = [self._by_id.get(name) or self._cut_document(name) for name in names]
        # Ids of another chunking than the run's are known to nobody; the spans then say where the answer stands.
        needs_spans = not names or None in known
        spans = [self._find_span(span) for span in gold.spans if span.grade > 0] if needs_spans else []
        chosen = spans or known
        return tuple({chunk.id: chunk for chunk in chosen if chunk is not None}.values()) if None not in chosen else ()

    def _cut_document(self, name: str) -> Chunk | None:
        text = self._documents.get(name)
        return None if text is None else Chunk(id=name, text=text, document=name)

    def _find_span(self, span: Span) -> Chunk | None:
        """Find the shortest chunk that covers a span, else the text of the span itself."""
        covering = [
            chunk
            for chunk in self._by_document.get(span.document, ())
            if chunk.start is not None and chunk.end is not None and chunk.start <= span.start and span.end <= chunk.end
        ]
        if covering:
            return min(covering, key=lambda chunk: len(chunk.text))
        document = self._documents.get(span.document)
        text = document[span.start : span.end] if document is not None else span.quote
        if not text or not text.strip():
            return None
        return Chunk(
            id=f"{span.document}@{span.start}", text=text, document=span.document, start=span.start, end=span.end
        )


def list_relevant(trace: Trace, verdicts: Verdicts, gold: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """List the passages that hold the answer: by gold, else the shown chunks that the judge finds relevant."""
    if gold:
        return tuple(gold)
    shown = trace.chunks or ()
    coverage = measure_coverage(trace)
    levels = coverage.levels if coverage is not None else [chunk.level for chunk in verdicts.chunk or ()]
    return tuple(chunk for chunk, level in zip(shown, levels, strict=False) if level in RELEVANT_LEVELS)


def change_trace(trace: Trace, chunks: Sequence[Chunk] | None, answer: str) -> Trace:
    """Return a trace with other chunks and another answer, as the judge is to see it."""
    return replace(
        trace,
        chunks=trace.chunks if chunks is None else tuple(chunks),
        answer=answer,
        citations=None,
        messages=None,
        steps=None,
        latency=None,
        tokens=None,
        error=None,
    )
