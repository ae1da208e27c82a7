"""Requests to a model as tracing tools record them: platforms by ways in which prompts show their passages."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from typing import Any

from ragfault.model.records import Chunk

PASSAGES = (
    (
        "When does the ferry counter close in winter?",
        "At 18:15.",
        (
            Chunk(id="counter-1", text="The ferry counter closes at 18:15 in winter.\nIn summer it closes at 21:00."),
            Chunk(id="counter-2", text='The sign says: "no bicycles on deck" & means it; children < 6 travel free.'),
            Chunk(id="counter-3", text="Lost property is at the counter, for three months."),
        ),
    ),
    (
        "Wie viel kostet das Fahrrad?",
        "Es kostet 7 €.",
        (
            Chunk(id="fähre/1", text="Ein Fahrrad kostet 7 € – einfache Fahrt."),
            Chunk(id="fähre/2", text="Hunde fahren „kostenlos“ mit.\n\n  * an der Leine\n  * nicht im Salon"),
            Chunk(id="fähre/3", text="Der Kiosk verkauft Tee.\tKaffee gibt es im Salon."),
            Chunk(id="fähre/4", text="Gruppen ab zehn Personen zahlen weniger."),
        ),
    ),
    (
        "How many berths are there?",
        "24",
        (Chunk(id="b1", text="24 berths are for guests."), Chunk(id="b2", text="The crane lifts 24 tonnes at most.")),
    ),
    (
        "What does the marina charge?",
        "30 euros a night.",
        (Chunk(id="m1", text="The marina charges 30 euros a night; water and power are included."),),
    ),
)
"""Questions with their answers and passages: lines, quotes, signs of markup, other scripts, one passage alone."""
NEW = Chunk(id="new-9", text='Since May the counter "closes" at 19:45.\nAsk the crew.')
Framing = Callable[[Sequence[Chunk]], str]


def indent(text: str, by: str) -> str:
    return text.replace("\n", f"\n{by}")


FRAMINGS: dict[str, tuple[Framing, str]] = {
    "joined": (lambda chunks: "\n\n".join(chunk.text for chunk in chunks), "\n\n"),
    "numbered": (lambda chunks: "\n".join(f"[{n}] {chunk.text}" for n, chunk in enumerate(chunks, 1)), "\n"),
    "numbered from 0": (lambda chunks: "\n".join(f"({n}) {chunk.text}" for n, chunk in enumerate(chunks)), "\n"),
    "headed": (lambda chunks: "\n\n".join(f"Document {n}:\n{chunk.text}" for n, chunk in enumerate(chunks, 1)), "\n\n"),
    "with ids": (lambda chunks: "\n\n".join(f"id: {chunk.id}\n{chunk.text}" for chunk in chunks), "\n\n"),
    "bullets": (lambda chunks: "\n".join(f"- {indent(chunk.text, '  ')}" for chunk in chunks), "\n"),
    "JSON": (
        lambda chunks: json.dumps([{"id": chunk.id, "text": chunk.text} for chunk in chunks], ensure_ascii=False),
        ", ",
    ),
    "JSON in ASCII": (lambda chunks: json.dumps([{"content": chunk.text} for chunk in chunks]), ", "),
    "HTML": (lambda chunks: "\n".join(f"<p>{html.escape(chunk.text)}</p>" for chunk in chunks), "\n"),
    "XML": (
        lambda chunks: "\n".join(
            f'<doc index="{n}" id="{chunk.id}">\n{chunk.text}\n</doc>' for n, chunk in enumerate(chunks, 1)
        ),
        "\n",
    ),
    "one line": (lambda chunks: "\n".join(f"* {' '.join(chunk.text.split())}" for chunk in chunks), "\n"),
    "guillemets": (lambda chunks: "\n".join(f"[{n}] «{chunk.text}»" for n, chunk in enumerate(chunks, 1)), "\n"),
}
"""Ways in which a prompt shows passages, and what stands between two of them."""

PROMPTS: dict[str, tuple[str, str, str]] = {
    "LangChain": (
        "You are an assistant for question-answering tasks.",
        "Use the following pieces of retrieved context to answer.\n\n",
        "\n\nQuestion: {query}",
    ),
    "LlamaIndex": (
        "You are an expert Q&A system.",
        "Context information is below.\n---------------------\n",
        "\n---------------------\nGiven the context, answer the query.\nQuery: {query}\nAnswer: ",
    ),
    "DSPy": (
        "Your input fields are `context` and `question`.",
        "[[ ## context ## ]]\n",
        "\n\n[[ ## question ## ]]\n{query}\n\nRespond with the field `answer`.",
    ),
    "Haystack": ("", "Answer by these documents.\nDocuments:\n", "\n\nQuestion: {query}\nAnswer:"),
}
"""Prompt of a framework: system message, head and foot of the user's message."""


def write_messages(prompt: str, framing: str, query: str, chunks: Sequence[Chunk]) -> list[dict[str, str]]:
    """Write the messages that a framework sends."""
    system, head, foot = PROMPTS[prompt]
    user = {"role": "user", "content": f"{head}{FRAMINGS[framing][0](chunks)}{foot.format(query=query)}"}
    return [{"role": "system", "content": system}, user] if system else [user]


