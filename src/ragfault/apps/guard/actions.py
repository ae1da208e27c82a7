"""Actions: retrieve, generate, decide, and repair an answer before it is withheld.

Each is a pass over the same two functions: `retrieve` (query → passages) and `generate` (query, passages, feedback →
answer). A later answer is kept only if it is released, or is of less risk than the one before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.guard.decisions import GuardDecision
from ragfault.apps.guard.rails import RailResult, call_function, run_in_thread, run_sync
from ragfault.apps.guard.runtime import STAGES, Guard
from ragfault.evaluation.online.scorer import to_chunks
from ragfault.judges.answer_edits import (
    DISCLAIMER,
    QUESTION,
    cite_sources,
    cut_unsupported,
    list_unsupported,
    mark_unsupported,
)
from ragfault.model.errors import RagfaultError, UnknownName
from ragfault.model.records import Chunk, Citation, Trace, Verdicts

Action = Literal["correct", "widen", "escalate", "cut", "mark", "cite", "ask", "abstain", "disclaim"]
"""correct: generate again with the failed claims as feedback; widen: retrieve more, then generate; escalate: generate
with a stronger model; cut or mark: unsupported sentences; cite: name the chunk of each supported claim of what is
released; ask: ask the user back; abstain: the policy's message; disclaim: release with a warning before it."""

Retrieve = Callable[[str, int], Any]
"""Query and number of passages → passages, or an awaitable of them."""
Generate = Callable[[str, Sequence[Chunk], str], Any]
"""Query, chunks and feedback ("" at first) → answer, or an awaitable of it."""


class ActionPass(Struct, frozen=True, kw_only=True):
    """One pass: what was done, what the guard said of it, and whether it was kept."""

    action: str
    answer: str | None
    risk: float | None
    outcome: str
    retained: bool
    latency: float
    """Milliseconds."""


class GuardedAnswer(Struct, frozen=True, kw_only=True):
    """Answer for the user, the decision on it, and all passes that led to it."""

    text: str
    decision: GuardDecision
    passes: tuple[ActionPass, ...]
    citations: tuple[Citation, ...] = ()


class ActionSettings(Struct, frozen=True):
    """What is tried before an answer is held back."""

    actions: Sequence[Action] = ("correct", "widen", "cut", "abstain")
    """Each is taken at most once, in this order."""
    k: int = 5
    """Number of passages to retrieve, 1 or more; "widen" retrieves twice as many."""
    route: str | None = None
    """Route of the request, whose rails and threshold apply; None: those of the whole policy."""


DEFAULT_ACTIONS = ActionSettings()


class _Request(NamedTuple):
    """A request under way: what its passes share, and the passes so far."""

    guard: Guard
    trace: Trace
    retrieve: Retrieve
    passes: list[ActionPass]


class _Attempt(Struct, frozen=True):
    trace: Trace
    decision: GuardDecision


async def answer_async(
    guard: Guard,
    query: str,
    retrieve: Retrieve,
    generate: Generate,
    strong: Generate | None = None,
    settings: ActionSettings = DEFAULT_ACTIONS,
) -> GuardedAnswer:
    """Answer a query: check it, retrieve, check the chunks, generate, decide; then take actions until one is released.

    `strong` generates for the action "escalate", which is left out without it. Query and chunks are fixed before they
    reach the generator, so that no text that a rail removed is in its prompt. Raises UnknownName for an unknown action.
    """
    actions, k = settings.actions, settings.k
    for action in actions:
        if action not in get_args(Action):
            raise UnknownName("action", action, get_args(Action))
    passes: list[ActionPass] = []
    request = _Request(guard, Trace(id=uuid4().hex, query=query, route=settings.route), retrieve, passes)
    best = await _attempt(request, generate, k, "", "answer")
    for action in actions:
        # a query that is held back is the same in every further pass
        if best.decision.outcome != "block" or best.decision.stage == "input":
            break
        # citations belong to whatever is released in the end
        if action == "cite":
            continue
        if action in ("correct", "widen", "escalate"):
            if action == "escalate" and strong is None:
                continue
            writer = strong if action == "escalate" and strong is not None else generate
            size = 2 * k if action == "widen" else k
            again = await _attempt(request, writer, size, await _explain(guard, best), action)
            best = again if passes[-1].retained else best
        else:
            ended = await _end(guard, best, action, passes)
            if ended is not None:
                return ended
    text = best.decision.text or ""
    citations: tuple[Citation, ...] = ()
    if "cite" in actions and best.decision.outcome != "block":
        trace = replace(best.trace, answer=text)
        verdicts = await _judge(guard, replace(best, trace=trace))
        citations = cite_sources(trace, verdicts) if verdicts else ()
    return GuardedAnswer(text=text, decision=best.decision, passes=tuple(passes), citations=citations)


