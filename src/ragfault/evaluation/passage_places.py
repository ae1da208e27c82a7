"""Where the passage is that a query asks for: shown, retrieved only for other queries of the run, or in no chunk of it.

The chunks that a run retrieved for all of its queries are a sample of its corpus, as pooled runs are at TREC. A passage
among them that answers a query better than what was shown was missed by retrieval, whatever the answer says.
"""

from __future__ import annotations

import hashlib
import math
import re
import tomllib
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cache, cached_property
from importlib.resources import files
from operator import mul
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from ragfault.judges.assembly import observe_traces
from ragfault.judges.checks.queries import TASK_QUERY
from ragfault.judges.encoder.evidence import SENTENCE_END, windows
from ragfault.model.protocols import Judge, MeteredJudge
from ragfault.model.records import Chunk, PassagePlace, Trace, Verdicts
from ragfault.model.rules import find_searched
from ragfault.text.normalization import split_content_words, split_words

MAX_POOL_SIZE = 4_000_000
"""Characters of the chunks that are kept of a run, about 5,000 chunks; of more a sample is drawn by their digests."""
MIN_POOL = 20
"""Distinct chunks from which a run is a sample of its corpus; chosen, not measured."""
DIGEST_BITS = 64
MAX_CHUNK_SIZE = 20_000
"""Characters of a chunk that are compared."""
MAX_QUOTE_SIZE = 400
"""Characters of the passage that are stored with the verdict."""
WINDOW_WORDS = 60
"""Words of a part of a chunk that is compared with a query: a long text has many of its words by chance. Of 300
questions of RAGTruth 10 % seemed to lack their passage by whole chunks, 7 % by windows; nothing else was tried."""
LEAST_RELEVANCE = 0.01
"""A relevance that is nearer to 0 or 1 counts as this one."""
WORDS, READERS = "words", ("encoder",)
"""Name of the weights that use words only, and the judges with weights that use their relevance as well."""
MAX_LOST_WORDS = 5
"""Words that are named where a search lost some."""
HISTORY_TURNS = 2
"""Turns of the user before the query that are searched with it."""
PLACES = ("shown", "elsewhere", "nowhere")
Array = np.ndarray[Any, Any]


