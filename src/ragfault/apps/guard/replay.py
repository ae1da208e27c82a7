"""Replay: what a policy would have done to the traces of a run, with the risk and the cost of what it releases."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from ragfault.apps.guard.cost_tuning import CostTuning, get_chance, measure_cost, tune_thresholds
from ragfault.apps.guard.decisions import GuardDecision
from ragfault.apps.guard.policy import GuardPolicy, load_policy
from ragfault.apps.guard.rails import Outcome
from ragfault.apps.guard.rates import GuardedRequest, RailRate, average, rate_rail
from ragfault.apps.guard.runtime import Guard
from ragfault.diagnosis.run_table import open_table
from ragfault.io.runs.run import SAMPLE_TRACES, Run
from ragfault.io.runs.samples import sample_run
from ragfault.judges.loading import load_judge
from ragfault.model.errors import JudgeError, UsageError
from ragfault.model.protocols import Judge, VerdictKind
from ragfault.model.records import Trace, Verdicts
from ragfault.stats.estimates import Interval

RELEASED: tuple[Outcome, ...] = ("pass", "flag", "fix")


class RouteReplay(Struct, frozen=True, kw_only=True):
    """The outcomes of a policy on one route, or on all traffic."""

    route: str | None
    n: int
    released: Interval
    outcomes: Mapping[str, int]
    risk: Interval | None = None
    """Share of bad answers among the released ones that have a label; None without labels."""
    expected_risk: float | None = None
    """Mean of the judge's risk over the released answers: an estimate without a promise."""
    cost: float | None = None
    """Mean cost of an answer, where costs were given and labels or a judge's risk are known."""


class GuardReplay(Struct, frozen=True, kw_only=True):
    """Replay of a policy on past traffic."""

    run: str
    judge: str
    promised: bool
    """The policy has a certificate that promises something."""
    total: RouteReplay
    routes: tuple[RouteReplay, ...]
    rails: tuple[RailRate, ...]
    withdrawn: str = ""
    """Input for which the promise would have been withdrawn by the end."""
    tuned: CostTuning | None = None
    """Thresholds of least cost, where costs were given."""
    sample: int = 0
    """Traces of the random sample that the policy was replayed on; 0: on all."""
    population: int = 0
    """Traces of the run that the sample was drawn from."""


class StoredJudge:
    """Judge of a run: returns its verdicts, and judges anew where an answer or its chunks were changed."""

    offers: frozenset[VerdictKind]

    def __init__(self, run: Run) -> None:
        self.traces = {trace.id: trace for trace in run.traces()}
        self._verdicts = {verdicts.trace: verdicts for verdicts in run.verdicts()}
        self.fingerprint = run.manifest.judge
        self.offers = frozenset(("claim", "answer"))
        self._live: Judge | None = None

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """Return the stored verdicts; raise JudgeError for changed traces of a judge that cannot be loaded again."""
        return [self._observe(trace) for trace in traces]

    def _observe(self, trace: Trace) -> Verdicts:
        stored = self.traces.get(trace.id)
        if stored is not None and (stored.answer, stored.chunks) == (trace.answer, trace.chunks):
            verdicts = self._verdicts.get(trace.id)
            if verdicts is None:
                raise JudgeError("the run has no verdicts on it")
            return verdicts
        if self._live is None:
            live = load_judge(self.fingerprint.split("/")[0])
            if live.fingerprint != self.fingerprint:
                raise JudgeError(f"a changed answer cannot be judged again by {self.fingerprint}")
            self._live = live
        return next(iter(self._live.observe([trace])))


