"""The generator of the system that records the demo data: it stands for a language model.

Where a person wrote an answer, and the chunks contain what it rests on, that answer is given; elsewhere the generator
selects sentences and rewrites them. It makes errors at the rates of its version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from handbook_retriever import draw_number, extract_words, pick, split_sentences

from ragfault.model.records import Chunk, Span, Trace

Question = dict[str, Any]


class Version(NamedTuple):
    """A release of the system: its chunker, its retrieval settings, and the error rates of its generator."""

    name: str
    cut_chunks: Callable[[str, str], Iterator[Chunk]]
    top_k: int
    score_floor: float
    start_time: datetime
    refusal_rate: float
    """The share of refusals where no chunk answers the query."""
    alteration_rate: float
    """The share of answers in which a number is changed."""
    addition_rate: float
    """The share of answers with an added sentence that no chunk supports."""
    misquote_rate: float
    """The share of citations that quote words that are not in the chunk."""
    errors: dict[str, str]


class AnswerSentence(NamedTuple):
    """A sentence of an answer and its citations."""

    text: str
    sources: tuple[tuple[str, str], ...] = ()
    """Chunk ids and quotes."""
    faulty: bool = False
    """Whether it states what the chunks do not: a changed number, an added sentence, an unsupported answer."""


REFUSALS = [
    "I could not find anything about this in the handbook.",
    "The handbook sections available to me do not say anything about that.",
    "I'm sorry, but I don't have enough information in the handbook to answer this.",
]
OPENING_TEMPLATES = {
    "v1": ["{0}", "According to the handbook, {1}", "The handbook says that {1}", "{0}"],
    "v2": ["Here is what you need to know: {1}", "{0}", "As a general rule, {1}", "According to the handbook, {1}"],
}
SYNONYMS = [
    ("before departure", "ahead of departure"), ("at least", "no less than"), ("is forbidden", "is not allowed"),
    ("no more than", "at most"), ("free of charge", "at no cost"), ("per cent", "percent"),
    ("whichever comes first", "whichever is reached earlier"), ("is needed", "is required"),
]  # fmt: skip
QUOTE_ENDINGS = [
    "as a general rule",
    "unless agreed otherwise",
    "at the discretion of the duty manager",
    "in most cases",
]
TABLE_HEAD = re.compile(r"\|\D+$", re.MULTILINE)
"""The head of a table: a line without figures."""
PROPER_NOUNS = {"Route", "Port", "Varness", "MV", "VHF"}
FRAGMENT_TEMPLATES = [
    "On this the handbook says “{0}”.",
    "The relevant passage reads “{0}”, and the usual conditions apply to the rest.",
    "The handbook mentions “{0}” in this connection.",
    "What matters here is “{0}”; everything else follows from that.",
]


def locate_quote(chunks: tuple[Chunk, ...], span: Span) -> tuple[Chunk, str] | None:
    """Return the chunk with the largest part of a span, and that part; None where no chunk overlaps it."""
    overlaps = [
        (min(c.end or 0, span.end) - max(c.start or 0, span.start), -i)
        for i, c in enumerate(chunks)
        if c.document == span.document
    ]
    best_overlap, negative_index = max(overlaps, default=(0, 0))
    if best_overlap <= 0:
        return None
    chunk = chunks[-negative_index]
    offset = chunk.start or 0
    return chunk, chunk.text[max(0, span.start - offset) : span.end - offset].strip()


def is_complete(chunks: tuple[Chunk, ...], span: Span) -> bool:
    """Return whether the chunks together contain nine tenths of a span."""
    inside: set[int] = set()
    for chunk in chunks:
        if chunk.document == span.document:
            inside.update(range(max(chunk.start or 0, span.start), min(chunk.end or 0, span.end)))
    return len(inside) >= 0.9 * (span.end - span.start)


def build_authored_answer(authored: str, chunks: tuple[Chunk, ...], spans: tuple[Span, ...]) -> list[AnswerSentence]:
    """Return the sentences of an answer that a person wrote, its marks replaced by citations."""
    answer_sentences = []
    for sentence in re.findall(r".+?(?:[.!?](?: \[\d+\])*(?= |$))", authored):
        text = re.sub(r" \[\d+\]", "", sentence).strip()
        sources = []
        for mark in re.findall(r"\[(\d+)\]", sentence):
            chunk, quote = locate_quote(chunks, spans[int(mark) - 1]) or (chunks[0], get_first_sentence(chunks[0]))
            sources.append((chunk.id, quote))
        answer_sentences.append(AnswerSentence(text, tuple(sources)))
    return answer_sentences


def get_first_sentence(chunk: Chunk) -> str:
    """Return the first sentence of a chunk."""
    start, end = next(split_sentences(chunk.text, 0, len(chunk.text)))
    return chunk.text[start:end]


def compose_answer(
    version: Version, question: Question, chunks: tuple[Chunk, ...], spans: tuple[Span, ...]
) -> list[AnswerSentence]:
    """Return the sentences of the chunks that answer best, rewritten; or a refusal."""
    quoted_spans = [located for span in spans if (located := locate_quote(chunks, span))]
    if not quoted_spans and draw_number(version.name, question["id"], "decline") < version.refusal_rate:
        return [AnswerSentence(pick(REFUSALS, version.name, question["id"], "refusal"))]
    quotes = [(chunk, expand_quote(chunk, quote)) for chunk, quote in quoted_spans] or select_closest(question, chunks)
    quotes = [item for i, item in enumerate(quotes) if item not in quotes[:i]]
    answer_sentences = [
        AnswerSentence(rewrite_sentence(version, question, i, chunk, text), ((chunk.id, text),))
        for i, (chunk, text) in enumerate(quotes)
    ]
    if version.name == "v1" and 0 < len(quoted_spans) < len(spans):
        answer_sentences.append(AnswerSentence("The sections I was given do not cover the rest of the question."))
    return answer_sentences


def expand_quote(chunk: Chunk, quote: str) -> str:
    """Return the full sentence or table line of a chunk in which a quote begins."""
    start = chunk.text.index(quote)
    return next(chunk.text[a:b] for a, b in split_sentences(chunk.text, 0, len(chunk.text)) if a <= start < b)


def select_closest(question: Question, chunks: tuple[Chunk, ...]) -> list[tuple[Chunk, str]]:
    """Return the chunk and the sentence that share most words with the query, in a list; empty without any."""
    query_words = set(extract_words(question["query"]))
    options = [
        (len(query_words & set(extract_words(chunk.text[a:b]))), -i, chunk, chunk.text[a:b])
        for i, chunk in enumerate(chunks)
        for a, b in split_sentences(chunk.text, 0, len(chunk.text))
        if not TABLE_HEAD.match(chunk.text, a, b)
    ]
    best = max(options, key=lambda option: option[:2], default=None)
    return [(best[2], best[3])] if best else []


def rewrite_sentence(version: Version, question: Question, position: int, chunk: Chunk, text: str) -> str:
    """Return a sentence of a chunk rewritten as a sentence of an answer."""
    if text.startswith("|"):
        return describe_table_row(chunk, text)
    if not text[0].isupper() or text[-1] not in ".!?":
        templates = FRAGMENT_TEMPLATES[:1] if version.name == "v1" else FRAGMENT_TEMPLATES
        return pick(templates, question["id"], position, "fragment").format(text.rstrip(".,;"))
    for old, new in SYNONYMS:
        if draw_number(question["id"], old) < 0.6:
            text = text.replace(old, new)
    first, _, remaining_words = text.partition(" ")
    lowered = text if first in PROPER_NOUNS else f"{first.lower()} {remaining_words}"
    opener = pick(OPENING_TEMPLATES[version.name], version.name, question["id"], "opener") if position == 0 else "{0}"
    return opener.format(text, lowered)


def describe_table_row(chunk: Chunk, line: str) -> str:
    """Return a table line as a sentence; without the head of the table the figures have no names."""
    name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
    name = name if name.startswith("MV") else name[0].lower() + name[1:]
    lines = [row for row in chunk.text.splitlines() if row.startswith("|")]
    if len(lines) < 2:
        return f"For {name}, the table lists {', '.join(cells)}."
    heads = [cell.strip() for cell in lines[0].strip("|").split("|")][1:]
    return f"For {name}, the table gives " + ", ".join(f"{c} ({h})" for h, c in zip(heads, cells, strict=True)) + "."


def add_errors(
    version: Version, question: Question, sentences: list[AnswerSentence], elaborations: list[str]
) -> list[AnswerSentence]:
    """Return the sentences with errors at the rates of the version."""
    name = question["id"]
    if draw_number(version.name, name, "number") < version.alteration_rate:
        altered = alter_number(sentences[0].text)
        sentences = [sentences[0]._replace(text=altered, faulty=altered != sentences[0].text), *sentences[1:]]
    if draw_number(version.name, name, "embroider") < version.addition_rate:
        sentences = [*sentences, AnswerSentence(pick(elaborations, version.name, name, "elaboration"), faulty=True)]
    result = []
    for i, sentence in enumerate(sentences):
        sources = tuple(
            (chunk, alter_quote(quote, name, i, j))
            if draw_number(version.name, name, i, j, "misquote") < version.misquote_rate
            else (chunk, quote)
            for j, (chunk, quote) in enumerate(sentence.sources)
        )
        result.append(sentence._replace(sources=sources))
    return result


def alter_number(text: str) -> str:
    """Return the text with its last number changed."""
    numbers = list(re.finditer(r"(?<![\w.,:-])\d+(?![\d:])", text))
    if not numbers:
        return text
    last = numbers[-1]
    value = int(last[0])
    changed = str(value + (2 if value < 10 else 5 if value < 100 else 50)).zfill(len(last[0]))
    return text[: last.start()] + changed + text[last.end() :]


def alter_quote(quote: str, *parts: object) -> str:
    """Return the first half of a quote, with an ending that no document has."""
    half = quote.split(" ")[: max(3, len(quote.split(" ")) // 2)]
    return f"{' '.join(half)} {pick(QUOTE_ENDINGS, *parts)}"


def write_answer(
    version: Version, question: Question, trace: Trace, chunks: tuple[Chunk, ...], extra: list[str]
) -> list[AnswerSentence]:
    """Return the answer of a version to a question from its chunks."""
    spans = trace.gold.spans if trace.gold else ()
    best = max((span.grade for span in spans), default=0.0)
    complete = bool(spans) and all(is_complete(chunks, span) for span in spans if span.grade == best)
    authored = question.get("v1") if complete else None
    overconfident = question.get("v2") if version.name == "v2" else None
    if overconfident and chunks and not (complete and draw_number(trace.id, "luck") < 0.5):
        sentences = [item._replace(faulty=True) for item in build_authored_answer(overconfident, chunks, spans)]
        return add_errors(version._replace(addition_rate=0.0, alteration_rate=0.0), question, sentences, extra)
    answer_sentences = (
        build_authored_answer(authored, chunks, spans) if authored else compose_answer(version, question, chunks, spans)
    )
    return (
        answer_sentences
        if answer_sentences[0].text in REFUSALS
        else add_errors(version, question, answer_sentences, extra)
    )
