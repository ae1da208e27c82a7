"""Certificates and decisions of the guard in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragfault.guard.certificate import Certificate, RouteCertificate
from ragfault.reports.format import clean_text
from ragfault.reports.terminal.scorecard import build_text_table, render_rich
from ragfault.text.number_format import MISSING, format_number, format_percent, format_share

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
    parts.append(Text(f"judge {clean_text(certificate.judge)}, {certificate.date}", style="dim"))
    parts.append(build_text_table(CERTIFICATE_HEADINGS, [_list_cells(part) for part in certificate.routes]))
    for part in certificate.routes:
        if part.reason:
            parts.append(Text(f"{_name_route(part)}: nothing is promised: {part.reason}"))
        if part.design_effect > 1:
            effect = format_number(part.design_effect)
            parts.append(Text(f"{_name_route(part)}: counts are divided by {effect}, as answers of a group are alike"))
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
