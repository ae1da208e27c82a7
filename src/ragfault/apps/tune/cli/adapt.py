"""Command `adapt`: plan the share of each arm per route from logged decisions, above a floor, or take it back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from ragfault.judges.loading import DEFAULT_JUDGE
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.options.output import json_option, print_json, print_notice
from ragfault.options.runs import read_logged
from ragfault.options.settings import add_trace_options, pick_trace_options

if TYPE_CHECKING:
    from ragfault.apps.tune.adaptation.records import AdaptationPlan, AdaptivePolicy, LoggedDecision, RoutePlan
    from ragfault.model.records import Trace


@click.command(
    epilog="""\b
Examples:
  ragfault tune adapt log.jsonl --arm "top(5)" --arm "top(10)" --floor faq=0.7 --floor legal=0.8 -o policy.json
  ragfault tune adapt log.jsonl --arm "top(5)" --new-arm "top(20)" --floor faq=0.7 -o policy.json
  ragfault tune adapt runs/today --arm "top(5)" --arm "rerank(embedded)" --floor faq=0.7 -m groundedness
  ragfault tune adapt log.jsonl --revert policy.json -o policy.json --force

Exit code 0: a plan, whether it changes a route or none; 2: an arm or a route that LOG does not have, a value that is no
propensity or reward, or no decision in LOG."""
)
@click.argument("log", type=click.Path())
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Arm of LOG, the present one first. Repeatable.")
@click.option(
    "--new-arm", "new_arms", multiple=True, metavar="NAME", help="Arm to try that LOG need not have. Repeatable."
)
@click.option(
    "--floor", "floors", multiple=True, metavar="ROUTE=VALUE", help="Least mean reward of a route. Repeatable."
)
@click.option("-m", "--metric", help="Metric that is the reward.  [default: `reward` of the metadata]")
@click.option("--judge", default=DEFAULT_JUDGE, show_default=True, help="Judge of the metric, as for evaluate.")
@click.option(
    "--before", type=click.Path(dir_okay=False), metavar="FILE", help="Policy in use, kept as the previous one."
)
@click.option("--revert", type=click.Path(dir_okay=False), metavar="FILE", help="Write the policy before this one.")
@click.option("-o", "--out", type=click.Path(dir_okay=False), help="File for the policy.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@json_option
@add_trace_options
def adapt(
    log: str,
    arms: tuple[str, ...],
    new_arms: tuple[str, ...],
    floors: tuple[str, ...],
    metric: str | None,
    judge: str,
    before: str | None,
    revert: str | None,
    out: str | None,
    force: bool,
    kind: str | None,
    **reading: object,
) -> None:
    """Plan which arm each route uses, from the decisions in LOG, without any route falling below its floor.

    LOG is traces whose metadata record `arm` (the parameters that were used), `propensity` (with which probability) and
    `reward` in [0, 1]. The plan is evaluated off-policy before it is written: doubly robust, with an interval.
    """
    from ragfault.apps.tune.adaptation.off_policy import read_decisions
    from ragfault.apps.tune.adaptation.policy import load_policy, plan_policy, revert_policy

    if revert is not None:
        policy = revert_policy(load_policy(revert))
        _write_policy(policy, out, force)
        print_json(policy)
        return
    if not arms:
        raise UsageError("no arm is named. Give the present one and those to try: --arm NAME --arm NAME.")
    least = dict(map(_parse_floor, floors))
    traces, reward = read_logged(log, reading=pick_trace_options(reading)), None
    if metric is not None:
        scored = list(traces)
        traces, reward = iter(scored), _make_reward(scored, metric, judge)
    decisions, skipped = read_decisions(traces, reward)
    _check_names(decisions, skipped, arms, least)
    used = None if before is None else load_policy(before)
    plan = plan_policy(decisions, (*arms, *new_arms), arms[0], least, before=used, skipped=skipped)
    _write_policy(plan.policy, out, force)
    if kind == "json":
        print_json(plan)
    else:
        click.echo("\n".join(_format_plan(plan)))


def _parse_floor(text: str) -> tuple[str, float]:
    route, sign, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not sign or not 0 <= value <= 1:
        raise UsageError(f'cannot read the floor "{text}". Write ROUTE=VALUE with a value in [0, 1], such as faq=0.7.')
    return route, value


def _check_names(decisions: Sequence[LoggedDecision], skipped: int, arms: Iterable[str], routes: Iterable[str]) -> None:
    """Raise for a log without a decision, and for an arm or a route that no decision has."""
    if not decisions:
        raise InputError(
            f"none of the {skipped:,} traces is a decision: one has `arm`, `propensity` and `reward` in `metadata`, "
            "or its reward by --metric."
        )
    known = {row.arm: None for row in decisions}
    for arm in arms:
        if arm not in known:
            raise UnknownName("arm in the log", arm, known, hint="An arm nobody tried yet is named by --new-arm.")
    for route in routes:
        if route not in (present := {row.route: None for row in decisions}):
            raise UnknownName("route in the log", route, present)


def _make_reward(traces: Sequence[Trace], metric: str, judge: str) -> Callable[[Trace], float | None]:
    """Return the function that gives the reward of a trace by a metric."""
    from ragfault.apps.tune.generators.recorded import AnswerScorer, parse_generation_metric
    from ragfault.judges.loading import load_judge

    scorer = AnswerScorer(parse_generation_metric(metric), load_judge(judge))
    low, high = scorer.limits
    values = {
        trace.id: (row.value - low) / (high - low) for trace, row in zip(traces, scorer.score(traces), strict=True)
    }
    return lambda trace: values[trace.id]


def _write_policy(policy: AdaptivePolicy, out: str | None, force: bool) -> None:
    from ragfault.report.json_documents import encode_document
    from ragfault.report.output import write_report_file

    if out is not None:
        print_notice(str(write_report_file(out, encode_document(policy), force=force)))


def _format_plan(plan: AdaptationPlan) -> list[str]:
    from ragfault.report.safe_text import clean_text

    changed = ", ".join(plan.changed) or "no route"
    skipped = f"; {plan.skipped:,} traces without a decision" if plan.skipped else ""
    lines = [f"Changed: {changed}. {plan.decisions:,} decisions{skipped}; version {plan.policy.version}."]
    lines += [f"  {clean_text(note)}" for note in plan.notes]
    for route in plan.routes:
        lines += _format_route(route)
    return lines


def _format_route(plan: RoutePlan) -> list[str]:
    policy, estimate = plan.policy, plan.estimate
    shares = ", ".join(f"{arm} {100 * share:.1f} %" for arm, share in policy.shares.items())
    lines = ["", f"{policy.route}: {shares}. {plan.reason}."]
    lines.append(f"  brings at least {plan.least:.3f}, floor {policy.floor:g}")
    if estimate is not None:
        lines.append(
            f"  estimated from the log: {estimate.doubly_robust:.3f} [{estimate.low:.3f}, {estimate.high:.3f}], "
            f"only by weights {estimate.inverse_propensity:.3f}; worth {estimate.effective_size:,.0f} own decisions"
        )
    for row in plan.arms:
        mean = "–" if row.mean is None else f"{row.mean:.3f}"
        lines.append(f"  {row.arm}: {row.n:,} decisions, {mean} [{row.low:.3f}, {row.high:.3f}]")
    return [*lines, *(f"  note: {note}" for note in plan.notes)]