def write_span(number: int, kind: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """Write a span as JSON of OTLP; the first one is the root."""
    values = [
        {"key": key, "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)}}
        for key, value in attributes.items()
    ]
    return {
        "traceId": f"{7:032x}",
        "spanId": f"{number:016x}",
        **({"parentSpanId": f"{1:016x}"} if number > 1 else {}),
        "name": kind,
        "startTimeUnixNano": str(1_790_000_000_000_000_000 + number * 1000),
        "endTimeUnixNano": str(1_790_000_000_000_000_000 + number * 1000 + 500),
        "attributes": values,
    }


def write_otlp(spans: list[dict[str, Any]]) -> str:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})


def record_openinference(query: str, answer: str, chunks: Sequence[Chunk], messages: Sequence[dict[str, str]]) -> str:
    """Record a trace as OpenInference does, for LangChain and LlamaIndex alike."""
    retrieved = {}
    for place, chunk in enumerate(chunks):
        retrieved[f"retrieval.documents.{place}.document.id"] = chunk.id
        retrieved[f"retrieval.documents.{place}.document.content"] = chunk.text
    asked = {}
    for place, message in enumerate(messages):
        asked[f"llm.input_messages.{place}.message.role"] = message["role"]
        asked[f"llm.input_messages.{place}.message.content"] = message["content"]
    asked |= {
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": answer,
        "llm.model_name": "m",
        "llm.invocation_parameters": {"temperature": 0.3, "model": "m"},
    }
    return write_otlp(
        [
            write_span(1, "ask", {"openinference.span.kind": "CHAIN", "input.value": query, "output.value": answer}),
            write_span(2, "search", {"openinference.span.kind": "RETRIEVER", "input.value": query, **retrieved}),
            write_span(3, "chat", {"openinference.span.kind": "LLM", **asked}),
        ]
    )


def record_gen_ai(query: str, answer: str, chunks: Sequence[Chunk], messages: Sequence[dict[str, str]]) -> str:
    """Record a trace by the gen_ai conventions of OpenTelemetry."""
    given = [{"role": item["role"], "parts": [{"type": "text", "content": item["content"]}]} for item in messages]
    return write_otlp(
        [
            write_span(
                1, "ask", {"gen_ai.operation.name": "invoke_workflow", "input.value": query, "output.value": answer}
            ),
            write_span(
                2,
                "retrieval",
                {
                    "gen_ai.operation.name": "retrieval",
                    "gen_ai.retrieval.query.text": query,
                    "gen_ai.retrieval.documents": [{"id": chunk.id, "content": chunk.text} for chunk in chunks],
                },
            ),
            write_span(
                3,
                "chat",
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.input.messages": given,
                    "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": answer}]}],
                },
            ),
        ]
    )


def record_langfuse(query: str, answer: str, chunks: Sequence[Chunk], messages: Sequence[dict[str, str]]) -> str:
    """Record a trace as Langfuse exports it."""
    common = {"traceId": "t1", "startTime": "2026-03-01T10:00:01Z", "endTime": "2026-03-01T10:00:02Z"}
    documents = [{"id": chunk.id, "page_content": chunk.text} for chunk in chunks]
    search = {**common, "id": "o1", "type": "RETRIEVER", "name": "search", "input": query, "output": documents}
    chat = {**common, "id": "o2", "type": "GENERATION", "name": "chat", "input": list(messages), "output": answer}
    chat |= {"startTime": "2026-03-01T10:00:03Z", "endTime": "2026-03-01T10:00:04Z", "model": "m"}
    return json.dumps(
        {
            "id": "t1",
            "timestamp": "2026-03-01T10:00:00Z",
            "name": "ask",
            "input": query,
            "output": answer,
            "observations": [search, chat],
        }
    )


def record_langsmith(query: str, answer: str, chunks: Sequence[Chunk], messages: Sequence[dict[str, str]]) -> str:
    """Record a run of LangChain as LangSmith exports it, messages as the calls that make them."""
    classes = {"system": "SystemMessage", "user": "HumanMessage"}
    constructed = [
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "messages", classes[item["role"]]],
            "kwargs": {"content": item["content"]},
        }
        for item in messages
    ]
    times = {"start_time": "2026-03-01T10:00:01", "end_time": "2026-03-01T10:00:02"}
    documents = [{"page_content": chunk.text, "metadata": {"id": chunk.id}, "type": "Document"} for chunk in chunks]
    reply = {"generations": [[{"text": answer, "message": {"kwargs": {"content": answer, "type": "ai"}}}]]}
    search = {"id": "r2", "run_type": "retriever", "inputs": {"query": query}, "outputs": {"documents": documents}}
    chat = {"id": "r3", "run_type": "llm", "inputs": {"messages": [constructed]}, "outputs": reply}
    later = {"start_time": "2026-03-01T10:00:03", "end_time": "2026-03-01T10:00:04"}
    return json.dumps(
        {
            "id": "r1",
            "trace_id": "r1",
            "run_type": "chain",
            "name": "ask",
            "inputs": {"question": query},
            "outputs": {"answer": answer},
            "start_time": "2026-03-01T10:00:00",
            "end_time": "2026-03-01T10:00:05",
            "child_runs": [{**search, **times, "name": "search"}, {**chat, **later, "name": "chat"}],
        }
    )


RECORDERS: dict[str, tuple[str, Callable[..., str]]] = {
    "OpenInference LangChain": ("LangChain", record_openinference),
    "OpenInference LlamaIndex": ("LlamaIndex", record_openinference),
    "gen_ai spans": ("LangChain", record_gen_ai),
    "Langfuse": ("LangChain", record_langfuse),
    "LangSmith": ("LangChain", record_langsmith),
    "DSPy": ("DSPy", record_gen_ai),
    "Haystack": ("Haystack", record_gen_ai),
}
"""Tool → the prompt of its framework, and how it records a trace."""
