"""One pass over the traces and verdicts of a run, for all that is observed on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from ragfault.io.runs.run import Run
from ragfault.model.errors import RunError
from ragfault.model.gold_evidence import apply_gold
from ragfault.model.records import Trace, Verdicts

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


class TraceBatch:
    """Consecutive traces of a run: columns in Arrow, and records that are decoded when they are first read."""

    def __init__(self, run: Run, start: int, columns: pa.Table, verdict_columns: pa.Table | None) -> None:
        self.run = run
        self.start = start
        """Row of the first trace, from 0."""
        self.columns = columns
        """The columns of the traces that an observer of the pass asks for."""
        self.verdict_columns = verdict_columns
        """Those of the verdicts; None if no observer asks for any."""

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def take(self, rows: NDArray[np.int64]) -> TraceBatch:
        """Return some rows of the batch, counted from its first."""
        verdicts = None if self.verdict_columns is None else self.verdict_columns.take(rows)
        return TraceBatch(self.run, self.start, self.columns.take(rows), verdicts)

    @cached_property
    def traces(self) -> list[Trace]:
        """The traces, with the fields that were read."""
        from ragfault.io.formats.arrow import table_to_traces

        return list(table_to_traces(self.columns))

    @cached_property
    def verdicts(self) -> list[Verdicts]:
        """The judge's own verdicts."""
        from ragfault.io.formats.arrow import table_to_records

        return [] if self.verdict_columns is None else list(table_to_records(self.verdict_columns, Verdicts))

    @cached_property
    def evidence(self) -> list[Verdicts]:
        """The verdicts that metrics read: the judge's, with gold applied if the run does so."""
        if self.run.manifest.gold != "apply":
            return self.verdicts
        return [apply_gold(trace, verdicts) for trace, verdicts in zip(self.traces, self.verdicts, strict=True)]


class RunObserver(Protocol):
    """What is observed in a pass over the traces of a run."""

    @property
    def trace_columns(self) -> Sequence[str] | None:
        """Columns of the traces that it reads; None: all."""

    @property
    def verdict_columns(self) -> Sequence[str] | None:
        """Columns of the verdicts that it reads; None: all."""

    @property
    def is_done(self) -> bool:
        """True if it needs no further batch."""

    def add(self, batch: TraceBatch) -> None:
        """Observe the next traces."""


def scan_run(run: Run, observers: Sequence[RunObserver]) -> None:
    """Read the traces and verdicts of a run once for all observers, only in the columns that any of them reads.

    The pass ends early if no observer needs more. Raises RunError if traces and verdicts are not in the same order.
    """
    traces = _join_columns([observer.trace_columns for observer in observers])
    verdicts = _join_columns([observer.verdict_columns for observer in observers])
    start = 0
    for batch in _read_batches(run, traces, verdicts):
        columns, verdict_columns = batch
        part = TraceBatch(run, start, columns, verdict_columns)
        for observer in observers:
            if not observer.is_done:
                observer.add(part)
        start += len(part)
        if all(observer.is_done for observer in observers):
            return


def _join_columns(columns_by_observer: Sequence[Sequence[str] | None]) -> list[str] | None:
    """Join the columns that observers name; None if any of them reads all."""
    if any(names is None for names in columns_by_observer):
        return None
    return list(dict.fromkeys(name for names in columns_by_observer for name in names or ()))


def _read_batches(
    run: Run, traces: list[str] | None, verdicts: list[str] | None
) -> Iterator[tuple[pa.Table, pa.Table | None]]:
    """Yield traces with the verdicts of the same rows; without verdicts if none of their columns is read."""
    import pyarrow as pa

    if verdicts == []:
        yield from ((pa.Table.from_batches([batch]), None) for batch in run.iterate_batches("traces", traces))
        return
    # The ids of both tables are compared, so that a verdict is never taken for that on another trace.
    traces = None if traces is None else list(dict.fromkeys(["id", *traces]))
    verdicts = None if verdicts is None else list(dict.fromkeys(["trace", *verdicts]))
    source = run.iterate_batches("verdicts", verdicts)
    pending: pa.Table | None = None
    for batch in run.iterate_batches("traces", traces):
        while pending is None or pending.num_rows < batch.num_rows:
            more = next(source, None)
            if more is None:
                raise _describe_order(run)
            parts = [item for item in (pending, pa.Table.from_batches([more])) if item is not None]
            pending = pa.concat_tables(parts)
        own, pending = pending.slice(0, batch.num_rows), pending.slice(batch.num_rows)
        table = pa.Table.from_batches([batch])
        if not table["id"].equals(own["trace"]):
            raise _describe_order(run)
        yield table, own


def _describe_order(run: Run) -> RunError:
    return RunError(f"{run.path}: traces and verdicts are not in the same order. Evaluate again.")
