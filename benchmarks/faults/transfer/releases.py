"""Run a release of a system over questions, and record traces."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from msgspec import structs

from benchmarks.faults.transfer.answering import Habits, Response, answer_query
from benchmarks.faults.transfer.corpora import Corpus, Question
from benchmarks.faults.transfer.retrieving import Index, Passage, cut_documents
from ragfault.model.records import Chunk, Citation, ConversationTurn, Gold, Latency, Span, Step, Trace

Scored = tuple[Passage, float]
INDEXES: dict[tuple[Any, ...], Index] = {}
SYSTEMS: dict[str, dict[str, Any]] = {
    "squad": {"index": "tfidf", "size": 120, "k": 5, "habits": Habits("short", errors=0.08, cites=True)},
    "clapnq": {
        "index": "bm25",
        "size": 180,
        "k": 4,
        "rerank": "off",
        "habits": Habits("verbose", errors=0.15, sentences=3),
    },
    "reports": {"index": "tfidf", "size": 90, "k": 6, "habits": Habits("list", errors=0.12, sentences=3, cites=True)},
    "conversations": {"index": "bm25", "size": 150, "k": 5, "habits": Habits("sentences", errors=0.2)},
    "documentation": {"index": "tfidf", "size": 110, "k": 5, "habits": Habits("sentences", errors=0.25, cites=True)},
}


@dataclass(frozen=True)
class Release:
    """Settings of a system, and places at which a fault acts."""

    index: str = "hybrid"
    size: int = 120
    splitter: str = "sentences"
    k: int = 5
    pool: int = 20
    rerank: str = "on"
    habits: Habits = field(default_factory=Habits)
    history: bool = True
    seed: int = 0
    documents: Callable[[Corpus, random.Random], dict[str, str]] | None = None
    passages: Callable[[list[Passage], random.Random], list[Passage]] | None = None
    query: Callable[[str], str] | None = None
    admit: Callable[[Question, Passage], bool] | None = None
    chosen: Callable[[list[Scored], Question], list[Scored]] | None = None
    seen: Callable[[list[Passage]], list[Passage]] | None = None
    respond: Callable[[Response, Question, random.Random, Sequence[Passage]], Response] | None = None
    record: Callable[[Trace, random.Random], Trace] | None = None
    finish: Callable[[list[Trace]], list[Trace]] | None = None


@dataclass(frozen=True)
class Output:
    """Traces, and the shares of right answers and of lists that hold the answer."""

    traces: list[Trace]
    right: float
    hits: float


def seed_draw(*parts: object) -> random.Random:
    """Return a generator of random numbers that depends on the parts alone."""
    return random.Random(zlib.crc32("/".join(map(str, parts)).encode()))


def open_index(corpus: Corpus, release: Release) -> Index:
    """Return the index of a release, the same one where nothing acts on it."""
    key = (corpus.name, release.size, release.splitter, release.index, release.documents, release.passages)
    if key not in INDEXES:
        draw = seed_draw(corpus.name, "index")
        documents = release.documents(corpus, draw) if release.documents else corpus.documents
        passages = cut_documents(documents, corpus.groups, release.size, release.splitter)
        INDEXES[key] = Index(release.passages(passages, draw) if release.passages else passages, release.index)
    return INDEXES[key]


def write_query(question: Question, release: Release) -> str:
    """Return the query for the search: with the names and rare words of the two turns before."""
    query = question.query
    if question.history and release.history:
        turns = [text for role, text in question.history if role == "user"][-2:]
        words = [w for text in turns for w in re.findall(r"\w{4,}", text)]
        query = " ".join([query, *dict.fromkeys(words)])
    return release.query(query) if release.query else query


def search_index(index: Index, question: Question, query: str, release: Release) -> list[Scored]:
    """Return the passages for a query with their scores, the best first."""
    scores = index.score_passages(query)
    order = [int(place) for place in np.argsort(-scores, kind="stable")]
    if release.admit:
        order = [place for place in order if release.admit(question, index.passages[place])]
    places = order[: release.pool if release.rerank != "off" else release.k]
    ranked = [(place, float(scores[place])) for place in places]
    if release.rerank != "off":
        ranked = index.rerank(query, places) if places else []
        if release.rerank == "reversed":
            ranked.reverse()
    ranked_passages = [(index.passages[place], score) for place, score in ranked[: release.k]]
    return release.chosen(ranked_passages, question) if release.chosen else ranked_passages


def record_trace(
    question: Question, query: str, ranked_passages: Sequence[Scored], answer: Response, release: Release, at: int
) -> Trace:
    """Record what a pipeline logs of one query."""
    chunks = tuple(
        Chunk(p.id, p.text, round(s, 4), p.document, p.start, p.end, metadata={"group": p.group})
        for p, s in ranked_passages
    )
    citations = tuple(Citation(p.id, s, None) for p, s in answer.used) if release.habits.cites else None
    steps = None
    if question.history:
        steps = (
            Step("1", kind="rewrite", input=question.query, output=query, start=0.0),
            Step("2", kind="retrieve", input=query, chunks=tuple(c.id for c in chunks), start=40.0),
            Step("3", kind="generate", output=answer.text, start=120.0),
        )
    spans = tuple(Span(document, start, end) for document, start, end in question.spans)
    return Trace(
        id=question.id,
        query=question.query,
        history=tuple(ConversationTurn(role, text) for role, text in question.history) or None,
        chunks=chunks,
        answer=answer.text,
        citations=citations,
        reference=question.references or None,
        gold=Gold(spans=spans) if spans else None,
        answerable=question.answerable,
        route=question.group,
        time=datetime(2026, 3, 2, tzinfo=UTC) + timedelta(minutes=7 * at + 20_000 * (release.seed > 0)),
        steps=steps,
        latency=Latency(80.0 + at % 9, 900.0 + len(answer.text), 1000.0 + len(answer.text)),
    )


def run_release(corpus: Corpus, release: Release, questions: Sequence[Question]) -> Output:
    """Answer questions with a release."""
    index = open_index(corpus, release)
    traces, right, hits = [], [], []
    for at, question in enumerate(questions):
        query = write_query(question, release)
        ranked_passages = search_index(index, question, query, release)
        passages = [passage for passage, _ in ranked_passages]
        seen = release.seen(passages) if release.seen else passages
        draws = seed_draw(corpus.name, question.id), seed_draw(corpus.name, question.id, release.seed)
        answer = answer_query(question, query, seen, release.habits, index.passages, draws)
        if release.respond:
            answer = release.respond(answer, question, draws[1], passages)
        trace = record_trace(question, query, ranked_passages, answer, release, at)
        traces.append(release.record(trace, draws[1]) if release.record else trace)
        right.append(answer.right)
        spots = {(p.document, p.start, p.end) for p in passages}
        hits.append(any(d == s[0] and s[1] < e and b < s[2] for d, b, e in spots for s in question.spans))
    if release.finish:
        traces = release.finish(traces)
    return Output(traces, float(np.mean(right)), float(np.mean(hits)))


def build_base(corpus: Corpus, **changes: Any) -> Release:
    """Return the release of a system before a change, or with one."""
    return replace(Release(**SYSTEMS[corpus.name]), **changes)


def hide_key(trace: Trace) -> Trace:
    """Return a trace without gold, reference and answerability."""
    return structs.replace(trace, gold=None, reference=None, answerable=None)
