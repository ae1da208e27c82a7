"""Measure how often `bisect` names a fault, a segment or a mismatch where both runs are of one system, or bounds it.

Each trial draws pairs of traces and makes two runs of them, the sides of each pair assigned at random, so that all
differences are random; scores and verdicts are those of the systems, judged once. Where a system has fewer pairs than
asked for, they are drawn with replacement, each with a query of its own.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from numpy.typing import NDArray

from benchmarks.faults.__main__ import JUDGE, METRICS
from benchmarks.faults.corpora import load_handbook_corpus
from benchmarks.faults.injection import pair
from benchmarks.faults.unseen.corpora import shop_chunks, shop_questions
from benchmarks.faults.unseen.system import Parts, answer_all
from ragfault.comparison.bisection import bisect
from ragfault.evaluation.evaluator import evaluate
from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.io.runs.run import Manifest, Run, TableName
from ragfault.io.runs.writer import RUN_TABLES
from ragfault.model.records import Trace, Verdicts

PAIR_COUNTS = (50, 200, 600, 2000)
SEGMENTS = {"tenant": 8, "language": 3}
"""Metadata field → number of its values, assigned at random; they are searched beside the recorded ones."""
TURNS_PER_CONVERSATION = {"shop": 4}
"""System → turns of a conversation; all turns of a conversation are assigned to the same side."""


def draw_systems() -> Iterator[tuple[str, Sequence[Trace], Sequence[Trace]]]:
    """Yield each system with its traces of both sides: two releases of the demo, or two seeds of one configuration."""
    demo = load_handbook().traces
    yield "demo", *(keep_gold_spans(demo[version]) for version in ("v1", "v2"))
    yield "handbook", *pair(load_handbook_corpus(), "none", n=400)
    parts, questions = Parts(name="shop", chunks=tuple(shop_chunks())), shop_questions()[:400]
    yield "shop", answer_all(parts, questions), answer_all(replace(parts, seed=1), questions)


def keep_gold_spans(traces: Sequence[Trace]) -> list[Trace]:
    """Return the traces with gold spans alone: ids of gold chunks differ between the releases."""
    return [replace(t, gold=None if t.gold is None else replace(t.gold, chunks={})) for t in traces]


class JudgedPool(NamedTuple):
    """The traces, verdicts and tables of both sides of a system, concatenated."""

    manifest: Manifest
    traces: Sequence[Trace]
    verdicts: Sequence[Verdicts]
    tables: dict[str, pa.Table]
    size: int
    turns: int


POOLS: list[JudgedPool] = []
"""The pools of all systems, copied to each worker process."""


def judge_pool(name: str, sides: Sequence[Sequence[Trace]], key: bool, folder: Path) -> JudgedPool:
    """Judge both sides of a system, with its answer key if `key` is set."""
    runs = []
    for index, traces in enumerate(sides):
        judged_traces = [
            t if key else replace(t, gold=None, facts=None, reference=None, answerable=None) for t in traces
        ]
        runs.append(evaluate(judged_traces, folder / f"{name}-{key}-{index}", metrics=METRICS, judge=JUDGE, force=True))
    tables = {table: pa.concat_tables([run.to_arrow(table) for run in runs]) for table in RUN_TABLES}
    traces, verdicts = ([*getattr(runs[0], part)(), *getattr(runs[1], part)()] for part in ("traces", "verdicts"))
    return JudgedPool(runs[0].manifest, traces, verdicts, tables, len(sides[0]), TURNS_PER_CONVERSATION.get(name, 1))


class PoolRun(Run):
    """A run of some rows of a pool, in memory, each under an id and a query of its own."""

    def __init__(
        self, name: str, pool: JudgedPool, rows: NDArray[np.int64], labels: Sequence[Mapping[str, str]]
    ) -> None:
        super().__init__(name, replace(pool.manifest, traces=len(rows), checksums={}))
        self.pool, self.rows = pool, rows
        turns = pool.turns
        self.pool_traces = [
            replace(
                pool.traces[row],
                id=str(i),
                query=f"{pool.traces[row].query} ({i})",
                conversation=str(i // turns) if turns > 1 else None,
                metadata=label,
            )
            for i, (row, label) in enumerate(zip(rows.tolist(), labels, strict=True))
        ]

    def traces(self, ids: Sequence[str] | None = None, fields: object = ()) -> Iterator[Trace]:  # noqa: ARG002
        return iter(self.pool_traces if ids is None else [trace for trace in self.pool_traces if trace.id in set(ids)])

    def verdicts(self, ids: Sequence[str] | None = None) -> Iterator[Verdicts]:
        chosen = range(len(self.rows)) if ids is None else sorted(map(int, ids))
        return (replace(self.pool.verdicts[self.rows[at]], trace=str(at)) for at in chosen)

    def to_arrow(
        self, table: TableName = "scores", columns: Sequence[str] | None = None, dictionary_columns: Sequence[str] = ()
    ) -> pa.Table:
        source = self.pool.tables[table].select(columns) if columns else self.pool.tables[table]
        for name in dictionary_columns:
            place = source.schema.get_field_index(name)
            source = source.set_column(place, name, source[name].combine_chunks().dictionary_encode())
        if table == "scores":
            size = len(self.manifest.metrics)
            return source.take((self.rows[:, None] * size + np.arange(size)).ravel())
        taken = source.take(self.rows)
        for name in {"id", "query", "conversation", "metadata"} & set(taken.column_names):
            field = taken.schema.field(name)
            values = [getattr(trace, name) for trace in self.pool_traces]
            texts = [json.dumps(value) for value in values] if name == "metadata" else values
            taken = taken.set_column(taken.schema.get_field_index(name), field, pa.array(texts, field.type))
        return taken

    def iterate_batches(
        self, table: TableName = "scores", columns: Sequence[str] | None = None, dictionary_columns: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        yield from self.to_arrow(table, columns, dictionary_columns).combine_chunks().to_batches()


def bisect_null(place: int, n: int, seed: int) -> dict[str, str]:
    """Bisect n pairs of a pool with sides assigned at random; return the named fault, segment, mismatch and bound."""
    pool = POOLS[place]
    rng = np.random.default_rng([n, seed])
    chosen = rng.permutation(pool.size)[:n] if n <= pool.size else rng.integers(0, pool.size, n)
    swapped = np.repeat(rng.random(-(-n // pool.turns)) < 0.5, pool.turns)[:n]
    values = np.stack([rng.integers(0, count, n) for count in SEGMENTS.values()], axis=1).astype(str).tolist()
    labels = [dict(zip(SEGMENTS, row, strict=True)) for row in values]
    sides = [PoolRun(name, pool, chosen + pool.size * (swapped == i), labels) for i, name in enumerate("ab")]
    result = bisect(*sides, seed=seed)
    named = {"fault": result.faults[0].branch} if result.verdict == "fault" else {}
    if result.verdict == "no fault":
        named["bound"] = "within the margin"
    if result.segments:
        named["segment"] = result.segments[0].by
    kinds = [mismatch.kind for mismatch in result.comparison.mismatches if mismatch.blocks]
    return named | ({"mismatch": kinds[0]} if kinds else {})


def bisect_level(trials: int, sizes: Sequence[int] = PAIR_COUNTS, workers: int = 2) -> Iterator[str]:
    """Yield a table of how often bisections of runs of one system name something, or bound what they do not find."""
    yield "| pairs | key | system | trials | a fault (exit 1) | a segment | a mismatch | a bound (exit 0) | named |"
    yield "|---|---|---|---|---|---|---|---|---|"
    systems = list(draw_systems())
    with tempfile.TemporaryDirectory() as folder:
        for key in (True, False):
            POOLS[:] = [judge_pool(name, sides, key, Path(folder)) for name, *sides in systems]
            with ProcessPoolExecutor(
                workers, initializer=POOLS.extend, initargs=(() if is_forked() else POOLS,)
            ) as jobs:
                for n in sizes:
                    for index, (name, *_) in enumerate(systems):
                        seeds = range(index, trials, len(systems))
                        results = list(jobs.map(partial(bisect_null, index, n), seeds, chunksize=4))
                        yield f"| {n:,} | {'yes' if key else 'no'} | {name} | {count_named(results)} |"


def count_named(results: Sequence[dict[str, str]]) -> str:
    """Format the number of trials, how many named a fault, a segment and a mismatch or gave a bound, and the names."""
    counts = [str(sum(what in result for result in results)) for what in ("fault", "segment", "mismatch", "bound")]
    names = Counter(f"{what} {name}" for result in results for what, name in result.items() if what != "bound")
    return " | ".join(
        [str(len(results)), *counts, "; ".join(f"{name} ×{count}" for name, count in names.most_common())]
    )


def is_forked() -> bool:
    """Return whether worker processes are forked, so that they begin with the memory of this process."""
    return multiprocessing.get_start_method() == "fork"
