"""The experiment: every configuration made, judged and scored once; then the change is divided among the parts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from ragfault import __version__, judges
from ragfault.errors import InputError, UsageError
from ragfault.evaluation import evaluate
from ragfault.evaluation.evaluating import measure
from ragfault.findings.comparing import MARGIN
from ragfault.findings.grid import Grid
from ragfault.isolation.attribution import Terms, attribute
from ragfault.isolation.folder import Folder, Plan
from ragfault.isolation.making import Maker, make, stripped
from ragfault.isolation.memory import Remembering
from ragfault.isolation.parts import System, named, names
from ragfault.isolation.records import Configuration, Isolation
from ragfault.isolation.sameness import sight, still
from ragfault.isolation.weights import EXACT, Design, balanced, factorial_design, ordered_design
from ragfault.metrics import choose
from ragfault.ports import Judge
from ragfault.records import Trace
from ragfault.runs import Run
from ragfault.sources import Digest
from ragfault.sources.normalise import settle

__all__ = ["METRICS", "Options", "conduct", "isolate"]

METRICS = (
    "context_relevance",
    "context_precision",
    "context_recall",
    "span_recall",
    "groundedness",
    "answer_relevance",
    "completeness",
    "token_f1",
    "factual_accuracy",
    "error",
)
"""The metrics of an experiment where none are named: few, since each costs the others power."""


def _quiet(*_: object) -> None:
    """Tell nobody."""


class Options:
    """How an experiment is conducted; `isolate` says what each of them means."""

    def __init__(  # noqa: PLR0913 - the options of one verb
        self,
        *,
        out: str | Path | None = None,
        judge: str | Judge = judges.DEFAULT,
        metrics: str | Sequence[str] = METRICS,
        workers: int = 1,
        threads: int = 1,
        seed: int = 0,
        confidence: float = 0.95,
        resamples: int | None = None,
        margin: float = MARGIN,
        progress: Callable[[int, int], None] = _quiet,
        notice: Callable[[str], None] = _quiet,
    ) -> None:
        if workers < 1 or threads < 1:
            raise UsageError(f"workers and threads are at least 1, got workers={workers}, threads={threads}.")
        if not (0 < confidence < 1 and margin > 0):
            raise UsageError("confidence lies between 0 and 1, and the margin is above 0.")
        self.out, self.workers, self.threads = out, workers, threads
        self.progress, self.notice = progress, notice
        self.terms = Terms(confidence=confidence, resamples=resamples, seed=seed, margin=margin)
        self.metrics = choose(metrics)
        if isinstance(judge, str):
            judge = judges.load_judge(judge if any(m.definition.verdicts for m in self.metrics) else "none")
        self.judge = Remembering(judge)


def isolate(  # noqa: PLR0913 - the options of one verb
    baseline: System,
    candidate: System,
    queries: Iterable[Trace | str],
    *,
    out: str | Path | None = None,
    judge: str | Judge = judges.DEFAULT,
    metrics: str | Sequence[str] = METRICS,
    workers: int = 1,
    threads: int = 1,
    seed: int = 0,
    confidence: float = 0.95,
    resamples: int | None = None,
    margin: float = MARGIN,
    orders: int | None = None,
    progress: Callable[[int, int], None] = _quiet,
    notice: Callable[[str], None] = _quiet,
) -> Isolation:
    """Decide by experiment which part of a RAG system made the change from `baseline` to `candidate`.

    A system maps part names to callables `Trace -> Trace` in the order in which they run (`retriever` and
    `generator` make them from plain functions); both have the same names. Up to four parts all 2^k
    configurations are run over the `queries` (texts, or traces of which query, answer key and circumstances
    are used). With more parts, or where a number of `orders` is given, the parts are swapped in that many
    random orders (as many as there are parts, by default), balanced so that each part comes about
    equally often at each place.

    Each part's share of a metric's change is its Shapley value (Shapley 1953): the shares sum to the whole
    change, and a part that does nothing has none. For two parts the shares are the main effects of the 2 × 2
    factorial (Fisher 1935), and their interaction is shown beside them. Effects are computed query by query;
    intervals draw the turns of a conversation (else queries) together, `resamples` times. `margin` is the
    smallest effect that matters, as a share of a metric's range.

    A part that raises fails that query alone (`error`). A part is run once on the same input, and what was
    judged in one configuration is not judged again in another. `workers` processes judge; `threads` run
    the parts on several queries at once. `progress` is called with (steps done, steps in all), two steps for
    each query of a configuration. With `out`, each configuration is left as a run in `out/<name>`, and
    called again with the same arguments the experiment goes on where it stopped.

    Raises UsageError, InputError, UnknownName, and where a folder is given OutputError and RunError.

    >>> from ragfault.isolation import generator, retriever
    >>> facts = {"Ann": "Ann sails at noon.", "Bo": "Bo sails at dawn.", "Cy": "Cy sails at dusk."}
    >>> queries = [Trace(id=name, query=f"When does {name} sail?", reference=facts[name]) for name in facts]
    >>> find = retriever(lambda query: [facts[query.split()[2]]])
    >>> copy = generator(lambda query, chunks: chunks[0].text)
    >>> invent = generator(lambda query, chunks: "The harbour master has cancelled everything.")
    >>> found = isolate({"retriever": find, "generator": copy}, {"retriever": find, "generator": invent},
    ...     queries, metrics=["groundedness"])
    >>> [(share.parts[0], share.difference.mean) for share in found.attributions[0].shares]
    [('retriever', 0.0), ('generator', -1.0)]
    """
    parts = names(baseline, candidate)
    if orders is not None and orders < 1:
        raise UsageError(f"orders is {orders}: give at least 1, or none for all of them.")
    design = (
        factorial_design(len(parts))
        if orders is None and len(parts) <= EXACT
        else ordered_design(len(parts), balanced(len(parts), orders or len(parts), seed))
    )
    options = Options(
        out=out,
        judge=judge,
        metrics=metrics,
        workers=workers,
        threads=threads,
        seed=seed,
        confidence=confidence,
        resamples=resamples,
        margin=margin,
        progress=progress,
        notice=notice,
    )
    return conduct(baseline, candidate, starting(queries), design, options)


def starting(queries: Iterable[Trace | str]) -> list[Trace]:
    """The queries as traces that no part has touched; texts are numbered."""
    starts = [
        Trace(id=str(at), query=given) if isinstance(given, str) else stripped(given)
        for at, given in enumerate(queries, 1)
    ]
    try:
        starts = [settle(start, check=True) for start in starts]
    except ValueError as error:
        raise InputError(f"a query cannot be read: {error}") from None
    if not starts:
        raise InputError("there is no query. Give at least one; a few dozen can tell something.")
    seen: set[str] = set()
    for start in starts:
        if start.id in seen:
            raise InputError(f'two queries have the id "{start.id}". Give each its own.')
        seen.add(start.id)
    return starts


def conduct(
    baseline: System,
    candidate: System,
    starts: Sequence[Trace],
    design: Design,
    options: Options,
    material: Iterable[Trace] = (),
    warnings: tuple[str, ...] = (),
) -> Isolation:
    """Run the configurations of a design, and divide the change; `material` is what else the result rests on."""
    plan = _plan(baseline, candidate, (*starts, *material), options)
    with tempfile.TemporaryDirectory() if options.out is None else nullcontext(options.out) as place:
        folder = Folder.begin(Path(place), plan)
        with Maker(baseline, candidate, folder.store) as maker:
            runs = _Runs(folder, maker, starts, design, options)
            configurations = [runs.made(mask) for mask in design.masks]
        values = np.stack([Grid(folder.run(found.name)).values for found in configurations])
    found = attribute(
        values,
        plan.metrics,
        plan.parts,
        design,
        _clusters(starts),
        same=still(options.metrics, baseline, candidate, runs.sights),
        terms=options.terms,
    )
    return Isolation(
        parts=plan.parts,
        queries=len(starts),
        configurations=tuple(configurations),
        attributions=found,
        judge=plan.judge,
        orders=design.orders,
        confidence=options.terms.confidence,
        seed=options.terms.seed,
        warnings=(*warnings, *_failures(configurations, len(starts))),
    )


def _plan(baseline: System, candidate: System, traces: Iterable[Trace], options: Options) -> Plan:
    digest = Digest()
    for trace in traces:
        digest.add(trace)
    return Plan(
        ragfault=__version__,
        parts=tuple(baseline),
        steps=tuple(named(step) for system in (baseline, candidate) for step in system.values()),
        judge=options.judge.fingerprint,
        metrics=tuple(map(measure, options.metrics)),
        queries=digest.fingerprint,
    )


def _failures(configurations: Iterable[Configuration], queries: int) -> Iterator[str]:
    for made in configurations:
        if made.errors:
            yield f"{made.name}: a part failed on {made.errors:,} of {queries:,} queries, first with: {made.error}"


class _Runs:
    """Makes the run of one configuration after the other."""

    def __init__(
        self, folder: Folder, maker: Maker, starts: Sequence[Trace], design: Design, options: Options
    ) -> None:
        self.folder, self.maker, self.starts, self.options = folder, maker, starts, options
        self.sights: dict[int, tuple[int, ...]] = {}
        self._all = 2 * len(starts) * len(design.masks)
        self._done = 0

    def made(self, mask: int) -> Configuration:
        """The configuration, made now or found finished."""
        parts = tuple(name for at, name in enumerate(self.maker.names) if mask >> at & 1)
        whole = len(parts) == len(self.maker.names)
        name = "candidate" if whole else "+".join(parts) or "baseline"
        run = self.folder.finished(name, len(self.starts))
        reused = run is not None
        if run is None:
            run = self._evaluated(name, mask)
        else:
            self.options.notice(f"{name}: finished before in {run.path}, not run again")
            self._tick(2 * len(self.starts))
        self.options.judge.learn(run)
        traces = list(run.traces())
        self.sights[mask] = sight(traces)
        errors = [trace.error for trace in traces if trace.error]
        return Configuration(
            name=name,
            parts=parts,
            errors=len(errors),
            error=errors[0] if errors else None,
            reused=reused,
            run=None if self.options.out is None else str(run.path),
        )

    def _evaluated(self, name: str, mask: int) -> Run:
        traces = make(self.maker, mask, self.starts, threads=self.options.threads, tick=self._tick)
        begun = self._done
        return evaluate(
            traces,
            self.folder.place(name),
            judge=self.options.judge,
            metrics=[str(metric) for metric in self.options.metrics],
            workers=self.options.workers,
            force=True,
            progress=lambda done, _: self._tick(begun + done - self._done),
        )

    def _tick(self, steps: int) -> None:
        self._done += steps
        self.options.progress(self._done, self._all)


def _clusters(starts: Sequence[Trace]) -> list[tuple[str, str]]:
    """What ties queries together: the conversation, else the same words."""
    return [
        ("query", start.query) if start.conversation is None else ("talk", start.conversation)
        for start in starts
    ]
