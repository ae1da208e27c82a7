"""Conversations: the turns of each, and the first one whose answer is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from ragfault.diagnosis.records import Diagnosis
from ragfault.diagnosis.run_analysis import diagnose_run
from ragfault.io.runs.run import AnyRun, open_run
from ragfault.model.records import Trace

TurnState = Literal["right", "wrong", "cannot tell"]
"""Right or wrong by the answer key of the turn; wrong where the pipeline failed or all is poor; else unknown."""


class TurnOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of one turn of a conversation."""

    trace: str
    turn: int
    """Position in the conversation, from 1."""
    state: TurnState
    problems: tuple[str, ...] = ()
    """Kinds of its problems, in the order of the layers."""


class ConversationOutcome(Struct, frozen=True, kw_only=True):
    """The turns of one conversation."""

    conversation: str
    turns: tuple[TurnOutcome, ...]
    faulty_turn: TurnOutcome | None = None
    """The first turn whose answer is wrong, where none before it is in doubt; None elsewhere."""
    sentence: str
    """At which turn it went wrong, in words."""


def trace_conversations(source: AnyRun) -> tuple[ConversationOutcome, ...]:
    """Trace each conversation of a run to the first turn whose answer is wrong, those that went wrong first.

    Traces without a conversation are left out. Turns stand in the order of `turn`, else of the run.
    """
    run = open_run(source)
    groups: dict[str, list[tuple[Trace, Diagnosis]]] = {}
    for trace, diagnosis in zip(run.traces(), diagnose_run(run), strict=True):
        if trace.conversation is not None:
            groups.setdefault(trace.conversation, []).append((trace, diagnosis))
    outcomes = [_judge_conversation(name, pairs) for name, pairs in groups.items()]
    return tuple(sorted(outcomes, key=lambda outcome: (outcome.faulty_turn is None, outcome.conversation)))


def _judge_conversation(name: str, pairs: Iterable[tuple[Trace, Diagnosis]]) -> ConversationOutcome:
    ordered = sorted(enumerate(pairs), key=lambda item: (item[1][0].turn or item[0] + 1, item[0]))
    turns = tuple(
        TurnOutcome(
            trace=trace.id,
            turn=trace.turn or i,
            state=diagnosis.assessment.outcome if diagnosis.assessment else "cannot tell",
            problems=tuple(dict.fromkeys(problem.kind for problem in diagnosis.problems)),
        )
        for i, (_, (trace, diagnosis)) in enumerate(ordered, 1)
    )
    doubtful = next((turn for turn in turns if turn.state != "right"), None)
    wrong = next((turn for turn in turns if turn.state == "wrong"), None)
    if doubtful is None:
        sentence = f"all {len(turns)} turns are right"
    elif wrong is None:
        sentence = "no turn is shown to be wrong, and not all are shown to be right"
    elif wrong is doubtful:
        sentence = f"first wrong at turn {wrong.turn} of {len(turns)}"
    else:
        sentence = f"wrong at turn {wrong.turn}, and turn {doubtful.turn} before it cannot be told"
    return ConversationOutcome(
        conversation=name, turns=turns, faulty_turn=wrong if wrong is doubtful else None, sentence=sentence
    )
