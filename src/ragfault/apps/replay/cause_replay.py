"""The causes of a run, put to the proof: each request is asked again as it was, and with the cause removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ragfault.apps.replay.asking import (
    AskedAnswer,
    AskedRequest,
    Asker,
    ask_until_stopped,
    build_text_redactor,
    read_settings,
)
from ragfault.apps.replay.decision import AttemptCounts, decide_proof, estimate_noise, is_by_chance
from ragfault.apps.replay.interventions import change_trace
from ragfault.apps.replay.planning import PlannedReplay, PlannedRun
from ragfault.apps.replay.rating import AnswerRater, load_run_judge
from ragfault.apps.replay.records import CauseProof, ProofCount, ReplayedAnswer, ReplayReport
from ragfault.apps.replay.settings import ReplaySettings
from ragfault.diagnosis.causes.table import CAUSES
from ragfault.diagnosis.run_table import RunTable
from ragfault.model.causes import CauseName
from ragfault.model.grouping import group_by

FIRST_ATTEMPTS = 2
"""Attempts with the change before the first decision."""
NOT_ASKED = "not asked"
"""Error of an answer for which the budget did not last."""


class Progress(NamedTuple):
    """A replay with the answers that it has so far."""

    replay: PlannedReplay
    answers: tuple[ReplayedAnswer, ...] = ()

    @property
    def counts(self) -> AttemptCounts:
        """Right answers and attempts; an answer that is neither right nor bad counts for nothing."""
        assert self.replay.plan is not None
        own = self.replay.plan.intervention
        decided = [answer for answer in self.answers if answer.outcome in ("right", "bad")]
        changed = [answer.outcome for answer in decided if answer.intervention == own]
        same = [answer.outcome for answer in decided if answer.intervention != own]
        return AttemptCounts(changed.count("right"), len(changed), same.count("right"), len(same))


def replay_causes(source: RunTable, planned: PlannedRun, asker: Asker, settings: ReplaySettings) -> ReplayReport:
    """Put the causes of a run to the proof.

    Every recorded request is asked again once, which estimates the noise; then twice with the change, and once more
    where that does not decide: at most four calls for one cause of one trace. A request that gives a right answer as it
    was is asked again as it was. Where the budget ends, what was asked until then decides.
    """
    rater = AnswerRater(load_run_judge(source.run.manifest, settings.judge), source.run.manifest.gold)
    ask = Asking(asker, rater, build_text_redactor(settings.redact))
    running = [Progress(item) for item in planned.replays if item.plan is not None]
    stopped: str | None = None
    for phase in (_choose_same, _choose_changed, *[_choose_more] * max(1, settings.attempts - FIRST_ATTEMPTS)):
        noise = _measure_noise(running)
        running, stopped = _ask_all(running, [phase(item, settings, noise) for item in running], ask)
        total = sum(len(item.answers) for item in running)
        settings.on_notice(f"{total:,} answers of {len(running):,} traces so far")
        if stopped is not None:
            break
    noise = _measure_noise(running)
    proofs = [_decide(item, noise, stopped) for item in running]
    proofs += [_refuse(item) for item in planned.replays if item.plan is None]
    return ReplayReport(
        run=str(source.run.path),
        model=asker.name,
        old_models=tuple(sorted({item.replay.case.trace.model for item in running if item.replay.case.trace.model})),
        judge=rater.judge.fingerprint,
        noise=noise,
        counts=tuple(count_proofs(proofs, planned.answers)),
        proofs=tuple(proofs),
        usage=asker.usage,
        stopped=stopped,
    )


class Asking(NamedTuple):
    """What answers, what rates the answers, and what redacts them."""

    asker: Asker
    rater: AnswerRater
    redact: Callable[[str], str]


NeededAttempts = tuple[tuple[bool, int], ...]
"""Attempts that are needed of a trace: whether the request is changed, and the number of the attempt."""


def _choose_same(item: Progress, settings: ReplaySettings, noise: float) -> NeededAttempts:  # noqa: ARG001
    """Ask the recorded request once; it is the change itself where nothing is changed."""
    return () if item.replay.plan is not None and item.replay.plan.chunks is None else ((False, 1),)


def _choose_changed(item: Progress, settings: ReplaySettings, noise: float) -> NeededAttempts:  # noqa: ARG001
    """Ask the changed request twice, or the recorded one again where it gave a right answer."""
    if item.counts.same_right:
        return ((False, 2),)
    return tuple((True, number) for number in range(1, FIRST_ATTEMPTS + 1))


def _choose_more(item: Progress, settings: ReplaySettings, noise: float) -> NeededAttempts:
    """Ask the changed request once more where it is not decided."""
    plan = item.replay.plan
    assert plan is not None
    if decide_proof(plan.expected, item.counts, noise)[0] != "not decided":
        return ()
    asked = sum(answer.intervention == plan.intervention for answer in item.answers)
    if asked >= settings.attempts:
        return ()
    if asked == 0:
        return tuple((True, number) for number in range(1, FIRST_ATTEMPTS + 1))
    return ((True, asked + 1),)


def _measure_noise(running: Sequence[Progress]) -> float:
    """Estimate the noise from the traces whose recorded answer was not bad by chance."""
    counts = [item.counts for item in running if not is_by_chance(item.counts)]
    return estimate_noise(sum(item.same_right for item in counts), sum(item.same_attempts for item in counts))


def _ask_all(
    running: Sequence[Progress], needed: Sequence[NeededAttempts], ask: Asking
) -> tuple[list[Progress], str | None]:
    """Ask what is needed of every trace, rate the answers, and add them; say why no further one was answered."""
    places = [(place, changed, number) for place, own in enumerate(needed) for changed, number in own]
    requests = [_build_request(running[place].replay, changed, number) for place, changed, number in places]
    given, stopped = ask_until_stopped(ask.asker, requests, ask.redact)
    answers = [AskedAnswer(None, NOT_ASKED) if answer is None else answer for answer in given]
    known = [place for place, answer in enumerate(answers) if answer.text is not None]
    rated = ask.rater.rate(
        [change_trace(requests[place].trace, requests[place].chunks, answers[place].text or "") for place in known]
    )
    outcomes = dict(zip(known, rated, strict=True))
    result = list(running)
    for at, ((place, changed, number), request, answer) in enumerate(zip(places, requests, answers, strict=True)):
        plan = running[place].replay.plan
        assert plan is not None
        given_answer = ReplayedAnswer(
            intervention=plan.intervention if changed else "the same again",
            attempt=number,
            chunks=tuple(chunk.id for chunk in request.chunks),
            answer=answer.text,
            outcome=outcomes.get(at),
            error=answer.error,
        )
        result[place] = result[place]._replace(answers=(*result[place].answers, given_answer))
    return result, stopped


def _build_request(replay: PlannedReplay, changed: bool, attempt: int) -> AskedRequest:
    assert replay.plan is not None
    trace = replay.case.trace
    shown = trace.chunks or ()
    chunks = shown if not changed or replay.plan.chunks is None else replay.plan.chunks
    messages = replay.changed if changed else replay.same
    return AskedRequest(messages, trace, tuple(chunks), attempt, read_settings(trace))


def _decide(item: Progress, noise: float, stopped: str | None) -> CauseProof:
    case, plan = item.replay.case, item.replay.plan
    assert plan is not None
    assert case.cause.cause is not None
    assert case.cause.stage is not None
    counts = item.counts
    outcome, reason = decide_proof(plan.expected, counts, noise)
    if outcome == "not decided" and stopped is not None:
        reason = f"{reason}; the replay ended early: {stopped}"
    failed = next((answer.error for answer in item.answers if answer.error and answer.error != NOT_ASKED), None)
    if outcome == "not decided" and failed is not None:
        reason = f"{reason}; a call failed: {failed}"
    return CauseProof(
        trace=case.trace.id,
        query=case.trace.query,
        cause=case.cause.cause,
        stage=case.cause.stage,
        outcome=outcome,
        reason=reason,
        intervention=plan.intervention,
        expected=plan.expected,
        right=counts.right,
        attempts=counts.attempts,
        same_right=counts.same_right,
        same_attempts=counts.same_attempts,
        old_answer=case.trace.answer,
        answers=item.answers,
    )


def _refuse(item: PlannedReplay) -> CauseProof:
    case = item.case
    assert case.cause.cause is not None
    assert case.cause.stage is not None
    return CauseProof(
        trace=case.trace.id,
        query=case.trace.query,
        cause=case.cause.cause,
        stage=case.cause.stage,
        outcome="not replayed",
        reason=item.refused,
        old_answer=case.trace.answer,
    )


def count_proofs(proofs: Sequence[CauseProof], answers: Mapping[CauseName, int]) -> list[ProofCount]:
    """Count the proofs of each cause, most bad answers first."""
    groups = group_by(proofs, lambda proof: proof.cause)
    counts = [
        ProofCount(
            cause=name,
            stage=CAUSES[name].stage,
            title=CAUSES[name].title,
            answers=answers[name],
            sampled=sum(proof.outcome != "not replayed" for proof in own),
            proven=sum(proof.outcome == "proven" for proof in own),
            refuted=sum(proof.outcome == "refuted" for proof in own),
            undecided=sum(proof.outcome == "not decided" for proof in own),
        )
        for name, own in groups.items()
    ]
    return sorted(counts, key=lambda count: -count.answers)
