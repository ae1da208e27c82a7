"""The report of several attempts of one query: reliability, whose noise it is, and flaky queries side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ragfault.report.document import Block, Heading, Paragraph, ReportDocument, StyledText, Table, TableColumn, Text
from ragfault.report.format import join_names
from ragfault.report.safe_text import clip_text
from ragfault.text.number_format import format_count, format_interval, format_number, format_percent, format_share

if TYPE_CHECKING:
    from ragfault.diagnosis.attempts.plan import AttemptPlan
    from ragfault.diagnosis.attempts.records import AttemptReport, ComparisonMethod, FlakyQuery, MetricAttempts
    from ragfault.stats.estimates import VarianceSplit

JUDGE_ADVICE = "to tell them apart, measure the judge (ragfault judge repeat) and add --flakiness"
MAIN_METRIC = "groundedness"
"""The metric whose variance is split on the first screen if it was measured."""
COMPARISONS: dict[ComparisonMethod, str] = {"agreement": "by the encoder", "spelling": "by their words"}
"""By what answers were compared → its name."""
METRIC_COLUMNS = (
    TableColumn("Metric"),
    TableColumn("Worst of k"),
    TableColumn("Queries", numeric=True),
    TableColumn("System's noise"),
    TableColumn("Judge's noise"),
)
ANSWER_COLUMNS = (
    TableColumn("Attempt", numeric=True),
    TableColumn("Answer"),
    TableColumn("Outcome"),
    TableColumn("Meaning", numeric=True),
)


OPTION_COLUMNS = (
    TableColumn("Attempts", numeric=True),
    TableColumn("Queries", numeric=True),
    TableColumn("Power", numeric=True),
    TableColumn("Power with the same queries", numeric=True),
)


def describe_attempts(report: AttemptReport | None) -> list[str]:
    """Describe the attempts of a run in two sentences; none if each query has one.

    >>> from ragfault.diagnosis.attempts.records import AttemptReport
    >>> from ragfault.stats.estimates import Interval
    >>> report = AttemptReport(
    ...     queries=20, k=2, sizes={2: 20}, copies=0, all_right=Interval(0.8, 0.6, 0.9, 20, 20), any_right=None,
    ...     flakiness=Interval(0.2, 0.1, 0.4, 20, 20), consistency=None, metrics=(), flaky=(),
    ... )
    >>> for sentence in describe_attempts(report)[0].split("; "):
    ...     print(sentence)
    2 attempts of 20 queries: all right on 80 % [60 %, 90 %]
    answers differ in meaning (by the encoder) on 20 % [10 %, 40 %].
    """
    if report is None:
        return []
    rated = [("all right on", report.all_right), ("any right on", report.any_right)]
    unsure = f" ({format_count(report.unsure, 'unsure answer')} may be either)" if report.unsure else ""
    parts = [
        ", ".join(f"{label} {format_share(share)}" for label, share in rated if share) + unsure,
        _describe_flakiness(report),
        f"attempts share {format_share(report.consistency)} of their chunks" if report.consistency else "",
    ]
    figures = "; ".join(part for part in parts if part) or "nothing is known of their answers"
    lines = [f"{format_count(report.k, 'attempt')} of {_describe_queries(report)}: {figures}."]
    split = next((item for item in _rank_metrics(report) if item.variance is not None), None)
    if split is not None and split.variance is not None:
        unknown = "" if split.variance.judge is not None else f"; {JUDGE_ADVICE}"
        lines.append(f"Variance of {split.metric}: {describe_variance(split.variance)}{unknown}.")
    return lines


def _describe_flakiness(report: AttemptReport) -> str:
    """Describe on how many queries answers differ, by what they were compared, and of which part of the queries."""
    share = report.flakiness
    if share is None:
        return ""
    part = f" of {share.n:,} compared queries" if share.n < sum(_list_enough(report)) else ""
    return f"answers differ in meaning ({COMPARISONS[report.compared_by]}) on {format_share(share)}{part}"


def _list_enough(report: AttemptReport) -> list[int]:
    """List the numbers of queries that have k attempts or more."""
    return [queries for size, queries in report.sizes.items() if size >= report.k]


def _describe_queries(report: AttemptReport) -> str:
    """Describe the number of queries, of unequal numbers of attempts and of copies."""
    remarks = []
    if len(report.sizes) > 1:
        remarks.append(join_names([f"{queries:,} with {size}" for size, queries in report.sizes.items()]))
    if report.copies:
        remarks.append(f"{report.copies:,} more are copies")
    queries = "1 query" if report.queries == 1 else f"{report.queries:,} queries"
    return queries + (f" ({'; '.join(remarks)})" if remarks else "")


def _rank_metrics(report: AttemptReport) -> list[MetricAttempts]:
    return sorted(report.metrics, key=lambda item: (item.metric != MAIN_METRIC, item.layer != "generation"))


def describe_variance(split: VarianceSplit) -> str:
    """Describe a split of a variance in one line.

    >>> from ragfault.stats.estimates import Interval, VarianceSplit
    >>> describe_variance(VarianceSplit(0.06, 0.04, 0.0, Interval(0.4, 0.3, 0.5, 60, 20)))
    'queries 60 %, the system 40 % [30 %, 50 %], the judge 0 %'
    >>> describe_variance(VarianceSplit(0.06, 0.04, None, Interval(0.4, 0.0, 1.0, 60, 20)))
    'queries 60 %, the system and its judge 40 % (too few queries differ for an interval)'
    """
    queries, system, judge = split.shares
    noise = split.noise
    ends = f"[{format_percent(noise.low)}, {format_percent(noise.high)}]"
    if noise.high - noise.low == 1:
        ends = "(too few queries differ for an interval)"
    if judge is None:
        return f"queries {format_percent(queries)}, the system and its judge {format_percent(system)} {ends}"
    own = f"the system {format_percent(system)}"
    if not judge:
        return f"queries {format_percent(queries)}, {own} {ends}, the judge 0 %"
    return f"queries {format_percent(queries)}, {own}, the judge {format_percent(judge)}, both {ends}"


def build_attempts(report: AttemptReport | None) -> Iterator[Block]:
    """Build the section on attempts: each metric, and the flaky queries with their answers side by side."""
    if report is None:
        return
    yield Heading("Attempts")
    for line in describe_attempts(report):
        yield Paragraph(line)
    if report.metrics:
        yield Table(METRIC_COLUMNS, tuple(_list_metric(item) for item in report.metrics))
    for flaky in report.flaky:
        yield Heading(_name_query(flaky), 3)
        rows = tuple(
            (f"{item.attempt}", clip_text(item.answer or "–", 400), item.outcome, f"{item.meaning}")
            for item in flaky.answers
        )
        yield Table(ANSWER_COLUMNS, rows)


def _list_metric(item: MetricAttempts) -> tuple[Text, ...]:
    worst = format_interval(item.worst)
    if item.variance is None:
        return (item.metric, worst, "–", "–", "–")
    queries, system, judge = item.variance.shares
    share = "not measured" if judge is None else format_percent(judge)
    return (item.metric, worst, format_percent(queries), format_percent(system), share)


def _name_query(flaky: FlakyQuery) -> Text:
    name = StyledText(clip_text(flaky.query_id, 60), "strong")
    return (
        name,
        f", {_count_outcomes(flaky)} of {format_count(len(flaky.answers), 'attempt')}: ",
        StyledText(clip_text(flaky.query, 200), "quote"),
    )


def _count_outcomes(flaky: FlakyQuery) -> str:
    """Count the right attempts, and those that nobody could rate."""
    counts = Counter(answer.outcome for answer in flaky.answers)
    return f"{counts['right']} right" + (f" and {counts['unsure']} unsure" if counts["unsure"] else "")


def build_plan(plan: AttemptPlan) -> ReportDocument:
    """Build the report of a plan: the power, what it rests on, and other splits of the same number of answers."""
    power = format_percent(plan.power)
    if plan.power_low is not None and plan.power_high is not None:
        power += f" [{format_percent(plan.power_low)}, {format_percent(plan.power_high)}]"
    source = "assumed; take that of a run with --run" if plan.metric is None else f"of {plan.metric} in the run"
    answers = plan.queries * plan.attempts
    rows = tuple(
        (
            f"{option.attempts}",
            f"{option.same_cost_queries:,}",
            "–" if option.same_cost_power is None else format_percent(option.same_cost_power),
            format_percent(option.same_queries_power),
        )
        for option in plan.options
    )
    best = max(plan.options, key=lambda option: option.same_cost_power or 0.0)
    title = (
        f"{plan.queries:,} queries with {format_count(plan.attempts, 'attempt')}: a drop of {format_number(plan.drop)} "
        f"is found with a probability of {power}"
    )
    basis = (
        f"Variance of one attempt {format_number(plan.variance)}, {format_percent(plan.noise)} of it noise ({source}). "
        "The drop is that of some queries, each of which loses half the range of the metric."
    )
    advice = (
        f"Of {answers:,} answers, {best.same_cost_queries:,} queries with {format_count(best.attempts, 'attempt')} "
        "have most power."
    )
    blocks: tuple[Block, ...] = (Table(OPTION_COLUMNS, rows), Paragraph(advice))
    return ReportDocument("plan", (Heading(title, 1), Paragraph(basis, "note")), blocks)
