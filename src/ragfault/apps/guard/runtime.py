"""Guard: the rails of a policy applied to requests, with the promise of a certificate while it holds."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ragfault.apps.guard.certificate import Certificate, read_certificate
from ragfault.apps.guard.decisions import SEVERITIES, DecisionSink, GuardDecision, emit_decision
from ragfault.apps.guard.policy import GROUNDEDNESS, GuardPolicy, RailSettings, load_policy
from ragfault.apps.guard.rails import Outcome, Rail, RailCheck, RailResult, Stage, StageDecision, run_stage, run_sync
from ragfault.apps.guard.scanning.backends import BACKENDS
from ragfault.apps.guard.scanning.scanners import SCANNERS, Scanner, make_scanner, scan_all
from ragfault.apps.guard.traffic import TrafficShift, TrafficWatcher, describe_inputs, rank_answer
from ragfault.judges.answer_edits import SENTENCE_END, cut_unsupported
from ragfault.judges.assembly import observe_traces
from ragfault.judges.loading import DEFAULT_JUDGE, load_judge
from ragfault.labels.judges.units import OWN_THRESHOLD, rate_answer
from ragfault.labels.label import fingerprint_answer
from ragfault.model.errors import JudgeError, UsageError
from ragfault.model.protocols import Judge
from ragfault.model.records import Trace, Verdicts
from ragfault.text.personal_data import Finding

STAGES: tuple[Stage, ...] = ("input", "retrieval", "output")
MASKED_KINDS = frozenset(("secrets", "personal_data", "links", "pattern", "presidio", "hidden"))
"""Kinds whose fix masks the finding; of the others a fix drops the chunk or cuts the sentence."""

QUICK_KINDS = frozenset(SCANNERS) - {"pattern"}
"""Scanners that take milliseconds; patterns of a policy may take any time."""


class Guard:
    """Rails, judge and certificate of a policy, ready to decide; the methods are `async`, `decide` is for plain code.

    A certificate of another judge raises UsageError. `sink` gets every decision; one that it fails to
    take is counted in `sink_failures`, the first with a warning, and stands. Where a span of OpenTelemetry is active,
    each decision is also an event of it.

    >>> from ragfault.apps.guard.policy import parse_policy
    >>> guard = Guard(parse_policy("[rails.secrets]"))
    >>> guard.decide(Trace(id="1", query="Which key?", answer="It is AKIA1BCDEFGHIJKLMNO2.")).text
    'I cannot answer this reliably from the documents.'
    """

    def __init__(
        self, policy: GuardPolicy | str | Path, *, judge: str | Judge | None = None, sink: DecisionSink | None = None
    ) -> None:
        self.policy = policy if isinstance(policy, GuardPolicy) else load_policy(policy)
        self.certificate = read_certificate(self.policy.certificate) if self.policy.certificate else None
        needs_judge = any(map(self.is_groundedness, self.policy.rails))
        self.judge = load_judge(judge or DEFAULT_JUDGE) if needs_judge and not isinstance(judge, Judge) else judge
        self._sink, self._lock = sink, threading.Lock()
        self.sink_failures = 0
        """Decisions that the sink failed to take."""
        if needs_judge and self.certificate is not None:
            _check_judge(self.judge, self.certificate)
        self._rails = {name: self._make_rail(name, settings) for name, settings in self.policy.rails.items()}
        self._watchers: dict[str | None, TrafficWatcher] = {
            part.route: TrafficWatcher(part.inputs)
            for part in (self.certificate.routes if self.certificate else ())
            if part.threshold is not None
        }

    def get_threshold(self, route: str | None) -> float | None:
        """Return the largest risk that is released on a route; None: the certificate could promise nothing there."""
        if self.certificate is not None:
            route_certificate = self.certificate.get_route(route)
            return route_certificate.threshold if route_certificate else None
        return OWN_THRESHOLD if self.policy.threshold is None else self.policy.threshold

    def decide(self, trace: Trace) -> GuardDecision:
        """Decide on a complete trace; also within a running event loop."""
        return run_sync(self.decide_async(trace))

    async def decide_async(
        self, trace: Trace, stages: Sequence[Stage] = STAGES, earlier: Sequence[RailResult] = ()
    ) -> GuardDecision:
        """Decide on a trace by the rails of these stages, in order, each on what the previous ones left of it.

        `earlier` are results of stages that were checked before, which the decision records.
        """
        start = time.perf_counter()
        policy = self.policy.get_route(trace.route)
        results = list(earlier)
        reasons, current = [], trace
        for stage in stages:
            if stage == "output" and trace.answer is None:
                continue
            decision = await self.check_stage(current, stage, start + policy.deadline)
            results += decision.results
            if decision.reason:
                reasons.append(decision.reason)
            if decision.outcome == "block":
                return self._finish(trace, stage, None, results, "; ".join(reasons), start)
            current = decision.trace
        return self._finish(trace, None, current.answer, results, "; ".join(reasons), start)

    async def check_stage(self, trace: Trace, stage: Stage, deadline: float | None = None) -> StageDecision:
        """Run the rails of one stage on a trace; `deadline` is a moment of `time.perf_counter`."""
        return await self._run_rails(trace, stage, deadline, self._list_rails(trace.route))

    async def decide_tool_calls(self, trace: Trace, text: str, earlier: Sequence[RailResult] = ()) -> GuardDecision:
        """Decide on the arguments of calls of tools, given as a text, by the rails of the output.

        Groundedness is not asked: arguments make no claim. What a rail would fix is blocked, because a call with masked
        arguments would be another call. `earlier` are results of stages that were checked before.

        >>> from ragfault.apps.guard.policy import parse_policy
        >>> guard = Guard(parse_policy("[rails.secrets]\\noutcome = 'fix'"))
        >>> run_sync(guard.decide_tool_calls(Trace(id="1", query=""), "key: AKIA1BCDEFGHIJKLMNO2")).outcome
        'block'
        """
        start = time.perf_counter()
        # arguments make no claim that a chunk could support
        names = [name for name in self._list_rails(trace.route) if not self.is_groundedness(name)]
        checked = await self._run_rails(replace(trace, answer=text), "output", None, names)
        before = replace(trace, answer=None)
        if checked.outcome in ("fix", "block"):
            return self.block(before, "output", checked, start, earlier)
        results = [*earlier, *checked.results]
        return self._finish(before, None, None, results, checked.reason, start)

    def _list_rails(self, route: str | None) -> Sequence[str]:
        names = self.policy.get_route(route).rails
        return tuple(self.policy.rails) if names is None else names

    def is_groundedness(self, name: str) -> bool:
        """Return whether a rail of the policy asks the judge."""
        return (self.policy.rails[name].kind or name) == GROUNDEDNESS

    def _get_watcher(self, route: str | None) -> TrafficWatcher | None:
        """Return the watcher of a promise for a route; None: none is made, or groundedness is not asked."""
        has_promise = any(map(self.is_groundedness, self._list_rails(route)))
        return self._watchers.get(route, self._watchers.get(None)) if has_promise else None

    async def _run_rails(
        self, trace: Trace, stage: Stage, deadline: float | None, names: Sequence[str]
    ) -> StageDecision:
        policy = self.policy.get_route(trace.route)
        if deadline is None:
            deadline = time.perf_counter() + policy.deadline
        rails = [self._rails[name] for name in names]
        return await run_stage(rails, trace, stage, rule=policy.aggregate, share=policy.share, deadline=deadline)

    async def stream(self, trace: Trace, pieces: AsyncIterator[str]) -> AsyncIterator[str]:
        """Yield a streamed answer sentence by sentence, each after its check; the first that is held back ends it.

        Query and chunks of the trace are checked before the first sentence. Where something is held back the policy's
        message comes instead of the rest. The promise of a certificate is about whole answers and covers no stream.
        A stream that fails or is not read to its end is decided on, too: by what was released of it.
        """
        start, policy = time.perf_counter(), self.policy.get_route(trace.route)
        current, passed, reason, is_blocked = trace, "", "the stream ended early", False
        results: list[RailResult] = []
        for stage in STAGES[:2]:
            checked = await self.check_stage(replace(current, answer=None), stage)
            current, results = checked.trace, [*results, *checked.results]
            if checked.outcome == "block":
                yield self._finish(trace, stage, None, results, checked.reason, start).text or ""
                return
        watcher = self._get_watcher(trace.route)
        if watcher is not None and watcher.shift is not None and policy.withdrawn == "block":
            reason = _explain_shift(watcher.shift)
            yield self._finish(trace, "output", None, results, reason, start).text or ""
            return
        try:
            async for sentence in _join_sentences(pieces):
                checked = await self.check_stage(replace(current, answer=passed + sentence), "output")
                text, results = checked.trace.answer or "", [*results, *checked.results]
                if checked.outcome == "block" or not text.startswith(passed):
                    is_blocked, reason = True, checked.reason or "a fix would change what was released"
                    yield policy.message
                    return
                released, passed = text[len(passed) :], text
                yield released
            reason = ""
        finally:
            if is_blocked:
                self._finish(trace, "output", None, results, reason, start)
            else:
                unwatched = [replace(result, inputs=None) for result in results]
                self._finish(trace, None, passed, unwatched, reason, start)

    def block(
        self, trace: Trace, stage: Stage, checked: StageDecision, start: float, earlier: Sequence[RailResult] = ()
    ) -> GuardDecision:
        """Return the decision that a stage blocks a trace; `start` is a moment of `time.perf_counter`.

        `earlier` are results of stages that were checked before.
        """
        return self._finish(trace, stage, None, [*earlier, *checked.results], checked.reason, start)

    def _finish(
        self,
        trace: Trace,
        stage: Stage | None,
        text: str | None,
        results: Sequence[RailResult],
        reason: str,
        start: float,
    ) -> GuardDecision:
        """Complete a decision: its promise, and the watch over traffic.

        A trace that a `stage` blocks gets the policy's message as its text. What passes has the most severe outcome of
        its results, but for blocks that others outvoted.
        """
        policy = self.policy.get_route(trace.route)
        outcome: Outcome = "block"
        if stage is None:
            outcome = max((r.outcome for r in results if r.outcome != "block"), key=SEVERITIES.index, default="pass")
        else:
            text = policy.message
        inputs = next((result.inputs for result in reversed(results) if result.inputs is not None), None)
        promised, withdrawn = False, ""
        watcher, threshold = self._get_watcher(trace.route), self.get_threshold(trace.route)
        if inputs is not None and outcome != "block" and watcher is not None:
            # the calibration is of whole answers up to the threshold
            is_like = outcome in ("pass", "flag") and threshold is not None and inputs["risk"] <= threshold
            with self._lock:
                shift = watcher.observe(inputs) if is_like else watcher.shift
            promised = is_like and shift is None
            if shift is not None:
                withdrawn = shift.input
                reason = "; ".join(filter(None, (reason, _explain_shift(shift))))
                outcome = max(outcome, policy.withdrawn, key=SEVERITIES.index)
                if outcome == "block":
                    stage, text = "output", policy.message
        decision = GuardDecision(
            trace=trace.id,
            route=trace.route,
            outcome=outcome,
            stage=stage,
            text=text,
            reason=reason,
            risk=inputs["risk"] if inputs else None,
            threshold=threshold if inputs else None,
            promised=promised,
            withdrawn=withdrawn,
            results=tuple(results),
            answer=None if trace.answer is None else fingerprint_answer(trace),
            latency=1000 * (time.perf_counter() - start),
        )
        self.record(decision)
        return decision

    def record(self, decision: GuardDecision) -> None:
        """Give a decision to the active span of OpenTelemetry and to the sink; neither can change it."""
        for receive in (emit_decision, self._sink):
            try:
                if receive is not None:
                    receive(decision)
            except Exception as error:  # noqa: BLE001 - recording never changes a decision
                self._count_sink_failure(error)

    def _count_sink_failure(self, error: Exception) -> None:
        with self._lock:
            self.sink_failures += 1
            is_first = self.sink_failures == 1
        if is_first:
            warnings.warn(
                f"the sink of the guard's decisions failed: {type(error).__name__}: {error}. See Guard.sink_failures.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _make_rail(self, name: str, settings: RailSettings) -> Rail:
        kind = settings.kind or name
        if kind == GROUNDEDNESS:
            check = self._make_groundedness(settings)
        else:
            scan = BACKENDS[kind](**settings.options).scan if kind in BACKENDS else make_scanner(kind, settings.options)
            check = _make_scan(kind, settings.outcome, scan)
        return Rail(
            name=name,
            check=check,
            stages=self.policy.get_stages(name),
            timeout=settings.timeout,
            fail=settings.fail,
            weight=settings.weight,
            quick=kind in QUICK_KINDS,
        )

    def _make_groundedness(self, settings: RailSettings) -> Callable[[Trace, Stage], RailCheck]:
        def check(trace: Trace, stage: Stage) -> RailCheck:  # noqa: ARG001 - an answer has one stage
            verdicts = self.judge_trace(trace)
            unit = rate_answer(verdicts)
            if unit is None:
                raise JudgeError("the judge gave no verdict on the answer")
            risk = rank_answer(trace, unit.score, self.certificate.ranking if self.certificate else "risk")
            inputs = describe_inputs(trace, len(verdicts.claim or ()), risk)
            threshold = self.get_threshold(trace.route)
            if threshold is not None and risk <= threshold:
                return RailCheck("pass", inputs=inputs)
            limit = "no threshold is certified" if threshold is None else f"above {threshold:.3f}"
            reason = f"risk {risk:.3f}, {limit}"
            if settings.outcome != "fix":
                return RailCheck(settings.outcome, reason, inputs=inputs)
            fixed = cut_unsupported(trace, verdicts)
            if fixed is None:
                return RailCheck(
                    "block", f"{reason}, and nothing is left without the unsupported claims", inputs=inputs
                )
            return RailCheck("fix", reason, fixed, inputs=inputs)

        return check

    def judge_trace(self, trace: Trace) -> Verdicts:
        """Judge a trace; JudgeError where that fails."""
        if self.judge is None or isinstance(self.judge, str):
            raise JudgeError("there is no judge")
        [verdicts] = observe_traces(self.judge, [trace])
        failure = verdicts.failures.get("*") or verdicts.failures.get("claim") or verdicts.failures.get("answer")
        if failure:
            raise JudgeError(failure)
        return verdicts


def _explain_shift(shift: TrafficShift) -> str:
    return f"promise withdrawn: the input {shift.input} differs from the calibration"


def _check_judge(judge: Any, certificate: Certificate) -> None:
    if judge.fingerprint != certificate.judge:
        raise UsageError(
            f'the certificate is of the judge "{certificate.judge}", and this one is "{judge.fingerprint}". '
            "Certify this one with: ragfault guard certify LABELS -o FILE"
        )


def _make_scan(kind: str, outcome: Outcome, scan: Scanner) -> Callable[[Trace, Stage], RailCheck]:
    """Make the check of a scanner: of the query, the chunks, or the answer."""

    def check(trace: Trace, stage: Stage) -> RailCheck:
        texts = [("", trace.query if stage == "input" else trace.answer or "")]
        if stage == "retrieval":
            texts = [(f" in chunk {chunk.id}", chunk.text) for chunk in trace.chunks or ()]
        findings = scan_all(scan, [text for _, text in texts])
        if not any(findings):
            return RailCheck("pass")
        locations = [f"{spotted[0].kind}{name}" for (name, _), spotted in zip(texts, findings, strict=True) if spotted]
        reason = ", ".join(locations[:3])
        if outcome != "fix":
            return RailCheck(outcome, reason)
        fixed = _fix_trace(trace, stage, findings, mask=kind in MASKED_KINDS)
        return RailCheck("block", f"{reason}: nothing is left") if fixed is None else RailCheck("fix", reason, fixed)

    return check


def _fix_trace(trace: Trace, stage: Stage, findings: Sequence[Sequence[Finding]], *, mask: bool) -> Trace | None:
    """Mask or remove the findings of each text; None where nothing is left of query or answer."""
    if stage == "retrieval":
        pairs = zip(trace.chunks or (), findings, strict=True)
        chunks = [
            replace(chunk, text=_mask(chunk.text, spotted)) if spotted else chunk
            for chunk, spotted in pairs
            if mask or not spotted
        ]
        return replace(trace, chunks=tuple(chunks))
    text = (trace.query if stage == "input" else trace.answer) or ""
    fixed = _mask(text, findings[0]) if mask else _mask(text, findings[0], "").strip()
    if not fixed:
        return None
    return replace(trace, query=fixed) if stage == "input" else replace(trace, answer=fixed)


def _mask(text: str, findings: Sequence[Finding], label: str | None = None) -> str:
    """Replace spans by their kind in brackets, or by a label; overlapping ones count as the first."""
    parts, position = [], 0
    for spotted in sorted(findings):
        if spotted.start >= position:
            parts += [text[position : spotted.start], f"[{spotted.kind}]" if label is None else label]
        position = max(position, spotted.end)
    return "".join((*parts, text[position:]))


async def _join_sentences(pieces: AsyncIterator[str]) -> AsyncIterator[str]:
    """Join the pieces of a stream to whole sentences, with the white space after them."""
    text = ""
    async for piece in pieces:
        text += piece
        while (match := SENTENCE_END.search(text)) and match.end() < len(text):
            yield text[: match.end()]
            text = text[match.end() :]
    if text:
        yield text
