"""Writing a run: in parts, so that a killed evaluation goes on where it stopped."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ragfault.errors import RunError
from ragfault.records import Score, Trace, Usage, Verdicts
from ragfault.runs.places import check_free, clear, partial_path, resolved, settle, writing
from ragfault.runs.run import Manifest, Measure, Run

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Partial", "Plan"]

GROUP = {"traces": 2048, "verdicts": 2048, "scores": 65536}
"""Rows of a row group; the files come out the same whatever the parts were."""


class Plan(Struct, frozen=True, kw_only=True):
    """What must be equal for a killed evaluation to be taken up again."""

    ragfault: str
    judge: str
    metrics: tuple[Measure, ...]
    fingerprint: str
    traces: int
    source: tuple[str, ...] = ()
    skipped: int = 0
    batch: int = 64
    """Traces to a part; a resumed evaluation keeps the size it began with."""

    def continues(self, begun: Plan) -> bool:
        """Whether this is the plan of a run that was begun; how the input was named does not matter."""
        same = msgspec.structs.replace(begun, batch=self.batch, source=self.source, skipped=self.skipped)
        return same == self


class Partial:
    """A run in the making: `RUN.partial/` beside the place where it will stand."""

    def __init__(self, out: Path, plan: Plan, *, resumed: bool = False) -> None:
        self.out, self.plan = out, plan
        self.path = partial_path(out)
        self.resumed = resumed
        """Whether it was begun by an earlier command."""

    @classmethod
    def begin(cls, out: str | Path, plan: Plan, *, force: bool = False) -> Partial:
        """Begin a run, or take up the one that was begun here with the same plan.

        Raises OutputError where the place is taken or cannot be written, and RunError where a run with
        another plan was begun here and some of it is done (`force` drops it).
        """
        out = resolved(out)
        check_free(out, force=force)
        partial = cls(out, plan)
        begun = partial._begun()
        if begun is not None and not plan.continues(begun):
            if not force and partial.done():
                raise RunError(_other(partial.path, begun, plan))
            shutil.rmtree(partial.path / "parts", ignore_errors=True)
            begun = None
        if begun is not None:
            return cls(out, begun, resumed=True)
        with writing(partial.path):
            (partial.path / "parts").mkdir(parents=True, exist_ok=True)
            _replace(partial.path / "plan.json", msgspec.json.format(msgspec.json.encode(plan)))
        return partial

    def _begun(self) -> Plan | None:
        """The plan of the run begun here, if there is one."""
        try:
            return msgspec.json.decode((self.path / "plan.json").read_bytes(), type=Plan)
        except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
            return None

    def done(self) -> frozenset[int]:
        """The numbers of the parts that are whole."""
        return frozenset(int(place.name) for place in (self.path / "parts").iterdir() if place.name.isdigit())

    def write(
        self, number: int, traces: Sequence[Trace], verdicts: Sequence[Verdicts], scores: Sequence[Score]
    ) -> None:
        """Write one part; it is there whole or not at all."""
        import pyarrow.parquet as pq

        from ragfault.runs.tables import SCORE_SCHEMA, VERDICTS_SCHEMA, to_table
        from ragfault.sources.arrow import to_table as trace_table

        place = self.path / "parts" / f"{number:07d}"
        draft = place.with_suffix(".draft")
        tables = {
            "traces": trace_table(traces),
            "verdicts": to_table(verdicts, VERDICTS_SCHEMA),
            "scores": to_table(scores, SCORE_SCHEMA),
        }
        with writing(self.path):
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            for name, table in tables.items():
                pq.write_table(table, draft / f"{name}.parquet", compression="lz4")
            draft.rename(place)

    def finish(self, *, force: bool = False, usage: Usage | None = None) -> Run:
        """Put the parts together, write the manifest, and move the run to its place.

        `usage` is what the calls of a judge came to that is paid for.
        """
        count = -(-self.plan.traces // self.plan.batch)
        missing = sorted(set(range(count)) - self.done())
        if missing:
            raise RunError(f"{self.path} lacks {len(missing)} of {count} parts. Run the same command again.")
        draft = self.path / "run"
        with writing(self.path):
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            parts = [self.path / "parts" / f"{number:07d}" for number in range(count)]
            states = {
                name: merge([part / f"{name}.parquet" for part in parts], draft / f"{name}.parquet", name)
                for name in ("traces", "verdicts", "scores")
            }["scores"]
            write_manifest(draft, manifest(self.plan, states, usage))
            settle(draft, self.out, force=force)
        clear(self.path)
        return Run.open(self.out)


def manifest(plan: Plan, states: dict[str, int], usage: Usage | None = None) -> Manifest:
    """The manifest of a finished run."""
    return Manifest(
        ragfault=plan.ragfault,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        judge=plan.judge,
        metrics=plan.metrics,
        source=plan.source,
        fingerprint=plan.fingerprint,
        traces=plan.traces,
        scored=states.get("scored", 0),
        undefined=states.get("undefined", 0),
        failed=states.get("failed", 0),
        skipped=plan.skipped,
        usage=usage,
    )


def write_manifest(folder: Path, made: Manifest) -> None:
    """Write a run's manifest into its folder."""
    (folder / "manifest.json").write_bytes(msgspec.json.format(msgspec.json.encode(made)) + b"\n")


def merge(files: Sequence[Path], target: Path, name: str) -> dict[str, int]:
    """Write the rows of many Parquet files into one; return how many scores are in each state."""
    import pyarrow.parquet as pq

    return write_groups((pq.read_table(file, partitioning=None) for file in files), target, GROUP[name])


def write_groups(tables: Iterable[pa.Table], target: Path, rows: int) -> dict[str, int]:
    """Write tables into one Parquet file, with row groups of a fixed size; count the states of scores."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    states: Counter[str] = Counter()
    held: pa.Table | None = None
    writer: pq.ParquetWriter | None = None
    try:
        for table in tables:
            if "status" in table.column_names:
                states.update(
                    {row["values"]: row["counts"] for row in table["status"].value_counts().to_pylist()}
                )
            writer = writer or pq.ParquetWriter(target, table.schema, compression="zstd")
            held = table if held is None else pa.concat_tables([held, table])
            while held.num_rows >= rows:
                writer.write_table(held.slice(0, rows).combine_chunks(), row_group_size=rows)
                held = held.slice(rows)
        if writer is not None and held is not None and held.num_rows:
            writer.write_table(held.combine_chunks(), row_group_size=rows)
    finally:
        if writer is not None:
            writer.close()
    return dict(states)


def _replace(target: Path, content: bytes) -> None:
    """Write a small file whole or not at all."""
    draft = target.with_name(target.name + ".draft")
    draft.write_bytes(content)
    os.replace(draft, target)


def _other(place: Path, begun: Plan, asked: Plan) -> str:
    """What to say where a run with another plan was begun."""
    words = {"traces": "traces", "fingerprint": "their fingerprint"}
    differing = [
        f"{words.get(name, name)} was {_short(getattr(begun, name))}, now {_short(getattr(asked, name))}"
        for name in ("judge", "metrics", "ragfault", "traces", "fingerprint")
        if getattr(begun, name) != getattr(asked, name)
    ]
    return (
        f"{place} holds an unfinished run of another making ({'; '.join(differing[:2])}). "
        "Drop it with --force, or choose another place with -o."
    )


def _short(value: object) -> str:
    text = ", ".join(measure.name for measure in value) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
