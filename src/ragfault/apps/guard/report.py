"""The reports of the guard: what a certificate promises, and what a policy would have done to a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragfault.report.document import (
    Block,
    Heading,
    Paragraph,
    ReportDocument,
    Table,
    TableColumn,
    Text,
    VerdictMark,
    build_section,
)
from ragfault.report.safe_text import clean_text
from ragfault.report.wording import describe_sample_size
from ragfault.text.number_format import MISSING, format_interval, format_number, format_percent, format_share

if TYPE_CHECKING:
    from ragfault.apps.guard.certificate import Certificate, RouteCertificate
    from ragfault.apps.guard.cost_tuning import CostTuning
    from ragfault.apps.guard.rates import RailRate
    from ragfault.apps.guard.replay import GuardReplay, RouteReplay

CERTIFICATE_COLUMNS = (
    TableColumn("Route"),
    TableColumn("Labels", numeric=True),
    TableColumn("Groups", numeric=True),
    TableColumn("Bad", numeric=True),
    TableColumn("Threshold", numeric=True),
    TableColumn("Released"),
    TableColumn("Bad released", numeric=True),
    TableColumn("Bound", numeric=True),
)
REPLAY_COLUMNS = (
    TableColumn("Route"),
    TableColumn("Answers", numeric=True),
    TableColumn("Released"),
    TableColumn("Bad released"),
    TableColumn("Risk by judge", numeric=True),
    TableColumn("Cost", numeric=True),
)
RAIL_COLUMNS = (
    TableColumn("Rail"),
    TableColumn("Checked", numeric=True),
    TableColumn("Blocked"),
    TableColumn("Fixed"),
    TableColumn("Flagged", numeric=True, room=90),
    TableColumn("Failed", numeric=True),
    TableColumn("False blocks"),
    TableColumn("p95 ms", numeric=True, room=100),
)
TUNING_COLUMNS = (
    TableColumn("Rail"),
    TableColumn("Threshold by cost", numeric=True),
    TableColumn("Threshold of the policy", numeric=True),
)


def build_certificate(certificate: Certificate) -> ReportDocument:
    """Build the report of a certificate: its promise for each route, the labels behind it, and what it leaves out."""
    alpha, confidence = format_percent(certificate.alpha), format_percent(1 - certificate.delta)
    title = "Nothing can be promised"
    mark = VerdictMark("no promise", "unsure")
    if certificate.promises:
        title = f"At most {alpha} of the released answers are bad in the long run, with confidence {confidence}"
        mark = VerdictMark("certified", "good")
    ranking = "" if certificate.ranking == "risk" else ", risk with unsupported words counted"
    terms = Paragraph(f"judge {clean_text(certificate.judge)}{ranking}, {certificate.date}", "note")
    body: list[Block] = [Table(CERTIFICATE_COLUMNS, tuple(map(_build_route, certificate.routes)))]
    for part in certificate.routes:
        if part.reason:
            body.append(Paragraph(f"{_name_route(part.route)}: nothing is promised: {part.reason}"))
        if part.design_effect > 1:
            effect = format_number(part.design_effect)
            alike = f"counts are divided by {effect}, as answers of a group are alike"
            body.append(Paragraph(f"{_name_route(part.route)}: {alike}"))
    body += [Paragraph(note) for note in certificate.notes]
    if certificate.promises:
        scope = "It holds for traffic like the labelled answers: the guard withdraws it once inputs differ"
        kind = "It bounds the expected share: among the next few hundred answers the share may be higher by chance"
        body += [Paragraph(scope, "note"), Paragraph(kind, "note")]
    return ReportDocument("certificate", (Heading(title, 1, mark), terms), tuple(body))


def _name_route(route: str | None) -> str:
    return clean_text(route) if route else "all traffic"


def _build_route(part: RouteCertificate) -> tuple[Text, ...]:
    promised = (MISSING,) * 4
    if part.threshold is not None and part.released_share is not None and part.bound is not None:
        promised = (
            f"risk ≤ {format_number(part.threshold)}",
            format_share(part.released_share),
            f"{part.released_bad} of {part.released}",
            format_number(part.bound),
        )
    return (_name_route(part.route), f"{part.n:,}", f"{part.groups:,}", str(part.bad), *promised)


def build_replay(replay: GuardReplay) -> ReportDocument:
    """Build the report of what a policy would have done to a run."""
    sample = f" · {describe_sample_size(replay.sample, replay.population)}" if replay.population else ""
    title = f"{format_percent(replay.total.released.mean)} of {replay.total.n:,} answers released"
    lead: list[Block] = [Heading(title, 1), Paragraph(f"judge {clean_text(replay.judge)}{sample}", "note")]
    if replay.withdrawn:
        differs = f"the input {replay.withdrawn} differs from the calibration"
        lead.append(Paragraph(f"the promise would have been withdrawn: {differs}", "warning"))
    elif not replay.promised:
        lead.append(Paragraph("Without a certificate nothing is promised", "note"))
    body = [
        Table(REPLAY_COLUMNS, tuple(map(_build_replayed_route, (replay.total, *replay.routes)))),
        *build_section("Rails", Table(RAIL_COLUMNS, tuple(map(_build_rail, replay.rails)))),
        *([] if replay.tuned is None else _build_tuning(replay.tuned)),
    ]
    return ReportDocument("guard replay", tuple(lead), tuple(body))


def _build_replayed_route(part: RouteReplay) -> tuple[Text, ...]:
    released, risk = format_share(part.released), format_share(part.risk)
    figures = (format_number(part.expected_risk), format_number(part.cost))
    return (_name_route(part.route), f"{part.n:,}", released, risk, *figures)


def _build_rail(rail: RailRate) -> tuple[Text, ...]:
    counts = (str(rail.flagged), str(rail.failed))
    blocked, fixed, false_blocks = map(format_share, (rail.blocked, rail.fixed, rail.false_blocks))
    return (rail.rail, f"{rail.checked:,}", blocked, fixed, *counts, false_blocks, format_number(rail.latency_p95))


def _build_tuning(tuning: CostTuning) -> list[Block]:
    """Build the thresholds of least cost, and what they cost on the answers that they were not chosen on."""
    rows = tuple(
        (
            item.rail,
            "holds nothing back" if item.threshold is None else format_number(item.threshold),
            MISSING if item.policy is None else format_number(item.policy),
        )
        for item in tuning.thresholds
    )
    source = "labels" if tuning.by_labels else "the judge's own risk, which says little of the threshold for that risk"
    release, block = format_number(tuning.false_release), format_number(tuning.false_block)
    verdict = (
        "less than the policy"
        if tuning.saved.low > 0
        else "more than the policy"
        if tuning.saved.high < 0
        else "no difference from the policy can be told"
    )
    sentences = (
        f"chosen on {tuning.chosen_on:,} answers, cost stated on {tuning.cost.n:,} others, bad ones by {source}",
        f"cost of an answer {format_interval(tuning.cost)}: {verdict} with {format_interval(tuning.policy_cost)}",
        f"released {format_share(tuning.released)}. A threshold by cost promises nothing",
    )
    title = f"Thresholds by cost: {release} a bad answer released, {block} a good one held back"
    return build_section(title, Table(TUNING_COLUMNS, rows), *map(Paragraph, sentences))
