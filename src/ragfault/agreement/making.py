"""A measurement from what people said and what the judge said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ragfault.agreement import units as beside
from ragfault.agreement.columns import value
from ragfault.agreement.figures import Call, Terms, agreement, call, curves, marked
from ragfault.agreement.gathering import Gathered, Labelled
from ragfault.agreement.overlay import Reading
from ragfault.agreement.records import Agreement, Marked, Measurement, Speed, Task
from ragfault.agreement.scores import scores
from ragfault.agreement.units import Units
from ragfault.errors import JudgeError
from ragfault.records import Verdicts
from ragfault.stats.discrimination import cells

__all__ = ["Frame", "Said", "made"]

SLICES = 100
"""So many values of a column have a row each; the largest, where there are more."""

PART = {"answer": "claim", "support": "claim", "relevance": "chunk"}
"""Task → the part of the verdicts that it lives on."""


class Said(NamedTuple):
    """What people and the judge said, trace by trace."""

    labelled: Sequence[Labelled]
    seen: Sequence[Verdicts]
    apart: Sequence[Verdicts]
    """On the claims of people that are not in their answers."""
    words: Mapping[str, Reading] | None = None
    """What people said of the items of a run, by trace; None: the labels are all there is."""

    def groups(self, units: Units) -> list[str]:
        """The group of each unit."""
        return [self.labelled[place].group for place in units.trace.tolist()]


class Frame(NamedTuple):
    """Who was measured on what, and what figures are wanted."""

    judge: str
    source: tuple[str, ...]
    threshold: str
    within: tuple[str, ...]
    by: str | None
    terms: Terms


def made(given: Gathered, said: Said, frame: Frame, speed: Speed) -> Measurement:
    """All figures. Raises JudgeError where the judge has no verdict on any unit."""
    main = _main(given.task, said)
    failures = _failures(given.task, said, main)
    if not main.score.size:
        reason = next(iter(failures), "it has no verdict on what people labelled")
        name = frame.judge.split(maxsplit=1)[0]
        raise JudgeError(f'the judge "{name}" cannot be measured here: {reason}')
    groups, terms = said.groups(main), frame.terms
    called = call(main, groups, frame.threshold, terms.seed)
    inner = _keys(said, main, frame.within) if frame.within else None
    slices, note = _slices(said, main, called, inner, frame) if frame.by else ([], [])
    measured, lost = len(set(main.trace.tolist())), sum(failures.values())
    whole = agreement(main, groups, called, terms, inner=inner)
    return Measurement(
        **_circumstances(given, frame),
        cut=called.cut,
        traces=measured,
        failed=lost,
        silent=len(said.labelled) - measured - lost,
        failures=failures,
        views=(whole, *_views(given.task, said, frame.threshold, terms)),
        marked=_marked(said, terms) if given.task != "relevance" else None,
        slices=tuple(slices),
        cells=len(list(cells(main.score, main.label, inner))) if inner else 0,
        curves=curves(main),
        metrics=scores(said.labelled, said.seen, terms, said.words),
        speed=speed,
        notes=(*given.notes, *_unmarked(said), *note),
    )


def _circumstances(given: Gathered, frame: Frame) -> dict[str, Any]:
    """What is known before any figure."""
    return {
        "judge": frame.judge,
        "source": frame.source,
        "task": given.task,
        "columns": given.columns,
        "positive": given.positive,
        "threshold": frame.threshold,
        "unlabelled": given.unlabelled,
        "skipped": given.skipped,
        "by": frame.by,
        "within": frame.within,
        "seed": frame.terms.seed,
        "resamples": frame.terms.resamples,
        "confidence": frame.terms.confidence,
    }


def _main(task: Task, said: Said) -> Units:
    """The units of the task."""
    if task == "answer":
        return beside.units("answer", list(beside.answers(said.labelled, said.seen)))
    if task == "support":
        return beside.units("claim", list(beside.claims(said.labelled, said.seen, said.apart)))
    return beside.relevances(said.labelled, said.seen)


def _views(task: Task, said: Said, threshold: str, terms: Terms) -> Iterator[Agreement]:
    """What the marked stretches tell of claims and sentences."""
    if task == "relevance" or all(one.spans is None for one in said.labelled):
        return
    kinds = [beside.units("sentence", list(beside.stretches(said.labelled, said.seen)))]
    if task == "answer":
        kinds.insert(0, beside.units("claim", list(beside.claims(said.labelled, said.seen, said.apart))))
    for units in kinds:
        if units.score.size:
            groups = said.groups(units)
            yield agreement(units, groups, call(units, groups, threshold, terms.seed), terms)


def _marked(said: Said, terms: Terms) -> Marked | None:
    found = list(beside.marks(said.labelled, said.seen))
    return marked(found, [one.group for one in said.labelled], terms)


def _failures(task: Task, said: Said, main: Units) -> dict[str, int]:
    """Why the judge lost traces that people labelled, and how many."""
    there = set(main.trace.tolist())
    reasons = [
        beside.failure(verdicts, PART[task]) for place, verdicts in enumerate(said.seen) if place not in there
    ]
    return dict(Counter(reason for reason in reasons if reason is not None).most_common())


def _unmarked(said: Said) -> list[str]:
    """Bad answers in which nothing is marked say nothing of their claims."""
    count = sum(one.spans == () and bool(one.positive) for one in said.labelled)
    return [f"{count:,} bad answers without a marked stretch count as answers alone"] if count else []


def _keys(said: Said, units: Units, columns: Sequence[str]) -> list[Hashable]:
    """The values of some columns, for each unit."""
    each = [tuple(str(value(one.trace, name)) for name in columns) for one in said.labelled]
    return [each[place] for place in units.trace.tolist()]


def _slices(
    said: Said, main: Units, called: Call, inner: list[Hashable] | None, frame: Frame
) -> tuple[list[Agreement], list[str]]:
    """The figures for each value of a column (the largest, where there are too many), and what to say of the rest."""
    by, terms = frame.by or "", frame.terms
    values = [str(value(one.trace, by)) for one in said.labelled]
    names = np.array([values[place] for place in main.trace.tolist()])
    groups = np.array(said.groups(main))
    counts = Counter(names.tolist())
    kept = sorted(name for name, _ in counts.most_common(SLICES))
    found = []
    for name in kept:
        here = names == name
        mine = [key for key, flag in zip(inner, here.tolist(), strict=True) if flag] if inner else None
        part = Call(called.positive[here], called.cut)
        found.append(
            agreement(main.of(here), groups[here].tolist(), part, terms, inner=mine, value=str(name))
        )
    more = len(counts) - len(kept)
    return found, [f"{more:,} smaller values of {by} have no row of their own"] if more else []
