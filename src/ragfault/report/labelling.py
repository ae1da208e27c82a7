"""What a person who labels sees: one item at a time; and how far people agree, for the terminal and as JSON."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from ragfault.labelling import Item, Kind, Raters, choices, judged
from ragfault.records import Chunk, Evidence
from ragfault.report.agreement import counted
from ragfault.report.plain import clean, clip, figure
from ragfault.report.terminal import paint
from ragfault.stats import Estimate

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

__all__ = ["KEYS", "card", "raters_json", "raters_terminal"]

QUESTIONS: dict[Kind, str] = {
    "chunk": "How relevant is this chunk to the query?",
    "claim": "What do the chunks make of this claim?",
    "citation": "Does the cited chunk support the claim?",
    "fact": "Does the answer state this fact?",
    "refusal": "Does the answer refuse, instead of answering?",
}

HELP: dict[str, str] = {
    "high": "answers the query, or a part of it",
    "medium": "helps to answer it",
    "low": "is about the same matter, and does not help",
    "none": "has nothing to do with it",
    "supported": "a chunk says so",
    "inferred": "it follows from what the chunks say",
    "unsupported": "no chunk says so",
    "contradicted": "a chunk says otherwise",
}
"""What the words mean."""

KEYS = {"space": "skip", "b": "back", "z": "undo", "v": "texts in full", "?": "help", "q": "quit"}
"""The keys beside those of the words."""

SHORT, LONG = 240, 1600
"""Characters of a chunk that holds no evidence, and of one that does, unless they are shown in full."""

MARKED = "bold black on yellow"


def card(
    item: Item,
    state: str,
    *,
    said: str | None = None,
    judge: bool = False,
    full: bool = False,
    explained: bool = False,
    width: int | None = None,
    colour: bool = False,
) -> str:
    """One item with all that is needed to judge it; what the judge says of it stays hidden unless it is asked for.

    Chunks are shown without the answer, as they are to be judged. Evidence that the judge found is marked. Texts of
    the trace cannot steer the terminal.
    """
    from rich.text import Text

    parts: list[RenderableType] = [Text(clean(state), style="dim"), Text("Query", style="bold cyan")]
    parts.append(_inset(Text(clean(item.trace.query))))
    parts += _context(item, full, colour)
    parts.append(Text(f"\n{QUESTIONS[item.kind]}", style="bold"))
    line = Text("  ")
    for choice in choices(item.kind):
        line.append(choice.letter, style="bold green").append(f" {choice.name}   ")
    parts.append(line)
    if explained:
        told = [choice.name for choice in choices(item.kind) if choice.name in HELP]
        parts += [Text(f"    {name}: {HELP[name]}", style="dim") for name in told]
    parts.append(Text("  " + "   ".join(f"{key} {name}" for key, name in KEYS.items()), style="dim"))
    if judge:
        parts.append(Text(f"  the judge says: {judged(item) or 'nothing'}", style="magenta"))
    if said is not None:
        parts.append(Text(f"  you said: {said}", style="yellow"))
    width = width or shutil.get_terminal_size((100, 24)).columns
    return paint(parts, width=width, colour=colour)


def _inset(text: Text) -> RenderableType:
    from rich.padding import Padding

    return Padding(text, (0, 0, 0, 2))


def _context(item: Item, full: bool, colour: bool) -> Iterator[RenderableType]:
    """What an item is judged by."""
    from rich.text import Text

    def head(text: str) -> Text:
        return Text(f"\n{text}", style="bold cyan")

    trace, key = item.trace, item.key
    chunks = list(trace.chunks or ())
    if item.kind == "chunk":
        yield head(f"Chunk {item.place + 1} of {len(chunks)}")
        yield _inset(Text(clean(chunks[item.place].text)))
        return
    if item.kind in ("claim", "citation"):
        wanted = chunks if item.kind == "claim" else [each for each in chunks if each.id == key[1]]
        yield head("Chunks" if item.kind == "claim" else "The cited chunk")
        for chunk in wanted:
            found = [each for each in _evidence(item) if each.chunk == chunk.id]
            yield _inset(_shown(chunk, found, full or item.kind == "citation", colour))
    yield head("Answer")
    answer = trace.answer or ""
    ends = (int(key[1]), int(key[2])) if item.kind == "claim" else (0, 0)
    yield _inset(_pieces(answer, [ends] if ends[1] else [], "bold", colour))
    if item.kind in ("citation", "fact"):
        yield head("Claim" if item.kind == "citation" else "Fact")
        yield _inset(Text(clean(str(key[-1])), style="bold"))


def _evidence(item: Item) -> tuple[Evidence, ...]:
    """The stretches that the judge found for a claim, or against it."""
    return next(
        (each.evidence for each in item.seen.claim or () if (each.start, each.end) == item.key[1:]), ()
    )


def _shown(chunk: Chunk, evidence: Sequence[Evidence], full: bool, colour: bool) -> Text:
    """A chunk with its evidence marked; shortened around it where it is long."""
    from rich.text import Text

    line = Text.assemble((f"[{clip(chunk.id, 40)}] ", "dim"))
    spans = sorted((one.start, one.end) for one in evidence if 0 <= one.start < one.end <= len(chunk.text))
    if not spans and not full:
        return line.append(clip(chunk.text, SHORT))
    start, end = 0, len(chunk.text)
    if not full and end > LONG:
        start = max(0, spans[0][0] - LONG // 2)
        end = min(end, max(start + LONG, spans[0][1]))
        spans = [(left - start, right - start) for left, right in spans if right <= end]
    line.append("…" * (start > 0))
    line.append_text(_pieces(chunk.text[start:end], spans, MARKED, colour))
    return line.append("…" * (end < len(chunk.text)))


def _pieces(text: str, spans: Iterable[tuple[int, int]], style: str, colour: bool) -> Text:
    """A clean text in which some stretches are marked: by style, or by signs where there is no colour."""
    from rich.text import Text

    line, at = Text(), 0
    for start, end in spans:
        if start < at:
            continue
        line.append(_spaced(text[at:start]))
        marked = clean(text[start:end])
        line.append(marked if colour else f"«{marked}»", style=style)
        at = end
    return line.append(_spaced(text[at:]))


def _spaced(text: str) -> str:
    """A clean text that keeps a space at either end."""
    inner = clean(text)
    if not inner:
        return " " if text[:1].isspace() else ""
    return f"{' ' * text[0].isspace()}{inner}{' ' * text[-1].isspace()}"


# --- people beside each other ----------------------------------------------------------------------


def raters_terminal(found: Sequence[Raters], *, width: int | None = None, colour: bool = False) -> str:
    """How far people agree, kind by kind, and on what they differ."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in ("", "people", "labelled", "by two or more", "alike", "kappa", "alpha"):
        table.add_column(name)
    for one in found:
        people = ", ".join(clip(name or "nobody named", 20) for name in one.people)
        cells = [_span(one.accuracy), _span(one.kappa), _span(one.alpha)]
        shared = f"{one.shared:,}" if one.reason is None else f"0: {one.reason}"
        table.add_row(one.kind, people, f"{one.items:,}", shared, *cells)
    parts: list[RenderableType] = [Text("People beside each other", style="bold"), table]
    disputes = [(one.kind, each) for one in found for each in one.disputes]
    if disputes:
        parts.append(Text(f"\nThey differ on {counted(len(disputes), 'item')}", style="bold cyan"))
    for kind, each in disputes[:10]:
        said = ", ".join(f"{clip(name, 20)}: {_word(word)}" for name, word in sorted(each.words.items()))
        parts.append(Text(f"  {clip(each.trace, 40)}  {kind} {_named(each.key)}: {said}"))
    return paint(parts, width=width or shutil.get_terminal_size((100, 24)).columns, colour=colour)


def _named(key: Sequence[str | int]) -> str:
    """What a word is on, without its part."""
    return clip(" ".join(str(each) for each in key[1:] if each not in ("level", "refused")), 40)


def _word(word: object) -> str:
    return {True: "yes", False: "no"}.get(word, str(word)) if isinstance(word, bool) else clip(str(word), 30)


def _span(found: Estimate | None) -> str:
    if found is None or found.value is None:
        return "–"
    if found.low is None or found.high is None:
        return figure(found.value)
    return f"{figure(found.value)} [{figure(found.low)}, {figure(found.high)}]"


def raters_json(found: Sequence[Raters]) -> str:
    """The same as JSON, with every item on which people differ."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
