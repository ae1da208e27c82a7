"""Consensus of people: the last label of each annotator, then the majority of annotators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from ragfault.labels.label import ANSWER_INDEPENDENT, Label, Subject, SubjectValue
from ragfault.model.errors import InputError
from ragfault.model.grouping import group_by
from ragfault.model.rules import BAD_SUPPORT


class LabelConsensus(NamedTuple):
    """Consensus of the annotators of one trace."""

    values: Mapping[Subject, SubjectValue]
    # parts that some annotator reviewed
    reviewed_parts: frozenset[str]
    # annotators, in the order of their first label
    annotators: tuple[str, ...]
    # subjects on which annotators differ, with or without a majority
    disputed: int
    # fingerprint of the answer they saw; None where it was not recorded
    answer: str | None
    # probability of the trace to be sampled
    chance: float | None


def group_labels(labels: Iterable[Label]) -> dict[str, list[Label]]:
    """Map each trace to its labels, in order."""
    return group_by(labels, lambda label: label.trace)


def resolve_labels(labels: Iterable[Label]) -> dict[str, LabelConsensus]:
    """Resolve the labels of each trace: the last label of each annotator, then the majority of annotators.

    Numbers are averaged. A subject without a majority has no value. Labels of another answer than that of the
    last label are dropped, except those of the retrieval.
    """
    return {trace: _resolve_trace(trace_labels) for trace, trace_labels in group_labels(labels).items()}


def _resolve_trace(labels: Sequence[Label]) -> LabelConsensus:
    answer = next((label.shown for label in reversed(labels) if label.shown is not None), None)
    valid = [label for label in labels if label.part in ANSWER_INDEPENDENT or label.shown in (None, answer)]
    votes: dict[Subject, dict[str, SubjectValue]] = {}
    for label in valid:
        if not label.is_empty_review:
            votes.setdefault(label.subject, {})[label.person] = label.value
    majorities = {subject: _find_majority(list(given.values())) for subject, given in votes.items()}
    return LabelConsensus(
        values={subject: value for subject, value in majorities.items() if value is not None},
        reviewed_parts=frozenset(label.part for label in valid),
        annotators=tuple({label.person: label.annotator for label in reversed(labels)}.values())[::-1],
        disputed=sum(len(set(map(_normalize_value, given.values()))) > 1 for given in votes.values()),
        answer=answer,
        chance=next((label.chance for label in reversed(labels) if label.chance is not None), None),
    )


def _normalize_value(value: SubjectValue) -> Any:
    """Normalize a value for comparison: lists of missing information by whether they are empty."""
    return bool(value) if isinstance(value, tuple) else value


def _find_majority(values: Sequence[SubjectValue]) -> SubjectValue | None:
    """Return the most frequent value, the mean of numbers; None for a tie."""
    if all(isinstance(value, float) for value in values):
        return sum(map(float, values)) / len(values)  # type: ignore[arg-type]
    counted = Counter(map(_normalize_value, values)).most_common(2)
    if len(counted) > 1 and counted[0][1] == counted[1][1]:
        return None
    return next(value for value in values if _normalize_value(value) == counted[0][0])


def rate_labeled_answer(labels: Iterable[Label], claims: int, answers: Collection[str | None]) -> bool | None:
    """Return whether labels call an answer of so many claims bad; None where they do not cover all of them.

    Labels of answers with one of these fingerprints count, and of several of one claim the last one.
    """
    supports = {
        label.subject: label.value
        for label in labels
        if label.part == "claim" and label.shown in answers and not label.is_empty_review
    }
    if not supports or len(supports) < claims:
        return None
    return any(support in BAD_SUPPORT for support in supports.values())


def settle_rubrics(labels: Iterable[Label], only: str | None) -> dict[str, dict[str, float]]:
    """Map rubric → trace → value: the last label of each person, then the lower median of all persons.

    `only` is the rubric of labels that name none; raises InputError for such labels where it is None.

    >>> label = Label(trace="1", subject=("rubric", "formal"), value=1.0)
    >>> settle_rubrics([label], None)
    {'formal': {'1': 1.0}}
    """
    votes: dict[str, dict[str, dict[str, float]]] = {}
    for label in labels:
        name = str(label.subject[1]) or only
        if name is None:
            raise InputError(f"the label of {label.trace} names no rubric, and the run has several. Add the column.")
        votes.setdefault(name, {}).setdefault(label.trace, {})[label.person] = float(label.value)  # type: ignore[arg-type]
    return {
        name: {trace: _find_lower_median(list(given.values())) for trace, given in by_trace.items()}
        for name, by_trace in votes.items()
    }


def _find_lower_median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if len(ordered) % 2 == 0 else median(ordered)
