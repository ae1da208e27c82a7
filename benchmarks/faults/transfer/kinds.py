"""Faults that release notes and reports of incidents describe, and changes that are none."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from benchmarks.faults.transfer.answering import Response, alter_fact, invent_sentence
from benchmarks.faults.transfer.corpora import Corpus, Question
from benchmarks.faults.transfer.releases import Release, Scored
from benchmarks.faults.transfer.retrieving import Passage
from ragfault.model.records import Chunk, Citation, Trace

Change = Callable[[Release], dict[str, Any]]


@dataclass(frozen=True)
class Kind:
    """A change of a release, and the layers and stages that are right for it; none: no fault."""

    name: str
    layers: tuple[str, ...]
    stages: tuple[str, ...]
    change: Change
    systems: tuple[str, ...] = ()
    """Those that it can occur in; empty: all."""


def set_habits(**changes: Any) -> Change:
    """Return a change of habits."""
    return lambda release: {"habits": replace(release.habits, **changes)}


def set_fields(**changes: Any) -> Change:
    """Return a change of settings or hooks."""
    return lambda _: changes


def drop_tables(corpus: Corpus, draw: random.Random) -> dict[str, str]:
    """Remove lists, tables and code, as a splitter of plain text does."""
    block = re.compile(r"```.*?```|^ *[-*|].*$|^ {4,}.*$", re.S | re.M)
    return {name: block.sub(lambda m: " " * len(m[0]), text) for name, text in corpus.documents.items()}


def edit_figures(corpus: Corpus, draw: random.Random) -> dict[str, str]:
    """Change figures in half of the paragraphs, in place, as a wrong import does."""

    def edit(part: str) -> str:
        return re.sub(r"\d", lambda m: str((int(m[0]) * 7 + 3) % 10), part) if draw.random() < 0.5 else part

    return {name: "\n\n".join(map(edit, text.split("\n\n"))) for name, text in corpus.documents.items()}


def exchange_names(corpus: Corpus, draw: random.Random) -> dict[str, str]:
    """Exchange capitalised words of the same length, as a join over the wrong column does."""

    def edit(text: str) -> str:
        names = re.findall(r"(?<=[a-z,] )[A-Z][a-z]{4,}", text)
        shuffled = draw.sample(names, len(names))
        table = dict(zip(names, shuffled, strict=True))
        return re.sub(r"(?<=[a-z,] )[A-Z][a-z]{4,}", lambda m: table.get(m[0], m[0]), text)

    return {name: edit(text) for name, text in corpus.documents.items()}


def damage_characters(corpus: Corpus, draw: random.Random) -> dict[str, str]:
    """Drop letters with ligatures, as an extractor of PDF does."""

    def edit(text: str) -> str:
        return re.sub("fi|fl|ff|ti|tt", "\ufffd", text)

    return {name: edit(text) for name, text in corpus.documents.items()}


def mix_columns(corpus: Corpus, draw: random.Random) -> dict[str, str]:
    """Read two columns line by line."""

    def edit(text: str) -> str:
        words = text.split()
        lines = [words[at : at + 8] for at in range(0, len(words), 8)]
        half = (len(lines) + 1) // 2
        mixed = [line for pair in zip(lines[:half], [*lines[half:], []], strict=False) for line in pair]
        return " ".join(" ".join(line) for line in mixed)

    return {name: edit(text) for name, text in corpus.documents.items()}


def restore_snapshot(corpus: Corpus, draw: random.Random) -> dict[str, str]:
    """Serve an older snapshot of every document that has one."""
    return {name: corpus.older.get(name, text) for name, text in corpus.documents.items()}


def lose_documents(passages: list[Passage], draw: random.Random) -> list[Passage]:
    """Remove two fifths of the passages, by blocks, as a broken batch job does."""
    return [p for at, p in enumerate(passages) if (at // 12) % 5 not in (1, 3)]


def copy_passages(passages: list[Passage], draw: random.Random) -> list[Passage]:
    """Write every passage twice under two ids."""
    return [copy for p in passages for copy in (p, replace(p, id=p.id + "-copy"))]


def keep_versions(passages: list[Passage], draw: random.Random) -> list[Passage]:
    """Keep an outdated version of every passage, with other figures and names, beside it."""
    old = [
        replace(p, id=p.id + "-v0", text=alter_fact(alter_fact(p.text, passages, draw), passages, draw))
        for p in passages
    ]
    return [version for pair in zip(old, passages, strict=True) for version in pair]


def add_navigation(passages: list[Passage], draw: random.Random) -> list[Passage]:
    """Keep the menu of the web page in every passage, which shortens the text."""
    menu = "Home Products Pricing Blog Careers Sign in Cookie settings Accept all Share on social media Subscribe. "
    return [replace(p, text=menu * 2 + p.text[: len(p.text) // 2]) for p in passages]


def rename_ids(passages: list[Passage], draw: random.Random) -> list[Passage]:
    """Give new ids, as a new index does."""
    return [replace(p, id=f"doc-{at:06d}") for at, p in enumerate(passages)]


def add_other_documents(passages: list[Passage], draw: random.Random) -> list[Passage]:
    """Add passages of another subject that no query asks about."""
    words = [
        "canteen",
        "menu",
        "lentil",
        "soup",
        "roast",
        "potatoes",
        "dessert",
        "vegetarian",
        "allergen",
        "weekly",
        "plan",
        "kitchen",
        "counter",
        "tray",
    ]
    extra = [" ".join(draw.choice(words) for _ in range(70)) for _ in range(len(passages) // 5)]
    return [*passages, *(Passage(f"menu#{n}", text, f"menu-{n}", 0, 400) for n, text in enumerate(extra))]


def drop_names(query: str) -> str:
    """Drop the capitalised words of a query and its longest word, as a rewriter to keywords does."""
    words = query.split()
    longest = max(words, key=len)
    return " ".join(w for at, w in enumerate(words) if (at == 0 or not w[:1].isupper()) and w != longest) or query


def drop_long_words(query: str) -> str:
    """Drop the words of seven letters and more of a query, as a tokenizer of another language does."""
    return " ".join(word for word in query.split() if len(word) < 7) or query


def lose_neighbours(ranked: list[Scored], question: Question) -> list[Scored]:
    """Drop half of the best passages by chance, as an approximate index with few probes does."""
    draw = random.Random(question.id + "ann")
    return [pair for pair in ranked if draw.random() > 0.5]


def cut_scores(ranked: list[Scored], question: Question) -> list[Scored]:
    """Keep what scores above four fifths of the best score and nothing else but the first."""
    return [pair for at, pair in enumerate(ranked) if at > 0 and pair[1] > 0.8 * ranked[0][1]] or ranked[:1]


def wrong_group(question: Question, passage: Passage) -> bool:
    """Select the passages of the groups that the query does not ask about, for half of the groups."""
    return passage.group != question.group if sum(map(ord, question.group)) % 2 else True


def see_beginning(passages: list[Passage]) -> list[Passage]:
    """See the first eighty words of the prompt."""
    seen, left = [], 80
    for passage in passages:
        words = passage.text.split()[:left]
        left -= len(words)
        if words:
            seen.append(replace(passage, text=" ".join(words)))
    return seen


def see_last(passages: list[Passage]) -> list[Passage]:
    """See the last two passages alone."""
    return passages[-2:]


def respond_in(share: float, edit: Callable[..., Response]) -> Callable[..., Response]:
    """Return a hook that edits a share of the answers."""

    def respond(answer: Response, question: Question, draw: random.Random, passages: Sequence[Passage]) -> Response:
        return edit(answer, question, draw, passages) if draw.random() < share else answer

    return respond


def blank(answer: Response, *_: Any) -> Response:
    """Return no text."""
    return Response("", right=False)


def cut_words(answer: Response, *_: Any) -> Response:
    """Stop after fourteen words."""
    words = answer.text.split()
    return replace(answer, text=" ".join(words[:14]), right=answer.right and len(words) <= 14)


def alter_answer(answer: Response, question: Question, draw: random.Random, passages: Sequence[Passage]) -> Response:
    """Change a figure or a name."""
    return (
        replace(answer, text=alter_fact(answer.text, passages, draw), right=False)
        if passages and answer.used
        else answer
    )


def lose_negation(answer: Response, *_: Any) -> Response:
    """State the opposite."""
    text = re.sub(r"\b(is|was|are|were|can|has|have|will)\b(?! not)", r"\1 not", answer.text, count=2)
    return replace(answer, text=text, right=answer.right and text == answer.text)


def repeat_text(answer: Response, *_: Any) -> Response:
    """Say the same again and again."""
    return replace(answer, text=" ".join([answer.text] * 4))


def sell_product(answer: Response, *_: Any) -> Response:
    """Add something that nobody asked for."""
    pitch = (
        "By the way, have you considered our premium subscription? It comes with priority support and an adviser. "
        "Many customers tell us that they enjoy the newsletter as well. Our offices are decorated for the season."
    )
    return replace(answer, text=f"{pitch} {answer.text}")


def add_invention(answer: Response, question: Question, draw: random.Random, passages: Sequence[Passage]) -> Response:
    """Add a claim that no passage makes."""
    text = f"{answer.text} {invent_sentence(question, passages, draw)}" if passages and answer.used else answer.text
    return replace(answer, text=text)


def shift_citations(trace: Trace, draw: random.Random) -> Trace:
    """Move each citation to the next passage."""
    ids = [chunk.id for chunk in trace.chunks or ()]
    moved = tuple(
        structs.replace(c, chunk=ids[(ids.index(c.chunk) + 1) % len(ids)])
        for c in trace.citations or ()
        if c.chunk in ids
    )
    return structs.replace(trace, citations=moved)


def fake_quotes(trace: Trace, draw: random.Random) -> Trace:
    """Quote words that no passage holds."""
    quotes = tuple(
        Citation(c.chunk, f"as {draw.choice(['clearly', 'briefly'])} set out in the {n} part, {trace.query[:40]}")
        for n, c in enumerate(trace.citations or ())
    )
    return structs.replace(trace, citations=quotes)


def fail_some(trace: Trace, draw: random.Random) -> Trace:
    """Time out."""
    return (
        structs.replace(trace, answer=None, citations=None, error="ReadTimeout: 30 s")
        if draw.random() < 0.15
        else trace
    )


def serve_cached(traces: list[Trace]) -> list[Trace]:
    """Answer a third of the queries with the answer to the most similar earlier query, chunks and all."""
    served = []
    for at, trace in enumerate(traces):
        other = traces[(at * 7 + 3) % len(traces)]
        same = other.route == trace.route or at % 2
        served.append(
            structs.replace(trace, chunks=other.chunks, answer=other.answer, citations=other.citations)
            if at % 3 == 0 and same
            else trace
        )
    return served


def serve_cached_answers(traces: list[Trace]) -> list[Trace]:
    """Answer a third of the queries with another query's answer over their own chunks."""
    return [
        structs.replace(t, answer=traces[(at * 7 + 3) % len(traces)].answer, citations=()) if at % 3 == 0 else t
        for at, t in enumerate(traces)
    ]


