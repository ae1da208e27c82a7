"""The reports of a fix and of a change: what it gains or loses, what it costs, and the answers that changed."""

from __future__ import annotations

from collections.abc import Sequence

from ragfault.apps.replay.records import AskedQuery, ChangeReplay, ChangeShare, ConfigurationCost, FixReplay
from ragfault.apps.replay.report import ANSWERS_SHOWN, MARKS, describe_usage, quote
from ragfault.comparison.records import ChangeState
from ragfault.comparison.settings import MARGIN
from ragfault.report.document import (
    Block,
    Heading,
    Listing,
    Paragraph,
    ReportDocument,
    Table,
    TableColumn,
    Text,
    VerdictKind,
    VerdictMark,
    build_section,
)
from ragfault.report.format import join_names
from ragfault.report.safe_text import clean_text
from ragfault.text.number_format import MISSING, format_cost, format_count, format_number, format_percent, format_signed

STATE_KINDS: dict[ChangeState, VerdictKind] = {
    "dropped": "worse",
    "rose": "better",
    "steady": "steady",
    "cannot tell": "unsure",
}
COST_COLUMNS = (
    TableColumn("Requests"),
    TableColumn("Right", numeric=True),
    TableColumn("Bad", numeric=True),
    TableColumn("Unsure", numeric=True),
    TableColumn("Failed", numeric=True),
    TableColumn("Tokens", numeric=True),
    TableColumn("1,000 answers", numeric=True),
    TableColumn("Seconds", numeric=True),
)
SHARE_COLUMNS = (
    TableColumn("Part"),
    TableColumn("Right answers", numeric=True),
    TableColumn("Of the fall", numeric=True),
    TableColumn(""),
)
TOKENS_NOTE = "Tokens, seconds and the price of 1,000 answers are means of one answer: sent + received"


def build_fix(report: FixReplay) -> ReportDocument:
    """Build the report of a fix."""
    lead = [
        Heading(summarize_fix(report), 1, MARKS[report.outcome]),
        Paragraph(describe_usage(report.model, report.usage), "note"),
        *_build_stop(report.stopped),
    ]
    return ReportDocument("fix", tuple(lead), tuple(build_fix_body(report)))


def summarize_fix(report: FixReplay) -> str:
    """Summarize what a fix gains, in a sentence.

    >>> report = FixReplay(run="r", fix="new.txt", model="m", judge="j", outcome="proven", gain=0.3, low=0.1, high=0.5,
    ...     margin=0.05, sampled=20, became_right=7, became_bad=1, unchanged=0, used=10, costs=(), queries=())
    >>> print(summarize_fix(report))
    new.txt: right answers +30 points [+10, +50] on 20 other questions; 7 repaired, 1 broken
    """
    if report.gain is None:
        return f"{clean_text(report.fix)}: no query was answered both without the fix and with it"
    queries = format_count(report.sampled, "other question" if report.used else "question")
    text = (
        f"{clean_text(report.fix)}: right answers {format_points(report.gain, report.low, report.high)} on {queries}; "
        f"{report.became_right} repaired, {report.became_bad} broken"
    )
    return text if report.needed is None else f"{text}; about {report.needed:,} questions would decide"


def format_points(effect: float, low: float | None, high: float | None) -> str:
    """Format an effect on a share in points with its interval.

    >>> print(format_points(-0.25, -0.4, 0.02))
    −25 points [−40, +2]
    """
    ends = "" if low is None or high is None else f" [{_write_points(low)}, {_write_points(high)}]"
    return f"{_write_points(effect)} points{ends}"


def _write_points(share: float) -> str:
    return format_signed(round(100 * share), 0)


def build_fix_body(report: FixReplay) -> list[Block]:
    """Build what a fix costs, which queries were not asked, and answers that changed."""
    notes = [
        *([f"{format_count(report.used, 'trace')} left out: used to find the fault"] if report.used else []),
        *([f"the fix leaves {report.unchanged} requests as they were"] if report.unchanged else []),
    ]
    return [
        _build_costs(report.costs),
        Paragraph("; ".join([TOKENS_NOTE, *notes]) + ".", "note"),
        *_build_refused(report.refused),
        *_build_changed(report.queries, "right"),
    ]


def build_change(report: ChangeReplay) -> ReportDocument:
    """Build the report of a change divided among its parts."""
    lead = [
        Heading(summarize_change(report), 1, None if report.total is None else mark_state(report.total.state)),
        Paragraph(describe_usage(report.model, report.usage), "note"),
        *_build_stop(report.stopped),
    ]
    return ReportDocument("change", tuple(lead), tuple(build_change_body(report)))


