"""The report of replays: what is proven of each cause, and the answers before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ragfault.apps.replay.records import CauseProof, ProofCount, ReplayedAnswer, ReplayReport
from ragfault.model.records import Usage
from ragfault.report.document import (
    Block,
    Heading,
    Listing,
    Paragraph,
    ReportDocument,
    Table,
    TableColumn,
    Text,
    VerdictMark,
    build_section,
)
from ragfault.report.safe_text import clean_text, clip_text
from ragfault.text.number_format import MISSING, format_cost, format_count, format_percent

CAUSES_NAMED = 3
"""Causes that the title names."""
ANSWERS_SHOWN = 3
"""Traces of which a terminal shows the answers before and after."""
ANSWER_LENGTH = 160
"""Characters of an answer in a report."""
COUNT_COLUMNS = (
    TableColumn("Cause"),
    TableColumn("Bad answers", numeric=True),
    TableColumn("Replayed", numeric=True),
    TableColumn("Proven", numeric=True),
    TableColumn("Refuted", numeric=True),
    TableColumn("Not decided", numeric=True),
)
MARKS = {
    "proven": VerdictMark("proven", "good"),
    "refuted": VerdictMark("refuted", "bad"),
    "not decided": VerdictMark("not decided", "unsure"),
    "not replayed": VerdictMark("not replayed", "open"),
}


def summarize_proofs(counts: Sequence[ProofCount]) -> str:
    """Summarize the replays of a run in one line.

    >>> count = ProofCount(cause="not_retrieved", stage="retrieval", title="", answers=31, sampled=30, proven=27,
    ...     refuted=1, undecided=2)
    >>> summarize_proofs([count])
    '31 not retrieved, 27 of 30 replayed proven'
    """
    return "; ".join(_summarize(count) for count in counts[:CAUSES_NAMED])


def _summarize(count: ProofCount) -> str:
    named = f"{count.answers:,} {count.cause.replace('_', ' ')}"
    return f"{named}, {count.proven} of {count.sampled} replayed proven" if count.sampled else f"{named}, not replayed"


def build_replay(report: ReplayReport) -> ReportDocument:
    """Build the report of the replays of a run."""
    lead: list[Block] = [Heading(summarize_proofs(report.counts), 1), Paragraph(describe_asking(report), "note")]
    if report.stopped:
        lead.append(Paragraph(f"The replay ended early: {clean_text(report.stopped)}", "warning"))
    return ReportDocument("replay", tuple(lead), tuple(build_proofs(report)))


def describe_asking(report: ReplayReport) -> str:
    """Describe what was asked, who gave the recorded answers, the price, and the noise."""
    recorded = [f"recorded answers by {clean_text(', '.join(report.old_models))}"] if report.old_models else []
    noise = f"noise {format_percent(report.noise)}: right answers to the unchanged requests"
    return " · ".join([describe_usage(report.model, report.usage), *recorded, noise])


def describe_usage(model: str, usage: Usage | None) -> str:
    """Describe what was asked, and at what price."""
    parts = [clean_text(model)]
    if usage is not None:
        parts.append(f"{usage.calls:,} calls, {format_cost(usage.cost)}")
        if usage.cached:
            parts.append(f"{usage.cached:,} more from the cache")
    return " · ".join(parts)


def build_proofs(report: ReplayReport) -> list[Block]:
    """Build the counts of each cause, and the answers before and after."""
    rows = tuple(_build_count(count) for count in report.counts)
    replayed = [proof for proof in report.proofs if proof.outcome != "not replayed"]
    order = {"refuted": 0, "proven": 1, "not decided": 2}
    shown = sorted(replayed, key=lambda proof: order[proof.outcome])
    refused = Counter((proof.cause, proof.reason) for proof in report.proofs if proof.outcome == "not replayed")
    reasons: tuple[Text, ...] = tuple(
        f"{cause.replace('_', ' ')}, {format_count(number, 'trace')}: {clean_text(reason)}"
        for (cause, reason), number in refused.most_common()
    )
    return [
        Table(COUNT_COLUMNS, rows),
        *(build_section("Not replayed", Listing(reasons, shown=5)) if reasons else ()),
        *(build_section("Before and after", Listing(_list_answers(shown), shown=ANSWERS_SHOWN)) if shown else ()),
    ]


def _build_count(count: ProofCount) -> tuple[Text, ...]:
    numbers = (count.sampled, count.proven, count.refuted, count.undecided)
    return (count.title, f"{count.answers:,}", *(str(number) if count.sampled else MISSING for number in numbers))


def _list_answers(proofs: Sequence[CauseProof]) -> tuple[Text | Listing, ...]:
    items: list[Text | Listing] = []
    for proof in proofs:
        head = f" {clean_text(proof.trace)}, {proof.cause.replace('_', ' ')}: {proof.reason}"
        items.append((MARKS[proof.outcome], head))
        texts = [f"recorded: {quote(proof.old_answer)}", *map(_describe_answer, _choose_answers(proof))]
        items.append(Listing(tuple(texts)))
    return tuple(items)


def _choose_answers(proof: CauseProof) -> list[ReplayedAnswer]:
    """Choose the first answer to each request: as it was, and with the change."""
    first: dict[str, ReplayedAnswer] = {}
    for answer in proof.answers:
        first.setdefault(answer.intervention, answer)
    return list(first.values())


def _describe_answer(answer: ReplayedAnswer) -> str:
    result = answer.error if answer.answer is None else quote(answer.answer)
    outcome = f" ({answer.outcome})" if answer.outcome else ""
    return f"{answer.intervention}{outcome}: {clean_text(result or '')}"


def quote(text: str | None) -> str:
    """Return the beginning of a text that is not to be trusted."""
    return clip_text(clean_text(" ".join((text or "").split())), ANSWER_LENGTH) or "(empty)"
