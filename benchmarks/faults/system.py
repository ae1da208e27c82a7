"""The system under test: index, search and writer put together; the same configuration gives the same bytes.

A configuration (`config.Config`) is a frozen record; `System(corpus, config).answer(question)` is a trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from msgspec.structs import replace

from ragfault.records import Chunk, Latency, Step, TokenCounts, Trace

from .config import Config, Indexing
from .corpora import Corpus
from .retrieving import Index, rewritten, search
from .words import chance
from .writing import cited, write

__all__ = ["System", "answers"]


@lru_cache(maxsize=48)
def _index(corpus: Corpus, settings: Indexing) -> Index:
    """Return an index, built once for each way of indexing."""
    return Index(corpus.documents, settings)


class System:
    """A RAG system over a corpus, as a configuration sets it up."""

    def __init__(self, corpus: Corpus, config: Config) -> None:
        self.index = _index(corpus, config.indexing)
        self.config = config

    def retrieve(self, question: Trace) -> tuple[Chunk, ...]:
        """Return the chunks for a question; they do not depend on how answers are written."""
        return search(question.query, self.index, self.config.search, question.id)

    def answer(self, question: Trace) -> Trace:
        """Return the trace of a question: chunks, answer, citations, metadata, and the answer key of this index."""
        chunks = self.retrieve(question)
        how = self.config.generation
        shown = chunks[chance(how.seed, "skip", question.id) < how.skipping :]
        sentences = write(question.query, shown, self.index, how, question.id)
        text = " ".join(item.text for item in sentences)
        prompt = _tokens(question.query) + sum(_tokens(chunk.text) for chunk in shown)
        return replace(
            question,
            chunks=chunks,
            answer=text,
            citations=cited(sentences),
            gold=self.index.gold(question.gold.spans) if question.gold else None,
            model="extractive",
            steps=(
                Step(id="rewrite", kind="rewrite", output=rewritten(question.query, self.config.search, question.id)),
            ),
            latency=self._latency(question.id, prompt, _tokens(text)),
            tokens=TokenCounts(prompt=prompt, completion=_tokens(text)),
        )

    def _latency(self, name: str, prompt: int, completion: int) -> Latency:
        """Return what the answer would have taken: by its tokens, give or take a fifth by chance."""
        luck = 0.8 + 0.4 * chance(self.config.generation.seed, "latency", name)
        result = round(4.0 + 0.002 * len(self.index.chunks) + 6 * chance(self.config.search.seed, name), 1)
        written = round((120 + 0.05 * prompt + 9 * completion) * luck, 1)
        return Latency(retrieval=result, generation=written, total=round(result + written, 1))


def answers(corpus: Corpus, config: Config, questions: Iterable[Trace]) -> list[Trace]:
    """Return what a configuration makes of questions."""
    system = System(corpus, config)
    return [system.answer(question) for question in questions]


def _tokens(text: str) -> int:
    return round(len(text) / 4.2)
