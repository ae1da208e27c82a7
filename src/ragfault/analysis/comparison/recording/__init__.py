"""Differences of the record: answers, chunks and citations that one run records otherwise than they were.

Such pairs are mismatches like those of `comparability`: what rests on the field is left out there.
"""

from __future__ import annotations

from ragfault.analysis.comparison.comparability import LocatedMismatch
from ragfault.analysis.comparison.pairing import RunContents, TracePairing
from ragfault.analysis.comparison.recording.answers import find_answer_mismatches, read_answer_pairs
from ragfault.analysis.comparison.recording.chunks import find_chunk_mismatches
from ragfault.io.runs import Run


def find_recording_mismatches(
    runs: tuple[Run, Run], contents: tuple[RunContents, RunContents], pairing: TracePairing
) -> tuple[LocatedMismatch, ...]:
    """Find the pairs on which the record of one side differs, and not what happened."""
    pairs = read_answer_pairs(runs, contents, pairing)
    return (*find_answer_mismatches(runs, pairs, len(pairing)), *find_chunk_mismatches(runs, contents, pairing, pairs))
