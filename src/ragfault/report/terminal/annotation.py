"""Items to label, each as a card for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ragfault.diagnosis.causes.table import CAUSES
from ragfault.labels.annotation.items import AnnotationItem, ItemKind, describe_verdict, list_choices
from ragfault.report.safe_text import clean_text, clip_text
from ragfault.report.terminal.layout import render_rich

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from ragfault.model.records import Chunk, Evidence


KIND_QUESTIONS: dict[ItemKind, str] = {
    "chunk": "How relevant is this chunk to the query?",
    "claim": "Do the chunks support this claim?",
    "citation": "Does the cited chunk support the claim?",
    "fact": "Does the answer state this fact?",
    "refusal": "Does the answer refuse, instead of answering?",
    "cause": "Why is the answer bad? The first cause in the order of the pipeline, or right.",
}

CHOICE_HELP: dict[str, str] = {
    "high": "answers the query, or a part of it", "medium": "helps to answer it",
    "low": "is on the same subject but does not help", "none": "is unrelated", "supported": "a chunk states it",
    "inferred": "it follows from what the chunks say", "unsupported": "no chunk states it",
    "contradicted": "a chunk contradicts it",
}  # fmt: skip
"""Meanings of the labels."""

COMMAND_KEYS = {"space": "skip", "b": "back", "z": "undo", "v": "texts in full", "?": "help", "q": "quit"}
"""Keys beside those of the labels."""

CHUNK_PREVIEW, CHUNK_LIMIT = 240, 1600
"""Characters of a chunk that holds no evidence, and of one that does, unless they are shown in full."""

EVIDENCE_STYLE = "bold black on yellow"


class CardView(NamedTuple):
    """What the card of an item shows."""

    answer: str | None = None
    """The label that the person has given."""
    judge: bool = False
    """Show the verdict of the judge."""
    full: bool = False
    """Show chunks in full."""
    explained: bool = False
    """Explain the choices."""
    width: int | None = None
    """Columns; None: those of the terminal."""
    color: bool = False


BLIND_VIEW = CardView()


def render_item(item: AnnotationItem, state: str, view: CardView = BLIND_VIEW) -> str:
    """Render one item with all that is needed to judge it; the judge's verdict stays hidden unless asked for.

    Chunks are shown without the answer, as they are to be judged. Evidence that the judge found is marked. Texts of
    the trace cannot steer the terminal.
    """
    from rich.text import Text

    parts: list[RenderableType] = [Text(clean_text(state), style="dim"), Text("Query", style="bold cyan")]
    parts.append(_indent_text(Text(clean_text(item.trace.query))))
    parts += _build_context(item, view.full, view.color)
    parts.append(Text(f"\n{KIND_QUESTIONS[item.kind]}", style="bold"))
    line = Text("  ")
    for choice in list_choices(item.kind):
        line.append(choice.letter, style="bold green").append(f" {choice.name}   ")
    parts.append(line)
    if view.explained:
        meanings: dict[str, str] = {**CHOICE_HELP, **{str(name): cause.title for name, cause in CAUSES.items()}}
        choices = [choice for choice in list_choices(item.kind) if choice.value in meanings]
        parts += [Text(f"    {choice.name}: {meanings[str(choice.value)]}", style="dim") for choice in choices]
    parts.append(Text("  " + "   ".join(f"{key} {name}" for key, name in COMMAND_KEYS.items()), style="dim"))
    if view.judge:
        source = "computed cause" if item.kind == "cause" else "verdict of the judge"
        parts.append(Text(f"  {source}: {describe_verdict(item) or 'none'}", style="magenta"))
    if view.answer is not None:
        parts.append(Text(f"  your label: {view.answer}", style="yellow"))
    return render_rich(parts, width=view.width, color=view.color)


def _indent_text(text: Text) -> RenderableType:
    from rich.padding import Padding

    return Padding(text, (0, 0, 0, 2))


def _build_context(item: AnnotationItem, full: bool, color: bool) -> Iterator[RenderableType]:
    """Build what an item is judged by."""
    from rich.text import Text

    def head(text: str) -> Text:
        return Text(f"\n{text}", style="bold cyan")

    trace, key = item.trace, item.key
    chunks = list(trace.chunks or ())
    if item.kind == "chunk":
        yield head(f"Chunk {item.position + 1} of {len(chunks)}")
        yield _indent_text(Text(clean_text(chunks[item.position].text)))
        return
    if item.kind in ("claim", "citation", "cause"):
        chunk_ids = [piece for piece in chunks if piece.id == key[1]] if item.kind == "citation" else chunks
        yield head("The cited chunk" if item.kind == "citation" else "Chunks")
        for chunk in chunk_ids:
            claims = [claim for claim in item.verdicts.claim or () if (claim.start, claim.end) == key[1:]][:1]
            chunks_item = [piece for claim in claims for piece in claim.evidence if piece.chunk == chunk.id]
            yield _indent_text(_build_chunk(chunk, chunks_item, full or item.kind == "citation", color))
    yield head("Answer")
    answer = trace.answer or (f"(no answer: {trace.error})" if trace.error else "")
    ends = (int(key[1]), int(key[2])) if item.kind == "claim" else (0, 0)
    yield _indent_text(_highlight_spans(answer, [ends] if ends[1] else [], "bold", color))
    if item.kind == "cause":
        expected = [*trace.references, *(trace.facts or ())]
        expected += ["it cannot be answered"] if trace.answerable is False else []
        yield from [head("Answer key")] if expected else []
        yield from (_indent_text(Text(clean_text(text))) for text in expected)
    if item.kind in ("citation", "fact"):
        yield head("Claim" if item.kind == "citation" else "Fact")
        yield _indent_text(Text(clean_text(str(key[-1])), style="bold"))


def _build_chunk(chunk: Chunk, evidence: Sequence[Evidence], full: bool, color: bool) -> Text:
    """Build a chunk with its evidence marked; shortened around it where it is long."""
    from rich.text import Text

    line = Text.assemble((f"[{clip_text(chunk.id, 40)}] ", "dim"))
    spans = sorted((entry.start, entry.end) for entry in evidence if 0 <= entry.start < entry.end <= len(chunk.text))
    if not spans and not full:
        return line.append(clip_text(chunk.text, CHUNK_PREVIEW))
    start, end = 0, len(chunk.text)
    if not full and end > CHUNK_LIMIT:
        start = max(0, spans[0][0] - CHUNK_LIMIT // 2)
        end = min(end, max(start + CHUNK_LIMIT, spans[0][1]))
        spans = [(left - start, right - start) for left, right in spans if right <= end]
    line.append("…" * (start > 0))
    line.append_text(_highlight_spans(chunk.text[start:end], spans, EVIDENCE_STYLE, color))
    return line.append("…" * (end < len(chunk.text)))


def _highlight_spans(text: str, spans: Iterable[tuple[int, int]], style: str, color: bool) -> Text:
    """Highlight a clean text in which some stretches are marked: by style, or by signs where there is no colour."""
    from rich.text import Text

    line, at = Text(), 0
    for start, end in spans:
        if start < at:
            continue
        line.append(_clean_with_spaces(text[at:start]))
        marked = clean_text(text[start:end])
        line.append(marked if color else f"«{marked}»", style=style)
        at = end
    return line.append(_clean_with_spaces(text[at:]))


def _clean_with_spaces(text: str) -> str:
    """Clean a clean text that keeps a space at either end."""
    inner = clean_text(text)
    if not inner:
        return " " if text[:1].isspace() else ""
    return f"{' ' * text[0].isspace()}{inner}{' ' * text[-1].isspace()}"
