"""Rails: checks of a trace at the input, after retrieval and at the output, with time-outs and one decision.

A rail that raises, returns no result, or exceeds its time-out has failed. It fails closed, which holds the answer back
whatever the other rails say, or open, which counts it as passed; either way the decision counts it.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ragfault.model.records import Trace

Stage = Literal["input", "retrieval", "output"]
Outcome = Literal["pass", "flag", "fix", "block"]
Aggregation = Literal["any", "all", "majority", "weighted"]
T = TypeVar("T")


class RailResult(Struct, frozen=True, kw_only=True):
    """Result of one rail at one stage."""

    rail: str
    stage: Stage
    outcome: Outcome
    reason: str = ""
    latency: float = 0.0
    """Milliseconds."""
    failed: bool = False
    """The rail raised, gave no result or took too long; `outcome` is what its policy makes of that."""
    inputs: Mapping[str, float] | None = None
    """Inputs that a certificate watches, the judge's risk among them, where the rail asked a judge."""
    weight: float = 1.0


class RailCheck(Struct, frozen=True):
    """Answer of a rail's function: outcome, reason, and the fixed trace where the outcome is "fix"."""

    outcome: Outcome
    reason: str = ""
    fixed: Trace | None = None
    inputs: Mapping[str, float] | None = None


class Rail(Struct, frozen=True, kw_only=True):
    """A named check of traces at some stages; its function is plain or `async`, and changes nothing."""

    name: str
    check: Callable[[Trace, Stage], RailCheck | Awaitable[RailCheck]]
    stages: tuple[Stage, ...]
    timeout: float = 1.0
    """Seconds."""
    fail: Literal["closed", "open"] = "closed"
    weight: float = 1.0
    quick: bool = False
    """The function is plain and does not wait: on texts of a usual length it runs in the event loop, without a thread;
    there its time is checked when it returns."""


MAX_QUICK = 20_000
"""Characters of a trace up to which a quick rail runs in the event loop."""


class StageDecision(Struct, frozen=True, kw_only=True):
    """Decision of all rails of one stage."""

    outcome: Outcome
    trace: Trace
    """The trace, as fixed."""
    results: tuple[RailResult, ...] = ()
    reason: str = ""


def aggregate(results: Sequence[RailResult], rule: Aggregation, share: float = 0.5) -> bool:
    """Return whether the rails block together; "weighted": if at least this share of the weight does.

    A rail that failed closed blocks alone, whatever the rule.

    >>> votes = [RailResult(rail=name, stage="input", outcome=outcome) for name, outcome in
    ...          (("a", "block"), ("b", "pass"), ("c", "pass"))]
    >>> [aggregate(votes, rule) for rule in ("any", "all", "majority", "weighted")]
    [True, False, False, False]
    """
    if any(result.failed and result.outcome == "block" for result in results):
        return True
    blocks = [result for result in results if result.outcome == "block"]
    if not blocks or rule == "any":
        return bool(blocks)
    if rule == "all":
        return len(blocks) == len(results)
    if rule == "majority":
        return 2 * len(blocks) > len(results)
    return sum(result.weight for result in blocks) >= share * sum(result.weight for result in results)


async def run_stage(
    rails: Sequence[Rail],
    trace: Trace,
    stage: Stage,
    *,
    rule: Aggregation = "any",
    share: float = 0.5,
    deadline: float | None = None,
) -> StageDecision:
    """Run the rails of a stage together; fixes are applied one after the other, and the fixed trace is checked again.

    `deadline` is a moment of `time.perf_counter`; a rail that has not answered by then has failed. What a rail would
    still fix or block after the fixes is blocked.
    """
    rails = [rail for rail in rails if stage in rail.stages]
    checked = await _check_all(rails, trace, stage, deadline)
    results = [result for result, _ in checked]
    if aggregate(results, rule, share):
        return StageDecision(outcome="block", trace=trace, results=tuple(results), reason=_explain(results, "block"))
    fixers = [rail for rail, (result, _) in zip(rails, checked, strict=True) if result.outcome == "fix"]
    if not fixers:
        outcome: Outcome = "flag" if any(result.outcome == "flag" for result in results) else "pass"
        return StageDecision(outcome=outcome, trace=trace, results=tuple(results), reason=_explain(results, outcome))
    fixed = next(fixed for result, fixed in checked if result.outcome == "fix" and fixed is not None)
    for rail in fixers[1:]:
        result, again = await _check(rail, fixed, stage, deadline)
        if result.outcome == "fix" and again is not None:
            fixed = again
    verified = [result for result, _ in await _check_all(rails, fixed, stage, deadline)]
    remaining = [result for result in verified if result.outcome == "fix"]
    if remaining or aggregate(verified, rule, share):
        reason = _explain(verified, "block") or f"not fixed: {_explain(remaining, 'fix')}"
        return StageDecision(outcome="block", trace=trace, results=(*results, *verified), reason=reason)
    return StageDecision(outcome="fix", trace=fixed, results=(*results, *verified), reason=_explain(results, "fix"))


