"""Ablation of stored traces, where only the generator can still be run."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ragfault.comparison.ablation.attribution import factorial_design, permutation_design
from ragfault.comparison.ablation.experiment import prepare_queries, run_experiment
from ragfault.comparison.ablation.parts import Ablation, AnswerFunction, System, SystemPart, generator
from ragfault.comparison.ablation.settings import AblationSettings
from ragfault.io.formats.tables import TableLike
from ragfault.io.runs.run import Run
from ragfault.io.trace_reader import iterate_traces
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import Trace
from ragfault.model.settings import accept_fields

StoredTraces = Run | str | Path | Iterable[Trace | Mapping[str, Any]] | TableLike


@accept_fields(AblationSettings)
def replay(
    baseline: StoredTraces,
    candidate: StoredTraces,
    generator: AnswerFunction | tuple[AnswerFunction, AnswerFunction],
    settings: AblationSettings,
) -> Ablation:
    """Decide between retrieval and generation from stored traces, by running the generator on the other's chunks.

    `baseline` and `candidate` are runs (or their paths), traces, records as dicts or frames; they pair by id, else by
    query, and what pairs with nothing is left out with a warning. `generator` is a function of query and chunks: the
    baseline's and the candidate's as a pair, or the candidate's alone. With both, the answers are made anew in all four
    configurations, and the result is that of `ablate` with retrievers that return the stored chunks. With one, the
    baseline's generator cannot be run on the candidate's chunks: the baseline keeps its stored answers, the generator
    is swapped first and retrieval second, and their interaction (which then counts as retrieval's) cannot be measured.
    The gold goes with the chunks. The settings are those of `ablate`, without `permutations`.

    Raises UsageError for `permutations` and what `ablate` raises; InputError where no trace pairs.

    >>> from ragfault import Chunk
    >>> chunk = Chunk(id="a", text="The ferry leaves at noon.")
    >>> old = [Trace(id="1", query="When does the ferry leave?", chunks=(chunk,), answer="At noon.")]
    >>> new = [replace(old[0], chunks=(Chunk(id="b", text="The cat sleeps."),), answer="The cat sleeps.")]
    >>> copy = lambda query, chunks: chunks[0].text
    >>> found = replay(old, new, generator=(copy, copy), metrics=["context_relevance"])
    >>> [made.name for made in found.configurations]
    ['baseline', 'retrieval', 'generator', 'candidate']
    >>> [(share.parts[0], round(share.difference.mean, 2)) for share in found.attributions[0].shares]
    [('retrieval', -0.7), ('generator', 0.0)]
    """
    old, new, unpaired = _pair_traces(_load_traces(baseline, "baseline"), _load_traces(candidate, "candidate"))
    baseline_generator, two = (None, generator) if callable(generator) else generator
    if settings.permutations is not None:
        raise UsageError("replay runs every configuration it can: permutations is an option of ablate.")
    answering = _answer_part(two)
    first_pair = (
        _stored_answer(old)
        if baseline_generator is None
        else answering
        if baseline_generator is two
        else _answer_part(baseline_generator)
    )
    design = permutation_design(2, [(1, 0)]) if baseline_generator is None else factorial_design(2)
    warnings = [f"{unpaired:,} traces have no partner on the other side and are left out"] if unpaired else []
    if baseline_generator is None:
        warnings.append("without the baseline's generator an interaction counts as retrieval's share")
    return run_experiment(
        (_stored_system(old, first_pair), _stored_system(new, answering)),
        prepare_queries(old.values()),
        design,
        settings,
        sources=(*old.values(), *new.values()),
        warnings=tuple(warnings),
    )


def _answer_part(function: AnswerFunction) -> SystemPart:
    return generator(function)


def _stored_system(traces: Mapping[str, Trace], answering: SystemPart) -> System:
    return {"retrieval": _stored_retrieval(traces), "generator": answering}


def _stored_retrieval(traces: Mapping[str, Trace]) -> SystemPart:
    """Return the part that retrieves the stored chunks."""

    def retrieval(trace: Trace) -> Trace:
        stored = traces[trace.id]
        if stored.chunks is None:
            return replace(trace, error=stored.error or "the chunks were not recorded")
        return replace(trace, chunks=stored.chunks, gold=stored.gold or trace.gold)

    return retrieval


def _stored_answer(traces: Mapping[str, Trace]) -> SystemPart:
    """Return the part that gives the stored answer, which is valid for the chunks of its own side only."""

    def recorded(trace: Trace) -> Trace:
        stored = traces[trace.id]
        return replace(
            trace,
            answer=stored.answer,
            citations=stored.citations,
            model=stored.model,
            latency=stored.latency,
            tokens=stored.tokens,
            error=stored.error,
        )

    return recorded


def _load_traces(source: StoredTraces, side: str) -> list[Trace]:
    if isinstance(source, str | Path):
        source = Run.open(source)
    traces = list(source.traces() if isinstance(source, Run) else iterate_traces(source))
    if not any(trace.chunks is not None for trace in traces):
        raise InputError(f"no trace of the {side} has chunks, so there is nothing to answer from.")
    return traces


def _pair_traces(
    baseline: Sequence[Trace], candidate: Sequence[Trace]
) -> tuple[dict[str, Trace], dict[str, Trace], int]:
    """Pair the traces under the baseline's ids, and count those without a partner; repeated queries pair in order."""
    for key in ("id", "query"):
        candidates: defaultdict[str, deque[Trace]] = defaultdict(deque)
        for trace in candidate:
            candidates[getattr(trace, key)].append(trace)
        pairs = [(trace, candidates[name].popleft()) for trace in baseline if candidates[name := getattr(trace, key)]]
        if 2 * len(pairs) >= (min(len(baseline), len(candidate)) if key == "id" else 1):
            alone = len(baseline) + len(candidate) - 2 * len(pairs)
            baseline_traces, two = ({pair[0].id: pair[at] for pair in pairs} for at in (0, 1))
            return baseline_traces, two, alone
    raise InputError("no trace of the candidate has the id or the query of a trace of the baseline.")
