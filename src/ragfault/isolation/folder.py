"""The folder of an experiment: one run for each configuration, and the plan that they were made by."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct

from ragfault.errors import OutputError, RunError
from ragfault.runs import Measure, Run
from ragfault.runs.places import writing

__all__ = ["Folder", "Plan"]

PLAN = "isolation.json"


class Plan(Struct, frozen=True, kw_only=True):
    """What must be equal for an experiment to be taken up again."""

    ragfault: str
    parts: tuple[str, ...]
    steps: tuple[str, ...]
    """What the parts call themselves, those of the baseline first; a change within a part is not seen."""
    judge: str
    metrics: tuple[Measure, ...]
    queries: str
    """A hash of the queries with their answer keys."""


class Folder:
    """A folder that holds the runs of one experiment and nothing else."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def begin(cls, path: Path, plan: Plan) -> Self:
        """Begin an experiment, or take up the one that was begun here with the same plan.

        Raises OutputError where the folder holds something else or cannot be written, RunError where it
        holds another experiment.
        """
        file = path / PLAN
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            with writing(path):
                path.mkdir(parents=True, exist_ok=True)
                file.write_bytes(msgspec.json.format(msgspec.json.encode(plan)) + b"\n")
            return cls(path)
        if not file.is_file():
            raise OutputError(f"{path} exists and holds no experiment. Choose another folder.")
        try:
            begun = msgspec.json.decode(file.read_bytes(), type=Plan)
        except (msgspec.MsgspecError, OSError) as error:
            raise RunError(f"{file} cannot be read: {error}. Choose another folder.") from None
        if begun != plan:
            differing = [
                name for name in plan.__struct_fields__ if getattr(begun, name) != getattr(plan, name)
            ]
            raise RunError(
                f"{path} holds another experiment: {', '.join(differing)} differ. "
                "Choose another folder, or remove that one."
            )
        return cls(path)

    def place(self, name: str) -> Path:
        """Where the run of a configuration stands."""
        return self.path / name

    @property
    def store(self) -> Path:
        """Where every call of a part is written down."""
        return self.path / "calls.jsonl"

    def run(self, name: str) -> Run:
        """The run of a configuration."""
        return Run.open(self.place(name))

    def finished(self, name: str, traces: int) -> Run | None:
        """The run of a configuration if it is finished; RunError where another stands in its place."""
        if not self.place(name).exists():
            return None
        run = self.run(name)
        if run.manifest.traces != traces:
            raise RunError(f"{run.path} holds {run.manifest.traces:,} traces, not {traces:,}. Remove it.")
        return run