def _explain(results: Sequence[RailResult], outcome: Outcome) -> str:
    """Join the reasons of an outcome; of "pass" those of rails that failed open."""
    explained = [result for result in results if result.outcome == outcome and (result.reason or outcome != "pass")]
    return "; ".join(f"{result.rail}: {result.reason}" for result in explained)


async def _check_all(
    rails: Sequence[Rail], trace: Trace, stage: Stage, deadline: float | None
) -> list[tuple[RailResult, Trace | None]]:
    if all(rail.quick for rail in rails):
        return [await _check(rail, trace, stage, deadline) for rail in rails]
    return list(await asyncio.gather(*(_check(rail, trace, stage, deadline) for rail in rails)))


async def _check(rail: Rail, trace: Trace, stage: Stage, deadline: float | None) -> tuple[RailResult, Trace | None]:
    """Run one rail within its time; a failure becomes the result that its policy names."""
    start = time.perf_counter()
    time_left = rail.timeout if deadline is None else min(rail.timeout, deadline - start)
    result = RailResult(rail=rail.name, stage=stage, outcome="pass", weight=rail.weight)
    try:
        if time_left <= 0:
            raise TimeoutError
        if rail.quick and _count_characters(trace) <= MAX_QUICK:
            check = rail.check(trace, stage)
        else:
            check = await asyncio.wait_for(_call(rail, trace, stage), time_left)
        if time.perf_counter() - start > time_left:
            # it did not wait, or is `async` and would not be cancelled
            raise TimeoutError
        if not isinstance(check, RailCheck) or (check.outcome == "fix") != (check.fixed is not None):
            raise TypeError(f"the rail returned {type(check).__name__}, not a check with its fixed trace")
        if check.outcome not in ("pass", "flag", "fix", "block"):
            raise ValueError(f"the rail returned the outcome {check.outcome!r}")
        result = replace(result, outcome=check.outcome, reason=check.reason, inputs=check.inputs)
        fixed = check.fixed
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a failing rail never fails the request
        reason = "no answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
        outcome: Outcome = "block" if rail.fail == "closed" else "pass"
        result, fixed = replace(result, outcome=outcome, reason=reason, failed=True), None
    return replace(result, latency=1000 * (time.perf_counter() - start)), fixed


def _count_characters(trace: Trace) -> int:
    return len(trace.query) + len(trace.answer or "") + sum(len(chunk.text) for chunk in trace.chunks or ())


async def _call(rail: Rail, trace: Trace, stage: Stage) -> Any:
    """Call the function of a rail.

    What it raises that is no Exception becomes a RuntimeError, unless the request is cancelled or the program stopped.
    """
    task = asyncio.current_task()
    try:
        return await call_function(rail.check, trace, stage)
    except Exception:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or (task is not None and task.cancelling()):
            raise
        raise RuntimeError(repr(error)) from None


async def call_function(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call an async function here, and a plain one in a thread of its own, which is left behind where it hangs."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    result = await run_in_thread(lambda: function(*arguments))
    return await result if inspect.isawaitable(result) else result


async def run_in_thread(function: Callable[[], T]) -> T:
    """Run a function in a daemon thread: unlike those of an executor it cannot keep the program from ending."""
    future: Future[T] = Future()
    # the thread goes on where the request is cancelled
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - handed to the caller, others than an Exception as one
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            future.set_exception(error if is_plain else RuntimeError(repr(error)))

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), daemon=True, name="ragfault-rail").start()
    return await asyncio.wrap_future(future)


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also where a loop is running already: then in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.copy_context().run, asyncio.run, coroutine).result()
