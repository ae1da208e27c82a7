"""A fix, put to the proof: other chunks or another prompt, on queries that were not used to find the fault."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from ragfault.apps.replay.asking import AskedRequest, Asker, build_text_redactor, read_settings
from ragfault.apps.replay.experiments.experiment import Experiment, ExperimentAnswers, PlannedQuery, ask_experiment
from ragfault.apps.replay.planning import redact_together
from ragfault.apps.replay.rating import AnswerRater, load_run_judge
from ragfault.apps.replay.records import FixReplay, ProofOutcome, ReplayReport
from ragfault.apps.replay.requests.chunk_places import RequestRefused
from ragfault.apps.replay.requests.pooled import read_templates, show_chunks
from ragfault.apps.replay.requests.prompts import write_prompt
from ragfault.apps.replay.requests.request_template import RequestTemplate
from ragfault.apps.replay.settings import ReplaySettings
from ragfault.comparison.compare import pairs_to_decide
from ragfault.comparison.settings import ALPHA, MARGIN, POWER
from ragfault.io.redaction import Redactor
from ragfault.io.runs.run import Run
from ragfault.model.errors import UsageError
from ragfault.model.records import Chunk, Trace
from ragfault.stats.differences import paired_difference
from ragfault.stats.estimates import Difference

QUERIES_OF_FIX = 100
"""Queries that a fix is tried on: they show a gain of 0.15 where one answer in four changes."""
CONFIGURATIONS = ("without the fix", "with the fix")


class Fix(NamedTuple):
    """What a fix changes in the requests."""

    name: str
    """The files that it comes from."""
    chunks: Mapping[str, tuple[Chunk, ...]] | None = None
    """Id or text of a query → the chunks that it gets; None: those that it had."""
    prompts: tuple[str, ...] = ()
    """Texts that take the place of messages: see `write_prompt`."""


def index_chunks(traces: Iterable[Trace]) -> dict[str, tuple[Chunk, ...]]:
    """Map the id and the query of each trace to its chunks."""
    by_name: dict[str, tuple[Chunk, ...]] = {}
    for trace in traces:
        if trace.chunks is not None:
            by_name.setdefault(trace.query, trace.chunks)
            by_name[trace.id] = trace.chunks
    return by_name


class UsedQueries:
    """The queries that found the fault: on them a fix may look better than it is."""

    def __init__(self, report: ReplayReport | None, traces: Iterable[Trace] = ()) -> None:
        proofs = () if report is None else report.proofs
        asked = [(proof.trace, proof.query) for proof in proofs if proof.outcome != "not replayed"]
        self._names = {name for pair in (*asked, *((trace.id, trace.query) for trace in traces)) for name in pair}

    def __contains__(self, trace: object) -> bool:
        return isinstance(trace, Trace) and not self._names.isdisjoint((trace.id, trace.query))


def plan_fix(
    run: Run, fix: Fix, settings: ReplaySettings, used: UsedQueries, *, needs_messages: bool
) -> tuple[Experiment, int]:
    """Plan the requests of a fix on a random sample of the queries of a run; return how many traces were left out.

    Nothing is asked yet. Raises UsageError where no query remains.
    """
    known = list(run.traces(fields=["conversation"]))
    remaining = [trace for trace in known if trace not in used]
    eligible = [trace for trace in remaining if fix.chunks is None or _get_chunks(fix, trace) is not None]
    if not eligible:
        reason = (
            f"{fix.name} has chunks for none of the {len(remaining):,} other queries of the run, by id or by query"
            if remaining
            else "each query of the run was used to find the fault: give a run of other queries"
        )
        raise UsageError(f"there is no query to try the fix on: {reason}.")
    count = QUERIES_OF_FIX if settings.sample is None else settings.sample
    sampled = random.Random(settings.seed).sample(eligible, count) if 0 < count < len(eligible) else eligible
    redactor = None if settings.redact is None else Redactor(settings.redact)
    cases = [_build_case(trace, fix, redactor) for trace in run.traces([trace.id for trace in sampled])]
    templates = read_templates([trace for trace, _ in cases]) if needs_messages else [None] * len(cases)
    clusters: dict[str, int] = {}
    queries = []
    for (trace, chunks), template in zip(cases, templates, strict=True):
        cluster = clusters.setdefault(trace.conversation or f"query {trace.query_id}", len(clusters))
        queries.append(_plan_query(trace, chunks, template, fix)._replace(cluster=cluster))
    return Experiment(CONFIGURATIONS, tuple(queries)), len(known) - len(remaining)


def _get_chunks(fix: Fix, trace: Trace) -> tuple[Chunk, ...] | None:
    chunks = fix.chunks or {}
    return chunks.get(trace.id, chunks.get(trace.query))


def _build_case(trace: Trace, fix: Fix, redactor: Redactor | None) -> tuple[Trace, tuple[Chunk, ...]]:
    """Return a trace with the chunks that the fix shows; an id without a text is one of the chunks it had."""
    shown = trace.chunks or ()
    texts = {chunk.id: chunk for chunk in shown}
    given = _get_chunks(fix, trace) if fix.chunks is not None else None
    chunks = shown if given is None else tuple(chunk if chunk.text else texts.get(chunk.id, chunk) for chunk in given)
    if redactor is None:
        return trace, chunks
    redacted, [changed] = redact_together(redactor, trace, chunks)
    return redacted, changed


def _plan_query(
    trace: Trace, chunks: tuple[Chunk, ...], template: RequestTemplate | str | None, fix: Fix
) -> PlannedQuery:
    """Plan the request of a query as it was and with the fix; without a template for an app of the user."""
    settings, shown, same = read_settings(trace), trace.chunks or (), trace.messages or ()
    if template is None:
        requests = AskedRequest((), trace, shown, 1), AskedRequest((), trace, chunks, 1)
        return PlannedQuery(trace, requests)
    try:
        changed = show_chunks(template, chunks)
        for prompt in fix.prompts:
            assert isinstance(template, RequestTemplate)
            changed = write_prompt(template, changed, prompt, trace.query)
    except RequestRefused as error:
        return PlannedQuery(trace, refused=str(error))
    return PlannedQuery(
        trace, (AskedRequest(same, trace, shown, 1, settings), AskedRequest(changed, trace, chunks, 1, settings))
    )


def replay_fix(
    run: Run, fix: Fix, planned: tuple[Experiment, int], asker: Asker, settings: ReplaySettings
) -> FixReplay:
    """Ask each sampled query without the fix and with it, and decide whether it gains right answers.

    Both requests are asked anew, so that a recorded answer that was bad by chance is no gain. The gain is that of
    these queries with its 95 % interval, sampled by conversation.
    """
    experiment, used = planned
    rater = AnswerRater(load_run_judge(run.manifest, settings.judge), run.manifest.gold)
    answered = ask_experiment(experiment, [asker], rater, build_text_redactor(settings.redact))
    before, after = answered.values
    complete = np.isfinite(before) & np.isfinite(after)
    report = FixReplay(
        run=str(run.path),
        fix=fix.name,
        model=asker.name,
        judge=rater.judge.fingerprint,
        outcome="not decided",
        gain=None,
        margin=MARGIN,
        sampled=int(complete.sum()),
        became_right=int((complete & (before == 0) & (after == 1)).sum()),
        became_bad=int((complete & (before == 1) & (after == 0)).sum()),
        unchanged=sum(_is_unchanged(experiment, query) for query in experiment.asked),
        used=used,
        costs=answered.costs,
        queries=answered.queries,
        refused=experiment.refused,
        usage=asker.usage,
        stopped=answered.stopped,
    )
    return _decide(report, answered, settings) if complete.any() else report


def _is_unchanged(experiment: Experiment, query: PlannedQuery) -> bool:
    return len({experiment.make_key(0, request) for request in query.requests}) == 1


def _decide(report: FixReplay, answered: ExperimentAnswers, settings: ReplaySettings) -> FixReplay:
    """Decide on the gain by its interval, and say about how many queries would."""
    before, after = answered.values
    complete = np.isfinite(before) & np.isfinite(after)
    clusters = np.array(answered.clusters)[complete]
    gain = paired_difference(before[complete], after[complete], clusters, bounds=(0, 1), seed=settings.seed)
    outcome = decide_gain(gain)
    needed = pairs_to_decide(gain, MARGIN, power=POWER, alpha=ALPHA) if outcome == "not decided" else None
    return replace(report, outcome=outcome, gain=gain.mean, low=gain.low, high=gain.high, needed=needed)


def decide_gain(gain: Difference) -> ProofOutcome:
    """Decide whether a fix gains right answers: its interval is above 0, or below the margin.

    >>> pairs = [0.0] * 20
    >>> [decide_gain(paired_difference(pairs, [1.0] * count + pairs[count:], bounds=(0, 1))) for count in (15, 1)]
    ['proven', 'not decided']
    """
    return "proven" if gain.low > 0 else "refuted" if gain.high < MARGIN else "not decided"
