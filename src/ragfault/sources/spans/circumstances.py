"""The circumstances of a trace: who asked, on which release, with which prompt, what failed, how it was rated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ragfault.sources.spans.contents import opened, unquoted
from ragfault.sources.spans.operation import Event, Operation
from ragfault.sources.spans.outline import Outline
from ragfault.sources.spans.vocabulary import KEPT, METADATA, first
from ragfault.sources.values import Wrong, clean

__all__ = ["error_of", "metadata_of", "named"]

RATED = "gen_ai.evaluation.result"
RATING = {
    "name": "gen_ai.evaluation.name",
    "score": "gen_ai.evaluation.score.value",
    "label": "gen_ai.evaluation.score.label",
    "reason": "gen_ai.evaluation.explanation",
}


def named(outline: Outline, names: Sequence[str]) -> Any:
    """The value of these attributes on the root, else on another operation, else of what made the root."""
    found = first(outline.root.attributes, names)
    if found is not None:
        return found
    for one in outline.operations:
        found = first(one.attributes, names)
        if found is not None:
            return found
    return first(outline.root.resource, names)


def metadata_of(outline: Outline, events: Sequence[Event]) -> dict[str, Any]:
    """User, tags, release, service, environment and prompt, as far as known, the system's own metadata, and ratings.

    What the system's metadata says under one of these names goes before what was found elsewhere.
    """
    made: dict[str, Any] = {}
    for key, names in KEPT.items():
        found = named(outline, names)
        if found is not None and not str(found).startswith("unknown_service"):
            made[key] = opened(found) if key == "tags" else found
    made.update(_own(outline))
    known = {one.id for one in outline.operations}
    rated = [event for one in outline.operations for event in one.events] + [
        event for event in events if event.span not in known
    ]
    ratings = [_rating(event) for event in rated if event.name == RATED]
    if ratings:
        made["evaluations"] = ratings
    try:
        found = clean(made)
    except Wrong:
        return {key: value for key, value in made.items() if isinstance(value, (str, int))}
    return dict(found)


def _own(outline: Outline) -> Iterator[tuple[str, Any]]:
    """The metadata that the system gave its root, or its outermost step."""
    for one in (outline.steps[0].operation, outline.root):
        for name in METADATA:
            value = opened(one.attributes.get(name))
            if isinstance(value, dict):
                yield from value.items()
        for name, value in one.attributes.items():
            prefix = next((known for known in METADATA if name.startswith(known + ".")), None)
            if prefix:
                yield name[len(prefix) + 1 :], unquoted(opened(value))


def _rating(event: Event) -> dict[str, Any]:
    return {key: event.attributes[name] for key, name in RATING.items() if name in event.attributes}


def error_of(outline: Outline, answer: str | None) -> str | None:
    """Why the trace failed: the root's error, else that of a step where there is no answer."""
    failed = [one for one in outline.operations if _failed(one)]
    if outline.root in failed:
        return _reason(outline.root, failed)
    return _reason(failed[-1], failed) if failed and answer is None else None


def _failed(one: Operation) -> bool:
    return one.status == "error" or one.attributes.get("langfuse.observation.level") == "ERROR"


def _reason(one: Operation, failed: Sequence[Operation]) -> str:
    """What an operation says of its error, else what another that failed says."""
    for part in (one, *reversed(failed)):
        said = part.message or part.attributes.get("langfuse.observation.status_message") or _raised(part)
        if said:
            return str(said)
    return str(one.attributes.get("error.type") or "failed")


def _raised(one: Operation) -> str | None:
    for event in reversed(one.events):
        if event.name == "exception":
            kind, text = (event.attributes.get(f"exception.{part}") for part in ("type", "message"))
            return ": ".join(str(part) for part in (kind, text) if part) or None
    return None
