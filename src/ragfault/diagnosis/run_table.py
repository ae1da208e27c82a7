"""A run as diagnosis and reports read it: each part of it once, many parts in one pass."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ragfault.diagnosis.causes.records import AnswerCause
from ragfault.diagnosis.causes.storage import read_causes
from ragfault.diagnosis.chunk_insights import ChunkObserver, ChunkTable
from ragfault.diagnosis.languages import (
    MIN_FOREIGN_SHARE,
    MOSTLY_FOREIGN_SHARE,
    describe_foreign,
    describe_wrapped,
    knows_language,
)
from ragfault.diagnosis.observers import (
    KEY_FIELDS,
    AttemptObserver,
    ClusterObserver,
    ColumnObserver,
    ContextObserver,
    InjectionObserver,
    KeyObserver,
    TextObserver,
)
from ragfault.diagnosis.run_scan import RunObserver, scan_run
from ragfault.diagnosis.score_matrix import (
    METADATA_PREFIX,
    SCORED,
    SEGMENT_FIELDS,
    CodedTexts,
    RunScores,
    SmallInts,
    code_metadata,
    encode_texts,
    metric_name,
    read_scores,
)
from ragfault.io.runs.run import AnyRun, Run, open_run
from ragfault.judges.checks.languages import ENGLISH
from ragfault.labels.correction import Codes, Floats, HumanLabels, LabelValues, Mask
from ragfault.model.errors import UnknownName

if TYPE_CHECKING:
    import pyarrow as pa


class RunTable:
    """The scores of a run as a matrix, columns of its traces, and what a pass over the traces finds.

    Row i of the scores is trace i, column j metric j. Each part is read when it is first asked for, and only once;
    `load` reads all that needs whole traces in one pass. `metrics` selects the scores that are read, by their full
    names: a whole matrix takes 13 bytes for each score. With human `labels` of some traces they go before the judge.

    >>> import tempfile
    >>> from ragfault import Trace, evaluate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = evaluate([Trace(id="1", query="When?", latency=2.0)], f"{folder}/run", metrics=["latency"])
    ...     table = RunTable(run)
    ...     table.ids, table.values.tolist(), table.has_key
    (['1'], [[2.0]], False)
    """

    def __init__(self, run: Run, labels: HumanLabels | None = None, *, metrics: Collection[str] | None = None) -> None:
        self.run, self.labels = run, labels
        self.measures = tuple(measure for measure in run.manifest.metrics if metrics is None or measure.name in metrics)
        self.metric_names = [measure.name for measure in self.measures]
        self._columns: dict[str, pa.ChunkedArray] = {}

    def load(self, *others: RunObserver, columns: Sequence[str] = ()) -> None:
        """Read in one pass all that needs whole traces, the named columns and the traces themselves for `others`."""
        clusters, contexts, chunks = ClusterObserver(), ContextObserver(None), ChunkObserver(from_gold=True)
        key, texts, injections = KeyObserver(), TextObserver(), InjectionObserver()
        plain = ColumnObserver(dict.fromkeys(["id", *columns]))
        attempts = AttemptObserver()
        scan_run(self.run, [clusters, contexts, chunks, key, texts, injections, plain, attempts, *others])
        self._columns |= plain.join()
        self.__dict__ |= {
            "key": key,
            "texts": texts,
            "injections": injections.count,
            "queries": attempts.assign(),
            "clusters": clusters.assign(contexts.hashes),
        }
        self.__dict__["chunks"] = ChunkTable(chunks.join(), self.clusters)

    @cached_property
    def scores(self) -> RunScores:
        """The scores: statuses, values (NaN unless scored), codes of reasons, and the reasons."""
        scores = read_scores(self.run, self.metric_names)
        scores.values[scores.status != SCORED] = math.nan
        return scores

    @property
    def status(self) -> SmallInts:
        """The status of each score, traces × metrics, as its place in `STATUSES`."""
        return self.scores.status

    @property
    def values(self) -> Floats:
        """The value of each score, traces × metrics; NaN where there is none."""
        return self.scores.values

    @property
    def traces(self) -> int:
        """The number of traces."""
        return self.run.manifest.traces

    @cached_property
    def queries(self) -> Codes | None:
        """A code for each trace, shared by the attempts of one query; None if each query has one attempt."""
        observer = AttemptObserver()
        scan_run(self.run, [observer])
        return observer.assign()

    @cached_property
    def clusters(self) -> Codes | None:
        """A code for each trace, shared by the attempts of a query, within a conversation, and by one query with the
        same chunks and history.

        None: all traces are independent. An instruction given with other chunks each time is not one query. If no
        chunks are recorded, nothing tells whether they were the same, and answers to one question are not independent
        of it: it is one query, whatever was answered and when.
        """
        clusters = ClusterObserver()
        scan_run(self.run, [clusters])
        return clusters.assign(self._hash_contexts)

    def _hash_contexts(self, mask: Mask) -> Codes:
        contexts = ContextObserver(mask)
        scan_run(self.run, [contexts])
        return contexts.hashes(mask)

    @cached_property
    def chunks(self) -> ChunkTable:
        """The chunks of all traces."""
        observer = ChunkObserver(from_gold=self.run.manifest.gold == "apply" and self.has_key)
        scan_run(self.run, [observer])
        return ChunkTable(observer.join(), self.clusters)

    @cached_property
    def key(self) -> KeyObserver:
        """Which parts of the answer key any trace has."""
        observer = KeyObserver()
        scan_run(self.run, [observer])
        return observer

    @property
    def has_gold(self) -> bool:
        """Whether any trace has gold chunks or spans."""
        return "gold" in self.key.present

    @property
    def has_key(self) -> bool:
        """Whether any trace has gold, facts, a reference or an answerability label."""
        return not self.key.present.isdisjoint(KEY_FIELDS)

    @cached_property
    def causes(self) -> list[AnswerCause]:
        """The rating and the cause of each answer; labels of people go before what the run stores."""
        return list(read_causes(self.run, items=self.labels.items if self.labels else {}))

    @cached_property
    def texts(self) -> TextObserver:
        """The language and the markup of queries and answers."""
        observer = TextObserver()
        scan_run(self.run, [observer])
        return observer

    @property
    def languages(self) -> Mapping[str, int]:
        """The number of traces in each language but English."""
        return Counter(language for language in self.texts.languages if language != ENGLISH)

    @cached_property
    def unknown(self) -> NDArray[np.bool_]:
        """For each trace, whether it is in a language that the judge does not know."""
        judge = self.run.manifest.judge
        return np.array([not knows_language(judge, language) for language in self.texts.languages], bool)

    @cached_property
    def injections(self) -> int:
        """The number of traces with suspected prompt injections; 0 for runs without that column."""
        observer = InjectionObserver()
        scan_run(self.run, [observer])
        return observer.count

    def read_columns(self, *names: str) -> None:
        """Read in one pass those columns of the traces that are not read yet."""
        if new := [name for name in names if name not in self._columns]:
            observer = ColumnObserver(new)
            scan_run(self.run, [observer])
            self._columns |= observer.join()

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column of the traces."""
        self.read_columns(name)
        return self._columns[name]

    @cached_property
    def ids(self) -> list[str]:
        """The ids of the traces."""
        ids: list[str] = self.column("id").to_pylist()
        return ids

    def segment_codes(self, by: str) -> CodedTexts:
        """Return the value of a field for each trace as codes: route, conversation, model, turn, or metadata.KEY.

        Raises UnknownName for another field, or a metadata key that no trace has.
        """
        import pyarrow as pa

        if by in SEGMENT_FIELDS:
            return encode_texts(self.column(by).cast(pa.string()))
        if not by.startswith(METADATA_PREFIX):
            raise UnknownName("field to divide by", by, [*SEGMENT_FIELDS, f"{METADATA_PREFIX}KEY"])
        return code_metadata(self.column("metadata"), by.removeprefix(METADATA_PREFIX))

    def estimate_unknown_share(self, rows: Codes | None = None) -> float:
        """Estimate of how many traces the judge does not know the language; all, if it is half of them."""
        if self.unknown.mean() < MIN_FOREIGN_SHARE:
            return 0.0
        share = float(self.unknown[... if rows is None else rows].mean())
        return 1.0 if share >= MOSTLY_FOREIGN_SHARE else share

    def column_index(self, name: str) -> int | None:
        """Return the column of the metric of that text, or None."""
        return self.metric_names.index(name) if name in self.metric_names else None

    def triad_column(self) -> int | None:
        """Return the column of the triad, whatever its parameters, or None."""
        exact = self.column_index("triad")
        if exact is not None:
            return exact
        return next((i for i, text in enumerate(self.metric_names) if metric_name(text) == "triad"), None)

    def list_triads(self) -> list[float]:
        """Return the triad of each trace, NaN where it has none."""
        at = self.triad_column()
        if at is None:
            return [math.nan] * self.traces
        # Of a table whose scores are not read, only this metric is.
        is_read = "scores" in self.__dict__
        values = self.values[:, at] if is_read else read_scores(self.run, [self.metric_names[at]]).values[:, 0]
        return [float(value) for value in values]

    def label_values(self, column: int) -> LabelValues | None:
        """Return the human label values of a metric; None where there are none."""
        return None if self.labels is None else self.labels.values_of(self.metric_names[column], self.ids)

    def scored_values(self, column: int, rows: Codes | None = None) -> tuple[Floats, Codes | None]:
        """Return the values of a metric where it is scored, and the clusters of their traces."""
        scored = self.scored_rows(column, rows)
        return self.values[scored, column], None if self.clusters is None else self.clusters[scored]

    def scored_rows(self, column: int, rows: Codes | None = None) -> Codes:
        """Return the rows on which a metric is scored."""
        states = self.status[:, column] if rows is None else self.status[rows, column]
        return np.flatnonzero(states == SCORED) if rows is None else rows[states == SCORED]


def open_table(source: AnyRun | RunTable, labels: HumanLabels | None = None) -> RunTable:
    """Return the table of a run, also by its path; a table is returned as it is, to be shared by analyses."""
    return source if isinstance(source, RunTable) else RunTable(open_run(source), labels)


def list_text_warnings(*sources: AnyRun | RunTable) -> tuple[str, ...]:
    """List the warnings about the language and the markup of runs."""
    warnings = []
    for table in map(open_table, sources):
        manifest, name = table.run.manifest, table.run.path.name
        warnings += [
            describe_foreign(manifest.judge, table.languages, manifest.traces, name),
            describe_wrapped(manifest.judge, table.texts.wrapped, manifest.traces, name),
        ]
    return tuple(text for text in warnings if text is not None)
