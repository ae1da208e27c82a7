"""Chunking: split documents into chunks, each with its character offsets in the document."""

from ragfault.retrieval.chunking.chunker import CHUNKER_KINDS, CHUNKER_PRESETS, Chunker, load_chunker
from ragfault.retrieval.chunking.token_spans import count_tokens

__all__ = ["CHUNKER_KINDS", "CHUNKER_PRESETS", "Chunker", "count_tokens", "load_chunker"]
