"""What the system under test can be set to; a fault is a change of these settings."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

__all__ = ["Config", "Generation", "Indexing", "Search"]


class Indexing(Struct, frozen=True, kw_only=True):
    """How the documents are cut, embedded and stored."""

    chunker: Literal["section", "window"] = "section"
    """By section (a paragraph where there are no headings), or windows of whole sentences."""
    size: int = 700
    """Characters of a window at most; a longer sentence is cut at a blank."""
    model: str = "a"
    """The embedding model."""
    mismatched: float = 0.0
    """The share of the chunks whose vectors another model made."""
    copied: float = 0.0
    """The share of the documents that were taken in more than once."""
    copies: int = 3
    """How many more times."""
    stale: float = 0.0
    """The share of the sections whose figures are out of date."""
    redated: float = 0.0
    """The share of the sections whose dates and years are wrong."""
    seed: int = 0


class Search(Struct, frozen=True, kw_only=True):
    """How chunks are found for a query."""

    angle: float = 0.0
    """Degrees by which the vectors of queries are turned against those of the index."""
    dense: float = 0.85
    """The weight of the embedding against that of the words (BM25)."""
    pool: int = 20
    """How many candidates the reranker sees."""
    unranked: float = 0.0
    """The share of the queries that do not reach the reranker."""
    top_k: int = 5
    budget: int = 8000
    """Characters that the prompt has room for; the first chunk always goes in."""
    misfiltered: float = 0.0
    """The share of the queries that are confined to a document that was not meant."""
    uncovered: float = 0.0
    """The share of the chunks that never reached the index."""
    least_score: float = 0.0
    """Chunks that score less are left out."""
    misread: float = 0.0
    """The share of the queries of which the rewriter leaves only the last words."""
    missed: float = 0.02
    """How often the approximate index overlooks a candidate."""
    seed: int = 0
    """Which candidates it overlooks, and which queries are hit."""


class Generation(Struct, frozen=True, kw_only=True):
    """How an answer is written. Shares are of the queries where nothing else is said."""

    seed: int = 0
    """Which slips are made, and which queries are hit."""
    slips: float = 1.0
    """The rate of the small imperfections that every model has, 1 being the usual one."""
    sentences: int = 3
    """At most so many sentences."""
    refuses_below: float = 0.22
    """It refuses where the best sentence covers less of the query."""
    max_words: int = 400
    """Where the answer is cut, in words."""
    refusing: float = 0.0
    inventing: float = 0.0
    skipping: float = 0.0
    """The share of the queries of which the first chunk does not reach the prompt."""
    converting: float = 0.0
    """The share of the answers whose amounts are said in another currency or unit."""
    altering: float = 0.0
    """The share of the answers with figures in which one of them is changed."""
    fabricating: float = 0.0
    """The share of the citations whose quote is made up."""
    shifting: float = 0.0
    wandering: float = 0.0
    preamble: int = 3
    """How many sentences of small talk a wandering answer begins with."""
    digressing: float = 0.0


class Config(Struct, frozen=True, kw_only=True):
    """The whole system: index, search, writer."""

    indexing: Indexing = Indexing()
    search: Search = Search()
    generation: Generation = Generation()
