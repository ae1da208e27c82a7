"""Traces packed for the browser of the HTML report: an index of all, and the bodies in compressed blocks.

The page keeps the index in memory; it is what is searched, filtered and sorted. The bodies (trace, verdicts,
scores) lie in blocks of gzipped JSON, and a block is unpacked by the browser's own `DecompressionStream` when one of
its traces is opened, so that 5,000 traces cost no more at the start than fifty. Packing takes the page to about
a third; every browser since 2023 can unpack, also on file://, and one that cannot still shows the scorecard and
says so, which is worth more than a page three times the size for all others.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct

from ragfault.diagnosis.run_analysis import diagnose_run
from ragfault.diagnosis.run_table import RunTable
from ragfault.io.runs.run import Run
from ragfault.labels.correction import HumanLabels, apply_labels
from ragfault.model.records import Score, Trace, Verdicts

BLOCK_TRACES = 100
"""Traces to a block, at the most."""
BLOCK_BYTES = 600_000
"""Bytes of JSON to a block; a block ends with the trace that passes it."""
TEXT_LIMIT = 50_000
"""Characters of one text that the page carries."""
SNIPPET_LENGTH = 300
"""Characters of query and answer in the index, where they can be searched."""

BROWSER_COLUMNS = ("ids", "queries", "answers", "route", "level", "problems", "cause")
QUALITY_LEVELS = ("excellent", "good", "fair", "poor", "unrated")
"""Quality levels; unrated where a trace has no triad."""


class TraceBrowserData(Struct, frozen=True, kw_only=True):
    """Data of the trace browser."""

    index: dict[str, Any]
    """One column for each thing that is searched, filtered or sorted by."""
    blocks: tuple[str, ...]
    """The bodies, packed."""
    scores: dict[str, list[float | None]]
    """The values of every metric that has any, by trace."""


def build_trace_browser(run: Run, labels: HumanLabels | None = None) -> TraceBrowserData:
    """Read a run and make the browser of its traces; human labels take the place of verdicts."""
    diagnoses = diagnose_run(RunTable(run, labels))
    items = {} if labels is None else labels.items
    columns: dict[str, list[Any]] = {name: [] for name in BROWSER_COLUMNS}
    routes: dict[str, int] = {}
    kinds: dict[str, int] = {}
    causes: dict[str, int] = {}
    values: dict[str, list[float | None]] = {measure.name: [] for measure in run.manifest.metrics}
    bodies = _TraceBlocks()
    for (trace, verdicts, scores), diagnosis in zip(_iterate_traces(run), diagnoses, strict=True):
        trace_kinds = dict.fromkeys(problem.kind for problem in diagnosis.problems)
        columns["ids"].append(trace.id)
        columns["queries"].append(_make_snippet(trace.query))
        columns["answers"].append(_make_snippet(trace.answer or ""))
        columns["route"].append(routes.setdefault(trace.route or "(no route)", len(routes)))
        columns["level"].append(QUALITY_LEVELS.index(diagnosis.quality or "unrated"))
        columns["problems"].append([kinds.setdefault(kind, len(kinds)) for kind in trace_kinds])
        cause = diagnosis.cause.cause if diagnosis.cause else None
        columns["cause"].append(None if cause is None else causes.setdefault(cause, len(causes)))
        by_metric = {row.metric: row.value for row in scores if row.status == "scored"}
        for name, column in values.items():
            column.append(by_metric.get(name))
        bodies.add(_encode_trace(trace, apply_labels(verdicts, items.get(trace.id, {})), scores))
    present = {name: column for name, column in values.items() if any(value is not None for value in column)}
    index = {
        **columns,
        "routes": list(routes),
        "levels": list(QUALITY_LEVELS),
        "kinds": list(kinds),
        "causes": list(causes),
        "scores": {
            name: [None if value is None else float(f"{value:.4g}") for value in column]
            for name, column in present.items()
        },
        "blocks": bodies.starts,
    }
    return TraceBrowserData(index=index, blocks=tuple(bodies.close()), scores=present)


def pack_bytes(content: bytes) -> str:
    """Pack bytes as text for a script element: gzip, then base64.

    >>> gzip.decompress(base64.b64decode(pack_bytes(b"[]")))
    b'[]'
    """
    return base64.b64encode(gzip.compress(content, compresslevel=6, mtime=0)).decode("ascii")


class _TraceBlocks:
    """Bodies on their way into blocks."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self._blocks: list[str] = []
        self._pending: list[bytes] = []
        self._weight = self._count = 0

    def add(self, body: bytes) -> None:
        if not self._pending:
            self.starts.append(self._count)
        self._pending.append(body)
        self._weight += len(body)
        self._count += 1
        if len(self._pending) >= BLOCK_TRACES or self._weight >= BLOCK_BYTES:
            self.close()

    def close(self) -> list[str]:
        if self._pending:
            self._blocks.append(pack_bytes(b"[" + b",".join(self._pending) + b"]"))
            self._pending, self._weight = [], 0
        return self._blocks


def _iterate_traces(run: Run) -> Iterator[tuple[Trace, Verdicts, list[Score]]]:
    """Iterate each trace with its verdicts and its scores."""
    scores = (list(rows) for _, rows in groupby(run.scores(), key=lambda row: row.trace))
    without: Iterator[list[Score]] = ([] for _ in range(run.manifest.traces))
    rows = zip(run.evidence(), scores if run.manifest.metrics else without, strict=True)
    yield from ((trace, verdicts, own) for (trace, verdicts), own in rows)


def _encode_trace(trace: Trace, verdicts: Verdicts, scores: Iterable[Score]) -> bytes:
    """Encode all of one trace as JSON."""
    rows = [(row.metric, row.status, row.value, row.reason) for row in scores]
    body = msgspec.json.encode({"trace": trace, "verdicts": verdicts, "scores": rows})
    if len(body) <= TEXT_LIMIT:
        return body
    return msgspec.json.encode(_clip_texts(msgspec.json.decode(body)))


def _clip_texts(value: Any) -> Any:
    """Clip the same value with every text cut to what the page carries."""
    if isinstance(value, str):
        left = len(value) - TEXT_LIMIT
        return value if left <= 0 else f"{value[:TEXT_LIMIT]}… [{left:,} characters more]"
    if isinstance(value, list):
        return [_clip_texts(item) for item in value]
    if isinstance(value, dict):
        return {key: _clip_texts(item) for key, item in value.items()}
    return value


def _make_snippet(text: str) -> str:
    return " ".join(text[: 2 * SNIPPET_LENGTH].split())[:SNIPPET_LENGTH]
