"""The stage that searches an index, whatever keeps it: numpy in memory, or a database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from msgspec.structs import replace

from ragfault.errors import UnknownName, UsageError
from ragfault.retrieval.fusing import fuse, fused
from ragfault.retrieval.posting import ServiceFailed
from ragfault.retrieval.records import Found, Hits, Query, Stage

__all__ = ["KINDS", "Kind", "Searched", "retrieving"]

Kind = Literal["sparse", "dense", "hybrid"]
KINDS: tuple[Kind, ...] = ("sparse", "dense", "hybrid")


class Searched(Protocol):
    """An index that can be searched by words, and by meaning where it `embeds`."""

    @property
    def embeds(self) -> bool:
        """Whether it can be searched by meaning."""
        ...

    def find(self, kind: Kind, text: str, k: int, query: Query) -> Hits:
        """The best chunks for a text by one search, among those that meet the conditions of the query."""
        ...

    def meeting(self, query: Query) -> int:
        """How many chunks meet the conditions of a query."""
        ...


def retrieving(index: Searched, kind: Kind = "hybrid", k: int = 100, **fusion: Any) -> Stage:
    """The stage that finds the best `k` chunks of an index (see `Index.retrieve`)."""
    if kind not in KINDS:
        raise UnknownName("kind of search", kind, KINDS)
    if k < 1:
        raise UsageError(f"k is at least 1, got {k}.")
    if kind != "sparse" and not index.embeds:
        raise UsageError(
            "this index has no embedder: it was built to be searched by words. Build it with one."
        )
    if kind == "hybrid":
        both = {"sparse": retrieving(index, "sparse", k), "dense": retrieving(index, "dense", k)}
        return fuse(both, **{"top": k, **fusion})

    def stage(query: Query, hits: Hits) -> Found:  # noqa: ARG001 - the first stage of a pipeline
        texts = [text for text in query.searched if text.strip()]
        if not texts:
            said = "the query is empty: nothing was searched for"
            return Found(replace(query, notes=(*query.notes, said)), ())
        try:
            each = [index.find(kind, text, k, query) for text in texts]
        except ServiceFailed as error:
            return Found(query.failing(f"the {kind} search failed and found nothing: {error}"), ())
        found = each[0] if len(each) == 1 else _joined(each, k)
        bound = query.conditions or query.user is not None or query.time is not None
        if not found and bound and not index.meeting(query):
            return Found(
                replace(query, notes=(*query.notes, f"no chunk meets the conditions: {_said(query)}")), ()
            )
        return Found(query, found)

    return stage


def _joined(each: Sequence[Hits], k: int) -> Hits:
    """What several forms of a query found, fused by reciprocal ranks."""
    held = {hit.id: hit for hits in each for hit in hits}
    scores = fused([{hit.id: float(hit.score or 0.0) for hit in hits} for hits in each])
    return tuple(replace(held[name], score=score) for name, score in list(scores.items())[:k])


def _said(query: Query) -> str:
    said = [f"{one.field} {one.test} {one.value}" for one in query.conditions]
    said += [f"groups {', '.join(query.user) or 'none'}"] if query.user is not None else []
    return "; ".join(said + ([f"valid at {query.time:%Y-%m-%d}"] if query.time else []))
