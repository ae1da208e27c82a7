"""Difficulty of the items of an evaluation set, from runs of systems on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import numpy as np
from msgspec import Struct

from ragfault.apps.testsets.passages import CorpusIndex
from ragfault.io.runs.run import Run
from ragfault.model.errors import InputError, UnknownName
from ragfault.model.grouping import group_by
from ragfault.model.records import Trace
from ragfault.text.normalization import normalize_answer

PREFERRED_METRICS = ("ndcg", "recall", "context_recall", "completeness", "token_f1", "groundedness", "answer_relevance")
"""Names of metrics, the first of which that all runs have is the measure of difficulty."""
SOLVED = 0.5
"""An item is solved in a run with at least this value."""


class ItemDifficulty(Struct, frozen=True, kw_only=True):
    """Values of the systems on one item."""

    item: str
    query: str
    kind: str
    mean: float
    values: dict[str, float]
    """Run → value of the metric."""


class TestsetDifficulty(Struct, frozen=True, kw_only=True):
    """Difficulty of an evaluation set for some systems."""

    # not a class of tests
    __test__ = False

    metric: str
    runs: dict[str, float]
    """Run → mean over its items."""
    items: tuple[ItemDifficulty, ...]
    """Items with a value in every run, the hardest first."""
    solved: int
    """Items with at least 0.5 in every run."""
    unsolved: int
    """Items below 0.5 in every run."""
    kinds: dict[str, float]
    """Kind of question → mean over items and runs, the hardest first."""
    missing: int
    """Items without a value in one of the runs or more."""


def measure_difficulty(
    items: Iterable[Trace], runs: Mapping[str, Run] | Sequence[Run], metric: str | None = None
) -> TestsetDifficulty:
    """Measure the difficulty of items by the mean of a metric over runs of systems, in the range of the metric.

    Traces of a run belong to an item by id, else by query. The metric is the first of `PREFERRED_METRICS` that every
    run has, at its first cut-off.

    Raises InputError without a run or where no item has a value in all of them, UnknownName for a metric that a run
    does not have.
    """
    runs_by_name = dict(runs) if isinstance(runs, Mapping) else _name_runs(runs)
    if not runs_by_name:
        raise InputError("no run was named: difficulty is measured by systems that ran on the set.")
    items_list = list(items)
    tables = {name: _read_values(run, items_list) for name, run in runs_by_name.items()}
    if foreign := [name for name, table in tables.items() if not table]:
        raise InputError(
            f"{', '.join(foreign)}: no trace with a value is of an item of the set. Was it made with this set?"
        )
    chosen = _choose_metric(tables, metric)
    rows = []
    for item in items_list:
        values = {name: table[chosen][item.id] for name, table in tables.items() if item.id in table[chosen]}
        if len(values) == len(runs_by_name):
            kind = str(item.metadata.get("kind", "unknown"))
            rows.append(
                ItemDifficulty(item=item.id, query=item.query, kind=kind, mean=fmean(values.values()), values=values)
            )
    if not rows:
        raise InputError(f"no item of the set has a value of {chosen} in every run: were they made with this set?")
    by_kind = group_by(rows, lambda row: row.kind)
    means = {kind: fmean(row.mean for row in group) for kind, group in by_kind.items()}
    return TestsetDifficulty(
        metric=chosen,
        runs={name: fmean(row.values[name] for row in rows) for name in runs_by_name},
        items=tuple(sorted(rows, key=lambda row: (row.mean, row.item))),
        solved=sum(min(row.values.values()) >= SOLVED for row in rows),
        unsolved=sum(max(row.values.values()) < SOLVED for row in rows),
        kinds=dict(sorted(means.items(), key=lambda pair: (pair[1], pair[0]))),
        missing=len(items_list) - len(rows),
    )


def rank_gold(index: CorpusIndex, items: Iterable[Trace]) -> list[int | None]:
    """Return the rank of the first passage with gold of each item by BM25, from 1; None for an item without gold.

    A passage that shares no word with the query comes last. Raises MissingExtra without the extra `retrieval`.

    >>> from ragfault.model.records import Document, Gold, Span
    >>> text = "The canal bridge was opened by Ann Lee in 1907. It carries forty carts an hour across the river Bren."
    >>> other = Document(id="a", text="The night ferry leaves Oslo at ten. " * 3)
    >>> index = CorpusIndex([other, Document(id="b", text=text)])
    >>> gold = Gold(spans=(Span(document="b", start=0, end=20),))
    >>> rank_gold(index, [Trace(id="1", query="Who opened the bridge?", gold=gold), Trace(id="2", query="Why?")])
    [1, None]
    """
    from ragfault.retrieval.index import BM25Index

    bm25 = BM25Index().fit([passage.text for passage in index.passages])
    ranks: list[int | None] = []
    for item in items:
        spans = item.gold.spans if item.gold is not None else ()
        golden = [
            at
            for at, passage in enumerate(index.passages)
            if any(
                span.document == passage.document and span.start < passage.end and passage.start < span.end
                for span in spans
            )
        ]
        if not golden:
            ranks.append(None)
            continue
        scores = np.asarray(bm25.score_texts(item.query))
        ranks.append(1 + int((scores > scores[golden].max()).sum()))
    return ranks


def _name_runs(runs: Sequence[Run]) -> dict[str, Run]:
    """Return runs by the names of their folders, with a number where two are equal."""
    runs_by_name: dict[str, Run] = {}
    for run in runs:
        name = run.path.name
        runs_by_name[name if name not in runs_by_name else f"{name}#{len(runs_by_name) + 1}"] = run
    return runs_by_name


def _read_values(run: Run, items: Sequence[Trace]) -> dict[str, dict[str, float]]:
    """Return metric → item → value, of the traces of a run that belong to an item."""
    by_query = {normalize_answer(item.query) or item.query: item.id for item in items}
    ids = {item.id for item in items}
    names = {}
    for trace in run.traces():
        item = trace.id if trace.id in ids else by_query.get(normalize_answer(trace.query) or trace.query)
        if item is not None:
            names[trace.id] = item
    values: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for score in run.scores():
        if score.value is not None and score.trace in names:
            values[score.metric][names[score.trace]] = score.value
    return dict(values)


def _choose_metric(tables: Mapping[str, Mapping[str, object]], metric: str | None) -> str:
    common_metrics = sorted(set.intersection(*(set(table) for table in tables.values())))
    if metric is not None:
        if metric not in common_metrics:
            raise UnknownName("metric that every run has values of", metric, common_metrics)
        return metric
    for name in PREFERRED_METRICS:
        for label in common_metrics:
            if label.partition("@")[0].partition("(")[0] == name:
                return label
    raise InputError(f"the runs share none of {', '.join(PREFERRED_METRICS)}. Name one with --metric.")
