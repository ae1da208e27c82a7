"""The report of the agreement between annotators, kind by kind, and the items on which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragfault.report.document import (
    Heading,
    Listing,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    build_section,
)
from ragfault.report.safe_text import clip_text
from ragfault.text.number_format import MIN_INDEPENDENT, MISSING, TOO_FEW, format_count, format_interval

if TYPE_CHECKING:
    from ragfault.labels.annotation.items import AnnotatorAgreement

AGREEMENT_COLUMNS = (
    TableColumn("Labels of"),
    TableColumn("Annotators"),
    TableColumn("Labelled", numeric=True),
    TableColumn("By two or more"),
    TableColumn("Agreement"),
    TableColumn("Kappa"),
    TableColumn("Alpha"),
)

DISPUTES_SHOWN = 10
ANSWER_WORDS = {True: "yes", False: "no"}


def build_annotators(agreements: Sequence[AnnotatorAgreement]) -> ReportDocument:
    """Build the report of the agreement on each kind of label."""
    title = "Agreement between annotators"
    disputes = [(item.kind, dispute) for item in agreements for dispute in item.disputes]
    lines: list[Text] = []
    for kind, dispute in disputes:
        labels = ", ".join(
            f"{clip_text(name, 20)}: {_format_label(value)}" for name, value in sorted(dispute.values.items())
        )
        item = clip_text(" ".join(str(part) for part in dispute.key[1:] if part not in ("level", "refused")), 40)
        lines.append((StyledText(clip_text(dispute.trace, 40), "strong"), f"  {kind} {item}: {labels}"))
    disputed = f"They disagree on {format_count(len(disputes), 'item')}"
    body = (
        Table(AGREEMENT_COLUMNS, tuple(map(_build_row, agreements))),
        *build_section(disputed, Listing(tuple(lines), shown=DISPUTES_SHOWN)),
    )
    return ReportDocument(title, (Heading(title, 1),), body)


def _build_row(agreement: AnnotatorAgreement) -> tuple[Text, ...]:
    cells = [format_interval(figure) for figure in (agreement.accuracy, agreement.kappa, agreement.alpha)]
    if agreement.shared < MIN_INDEPENDENT:
        cells = [cell.split(" [")[0] + ("" if cell == MISSING else f" [{TOO_FEW}]") for cell in cells]
    return (
        agreement.kind,
        ", ".join(clip_text(name or "unnamed", 20) for name in agreement.annotators),
        f"{agreement.items:,}",
        f"{agreement.shared:,}" if agreement.reason is None else f"0: {agreement.reason}",
        *cells,
    )


def _format_label(value: object) -> str:
    return ANSWER_WORDS[value] if isinstance(value, bool) else clip_text(str(value), 30)