class ChunkPool:
    """The distinct chunks of a run, or a sample of them that does not depend on their order.

    >>> pool = ChunkPool()
    >>> pool.add(Trace(id="1", query="q", chunks=(Chunk(id="a", text="Dogs stay on the lower deck."),)))
    >>> hit = pool.search("Where do dogs stay?", hidden=())
    >>> hit.chunk.id, hit.share
    ('a', 1.0)
    """

    def __init__(self) -> None:
        self._chunks: dict[int, Chunk] = {}
        self._size = 0
        self._limit = 1 << DIGEST_BITS

    def __getstate__(self) -> dict[str, Any]:
        # What a worker needs; it builds the rest where it searches.
        return {name: self.__dict__[name] for name in ("_chunks", "_size", "_limit")}

    def add(self, trace: Trace) -> None:
        """Add the chunks of a trace."""
        for chunk in trace.chunks or ():
            text = chunk.text[:MAX_CHUNK_SIZE]
            digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BITS // 8).digest()
            key = int.from_bytes(digest, "big")
            if text.strip() and key < self._limit and key not in self._chunks:
                self._chunks[key] = Chunk(id=chunk.id, text=text)
                self._size += len(text)
        while self._size > MAX_POOL_SIZE:
            self._halve()

    def __len__(self) -> int:
        return len(self._chunks)

    def _halve(self) -> None:
        """Keep the chunks whose digests are in the lower half: which these are does not depend on their order."""
        self._limit //= 2
        self._chunks = {key: chunk for key, chunk in self._chunks.items() if key < self._limit}
        self._size = sum(len(chunk.text) for chunk in self._chunks.values())

    @cached_property
    def _listed(self) -> list[Chunk]:
        return [self._chunks[key] for key in sorted(self._chunks)]

    @cached_property
    def _windows(self) -> tuple[Array, dict[str, Array]]:
        """The rows of the chunks that windows are from, and the windows that have a word."""
        rows: list[int] = []
        numbers = defaultdict(list)
        for row, chunk in enumerate(self._listed):
            for words in _split_windows(chunk.text):
                for word in words:
                    numbers[word].append(len(rows))
                rows.append(row)
        return np.array(rows, np.int64), {word: np.array(places) for word, places in numbers.items()}

    def weigh(self, query: str) -> dict[str, float]:
        """Return the words of a query with their weight, by how few windows have them; the sum of all is 1."""
        words = sorted(frozenset(split_content_words(query)))
        rows, numbers = self._windows
        counts = [len(numbers.get(word, ())) or 0.5 for word in words]
        weights = [math.log(1 + len(rows) / count) for count in counts]
        total = math.fsum(weights)
        return {word: weight / total for word, weight in zip(words, weights, strict=True)} if total else {}

    @cached_property
    def _by_name(self) -> dict[str, list[Chunk]]:
        named = defaultdict(list)
        for chunk in self._listed:
            named[chunk.id].append(chunk)
        return dict(named)

    def list_named(self, name: str) -> list[Chunk]:
        """List the chunks with an id."""
        return self._by_name.get(name, [])

    def search(self, query: str, hidden: Collection[str]) -> PoolHit | None:
        """Return the chunk, without those of the texts `hidden`, that has most of the words of a query by weight."""
        ranked = self.rank(query, len(hidden) + 1)
        texts = frozenset(text[:MAX_CHUNK_SIZE] for text in hidden)
        return next((hit for hit in ranked if hit.chunk.text not in texts), None)

    def rank(self, query: str, count: int) -> list[PoolHit]:
        """Return the chunks that have most of the words of a query by weight, those with none left out."""
        rows, numbers = self._windows
        of_windows, shares = np.zeros(len(rows)), np.zeros(len(self._listed))
        for word, weight in self.weigh(query).items():
            of_windows[numbers.get(word, [])] += weight
        np.maximum.at(shares, rows, of_windows)
        # A stable order: chunks with the same words come in the order of their digests.
        order = np.argsort(-shares, kind="stable")[:count].tolist()
        return [PoolHit(self._listed[row], round(float(shares[row]), 6)) for row in order if shares[row] > 0]


class PoolHit(NamedTuple):
    """A chunk of the pool that was found."""

    chunk: Chunk
    share: float
    """The share of the query's words that it has, by their weight."""


class PlaceEvidence(NamedTuple):
    """What tells where a passage is."""

    shown_share: float
    """The largest share of the query's words, by their weight, in a window of a chunk that was shown."""
    other_share: float
    """That of the other chunk of the run that has most of them."""
    shown_relevance: float | None = None
    """The relevance of the best chunk that was shown; None without a judge whose relevance the weights know."""
    other_relevance: float = 0.0
    """That of the other chunk."""

    @property
    def inputs(self) -> list[float]:
        """Return the inputs of the weights: shares, log-odds of the relevances if known, and the products of both."""
        shares = [self.shown_share, self.other_share]
        if self.shown_relevance is None:
            return shares
        odds = [_compute_odds(self.shown_relevance), _compute_odds(self.other_relevance)]
        return [*shares, *odds, *map(mul, shares, odds)]


def _compute_odds(p: float) -> float:
    p = min(max(p, LEAST_RELEVANCE), 1 - LEAST_RELEVANCE)
    return math.log(p / (1 - p))


@cache
def load_weights() -> dict[str, Array]:
    """Load the fitted weights (`training/places.py`): for each reader a row a place, the intercept last."""
    content = tomllib.loads(files(__package__).joinpath("passage_places.toml").read_text("utf-8"))
    return {reader: np.array([rows[place] for place in PLACES]) for reader, rows in content.items()}


def predict_place(evidence: PlaceEvidence, reader: str = WORDS) -> tuple[float, float]:
    """Return the probabilities that the passage was shown, and that it is elsewhere, all three places being as likely.

    >>> predict_place(PlaceEvidence(0.9, 0.3))[0] > 0.7, predict_place(PlaceEvidence(0.2, 0.8))[1] > 0.9
    (True, True)
    """
    odds = load_weights()[reader] @ np.array([*evidence.inputs, 1.0])
    parts = np.exp(odds - odds.max())
    shown, elsewhere, _ = (parts / parts.sum()).round(4).tolist()
    return shown, elsewhere


