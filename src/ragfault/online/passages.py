"""Chunks from whatever a retriever returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ragfault.errors import UsageError
from ragfault.records import Chunk
from ragfault.sources.values import content_id

__all__ = ["chunks_of"]

TEXTS = ("text", "content", "page_content")
KEPT = (str, int, float, bool, type(None))


def chunks_of(found: Iterable[Any]) -> tuple[Chunk, ...]:
    """The chunks that a retriever returned: texts, mappings, documents of LangChain or Haystack, nodes of LlamaIndex.

    An id is the one that a chunk has, else made from its text. Raises UsageError for what holds no text.

    >>> [(chunk.id, chunk.text) for chunk in chunks_of([{"id": "a", "text": "At ten."}])]
    [('a', 'At ten.')]
    """
    if isinstance(found, (str, Mapping)):
        raise UsageError("a retriever returns several chunks, in a list; got one by itself.")
    return tuple(map(_chunk, found))


def _chunk(given: Any) -> Chunk:
    if isinstance(given, Chunk):
        return given
    if isinstance(given, str):
        return Chunk(id=content_id(given), text=given)
    if isinstance(given, Mapping):
        text = next((given[name] for name in TEXTS if isinstance(given.get(name), str)), None)
        return _made(given.get("id"), text, given.get("score"), given.get("metadata"), given)
    node, score = getattr(given, "node", given), getattr(given, "score", None)
    text = getattr(node, "page_content", None)
    if text is None:
        text = node.get_content() if hasattr(node, "get_content") else getattr(node, "content", None)
    name = getattr(node, "node_id", None) or getattr(node, "id", None)
    held = getattr(node, "metadata", None) or getattr(node, "meta", None)
    return _made(name, text, score, held if isinstance(held, Mapping) else None, given)


def _made(name: Any, text: Any, score: Any, metadata: Any, given: Any) -> Chunk:
    """A chunk of the parts that were found; of the metadata what JSON can hold."""
    if not isinstance(text, str):
        raise UsageError(
            f"a retriever returned {type(given).__name__}, which holds no text that is known of."
        )
    held = {str(key): value for key, value in (metadata or {}).items() if isinstance(value, KEPT)}
    score = held.get("score") if score is None else score
    return Chunk(
        id=str(name) if name else content_id(text),
        text=text,
        score=float(score) if isinstance(score, (int, float)) else None,
        metadata=held,
    )
