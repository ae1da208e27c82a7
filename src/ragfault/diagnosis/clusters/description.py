"""Failing traces as texts and problem kinds, and the description of clusters of them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from ragfault.diagnosis.causes.table import CAUSES
from ragfault.diagnosis.clusters.records import Cluster, ClusterExample, ClusterShare, ClusterTrend, FailingTrace
from ragfault.diagnosis.diagnosis import PROBLEM_KINDS
from ragfault.diagnosis.records import Diagnosis, ProblemKind
from ragfault.diagnosis.run_analysis import DOUBTFUL_KINDS, diagnose_run, find_doubtful_kinds, leave_out
from ragfault.diagnosis.run_table import RunTable, open_table
from ragfault.io.field_values import make_content_id
from ragfault.io.runs.run import Run
from ragfault.judges.checks.lexicon import load_idf
from ragfault.model.causes import CauseName
from ragfault.stats.differences import unpaired_differences
from ragfault.stats.estimates import Interval
from ragfault.stats.intervals import mean_interval
from ragfault.text.normalization import STOP_WORDS, normalize_answer, stem_word

# a trace whose triad is below this fails, whatever else is said of it
LOW_TRIAD = 0.5
# characters of a problem that are kept
MAX_TEXT = 400

CAUSE_ORDER: tuple[ProblemKind, ...] = (
    "pipeline_error", "nothing_retrieved", "empty_answer", "wrong_refusal", "nothing_relevant", "false_claim",
    "outdated_source", "contradicted_claim", "uncovered_statement", "contradicted_fact", "bad_quote",
    "unsupported_claim", "missed_refusal", "missing_context", "bad_citation", "absent_fact", "irrelevant_answer",
    "unanswered_aspect", "all_low", "irrelevant_chunk",
)  # fmt: skip
"""The kinds of problem, those that others follow from, and that are seen for certain, before the rest."""

CAUSE_RANK = {kind: i for i, kind in enumerate(CAUSE_ORDER)}

Array = np.ndarray[Any, Any]


class TracePopulation(NamedTuple):
    """All traces that failures were picked from: those of a run, or a selection of a store."""

    name: str
    fingerprint: str
    created: str
    """Time of creation in ISO format, so that later ones are greater."""
    judge: str
    traces: int
    total: int = 0
    """Traces of the run of which these are a random sample; 0: they are no sample."""
    clusters: Array | None = None
    """A code for each trace, shared by those of one conversation; None: there are none."""
    queries: Sequence[str] | None = None
    """The query of each trace, by which those of several runs belong together; None: they do not."""
    times: Array | None = None
    """Microseconds since 1970 of each trace, below 0 where not known; None: of none."""


def choose_cause(kinds: Sequence[ProblemKind]) -> ProblemKind:
    """Return the kind of problem that causes the others.

    >>> choose_cause(["irrelevant_answer", "nothing_relevant", "irrelevant_chunk"])
    'nothing_relevant'
    """
    return min(kinds, key=CAUSE_RANK.__getitem__)


def choose_common_cause(kinds: Mapping[ProblemKind, int], size: int) -> ProblemKind:
    """Return the cause among the kinds that at least half of the traces show, else the commonest kind.

    >>> choose_common_cause({"bad_quote": 3, "nothing_relevant": 7, "unsupported_claim": 9}, 10)
    'nothing_relevant'
    """
    shared = [kind for kind, count in kinds.items() if 2 * count >= size and kind != "irrelevant_chunk"]
    if shared:
        return choose_cause(shared)
    return min(kinds, key=lambda kind: (-kinds[kind], CAUSE_RANK[kind]))


def is_failing(diagnosis: Diagnosis) -> bool:
    """Return whether a trace fails: a problem other than single irrelevant chunks, or a low triad.

    A right answer does not fail: what is wrong beside it is a cost.
    """
    if diagnosis.cause is not None and diagnosis.cause.rating.outcome == "right":
        return False
    if any(problem.kind != "irrelevant_chunk" for problem in diagnosis.problems):
        return True
    return bool(diagnosis.problems) and diagnosis.triad is not None and diagnosis.triad < LOW_TRIAD


def read_failures(
    sources: Sequence[Run | RunTable], keys: Collection[str] | None = None
) -> tuple[list[FailingTrace], list[FailingTrace]]:
    """Read the failing traces of runs, in their order: by all problems, and without the kinds that are doubtful.

    Doubtful are those that `suggest_remedies` leaves out of every run. `keys` select the failures (see `failure_key`).
    Human labels of a table go before the verdicts and causes of its run.
    """
    tables = [open_table(source) for source in sources]
    failures: tuple[list[FailingTrace], list[FailingTrace]] = ([], [])

    def iterate_diagnoses(run_index: int, table: RunTable) -> Iterator[Diagnosis]:
        for row, diagnosis in enumerate(diagnose_run(table)):
            for listed, reading in zip(failures, (diagnosis, leave_out(diagnosis, DOUBTFUL_KINDS)), strict=True):
                failure = failure_from_diagnosis(reading, run_index, row) if is_failing(reading) else None
                if failure is not None and (keys is None or failure_key(failure) in keys):
                    listed.append(failure)
            yield diagnosis

    runs = [table.run for table in tables]
    doubtful = find_doubtful_kinds(runs, [iterate_diagnoses(at, table) for at, table in enumerate(tables)])
    return failures if doubtful else (failures[0], failures[0])


def failure_from_diagnosis(diagnosis: Diagnosis, run_index: int = 0, row: int = 0) -> FailingTrace:
    """Build the failure record of a diagnosis."""
    kinds = tuple(dict.fromkeys(problem.kind for problem in diagnosis.problems))
    kind = choose_cause(kinds)
    first = next(problem for problem in diagnosis.problems if problem.kind == kind)
    text = f"{first.text} ({first.reason})" if first.reason else first.text
    return FailingTrace(
        run=run_index,
        row=row,
        trace=diagnosis.trace,
        query=diagnosis.query,
        kind=kind,
        kinds=kinds,
        text=text[:MAX_TEXT],
        triad=diagnosis.triad,
        cause=None if diagnosis.cause is None else diagnosis.cause.cause,
    )


def load_population(source: Run | RunTable) -> TracePopulation:
    """Load the data of all traces of a run that clustering needs."""
    table = open_table(source)
    table.read_columns("query", "time")
    manifest = table.run.manifest
    return TracePopulation(
        name=table.run.path.resolve().name,
        fingerprint=run_fingerprint(table.run),
        created=manifest.created,
        judge=manifest.judge,
        traces=manifest.traces,
        total=manifest.population,
        clusters=table.clusters,
        queries=table.column("query").to_pylist(),
        times=_trace_times(table),
    )


def run_fingerprint(run: Run) -> str:
    """Return the identity of a run wherever it is stored: its traces and its judge."""
    return f"{run.manifest.fingerprint} {run.manifest.judge}"


def _trace_times(table: RunTable) -> Array | None:
    """Return the time of each trace in microseconds, −1 where it has none; None where no trace has one."""
    times = table.column("time").to_pylist()
    if all(time is None for time in times):
        return None
    return np.array([-1 if time is None else int(time.timestamp() * 1e6) for time in times], np.int64)


WORD_PATTERN = re.compile(r"[^\W_]+(?:['’-][^\W\d_]+)*")
# so many words stand in a name
MAX_NAME_WORDS = 4
# so many terms of a cluster are kept, to recognise it by
MAX_TERMS = 40


class ClusterTerms(NamedTuple):
    """Distinctive words of a cluster."""

    # as they are mostly written, those that tell most first
    words: tuple[str, ...]
    # stem → weight; of length 1
    terms: dict[str, float]


def distinctive_terms(groups: Sequence[Sequence[FailingTrace]]) -> list[ClusterTerms]:
    """Find the terms that distinguish each group, by c-TF-IDF over the words of the queries (Grootendorst 2022).

    Weights are multiplied by how rare a word is in English. A word of one query alone names no group of several.
    """
    written: dict[str, Counter[str]] = {}
    counts = [_count_terms(group, written) for group in groups]
    total: Counter[str] = Counter()
    for counter, _ in counts:
        total.update(counter)
    mean = total.total() / max(1, len(groups))
    return [_weigh_terms(counter, spread, total, mean, written) for counter, spread in counts]


def _count_terms(
    group: Sequence[FailingTrace], spellings: dict[str, Counter[str]]
) -> tuple[Counter[str], Counter[str]]:
    """Count how often each stem occurs in the queries of a group, and in how many of them."""
    counts: Counter[str] = Counter()
    spread: Counter[str] = Counter()
    for failure in group:
        here = set()
        for match in WORD_PATTERN.finditer(failure.query):
            term = stem_word(match[0].lower().replace("’", "'"))
            if term not in STOP_WORDS and len(term) > 1:
                spellings.setdefault(term, Counter())[match[0].lower()] += 1
                counts[term] += 1
                here.add(term)
        spread.update(here)
    return counts, spread


def _weigh_terms(
    counts: Counter[str], spread: Counter[str], total: Counter[str], mean: float, spellings: dict[str, Counter[str]]
) -> ClusterTerms:
    size, tell = counts.total() or 1, load_idf()
    weights = {term: count / size * math.log(1 + mean / total[term]) * tell(term) for term, count in counts.items()}
    ranked = sorted(weights, key=lambda term: (-weights[term], term))[:MAX_TERMS]
    length = math.sqrt(sum(weights[term] ** 2 for term in ranked)) or 1.0
    shared = [term for term in ranked if spread[term] > 1] or ranked
    return ClusterTerms(
        words=tuple(_common_spelling(spellings[term]) for term in shared[:MAX_NAME_WORDS]),
        terms={term: round(weights[term] / length, 6) for term in ranked},
    )


def _common_spelling(spellings: Counter[str]) -> str:
    return min(spellings, key=lambda way: (-spellings[way], way))


def name_cluster(kind: ProblemKind, words: Sequence[str], cause: CauseName | None = None) -> str:
    """Name a cluster: the cause of its bad answers, else its kind of failure, then its distinctive words.

    >>> name_cluster("wrong_refusal", ("ticket", "refund"))
    'refusals although the chunks cover the query: ticket, refund'
    """
    title = PROBLEM_KINDS[kind].title if cause in (None, "undecided") else CAUSES[cause].title
    return f"{title}: {', '.join(words)}" if words else title


MEDOIDS = 3
# into at most so many stretches of time a run is divided
MAX_PERIODS = 8
# at most so many stretches that each would hold this many traces if they came evenly
MIN_PERIOD_TRACES = 10
# a change of share that is certainly smaller than this is none
STEADY_CHANGE = 0.05
# microseconds
DAY_MICROSECONDS = 86_400_000_000


class RunPeriod(NamedTuple):
    """Run, or a period of one, in which clusters are counted."""

    label: str
    run: int
    # the rows of the run that lie in it
    rows: Array


def failure_key(failure: FailingTrace) -> str:
    """Return the key of a failure that is stable over runs: a hash of its normalized query and its kind.

    >>> a, b = [FailingTrace(run=r, row=0, trace=t, query=q, kind="absent_fact", kinds=(), text="") for r, t, q in
    ...         ((0, "1", "When does it leave?"), (1, "9", "when does it leave"))]
    >>> failure_key(a) == failure_key(b)
    True
    """
    return make_content_id(f"{failure.kind}\n{normalize_answer(failure.query) or failure.query}", "")


def describe_cluster(
    group: Sequence[FailingTrace],
    vectors: Array,
    terms: ClusterTerms,
    name: str,
    populations: Sequence[TracePopulation],
) -> Cluster:
    """Describe a group as a new cluster; `vectors` are its rows in the space of meaning and kinds."""
    keys = [sorted({failure_key(failure) for failure in group if failure.run == i}) for i in range(len(populations))]
    layers = Counter(PROBLEM_KINDS[failure.kind].layer for failure in group)
    kinds = Counter(item for failure in group for item in failure.kinds)
    kind = choose_common_cause(kinds, len(group))
    middle = vectors.mean(axis=0)
    length = float(np.linalg.norm(middle)) or 1.0
    return Cluster(
        id=make_content_id("\n".join((kind, *sorted(set().union(*keys)))), "c-")[:8],
        name=name,
        kind=kind,
        layer=PROBLEM_KINDS[kind].layer,
        cause=group[0].cause if len({failure.cause for failure in group}) == 1 else None,
        size=len(group),
        share=_cluster_share(group, populations),
        words=terms.words,
        kinds=dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
        layers=dict(sorted(layers.items(), key=lambda item: (-item[1], item[0]))),
        members=tuple(format_member_id(failure, populations) for failure in group),
        memberships={},
        examples=tuple(_build_example(group[place], populations) for place in _medoid_rows(vectors)),
        remedies=PROBLEM_KINDS[kind].steps,
        shares=(),
        trend="cannot tell",
        terms=terms.terms,
        failure_keys=tuple(map(tuple, keys)),
        run_counts=tuple(sum(failure.run == i for failure in group) for i in range(len(populations))),
        centroid=tuple(np.round(middle / length, 5).tolist()),
    )


def format_member_id(failure: FailingTrace, populations: Sequence[TracePopulation]) -> str:
    """Return the id of a failing trace, with several runs after its run and a slash."""
    return failure.trace if len(populations) == 1 else f"{populations[failure.run].name}/{failure.trace}"


def _build_example(failure: FailingTrace, populations: Sequence[TracePopulation]) -> ClusterExample:
    """Build an example trace; where the problem's text is the query, only its reason is given."""
    name, text = populations[failure.run].name, failure.text
    if text.startswith(f"{failure.query} ("):
        text = text[len(failure.query) + 2 :].removesuffix(")")
    return ClusterExample(run=name, trace=failure.trace, query=failure.query, kind=failure.kind, text=text)


