"""The deed: search on one part of the questions, measure on the other, say what came of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from ragfault.findings import remedies
from ragfault.records import Document, Trace
from ragfault.retrieval.recipes import NOTHING, Recipe, check_recipe, read_recipe, with_stage
from ragfault.runs import Run
from ragfault.tuning.bench import Bench
from ragfault.tuning.grading import tuned_metric
from ragfault.tuning.keeping import Store
from ragfault.tuning.proving import Prover, ablations, frontier, rivals
from ragfault.tuning.questions import Split, gather, split
from ragfault.tuning.records import Bound, Question, Tuned
from ragfault.tuning.searching import Found, Progress, Search
from ragfault.tuning.space import PHASES, Phase, Space, blamed, budgets, check_space, default_space
from ragfault.tuning.terms import figure, minutes, read_bound, violation
from ragfault.tuning.wording import sentences

__all__ = ["plain_of", "tune"]

RESERVED = 0.3
"""The share of the budget that is kept for measuring on the held-out questions."""
DEFAULT = Recipe(chunker="fixed(512, overlap=64)", stages={"retrieve": "sparse(k=50)", "select": "top(10)"})


def tune(  # noqa: PLR0913 - the options of one verb
    corpus: Iterable[Document],
    questions: Iterable[Trace],
    *,
    metric: str = "ndcg@10",
    subject_to: Sequence[str] = (),
    budget: str | float | None = None,
    baseline: Recipe | str | Path | None = None,
    space: Space | None = None,
    run: Run | str | Path | None = None,
    cache: str | Path | None = None,
    holdout: float = 0.5,
    seed: int = 0,
    workers: int = 1,
    progress: Progress = lambda *_: None,
    notice: Callable[[str], None] = lambda _: None,
) -> Tuned:
    """Search for the pipeline that answers the questions best, and prove its gain on questions that chose nothing.

    `corpus` is documents, `questions` traces with a query and gold: spans of documents, or ids of documents. One part
    of the questions chooses, step by step; the other measures the choice against the `baseline` (a recipe or its file)
    and against plain BM25. Questions that share a document, or where these are few, that share a stretch of gold, are
    never on both sides. `subject_to` bounds what is paid ("latency_p95<=200", "tokens<=2000"); where nothing is said of
    tokens, those of the baseline are the bound. After `budget` minutes the search ends with the best so far. With a
    `run` only those phases are searched that its diagnosis blames. What is kept in `cache` is not computed again.

    Raises InputError for a corpus without text, too few questions, or gold that is not in the corpus; UsageError for a
    metric that cannot be tuned or a bound that cannot be read.
    """
    begin = time.monotonic()
    wanted, bounds = tuned_metric(metric), tuple(read_bound(text) for text in subject_to)
    until = None if budget is None else begin + (1 - RESERVED) * minutes(budget)
    start, notes = _baseline(baseline), Notes(notice)
    bench = Bench(Store(None if cache is None else Path(cache), tuple(corpus)), wanted)
    gathered = gather(questions, bench.store.documents)
    notes.say(*gathered.notes)
    space = _restricted(space or default_space(), run, notes)
    parts = split(gathered.questions, holdout, seed)
    bounds = _bounded(bounds, bench, start, parts.selection, notes)
    bench.until = until
    found = Search(bench, space, start, parts.selection, bounds, workers=workers, progress=progress).run()
    notes.said += found.notes
    charged, bench.until = bench.charged, None
    made = replace(
        _proved(bench, found, start, parts, bounds, seed),
        grouped_by=gathered.grouped_by,
        notes=tuple(notes.said),
        seconds=time.monotonic() - begin,
        charged=charged,
    )
    bench.store.flush()
    return replace(made, sentences=sentences(made))


class Notes:
    """What is worth telling: told at once, and kept."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self.notice, self.said = notice, list[str]()

    def say(self, *lines: str) -> None:
        """Tell and keep lines."""
        for line in lines:
            self.notice(line)
        self.said += lines


