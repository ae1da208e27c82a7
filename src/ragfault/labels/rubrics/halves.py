"""Labelled answers in two halves: one to learn from, and one that is held out to prove what was learnt."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from ragfault.io.runs.copies import group_trace
from ragfault.io.runs.run import Run
from ragfault.model.errors import InputError
from ragfault.model.records import Trace
from ragfault.model.rubrics import Rubric
from ragfault.stats.differences import paired_difference
from ragfault.stats.estimates import Difference
from ragfault.stats.significance import mcnemar_test
from ragfault.text.number_format import format_interval

MIN_UNSEEN = 20
"""Held-out labelled traces that a proof needs."""


class LabelledAnswer(NamedTuple):
    """Answer with the value that people give it by a rubric, and the one that the judge gave it."""

    trace: Trace
    value: float
    judged: float
    reason: str = ""
    """Why, in the words of the judge."""

    @property
    def is_disputed(self) -> bool:
        return self.value != self.judged


class LabelledHalves(NamedTuple):
    """Labelled answers that may be learnt from, and those that are held out."""

    learning: list[LabelledAnswer]
    unseen: list[LabelledAnswer]


class AgreementProof(Struct, frozen=True, kw_only=True):
    """Agreement with held-out labels by a changed rubric, next to the one before the change."""

    n: int
    before: float
    """Share of the held-out labels that the judge agrees with before the change."""
    after: float
    difference: Difference
    improved: int
    """Held-out answers on which the judge agrees with people only after the change."""
    worsened: int
    """Held-out answers on which it agreed only before."""

    @property
    def helps(self) -> bool:
        """Return whether the change is shown to help: the 95 % interval of the difference lies above 0."""
        return self.difference.low > 0

    @property
    def p(self) -> float:
        """Return the p value of McNemar's exact test, which takes the answers as independent."""
        return mcnemar_test(self.improved, self.worsened)

    def __str__(self) -> str:
        interval = format_interval(self.difference, 3, signed=True)
        return f"agreement {self.before:.3f} → {self.after:.3f}, {interval} on {self.n} held-out labels"


def split_labelled(rubric: Rubric, run: Run, labels: Mapping[str, float]) -> LabelledHalves:
    """Split the labelled answers of a run by whole conversations, chosen by the hash of their names.

    Raises InputError if the run was judged by another version of the rubric, or a half has too few labels.
    """
    halves = LabelledHalves([], [])
    for trace, verdicts in zip(run.traces(), run.verdicts(), strict=True):
        verdict = next((item for item in verdicts.rubric or () if item.rubric == rubric.name), None)
        if trace.id not in labels or verdict is None:
            continue
        if verdict.version != rubric.version:
            raise InputError(f'{run.path} was judged by another version of the rubric "{rubric.name}". Give that one.')
        half = halves.unseen if is_unseen(trace) else halves.learning
        half.append(LabelledAnswer(trace, labels[trace.id], verdict.value, verdict.reason or ""))
    if len(halves.unseen) < MIN_UNSEEN or not halves.learning:
        raise InputError(
            f"{len(halves.learning)} labelled traces to learn from and {len(halves.unseen)} held out: {MIN_UNSEEN} are "
            "needed to prove anything. Label more answers."
        )
    return halves


def is_unseen(trace: Trace) -> bool:
    """Return whether a trace is in the half of the conversations and queries that nothing is learnt from."""
    return bool(hashlib.sha256(group_trace(trace).encode("utf-8", "replace")).digest()[0] % 2)


def prove_agreement(
    labels: Mapping[str, float], before: Mapping[str, float], after: Mapping[str, float], groups: Mapping[str, str]
) -> AgreementProof:
    """Prove that a change of a rubric helps: the paired difference of agreement with labels.

    `before` and `after` map traces to values of the judge, `groups` to their conversation. Raises InputError if fewer
    than the least number of held-out traces has a value in both.
    """
    names = [name for name in labels if name in before and name in after]
    if len(names) < MIN_UNSEEN:
        raise InputError(f"{len(names)} held-out traces have a verdict in both runs: {MIN_UNSEEN} are needed.")
    hits = [np.array([float(judged[name] == labels[name]) for name in names]) for judged in (before, after)]
    return AgreementProof(
        n=len(names),
        before=float(hits[0].mean()),
        after=float(hits[1].mean()),
        difference=paired_difference(hits[0], hits[1], [groups[name] for name in names], bounds=(0, 1)),
        improved=int((hits[1] > hits[0]).sum()),
        worsened=int((hits[1] < hits[0]).sum()),
    )
