"""The first step at which two traces of one query differ although all before it is the same."""

from __future__ import annotations

from ragfault.diagnosis.steps.moves import is_result
from ragfault.diagnosis.steps.operations import MAX_STEPS, find_caller
from ragfault.model.records import Step, StepKind, Trace
from ragfault.text.entities import extract_entities
from ragfault.text.normalization import split_content_words

SAME_WORDS, SAME_CHUNKS = 0.6, 0.5
"""Jaccard index of words, and of chunks, from which on what two steps gave is the same but for chance."""

MAX_CHARACTERS = 10_000
"""Characters of a text that are compared."""


def find_first_difference(old: Trace, new: Trace, same_chunks: float = SAME_CHUNKS) -> Step | None:
    """Find the first step of the new trace that did something else than in the old one; None: no step did.

    What a plan thinks is not compared, but the calls that it makes: another tool or another input is the plan's. A
    step that is only there in one trace is the plan's too, where one was made before it. Other words for the same and
    near ties are no difference: two lists are the same from a Jaccard index of `same_chunks` on.

    >>> old = Trace(id="1", query="?", steps=(Step(id="1", kind="rewrite", output="ferry to Texel"),))
    >>> new = Trace(id="1", query="?", steps=(Step(id="1", kind="rewrite", output="boats"),))
    >>> find_first_difference(old, new).kind
    'rewrite'
    """
    left, right = ((trace.steps or ())[:MAX_STEPS] for trace in (old, new))
    for index in range(max(len(left), len(right))):
        if index >= len(right):
            return find_caller(left, index)
        if index >= len(left):
            return find_caller(right, index)
        before, after = left[index], right[index]
        if (before.kind, before.name, before.agent) != (after.kind, after.name, after.agent):
            planned = next((step for step in (before, after) if step.kind in ("plan", "route")), None)
            return planned or find_caller(right if is_result(after) else left, index)
        if before.input and after.input and not have_same_words(before.input, after.input):
            return find_caller(right, index)
        if not _gave_the_same(before, after, same_chunks):
            return after
    return None


def list_kinds_in_order(traces: list[Trace]) -> list[StepKind | None]:
    """List the kinds of steps in the order of their mean place in the traces."""
    places: dict[StepKind | None, list[float]] = {}
    for trace in traces:
        steps = trace.steps or ()
        for index, step in enumerate(steps):
            places.setdefault(step.kind, []).append(index / len(steps))
    return sorted(places, key=lambda kind: sum(places[kind]) / len(places[kind]))


def have_same_words(left: str, right: str) -> bool:
    """Tell whether two texts have the same words but for some, and the same numbers and names."""
    left, right = left[:MAX_CHARACTERS], right[:MAX_CHARACTERS]
    if left == right:
        return True
    words, others = (frozenset(split_content_words(text)) for text in (left, right))
    if len(words & others) < SAME_WORDS * len(words | others):
        return False
    return _list_exact(left, words) == _list_exact(right, others)


def _list_exact(text: str, words: frozenset[str]) -> set[str]:
    """List what has no other wording: numbers and names."""
    return {word for word in words if word[0].isdigit()} | {name.lower() for name in extract_entities(text)}


def _gave_the_same(before: Step, after: Step, same_chunks: float) -> bool:
    if (before.error is None) != (after.error is None):
        return False
    if before.chunks is not None and after.chunks is not None:
        chunks, others = set(before.chunks), set(after.chunks)
        return len(chunks & others) >= same_chunks * len(chunks | others)
    if before.kind in ("plan", None) or before.output is None or after.output is None:
        return before.kind in ("plan", None) or bool(before.output) == bool(after.output)
    return have_same_words(before.output, after.output)
