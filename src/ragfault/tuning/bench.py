"""The bench: pipelines run on questions, each step once, its time kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ragfault.errors import RagfaultError, StageFailed
from ragfault.metrics.definition import Metric
from ragfault.retrieval.index import Index
from ragfault.retrieval.recipes import Recipe
from ragfault.retrieval.records import Found, Query, Stage
from ragfault.retrieval.stages import make_stage, step_of
from ragfault.tuning.grading import Grader
from ragfault.tuning.keeping import Step, Store, digest
from ragfault.tuning.records import Outcome, Question

__all__ = ["Bench", "Spent"]

UNSEEN = ("reorder",)
"""Steps that serve the generator: they leave the same chunks, and what they do no metric of retrieval can see."""
CHANGING = ("compress",)
"""Steps that change texts, so that places in the index do not tell what they left."""


class Spent(Exception):
    """The budget is spent; caught where the search is, and never seen outside."""


class Bench:
    """Runs recipes on questions. What two recipes share is computed once, and all that is computed is charged once."""

    def __init__(self, store: Store, metric: Metric, until: float | None = None) -> None:
        self.store, self.metric = store, metric
        self.until: float | None = until
        """When the search ends, on the clock of `time.monotonic`."""
        self.ledger: dict[str, float] = {}
        """What was used → the seconds that it takes where nothing is kept."""
        self.outcomes: dict[str, dict[str, Outcome]] = {}
        self.recipes: dict[str, Recipe] = {}
        self.tick: Callable[[], None] = lambda: None
        self._graders: dict[str, Grader] = {}
        self._stages: dict[str, Stage] = {}

    @property
    def charged(self) -> float:
        """Seconds that all of it takes where nothing is kept from before."""
        return sum(self.ledger.values())

    def measure(self, recipe: Recipe, questions: Sequence[Question]) -> list[Outcome]:
        """The outcome of each question. Raises Spent where the time is over, StageFailed where a stage fails."""
        held = self.outcomes.setdefault(recipe.name, {})
        self.recipes[recipe.name] = recipe
        if all(question.id in held for question in questions):
            return [held[question.id] for question in questions]
        self._check()
        key = self.store.key(recipe)
        built = self.store.built(recipe)
        self.ledger.setdefault(key, built.seconds)
        if key not in self._graders:
            self._graders[key] = Grader(self.metric, built.index.chunks)
        for question in questions:
            if question.id not in held:
                self._check()
                held[question.id] = self._run(recipe, key, question)
        return [held[question.id] for question in questions]

    def _check(self) -> None:
        self.tick()
        if self.until is not None and time.monotonic() > self.until:
            raise Spent

    def _run(self, recipe: Recipe, key: str, question: Question) -> Outcome:
        """One question through all stages, from what is known of the first of them."""
        index = self.store.built(recipe).index
        found, ms, at = Found(Query(text=question.query)), 0.0, key
        plain = True
        for text in recipe.stages.values():
            step = step_of(text)
            if step in UNSEEN:
                continue
            at = digest(at, text)
            plain = plain and step not in CHANGING
            held = self.store.steps(at).get(question.query) if plain else None
            if held is not None:
                hits = tuple(
                    replace(index.chunks[place], score=score)
                    for place, score in zip(held.places, held.scores, strict=True)
                )
                found, took = Found(held.query or found.query, hits), held.ms
            else:
                found, took = self._stage(at, text, index, found)
                if plain:
                    self._keep(at, question, found, took, key)
            self.ledger[f"{at} {question.id}"] = took / 1000
            ms += took
        return self._graders[key].outcome(question, found.hits, ms)

    def _stage(self, at: str, text: str, index: Index, found: Found) -> tuple[Found, float]:
        """One stage on one query, and its milliseconds."""
        if at not in self._stages:
            self._stages[at] = make_stage(text, index)
        start = time.perf_counter()
        try:
            made = self._stages[at](found.query, found.hits)
        except RagfaultError:
            raise
        except Exception as error:
            raise StageFailed(
                f'the stage "{text}" failed on the query "{found.query.text[:80]}": {type(error).__name__}: {error}'
            ) from error
        took = 1000 * (time.perf_counter() - start)
        if len(made[0].failed) > len(found.query.failed):
            # What passes in a search would here be measured, and kept, as what the stage is worth.
            raise StageFailed(
                f'the stage "{text}" failed on the query "{found.query.text[:80]}": {made[0].failed[-1]}'
            )
        return Found(*made), took

    def _keep(self, at: str, question: Question, found: Found, took: float, key: str) -> None:
        where = self._graders[key].places
        changed = found.query != Query(text=question.query)
        places = tuple(where[hit.id] for hit in found.hits)
        scores = tuple(hit.score for hit in found.hits)
        self.store.put(at, question.query, Step(places, scores, took, found.query if changed else None))