def edit_chunks(edit: Callable[[Chunk], Chunk]) -> Callable[[Trace, random.Random], Trace]:
    """Return a hook that edits the chunks in the record."""
    return lambda trace, _: structs.replace(trace, chunks=tuple(edit(chunk) for chunk in trace.chunks or ()))


def sort_by_id(trace: Trace, draw: random.Random) -> Trace:
    """Record the chunks in the order of their ids."""
    return structs.replace(trace, chunks=tuple(sorted(trace.chunks or (), key=lambda chunk: chunk.id)))


def mask_names(trace: Trace, draw: random.Random) -> Trace:
    """Mask names in the record of chunks and answers."""

    def mask(text: str) -> str:
        return re.sub(r"(?<=[a-z,] )[A-Z][a-z]{3,}", "[NAME]", text)

    chunks = tuple(structs.replace(chunk, text=mask(chunk.text)) for chunk in trace.chunks or ())
    return structs.replace(trace, chunks=chunks, answer=mask(trace.answer or ""))


def add_courtesy(answer: Response, *_: Any) -> Response:
    """Open politely and close politely."""
    return replace(answer, text=f"Thank you for your question!\n\n{answer.text}\n\nI hope this helps.")


def add_sources(answer: Response, *_: Any) -> Response:
    """List the documents at the end."""
    names = dict.fromkeys(p.document for p, _ in answer.used)
    return replace(answer, text=f"{answer.text}\n\nSources: {', '.join(names)}") if names else answer


