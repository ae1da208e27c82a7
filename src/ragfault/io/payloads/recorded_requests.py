"""The request to the generator among the turns of a record: the turns that hold all of the chunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard


def find_request(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Find the request to the generator in the history of a trace; return it with the turns before the question.

    What holds every chunk word for word is what the generator was given, and not a conversation. If the question is not
    in its last turn, it becomes its last turn. Empty if a request is recorded, or the history lacks a chunk.

    >>> shown = [{"role": "user", "text": "Opens at nine. When does it open?"}]
    >>> trace = {"query": "When does it open?", "chunks": [{"text": "Opens at nine."}], "history": shown}
    >>> find_request(trace) == {"messages": shown, "history": []}
    True
    >>> find_request({**trace, "history": [{"role": "user", "text": "Hello"}]})
    {}
    """
    query, chunks, turns = (fields.get(name) for name in ("query", "chunks", "history"))
    if fields.get("messages") is not None or not _are_turns(turns) or not isinstance(query, str):
        return {}
    texts = [_join_space(chunk.get("text")) for chunk in chunks or () if isinstance(chunk, dict)]
    request = list(turns)
    if request[-1].get("role") == "assistant" and _join_space(request[-1]["text"]) == _join_space(fields.get("answer")):
        request.pop()
    shown = [_join_space(turn["text"]) for turn in request]
    if not texts or not all(text and any(text in words for words in shown) for text in texts):
        return {}
    if _join_space(query) not in shown[-1]:
        request, shown = [*request, {"role": "user", "text": query}], [*shown, query]
    earlier = [
        turn
        for turn, words in zip(request[:-1], shown[:-1], strict=True)
        if turn.get("role") in ("user", "assistant") and not any(text in words for text in texts)
    ]
    return {"messages": request, "history": earlier} if request[-1].get("role") == "user" else {}


def _are_turns(turns: Any) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(turns, list) and bool(turns) and all(isinstance(turn, dict) and "text" in turn for turn in turns)


def _join_space(text: Any) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""
