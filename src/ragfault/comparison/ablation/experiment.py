"""The ablation experiment: run and score every configuration once, then divide the change among the parts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from ragfault.comparison.ablation.attribution import (
    MAX_FACTORIAL_PARTS,
    EffectOptions,
    ExperimentDesign,
    ExperimentValues,
    attribute_change,
    draw_permutations,
    factorial_design,
    hash_retrieval,
    list_fixed_parts,
    permutation_design,
)
from ragfault.comparison.ablation.experiment_cache import CachedJudge, ExperimentFolder, ExperimentPlan
from ragfault.comparison.ablation.parts import (
    Ablation,
    PartRunner,
    System,
    SystemConfiguration,
    check_part_names,
    part_label,
    run_configuration,
    strip_outputs,
)
from ragfault.comparison.ablation.settings import AblationSettings
from ragfault.diagnosis.run_table import RunTable
from ragfault.evaluation.evaluator import describe_metric, evaluate
from ragfault.io.formats.tables import is_memory_table
from ragfault.io.normalization import normalize_trace
from ragfault.io.runs.run import Run
from ragfault.io.trace_reader import TraceDigest, iterate_traces
from ragfault.judges.loading import load_judge
from ragfault.metrics.catalog import Metric
from ragfault.metrics.selection import select_metrics
from ragfault.model.errors import InputError
from ragfault.model.records import Trace
from ragfault.model.rules import check_ids
from ragfault.model.settings import accept_fields
from ragfault.model.version import __version__


class ExperimentTerms(NamedTuple):
    """Settings of an experiment, with its metrics and its judge loaded."""

    settings: AblationSettings
    metrics: tuple[Metric, ...]
    judge: CachedJudge

    @property
    def effect_options(self) -> EffectOptions:
        """The options of the tests."""
        chosen = self.settings
        return EffectOptions(
            confidence=chosen.confidence, resamples=chosen.resamples, seed=chosen.seed, margin=chosen.margin
        )


def _load_terms(settings: AblationSettings) -> ExperimentTerms:
    """Load metrics and judge; no judge where no metric reads verdicts."""
    metrics, judge = select_metrics(settings.metrics), settings.judge
    if isinstance(judge, str):
        judge = load_judge(judge if any(metric.definition.verdicts for metric in metrics) else "none")
    return ExperimentTerms(settings, metrics, CachedJudge(judge))


@accept_fields(AblationSettings)
def ablate(baseline: System, candidate: System, queries: Iterable[Trace | str], settings: AblationSettings) -> Ablation:
    """Decide by experiment which part of a RAG system made the change from `baseline` to `candidate`.

    A system maps part names to callables `Trace -> Trace` in the order in which they run (`retriever` and `generator`
    make them from plain functions); both have the same names. Up to four parts all 2^k configurations are run over the
    `queries` (texts, or traces, whose outputs are left out). With more parts, or where `permutations` is given, the
    parts are swapped in that many random orders (as many as there are parts, by default), balanced so that each part
    takes each position about equally often.

    Each part's share of a metric's change is its Shapley value (Shapley 1953): the shares sum to the whole
    change, and a part that does nothing has none. For two parts the shares are the main effects of the 2 × 2
    factorial (Fisher 1935), and their interaction is shown beside them. Effects are computed query by query;
    intervals draw the turns of a conversation (else queries) together, `resamples` times. `margin` is the
    smallest effect that matters, as a share of a metric's range.

    A part that raises fails that query alone (`error`). A part is run once on the same input, and what was
    judged in one configuration is not judged again in another. `workers` processes judge; `threads` run
    the parts on several queries at once. `on_progress` is called with (steps done, steps in all), two steps for
    each query of a configuration. With `out`, each configuration is left as a run in `out/<name>`, and
    called again with the same arguments the experiment goes on where it stopped.

    Raises UsageError, InputError, UnknownName, and where a folder is given OutputError and RunError.

    >>> from ragfault.comparison.ablation.parts import generator, retriever
    >>> facts = {"Ann": "Ann sails at noon.", "Bo": "Bo sails at dawn.", "Cy": "Cy sails at dusk."}
    >>> queries = [Trace(id=name, query=f"When does {name} sail?", reference=facts[name]) for name in facts]
    >>> find = retriever(lambda query: [facts[query.split()[2]]])
    >>> copy = generator(lambda query, chunks: chunks[0].text)
    >>> invent = generator(lambda query, chunks: "The harbour master has cancelled everything.")
    >>> found = ablate({"retriever": find, "generator": copy}, {"retriever": find, "generator": invent},
    ...     queries, metrics=["groundedness"])
    >>> [(share.parts[0], share.difference.mean) for share in found.attributions[0].shares]
    [('retriever', 0.0), ('generator', -1.0)]
    """
    parts, permutations = check_part_names(baseline, candidate), settings.permutations
    design = (
        factorial_design(len(parts))
        if permutations is None and len(parts) <= MAX_FACTORIAL_PARTS
        else permutation_design(len(parts), draw_permutations(len(parts), permutations or len(parts), settings.seed))
    )
    return run_experiment((baseline, candidate), prepare_queries(queries), design, settings)


def prepare_queries(queries: Iterable[Trace | str]) -> list[Trace]:
    """Return the queries as traces without outputs; plain texts are numbered, records and frames are read."""
    items = list(
        iterate_traces(cast(Any, queries)) if isinstance(queries, Mapping) or is_memory_table(queries) else queries
    )
    if items and not all(isinstance(query, (str, Trace)) for query in items):
        items = list(iterate_traces(cast(Any, items)))
    starts = [
        Trace(id=str(i), query=query) if isinstance(query, str) else strip_outputs(query)
        for i, query in enumerate(items, 1)
    ]
    try:
        starts = [normalize_trace(start, check=True) for start in starts]
    except ValueError as error:
        raise InputError(f"a query cannot be read: {error}") from None
    if not starts:
        raise InputError("there is no query. Give at least one; to show an effect takes a few dozen.")
    check_ids((start.id for start in starts), "queries")
    return starts


def run_experiment(
    systems: tuple[System, System],
    queries: Sequence[Trace],
    design: ExperimentDesign,
    settings: AblationSettings,
    sources: Iterable[Trace] = (),
    warnings: tuple[str, ...] = (),
) -> Ablation:
    """Run the configurations of a design and divide the change; `sources` are further inputs of the fingerprint."""
    (baseline, candidate), terms = systems, _load_terms(settings)
    plan = _build_plan(baseline, candidate, (*queries, *sources), terms)
    with tempfile.TemporaryDirectory() if settings.out is None else nullcontext(settings.out) as location:
        folder = ExperimentFolder.open(Path(location), plan)
        with PartRunner(baseline, candidate, folder.calls_path) as maker:
            runs = _ConfigurationRuns(folder, maker, queries, design, terms)
            configurations = [runs.ensure_run(mask) for mask in design.masks]
        values = np.stack([RunTable(folder.open_run(configuration.name)).values for configuration in configurations])
    outcome = ExperimentValues(
        values,
        [("query", query.query) if query.conversation is None else ("talk", query.conversation) for query in queries],
        list_fixed_parts(terms.metrics, baseline, candidate, runs.retrieval_hashes),
    )
    attributions = attribute_change(outcome, plan.metrics, plan.parts, design, terms.effect_options)
    return Ablation(
        parts=plan.parts,
        queries=len(queries),
        configurations=tuple(configurations),
        attributions=attributions,
        judge=plan.judge,
        permutations=design.permutations,
        confidence=settings.confidence,
        seed=settings.seed,
        warnings=(
            *warnings,
            *(
                f"{item.name}: a part failed on {item.errors:,} of {len(queries):,} queries, first with: {item.error}"
                for item in configurations
                if item.errors
            ),
        ),
    )


def _build_plan(baseline: System, candidate: System, traces: Iterable[Trace], terms: ExperimentTerms) -> ExperimentPlan:
    digest = TraceDigest()
    for trace in traces:
        digest.add(trace)
    return ExperimentPlan(
        ragfault=__version__,
        parts=tuple(baseline),
        steps=tuple(part_label(step) for system in (baseline, candidate) for step in system.values()),
        judge=terms.judge.fingerprint,
        metrics=tuple(map(describe_metric, terms.metrics)),
        queries=digest.fingerprint,
    )


class _ConfigurationRuns:
    """Runs of the configurations, made or reused one after the other."""

    def __init__(
        self,
        folder: ExperimentFolder,
        runner: PartRunner,
        queries: Sequence[Trace],
        design: ExperimentDesign,
        terms: ExperimentTerms,
    ) -> None:
        self.folder, self.runner, self.queries, self.terms = folder, runner, queries, terms
        self.retrieval_hashes: dict[int, tuple[int, ...]] = {}
        self._total_steps = 2 * len(queries) * len(design.masks)
        self._done_steps = 0

    def ensure_run(self, mask: int) -> SystemConfiguration:
        """Return the configuration, evaluated now or reused."""
        parts = tuple(name for i, name in enumerate(self.runner.names) if mask >> i & 1)
        all_swapped = len(parts) == len(self.runner.names)
        name = "candidate" if all_swapped else "+".join(parts) or "baseline"
        run = self.folder.finished_run(name, len(self.queries))
        reused = run is not None
        if run is None:
            run = self._evaluate(name, mask)
        else:
            self.terms.settings.on_notice(f"{name}: finished before in {run.path}, not run again")
            self._advance(2 * len(self.queries))
        self.terms.judge.add_run(run)
        traces = list(run.traces())
        self.retrieval_hashes[mask] = hash_retrieval(traces)
        errors = [trace.error for trace in traces if trace.error]
        return SystemConfiguration(
            name=name,
            parts=parts,
            errors=len(errors),
            error=errors[0] if errors else None,
            reused=reused,
            run=None if self.terms.settings.out is None else str(run.path),
        )

    def _evaluate(self, name: str, mask: int) -> Run:
        traces = run_configuration(
            self.runner, mask, self.queries, threads=self.terms.settings.threads, advance=self._advance
        )
        done_before = self._done_steps
        return evaluate(
            traces,
            self.folder.run_path(name),
            judge=self.terms.judge,
            metrics=[str(metric) for metric in self.terms.metrics],
            workers=self.terms.settings.workers,
            force=True,
            on_progress=lambda done, _: self._advance(done_before + done - self._done_steps),
        )

    def _advance(self, steps: int) -> None:
        self._done_steps += steps
        self.terms.settings.on_progress(self._done_steps, self._total_steps)
