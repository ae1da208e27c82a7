"""Turns that were asked after other answers than in the baseline, and histories that are recorded otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.faults.changes import add_earlier_turns, retrieve_misled, retrieve_other
from benchmarks.faults.situations import load_demo_traces
from ragfault.comparison.bisection import bisect
from ragfault.comparison.records import Bisection
from ragfault.evaluation.evaluator import evaluate
from ragfault.model.records import ConversationTurn, Trace
from remembered import LEXICAL

TRACES = [replace(trace, conversation=None, turn=None) for trace in load_demo_traces()]
TALKS = [add_earlier_turns(trace) for trace in TRACES]
MISLED = [retrieve_misled(trace) if at % 2 else trace for at, trace in enumerate(TALKS)]


def judge(baseline: list[Trace], candidate: list[Trace], place: Path) -> Bisection:
    runs = [evaluate(side, place / name, judge=LEXICAL) for name, side in (("old", baseline), ("new", candidate))]
    return bisect(*runs, margin=0.05)


def visit_fair(trace: Trace) -> Trace:
    """Return a trace whose search, and so its answer, is of no use."""
    other = retrieve_other(trace)
    return replace(other, answer=other.chunks[len(trace.query) % 3].text)


def talk(*, spoil: bool) -> list[Trace]:
    """Return conversations of two turns, without history; in a third of them the first answer and the second list."""
    turns = []
    for at in range(0, len(TRACES) - 1, 2):
        first, second = (replace(TRACES[at + k], conversation=f"talk {at}", turn=k + 1) for k in (0, 1))
        if spoil and at % 3 == 0:
            first = replace(first, answer="The fee for 2031 is decided by the mayor of Tollund.")
            second = visit_fair(second)
        turns += [first, second]
    return turns


def clip(trace: Trace) -> Trace:
    return replace(trace, history=tuple(replace(turn, text=turn.text[:30]) for turn in trace.history))


def rename_roles(trace: Trace) -> Trace:
    rules = ConversationTurn(role="system", text="Answer from the handbook.")
    return replace(trace, history=(rules, *trace.history))


def test_a_drop_of_retrieval_only_after_other_answers_is_no_fault_that_is_shown(tmp_path: Path):
    result = judge(TALKS, MISLED, tmp_path)
    assert (result.verdict, result.faults) == ("cannot tell", ())
    assert "Look at the first turn that differs" in result.sentence
    assert next(row for row in result.tree if row.branch == "1 retrieval").outcome == "cannot tell"


def test_the_layer_that_wrote_the_answers_before_is_named(tmp_path: Path):
    """Without a recorded history the answers of the conversation before tell."""
    result = judge(talk(spoil=False), talk(spoil=True), tmp_path)
    assert [fault.layer for fault in result.faults] == ["generation"]
    assert "Look at the first turn that differs" in result.sentence


def test_a_drop_of_retrieval_on_first_turns_as_well_is_a_fault_of_retrieval(tmp_path: Path):
    new = [visit_fair(trace) if at % 4 < 2 else trace for at, trace in enumerate(talk(spoil=False))]
    result = judge(talk(spoil=False), new, tmp_path)
    assert result.faults[0].layer == "retrieval"
    assert "first turn" not in result.sentence


def test_a_drop_of_retrieval_after_the_same_history_is_a_fault_of_retrieval(tmp_path: Path):
    new = [retrieve_other(trace) if at % 2 else trace for at, trace in enumerate(TALKS)]
    assert judge(TALKS, new, tmp_path).faults[0].layer == "retrieval"


def test_a_history_that_one_side_lacks_is_a_mismatch_and_no_fault(tmp_path: Path):
    result = judge(TALKS, [replace(trace, history=None) for trace in TALKS], tmp_path)
    assert (result.verdict, result.faults) == ("no fault", ())
    assert [mismatch.left_out for mismatch in result.comparison.mismatches] == [()]


@pytest.mark.parametrize("change", [clip, rename_roles], ids=["clipped", "roles"])
def test_a_history_that_is_recorded_otherwise_is_no_fault(change: Callable[[Trace], Trace], tmp_path: Path):
    result = judge(TALKS, [change(trace) for trace in TALKS], tmp_path)
    assert (result.verdict, result.faults) == ("no fault", ())
