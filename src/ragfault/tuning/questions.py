"""Questions with gold that every chunking can be held against, and their division into two parts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ragfault.errors import InputError, UsageError
from ragfault.records import Document, Gold, Span, Trace
from ragfault.tuning.records import Question

__all__ = ["Split", "gather", "split"]

LEAST = 8
"""Fewer questions than this choose nothing and show nothing."""
GROUPS = 10
"""Documents group the questions only where they make at least so many groups…"""
LARGEST = 0.25
"""…and none of them holds more than this share."""


class Gathered(NamedTuple):
    """Questions that can be used, and what is to be said of the others."""

    questions: tuple[Question, ...]
    grouped_by: str
    notes: tuple[str, ...]


class Split(NamedTuple):
    """Questions that choose, and questions that measure."""

    selection: tuple[Question, ...]
    held_out: tuple[Question, ...]


def gather(traces: Iterable[Trace], documents: Sequence[Document]) -> Gathered:
    """The questions whose gold lies in the corpus.

    Gold is spans of documents, or ids of documents with grades. Left out, and counted in a note: questions without
    gold, and those whose gold names documents that are not there. Raises InputError where two have one id or fewer than
    8 are left.

    >>> corpus = [Document(id="d", text="The ferry leaves at ten.")]
    >>> gather([Trace(id="1", query="When?")], corpus)
    Traceback (most recent call last):
    ragfault.errors.InputError: 0 of 1 questions can be used, and at least 8 are needed. Without gold: 1.
    """
    sizes = {document.id: len(document.text) for document in documents}
    held: list[Trace] = []
    lost: Counter[str] = Counter()
    seen: set[str] = set()
    for trace in traces:
        if trace.id in seen:
            raise InputError(f'two questions have the id "{trace.id}": give each its own.')
        seen.add(trace.id)
        why = _fault(trace, sizes)
        if why is None:
            held.append(trace)
        else:
            lost[why] += 1
    told = "; ".join(f"{why}: {count:,}" for why, count in lost.items())
    if len(held) < LEAST:
        short = f"{len(held):,} of {len(seen):,} questions can be used, and at least {LEAST} are needed."
        raise InputError(f"{short} {told[:1].upper()}{told[1:]}." if told else short)
    groups, grouped_by = _groups(held)
    questions = tuple(
        Question(id=one.id, query=one.query, gold=one.gold or Gold(), group=groups[one.id]) for one in held
    )
    return Gathered(questions, grouped_by, (f"questions left out: {told}",) if told else ())


def _fault(trace: Trace, sizes: Mapping[str, int]) -> str | None:
    """Why a question cannot be used."""
    gold = trace.gold
    if not trace.query.strip():
        return "without a query"
    if gold is None or not any(grade > 0 for grade in _grades(gold)):
        return "without gold"
    if gold.spans:
        if any(span.document not in sizes for span in gold.spans):
            return "gold in documents that are not in the corpus"
        if any(not 0 <= span.start < span.end <= sizes[span.document] for span in gold.spans):
            return "gold beyond the ends of its document"
    elif any(name not in sizes for name in gold.chunks):
        return "gold by ids that are not documents of the corpus (chunks are cut anew: give spans)"
    return None


def _grades(gold: Gold) -> list[float]:
    return [*gold.chunks.values(), *(span.grade for span in gold.spans)]


def _documents(trace: Trace) -> list[str]:
    assert trace.gold is not None
    return [span.document for span in trace.gold.spans] or list(trace.gold.chunks)


def _groups(traces: Sequence[Trace]) -> tuple[dict[str, str], str]:
    """Question → group: those that share a document, or where documents are too few, those whose gold overlaps."""
    found = _joined({trace.id: _documents(trace) for trace in traces})
    sizes = Counter(found.values())
    if len(sizes) >= GROUPS and max(sizes.values()) <= LARGEST * len(traces):
        return found, f"document ({len(sizes):,} groups of questions that share one)"
    spans = sorted(
        ((span, trace.id) for trace in traces for span in (trace.gold.spans if trace.gold else ())),
        key=lambda pair: (pair[0].document, pair[0].start),
    )
    found = _joined(_overlaps(spans, traces))
    return found, (
        f"overlapping gold ({len(set(found.values())):,} groups): too few documents to divide the questions by"
    )


def _overlaps(spans: Sequence[tuple[Span, str]], traces: Sequence[Trace]) -> dict[str, list[str]]:
    """Question → the stretches of overlapping gold that it has a part in."""
    found: dict[str, list[str]] = {trace.id: [f"question {trace.id}"] for trace in traces}
    at, document, end = 0, "", -1
    for span, name in spans:
        if span.document != document or span.start >= end:
            at, document, end = at + 1, span.document, span.end
        end = max(end, span.end)
        found[name].append(f"stretch {at}")
    return found


def _joined(marks: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Question → the name of its group: all that share a mark, directly or through others."""
    parent: dict[str, str] = {}

    def root(mark: str) -> str:
        while parent.setdefault(mark, mark) != mark:
            parent[mark] = parent[parent[mark]]
            mark = parent[mark]
        return mark

    for each in marks.values():
        for other in each[1:]:
            parent[root(other)] = root(each[0])
    return {name: root(each[0]) for name, each in marks.items()}


def split(questions: Sequence[Question], share: float = 0.5, seed: int = 0) -> Split:
    """Divide questions at random, whole groups at a time: a `share` of them measures, the others choose.

    Raises InputError where they are all of one group: nothing then is left to measure on; UsageError for a share that
    is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise UsageError(f"holdout is between 0 and 1, got {share}.")
    groups: dict[str, list[Question]] = {}
    for question in questions:
        groups.setdefault(question.group, []).append(question)
    names = sorted(groups)
    random.Random(seed).shuffle(names)
    selection: list[Question] = []
    held_out: list[Question] = []
    for name in names:
        side = held_out if len(held_out) < share * len(questions) and len(names) > 1 else selection
        side.extend(groups[name])
    if not selection or not held_out:
        raise InputError(
            f"all {len(questions):,} questions hang together: none are left to measure on. Add questions about others."
        )
    return Split(tuple(selection), tuple(held_out))
