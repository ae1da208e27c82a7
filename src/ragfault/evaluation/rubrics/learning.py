"""Rubrics that learn from labels: judged examples for the prompt, with proof on labels that were not shown."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ragfault.errors import InputError
from ragfault.io.runs import AnyRun, open_run
from ragfault.records import Trace
from ragfault.rubrics import MAX_TEXT, Rubric, RubricExample
from ragfault.stats import Difference, paired_difference

MIN_UNSEEN = 20
"""Held-out labelled traces that a proof needs."""


class LearntRubric(Struct, frozen=True, kw_only=True):
    """Rubric with examples from labels, and the labelled traces whose groups gave none."""

    rubric: Rubric
    traces: tuple[str, ...]
    """Traces whose answers are among the examples."""
    unseen: tuple[str, ...]
    """Traces that the proof is made on."""


class LearningProof(Struct, frozen=True, kw_only=True):
    """Agreement with held-out labels by the rubric with examples, beside the one without."""

    n: int
    before: float
    """Share of the held-out labels that the rubric without further examples agrees with."""
    after: float
    difference: Difference

    @property
    def helps(self) -> bool:
        """Return whether the examples are shown to help: the 95 % interval of the difference lies above 0."""
        return self.difference.low > 0


def learn_examples(rubric: Rubric, source: AnyRun, labels: Mapping[str, float], *, count: int = 6) -> LearntRubric:
    """Learn examples for a rubric from the labels of one half of a run's traces; the other half is held out.

    Halves are whole conversations, chosen by the hash of their names. Examples are answers on which judge and people
    differ, then others, the levels in turn, so that each is shown. Raises InputError where a half has too few labels.
    """
    run = open_run(source)
    learning: list[tuple[Trace, float, bool]] = []
    unseen: list[str] = []
    for trace, verdicts in zip(run.traces(), run.verdicts(), strict=True):
        value = next((item.value for item in verdicts.rubric or () if item.rubric == rubric.name), None)
        if trace.id not in labels or value is None:
            continue
        if hashlib.sha256((trace.conversation or trace.id).encode("utf-8", "replace")).digest()[0] % 2:
            unseen.append(trace.id)
        elif 0 < len(trace.answer or "") <= MAX_TEXT and len(trace.query) <= MAX_TEXT:
            learning.append((trace, labels[trace.id], value != labels[trace.id]))
    if len(unseen) < MIN_UNSEEN or not learning:
        raise InputError(
            f"{len(learning)} labelled traces to learn from and {len(unseen)} held out: {MIN_UNSEEN} are needed to "
            "prove anything. Label more answers."
        )
    chosen = _choose_examples(learning, count)
    examples = tuple(
        RubricExample(answer=trace.answer or "", query=trace.query, value=rubric.get_level(value).value)
        for trace, value, _ in chosen
    )
    learnt = replace(rubric, examples=(*rubric.examples, *examples))
    return LearntRubric(rubric=learnt, traces=tuple(trace.id for trace, _, _ in chosen), unseen=tuple(unseen))


def _choose_examples(rows: Sequence[tuple[Trace, float, bool]], count: int) -> list[tuple[Trace, float, bool]]:
    """Choose examples: the levels in turn, of each the disputed ones first; of equal answers one."""
    by_level: dict[float, list[tuple[Trace, float, bool]]] = defaultdict(list)
    seen: set[str] = set()
    for row in sorted(rows, key=lambda row: not row[2]):
        if row[0].answer not in seen:
            seen.add(row[0].answer or "")
            by_level[row[1]].append(row)
    chosen: list[tuple[Trace, float, bool]] = []
    while len(chosen) < count and any(by_level.values()):
        for level in sorted(by_level):
            if by_level[level] and len(chosen) < count:
                chosen.append(by_level[level].pop(0))
    return chosen


def prove_learning(
    before: AnyRun, after: AnyRun, rubric: str, labels: Mapping[str, float], unseen: Sequence[str]
) -> LearningProof:
    """Prove that examples help: the paired difference of agreement with labels, on held-out traces alone.

    `before` and `after` are runs of the same traces by the judge without and with the examples. Raises InputError where
    fewer than the least number of held-out traces has a verdict in both.
    """
    values: list[dict[str, float]] = []
    groups: dict[str, str] = {}
    for source in (before, after):
        run = open_run(source)
        judged: dict[str, float] = {}
        for trace, verdicts in zip(run.traces(), run.verdicts(), strict=True):
            groups[trace.id] = trace.conversation or trace.id
            for item in verdicts.rubric or ():
                if item.rubric == rubric:
                    judged[trace.id] = item.value
        values.append(judged)
    names = [name for name in unseen if name in labels and all(name in judged for judged in values)]
    if len(names) < MIN_UNSEEN:
        raise InputError(f"{len(names)} held-out traces have a verdict in both runs: {MIN_UNSEEN} are needed.")
    hits = [np.array([float(judged[name] == labels[name]) for name in names]) for judged in values]
    difference = paired_difference(hits[0], hits[1], [groups[name] for name in names], bounds=(0, 1))
    return LearningProof(n=len(names), before=float(hits[0].mean()), after=float(hits[1].mean()), difference=difference)
