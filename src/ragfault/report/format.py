"""Numbers, texts and names as every report writes them; texts of traces made harmless."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from ragfault.diagnosis.diagnosis import PROBLEM_KINDS
from ragfault.report.safe_text import clean_label, clean_text, clip_text
from ragfault.stats.estimates import CorrectedShare, PpiMean
from ragfault.text.number_format import format_bounds, format_count, format_interval, format_number, has_too_few

if TYPE_CHECKING:
    from ragfault.diagnosis.causes.records import OutcomeSource
    from ragfault.diagnosis.records import Diagnosis, GateOutcome, MetricAggregate, ProblemKind, Scorecard
    from ragfault.labels.records import CardCorrection, LabelProvenance
    from ragfault.model.records import Layer

OUTCOME_SOURCES: Mapping[OutcomeSource, str] = {
    "labels": "your labels", "answer key": "your answer key", "pipeline": "the record", "judge": "the judge",
    "other run": "the other run",
}  # fmt: skip
"""Evidence that an answer is right or bad, in words."""

LAYER_TITLES = {
    "retrieval": "Retrieval",
    "generation": "Generation",
    "crosscut": "Across the layers",
    "operation": "Operation",
}
"""The layers in the order of reports, in words."""

TARGET_RESULTS: dict[GateOutcome, str] = {"pass": "met", "fail": "missed", "cannot tell": "cannot tell"}
"""Result of a target, in words."""

LAYER_QUESTIONS: dict[Layer, tuple[str, str]] = {
    "retrieval": ("Retrieval", "Did the right chunks arrive, in the right order?"),
    "generation": ("Generation", "Is the answer grounded in the chunks, to the point and complete?"),
    "crosscut": ("Cross-cut", "Retrieval and generation together, and against the truth."),
    "operation": ("Operation", "What it costs in time, tokens and failures."),
}

RESULT_SIGNS = {"pass": ("✓", "met"), "fail": ("✗", "missed"), "cannot tell": ("≈", "cannot tell")}
"""Result of a target as a sign and a word."""

NONRANDOM_P = 0.001
"""The p below which labelled traces are said not to be drawn at random."""

CORRECTED_HEADING = "corrected for the judge's error"
PPI_HEADING = "corrected by labels"
"""The headings of figures that are."""


def get_correction_heading(card: Scorecard) -> str | None:
    """Return the kind of corrected figures shown beside the judged ones; None if there are none."""
    return CORRECTED_HEADING if card.correction else PPI_HEADING if card.label_source else None


def list_corrections(card: Scorecard) -> list[tuple[MetricAggregate, str]]:
    """List the metrics that are corrected, each with its figures, or why it has none."""
    corrected: list[tuple[MetricAggregate, CorrectedShare | PpiMean | None]] = [
        (item, item.corrected or item.ppi) for item in card.aggregates
    ]
    return [
        (
            item,
            f"{format_interval(correction.interval)}{format_label_gain(correction)}"
            if correction.interval
            else f"– ({correction.reason})",
        )
        for item, correction in corrected
        if correction is not None
    ]


def format_label_gain(corrected: CorrectedShare | PpiMean) -> str:
    """Format by how many labels a figure was corrected, and what that does to its interval."""
    if isinstance(corrected, CorrectedShare):
        return ""
    return f" ({corrected.labelled:,} labels{format_width_ratio(corrected.width_ratio)})"


def format_width_ratio(gain: float | None) -> str:
    """Format the width of a corrected interval beside that of the labels alone."""
    return "" if gain is None else f", {gain:.2f} × the width by only the labels"


def describe_label_source(labels: LabelProvenance, run: str = "") -> str:
    """Describe by whom figures were corrected: `ann, 60 traces`."""
    of = f" of {clip_text(run, 60)}" if run else ""
    return f"{clip_text(labels.labelers, 120)}, {format_count(labels.traces, 'trace')}{of}"


def explain_corrections(card: Scorecard) -> list[str]:
    """Explain what the figures beside those as judged rest on, in sentences."""
    if card.correction is not None:
        return explain_judge_correction(card.correction)
    if card.label_source is None:
        return []
    return [
        f"By {describe_label_source(card.label_source)}. The judge's mean over all traces, corrected by how it differs "
        "from the labels (PPI++): this assumes that the labelled traces are a random draw of all. Targets are decided "
        "on the corrected figures; metrics without labels stay as judged.",
        *_warn_nonrandom_labels(card),
    ]


def _warn_nonrandom_labels(card: Scorecard) -> list[str]:
    """Warn a warning where the labelled traces are not like the others."""
    tests = [(item.metric, item.ppi.random_sample_p) for item in card.aggregates if item.ppi]
    metrics = [metric for metric, p in tests if p is not None and p < NONRANDOM_P]
    if not metrics:
        return []
    return [
        f"Warning: by {join_names(metrics)} the judge scores labelled traces unlike the rest (p < {NONRANDOM_P:g}). "
        "They do not look like a random draw, and then the corrected figures can be wrong."
    ]


def explain_judge_correction(correction: CardCorrection) -> list[str]:
    """Explain what figures were corrected by, and what that assumes, in sentences."""
    lines = [
        f"By the card of {clean_text(correction.judge)}, {entry.corrects} verdicts: sensitivity "
        f"{format_interval(entry.sensitivity)} on {entry.sensitivity.n:,}, specificity "
        f"{format_interval(entry.specificity)} on {entry.specificity.n:,}, measured on {clean_text(entry.set)} "
        f"({entry.shape}; {clean_text(entry.split)}); positive is what is bad."
        for entry in correction.figures
        if entry.sensitivity and entry.specificity
    ]
    return [
        *lines,
        "The correction assumes that the judge errs here as it did on those labelled data; on answers of another shape "
        "the corrected figures can be further off than those as judged. Targets are decided on the figures as judged; "
        "metrics that are not a rate of one kind of verdict stay as judged.",
    ]


def group_unmeasured_metrics(card: Scorecard) -> list[tuple[str, list[str]]]:
    """Group the metrics that have no value on any trace, gathered by the commonest reason."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for item in card.aggregates:
        if item.interval is None:
            groups[get_common_reason(item) or "no trace"].append(item.metric)
    return list(groups.items())


