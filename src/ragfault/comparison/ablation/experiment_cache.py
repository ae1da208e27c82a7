"""Finished work of an experiment, for reuse: verdicts on known inputs, and the folder of finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ragfault.comparison.compare import ANSWER_FREE_VERDICTS
from ragfault.io.atomic_files import convert_write_errors
from ragfault.io.runs.run import MetricInfo, Run
from ragfault.judges.assembly import observe_traces
from ragfault.model.errors import OutputError, RunError
from ragfault.model.protocols import Judge, VerdictKind
from ragfault.model.records import Trace, Verdicts


class CachedJudge:
    """Judge that asks another one once for each query, chunks and answer; lost verdicts are not kept.

    Verdicts on chunks are kept across answers: a noisy judge adds no noise to what a generator cannot change.
    """

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self._by_answer: dict[bytes, Verdicts] = {}
        self._by_chunks: dict[bytes, Verdicts] = {}

    @property
    def offers(self) -> frozenset[VerdictKind]:
        """Return the verdicts that the wrapped judge offers."""
        return self.judge.offers

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the wrapped judge."""
        return self.judge.fingerprint

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """Return the verdicts on each trace, cached or new."""
        cached = [self._by_answer.get(_verdict_key(trace)) for trace in traces]
        new = [trace for trace, cached_verdicts in zip(traces, cached, strict=True) if cached_verdicts is None]
        observed = iter(observe_traces(self.judge, new)) if new else iter(())
        return [
            self._remember(trace, next(observed)) if cached_verdicts is None else cached_verdicts
            for trace, cached_verdicts in zip(traces, cached, strict=True)
        ]

    def add_run(self, run: Run) -> None:
        """Add the verdicts of a run to the cache."""
        for trace, verdicts in zip(run.traces(), run.verdicts(), strict=True):
            self._remember(trace, verdicts)

    def _remember(self, trace: Trace, verdicts: Verdicts) -> Verdicts:
        """Cache verdicts; known verdicts on the same chunks replace theirs."""
        earlier = self._by_chunks.get(_verdict_key(trace, with_answer=False))
        if earlier is not None:
            parts = {kind: getattr(earlier, kind) for kind in ANSWER_FREE_VERDICTS}
            failures = {name: why for name, why in verdicts.failures.items() if parts.get(name) is None}  # type: ignore[call-overload]
            verdicts = replace(verdicts, **{n: v for n, v in parts.items() if v is not None}, failures=failures)
        if not verdicts.failures:
            self._by_chunks.setdefault(_verdict_key(trace, with_answer=False), verdicts)
            self._by_answer.setdefault(_verdict_key(trace), verdicts)
        return verdicts


def _verdict_key(trace: Trace, *, with_answer: bool = True) -> bytes:
    """Hash the input of the verdicts on a trace; without the answer, that of the verdicts on its chunks."""
    chunks = trace.chunks and [(chunk.id, chunk.text, chunk.kind, chunk.document) for chunk in trace.chunks]
    parts: list[object] = [trace.id, trace.query, chunks, trace.reference, trace.facts, trace.gold]
    if with_answer:
        parts += [trace.answer, trace.citations and [msgspec.structs.astuple(item) for item in trace.citations]]
    coded = msgspec.msgpack.encode(parts, order="deterministic")
    return blake2b(coded, digest_size=16).digest()


PLAN_FILE = "ablation.json"


class ExperimentPlan(Struct, frozen=True, kw_only=True):
    """Inputs that must be equal for an experiment to be resumed."""

    ragfault: str
    parts: tuple[str, ...]
    steps: tuple[str, ...]
    """Fingerprints that the parts state, those of the baseline first; other changes of a part go unnoticed."""
    judge: str
    metrics: tuple[MetricInfo, ...]
    # a hash of the queries with their answer keys
    queries: str


class ExperimentFolder:
    """Folder that holds the runs of one experiment and nothing else."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path, plan: ExperimentPlan) -> Self:
        """Begin an experiment, or resume the one with the same plan.

        Raises OutputError where the folder holds something else or cannot be written, RunError where it
        holds another experiment.
        """
        file = path / PLAN_FILE
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            with convert_write_errors(path):
                path.mkdir(parents=True, exist_ok=True)
                file.write_bytes(msgspec.json.format(msgspec.json.encode(plan)) + b"\n")
            return cls(path)
        if not file.is_file():
            raise OutputError(f"{path} exists and holds no experiment. Choose another folder.")
        try:
            stored_plan = msgspec.json.decode(file.read_bytes(), type=ExperimentPlan)
        except (msgspec.MsgspecError, OSError) as error:
            raise RunError(f"{file} cannot be read: {error}. Choose another folder.") from None
        if stored_plan != plan:
            differing = [name for name in plan.__struct_fields__ if getattr(stored_plan, name) != getattr(plan, name)]
            raise RunError(
                f"{path} holds another experiment: {', '.join(differing)} differ. "
                "Choose another folder, or remove that one."
            )
        return cls(path)

    def run_path(self, name: str) -> Path:
        """Return the path of the run of a configuration."""
        return self.path / name

    @property
    def calls_path(self) -> Path:
        """Return the path of the log of part calls."""
        return self.path / "calls.jsonl"

    def open_run(self, name: str) -> Run:
        """Open the run of a configuration."""
        return Run.open(self.run_path(name))

    def finished_run(self, name: str, traces: int) -> Run | None:
        """Return the run of a configuration if it is finished. Raises RunError where another run has its place."""
        if not self.run_path(name).exists():
            return None
        run = self.open_run(name)
        if run.manifest.traces != traces:
            raise RunError(f"{run.path} holds {run.manifest.traces:,} traces, not {traces:,}. Remove it.")
        return run