class Search(NamedTuple):
    """A query with the chunks that were shown, and the other one of the run that has most of its words."""

    query: str
    shown: Sequence[Chunk]
    other: Chunk | None
    evidence: PlaceEvidence

    @classmethod
    def of_pool(cls, query: str, shown: Sequence[Chunk], pool: ChunkPool, hidden: Collection[str] = ()) -> Search:
        """Search the pool, without the shown chunks and the texts that are `hidden`."""
        weights = pool.weigh(query)
        other = pool.search(query, [*hidden, *(chunk.text for chunk in shown)])
        share = max((_share_words(weights, chunk.text) for chunk in shown), default=0.0)
        return cls(query, shown, other and other.chunk, PlaceEvidence(share, other.share if other else 0.0))

    def describe(self, reader: str, *, lost: tuple[str, ...] = ()) -> PassagePlace:
        """Describe where the passage is, and whether the query lost it on the way."""
        shown, elsewhere = predict_place(self.evidence, reader)
        if self.other is None or elsewhere <= max(shown, 1 - shown - elsewhere):
            return PassagePlace(shown=shown, elsewhere=elsewhere, lost=lost)
        quote = " ".join(self.other.text.split())[:MAX_QUOTE_SIZE]
        return PassagePlace(shown=shown, elsewhere=elsewhere, chunk=self.other.id, quote=quote, lost=lost)


def _share_words(weights: dict[str, float], text: str) -> float:
    """Return the largest share of the weights that the words of a window of a text have."""
    parts = _split_windows(text[:MAX_CHUNK_SIZE])
    shares = (math.fsum(weight for word, weight in weights.items() if word in words) for words in parts)
    return round(max(shares, default=0.0), 6)


def leave_out_questions(text: str) -> str:
    """Leave out the questions of a text most of whose sentences are some: a list of questions answers none of them.

    >>> leave_out_questions("Fees. When is it open? What does it cost? Who may come?")
    'Fees.'
    >>> leave_out_questions("When is it open? At nine.")
    'When is it open? At nine.'
    """
    sentences = [sentence for sentence in SENTENCE_END.split(text) if sentence.strip()]
    stated = [sentence for sentence in sentences if not sentence.rstrip().endswith(("?", "？"))]
    return text if 2 * len(stated) >= len(sentences) else " ".join(stated)


def _split_windows(text: str) -> list[frozenset[str]]:
    """Return the words of each window of a text: chunks of any length are compared by parts of one length."""
    parts = []
    for window in windows([leave_out_questions(text)], WINDOW_WORDS):
        words = window.split()
        # A list or a log may have no ends of sentences.
        for start in range(0, len(words), 2 * WINDOW_WORDS):
            parts.append(frozenset(split_content_words(" ".join(words[start : start + 2 * WINDOW_WORDS]))))
    return parts


def read_searches(judge: Judge, searches: Sequence[Search]) -> list[Search]:
    """Return searches with the relevance of what was shown and of the other chunk, by a judge of `READERS`."""
    listed = [[*search.shown, *([search.other] if search.other else [])] for search in searches]
    asked = [
        Trace(
            id=str(number),
            query=search.query,
            chunks=tuple(Chunk(id=str(place), text=chunk.text[:MAX_CHUNK_SIZE]) for place, chunk in enumerate(chunks)),
        )
        for number, (search, chunks) in enumerate(zip(searches, listed, strict=True))
    ]
    read = []
    for search, verdicts in zip(searches, observe_traces(judge, asked) if asked else (), strict=True):
        relevance = [item.relevance or 0.0 for item in verdicts.chunk or ()]
        shown = max(relevance[: len(search.shown)], default=0.0)
        other = max(relevance[len(search.shown) :], default=0.0)
        evidence = search.evidence._replace(shown_relevance=shown, other_relevance=other)
        read.append(search._replace(evidence=evidence))
    return read