def _bounded(
    bounds: tuple[Bound, ...], bench: Bench, start: Recipe, questions: Sequence[Question], notes: Notes
) -> tuple[Bound, ...]:
    """The bounds, with one on tokens in any case."""
    if any(bound.name == "tokens" for bound in bounds):
        return bounds
    bound = _as_now(bench, start, questions)
    notes.say(f"no bound on tokens is given, so that of the present configuration holds: {bound}")
    return (*bounds, bound)


def _as_now(bench: Bench, start: Recipe, questions: Sequence[Question]) -> Bound:
    """The tokens that the present configuration leaves, rounded up: with more text every chunking finds more."""
    tokens = figure("tokens", bench.measure(start, questions))
    return Bound("tokens", "<=", max(100.0, math.ceil(tokens / 100) * 100.0))


def _baseline(given: Recipe | str | Path | None) -> Recipe:
    """The present configuration; where none is given, BM25 over pieces of 512 tokens."""
    if given is None:
        return DEFAULT
    if isinstance(given, Recipe):
        check_recipe(given, "the baseline")
        return given
    return read_recipe(given)


def plain_of(recipe: Recipe) -> Recipe:
    """Plain BM25 over the same chunks.

    >>> plain_of(Recipe(embedder="latent", stages={"find": "hybrid", "select": "top(5)"})).stages
    {'retrieve': 'sparse(k=50)', 'select': 'top(5)'}
    """
    select = recipe.stage("select") or "top(10)"
    select = select if select.startswith(("top", "budget")) else "top(10)"
    return replace(recipe, embedder=NOTHING, stages={"retrieve": "sparse(k=50)", "select": select})


def _restricted(space: Space, run: Run | str | Path | None, notes: Notes) -> Space:
    """The space, checked, as far as a run's diagnosis blames it."""
    check_space(space)
    if run is None:
        return space
    held = run if isinstance(run, Run) else Run.open(run)
    found = remedies(held)
    phases: tuple[Phase, ...] = blamed(found)
    said = ", ".join(f"{one.kind.replace('_', ' ')} on {one.share.mean:.0%} of traces" for one in found[:4])
    if not phases:
        notes.say(
            f"the diagnosis of {held.path} blames nothing that retrieval could mend ({said or 'no problem'}): "
            "every phase is searched"
        )
        return space
    left = [phase for phase in PHASES if phase not in phases]
    rest = f"; left as they are: {', '.join(left)}" if left else ""
    notes.say(f"searched, as the diagnosis of {held.path} has it ({said}): {', '.join(phases)}{rest}")
    return replace(space, phases=phases)


def _proved(
    bench: Bench, found: Found, start: Recipe, parts: Split, bounds: tuple[Bound, ...], seed: int
) -> Tuned:
    """The choice, measured on the held-out questions."""
    recipe, plain = found.recipe, plain_of(start)
    if budgets(bounds) and violation(bounds, bench.measure(plain, parts.selection)):
        # What is held against it keeps to the bound; so does it.
        plain = with_stage(plain, "select", budgets(bounds)[0])
    known = list(bench.recipes.values())
    prover = Prover(bench, parts.held_out, seed)
    rows = [prover.row("recommended", recipe), prover.row("present", start), prover.row("plain BM25", plain)]
    pairs = [
        ("the present configuration", recipe, start, "recommended", "present"),
        ("plain BM25", recipe, plain, "recommended", "plain BM25"),
    ]
    ablated = [test for test in ablations(recipe, plain) if bench.store.has(test[2])]
    shown = [test[2] for test in ablated]
    refused = [test for test in rivals(recipe, known) if bench.store.has(test[2]) and test[2] not in shown]
    points = frontier(bench, (recipe, start, plain), parts.selection, prover.row)
    return Tuned(
        metric=str(bench.metric),
        bounds=bounds,
        recipe=recipe,
        baseline=start,
        plain=plain,
        rows=tuple(rows if start != plain else [rows[0], replace(rows[1], name="present = plain BM25")]),
        gains=prover.gains(pairs if start != plain else pairs[1:]),
        steps=prover.gains(ablated),
        rejected=prover.gains(refused),
        frontier=points,
        tried=found.tried,
        selection=len(parts.selection),
        held_out=len(parts.held_out),
        grouped_by="",
        stopped=found.stopped,
    )
