"""Record the demo data: two versions of a small RAG system over the handbook, always with the same bytes.

    python training/handbook.py          writes questions.jsonl, traces-v1.jsonl and traces-v2.jsonl

The handbook (`src/ragfault/datasets/handbook/*.md`) and the questions (`handbook.toml`) are written by hand. What is
recorded here is what two versions of a system make of them:

v1  cuts the documents by section, keeps the three best that come near the best one, answers soberly.
v2  "smaller chunks are more precise": single sentences without headings, long ones cut in two, ten of
    them without a floor; and a new prompt that asks for helpful detail. It lost the titles, the heads
    of the tables and the sentences that belong together, and it embroiders, alters and misquotes.

Retrieval is a real BM25. The writer stands for a language model: where a person wrote an answer it uses that,
provided that the chunks hold what the answer rests on; elsewhere it picks sentences and phrases them.
All chance is drawn from a hash of the question, so that nothing depends on the order or the platform.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from handbook_retriever import Index, by_section, by_sentence, chance
from handbook_writer import AnswerSentence, Question, Version, answer

from ragfault.records import Chunk, Citation, Gold, Latency, Span, TokenCounts, Trace

HERE = Path(__file__).parent
HANDBOOK = HERE.parent / "src" / "ragfault" / "io" / "datasets" / "handbook"
MODEL = "gpt-4o-mini"

VERSIONS = (
    Version(
        "v1", by_section, 3, 0.5, datetime(2025, 5, 5, 6, tzinfo=UTC), 0.9, 0.02, 0.04, 0.03,
        {"harbour-14": "generation: timed out after 30 s"},
    ),
    Version(
        "v2", by_sentence, 10, 0.0, datetime(2025, 6, 2, 6, tzinfo=UTC), 0.35, 0.1, 0.4, 0.25,
        {"travel-12": "retrieval: index unavailable (503)", "staff-11": "generation: timed out after 30 s"},
    ),
)  # fmt: skip


def locate(documents: dict[str, str], source: str) -> Span:
    """Return the span of a quote given as "document: quote" or "2* document: quote"."""
    grade = 2.0 if source.startswith("2* ") else 1.0
    stem, _, quote = source.removeprefix("2* ").partition(": ")
    text = documents[f"{stem}.md"]
    if text.count(quote) != 1:
        raise ValueError(f"{stem}.md holds {text.count(quote)} times, and should hold once: {quote}")
    start = text.index(quote)
    return Span(document=f"{stem}.md", start=start, end=start + len(quote), grade=grade)


def ask(documents: dict[str, str], questions: list[Question]) -> list[Trace]:
    """Return the questions as traces that nobody has answered yet."""
    traces = []
    turns: Counter[str] = Counter()
    for question in questions:
        conversation = question.get("conversation")
        turns[conversation] += 1
        spans = tuple(locate(documents, source) for source in question.get("gold", ()))
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


def finish(
    version: Version, trace: Trace, time: datetime, chunks: tuple[Chunk, ...], message: list[AnswerSentence]
) -> Trace:
    """Return the trace with its answer and what it took."""
    error = version.errors.get(trace.id)
    if error:
        message = []
    text = " ".join(item.text for item in message)
    prompt = 210 + sum(len(chunk.text) for chunk in chunks) // 4 + len(trace.query) // 4
    retrieval = round(30 + 4 * version.keep + 25 * chance(version.name, trace.id, "retrieval"), 1)
    generation = round(350 + 2.4 * len(text) + 240 * chance(version.name, trace.id, "generation"), 1)
    retrieval_failed = bool(error) and str(error).startswith("retrieval")
    if error:
        retrieval, generation = (2000.0, 0.0) if retrieval_failed else (retrieval, 30000.0)
    citations = tuple(Citation(chunk=c, quote=q, claim=item.text) for item in message for c, q in item.sources)
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


def schedule(traces: list[Trace], start: datetime) -> dict[str, datetime]:
    """Return when each question came in: over three weeks, the turns of a conversation close together."""
    keys = sorted({trace.conversation or trace.id for trace in traces}, key=lambda key: chance(key, "time"))
    step = timedelta(days=21) / len(keys)
    begins = {key: start + i * step + chance(key, "minute") * step / 2 for i, key in enumerate(keys)}
    return {
        trace.id: (begins[trace.conversation or trace.id] + timedelta(seconds=75 * (trace.turn or 0))).replace(
            microsecond=0
        )
        for trace in traces
    }


def play(
    version: Version, documents: dict[str, str], authored: dict[str, Any], faulty: set[tuple[str, str]]
) -> list[Trace]:
    """Return all questions put to one version, in the order of time; name those with a faulty answer in a set."""
    index = Index([chunk for name, text in documents.items() for chunk in version.cut(name, text)])
    traces = ask(documents, authored["question"])
    times = schedule(traces, version.first)
    before: dict[str, str] = {}
    played = []
    for question, trace in zip(authored["question"], traces, strict=True):
        heard = " ".join(filter(None, (before.get(trace.conversation or ""), trace.query)))
        if trace.conversation:
            before[trace.conversation] = trace.query
        chunks = index.search(heard, version.keep, version.floor)
        message = answer(version, question, trace, chunks, authored["elaborations"][trace.route])
        if any(item.faulty for item in message):
            faulty.add((version.name, trace.id))
        graded = msgspec.structs.replace(trace, gold=grade(trace.gold, index.chunks))
        played.append(finish(version, graded, times[trace.id], chunks, message))
    return sorted(played, key=lambda trace: (trace.time, trace.id))


def grade(gold: Gold | None, chunks: list[Chunk]) -> Gold | None:
    """Return the gold with the chunks of this version that overlap its spans."""
    if gold is None:
        return None
    grades: dict[str, float] = {}
    for span in gold.spans:
        for chunk in chunks:
            apart = (chunk.end or 0) <= span.start or (chunk.start or 0) >= span.end
            if chunk.document == span.document and not apart:
                grades[chunk.id] = max(span.grade, grades.get(chunk.id, 0.0))
    return Gold(chunks=grades, spans=gold.spans)


def record() -> dict[str, bytes]:
    """Return the files of the demo data, by name."""
    documents = {path.name: path.read_text(encoding="utf-8") for path in sorted(HANDBOOK.glob("*.md"))}
    authored = tomllib.loads((HERE / "handbook.toml").read_text(encoding="utf-8"))
    files = {"questions.jsonl": ask(documents, authored["question"])}
    faulty: set[tuple[str, str]] = set()
    played = {version.name: play(version, documents, authored, faulty) for version in VERSIONS}
    files |= {f"traces-{name}.jsonl": traces for name, traces in played.items()}
    rows = {name: b"".join(msgspec.json.encode(t) + b"\n" for t in traces) for name, traces in files.items()}
    labelled = [label(name, trace, (name, trace.id) in faulty) for name, traces in played.items() for trace in traces]
    return {**rows, "labelled.jsonl": b"".join(msgspec.json.encode(row) + b"\n" for row in labelled if row)}


def label(version: str, trace: Trace, is_faulty: bool) -> dict[str, Any] | None:
    """Return an answer with the label that the writer knows: 1, it says what the chunks do not."""
    if trace.answer is None or not trace.chunks:
        return None
    return {
        "id": f"{version}/{trace.id}", "source_id": trace.id, "query": trace.query,
        "contexts": [chunk.text for chunk in trace.chunks], "answer": trace.answer, "label": int(is_faulty),
    }  # fmt: skip


if __name__ == "__main__":
    for name, content in record().items():
        (HANDBOOK / name).write_bytes(content)
        print(f"{name}: {content.count(10)} lines, {len(content) / 1000:.0f} kB")
