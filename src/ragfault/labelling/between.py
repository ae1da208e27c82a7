"""How far the people who label agree with each other: what a judge can be held to at most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from ragfault.labelling.asking import KINDS, Kind, choices
from ragfault.runs.labels import BLIND, Key, Label, Word, words
from ragfault.stats import Estimate, bootstrap
from ragfault.stats.agreement import Crossed, Rated
from ragfault.stats.groups import Floats

__all__ = ["Dispute", "Raters", "raters"]


class Dispute(Struct, frozen=True, kw_only=True):
    """An item on which people differ."""

    trace: str
    key: Key
    words: dict[str, Word]
    """Who said what."""


class Raters(Struct, frozen=True, kw_only=True):
    """How far people agree on items of one kind."""

    kind: Kind
    people: tuple[str, ...]
    items: int
    """Items with a word at all."""
    shared: int
    """Items with the words of at least two people."""
    accuracy: Estimate | None = None
    """The share of the shared items on which all say the same."""
    kappa: Estimate | None = None
    """Cohen's, where there are two people; weighted by distance for the relevance of chunks."""
    alpha: Estimate | None = None
    """Krippendorff's, for any number of people; ordinal for the relevance of chunks."""
    reason: str | None = None
    """Why there are no figures."""
    disputes: tuple[Dispute, ...] = ()


Said = dict[tuple[str, Key], dict[str, Word]]


def raters(labels: Iterable[Label], *, resamples: int = 1000, seed: int = 0) -> tuple[Raters, ...]:
    """How far the authors of labels agree, for each kind of item, with intervals over traces.

    The last word of each author on an item counts. Words on different answers are words on different items.

    >>> from ragfault.runs.labels import AnswerLabel, Labels
    >>> said = [Labels(answer=AnswerLabel(refused=refused)) for refused in (True, True)]
    >>> found = raters([Label(trace="1", verdicts=each, by=name) for each, name in zip(said, "ab")])
    >>> found[0].kind, found[0].shared, found[0].accuracy.value, found[0].kappa.value
    ('refusal', 1, 1.0, None)
    """
    every: dict[Kind, Said] = {}
    for label in labels:
        for key, word in words(label.verdicts).items():
            kind = _kind(key)
            if kind is not None:
                place = (label.trace, key if key[0] in BLIND else (*key, label.answer or ""))
                every.setdefault(kind, {}).setdefault(place, {})[label.by] = word
    return tuple(_raters(kind, every[kind], resamples, seed) for kind in KINDS if kind in every)


def _kind(key: Key) -> Kind | None:
    """The kind of item that a word is on; None for what nobody is asked for one by one."""
    if key == ("answer", "refused"):
        return "refusal"
    if key[0] == "chunk" and key[2] != "level":
        return None
    return next((kind for kind in KINDS if kind == key[0]), None)


def _raters(kind: Kind, said: Said, resamples: int, seed: int) -> Raters:
    people = tuple(sorted({name for each in said.values() for name in each}))
    shared = {place: each for place, each in said.items() if len(each) > 1}
    if not shared:
        reason = "no item has the words of two people"
        return Raters(kind=kind, people=people, items=len(said), shared=0, reason=reason)
    accuracy, alpha, *kappa = _figures(kind, people, shared, resamples, seed)
    disputes = tuple(
        Dispute(trace=trace, key=key, words=each)
        for (trace, key), each in shared.items()
        if len(set(each.values())) > 1
    )
    return Raters(
        kind=kind,
        people=people,
        items=len(said),
        shared=len(shared),
        accuracy=accuracy,
        alpha=alpha,
        kappa=kappa[0] if kappa else None,
        disputes=disputes,
    )


def _figures(kind: Kind, people: Sequence[str], shared: Said, resamples: int, seed: int) -> list[Estimate]:
    """Accuracy, alpha and, of two people, kappa, with their intervals."""
    said = {word for each in shared.values() for word in each.values()}
    order = dict.fromkeys([choice.word for choice in reversed(choices(kind))] + sorted(said, key=str))
    graded = kind == "chunk"
    table = [[each.get(name) for name in people] for each in shared.values()]
    same = np.array([float(len(set(each.values())) == 1) for each in shared.values()])
    rated = Rated(table, list(order))
    crossed = None
    if len(people) == 2:
        crossed = Crossed([row[0] for row in table], [row[1] for row in table], list(order))

    def statistic(weights: Floats) -> Floats:
        columns = [
            weights @ same / weights.sum(axis=1),
            rated.alpha(rated.coincidences(weights), "ordinal" if graded else "nominal"),
        ]
        if crossed is not None:
            columns.append(crossed.kappa(crossed.tables(weights), "linear" if graded else "none"))
        return np.stack(columns, axis=1)

    return bootstrap(statistic, [trace for trace, _ in shared], resamples=resamples, seed=seed)
