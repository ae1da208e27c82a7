"""The search: step by step, each optimised on what the steps before it left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from msgspec.structs import replace

from ragfault.retrieval.recipes import NOTHING, Recipe, with_stage
from ragfault.retrieval.stages import Step
from ragfault.tuning.bench import Bench, Spent
from ragfault.tuning.racing import Raced, race
from ragfault.tuning.records import Bound, Outcome, Question, Tried
from ragfault.tuning.space import Space, budgets
from ragfault.tuning.terms import violation

__all__ = ["Found", "Search"]

BEAM = 3
"""So many candidates go from one step to the next: what is best alone need not be best with what follows."""
FUSION = "hybrid(k=50, method=sum)"
"""How a new embedder is first searched with."""
LEAST = 0.005
"""What an additional stage must gain at least on the questions that choose."""

Progress = Callable[[str, int, int], None]


class Found(NamedTuple):
    """What a search came to."""

    recipe: Recipe
    tried: tuple[Tried, ...]
    stopped: str | None
    """The step at which the budget was spent."""
    notes: tuple[str, ...]


class Search:
    """One search over a space, from a recipe to start with, on the questions that choose."""

    def __init__(
        self,
        bench: Bench,
        space: Space,
        start: Recipe,
        questions: Sequence[Question],
        bounds: Sequence[Bound] = (),
        *,
        workers: int = 1,
        progress: Progress = lambda *_: None,
    ) -> None:
        self.bench, self.space, self.start = bench, space, start
        self.questions, self.bounds = tuple(questions), tuple(bounds)
        self.workers, self.progress = workers, progress
        self.tried: list[Tried] = []
        self.best = [start]
        """The beam: what goes to the next step, the best first."""

    def run(self) -> Found:
        """Search until the end or until the budget is spent; what is best so far is returned in either case."""
        steps: list[tuple[str, str, Callable[[], list[Recipe]]]] = [
            ("pre-processing", "chunker", self._chunkers),
            ("pre-processing", "embedder", self._embedders),
            ("retrieval", "retrieve", self._retrievals),
            ("retrieval", "query", lambda: self._added("query", self.space.queries)),
            ("selection", "rerank", lambda: self._added("rerank", self.space.rerankers)),
            ("selection", "select", self._selections),
            ("selection", "compress", lambda: self._added("compress", self.space.compressions)),
        ]
        for phase, step, search in steps:
            if phase not in self.space.phases:
                continue
            begin, before = time.monotonic(), len(self.tried)
            try:
                self.best = search() or self.best
            except Spent:
                return Found(self._kept(), tuple(self.tried), step, self._broken())
            finally:
                self.bench.store.flush()
            if len(self.tried) > before:
                self.tried[-1] = replace(
                    self.tried[-1], chosen=self.best[0].name, seconds=time.monotonic() - begin
                )
        return Found(self._kept(), tuple(self.tried), None, self._broken())

    # --- the steps ---------------------------------------------------------------------------------

    def _chunkers(self) -> list[Recipe]:
        """Chunkers, searched by words: nothing has to be embedded for that."""
        # All are held to the same amount of text: a larger chunk is not a better one.
        select = (budgets(self.bounds) or (self.start.stage("select"),))[0]
        lean = Recipe(stages={"retrieve": "sparse(k=50)", **({"select": select} if select else {})})
        names = dict.fromkeys([*self.space.chunkers, self.start.chunker])
        candidates = [replace(lean, chunker=name) for name in names]
        self.bench.store.prepare(candidates, self.workers)
        return [raced.recipe for raced in self._race("chunker", candidates, BEAM)]

    def _embedders(self) -> list[Recipe]:
        """Embedders with the best chunker; the other chunkers then with the best of them."""
        first, *others = self.best
        candidates = [first, *(self._embedded(first, name) for name in self.space.embedders)]
        self.bench.store.prepare(candidates, self.workers)
        winner = self._race("embedder", candidates, 2)[0].recipe
        if winner.embedder == NOTHING:
            return [winner, *others]
        more = [self._embedded(one, winner.embedder) for one in others]
        return [one.recipe for one in self._race("embedder", [winner, *more], BEAM)]

    def _embedded(self, recipe: Recipe, embedder: str) -> Recipe:
        """A recipe with an embedder, searched by a sum of scores: of all fusions it lost least by a weak embedder."""
        return with_stage(replace(recipe, embedder=embedder), "retrieve", FUSION)

    def _retrievals(self) -> list[Recipe]:
        """How the beam is searched and its rankings fused."""
        candidates = [
            with_stage(replace(one, embedder=NOTHING) if text.startswith("sparse") else one, "retrieve", text)
            for one in self.best
            for text in self.space.retrievals
            if one.embedder != NOTHING or text.startswith("sparse")
        ]
        return [raced.recipe for raced in self._race("retrieve", [*self.best, *candidates], BEAM)]

    def _added(self, step: Step, texts: Sequence[str]) -> list[Recipe]:
        """A stage more, where it gains enough: each candidate on each of the beam."""
        if not texts:
            return self.best
        bare = list({one.name: one for one in (with_stage(one, step, None) for one in self.best)}.values())
        more = [with_stage(one, step, text) for one in bare for text in texts]
        raced = self._race(step, [*more, *(one for one in self.best if one not in bare)], 1)
        plain = self._outcomes(bare)
        kept = [one.recipe for one in raced if self._worth(one, plain)]
        rest = sorted(zip(plain, bare, strict=True), key=lambda pair: -_mean(pair[0]))
        return [*kept, *(one for _, one in rest)][:BEAM]

    def _selections(self) -> list[Recipe]:
        """How many chunks are left, and which."""
        beam, texts = self.best, [*self.space.selections, *budgets(self.bounds)]
        made = [with_stage(one, "select", text) for one in beam for text in texts if _fits(one, text)]
        if not made:
            return beam
        raced = self._race("select", [*beam, *made], len(beam) + len(made), halve=False)
        raced.sort(key=lambda one: (round(violation(self.bounds, one.outcomes), 6), -one.value))
        first = raced[0]
        old = self._outcomes([beam[0]])[0]
        if not violation(self.bounds, old) and not enough(old, first.outcomes):
            return beam
        return [one.recipe for one in raced[:BEAM]]

    # --- how they choose ---------------------------------------------------------------------------

    def _race(self, step: str, candidates: Sequence[Recipe], keep: int, *, halve: bool = True) -> list[Raced]:
        """The best of the candidates; a note of how many there were."""
        field = list({one.name: one for one in candidates}.values())
        self.tried.append(Tried(step=step, candidates=len(field), chosen="", seconds=0.0))
        total, done = len(field) * len(self.questions), 0

        def measure(recipe: Recipe, questions: Sequence[Question]) -> list[Outcome]:
            nonlocal done
            found = self.bench.measure(recipe, questions)
            done += len(questions)
            self.progress(step, min(done, total), total)
            return found

        if halve:
            return race(field, self.questions, measure, keep)
        each = [(one, measure(one, self.questions)) for one in field]
        return [Raced(one, outcomes, _mean(outcomes)) for one, outcomes in each]

    def _outcomes(self, recipes: Sequence[Recipe]) -> list[list[Outcome]]:
        return [self.bench.measure(one, self.questions) for one in recipes]

    def _worth(self, raced: Raced, plain: Sequence[Sequence[Outcome]]) -> bool:
        """Whether a stage more gains enough over the best without it, or brings it within the bounds."""
        within = min(violation(self.bounds, outcomes) for outcomes in plain)
        there = violation(self.bounds, raced.outcomes)
        if there != within:
            return there < within
        return enough(max(plain, key=_mean), raced.outcomes)

    def _kept(self) -> Recipe:
        """The best that keeps to the bounds: of the beam, else of all that ran on every question."""
        complete = [
            (recipe, [self.bench.outcomes[name][one.id] for one in self.questions])
            for name, recipe in self.bench.recipes.items()
            if all(one.id in self.bench.outcomes[name] for one in self.questions)
        ]
        known = {recipe.name: outcomes for recipe, outcomes in complete}
        for one in self.best:
            if one.name in known and not violation(self.bounds, known[one.name]):
                return one
        if not complete:
            return self.best[0]
        return min(complete, key=lambda pair: (round(violation(self.bounds, pair[1]), 6), -_mean(pair[1])))[0]

    def _broken(self) -> tuple[str, ...]:
        """What is to be said where nothing keeps to the bounds."""
        held = self.bench.outcomes.get(self._kept().name, {})
        known = [held[one.id] for one in self.questions if one.id in held]
        if not known or not violation(self.bounds, known):
            return ()
        said = ", ".join(map(str, self.bounds))
        return (f"nothing that was searched keeps to {said}; what is recommended is nearest to it",)


def _fits(recipe: Recipe, text: str) -> bool:
    """Whether a selection can follow on the stages of a recipe."""
    if text.startswith("adaptive"):
        return recipe.stage("rerank") is not None
    return not text.startswith("diverse") or recipe.embedder != NOTHING


def enough(plain: Sequence[Outcome], more: Sequence[Outcome]) -> bool:
    """Whether a stage more gains at least 0.005, and at least the standard error of its gain: less may be nothing.

    >>> plain = [Outcome(0.5, 1, 1, 1, 1, 1)] * 50
    >>> noisy = [Outcome(0.51 + 0.4 * (-1) ** at, 1, 1, 1, 1, 1) for at in range(50)]
    >>> enough(plain, noisy), enough(plain, [Outcome(0.52, 1, 1, 1, 1, 1)] * 50)
    (False, True)
    """
    gaps = [one.value - other.value for one, other in zip(more, plain, strict=True)]
    error = stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.inf
    return fmean(gaps) >= max(LEAST, error)


def _mean(outcomes: Sequence[Outcome]) -> float:
    return sum(one.value for one in outcomes) / len(outcomes)
