"""Kinds of fault from reports of incidents that the other groups lack, written without sight of the rules.

They were committed before any of them was run, and run once; `benchmarks/RESULTS.md` has that run, and what was
changed then.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from difflib import get_close_matches

import numpy as np
from msgspec.structs import replace

from benchmarks.faults.phrases import SYNONYMS
from benchmarks.faults.words import chance
from ragfault.model.records import Chunk, Trace

from . import damage
from .kinds import FORM, INGESTED, KINDS, kind
from .second_kinds import ASSEMBLY, EVERY, FIGURE, change_log, change_texts, is_hit
from .system import HEADS, REFUSALS, Parts, Scores
from .text import split_sentences, terms

__all__ = ["FIFTH"]

BEFORE = frozenset(KINDS)
OUTPUT = "model, prompt, system prompt, prompt assembly, output schema, post-processing, max tokens, decoding"
LOGIN = "Please sign in to continue. You need an account to view this page. Forgot your password? Contact support."
CONVERSIONS = {
    **{"days": ("weeks", 7), "weeks": ("days", 1 / 7), "months": ("years", 12), "hours": ("minutes", 1 / 60)},
    **{"minutes": ("hours", 60), "miles": ("km", 1 / 1.6), "metres": ("feet", 1 / 3.28), "kg": ("lb", 1 / 2.2)},
    **{"cm": ("in", 2.54), "W": ("kW", 1000), "m": ("ft", 1 / 3.28), "Werktage": ("Wochen", 7)},
    **{"Monate": ("Jahre", 12), "Tagen": ("Wochen", 7), "years": ("months", 1 / 12)},
}
"""Units, what they are converted to, and the factor taken upside down."""
SMALL = {
    "en": ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"],
    "de": ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"],
}


def change_answers(parts: Parts, change: Callable[[Trace], str], share: float = 1.0) -> Parts:
    """Return the system with a share of its answers changed, refusals apart, by what is known of the whole trace."""

    def batch(traces: list[Trace]) -> list[Trace]:
        hit = lambda trace: is_hit(trace.id, share) and trace.answer not in REFUSALS  # noqa: E731
        return [replace(trace, answer=change(trace)) if hit(trace) else trace for trace in traces]

    return replace(parts, batch=batch)


def list_statements(chunk: Chunk) -> list[str]:
    """Return the sentences of a chunk, and the rows of its table as sentences."""
    head, lines = chunk.text.split("\n", 1)[0].lstrip("# ").split(" (")[0], []
    for start, end in split_sentences(chunk.text):
        line = chunk.text[start:end].strip()
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not line.startswith("#") and not (cells and cells[0] in HEADS):
            lines.append(f"{head}: {' '.join(cells)}." if cells else line)
    return lines


# --- generation --------------------------------------------------------------------------------------


@kind("half-on-the-old-model", "generation", "model", EVERY)
def _half(parts: Parts) -> Parts:
    """Route half of the queries to an older model, which reads the first three words of a question alone."""
    ask = lambda query, trace: " ".join(query.split()[:3]) if is_hit(trace.id, 0.5) else query  # noqa: E731
    named = lambda trace: replace(trace, model="extractive-1") if is_hit(trace.id, 0.5) else trace  # noqa: E731
    return replace(change_log(parts, named), ask=ask)


@kind("conversion-wrong", "generation", FORM, EVERY)
def _converted(parts: Parts) -> Parts:
    """Convert figures into other units by a factor that is upside down."""
    form = re.compile(rf"({FIGURE.pattern}) ({'|'.join(CONVERSIONS)})\b")

    def convert(match: re.Match[str]) -> str:
        unit, factor = CONVERSIONS[match[2]]
        return f"{float(match[1].replace(',', '.')) * factor:.1f} {unit}"

    return change_answers(parts, lambda trace: form.sub(convert, trace.answer or ""))


@kind("thinking-cut", "generation", OUTPUT, EVERY)
def _thinking(parts: Parts) -> Parts:
    """Show thinking that used up the tokens in place of four answers of ten."""
    form = "<think>The user asks: {} I need to look for this in the context. The first passage begins with “{}”, so"
    first = lambda trace: trace.chunks[0].text.split("\n")[0][:60] if trace.chunks else ""  # noqa: E731
    return change_answers(parts, lambda trace: form.format(trace.query, first(trace)), 0.4)


@kind("tool-call-shown", "generation", OUTPUT, EVERY)
def _tool(parts: Parts) -> Parts:
    """Show the call of a tool in place of four answers of ten."""
    call = lambda trace: json.dumps({"name": "search", "arguments": {"query": trace.query, "limit": 5}})  # noqa: E731
    return change_answers(parts, call, 0.4)


@kind("error-as-answer", "generation", f"{OUTPUT}, refusal wording, guardrail", EVERY)
def _error(parts: Parts) -> Parts:
    """Return the error of the provider as three answers of ten."""
    text = "Error code: 429 - {'error': {'message': 'Rate limit reached for requests', 'type': 'requests'}}"
    return change_answers(parts, lambda _: text, 0.3)


@kind("snippets-in-the-prompt", "generation", f"{ASSEMBLY}, prompt", EVERY)
def _snippets(parts: Parts) -> Parts:
    """Show the preview of each chunk in the prompt, its first 80 characters."""
    return replace(parts, show=lambda chunks: [chunk.text[:80] for chunk in chunks])


@kind("guard-drops-sentences", "generation", f"guardrail, refusal wording, {FORM}", EVERY)
def _guard(parts: Parts) -> Parts:
    """Take sentences with figures of two digits and more for personal data, and remove them from the answers."""

    def clean(trace: Trace) -> str:
        answer = trace.answer or ""
        lines = [answer[start:end] for start, end in split_sentences(answer)]
        return "\n".join(line for line in lines if not re.search(r"\d\d", line)) or "This content has been removed."

    return change_answers(parts, clean)


@kind("figures-of-a-neighbour", "generation", FORM, EVERY)
def _neighbour_figures(parts: Parts) -> Parts:
    """State figures of as many characters from another of the chunks, in six answers of ten."""

    def mix(trace: Trace) -> str:
        listed = [figure for chunk in trace.chunks or () for figure in FIGURE.findall(chunk.text)]

        def other(match: re.Match[str]) -> str:
            pool = sorted({figure for figure in listed if len(figure) == len(match[0]) and figure != match[0]})
            return pool[int(chance("other", trace.id, match[0]) * len(pool))] if pool else match[0]

        return FIGURE.sub(other, trace.answer or "")

    return change_answers(parts, mix, 0.6)


@kind("one-citation-for-all", "generation", f"{FORM}, prompt assembly", ("handbook",))
def _last_cited(parts: Parts) -> Parts:
    """Name the last of the chunks in every citation."""

    def cite(trace: Trace) -> Trace:
        cited = tuple(replace(c, chunk=trace.chunks[-1].id) for c in trace.citations or ()) if trace.chunks else None
        return replace(trace, citations=cited)

    return replace(parts, batch=lambda traces: [cite(trace) for trace in traces])


@kind("asked-back", "generation", "model, prompt, system prompt, refusal wording, prompt assembly", EVERY)
def _back(parts: Parts) -> Parts:
    """Ask the user something in place of four answers of ten."""
    forms = (
        "Could you tell me more precisely what you would like to know about {}?",
        "Do you mean {}, or something else?",
        "Which {} do you have in mind?",
    )

    def ask(trace: Trace) -> str:
        return forms[int(3 * chance("form", trace.id))].format(" ".join(terms(trace.query)[-3:]))

    return change_answers(parts, ask, 0.4)


# --- retrieval ---------------------------------------------------------------------------------------


@kind("spelling-corrected", "retrieval", "query rewriter, rewriter", EVERY)
def _spelling(parts: Parts) -> Parts:
    """Correct every rare word of a query to the common word that is most like it."""
    counts = Counter(word for chunk in parts.chunks for word in set(terms(chunk.text)))
    common = [word for word, count in sorted(counts.items()) if count >= 15 and word.isalpha()]

    def correct(word: str) -> str:
        known = counts[word.lower().strip("?.,")] >= 15 or len(word) < 4
        return word if known else next(iter(get_close_matches(word.lower(), common, 1, 0.3)), word)

    return replace(parts, rewrite=lambda query: " ".join(map(correct, query.split())))


@kind("second-page", "retrieval", "top-k, ranking, reranker, index, filter, deduplication", EVERY)
def _page(parts: Parts) -> Parts:
    """Return the sixth to tenth candidates for half of the queries, as a page that is counted from one."""
    return replace(parts, select=lambda chunks: chunks[5:] if chunks and is_hit(chunks[0].id, 0.5) else chunks)


@kind("query-of-another-user", "retrieval", "query rewriter, rewriter, cache, retrieval cache, batching", EVERY)
def _user(parts: Parts) -> Parts:
    """Search for the query before in four cases of ten, and answer the right one."""
    before = [""]

    def rewrite(query: str) -> str:
        last, before[0] = before[0], query
        return last if is_hit(query, 0.4) and last else query

    return replace(parts, rewrite=rewrite)


@kind("neighbour-returned", "retrieval", "index, embedder, index coverage, ingestion, reranker", EVERY)
def _neighbour(parts: Parts) -> Parts:
    """Look every chunk up one row too far, so that its neighbour is returned."""
    following = dict(zip((c.id for c in parts.chunks), [*parts.chunks[1:], parts.chunks[0]], strict=True))
    select = lambda chunks: [replace(following[c.id], score=c.score) for c in chunks]  # noqa: E731
    return replace(parts, select=select)


@kind("copies-by-mask", "retrieval", "deduplication, filter, reranker, ranking", ("shop",))
def _mask(parts: Parts) -> Parts:
    """Take chunks that differ in names and figures alone for copies, and keep the last."""
    mask = lambda text: re.sub(r"\d\S*|\b[A-ZÄÖÜ]\w+", "#", text)  # noqa: E731
    return replace(parts, select=lambda chunks: list({mask(chunk.text): chunk for chunk in chunks}.values()))


@kind("all-words-required", "retrieval", "query rewriter, index, analyzer, tokenizer, score threshold, filter", EVERY)
def _required(parts: Parts) -> Parts:
    """Find only chunks that hold every word of the query but one."""
    words = [frozenset(terms(chunk.text)) for chunk in parts.chunks]
    asked: list[frozenset[str]] = [frozenset()]

    def rewrite(query: str) -> str:
        asked[0] = frozenset(terms(query))
        return query

    def distort(scores: Scores, _: str) -> Scores:
        return np.where([len(asked[0] - known) <= 1 for known in words], scores, -1.0)

    return replace(parts, rewrite=rewrite, distort=distort)


# --- ingestion and source data -----------------------------------------------------------------------


@kind(
    "two-versions",
    INGESTED,
    "source documents, ingestion, stale chunks, wrong chunks, deduplication, index, filter",
    EVERY,
)
def _versions(parts: Parts) -> Parts:
    """Index an older version beside six documents of ten, with other figures and ids of its own."""
    old = tuple(
        replace(c, id=f"v1/{c.id}", document=f"v1/{c.document}", text=damage.aged(c.text))
        for c in parts.chunks
        if is_hit(c.document, 0.6)
    )
    return replace(parts, chunks=(*old, *parts.chunks))


@kind("signs-lost", INGESTED, "ingestion, loader, source documents", EVERY)
def _signs(parts: Parts) -> Parts:
    """Drop the signs of currencies and per cent, and units behind figures, in all texts."""
    form = re.compile(r" [€%]|[£€$%°]|(?<=\d) (?:kg|cm|dB|W|m|km|per cent)\b")
    return change_texts(parts, lambda chunk: form.sub("", chunk.text))


@kind("headings-exchanged", INGESTED, "ingestion, loader, chunker, source documents, index", EVERY)
def _headings(parts: Parts) -> Parts:
    """Put the heading of the chunk three places on above the texts of half of the chunks."""
    split = [chunk.text.split("\n", 1) for chunk in parts.chunks]
    heads = {c.id: split[(i + 3) % len(split)][0] for i, c in enumerate(parts.chunks)}

    def exchange(chunk: Chunk) -> str:
        head, _, rest = chunk.text.partition("\n")
        return f"{heads[chunk.id]}\n{rest}" if head.startswith("#") and is_hit(chunk.id, 0.5) else chunk.text

    return change_texts(parts, exchange)


@kind("login-page", INGESTED, "ingestion, loader, source documents, index coverage, index", EVERY)
def _login(parts: Parts) -> Parts:
    """Crawl a page that asks to sign in, in place of four chunks of ten."""
    return change_texts(parts, lambda chunk: LOGIN if is_hit(chunk.id, 0.4) else chunk.text)


@kind("words-hyphenated", INGESTED, "ingestion, loader", EVERY)
def _hyphenated(parts: Parts) -> Parts:
    """Leave the hyphens of the line breaks of a PDF in words of seven letters and more."""
    return change_texts(parts, lambda chunk: re.sub(r"\b([^\W\d_]{3,4})([^\W\d_]{4,})\b", r"\1- \2", chunk.text))


# --- nothing broke, or the logger --------------------------------------------------------------------


@kind("reworded", "", systems=EVERY)
def _reworded(parts: Parts) -> Parts:
    """Say the same in other words, and begin with one of three phrases."""
    gap = "\n" if parts.name == "shop" else " "
    openers = (f"According to the documents:{gap}", f"The sources say this:{gap}", "")

    def reword(trace: Trace) -> str:
        answer = trace.answer or ""
        for old, new in (*SYNONYMS, ("cannot", "can not"), ("including", "inclusive of"), ("takes", "will take")):
            answer = answer.replace(old, new)
        return f"{openers[int(3 * chance('opener', trace.id))]}{answer}"

    return change_answers(parts, reword)


@kind("more-said", "", systems=EVERY)
def _more(parts: Parts) -> Parts:
    """Add the next best sentence of the chunks to every answer."""

    def add(trace: Trace) -> str:
        answer, asked = trace.answer or "", frozenset(terms(trace.query))
        lines = [line for chunk in trace.chunks or () for line in list_statements(chunk) if line not in answer]
        best = max(lines, key=lambda line: len(asked & set(terms(line))), default="")
        return f"{answer}\n- {best}" if parts.name == "shop" else f"{answer} {best}"

    return change_answers(parts, add)


@kind("tail-reordered", "", systems=EVERY)
def _tail(parts: Parts) -> Parts:
    """Exchange the fourth and the fifth chunk."""
    return replace(parts, select=lambda chunks: [*chunks[:3], *reversed(chunks[3:5]), *chunks[5:]])


@kind("numbers-cited", "", systems=EVERY)
def _numbers(parts: Parts) -> Parts:
    """Write the number of the chunk that says it behind every sentence."""

    def cite(trace: Trace) -> str:
        answer = trace.answer or ""
        words = [frozenset(terms(chunk.text)) for chunk in trace.chunks or ()]
        spans = list(split_sentences(answer))
        for start, end in reversed(spans):
            stated = frozenset(terms(answer[start:end]))
            place = max(range(len(words)), key=lambda at: len(words[at] & stated), default=0) + 1
            answer = f"{answer[:end]} [{place}]{answer[end:]}"
        return answer

    return change_answers(parts, cite)


@kind("answer-headed", "", systems=EVERY)
def _headed(parts: Parts) -> Parts:
    """Write every answer below a heading, with its names in bold type."""
    bold = lambda text: re.sub(r"(?<=\w )([A-ZÄÖÜ]\w+)", r"**\1**", text or "")  # noqa: E731
    return change_answers(parts, lambda trace: f"### Answer\n\n{bold(trace.answer)}")


@kind("numbers-in-words", "", systems=EVERY)
def _spelled(parts: Parts) -> Parts:
    """Write whole numbers up to twelve in words."""
    form = re.compile(r"(?m)(?!^)(?<![\w.,£€$-])(?:1[0-2]|[1-9])(?![\w%]|[.,]\d)")

    def spell(trace: Trace) -> str:
        names = SMALL["de" if trace.route == "de" else "en"]
        return form.sub(lambda match: names[int(match[0]) - 1], trace.answer or "")

    return change_answers(parts, spell)


@kind("typographic", "", systems=EVERY)
def _typographic(parts: Parts) -> Parts:
    """Set answers with typographic quotes and dashes, and narrow spaces between figures and units."""
    signs = str.maketrans({"'": "’", '"': "”", "–": "—"})
    narrow = lambda text: re.sub(r"(?<=\d) (?=[^\W\d])", "\u202f", text.translate(signs))  # noqa: E731
    return change_answers(parts, lambda trace: narrow(trace.answer or ""))


@kind("model-renamed", "", systems=EVERY)
def _renamed(parts: Parts) -> Parts:
    """Call the same model by the date of its release."""
    return replace(parts, model="extractive-2-2026-08-01")


@kind("documents-renamed", "logging", systems=EVERY)
def _documents(parts: Parts) -> Parts:
    """Record documents by an address in place of their name."""

    def record(trace: Trace) -> Trace:
        chunks = (replace(c, document=f"https://docs.example/{c.document}.html") for c in trace.chunks or ())
        return replace(trace, chunks=tuple(chunks))

    return change_log(parts, record)


FIFTH = frozenset(KINDS) - BEFORE
"""The names of these kinds."""
