"""The settings of the system under test; a fault is a change of these settings."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

__all__ = ["Config", "Generation", "Indexing", "Search"]


class Indexing(Struct, frozen=True, kw_only=True):
    """Settings of cutting, embedding and storing the documents."""

    chunker: Literal["section", "window"] = "section"
    """By section (a paragraph where there are no headings), or windows of whole sentences."""
    size: int = 700
    """Characters of a window at most; a longer sentence is cut at a blank."""
    model: str = "a"
    """The embedding model."""
    mismatched_share: float = 0.0
    """The share of the chunks whose vectors come from another model."""
    copied_share: float = 0.0
    """The share of the documents that were indexed more than once."""
    copies: int = 3
    """How many more times they were indexed."""
    stale_share: float = 0.0
    """The share of the sections whose figures are out of date."""
    redated_share: float = 0.0
    """The share of the sections whose dates and years are wrong."""
    seed: int = 0


class Search(Struct, frozen=True, kw_only=True):
    """Settings of the retrieval of chunks for a query."""

    rotation_angle: float = 0.0
    """Degrees by which the vectors of queries are turned against those of the index."""
    dense_weight: float = 0.85
    """The weight of the cosine of embeddings; the rest is that of BM25."""
    rerank_depth: int = 20
    """How many candidates are reranked."""
    unranked_share: float = 0.0
    """The share of the queries that do not reach the reranker."""
    top_k: int = 5
    budget: int = 8000
    """Characters of chunks in the prompt at most; the first chunk is always included."""
    misfiltered_share: float = 0.0
    """The share of the queries that are restricted to a document that was not meant."""
    unindexed_share: float = 0.0
    """The share of the chunks that are missing from the index."""
    min_score: float = 0.0
    """Chunks that score less are left out."""
    misread_share: float = 0.0
    """The share of the queries that the rewriter cuts to their last three words."""
    missed_share: float = 0.02
    """The share of the candidates that the approximate index misses."""
    seed: int = 0
    """Seed of the candidates that are missed, and of the queries that are affected."""


class Generation(Struct, frozen=True, kw_only=True):
    """Settings of the generator. Shares are of the queries unless stated otherwise."""

    seed: int = 0
    """Seed of the errors that are made, and of the queries that are affected."""
    error_rate: float = 1.0
    """The rate of the small errors that every model makes, as a multiple of the usual one."""
    max_sentences: int = 3
    """Sentences of an answer at most."""
    min_coverage: float = 0.22
    """The generator refuses where the best sentence covers less of the query."""
    max_words: int = 400
    """Words after which the answer is cut."""
    refusal_share: float = 0.0
    invention_share: float = 0.0
    skipped_share: float = 0.0
    """The share of the queries of which the first chunk does not reach the prompt."""
    conversion_share: float = 0.0
    """The share of the answers whose amounts are stated in another currency or unit."""
    alteration_share: float = 0.0
    """The share of the answers with figures in which one of them is changed."""
    fabrication_share: float = 0.0
    """The share of the citations whose quote is fabricated."""
    shift_share: float = 0.0
    preamble_share: float = 0.0
    preamble_sentences: int = 3
    """Sentences of small talk before an answer of the preamble share."""
    digression_share: float = 0.0


class Config(Struct, frozen=True, kw_only=True):
    """Settings of the system: index, search, generator."""

    indexing: Indexing = Indexing()
    search: Search = Search()
    generation: Generation = Generation()