def _medoid_rows(vectors: Array) -> list[int]:
    """Return the rows nearest to all others by cosine, ties in order."""
    near = np.round(vectors @ vectors.mean(axis=0), 6)
    rows: list[int] = np.argsort(-near, kind="stable")[:MEDOIDS].tolist()
    return rows


def _cluster_share(group: Sequence[FailingTrace], populations: Sequence[TracePopulation]) -> Interval:
    """Compute the share of all traces, resampled by conversation, or by query over several runs."""
    starts = np.cumsum([0, *(population.traces for population in populations)])
    values = np.zeros(starts[-1])
    values[[int(starts[failure.run]) + failure.row for failure in group]] = 1
    return mean_interval(values, _trace_clusters(populations), bounds=(0, 1))


def _trace_clusters(populations: Sequence[TracePopulation]) -> Array | None:
    """Return the codes of traces that are not independent; None where all are."""
    if len(populations) == 1:
        return populations[0].clusters
    if any(population.queries is None for population in populations):
        return None
    codes: dict[str, int] = {}
    return np.array(
        [codes.setdefault(query, len(codes)) for population in populations for query in population.queries or ()]
    )


def split_periods(populations: Sequence[TracePopulation]) -> list[RunPeriod]:
    """Split into periods: the runs, or stretches of time of a single run; none where it has no times."""
    if len(populations) > 1:
        return [RunPeriod(population.name, i, np.arange(population.traces)) for i, population in enumerate(populations)]
    times = populations[0].times
    if times is None:
        return []
    known = np.flatnonzero(times >= 0)
    count = min(MAX_PERIODS, len(known) // MIN_PERIOD_TRACES)
    if count < 2 or times[known].min() == times[known].max():
        return []
    first, last = int(times[known].min()), int(times[known].max())
    ends = np.linspace(first, last, count + 1)
    bucket = np.clip(np.searchsorted(ends, times[known], side="right") - 1, 0, count - 1)
    periods = [RunPeriod(_period_label(int(ends[i]), last - first), 0, known[bucket == i]) for i in range(count)]
    return [part for part in periods if len(part.rows)]


def _period_label(moment: int, span: int) -> str:
    """Return the start of a period: its day, or its minute where the run spans a few days."""
    moment_utc = datetime.fromtimestamp(moment / 1e6, UTC)
    return f"{moment_utc:%Y-%m-%d}" if span > 4 * DAY_MICROSECONDS else f"{moment_utc:%Y-%m-%d %H:%M}"


def compute_trends(
    groups: Sequence[Sequence[FailingTrace]], populations: Sequence[TracePopulation], seed: int = 0
) -> list[tuple[tuple[ClusterShare, ...], ClusterTrend]]:
    """Compute the shares of each group over runs or time, and its trend by the interval of their difference.

    The trend compares the last run with the first, or the later half of the time with the earlier.
    """
    over = split_periods(populations)
    if len(over) < 2 or not groups:
        return [((), "cannot tell") for _ in groups]
    tables = [np.stack([_membership(group, part) for group in groups], axis=1) for part in over]
    codes = [_period_clusters(populations[part.run], part) for part in over]
    several = len(populations) > 1
    begin, end = slice(1 if several else len(over) // 2), slice(-1 if several else len(over) // 2, None)
    changes = unpaired_differences(
        np.concatenate(tables[begin]),
        np.concatenate(tables[end]),
        (np.concatenate(codes[begin]), np.concatenate(codes[end])),
        bounds=[(0.0, 1.0)] * len(groups),
        seed=seed,
    )
    periods = list(zip(over, codes, tables, strict=True))
    return [
        (
            tuple(_period_share(part, shared, table[:, i]) for part, shared, table in periods),
            _classify_trend(changes[i]),
        )
        for i in range(len(groups))
    ]


def _period_clusters(population: TracePopulation, period: RunPeriod) -> Array:
    """Return a code for each trace of a period, shared by copies and by the turns of one conversation."""
    return period.rows if population.clusters is None else population.clusters[period.rows]


def _membership(group: Sequence[FailingTrace], period: RunPeriod) -> Array:
    rows = [failure.row for failure in group if failure.run == period.run]
    return np.isin(period.rows, rows).astype(np.float64)


def _period_share(period: RunPeriod, clusters: Array, membership: Array) -> ClusterShare:
    return ClusterShare(
        label=period.label,
        failures=int(membership.sum()),
        traces=len(membership),
        share=mean_interval(membership, clusters, bounds=(0, 1)),
    )


def _classify_trend(change: Any) -> ClusterTrend:
    if change is None:
        return "cannot tell"
    if change.low > 0:
        return "rising"
    if change.high < 0:
        return "falling"
    return "steady" if max(-change.low, change.high) < STEADY_CHANGE else "cannot tell"
