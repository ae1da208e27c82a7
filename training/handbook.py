"""Record the demo data: two versions of a small RAG system over the handbook, always with the same bytes.

    python training/handbook.py          writes questions.jsonl, traces-v1.jsonl and traces-v2.jsonl

The handbook (`src/ragfault/datasets/handbook/*.md`) and the questions (`handbook.toml`) are written by hand. What is
recorded here is what two versions of a system make of them:

v1  cuts the documents by section, retrieves the three best chunks that score at least half of the best one, and
    seldom errs.
v2  "smaller chunks are more precise": single sentences without headings, long ones cut in two, ten of
    them without a least score; and a new prompt that asks for helpful detail. It lost the titles, the heads
    of the tables and the sentences that belong together, and it adds statements, alters numbers and misquotes.

Retrieval is a real BM25. The writer stands for a language model: where a person wrote an answer it uses that,
provided that the chunks contain what the answer rests on; elsewhere it selects sentences and rewrites them.
Every random number is a hash of the question, so that nothing depends on the order or the platform.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from handbook_retriever import Index, cut_sections, cut_sentences, draw_number
from handbook_writer import AnswerSentence, Question, Version, write_answer

from ragfault.model.records import Chunk, Citation, Gold, Latency, Span, TokenCounts, Trace

HERE = Path(__file__).parent
HANDBOOK = HERE.parent / "src" / "ragfault" / "io" / "datasets" / "handbook"
MODEL = "gpt-4o-mini"

VERSIONS = (
    Version(
        "v1", cut_sections, 3, 0.5, datetime(2025, 5, 5, 6, tzinfo=UTC), 0.9, 0.02, 0.04, 0.03,
        {"harbour-14": "generation: timed out after 30 s"},
    ),
    Version(
        "v2", cut_sentences, 10, 0.0, datetime(2025, 6, 2, 6, tzinfo=UTC), 0.35, 0.1, 0.4, 0.25,
        {"travel-12": "retrieval: index unavailable (503)", "staff-11": "generation: timed out after 30 s"},
    ),
)  # fmt: skip


def locate_quote(documents: dict[str, str], source: str) -> Span:
    """Return the span of a quote given as "document: quote" or "2* document: quote"."""
    grade = 2.0 if source.startswith("2* ") else 1.0
    stem, _, quote = source.removeprefix("2* ").partition(": ")
    text = documents[f"{stem}.md"]
    if text.count(quote) != 1:
        raise ValueError(f"{stem}.md holds {text.count(quote)} times, and should hold once: {quote}")
    start = text.index(quote)
    return Span(document=f"{stem}.md", start=start, end=start + len(quote), grade=grade)


def build_traces(documents: dict[str, str], questions: list[Question]) -> list[Trace]:
    """Build a trace without chunks and answer for each question."""
    traces = []
    turns: Counter[str] = Counter()
    for question in questions:
        conversation = question.get("conversation")
        turns[conversation] += 1
        spans = tuple(locate_quote(documents, source) for source in question.get("gold", ()))
        traces.append(
            Trace(
                id=question["id"],
                query=question["query"],
                reference=question.get("reference"),
                facts=tuple(question["facts"]) if spans else None,
                gold=Gold(spans=spans) if spans else None,
                route=question["id"].split("-")[0],
                conversation=conversation,
                turn=turns[conversation] if conversation else None,
                answerable=None if spans else False,
            )
        )
    return traces


def complete_trace(
    version: Version, trace: Trace, time: datetime, chunks: tuple[Chunk, ...], sentences: list[AnswerSentence]
) -> Trace:
    """Return the trace with its chunks, answer and citations, and with latency and tokens."""
    error = version.errors.get(trace.id)
    if error:
        sentences = []
    text = " ".join(item.text for item in sentences)
    prompt = 210 + sum(len(chunk.text) for chunk in chunks) // 4 + len(trace.query) // 4
    retrieval = round(30 + 4 * version.top_k + 25 * draw_number(version.name, trace.id, "retrieval"), 1)
    generation = round(350 + 2.4 * len(text) + 240 * draw_number(version.name, trace.id, "generation"), 1)
    retrieval_failed = bool(error) and str(error).startswith("retrieval")
    if error:
        retrieval, generation = (2000.0, 0.0) if retrieval_failed else (retrieval, 30000.0)
    citations = tuple(Citation(chunk=c, quote=q, claim=item.text) for item in sentences for c, q in item.sources)
    return msgspec.structs.replace(
        trace,
        chunks=None if retrieval_failed else chunks,
        answer=None if error else text,
        citations=None if error else citations,
        time=time,
        model=MODEL,
        latency=Latency(retrieval=retrieval, generation=generation, total=round(retrieval + generation + 12, 1)),
        tokens=None if error else TokenCounts(prompt=prompt, completion=len(text) // 4),
        error=error,
        metadata=trace.metadata | {"version": version.name},
    )


def schedule_traces(traces: list[Trace], start: datetime) -> dict[str, datetime]:
    """Schedule the time of each question: over three weeks, the turns of a conversation 75 seconds apart."""
    keys = sorted({trace.conversation or trace.id for trace in traces}, key=lambda key: draw_number(key, "time"))
    step = timedelta(days=21) / len(keys)
    begins = {key: start + i * step + draw_number(key, "minute") * step / 2 for i, key in enumerate(keys)}
    return {
        trace.id: (begins[trace.conversation or trace.id] + timedelta(seconds=75 * (trace.turn or 0))).replace(
            microsecond=0
        )
        for trace in traces
    }


def run_version(
    version: Version, documents: dict[str, str], authored: dict[str, Any], faulty: set[tuple[str, str]]
) -> list[Trace]:
    """Run one version on all questions; return the traces by time, and add the faulty ones to a set."""
    index = Index([chunk for name, text in documents.items() for chunk in version.cut_chunks(name, text)])
    traces = build_traces(documents, authored["question"])
    times = schedule_traces(traces, version.start_time)
    previous_queries: dict[str, str] = {}
    traces_run = []
    for question, trace in zip(authored["question"], traces, strict=True):
        search_text = " ".join(filter(None, (previous_queries.get(trace.conversation or ""), trace.query)))
        if trace.conversation:
            previous_queries[trace.conversation] = trace.query
        chunks = index.search(search_text, version.top_k, version.score_floor)
        sentences = write_answer(version, question, trace, chunks, authored["elaborations"][trace.route])
        if any(item.faulty for item in sentences):
            faulty.add((version.name, trace.id))
        graded = msgspec.structs.replace(trace, gold=grade_chunks(trace.gold, index.chunks))
        traces_run.append(complete_trace(version, graded, times[trace.id], chunks, sentences))
    return sorted(traces_run, key=lambda trace: (trace.time, trace.id))


def grade_chunks(gold: Gold | None, chunks: list[Chunk]) -> Gold | None:
    """Return the gold with grades for the chunks of a version that overlap its spans."""
    if gold is None:
        return None
    grades: dict[str, float] = {}
    for span in gold.spans:
        for chunk in chunks:
            is_disjoint = (chunk.end or 0) <= span.start or (chunk.start or 0) >= span.end
            if chunk.document == span.document and not is_disjoint:
                grades[chunk.id] = max(span.grade, grades.get(chunk.id, 0.0))
    return Gold(chunks=grades, spans=gold.spans)


def build_files() -> dict[str, bytes]:
    """Build the files of the demo data; return name → content."""
    documents = {path.name: path.read_text(encoding="utf-8") for path in sorted(HANDBOOK.glob("*.md"))}
    authored = tomllib.loads((HERE / "handbook.toml").read_text(encoding="utf-8"))
    files = {"questions.jsonl": build_traces(documents, authored["question"])}
    faulty: set[tuple[str, str]] = set()
    traces_by_version = {version.name: run_version(version, documents, authored, faulty) for version in VERSIONS}
    files |= {f"traces-{name}.jsonl": traces for name, traces in traces_by_version.items()}
    rows = {name: b"".join(msgspec.json.encode(t) + b"\n" for t in traces) for name, traces in files.items()}
    labelled = [
        label_answer(name, trace, (name, trace.id) in faulty)
        for name, traces in traces_by_version.items()
        for trace in traces
    ]
    return {**rows, "labelled.jsonl": b"".join(msgspec.json.encode(row) + b"\n" for row in labelled if row)}


def label_answer(version: str, trace: Trace, is_faulty: bool) -> dict[str, Any] | None:
    """Return an answer with its label: 1 where it states what the chunks do not; None without an answer."""
    if trace.answer is None or not trace.chunks:
        return None
    return {
        "id": f"{version}/{trace.id}", "source_id": trace.id, "query": trace.query,
        "contexts": [chunk.text for chunk in trace.chunks], "answer": trace.answer, "label": int(is_faulty),
    }  # fmt: skip


if __name__ == "__main__":
    for name, content in build_files().items():
        (HANDBOOK / name).write_bytes(content)
        print(f"{name}: {content.count(10)} lines, {len(content) / 1000:.0f} kB")