def replay_run(
    run: str | Path | Run,
    policy: GuardPolicy | str | Path,
    *,
    labels: Mapping[str, bool] | None = None,
    costs: tuple[float, float] | None = None,
    sample: int = SAMPLE_TRACES,
) -> GuardReplay:
    """Replay a policy on the traces of a run, in their order, with the verdicts that the run has.

    `labels` say of traces whether the answer is bad; `costs` are those of a bad answer that is released and of a good
    one that is not. Without labels the cost is that expected by the judge's risk; of a larger run a random sample of
    `sample` traces is then replayed, and the result says so; 0 takes all. Raises what `Guard` raises, with costs what
    `tune_thresholds` does, and UsageError for labels of none of the answers.
    """
    opened = sample_run(run if isinstance(run, Run) else Run.open(str(run)), 0 if labels else sample)
    settings = policy if isinstance(policy, GuardPolicy) else load_policy(policy)
    judge = StoredJudge(opened)
    guard = Guard(settings, judge=judge)
    if costs is not None and guard.certificate is not None and guard.certificate.ranking != "risk":
        raise UsageError(
            "thresholds by cost are of the judge's risk: certify with --ranking risk, or leave out the costs."
        )
    traces = [trace for trace in judge.traces.values() if trace.answer is not None]

    def decide(changed: GuardPolicy) -> list[GuardDecision]:
        return asyncio.run(_decide_all(guard if changed is settings else Guard(changed, judge=judge), traces))

    decisions = decide(settings)
    known = labels or {}
    if labels is not None and not any(trace.id in known for trace in traces):
        raise UsageError(f"these labels say of no answer of {opened.path} whether it is bad: are they of another run?")
    codes = open_table(opened).clusters
    groups = {} if codes is None else dict(zip(judge.traces, codes.tolist(), strict=True))
    requests = [
        GuardedRequest(decision.trace, decision.route, (decision,), groups.get(decision.trace))
        for decision in decisions
    ]
    routes = sorted({decision.route for decision in decisions}, key=str)
    by_route = [[request for request in requests if request.route == route] for route in routes]
    tuned = None
    if costs is not None:
        tuned = tune_thresholds(
            settings,
            traces,
            lambda changed: decisions if changed is settings else decide(changed),
            costs,
            labels,
            groups,
        )
    return GuardReplay(
        run=str(opened.path),
        judge=opened.manifest.judge,
        promised=guard.certificate is not None and guard.certificate.promises,
        total=_summarize(None, requests, known, costs),
        routes=tuple(
            _summarize(route, own, known, costs) for route, own in zip(routes, by_route, strict=True) if len(routes) > 1
        ),
        rails=tuple(rate_rail(name, requests, known) for name in settings.rails),
        withdrawn=next((decision.withdrawn for decision in reversed(decisions) if decision.withdrawn), ""),
        tuned=tuned,
        sample=opened.manifest.traces if opened.manifest.population else 0,
        population=opened.manifest.population,
    )


async def _decide_all(guard: Guard, traces: Sequence[Trace]) -> list[GuardDecision]:
    return [await guard.decide_async(trace) for trace in traces]


def _summarize(
    route: str | None, requests: Sequence[GuardedRequest], labels: Mapping[str, bool], costs: tuple[float, float] | None
) -> RouteReplay:
    decisions = [request.decisions[-1] for request in requests]
    released = [request for request in requests if request.decisions[-1].outcome in RELEASED]
    labelled = [(labels[request.id], request.group) for request in released if request.id in labels]
    risks = [request.decisions[-1].risk for request in released if request.decisions[-1].risk is not None]
    return RouteReplay(
        route=route,
        n=len(decisions),
        released=average(
            [decision.outcome in RELEASED for decision in decisions], [request.group for request in requests]
        ),
        outcomes=dict(Counter(decision.outcome for decision in decisions)),
        risk=average(*zip(*labelled, strict=True)) if labelled else None,
        expected_risk=float(np.mean(risks)) if risks else None,
        cost=_average_cost(decisions, labels, costs),
    )


def _average_cost(
    decisions: Sequence[GuardDecision], labels: Mapping[str, bool], costs: tuple[float, float] | None
) -> float | None:
    """Return the mean cost: of released bad answers and of good ones that are not; None where nothing is known."""
    rows = [(item.outcome in RELEASED, p) for item in decisions if (p := get_chance(item, labels)) is not None]
    if costs is None or not rows:
        return None
    released, p_bad = map(np.array, zip(*rows, strict=True))
    return float(measure_cost(released, p_bad, costs).mean())
