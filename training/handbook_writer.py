"""The writing half of the system that records the demo data: it stands for a language model.

Where a person wrote an answer, and the chunks hold what it rests on, that answer is given; elsewhere the writer picks
sentences and phrases them. It slips as often as its version says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from handbook_retriever import chance, pick, sentences, words

from ragfault.records import Chunk, Span, Trace

Question = dict[str, Any]


class Version(NamedTuple):
    """One release of the system: how it cuts, how much it keeps, and how often its writer slips."""

    name: str
    cut: Callable[[str, str], Iterator[Chunk]]
    keep: int
    floor: float
    first: datetime
    refuses: float
    """How often it refuses when nothing it was given answers the query."""
    alters: float
    """How often a number of the answer is not the one of the chunk."""
    embroiders: float
    """How often it adds a sentence that no chunk supports."""
    misquotes: float
    """How often a citation gives words that are not in the chunk."""
    errors: dict[str, str]


class AnswerSentence(NamedTuple):
    """A sentence of an answer and what it points to."""

    text: str
    sources: tuple[tuple[str, str], ...] = ()
    """Chunk ids and quotes."""
    faulty: bool = False
    """It says what the chunks do not: a changed number, an added sentence, an answer of the eager version."""


REFUSALS = [
    "I could not find anything about this in the handbook.",
    "The handbook sections available to me do not say anything about that.",
    "I'm sorry, but I don't have enough information in the handbook to answer this.",
]
OPENERS = {
    "v1": ["{0}", "According to the handbook, {1}", "The handbook says that {1}", "{0}"],
    "v2": ["Here is what you need to know: {1}", "{0}", "As a general rule, {1}", "According to the handbook, {1}"],
}
SWAPS = [
    ("before departure", "ahead of departure"), ("at least", "no less than"), ("is forbidden", "is not allowed"),
    ("no more than", "at most"), ("free of charge", "at no cost"), ("per cent", "percent"),
    ("whichever comes first", "whichever is reached earlier"), ("is needed", "is required"),
]  # fmt: skip
TAILS = ["as a general rule", "unless agreed otherwise", "at the discretion of the duty manager", "in most cases"]
HEAD = re.compile(r"\|\D+$", re.MULTILINE)
"""The head of a table: a line without figures."""
NAMES = {"Route", "Port", "Varness", "MV", "VHF"}
FRAGMENTS = [
    "On this the handbook says “{0}”.",
    "The relevant passage reads “{0}”, and the usual conditions apply to the rest.",
    "The handbook mentions “{0}” in this connection.",
    "What matters here is “{0}”; everything else follows from that.",
]


def get_content(chunks: tuple[Chunk, ...], span: Span) -> tuple[Chunk, str] | None:
    """Return the chunk that holds most of a span, and the words of the span that stand in it."""
    overlaps = [
        (min(c.end or 0, span.end) - max(c.start or 0, span.start), -i)
        for i, c in enumerate(chunks)
        if c.document == span.document
    ]
    best_overlap, sentence = max(overlaps, default=(0, 0))
    if best_overlap <= 0:
        return None
    chunk = chunks[-sentence]
    offset = chunk.start or 0
    return chunk, chunk.text[max(0, span.start - offset) : span.end - offset].strip()


def is_complete(chunks: tuple[Chunk, ...], span: Span) -> bool:
    """Return whether the chunks together hold nearly all of a span."""
    inside: set[int] = set()
    for chunk in chunks:
        if chunk.document == span.document:
            inside.update(range(max(chunk.start or 0, span.start), min(chunk.end or 0, span.end)))
    return len(inside) >= 0.9 * (span.end - span.start)


def by_hand(script: str, chunks: tuple[Chunk, ...], spans: tuple[Span, ...]) -> list[AnswerSentence]:
    """Return an answer that a person wrote, its marks turned into sources."""
    message = []
    for sentence in re.findall(r".+?(?:[.!?](?: \[\d+\])*(?= |$))", script):
        text = re.sub(r" \[\d+\]", "", sentence).strip()
        sources = []
        for mark in re.findall(r"\[(\d+)\]", sentence):
            chunk, quote = get_content(chunks, spans[int(mark) - 1]) or (chunks[0], lead(chunks[0]))
            sources.append((chunk.id, quote))
        message.append(AnswerSentence(text, tuple(sources)))
    return message


def lead(chunk: Chunk) -> str:
    """Return the first sentence of a chunk."""
    start, end = next(sentences(chunk.text, 0, len(chunk.text)))
    return chunk.text[start:end]


def by_machine(
    version: Version, question: Question, chunks: tuple[Chunk, ...], spans: tuple[Span, ...]
) -> list[AnswerSentence]:
    """Return the sentences of the chunks that answer best, rephrased; or a refusal."""
    result = [hit for span in spans if (hit := get_content(chunks, span))]
    if not result and chance(version.name, question["id"], "decline") < version.refuses:
        return [AnswerSentence(pick(REFUSALS, version.name, question["id"], "refusal"))]
    quotes = [(chunk, surrounding(chunk, quote)) for chunk, quote in result] or closest(question, chunks)
    quotes = [item for i, item in enumerate(quotes) if item not in quotes[:i]]
    message = [
        AnswerSentence(phrase(version, question, i, chunk, text), ((chunk.id, text),))
        for i, (chunk, text) in enumerate(quotes)
    ]
    if version.name == "v1" and 0 < len(result) < len(spans):
        message.append(AnswerSentence("The sections I was given do not cover the rest of the question."))
    return message


def surrounding(chunk: Chunk, quote: str) -> str:
    """Return the whole sentence or table line of a chunk in which a quote begins."""
    start = chunk.text.index(quote)
    return next(chunk.text[a:b] for a, b in sentences(chunk.text, 0, len(chunk.text)) if a <= start < b)


def closest(question: Question, chunks: tuple[Chunk, ...]) -> list[tuple[Chunk, str]]:
    """Return the sentence that shares most words with the query."""
    query_words = set(words(question["query"]))
    options = [
        (len(query_words & set(words(chunk.text[a:b]))), -i, chunk, chunk.text[a:b])
        for i, chunk in enumerate(chunks)
        for a, b in sentences(chunk.text, 0, len(chunk.text))
        if not HEAD.match(chunk.text, a, b)
    ]
    best = max(options, key=lambda option: option[:2], default=None)
    return [(best[2], best[3])] if best else []


def phrase(version: Version, question: Question, place: int, chunk: Chunk, text: str) -> str:
    """Return a sentence of an answer that says what a sentence of a chunk says."""
    if text.startswith("|"):
        return verbalise(chunk, text)
    if not text[0].isupper() or text[-1] not in ".!?":
        fragment = FRAGMENTS[0] if version.name == "v1" else pick(FRAGMENTS, question["id"], place, "fragment")
        return fragment.format(text.rstrip(".,;"))
    for old, new in SWAPS:
        if chance(question["id"], old) < 0.6:
            text = text.replace(old, new)
    first, _, rest = text.partition(" ")
    lowered = text if first in NAMES else f"{first.lower()} {rest}"
    opener = pick(OPENERS[version.name], version.name, question["id"], "opener") if place == 0 else "{0}"
    return opener.format(text, lowered)


def verbalise(chunk: Chunk, line: str) -> str:
    """Return a table line as a sentence; without the head of the table the figures stay bare."""
    name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
    name = name if name.startswith("MV") else name[0].lower() + name[1:]
    lines = [row for row in chunk.text.splitlines() if row.startswith("|")]
    if len(lines) < 2:
        return f"For {name}, the table lists {', '.join(cells)}."
    heads = [cell.strip() for cell in lines[0].strip("|").split("|")][1:]
    return f"For {name}, the table gives " + ", ".join(f"{c} ({h})" for h, c in zip(heads, cells, strict=True)) + "."


def slip(
    version: Version, question: Question, message: list[AnswerSentence], elaborations: list[str]
) -> list[AnswerSentence]:
    """Return what the writer said, with the slips of its version."""
    name = question["id"]
    if chance(version.name, name, "number") < version.alters:
        altered = alter(message[0].text)
        message = [message[0]._replace(text=altered, faulty=altered != message[0].text), *message[1:]]
    if chance(version.name, name, "embroider") < version.embroiders:
        message = [*message, AnswerSentence(pick(elaborations, version.name, name, "elaboration"), faulty=True)]
    slipped = []
    for i, sentence in enumerate(message):
        sources = tuple(
            (chunk, misquote(quote, name, i, j))
            if chance(version.name, name, i, j, "misquote") < version.misquotes
            else (chunk, quote)
            for j, (chunk, quote) in enumerate(sentence.sources)
        )
        slipped.append(sentence._replace(sources=sources))
    return slipped


def alter(text: str) -> str:
    """Return the text with its last number changed."""
    numbers = list(re.finditer(r"(?<![\w.,:-])\d+(?![\d:])", text))
    if not numbers:
        return text
    last = numbers[-1]
    value = int(last[0])
    changed = str(value + (2 if value < 10 else 5 if value < 100 else 50)).zfill(len(last[0]))
    return text[: last.start()] + changed + text[last.end() :]


def misquote(quote: str, *parts: object) -> str:
    """Return the first half of a quote, ended in words of its own."""
    half = quote.split(" ")[: max(3, len(quote.split(" ")) // 2)]
    return f"{' '.join(half)} {pick(TAILS, *parts)}"


def answer(
    version: Version, question: Question, trace: Trace, chunks: tuple[Chunk, ...], extra: list[str]
) -> list[AnswerSentence]:
    """Return what the version answers."""
    spans = trace.gold.spans if trace.gold else ()
    best = max((span.grade for span in spans), default=0.0)
    complete = bool(spans) and all(is_complete(chunks, span) for span in spans if span.grade == best)
    script = question.get("v1") if complete else None
    eager = question.get("v2") if version.name == "v2" else None
    if eager and chunks and not (complete and chance(trace.id, "luck") < 0.5):
        sentences = [item._replace(faulty=True) for item in by_hand(eager, chunks, spans)]
        return slip(version._replace(embroiders=0.0, alters=0.0), question, sentences, extra)
    message = by_hand(script, chunks, spans) if script else by_machine(version, question, chunks, spans)
    return message if message[0].text in REFUSALS else slip(version, question, message, extra)
