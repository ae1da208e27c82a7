"""Differences of the record: answers, chunks and citations that one run records otherwise than they were.

Such pairs are mismatches like those of `comparability`: what rests on the field is left out there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from ragfault.comparison.comparability import CITED_CLAIMS, LocatedMismatch
from ragfault.comparison.pairing import ChunkPair, RunContents, TracePairing
from ragfault.comparison.recording.answer_pairs import LEAST_PAIRS, AnswerPair
from ragfault.comparison.recording.answers import find_cut_answers, find_other_form
from ragfault.comparison.recording.chunks import find_chunk_mismatches, read_records
from ragfault.comparison.recording.notices import find_added_notices
from ragfault.io.runs.run import Run


def find_recording_mismatches(
    runs: tuple[Run, Run],
    contents: tuple[RunContents, RunContents],
    pairing: TracePairing,
    chunks: ChunkPair,
    pairs: Sequence[AnswerPair],
) -> tuple[LocatedMismatch, ...]:
    """Find the pairs on which the record of one side differs, and not what happened.

    Pairs of fewer queries than `LEAST_PAIRS`, each asked many times, show no habit of a logger either.
    """
    size = len(pairing)
    mismatches = [*find_cut_answers(pairs, size), *(find_other_form(pairs, size) or find_added_notices(pairs, size))]
    recorded = contents[0].has_claims[pairing.baseline] & contents[1].has_claims[pairing.candidate]
    in_answers = [
        replace(mismatch, left_out={**mismatch.left_out, CITED_CLAIMS: mismatch.left_out["answer"] & ~recorded})
        if "answer" in mismatch.left_out
        else mismatch
        for mismatch in mismatches
    ]
    in_chunks = find_chunk_mismatches(runs, contents, pairing, pairs, read_records(runs, pairing, chunks))
    listed = (*in_answers, *in_chunks)
    queries = contents[0].queries[pairing.baseline]
    least = min(LEAST_PAIRS, len(np.unique(queries)))
    return tuple(
        mismatch
        for mismatch in listed
        if mismatch.pairs.sum() < LEAST_PAIRS or len(np.unique(queries[mismatch.pairs])) >= least
    )
