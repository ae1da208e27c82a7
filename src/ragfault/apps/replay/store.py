"""Results of replays, kept in the folder of their run."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ragfault.apps.replay.cause_replay import count_proofs
from ragfault.apps.replay.records import ChangeReplay, FixReplay, ReplayReport
from ragfault.io.atomic_files import write_atomically
from ragfault.io.runs.run import APP_RESULTS, Run

Result = TypeVar("Result", ReplayReport, FixReplay, ChangeReplay)

FILES: dict[type, str] = {ReplayReport: "replay", FixReplay: "replay-fix", ChangeReplay: "replay-change"}
"""Kind of result → the name of its file."""
UNFINISHED = ".unfinished"
"""Suffix of a file that is there while a replay is at work: what a killed one spent counts for the next."""


def load_result(run: Run, kind: type[Result]) -> Result | None:
    """Load a result of replays of a run; None where there is none, or the file is not one of this version."""
    try:
        return msgspec.json.decode(_get_path(run, kind, ".json").read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None


def store_result(run: Run, result: Result) -> Result:
    """Store a result of replays with its run, in place of an earlier one of its kind."""
    path = _get_path(run, type(result), ".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.encode(result))
    return result


def merge_causes(run: Run, report: ReplayReport) -> ReplayReport:
    """Return the replays of some causes of a run with the stored ones of other causes by the same model.

    A trace that got no answer this time, as from an endpoint that is down, keeps its stored replay.
    """
    known = load_result(run, ReplayReport)
    if known is None or (known.model, known.judge) != (report.model, report.judge):
        return report
    causes = {count.cause for count in report.counts}
    stored = {(proof.trace, proof.cause): proof for proof in known.proofs}
    own = [
        proof
        if any(item.answer is not None for item in proof.answers)
        else stored.get((proof.trace, proof.cause), proof)
        for proof in report.proofs
    ]
    proofs = (*own, *(proof for proof in known.proofs if proof.cause not in causes))
    answers = {count.cause: count.answers for count in (*known.counts, *report.counts)}
    return replace(report, proofs=proofs, counts=tuple(count_proofs(proofs, answers)))


def mark_unfinished(run: Run, kind: type) -> bool:
    """Mark a replay as begun; return whether the one before it never ended."""
    path = _get_path(run, kind, UNFINISHED)
    path.parent.mkdir(parents=True, exist_ok=True)
    was_there = path.exists()
    path.touch()
    return was_there


def mark_finished(run: Run, kind: type) -> None:
    """Mark a replay as ended."""
    _get_path(run, kind, UNFINISHED).unlink(missing_ok=True)


def _get_path(run: Run, kind: type, suffix: str) -> Path:
    return run.path / APP_RESULTS / f"{FILES[kind]}{suffix}"
