"""Cache of answers to frequent questions: an answer is reused only with proof that it still holds."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from ragfault.model.errors import UsageError
from ragfault.model.protocols import Embedder
from ragfault.model.records import Trace
from ragfault.text.normalization import NEGATIONS

MAX_AGE = 24 * 3600.0
MIN_SIMILARITY = 0.95
CAPACITY = 10_000
WORD = re.compile(r"\w+")
DECIDING_WORDS = NEGATIONS | frozenset(
    (
        *("from", "to", "before", "after", "than", "by", "with", "without", "under", "over", "above", "below", "in"),
        *("out", "on", "off", "first", "last", "next", "earliest", "latest", "least", "most", "more", "less", "all"),
        *("only", "minimum", "maximum", "was", "were", "is", "are", "will"),
    )
)
"""Words that change a question and hardly its similarity."""


class CachedAnswer(NamedTuple):
    """Answer with the question and the passages that it was written from."""

    trace: Trace
    stored: float
    """Seconds of the clock."""
    passages: frozenset[str]


class CacheProof(NamedTuple):
    """Proof on which an answer was reused."""

    query: str
    """The earlier question."""
    similarity: float
    age: float
    """Seconds."""


class AnswerCache:
    """Cache around whatever answers a trace; `hits` and `misses` count.

    An answer is reused where the questions are the same word for word, or, with an `embedder`, similar enough by its
    cosine and the same in their names, numbers, negations and words such as "from" or "last", in their order; where
    none of the passages that it was written from has changed or is absent from those retrieved now; and where it is at
    most `max_age` seconds old. Traces of conversations and failed answers are neither stored nor reused, and a route
    reuses its own alone. Thread-safe.

    >>> from ragfault.model.records import Chunk
    >>> cache = AnswerCache(lambda trace: replace(trace, answer="At 22:40."))
    >>> chunks = (Chunk(id="a", text="The last ferry leaves at 22:40."),)
    >>> for query in ("When does the last ferry leave?", "When does the first ferry leave?"):
    ...     _ = cache(Trace(id="1", query=query, chunks=chunks))
    >>> again = cache(Trace(id="2", query="when does the last ferry leave", chunks=chunks))
    >>> cache.hits, cache.misses, again.answer, again.metadata["cached"]["query"]
    (1, 2, 'At 22:40.', 'When does the last ferry leave?')
    """

    def __init__(
        self,
        answer: Callable[[Trace], Trace],
        *,
        embedder: Embedder | None = None,
        similarity: float = MIN_SIMILARITY,
        max_age: float = MAX_AGE,
        capacity: int = CAPACITY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not 0 < similarity <= 1 or max_age <= 0 or capacity < 1:
            raise UsageError("similarity lies in (0, 1], max_age above 0, and capacity is 1 or more.")
        self._answer, self._embedder, self._clock = answer, embedder, clock
        self.similarity, self.max_age, self.capacity = similarity, max_age, capacity
        self.hits = self.misses = 0
        self._entries: OrderedDict[tuple[object, ...], list[CachedAnswer]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, trace: Trace) -> Trace:
        """Return the trace with a cached answer and its proof in `metadata["cached"]`, else with a new one."""
        if trace.history:
            return self._answer(trace)
        key = self._make_key(trace)
        with self._lock:
            reused = self._look_up(trace, key)
            self.hits, self.misses = self.hits + (reused is not None), self.misses + (reused is None)
        if reused is not None:
            return reused
        result = self._answer(trace)
        if result.answer and not result.error:
            with self._lock:
                entry = CachedAnswer(result, self._clock(), _list_passages(result))
                entries = [item for item in self._entries.pop(key, []) if item.trace.query != result.query]
                self._entries[key] = [*entries, entry]
                while sum(map(len, self._entries.values())) > self.capacity:
                    oldest = next(iter(self._entries))
                    self._entries[oldest] = self._entries[oldest][1:]
                    if not self._entries[oldest]:
                        del self._entries[oldest]
        return result

    def _make_key(self, trace: Trace) -> tuple[object, ...]:
        """Return what must be the same in two questions whatever their similarity."""
        words = WORD.findall(trace.query)
        if self._embedder is None:
            return (trace.route, *(word.casefold() for word in words))
        fixed = [
            word.casefold()
            for i, word in enumerate(words)
            if word.casefold() in DECIDING_WORDS or any(map(str.isdigit, word)) or (i > 0 and word[0].isupper())
        ]
        return (trace.route, *fixed)

    def _look_up(self, trace: Trace, key: tuple[object, ...]) -> Trace | None:
        now = self._clock()
        entries = [item for item in self._entries.get(key, ()) if now - item.stored <= self.max_age]
        passages = _list_passages(trace)
        proofs = [
            (CacheProof(item.trace.query, self._measure(trace.query, item.trace.query), now - item.stored), item)
            for item in entries
            if item.passages <= passages
        ]
        proof, best = max(proofs, key=lambda pair: pair[0].similarity, default=(None, None))
        if proof is None or best is None or proof.similarity < self.similarity:
            return None
        return replace(
            trace,
            answer=best.trace.answer,
            citations=best.trace.citations,
            model=best.trace.model,
            metadata={**trace.metadata, "cached": proof._asdict()},
        )

    def _measure(self, query: str, stored: str) -> float:
        if self._embedder is None or query == stored:
            return 1.0
        first, second = self._embedder.embed([query, stored], query=True)
        return float(first @ second)


def _list_passages(trace: Trace) -> frozenset[str]:
    """List the texts of the passages, cited ones where the answer cites."""
    cited = {citation.chunk for citation in trace.citations or ()}
    chunks = trace.chunks or ()
    return frozenset(chunk.text for chunk in chunks if not cited or chunk.id in cited)
