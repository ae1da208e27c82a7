"""The system under test: index, search and generator; the same configuration gives the same bytes.

A configuration (`config.Config`) is a frozen record; `System(corpus, config).answer(question)` is a trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from msgspec.structs import replace

from ragfault.model.records import Chunk, Latency, Step, TokenCounts, Trace

from .config import Config, Indexing
from .corpora import Corpus
from .retrieving import Index, rewrite_query, search
from .words import chance
from .writing import build_citations, write_answer

__all__ = ["System", "answer_questions"]


@lru_cache(maxsize=48)
def _build_index(corpus: Corpus, settings: Indexing) -> Index:
    """Build an index, once for each corpus and each setting."""
    return Index(corpus.documents, settings)


class System:
    """A RAG system of one configuration over a corpus."""

    def __init__(self, corpus: Corpus, config: Config) -> None:
        self.index = _build_index(corpus, config.indexing)
        self.config = config

    def retrieve(self, question: Trace) -> tuple[Chunk, ...]:
        """Retrieve the chunks for a question; they do not depend on the settings of the generator."""
        return search(question.query, self.index, self.config.search, question.id)

    def answer(self, question: Trace) -> Trace:
        """Answer a question; return its trace with chunks, answer, citations, and the answer key of this index."""
        chunks = self.retrieve(question)
        settings = self.config.generation
        prompt_chunks = chunks[chance(settings.seed, "skip", question.id) < settings.skipped_share :]
        sentences = write_answer(question.query, prompt_chunks, self.index, settings, question.id)
        text = " ".join(item.text for item in sentences)
        prompt = _count_tokens(question.query) + sum(_count_tokens(chunk.text) for chunk in prompt_chunks)
        return replace(
            question,
            chunks=chunks,
            answer=text,
            citations=build_citations(sentences),
            gold=self.index.map_gold(question.gold.spans) if question.gold else None,
            model="extractive",
            steps=(
                Step(
                    id="rewrite", kind="rewrite", output=rewrite_query(question.query, self.config.search, question.id)
                ),
            ),
            latency=self._simulate_latency(question.id, prompt, _count_tokens(text)),
            tokens=TokenCounts(prompt=prompt, completion=_count_tokens(text)),
        )

    def _simulate_latency(self, name: str, prompt: int, completion: int) -> Latency:
        """Simulate the latency of an answer: by its tokens, with a random factor of 0.8 to 1.2."""
        factor = 0.8 + 0.4 * chance(self.config.generation.seed, "latency", name)
        retrieval = round(4.0 + 0.002 * len(self.index.chunks) + 6 * chance(self.config.search.seed, name), 1)
        generation = round((120 + 0.05 * prompt + 9 * completion) * factor, 1)
        return Latency(retrieval=retrieval, generation=generation, total=round(retrieval + generation, 1))


def answer_questions(corpus: Corpus, config: Config, questions: Iterable[Trace]) -> list[Trace]:
    """Answer questions by the system of a configuration."""
    system = System(corpus, config)
    return [system.answer(question) for question in questions]


def _count_tokens(text: str) -> int:
    return round(len(text) / 4.2)