def switch_traffic(traces: list[Trace]) -> list[Trace]:
    """Return other shares of the routes: of every second route two thirds of the traces are missing."""
    routes = sorted({trace.route or "" for trace in traces})
    rare = set(routes[::2])
    return [trace for at, trace in enumerate(traces) if trace.route not in rare or at % 3 == 0]


R, G, S, P = "retrieval", "generation", "source data", "pipeline"
CITING = ("squad", "reports", "documentation")
RERANKING = ("squad", "reports", "conversations", "documentation")
KINDS = (
    Kind("chunks-tiny", (R,), ("chunker",), set_fields(size=22)),
    Kind("chunks-huge", (R,), ("chunker",), set_fields(size=700), ("squad", "reports", "documentation")),
    Kind(
        "tables-dropped",
        (R, S),
        ("chunker", "ingestion", "index coverage", "source documents"),
        set_fields(documents=drop_tables),
        ("documentation",),
    ),
    Kind("long-words-lost", (R,), ("query rewriter",), set_fields(query=drop_long_words)),
    Kind("two-chunks", (R,), ("top-k",), set_fields(k=2)),
    Kind("documents-lost", (R,), ("index coverage", "ingestion"), set_fields(passages=lose_documents)),
    Kind("wrong-filter", (R,), ("filter", "index coverage"), set_fields(admit=wrong_group)),
    Kind("one-chunk", (R,), ("top-k",), set_fields(k=1)),
    Kind(
        "twenty-chunks",
        (R,),
        ("top-k", "reranker"),
        lambda r: {
            "k": 20,
            "pool": 40,
            "habits": replace(r.habits, errors=r.habits.errors + 0.12, kinds=("other", "partial")),
        },
    ),
    Kind("reranker-off", (R,), ("reranker",), set_fields(rerank="off"), RERANKING),
    Kind("reranker-reversed", (R,), ("reranker",), set_fields(rerank="reversed"), RERANKING),
    Kind("names-dropped", (R,), ("query rewriter",), set_fields(query=drop_names)),
    Kind("query-cut", (R,), ("query rewriter",), set_fields(query=lambda q: " ".join(q.split()[:3]))),
    Kind("history-lost", (R,), ("query rewriter", "memory"), set_fields(history=False), ("conversations",)),
    Kind("score-threshold", (R,), ("score threshold", "top-k"), set_fields(chosen=cut_scores)),
    Kind(
        "neighbours-missed",
        (R,),
        ("embedder", "index coverage", "score threshold", "top-k", "reranker"),
        set_fields(chosen=lose_neighbours),
    ),
    Kind(
        "copies", (R, S), ("index coverage", "deduplication", "ingestion", "index"), set_fields(passages=copy_passages)
    ),
    Kind("figures-edited", (S,), ("source documents", "ingestion"), set_fields(documents=edit_figures)),
    Kind("names-exchanged", (S,), ("source documents", "ingestion"), set_fields(documents=exchange_names)),
    Kind(
        "old-snapshot",
        (S,),
        ("source documents", "ingestion", "index coverage"),
        set_fields(documents=restore_snapshot),
        ("documentation",),
    ),
    Kind("letters-lost", (S, R), ("ingestion",), set_fields(documents=damage_characters)),
    Kind("columns-mixed", (S, R), ("ingestion",), set_fields(documents=mix_columns)),
    Kind(
        "two-versions",
        (S, R),
        ("source documents", "ingestion", "deduplication", "index coverage"),
        set_fields(passages=keep_versions),
    ),
    Kind("navigation-kept", (S, R), ("ingestion", "chunker"), set_fields(passages=add_navigation)),
    Kind("prompt-cut", (G,), ("prompt assembly", "prompt", "max tokens"), set_fields(seen=see_beginning)),
    Kind("last-chunks-seen", (G,), ("prompt assembly", "prompt"), set_fields(seen=see_last)),
    Kind(
        "temperature",
        (G,),
        ("temperature", "model", "decoding", "prompt"),
        lambda r: {"habits": replace(r.habits, errors=r.habits.errors + 0.3, kinds=("invent", "number"))},
    ),
    Kind(
        "smaller-model",
        (G,),
        ("model", "prompt", "decoding", "prompt assembly"),
        lambda r: {"habits": replace(r.habits, errors=r.habits.errors + 0.25, competence=0.55)},
    ),
    Kind("context-ignored", (G,), ("prompt", "model", "prompt assembly", "decoding"), set_habits(blind=0.35)),
    Kind(
        "inventions-added",
        (G,),
        ("prompt", "model", "decoding", "temperature"),
        set_fields(respond=respond_in(0.35, add_invention)),
    ),
    Kind(
        "facts-altered",
        (G,),
        ("model", "decoding", "temperature", "prompt"),
        set_fields(respond=respond_in(0.4, alter_answer)),
    ),
    Kind(
        "negations",
        (G,),
        ("model", "decoding", "temperature", "prompt"),
        set_fields(respond=respond_in(0.4, lose_negation)),
    ),
    Kind("german", (G,), ("prompt", "model"), set_habits(german=0.6)),
    Kind("refusals", (G,), ("refusal wording", "prompt", "model"), set_habits(refusals=0.3)),
    Kind("blank-answers", (G, P), (), set_fields(respond=respond_in(0.15, blank))),
    Kind("time-outs", (P,), (), set_fields(record=fail_some)),
    Kind(
        "max-tokens",
        (G,),
        ("max tokens",),
        set_fields(respond=respond_in(1.0, cut_words)),
        ("clapnq", "reports", "conversations", "documentation"),
    ),
    Kind("repetition", (G,), ("decoding", "model"), set_fields(respond=respond_in(0.4, repeat_text))),
    Kind("sales-pitch", (G,), ("prompt",), set_fields(respond=respond_in(0.8, sell_product))),
    Kind("citations-shifted", (G,), ("output schema", "prompt"), set_fields(record=shift_citations), CITING),
    Kind("quotes-faked", (G,), ("output schema", "prompt"), set_fields(record=fake_quotes), CITING),
    Kind("cache-of-others", (R, G, P), ("answer cache",), set_fields(finish=serve_cached)),
    Kind("cached-answers", (G,), ("answer cache",), set_fields(finish=serve_cached_answers)),
)
HARMLESS = (
    Kind("run-again", (), (), set_fields()),
    Kind("reworded", (), (), set_habits(reword=0.9)),
    Kind("longer", (), (), lambda r: {"habits": replace(r.habits, sentences=r.habits.sentences + 2)}),
    Kind("as-list", (), (), set_habits(style="list")),
    Kind("as-sentences", (), (), set_habits(style="sentences")),
    Kind("as-table", (), (), set_habits(style="table")),
    Kind("courtesy", (), (), set_fields(respond=respond_in(1.0, add_courtesy))),
    Kind("sources-listed", (), (), set_fields(respond=respond_in(1.0, add_sources))),
    Kind("new-ids", (), (), set_fields(passages=rename_ids)),
    Kind("texts-clipped", (), (), set_fields(record=edit_chunks(lambda c: structs.replace(c, text=c.text[:200])))),
    Kind("scores-unrecorded", (), (), set_fields(record=edit_chunks(lambda c: structs.replace(c, score=None)))),
    Kind("order-of-ids", (), (), set_fields(record=sort_by_id)),
    Kind("citations-unrecorded", (), (), set_fields(record=lambda t, _: structs.replace(t, citations=None)), CITING),
    Kind("names-masked", (), (), set_fields(record=mask_names)),
    Kind("traffic-shift", (), (), set_fields(finish=switch_traffic)),
    Kind("unrelated-documents", (), (), set_fields(passages=add_other_documents)),
    Kind("better-model", (), (), set_habits(errors=0.02, competence=0.98)),
    Kind("better-retrieval", (), (), set_fields(rerank="on"), ("clapnq",)),
    Kind("judge-changed", (), (), set_fields()),
)
