"""Certificates and decisions of the guard in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragfault.apps.guard.certificate import Certificate, RouteCertificate
from ragfault.apps.guard.cost_tuning import CostTuning
from ragfault.apps.guard.rates import RailRate
from ragfault.apps.guard.replay import GuardReplay, RouteReplay
from ragfault.report.format import clean_text
from ragfault.report.terminal.layout import build_table, render_rich
from ragfault.report.wording import describe_sample_size
from ragfault.text.number_format import MISSING, format_interval, format_number, format_percent, format_share

if TYPE_CHECKING:
    from rich.console import RenderableType

CERTIFICATE_HEADINGS = ("route", "labels:", "groups:", "bad:", "threshold:", "released", "bad released:", "bound:")


def render_certificate_terminal(certificate: Certificate, *, width: int | None = None, color: bool = False) -> str:
    """Render a certificate: what it promises of each route, on which labels, and what it does not cover."""
    from rich.text import Text

    alpha, confidence = format_percent(certificate.alpha), format_percent(1 - certificate.delta)
    title = (
        f"At most {alpha} of the released answers are bad, with confidence {confidence}"
        if certificate.promises
        else "Nothing can be promised"
    )
    parts: list[RenderableType] = [Text(title, style="bold")]
    ranking = "" if certificate.ranking == "risk" else ", risk with unsupported words counted"
    parts.append(Text(f"judge {clean_text(certificate.judge)}{ranking}, {certificate.date}", style="dim"))
    parts.append(build_table(CERTIFICATE_HEADINGS, [_list_cells(part) for part in certificate.routes]))
    for part in certificate.routes:
        if part.reason:
            parts.append(Text(f"{_name_route(part)}: nothing is promised: {part.reason}"))
        if part.design_effect > 1:
            effect = format_number(part.design_effect)
            parts.append(Text(f"{_name_route(part)}: counts are divided by {effect}, as answers of a group are alike"))
    parts += [Text(f"\n{note}") for note in certificate.notes]
    if certificate.promises:
        parts.append(
            Text(
                "\nIt holds for traffic like the labelled answers: the guard withdraws it once inputs differ",
                style="dim",
            )
        )
    return render_rich(parts, width=width, color=color)


def _name_route(part: RouteCertificate) -> str:
    return clean_text(part.route) if part.route else "all traffic"


def _list_cells(part: RouteCertificate) -> tuple[str, ...]:
    if part.threshold is None or part.released_share is None or part.bound is None:
        promised = (MISSING,) * 4
    else:
        share = part.released_share
        promised = (
            f"risk ≤ {format_number(part.threshold)}",
            format_share(share),
            f"{part.released_bad} of {part.released}",
            format_number(part.bound),
        )
    return (_name_route(part), f"{part.n:,}", f"{part.groups:,}", str(part.bad), *promised)


REPLAY_HEADINGS = ("route", "answers:", "released", "bad released", "risk by judge:", "cost:")
RAIL_HEADINGS = ("rail", "checked:", "blocked", "fixed", "flagged:", "failed:", "false blocks", "p95 ms:")


def render_replay_terminal(replay: GuardReplay, *, color: bool = False) -> str:
    """Render what a policy would have done to a run."""
    from rich.text import Text

    sample = f" · {describe_sample_size(replay.sample, replay.population)}" if replay.population else ""
    parts: list[RenderableType] = [
        Text(f"{format_percent(replay.total.released.mean)} of {replay.total.n:,} answers released", style="bold"),
        Text(f"judge {clean_text(replay.judge)}{sample}", style="dim"),
        build_table(REPLAY_HEADINGS, [_list_replay_cells(part) for part in (replay.total, *replay.routes)]),
        Text(),
        build_table(RAIL_HEADINGS, [_list_rail_cells(rail) for rail in replay.rails]),
    ]
    if replay.withdrawn:
        parts.append(
            Text(f"\nThe promise would have been withdrawn: the input {replay.withdrawn} differs from the calibration")
        )
    elif not replay.promised:
        parts.append(Text("\nWithout a certificate nothing is promised", style="dim"))
    if replay.tuned is not None:
        parts += _describe_tuning(replay.tuned)
    return render_rich(parts, color=color)


TUNING_HEADINGS = ("rail", "threshold by cost:", "threshold of the policy:")


def _describe_tuning(tuning: CostTuning) -> list[RenderableType]:
    """Describe the thresholds of least cost, and what they cost on the answers that they were not chosen on."""
    from rich.text import Text

    rows = [
        (
            clean_text(item.rail),
            "holds nothing back" if item.threshold is None else format_number(item.threshold),
            MISSING if item.policy is None else format_number(item.policy),
        )
        for item in tuning.thresholds
    ]
    source = "labels" if tuning.by_labels else "the judge's own risk, which says little of the threshold for that risk"
    release, block = format_number(tuning.false_release), format_number(tuning.false_block)
    costs = f"{release} a bad answer released, {block} a good one held back"
    verdict = (
        "less than the policy"
        if tuning.saved.low > 0
        else "more than the policy"
        if tuning.saved.high < 0
        else "no difference from the policy can be told"
    )
    lines = (
        f"chosen on {tuning.chosen_on:,} answers, cost stated on {tuning.cost.n:,} others, bad ones by {source}",
        f"cost of an answer {format_interval(tuning.cost)}: {verdict} with {format_interval(tuning.policy_cost)}",
        f"released {format_share(tuning.released)}. A threshold by cost promises nothing",
    )
    return [
        Text(f"\nThresholds by cost: {costs}", style="bold"),
        build_table(TUNING_HEADINGS, rows),
        *(Text(line) for line in lines),
    ]


def _list_replay_cells(part: RouteReplay) -> tuple[str, ...]:
    route = clean_text(part.route) if part.route else "all traffic"
    released, risk = format_share(part.released), format_share(part.risk)
    return (route, f"{part.n:,}", released, risk, format_number(part.expected_risk), format_number(part.cost))


def _list_rail_cells(rail: RailRate) -> tuple[str, ...]:
    counts = (str(rail.flagged), str(rail.failed))
    blocked, fixed, false_blocks = map(format_share, (rail.blocked, rail.fixed, rail.false_blocks))
    return (rail.rail, f"{rail.checked:,}", blocked, fixed, *counts, false_blocks, format_number(rail.latency_p95))
