"""Promotion of failing traces to cases of an evaluation set, with their provenance, for review by people.

A case is a trace with its query and, where known, reference, facts and gold. The failed answer and its chunks are not
part of the case: the answer is kept in `metadata.failing`, the origin in `metadata.provenance`, and the review state
in `metadata.review`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ragfault.diagnosis.records import Diagnosis
from ragfault.io.atomic_files import lock_folder, write_atomically
from ragfault.io.field_values import make_content_id
from ragfault.io.runs.run import Run
from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.records import Trace
from ragfault.text.normalization import normalize_answer
from ragfault.text.similarity import make_shingles

# queries are duplicates from this Jaccard similarity of their three-word shingles on
DUPLICATE_SIMILARITY = 0.8


class PromotionResult(Struct, frozen=True):
    """Result of a promotion: cases added, duplicates left out, and the size of the file."""

    added: tuple[str, ...]
    """The ids of the cases that were written."""
    duplicates: tuple[tuple[str, str], ...]
    """Traces left out, each with the id of the case that asks the same."""
    total: int
    """Cases in the file now."""


def promote_cases(cases: Iterable[Trace], path: str | Path) -> PromotionResult:
    """Append cases to an evaluation set; existing lines stay byte for byte.

    A case whose query is already in the file, normalized or nearly so, is left out. The file is replaced atomically.
    Raises InputError where the file cannot be read as traces, OutputError where it cannot be written.
    """
    path = _check_jsonl(path)
    added, doubles = [], []
    with lock_folder(path):
        known = CaseIndex(_read_cases(path))
        for case in cases:
            double = known.duplicate_id(case.query)
            if double is None:
                added.append(case)
                known.add(case)
            else:
                doubles.append((case.metadata["provenance"]["trace"], double))
        if added:
            write_atomically(path, _read_bytes(path) + b"".join(msgspec.json.encode(case) + b"\n" for case in added))
    return PromotionResult(tuple(case.id for case in added), tuple(doubles), len(known.ids))


def accept_cases(path: str | Path, ids: Sequence[str], by: str, time: str) -> int:
    """Mark cases of an evaluation set as reviewed, and return how many were pending; other lines do not change.

    Raises UnknownName for an id that no case has, InputError where the file cannot be read.
    """
    path = _check_jsonl(path)
    with lock_folder(path):
        _read_cases(path)
        lines = _read_bytes(path).split(b"\n")[:-1]
        records = [msgspec.json.decode(line) if line.strip() else {} for line in lines]
        known = [record["id"] for record in records if "id" in record]
        for name in ids:
            if name not in known:
                raise UnknownName(f"case in {path}", name, known)
        changed = [
            record.get("id") in ids and (record.get("metadata") or {}).get("review") != "accepted" for record in records
        ]
        if any(changed):
            review = {"review": "accepted", "reviewed": {"by": by, "time": time}}
            for index, record in enumerate(records):
                if changed[index]:
                    record["metadata"] = (record.get("metadata") or {}) | review
            new_lines = [
                msgspec.json.encode(record) if other else line
                for line, record, other in zip(lines, records, changed, strict=True)
            ]
            write_atomically(path, b"\n".join(new_lines) + b"\n")
    return sum(changed)


def build_cases(run: Run, ids: Sequence[str], time: str, cluster: Mapping[str, str] | None = None) -> Iterator[Trace]:
    """Build cases from traces of a run; `cluster` holds the id and name of their cluster.

    Those of a cluster come in the order of the run, since it may have many, others in that of `ids`. Raises UnknownName
    for an id that no trace has.
    """
    from ragfault.diagnosis.run_analysis import diagnose_run

    order = {name: i for i, name in enumerate(ids)}
    pairs: Iterable[tuple[Trace, Diagnosis]] = zip(run.traces(list(ids)), diagnose_run(run, ids), strict=True)
    for trace, diagnosis in pairs if cluster else sorted(pairs, key=lambda pair: order[pair[0].id]):
        provenance = {
            "run": run.path.resolve().name,
            "fingerprint": run.manifest.fingerprint,
            "judge": run.manifest.judge,
            "trace": trace.id,
            "date": time,
        }
        yield build_case(trace, diagnosis, provenance | ({"cluster": dict(cluster)} if cluster else {}))


def build_case(trace: Trace, diagnosis: Diagnosis | None, provenance: Mapping[str, Any]) -> Trace:
    """Build a case of an evaluation set from a trace.

    >>> made = build_case(Trace(id="7", query="When?", answer="At noon."), None, {"run": "v2", "trace": "7"})
    >>> made.answer, made.metadata["failing"]["answer"], made.metadata["review"]
    (None, 'At noon.', 'pending')
    """
    failing: dict[str, Any] = {"answer": trace.answer, "error": trace.error, "model": trace.model}
    if diagnosis is not None:
        failing["problems"] = list(dict.fromkeys(problem.kind for problem in diagnosis.problems))
    about = {
        **trace.metadata,
        "review": "pending",
        "failing": {key: value for key, value in failing.items() if value is not None},
        "provenance": dict(provenance),
    }
    return Trace(
        id=make_content_id(normalize_answer(trace.query) or trace.query, "case-"),
        query=trace.query,
        reference=trace.reference,
        facts=trace.facts,
        gold=trace.gold,
        route=trace.route,
        metadata=about,
    )


class CaseIndex:
    """Index of the queries of an evaluation set, for finding duplicates."""

    def __init__(self, cases: Iterable[Trace]) -> None:
        self.ids: list[str] = []
        self._ids_by_query: dict[str, str] = {}
        self._shingles: list[frozenset[str]] = []
        self._rows_by_shingle: dict[str, list[int]] = {}
        for case in cases:
            self.add(case)

    def add(self, case: Trace) -> None:
        """Add the query of a case."""
        runs = make_shingles(case.query)
        self._ids_by_query.setdefault(normalize_answer(case.query) or case.query, case.id)
        for shingle in runs:
            self._rows_by_shingle.setdefault(shingle, []).append(len(self.ids))
        self.ids.append(case.id)
        self._shingles.append(runs)

    def duplicate_id(self, query: str) -> str | None:
        """Return the id of a case with the same or nearly the same query, or None."""
        plain = normalize_answer(query) or query
        if plain in self._ids_by_query:
            return self._ids_by_query[plain]
        runs = make_shingles(query)
        for place in sorted({place for shingle in runs for place in self._rows_by_shingle.get(shingle, ())}):
            other = self._shingles[place]
            if len(runs & other) >= DUPLICATE_SIMILARITY * len(runs | other):
                return self.ids[place]
        return None


def _check_jsonl(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() not in (".jsonl", ".ndjson"):
        raise UsageError(f"an evaluation set is JSON Lines: end {path} in .jsonl.")
    return path


def _read_cases(path: Path) -> list[Trace]:
    """Read the cases of a file; none where it is missing or empty."""
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return []
    if not path.is_file():
        raise InputError(f"{path} is not a file. Name a .jsonl file for the evaluation set.")
    return list(read_traces(path))


def _read_bytes(path: Path) -> bytes:
    """Read a file, its last line terminated; empty where it is missing."""
    content = path.read_bytes() if path.exists() else b""
    return content + b"\n" if content and not content.endswith(b"\n") else content
