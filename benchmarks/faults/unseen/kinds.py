"""The kinds of fault: what each changes in a system, the layers it lies in, and the stages that may be named for it.

A kind of no layer is harmless; one of the layer "logging" changes what is recorded of a system that is as it was. To
name a layer for either is wrong. Kinds that damage texts on their way into the index lie in retrieval (ingestion) as
well as in the source data. The layer "generation" holds everything between the chunks and the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from benchmarks.faults.words import chance
from ragfault.model.records import Chunk, Trace

from . import damage
from .corpora import report_chunks
from .system import Parts
from .text import terms

__all__ = ["DEVELOPED", "KINDS", "Kind"]

Change = Callable[[Parts], Parts]


class Kind(NamedTuple):
    """A kind of fault."""

    layers: frozenset[str]
    """Right layers; empty: no fault."""
    stages: frozenset[str]
    """Right stages."""
    change: Change
    systems: tuple[str, ...]

    @property
    def about(self) -> str:
        """What it does."""
        return " ".join((self.change.__doc__ or "").split())


KINDS: dict[str, Kind] = {}
BOTH = ("reports", "shop")


def kind(name: str, layers: str, stages: str = "", systems: tuple[str, ...] = BOTH) -> Callable[[Change], Change]:
    """Enter a change of a system as a kind of fault; layers and stages are separated by commas."""

    def enter(change: Change) -> Change:
        parts = (frozenset(item.strip() for item in text.split(",") if item.strip()) for text in (layers, stages))
        KINDS[name] = Kind(*parts, change, systems)
        return change

    return enter


def _texts(parts: Parts, change: Callable[[str, str], str]) -> Parts:
    """Return the system with other texts in its index, under the same ids."""
    return replace(parts, chunks=tuple(replace(c, text=change(c.text, c.id)) for c in parts.chunks))


def _answers(parts: Parts, change: Callable[[str], str], share: float = 1.0) -> Parts:
    """Return the system with a share of its answers changed after they were written."""

    def finish(answer: str, trace: Trace) -> str:
        return change(answer) if chance("hit", trace.id) < share else answer

    return replace(parts, finish=finish)


def _log(parts: Parts, record: Callable[[Trace, list[Chunk]], Trace]) -> Parts:
    return replace(parts, record=record)


# --- nothing broke -----------------------------------------------------------------------------------


@kind("none", "")
def _none(parts: Parts) -> Parts:
    """Change nothing; the writer slips elsewhere."""
    return parts


@kind("opening", "")
def _opening(parts: Parts) -> Parts:
    """Begin every answer that is no refusal with "Here is what I found:"."""
    return _answers(parts, lambda text: text if text[0] not in "-1" else f"Here is what I found:\n{text}")


@kind("markdown-stripped", "")
def _markdown(parts: Parts) -> Parts:
    """Take bullets and line breaks out of the answers."""
    return _answers(parts, damage.without_markdown)


@kind("scores-lost", "")
def _scores(parts: Parts) -> Parts:
    """Record the scores of the chunks no longer."""
    return _log(parts, lambda trace, _: replace(trace, chunks=tuple(replace(c, score=None) for c in trace.chunks)))


@kind("slower", "")
def _slower(parts: Parts) -> Parts:
    """Take 30 % longer for generation."""
    return _log(
        parts,
        lambda trace, _: replace(
            trace, latency=replace(trace.latency, generation=(trace.latency.generation or 0.0) * 1.3)
        ),
    )


# --- generation --------------------------------------------------------------------------------------

FORM = "prompt, system prompt, model, post-processing, locale, decoding, output schema"


@kind("currency-changed", "generation", FORM)
def _currency(parts: Parts) -> Parts:
    """Write another currency or unit beside the same figure, in six answers of ten."""
    return _answers(parts, damage.other_units, 0.6)


@kind("decimal-swapped", "generation", FORM)
def _decimal(parts: Parts) -> Parts:
    """Exchange points and commas within figures, in all answers."""
    return _answers(parts, damage.swapped_separators)


@kind("digits-lost", "generation", FORM)
def _digits(parts: Parts) -> Parts:
    """Drop the last digit of every figure of two digits and more, in half of the answers."""
    return _answers(parts, damage.shorter_figures, 0.5)


@kind("wrong-language", "generation", FORM)
def _language(parts: Parts) -> Parts:
    """Translate half of the answers word by word into the other language."""
    return _answers(parts, damage.translated, 0.5)


@kind("previous-answer", "generation", "answer cache, cache, batching, post-processing, prompt assembly")
def _previous(parts: Parts) -> Parts:
    """Give every query the answer of the query before it in its batch."""

    def batch(traces: list[Trace]) -> list[Trace]:
        return [replace(t, answer=before.answer) for t, before in zip(traces, [traces[-1], *traces[:-1]], strict=True)]

    return replace(parts, batch=batch)


@kind("coarse-cache", "generation", "answer cache, cache, batching, post-processing, prompt assembly")
def _cache(parts: Parts) -> Parts:
    """Give four queries of ten the answer of the nearest other query of the batch, from a cache."""

    def batch(traces: list[Trace]) -> list[Trace]:
        words = [frozenset(terms(trace.query)) for trace in traces]
        result = []
        for index, trace in enumerate(traces):
            if chance("hit", trace.id) < 0.4:
                near = max((i for i in range(len(traces)) if i != index), key=lambda i: len(words[i] & words[index]))
                result.append(replace(trace, answer=traces[near].answer))
            else:
                result.append(trace)
        return result

    return replace(parts, batch=batch)


ASSEMBLY = "prompt assembly, prompt, context window"


@kind("middle-dropped", "generation", ASSEMBLY)
def _middle(parts: Parts) -> Parts:
    """Show only the last two chunks in the prompt."""
    return replace(parts, show=lambda chunks: [c.text for c in chunks[-2:]])


@kind("context-cut", "generation", ASSEMBLY)
def _context(parts: Parts) -> Parts:
    """Show only the first 160 characters of the context in the prompt."""
    return replace(parts, show=lambda chunks: ["\n".join(c.text for c in chunks)[:160]])


@kind("one-word", "generation", "prompt, system prompt, max tokens")
def _word(parts: Parts) -> Parts:
    """Answer in one word: the last figure, else the longest word."""
    return _answers(parts, damage.one_word)


@kind("stop-sequence", "generation", "stop sequence, decoding, max tokens")
def _stop(parts: Parts) -> Parts:
    """End answers at the first line break."""
    return _answers(parts, lambda text: text.split("\n", 1)[0])


@kind("weaker-model", "generation", "model")
def _weaker(parts: Parts) -> Parts:
    """Ask another model, which takes the second-best line for the best; its name is recorded."""
    return replace(parts, choice=1, model="extractive-1-mini")


@kind("repetition", "generation", "decoding, temperature, model, prompt")
def _repetition(parts: Parts) -> Parts:
    """Repeat everything four times in half of the answers."""
    return _answers(parts, lambda text: " ".join([text] * 4), 0.5)


@kind("echo", "generation", "prompt, model, decoding, prompt assembly")
def _echo(parts: Parts) -> Parts:
    """Return the query itself as four answers of ten."""
    finish = lambda answer, trace: trace.query if chance("hit", trace.id) < 0.4 else answer  # noqa: E731
    return replace(parts, finish=finish)


@kind("negation-lost", "generation", FORM)
def _negation(parts: Parts) -> Parts:
    """Drop negations from the answers, and exchange "more" and "less", "rose" and "fell"."""
    return _answers(parts, damage.negated)


# --- retrieval ---------------------------------------------------------------------------------------

TOKENS = "tokenizer, analyzer, embedder, index, query rewriter"


@kind("stems-in-the-index", "retrieval", TOKENS)
def _stems(parts: Parts) -> Parts:
    """Cut words after five letters in the index, and not in queries."""
    return replace(parts, index_terms=lambda text: [word[:5] for word in terms(text)])


@kind("case-mismatch", "retrieval", TOKENS)
def _case(parts: Parts) -> Parts:
    """Search four words of ten in capitals, in an index of small letters."""
    change = lambda text: [w.upper() if chance("case", w) < 0.4 else w for w in terms(text)]  # noqa: E731
    return replace(parts, query_terms=change)


@kind("dimensions-truncated", "retrieval", "embedder, index", ("shop",))
def _dimensions(parts: Parts) -> Parts:
    """Truncate the vectors to 10 of 300 dimensions."""
    return replace(parts, dimensions=10)


@kind("entity-dropped", "retrieval", "query rewriter, rewriter")
def _entity(parts: Parts) -> Parts:
    """Leave figures and capitalised words after the first out of the rewritten query."""
    return replace(parts, rewrite=damage.without_names)


@kind("history-appended", "retrieval", "query rewriter, rewriter")
def _history(parts: Parts) -> Parts:
    """Prepend a question of another conversation to the rewritten query."""
    old = "What did the committee decide about fees, warranty, power, taxes and growth in the last year?"
    return replace(parts, rewrite=lambda query: f"{old} {query}")


@kind("index-incomplete", "retrieval", "index coverage, index, ingestion")
def _incomplete(parts: Parts) -> Parts:
    """Leave the last 30 % of what every tenant has out of the index."""
    names = {tenant: [c.id for c in parts.chunks if c.metadata["tenant"] == tenant] for tenant in _tenants(parts)}
    indexed = {name for ids in names.values() for name in ids[: int(0.7 * len(ids))]}
    return replace(parts, chunks=tuple(c for c in parts.chunks if c.id in indexed))


def _tenants(parts: Parts) -> set[str]:
    return {chunk.metadata["tenant"] for chunk in parts.chunks}


@kind("tenant-leak", "retrieval", "filter", ("shop",))
def _leak(parts: Parts) -> Parts:
    """Search the chunks of the other shop, too."""
    return replace(parts, tenants=False)


@kind("recency-boost", "retrieval", "reranker, ranking")
def _recency(parts: Parts) -> Parts:
    """Rank newer documents higher, by a bonus as large as a good match."""
    return replace(parts, rank=lambda score, chunk, _: score + 0.6 * chance("age", chunk.document))


@kind("threshold-high", "retrieval", "score threshold, threshold")
def _threshold(parts: Parts) -> Parts:
    """Leave out chunks below a score of 0.8."""
    return replace(parts, least=0.8)


@kind("top-k-one", "retrieval", "top-k")
def _single(parts: Parts) -> Parts:
    """Retrieve one chunk instead of five."""
    return replace(parts, top_k=1)


@kind("greedy-deduplication", "retrieval", "deduplication, filter, reranker")
def _deduplication(parts: Parts) -> Parts:
    """Remove a chunk as a copy where three tenths of its words stand in a lower one of the candidates."""
    return replace(parts, select=damage.without_alike)


@kind("sign-flipped", "retrieval", "reranker, ranking")
def _flipped(parts: Parts) -> Parts:
    """Reverse the sign of the reranker: the worst candidates come first."""
    return replace(parts, rank=lambda score, _chunk, _name: -score, least=-9.0)


@kind("random-rerank", "retrieval", "reranker, ranking")
def _random(parts: Parts) -> Parts:
    """Rerank the candidates of half of the queries by scores that mean nothing."""
    draw = lambda score, chunk, name: chance(name, chunk.id) if chance("hit", name) < 0.5 else score  # noqa: E731
    return replace(parts, rank=draw)


@kind("overlap-none", "retrieval", "chunker", ("reports",))
def _overlap(parts: Parts) -> Parts:
    """Cut windows of one sentence without overlap instead of three with one."""
    return replace(parts, chunks=tuple(report_chunks(damage.REPORTS[0], 1, 1)))


# --- ingestion and source data -----------------------------------------------------------------------

INGESTED = "retrieval, source data"


@kind("clipped-at-indexing", INGESTED, "chunker, ingestion, index")
def _clipped(parts: Parts) -> Parts:
    """Cut chunks after 120 characters when they are indexed."""
    return _texts(parts, lambda text, _: text[:120])


@kind("entities", INGESTED, "ingestion, loader")
def _entities(parts: Parts) -> Parts:
    """Leave HTML tags and entities in the texts."""
    return _texts(parts, lambda text, _: damage.html_noise(text))


@kind("tables-shifted", INGESTED, "ingestion, loader, source documents", ("shop",))
def _tables(parts: Parts) -> Parts:
    """Read tables so that every value stands in the row below its own."""
    return _texts(parts, lambda text, _: damage.shifted_table(text))


@kind("mojibake", INGESTED, "ingestion, loader")
def _mojibake(parts: Parts) -> Parts:
    """Read UTF-8 as Windows-1252."""
    return _texts(parts, lambda text, _: damage.mojibake(text))


@kind("ocr-noise", INGESTED, "ingestion, loader")
def _ocr(parts: Parts) -> Parts:
    """Read letters that look alike for one another in a fifth of the words."""
    return _texts(parts, damage.ocr_noise)


@kind("old-version", INGESTED, "source documents, ingestion, stale chunks, wrong chunks")
def _version(parts: Parts) -> Parts:
    """Index an older version of half of the documents, with other figures."""
    return _texts(parts, lambda text, name: damage.aged(text) if chance("old", name.split("/")[0]) < 0.5 else text)


# --- logging -----------------------------------------------------------------------------------------


@kind("log-first-two", "logging")
def _first_two(parts: Parts) -> Parts:
    """Record two of five chunks."""
    return _log(parts, lambda trace, _: replace(trace, chunks=trace.chunks[:2]))


@kind("log-before-rerank", "logging")
def _before(parts: Parts) -> Parts:
    """Record the first five candidates as they were before reranking."""
    return _log(parts, lambda trace, pool: replace(trace, chunks=tuple(pool[: parts.top_k])))


@kind("log-answer-clipped", "logging")
def _clipped_answer(parts: Parts) -> Parts:
    """Record answers up to 60 (shop) or 200 (reports) characters."""
    most = 60 if parts.name == "shop" else 200
    return _log(parts, lambda trace, _: replace(trace, answer=trace.answer[:most]))


@kind("log-rewritten-query", "logging")
def _rewritten(parts: Parts) -> Parts:
    """Record the query without its stop words and names, as far as anything is left."""

    def record(trace: Trace, _: list[Chunk]) -> Trace:
        return replace(trace, query=" ".join(terms(damage.without_names(trace.query))) or trace.query)

    return replace(parts, record=record)


@kind("log-chunk-texts-lost", "logging")
def _no_texts(parts: Parts) -> Parts:
    """Record chunks by their ids alone."""
    return _log(parts, lambda trace, _: replace(trace, chunks=tuple(replace(c, text="") for c in trace.chunks)))


@kind("log-answer-html", "logging")
def _html_answer(parts: Parts) -> Parts:
    """Record answers as HTML."""
    return _log(parts, lambda trace, _: replace(trace, answer=f"<p>{trace.answer.replace(chr(10), '<br>')}</p>"))


@kind("log-half-lost", "logging")
def _half(parts: Parts) -> Parts:
    """Record no chunks for half of the queries."""
    return _log(parts, lambda trace, _: replace(trace, chunks=None) if chance("lost", trace.id) < 0.5 else trace)


DEVELOPED = frozenset(
    re.findall(
        r"\S+",
        """
    none markdown-stripped slower currency-changed digits-lost previous-answer middle-dropped one-word weaker-model echo
    stems-in-the-index dimensions-truncated history-appended tenant-leak threshold-high greedy-deduplication
    random-rerank clipped-at-indexing tables-shifted ocr-noise log-before-rerank log-answer-clipped
    log-chunk-texts-lost log-half-lost
    """,
    )
)
"""About every second kind, on which the rules were written and the weights learned; the others were looked at once."""


def chosen(names: list[str], system: str) -> Mapping[str, Kind]:
    """Return the kinds that a system can have, of those named, or all."""
    return {name: k for name, k in KINDS.items() if system in k.systems and (not names or name in names)}
