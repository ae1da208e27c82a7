"""Earlier turns of a conversation that one run records clipped or under other roles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragfault.comparison.comparability import LocatedMismatch
from ragfault.comparison.pairing import RunContents, TracePairing, normalize_space
from ragfault.comparison.recording.answer_pairs import is_beginning, mark_places
from ragfault.io.runs.run import Run
from ragfault.model.records import ConversationTurn

LEAST_PAIRS, USUAL_SHARE = 5, 0.5
"""Pairs, and share of those with another history, that make a habit of a logger."""
SPEAKERS = ("user", "assistant")


def find_history_mismatches(
    runs: tuple[Run, Run], contents: tuple[RunContents, RunContents], pairing: TracePairing
) -> list[LocatedMismatch]:
    """Find the pairs whose history is the same under other roles, or a part of the other side's."""
    codes = [side.histories[rows] for side, rows in zip(contents, (pairing.baseline, pairing.candidate), strict=True)]
    places = np.flatnonzero((codes[0] != codes[1]) & (codes[0] != 0) & (codes[1] != 0))
    sides = []
    for run, rows in zip(runs, (pairing.baseline[places], pairing.candidate[places]), strict=True):
        recorded = set(rows.tolist())
        traces = enumerate(run.traces(fields=["history"])) if recorded else ()
        texts = {row: trace.history or () for row, trace in traces if row in recorded}
        sides.append([texts[row] for row in rows.tolist()])
    part = "the history of the {} is a part of the {}'s, clipped in the record or before it,"
    groups: dict[str, list[int]] = {
        "the history is recorded under other roles, or with other messages than those of user and assistant,": [],
        part.format("candidate", "baseline"): [],
        part.format("baseline", "candidate"): [],
    }
    roles, shorter, longer = groups
    for place, old, new in zip(places.tolist(), *sides, strict=True):
        if list_messages(old) == list_messages(new) or list_messages(old, SPEAKERS) == list_messages(new, SPEAKERS):
            groups[roles].append(place)
        elif _is_part(new, old):
            groups[shorter].append(place)
        elif _is_part(old, new):
            groups[longer].append(place)
    least = max(LEAST_PAIRS, USUAL_SHARE * len(places))
    return [
        LocatedMismatch(
            kind="texts",
            text=f"{text} on {{share}} of pairs",
            pairs=(mask := mark_places(pairs, len(pairing))),
            left_out={"history": mask},
            blocks=False,
        )
        for text, pairs in groups.items()
        if len(pairs) >= least
    ]


def list_messages(history: Sequence[ConversationTurn], roles: Sequence[str] = ()) -> list[str]:
    """List the texts of earlier turns, of some roles or of all."""
    return [normalize_space(turn.text) for turn in history if not roles or turn.role in roles]


def _is_part(part: Sequence[ConversationTurn], full: Sequence[ConversationTurn]) -> bool:
    """Return whether a history holds the first or last turns of another, in full or their beginnings."""
    texts, others = list_messages(part), list_messages(full)
    return len(texts) <= len(others) and any(
        all(text == other or is_beginning(text, other) for text, other in zip(texts, ends, strict=True))
        for ends in (others[: len(texts)], others[len(others) - len(texts) :])
    )
