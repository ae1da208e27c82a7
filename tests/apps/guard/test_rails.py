"""Rails: one decision, closed failures, time-outs, and fixes that are checked again."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ragfault.apps.guard.rails import MAX_QUICK, Aggregation, Outcome, Rail, RailCheck, Stage, run_stage, run_sync
from ragfault.model.records import Trace

TRACE = Trace(id="1", query="When?", answer="At ten.")


def make_rail(outcome: Outcome, name: str = "rail", **settings: Any) -> Rail:
    """Make a rail that always says the same."""
    return Rail(name=name, check=lambda trace, stage: RailCheck(outcome, "said so"), stages=("output",), **settings)


def raise_error(trace: Trace, stage: Stage) -> RailCheck:
    raise ValueError("broken")


def hang(trace: Trace, stage: Stage) -> RailCheck:
    time.sleep(30)
    return RailCheck("pass")


async def hang_async(trace: Trace, stage: Stage) -> RailCheck:
    await asyncio.sleep(30)
    return RailCheck("pass")


def return_nothing(trace: Trace, stage: Stage) -> Any:
    return None


def fix_nothing(trace: Trace, stage: Stage) -> RailCheck:
    return RailCheck("fix", "no fixed trace")


def invent_outcome(trace: Trace, stage: Stage) -> Any:
    return RailCheck("release")  # type: ignore[arg-type]


def leave(trace: Trace, stage: Stage) -> RailCheck:
    raise SystemExit


async def leave_async(trace: Trace, stage: Stage) -> RailCheck:
    raise SystemExit


def interrupt(trace: Trace, stage: Stage) -> RailCheck:
    raise KeyboardInterrupt


def cancel(trace: Trace, stage: Stage) -> RailCheck:
    raise asyncio.CancelledError


async def cancel_async(trace: Trace, stage: Stage) -> RailCheck:
    raise asyncio.CancelledError


async def hold_loop(trace: Trace, stage: Stage) -> RailCheck:
    time.sleep(0.1)
    return RailCheck("pass")


async def refuse_cancellation(trace: Trace, stage: Stage) -> RailCheck:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(30)
    return RailCheck("pass")


FAULTS = [
    raise_error,
    hang,
    hang_async,
    return_nothing,
    fix_nothing,
    invent_outcome,
    leave,
    leave_async,
    interrupt,
    cancel,
    cancel_async,
    hold_loop,
    refuse_cancellation,
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("rule", ["any", "all", "majority", "weighted"])
def test_a_rail_that_fails_closed_holds_back_whatever_the_others_say(fault: Callable[..., Any], rule: Any) -> None:
    broken = Rail(name="broken", check=fault, stages=("output",), timeout=0.05, weight=0.0)
    others = [make_rail("pass", f"rail{number}") for number in range(3)]
    decision = run_sync(run_stage([*others, broken], TRACE, "output", rule=rule))
    assert decision.outcome == "block"
    assert [result.failed for result in decision.results] == [False, False, False, True]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rail_that_fails_open_passes_and_is_counted(fault: Callable[..., Any]) -> None:
    broken = Rail(name="broken", check=fault, stages=("output",), timeout=0.05, fail="open")
    decision = run_sync(run_stage([broken], TRACE, "output"))
    assert decision.outcome == "pass"
    assert decision.results[0].failed
    assert decision.results[0].reason


@pytest.mark.parametrize("fault", [raise_error, return_nothing, fix_nothing, invent_outcome, leave])
def test_a_quick_rail_that_fails_holds_back(fault: Callable[..., Any]) -> None:
    broken = Rail(name="broken", check=fault, stages=("output",), quick=True)
    decision = run_sync(run_stage([make_rail("pass", quick=True), broken], TRACE, "output"))
    assert decision.outcome == "block"
    assert [result.failed for result in decision.results] == [False, True]


def test_a_quick_rail_that_takes_longer_than_its_time_has_failed() -> None:
    def dawdle(trace: Trace, stage: Stage) -> RailCheck:
        time.sleep(0.05)
        return RailCheck("pass")

    decision = run_sync(
        run_stage([Rail(name="slow", check=dawdle, stages=("output",), timeout=0.01, quick=True)], TRACE, "output")
    )
    assert decision.outcome == "block"
    assert "no answer in time" in decision.reason


@pytest.mark.parametrize(("words", "is_inline"), [(10, True), (MAX_QUICK, False)])
def test_a_quick_rail_runs_in_the_event_loop_unless_the_texts_are_long(words: int, is_inline: bool) -> None:
    threads = []

    def check(trace: Trace, stage: Stage) -> RailCheck:
        threads.append(threading.get_ident())
        return RailCheck("pass")

    trace = Trace(id="1", query="When?", answer="ten " * words)
    run_sync(run_stage([Rail(name="quick", check=check, stages=("output",), quick=True)], trace, "output"))
    assert (threads == [threading.get_ident()]) is is_inline


def test_a_rail_that_has_not_answered_by_the_deadline_has_failed() -> None:
    begun = time.perf_counter()
    slow = Rail(name="slow", check=hang_async, stages=("output",), timeout=60)
    decision = run_sync(run_stage([slow], TRACE, "output", deadline=begun + 0.1))
    assert decision.outcome == "block"
    assert "no answer in time" in decision.reason
    assert run_sync(run_stage([make_rail("pass")], TRACE, "output", deadline=begun)).outcome == "block"


@pytest.mark.parametrize(
    ("rule", "blocking", "blocked"),
    [("any", 1, True), ("all", 2, False), ("all", 3, True), ("majority", 1, False), ("majority", 2, True)],
)
def test_votes_are_counted_by_the_rule(rule: Aggregation, blocking: int, blocked: bool) -> None:
    rails = [make_rail("block" if number < blocking else "pass", f"rail{number}") for number in range(3)]
    assert (run_sync(run_stage(rails, TRACE, "output", rule=rule)).outcome == "block") is blocked


def test_weights_decide_the_weighted_rule() -> None:
    rails = [make_rail("block", "heavy", weight=3.0), make_rail("pass", "a"), make_rail("pass", "b")]
    assert run_sync(run_stage(rails, TRACE, "output", rule="weighted", share=0.6)).outcome == "block"
    assert run_sync(run_stage(rails, TRACE, "output", rule="weighted", share=0.61)).outcome == "pass"


def make_cutter(word: str) -> Rail:
    """Make a rail that removes a word from the answer."""

    def check(trace: Trace, stage: Stage) -> RailCheck:
        answer = trace.answer or ""
        if word not in answer:
            return RailCheck("pass")
        return RailCheck("fix", word, Trace(id="1", query=trace.query, answer=answer.replace(word, "")))

    return Rail(name=f"cut {word}", check=check, stages=("output",))


def test_fixes_of_several_rails_all_apply() -> None:
    decision = run_sync(run_stage([make_cutter("A"), make_cutter("t")], TRACE, "output"))
    assert (decision.outcome, decision.trace.answer) == ("fix", " en.")


def test_a_fix_that_leaves_what_another_rail_holds_back_is_blocked() -> None:
    def forbid(trace: Trace, stage: Stage) -> RailCheck:
        return RailCheck("block" if trace.answer == "ten." else "pass", "short")

    rails = [make_cutter("At "), Rail(name="forbid", check=forbid, stages=("output",))]
    assert run_sync(run_stage(rails, TRACE, "output")).outcome == "block"


def test_a_rail_that_is_never_satisfied_by_its_own_fix_blocks() -> None:
    endless = Rail(name="endless", check=lambda trace, stage: RailCheck("fix", "again", TRACE), stages=("output",))
    decision = run_sync(run_stage([endless], TRACE, "output"))
    assert decision.outcome == "block"
    assert "not fixed" in decision.reason


def test_a_rail_that_fails_open_on_the_fixed_answer_is_counted() -> None:
    def check(trace: Trace, stage: Stage) -> RailCheck:
        if trace.answer != TRACE.answer:
            raise ValueError("broken")
        return RailCheck("pass")

    rails = [make_cutter("At "), Rail(name="broken", check=check, stages=("output",), fail="open")]
    decision = run_sync(run_stage(rails, TRACE, "output"))
    assert decision.outcome == "fix"
    assert sum(result.failed for result in decision.results) == 1


def test_a_cancelled_request_is_cancelled_and_no_failure_of_a_rail() -> None:
    async def cancel_request() -> None:
        slow = Rail(name="slow", check=hang_async, stages=("output",), timeout=60)
        request = asyncio.ensure_future(run_stage([slow], TRACE, "output"))
        await asyncio.sleep(0.01)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    asyncio.run(cancel_request())


def test_what_passes_needs_no_reason() -> None:
    assert (
        run_sync(
            run_stage([Rail(name="a", check=lambda *_: RailCheck("pass"), stages=("output",))], TRACE, "output")
        ).reason
        == ""
    )


def test_plain_code_decides_the_same_within_a_running_loop() -> None:
    async def decide_inside() -> Outcome:
        return run_sync(run_stage([make_rail("flag")], TRACE, "output")).outcome

    assert asyncio.run(decide_inside()) == run_sync(run_stage([make_rail("flag")], TRACE, "output")).outcome == "flag"