def join_query(trace: Trace) -> str:
    """Return the query of a trace after the last turns of the user."""
    turns = [turn.text for turn in trace.history or () if turn.role == "user"]
    return " ".join([*turns[-HISTORY_TURNS:], trace.query])


def list_lost_words(trace: Trace, search: Search, pool: ChunkPool) -> tuple[str, ...]:
    """List the words that the searched text lost, and the passage with them: see `PassagePlace.lost`.

    The passage that was missed is the gold that the run retrieved for other queries, else the other chunk.
    """
    gold = trace.gold.chunks if trace.gold is not None else {}
    missed = [chunk.text for name, grade in gold.items() if grade > 0 for chunk in pool.list_named(name)]
    shown = [chunk.text for chunk in search.shown]
    missed = [text for text in missed or ([search.other.text] if search.other else []) if text not in shown]

    def prefers_missed(weights: dict[str, float]) -> bool:
        best, beaten = (max((_share_words(weights, text) for text in texts), default=0.0) for texts in (missed, shown))
        return best > beaten

    asked, searched = pool.weigh(search.query), pool.weigh(find_searched(trace)[1])
    if not prefers_missed(asked) or prefers_missed(searched):
        return ()
    there = frozenset(split_content_words(" ".join(text[:MAX_CHUNK_SIZE] for text in missed)))
    lost = sorted((word for word in asked if word in there and word not in searched), key=lambda word: -asked[word])
    spelled = {stem: term for term in re.findall(r"[^\W_]+", search.query) for stem in split_words(term)}
    return tuple(spelled.get(word, word) for word in lost[:MAX_LOST_WORDS])


def locate_passages(
    traces: Sequence[Trace], verdicts: Sequence[Verdicts], pool: ChunkPool, judge: Judge | None = None
) -> list[Verdicts]:
    """Return the verdicts with the place of the passage that each query asks for.

    A pool of fewer than `MIN_POOL` chunks is no sample of a corpus: nothing is added then. Where neither gold nor a
    reference tells the place, a judge of `READERS` reads the other chunk, too; one that costs money is not asked again.

    >>> texts = ["Dogs stay on the lower deck.", *(f"Cars pay at gate {number}." for number in range(MIN_POOL))]
    >>> chunks = [Chunk(id=text, text=text) for text in texts]
    >>> asked = [Trace(id=c.id, query="Where do dogs stay?", answer="?", chunks=(c,)) for c in chunks]
    >>> pool = ChunkPool()
    >>> for trace in asked:
    ...     pool.add(trace)
    >>> empty = [Verdicts(trace=trace.id) for trace in asked]
    >>> [seen.place.chunk for seen in locate_passages(asked, empty, pool)][:2]
    [None, 'Dogs stay on the lower deck.']
    """
    if len(pool) < MIN_POOL:
        return list(verdicts)
    name = "" if judge is None or isinstance(judge, MeteredJudge) else judge.fingerprint.split("/")[0]
    reader = name if name in READERS else WORDS
    located, unknown = list(verdicts), {}
    for row, (trace, seen) in enumerate(zip(traces, verdicts, strict=True)):
        if not _is_comparable(trace):
            continue
        search = Search.of_pool(join_query(trace), trace.chunks or (), pool)
        located[row] = replace(seen, place=search.describe(WORDS, lost=list_lost_words(trace, search, pool)))
        if trace.gold is None and trace.answerable is None and not seen.recall:
            unknown[row] = search
    if judge is not None and reader != WORDS:
        for row, search in zip(unknown, read_searches(judge, list(unknown.values())), strict=True):
            place = located[row].place
            located[row] = replace(
                located[row], place=search.describe(reader, lost=place.lost if place is not None else ())
            )
    return located


def _is_comparable(trace: Trace) -> bool:
    has_texts = trace.chunks is not None and all(chunk.text.strip() for chunk in trace.chunks)
    is_task = not trace.query.strip() or TASK_QUERY.match(trace.query) is not None
    return bool(trace.answer) and has_texts and not is_task