def answer(
    guard: Guard,
    query: str,
    retrieve: Retrieve,
    generate: Generate,
    strong: Generate | None = None,
    settings: ActionSettings = DEFAULT_ACTIONS,
) -> GuardedAnswer:
    """Answer a query as `answer_async` does, from plain code.

    >>> from ragfault.apps.guard.policy import parse_policy
    >>> guard = Guard(parse_policy("[rails.groundedness]"), judge="lexical")
    >>> chunk = "The harbour office opens at 7:30 on weekdays."
    >>> guarded = answer(guard, "When does it open?", lambda query, k: [chunk], lambda query, chunks, feedback: chunk)
    >>> guarded.text, guarded.passes[0].outcome
    ('The harbour office opens at 7:30 on weekdays.', 'pass')
    """
    return run_sync(answer_async(guard, query, retrieve, generate, strong, settings))


async def _attempt(request: _Request, generate: Generate, k: int, feedback: str, action: str) -> _Attempt:
    """Retrieve, generate and decide once, each stage checked before the next one."""
    guard, trace, retrieve, passes = request
    start = time.perf_counter()
    decision: GuardDecision | None = None
    results: list[RailResult] = []
    for stage in STAGES[:2]:
        if stage == "retrieval":
            trace = replace(trace, chunks=to_chunks(await call_function(retrieve, trace.query, k)))
        checked = await guard.check_stage(trace, stage)
        trace = checked.trace
        if checked.outcome == "block":
            decision = guard.block(trace, stage, checked, start, results)
            break
        results += checked.results
    if decision is None:
        trace = replace(trace, answer=str(await call_function(generate, trace.query, trace.chunks or (), feedback)))
        decision = await guard.decide_async(trace, ("output",), results)
    # an action may make an answer worse: one that is still held back counts only if it is less risky than all before
    risks = [item.risk for item in passes if item.retained and item.risk is not None]
    better = decision.outcome != "block" or (decision.risk is not None and (not risks or decision.risk < min(risks)))
    passes.append(
        ActionPass(
            action=action,
            answer=trace.answer,
            risk=decision.risk,
            outcome=decision.outcome,
            retained=better or len(passes) == 0,
            latency=1000 * (time.perf_counter() - start),
        )
    )
    return _Attempt(trace, decision)


async def _explain(guard: Guard, attempt: _Attempt) -> str:
    """Return the feedback for the next pass: the claims that the chunks do not support, else the reason."""
    verdicts = await _judge(guard, attempt)
    claims = list_unsupported(verdicts) if verdicts else []
    if claims:
        return "The passages do not support: " + " | ".join(claims)
    return attempt.decision.reason


async def _judge(guard: Guard, attempt: _Attempt) -> Verdicts | None:
    """Judge an answer; None where there is no judge, it fails or exceeds the deadline, or a rail has failed already."""
    if attempt.trace.answer is None or attempt.decision.failures:
        return None
    judging = run_in_thread(lambda: guard.judge_trace(attempt.trace))
    try:
        return await asyncio.wait_for(judging, guard.policy.get_route(attempt.trace.route).deadline)
    except (RagfaultError, TimeoutError):
        return None


async def _end(guard: Guard, best: _Attempt, action: Action, passes: list[ActionPass]) -> GuardedAnswer | None:
    """Apply an action to the present answer; None if it does not apply, and the next one is tried."""
    message = best.decision.text or ""
    if action in ("abstain", "ask"):
        return _finish(guard, best, action, QUESTION if action == "ask" else message, passes)
    verdicts = await _judge(guard, best)
    if verdicts is None or best.decision.stage != "output":
        return None
    if action == "cut":
        trace = cut_unsupported(best.trace, verdicts)
        if trace is None:
            return None
        # the cut answer is another one: it is decided on again, and recorded as fixed
        cuts = [replace(result, outcome="fix") for result in best.decision.results if result.outcome == "block"]
        decision = await guard.decide_async(trace, ("output",), cuts)
        if decision.outcome == "block":
            return None
        return _finish(guard, _Attempt(trace, decision), action, decision.text or "", passes)
    if not _blocked_by_groundedness(guard, best.decision):
        return None
    text = mark_unsupported(best.trace, verdicts) if action == "mark" else DISCLAIMER + (best.trace.answer or "")
    return _finish(guard, best, action, text, passes)


def _blocked_by_groundedness(guard: Guard, decision: GuardDecision) -> bool:
    """Return whether only the judge's risk blocks an answer; only then may it be shown with a warning."""
    blocking = {result.rail for result in decision.results if result.outcome in ("block", "fix")}
    return bool(blocking) and all(map(guard.is_groundedness, blocking))


def _finish(guard: Guard, attempt: _Attempt, action: str, text: str, passes: list[ActionPass]) -> GuardedAnswer:
    """End the request by an action, which is recorded as a decision of its own."""
    decision = replace(attempt.decision, text=text, promised=False, action=action)
    guard.record(decision)
    passes.append(
        ActionPass(action=action, answer=text, risk=decision.risk, outcome=decision.outcome, retained=True, latency=0.0)
    )
    return GuardedAnswer(text=text, decision=decision, passes=tuple(passes))
