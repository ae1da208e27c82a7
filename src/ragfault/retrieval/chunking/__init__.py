"""Chunking: documents in, chunks out, every chunk with its place in its document."""

from ragfault.retrieval.chunking.grammar import PRESETS, chunker
from ragfault.retrieval.chunking.record import KINDS, Chunker
from ragfault.retrieval.chunking.tokens import token_count

__all__ = ["KINDS", "PRESETS", "Chunker", "chunker", "token_count"]