def summarize_change(report: ChangeReplay) -> str:
    """Summarize which part explains how much of a fall."""
    total = report.total
    if total is None:
        return "No pair was answered in every configuration"
    pairs = format_count(report.sampled, "pair")
    if total.state != "dropped":
        fallen = "Right answers did not fall by more than 5 points" if total.low > -MARGIN else "No fall is shown"
        return f"{fallen}: {format_points(total.effect, total.low, total.high)} on {pairs}"
    named = [
        f"{share.parts[0]} {format_percent(share.share or 0.0)}"
        for share in sorted(report.shares, key=lambda share: share.effect)
        if share.state == "dropped"
    ]
    explained = join_names(named) if named else "no single part is shown to cause it"
    depends = any(effect.state in ("dropped", "rose") for effect in report.interactions)
    ends = [round(-100 * end) for end in (total.effect, total.high, total.low)]
    fall = f"Right answers fell by {ends[0]} points [{ends[1]}, {ends[2]}] on {pairs}"
    return f"{fall}: {explained}" + ("; parts depend on each other" if depends else "")


def build_change_body(report: ChangeReplay) -> list[Block]:
    """Build the shares of the parts, the configurations, and answers that changed."""
    effects = [*([report.total] if report.total is not None else []), *report.shares, *report.interactions]
    same = f"{report.pairs - report.changed:,} of {report.pairs:,} pairs have the same request in both runs: not asked"
    return [
        Table(SHARE_COLUMNS, tuple(map(_build_share, effects))),
        Paragraph(f"{same}." if report.pairs > report.changed else "Every pair has another request.", "note"),
        Heading("Configurations"),
        _build_costs(report.costs),
        Paragraph(f"{TOKENS_NOTE}. A configuration is named by the parts that are the candidate's.", "note"),
        *_build_refused(report.refused),
        *_build_changed(report.queries, "bad"),
    ]


def _build_share(share: ChangeShare) -> tuple[Text, ...]:
    return (
        " × ".join(share.parts) or "whole change",
        format_points(share.effect, share.low, share.high),
        MISSING if share.share is None or len(share.parts) != 1 else format_percent(share.share),
        mark_state(share.state),
    )


def mark_state(state: ChangeState) -> VerdictMark:
    """Mark the state of a share of right answers: a drop is for the worse."""
    return VerdictMark(state, STATE_KINDS[state])


def _build_costs(costs: Sequence[ConfigurationCost]) -> Table:
    return Table(COST_COLUMNS, tuple(map(_build_cost, costs)))


def _build_cost(cost: ConfigurationCost) -> tuple[Text, ...]:
    known = cost.prompt is not None and cost.completion is not None
    return (
        cost.configuration,
        *(str(count) for count in (cost.right, cost.bad, cost.unsure, cost.failed)),
        f"{cost.prompt:,.0f} + {cost.completion:,.0f}" if known else MISSING,
        MISSING if cost.cost is None else format_cost(1_000 * cost.cost),
        format_number(cost.seconds, 2),
    )


def _build_stop(stopped: str | None) -> list[Block]:
    return [Paragraph(f"The replay ended early: {clean_text(stopped)}", "warning")] if stopped else []


def _build_refused(refused: Sequence[tuple[str, int]]) -> list[Block]:
    reasons: tuple[Text, ...] = tuple(f"{count}: {clean_text(reason)}" for reason, count in refused)
    return build_section("Not asked", Listing(reasons, shown=5))


def _build_changed(queries: Sequence[AskedQuery], becomes: str) -> list[Block]:
    """Build the queries whose answer changed from the first configuration to the last, those that became so first."""
    changed = [query for query in queries if query.answers[0].outcome != query.answers[-1].outcome]
    ordered = sorted(changed, key=lambda query: query.answers[-1].outcome != becomes)
    items: list[Text | Listing] = []
    for query in ordered:
        items.append(f"{clean_text(query.trace)}: {quote(query.query)}")
        items.append(Listing(tuple(_describe_answers(query))))
    return build_section("Before and after", Listing(tuple(items), shown=ANSWERS_SHOWN))


def _describe_answers(query: AskedQuery) -> list[Text]:
    return [
        f"{answer.configuration} ({answer.outcome or 'failed'}): "
        f"{quote(answer.answer) if answer.answer is not None else clean_text(answer.error or '')}"
        for answer in query.answers
    ]