def group_failures(card: Scorecard) -> list[tuple[str, list[str]]]:
    """Group the failures of metrics that have a value on other traces, gathered by reason, the commonest first."""
    groups: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for item in card.aggregates:
        for reason in item.why_failed if item.interval is not None else ():
            groups[clip_text(reason.text, 200)][item.metric] = reason.count
    ordered = sorted(groups.items(), key=lambda group: -sum(group[1].values()))
    return [(reason, [f"{metric} ×{count:,}" for metric, count in counts.items()]) for reason, counts in ordered]


def get_common_reason(aggregate: MetricAggregate) -> str:
    """Return the commonest reason for scores without a value; a failure goes before what is merely undefined."""
    reasons = aggregate.why_failed or aggregate.why_undefined
    lost = "failed: " if aggregate.why_failed else ""
    return f"{lost}{clip_text(reasons[0].text, 200)}" if reasons else ""


def get_problem_title(kind: str) -> str:
    """Return a kind of problem in words; a kind that is not known, as in a stored registry, as it stands.

    >>> get_problem_title("irrelevant_chunk"), get_problem_title("of_another_version")
    ('irrelevant chunks', 'of_another_version')
    """
    problem = PROBLEM_KINDS.get(cast("ProblemKind", kind))
    return problem.title if problem else clean_label(kind)


def summarize_problems(diagnosis: Diagnosis) -> list[tuple[str, int, str]]:
    """Summarize the problems of a trace by kind: the kind in words, how many, and the first with its reason."""
    counts = Counter(problem.kind for problem in diagnosis.problems)
    lines = []
    for kind, count in counts.items():
        first = next(problem for problem in diagnosis.problems if problem.kind == kind)
        text = clip_text(first.text, 160)
        lines.append(
            (PROBLEM_KINDS[kind].title, count, f"{text} ({clip_text(first.reason, 120)})" if first.reason else text)
        )
    return lines


def join_names(items: Iterable[str]) -> str:
    """Join names, each clean.

    >>> join_names(["t1", "t2"])
    't1, t2'
    """
    return ", ".join(clip_text(item, 60) for item in items)


def describe_quantiles(items: Iterable[MetricAggregate]) -> list[str]:
    """Describe the quantiles of metrics that have them, one line for each, with why an end is undefined.

    An end that is undefined is a dash: `latency: p50 812 [640, 990], p95 1,900 [1,500, –] (the upper end …)`.
    """
    lines = []
    for item in items:
        if item.quantiles:
            parts = [
                f"p{100 * part.quantile:g} {format_number(part.value)} {format_bounds(part)}" for part in item.quantiles
            ]
            reasons = bracket_reasons(part.reason for part in item.quantiles if not has_too_few(part))
            lines.append(f"{clean_text(item.metric)}: {', '.join(parts)}{reasons}")
    return lines


def bracket_reasons(reasons: Iterable[str | None]) -> str:
    """Put the reasons that there are in brackets, each once, after a space; nothing for none.

    >>> bracket_reasons(["too few", None, "too few"])
    ' (too few)'
    """
    texts = list(dict.fromkeys(filter(None, reasons)))
    return f" ({'; '.join(texts)})" if texts else ""


def group_by_layer(card: Scorecard) -> list[tuple[str, Sequence[MetricAggregate]]]:
    """Group the metrics that have a value, by layer in the order of reports."""
    return [
        (layer, items)
        for layer in LAYER_TITLES
        if (items := [item for item in card.aggregates if item.layer == layer and item.interval])
    ]


def select_segment_metrics(card: Scorecard) -> set[str]:
    """Select the metrics shown for each segment: those with a target, and the triad's parts."""
    return {
        item.metric
        for item in card.aggregates
        if item.interval and (item.target or item.metric in ("context_relevance", "groundedness", "answer_relevance"))
    }


def format_minute(minute: float) -> str:
    """Format a minute since 1970 as a date and time, UTC.

    >>> format_minute(29_393_700)
    '2025-11-20 07:00'
    """
    return datetime.fromtimestamp(60 * minute, UTC).strftime("%Y-%m-%d %H:%M")


def format_duration(minutes: float) -> str:
    """Format a length of time as short as possible.

    >>> format_duration(45), format_duration(90), format_duration(1440), format_duration(4000), format_duration(172_800)
    ('45 min', '90 min', '24 h', '2.8 d', '120 d')
    """
    if minutes < 120:
        return f"{minutes:g} min"
    days = minutes / 1440
    return f"{minutes / 60:.3g} h" if days < 2 else f"{days:.2g} d" if days < 10 else f"{days:,.0f} d"


def format_time(text: str) -> str:
    """Format the ISO time of a run to the minute.

    >>> format_time("2026-02-03T04:05:06Z")
    '2026-02-03 04:05 UTC'
    """
    day, _, clock = clean_label(text, 40).partition("T")
    return f"{day} {clock[:5]} UTC" if clock else day
