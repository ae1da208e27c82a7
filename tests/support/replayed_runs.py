"""Runs whose answers come from a programmed model, for tests of replays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragfault.evaluation.evaluator import evaluate
from ragfault.io.runs.run import Run
from ragfault.model.records import Chunk, ConversationTurn, Gold, Trace


def make_chunks(number: int) -> tuple[Chunk, list[Chunk]]:
    """Return the right passage of a question, and others."""
    right = Chunk(id=f"g{number}", text=f"Opening times, part {number}.\nThe museum {number} opens at 9:{10 + number}.")
    others = [
        Chunk(id=f"o{number}-{at}", text=f"Page {at} of {number}.\nThe library {at}{number} opens at 1{at}:30.")
        for at in (1, 2, 3)
    ]
    return right, others


def make_trace(
    number: int,
    program: str,
    *,
    shown: bool,
    answer: str = "It opens at 4:44.",
    settings: dict[str, float] | None = None,
) -> Trace:
    """Return a trace whose request shows the right passage, or only others."""
    right, others = make_chunks(number)
    chunks = [right, *others[:2]] if shown else others
    context = "\n\n".join(f"[{at}] {chunk.text}" for at, chunk in enumerate(chunks, 1))
    query = f"When does the museum {number} open?"
    return Trace(
        id=str(number),
        query=query,
        chunks=tuple(chunks),
        answer=answer,
        messages=(
            ConversationTurn(role="system", text=f"Answer from the passages. [program: {program}]"),
            ConversationTurn(role="user", text=f"Passages:\n{context}\n\nQuestion: {query}"),
        ),
        reference=f"It opens at 9:{10 + number}.",
        gold=Gold(chunks={right.id: 1.0}),
        metadata={"right": right.text, **({"request_settings": settings} if settings else {})},
    )


def write_run(traces: Sequence[Trace], path: Path) -> Run:
    """Evaluate traces as a run."""
    return evaluate(traces, path, judge="lexical", metrics=["completeness"], force=True)
