"""Compression: of each chunk only the sentences that bear on the query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec.structs import replace

from ragfault.errors import UsageError
from ragfault.ports import Reranker
from ragfault.records import Chunk
from ragfault.retrieval.records import Found, Hits, Query, Stage
from ragfault.text import content, sentences

__all__ = ["compress"]

GAP = " … "
Bearing = Callable[[str, Sequence[str]], Sequence[float]]


def compress(reranker: Reranker | None = None, *, bar: float = 0.5, beside: int = 0) -> Stage:
    """The stage that keeps of each hit the sentences that bear on the query, with `beside` neighbours on each side.

    A sentence bears on it where the reranker says at least `bar`; without one, where it shares at least `bar` of the
    content words of the best sentence among all hits. Of each hit the best sentence stays in any case, tables and
    records stay whole. What is left out is marked by an ellipsis; `start` and `end` then span what is left. A reranker
    that fails leaves the hits whole, and a note says so.

    >>> text = "The museum was built in 1902. Dogs may enter the ferry on a lead. The cafe sells soup."
    >>> hit = Chunk(id="a", text=text, document="d", start=100, end=100 + len(text))
    >>> kept = compress()(Query(text="May dogs enter the ferry?"), (hit,)).hits[0]
    >>> kept.text, kept.start, kept.end
    ('Dogs may enter the ferry on a lead.', 130, 165)
    """
    if not 0 <= bar <= 1 or beside < 0:
        raise UsageError(f"bar is from 0 to 1 and beside at least 0, got bar={bar}, beside={beside}.")
    bearing: Bearing = reranker.relevance if reranker is not None else _shared

    def stage(query: Query, hits: Hits) -> Found:
        cut = {hit.id: sentences(hit.text) for hit in hits if hit.kind == "text"}
        texts = [hit.text[a:b] for hit in hits if hit.id in cut for a, b in cut[hit.id]]
        try:
            values = iter(bearing(query.text, texts) if texts else ())
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 - the door to services: whole hits are still hits
            note = f"compression failed, the hits are whole: {type(error).__name__}: {error}"
            return Found(query.failing(note), hits)
        made = []
        for hit in hits:
            spans = cut.get(hit.id, [])
            scores = [next(values) for _ in spans]
            made.append(_kept(hit, spans, scores, bar, beside) if len(spans) > 1 else hit)
        return Found(query, tuple(made))

    return stage


def _shared(query: str, texts: Sequence[str]) -> list[float]:
    """The share of the query's content words in each text, against the text that has most of them."""
    asked = frozenset(content(query))
    found = [len(asked & frozenset(content(text))) for text in texts]
    most = max(found, default=0)
    return [each / most if most else 1.0 for each in found]


def _kept(
    hit: Chunk, spans: Sequence[tuple[int, int]], scores: Sequence[float], bar: float, beside: int
) -> Chunk:
    """A hit with the sentences that bear on the query, and their neighbours."""
    best = max(range(len(scores)), key=scores.__getitem__)
    bears = {place for place, score in enumerate(scores) if score >= bar} | {best}
    kept = sorted(
        {near for at in bears for near in range(at - beside, at + beside + 1)} & set(range(len(spans)))
    )
    if len(kept) == len(spans):
        return hit
    text = hit.text[slice(*spans[kept[0]])]
    for before, place in pairwise(kept):
        start, end = spans[place]
        text += hit.text[spans[before][1] : end] if place == before + 1 else GAP + hit.text[start:end]
    begin, end = spans[kept[0]][0], spans[kept[-1]][1]
    if hit.start is None:
        return replace(hit, text=text)
    return replace(hit, text=text, start=hit.start + begin, end=hit.start + end)
