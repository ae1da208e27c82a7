"""The proof: what was chosen on some questions, measured on others, against what is there and step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from ragfault.retrieval.recipes import NOTHING, Recipe, with_stage
from ragfault.retrieval.stages import Step
from ragfault.stats import Difference, holm, mean_interval, paired_difference, sign_flip
from ragfault.tuning.bench import Bench
from ragfault.tuning.records import Gain, Outcome, Point, Question, Row, Shown
from ragfault.tuning.terms import figure

__all__ = ["Prover", "ablations", "undominated"]

ALPHA = 0.05
POINTS = 12
"""At most so many pipelines of the frontier are measured."""
TAKEN: tuple[Step, ...] = ("query", "filter", "rerank", "select", "compress")
"""Steps whose stage is held against the stage of plain BM25, or none."""
TRIED: tuple[Step, ...] = ("query", "rerank", "compress")


class Compared(NamedTuple):
    """A comparison before it is corrected for the others."""

    what: str
    ours: str
    theirs: str
    difference: Difference
    p: float
    ms: float
    tokens: float


class Prover:
    """Measures recipes on the questions that chose nothing."""

    def __init__(self, bench: Bench, questions: Sequence[Question], seed: int = 0) -> None:
        self._bench, self._questions, self._seed = bench, tuple(questions), seed
        self._bounds = bench.metric.range
        self._groups = [one.group for one in questions]

    def outcomes(self, recipe: Recipe) -> list[Outcome]:
        """What a recipe makes of each question."""
        return self._bench.measure(recipe, self._questions)

    def row(self, name: str, recipe: Recipe) -> Row:
        """A recipe with its figures."""
        found = self.outcomes(recipe)
        span = mean_interval([one.value for one in found], self._groups, bounds=self._bounds)
        return Row(
            name=name,
            recipe=recipe,
            n=len(found),
            value=span.mean,
            low=span.low,
            high=span.high,
            recall=figure("recall", found),
            precision=figure("precision", found),
            iou=figure("iou", found),
            ms=figure("latency", found),
            p95=figure("latency_p95", found),
            tokens=figure("tokens", found),
        )

    def gains(self, pairs: Sequence[tuple[str, Recipe, Recipe, str, str]]) -> tuple[Gain, ...]:
        """One recipe less another, for each (what, ours, theirs, and how both are called), corrected by Holm."""
        made = [self._compared(*pair) for pair in pairs]
        adjusted = holm([one.p for one in made]) if made else []
        return tuple(
            Gain(**one._asdict(), adjusted=p, shown=_shown(one.difference.mean, p))
            for one, p in zip(made, adjusted, strict=True)
        )

    def _compared(self, what: str, ours: Recipe, theirs: Recipe, our: str, their: str) -> Compared:
        new, old = self.outcomes(ours), self.outcomes(theirs)
        before, after = [one.value for one in old], [one.value for one in new]
        found = paired_difference(before, after, self._groups, bounds=self._bounds, seed=self._seed)
        p = sign_flip(before, after, self._groups, seed=self._seed).p
        ms, tokens = (
            fmean(getattr(one, key) for one in new) - fmean(getattr(one, key) for one in old)
            for key in ("ms", "tokens")
        )
        return Compared(what, our, their, found, p, ms, tokens)


def _shown(mean: float, p: float) -> Shown:
    if p > ALPHA:
        return "no gain shown"
    return "gains" if mean > 0 else "loses"


def ablations(recipe: Recipe, plain: Recipe) -> list[tuple[str, Recipe, Recipe, str, str]]:
    """Each step of a recipe that plain BM25 has not, and the recipe with plain BM25's in its place.

    >>> best = Recipe(stages={"retrieve": "sparse", "rerank": "rerank(lexical)", "select": "top(10)"})
    >>> [(what, theirs) for what, _, _, _, theirs in ablations(best, Recipe())]
    [('rerank', 'none')]
    """
    found = []
    if recipe.chunker != plain.chunker:
        other = replace(recipe, chunker=plain.chunker)
        found.append(("chunker", recipe, other, recipe.chunker, plain.chunker))
    mine, theirs = recipe.stage("retrieve") or "", plain.stage("retrieve") or "sparse"
    if mine.partition("(")[0] != theirs.partition("(")[0]:
        needs = (recipe.stage("select") or "").startswith("diverse")
        other = replace(recipe, embedder=recipe.embedder if needs else NOTHING)
        other = with_stage(other, "retrieve", "sparse(k=50)")
        ours = mine if recipe.embedder == NOTHING else f"{mine} with {recipe.embedder}"
        found.append(("retrieve", recipe, other, ours, "sparse(k=50)"))
    if mine.startswith("hybrid") and mine != "hybrid(k=50)":
        found.append(("fusion", recipe, with_stage(recipe, "retrieve", "hybrid(k=50)"), mine, "hybrid(k=50)"))
    for step in TAKEN:
        here, there = recipe.stage(step), plain.stage(step)
        if here is not None and here != there:
            if step == "rerank" and (recipe.stage("select") or "").startswith("adaptive"):
                continue
            found.append((step, recipe, with_stage(recipe, step, there), here, there or "none"))
    return found


def rivals(recipe: Recipe, known: Sequence[Recipe]) -> list[tuple[str, Recipe, Recipe, str, str]]:
    """What was tried and not taken: the recipe against itself with one step as it was elsewhere, if that ran."""
    found: dict[str, tuple[str, Recipe, Recipe, str, str]] = {}
    kinds = dict.fromkeys(one.chunker for one in known)
    for chunker in kinds:
        if chunker != recipe.chunker:
            other = replace(recipe, chunker=chunker)
            found.setdefault(f"chunker {chunker}", ("chunker", recipe, other, recipe.chunker, chunker))
    for step in TRIED:
        for text in dict.fromkeys(one.stage(step) for one in known):
            held = recipe.stage(step)
            if text is not None and text != held:
                other = with_stage(recipe, step, text)
                found.setdefault(f"{step} {text}", (step, recipe, other, held or "none", text))
    return list(found.values())


def undominated(figures: Sequence[tuple[float, ...]]) -> list[int]:
    """The places of those that no other is at least as good as in everything, and better in something.

    >>> undominated([(0.5, -10), (0.4, -5), (0.4, -20)])
    [0, 1]
    """
    held = np.array(figures, float)
    if not len(held):
        return []
    kept = []
    for place, one in enumerate(held):
        better = (held >= one).all(axis=1) & (held > one).any(axis=1)
        same = (held[:place] == one).all(axis=1).any()
        if not better.any() and not same:
            kept.append(place)
    return kept


def frontier(
    bench: Bench,
    named: Sequence[Recipe],
    selection: Sequence[Question],
    measure: Callable[[str, Recipe], Row],
) -> tuple[Point, ...]:
    """The frontier of value, milliseconds and tokens by the questions that choose, with the figures of the others.

    Recipes that are `named`, the recommended one first, are among the points whether they are on it or not.
    """
    complete = [
        (bench.recipes[name], [held[one.id] for one in selection])
        for name, held in bench.outcomes.items()
        if all(one.id in held for one in selection)
    ]
    figures = [
        tuple(
            round(fmean(getattr(one, key) for one in each) * sign, 4)
            for key, sign in (("value", 1), ("ms", -1), ("tokens", -1))
        )
        for _, each in complete
    ]
    places = sorted(undominated(figures), key=lambda place: -figures[place][0])[:POINTS]
    recipes = {one.name: one for one in (*named, *(complete[place][0] for place in places))}
    return tuple(Point(row=measure(name, one), recommended=one == named[0]) for name, one in recipes.items())
