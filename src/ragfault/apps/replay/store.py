"""Results of replays, kept in the folder of their run."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from ragfault.apps.replay.cause_replay import count_proofs
from ragfault.apps.replay.records import ReplayReport
from ragfault.io.atomic_files import write_atomically
from ragfault.io.runs.run import APP_RESULTS, Run

RESULT_FILE = "replay.json"
UNFINISHED_FILE = "replay.unfinished"
"""File that is there while a replay is at work: what a killed one spent counts for the next."""


def load_replay(run: Run) -> ReplayReport | None:
    """Load the replays of a run; None where there are none, or the file is not one of this version."""
    path = _get_folder(run) / RESULT_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=ReplayReport)
    except (OSError, msgspec.MsgspecError):
        return None


def store_replay(run: Run, report: ReplayReport) -> ReplayReport:
    """Store the replays of some causes of a run, and return them with those of other causes by the same model."""
    known = load_replay(run)
    merged = report
    if known is not None and (known.model, known.judge) == (report.model, report.judge):
        causes = {count.cause for count in report.counts}
        proofs = (*report.proofs, *(proof for proof in known.proofs if proof.cause not in causes))
        answers = {count.cause: count.answers for count in (*known.counts, *report.counts)}
        merged = replace(report, proofs=proofs, counts=tuple(count_proofs(proofs, answers)))
    folder = _get_folder(run)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / RESULT_FILE, msgspec.json.encode(merged))
    return merged


def mark_unfinished(run: Run) -> bool:
    """Mark a replay as begun; return whether the one before it never ended."""
    path = _get_folder(run) / UNFINISHED_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    was_there = path.exists()
    path.touch()
    return was_there


def mark_finished(run: Run) -> None:
    """Mark a replay as ended."""
    (_get_folder(run) / UNFINISHED_FILE).unlink(missing_ok=True)


def _get_folder(run: Run) -> Path:
    return run.path / APP_RESULTS
