"""Sentences about comparisons that all formats share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ragfault.comparison.records import (
    MAX_NEEDED,
    Bisection,
    BranchDecision,
    BrokenSegment,
    Comparison,
    ExampleTrace,
    LayerFault,
    MetricChange,
    MovedTrace,
    SettingDifference,
    Suspect,
)
from ragfault.report.format import LAYER_TITLES, bracket_reasons, describe_label_source, format_width_ratio
from ragfault.report.safe_text import clean_text, clip_text
from ragfault.text.number_format import (
    MIN_INDEPENDENT,
    TOO_FEW,
    format_count,
    format_interval,
    format_number,
    format_p_value,
    format_percent,
    has_too_few,
)

VERDICT_GLYPHS = {"worse": "▼", "better": "▲", "steady": "=", "cannot tell": "?"}
"""Verdict on a metric → its sign, so that colour is never the only one."""

MOVERS_SHOWN = 3
"""Number of winners and losers of a metric that are named."""


def format_means(change: MetricChange) -> str:
    """Format the means of a metric: `0.812 → 0.644`."""
    if change.baseline is None or change.candidate is None:
        return "–"
    return f"{format_number(change.baseline)} → {format_number(change.candidate)}"


def format_change(change: MetricChange) -> str:
    """Format candidate less baseline with its interval: `−0.168 [−0.240, −0.096]`."""
    return format_interval(change.difference, signed=True)


def describe_quantile_changes(changes: Iterable[MetricChange]) -> list[str]:
    """Describe how quantiles and means of amounts moved, one line for each metric that has them.

    `latency: p50 812 → 900, +88 [20, 160], p 0.004; mean × 1.12 [1.05, 1.20]`.
    """
    lines = []
    for change in changes:
        if has_too_few(change.difference):
            continue
        parts = [
            f"p{100 * part.quantile:g} {format_number(part.baseline.value)} → {format_number(part.candidate.value)}, "
            f"{format_interval(part, signed=True)}{'' if part.reason else f', p {format_p_value(part.adjusted)}'}"
            for part in change.quantiles
        ]
        if change.ratio is not None and change.ratio.value is not None:
            parts.append(f"mean × {format_interval(change.ratio)}")
        if parts:
            reasons = bracket_reasons(part.reason for part in change.quantiles)
            lines.append(f"{clean_text(change.metric)}: {'; '.join(parts)}{reasons}")
    return lines


def describe_ppi(comparison: Comparison) -> list[str]:
    """Describe by whose labels differences were corrected, each with what it rests on, or why it stands as judged."""
    names = comparison.baseline, comparison.candidate
    sides = zip(comparison.label_sources, names, strict=True)
    by = [describe_label_source(source, name) for source, name in sides if source is not None]
    return [f"corrected by {'; '.join(by)}", *map(_describe_metric_ppi, comparison.changes)] if by else []


def _describe_metric_ppi(change: MetricChange) -> str:
    put = change.ppi
    name = clean_text(change.metric)
    if change.judge_difference is None or put is None:
        return f"{name} stands as judged: {'it was not labelled' if put is None else put.reason}"
    labels, what = change.evidence_count
    evidence = f"{labels:,} {what}{format_width_ratio(put.width_ratio)}"
    judged = format_interval(change.judge_difference, signed=True)
    return f"{name} {format_change(change)} by {evidence}; as judged {judged}"


def describe_verdict(change: MetricChange) -> str:
    """Describe the change of a metric, in words: worse, better, steady, or how many pairs would tell."""
    if change.identical:
        return "steady (identical)"
    if change.verdict != "cannot tell":
        return change.verdict
    if not change.n:
        return "not measured on both sides"
    return f"cannot tell (n ≈ {needed:,})" if (needed := find_useful_count(change)) else "cannot tell"


def find_useful_count(change: MetricChange) -> int | None:
    """Find how many pairs would decide a metric; None where that is no more than there are, or too many to collect."""
    if change.needed is None or not change.evidence_count[0] < change.needed <= MAX_NEEDED:
        return None
    return change.needed


def explain_undecided(comparison: Comparison) -> list[str]:
    """Explain why changes whose interval leaves out 0 cannot be told, in a sentence; none without such."""
    changes = [
        f"{clean_text(change.metric)} (p {format_p_value(change.adjusted)})"
        for change in comparison.changes
        if change.verdict == "cannot tell" and change.difference is not None and change.adjusted is not None
        if not change.difference.low <= 0 <= change.difference.high
    ]
    tested = sum(change.adjusted is not None for change in comparison.changes)
    reason = f"p, corrected for {format_count(tested, 'metric')}, is above {comparison.alpha:g}"
    begin = "Cannot tell although the interval, which is for a single metric, excludes 0"
    return [f"{begin}: {reason}: {', '.join(changes)}"] if changes else []


def describe_unpaired(change: MetricChange) -> str:
    """Describe pairs that have a value on one side only, and those lost to failures."""
    parts = [
        f"{count:,} {words}"
        for count, words in (
            (change.lost[0], "only before"),
            (change.lost[1], "only after"),
            (sum(change.failed), "failed"),
        )
        if count
    ]
    return ", ".join(parts)


def format_evidence(change: MetricChange) -> str:
    """Format by how much a change shows a fault: `−0.168 [−0.240, −0.096] on 103 pairs, p 0.004`."""
    return f"{format_change(change)} on {format_count(change.n, 'pair')}, p {format_p_value(change.adjusted)}"


def format_trace_values(example: ExampleTrace) -> str:
    """Format the values of a example trace: `1.000 → 0.300`."""
    return f"{format_number(example.baseline)} → {format_number(example.candidate)}"


def format_ruling_reason(ruling: BranchDecision) -> str:
    """Format why a branch was taken or not."""
    return re.sub(r"(?<= )-(?=\d)", "−", clean_text(ruling.why))


def group_changes(changes: Sequence[MetricChange]) -> list[tuple[str, list[MetricChange]]]:
    """Group the changes that are measured on some pair, by layer in the order of reports."""
    groups = [(layer, [change for change in changes if change.layer == layer and change.n]) for layer in LAYER_TITLES]
    return [(layer, part) for layer, part in groups if part]


def list_unmeasured(changes: Iterable[MetricChange]) -> list[str]:
    """List the metrics without a pair that is scored on both sides."""
    return [clean_text(change.metric) for change in changes if not change.n]


def list_regressions(changes: Iterable[MetricChange]) -> list[MetricChange]:
    """List the changes for the worse, the surest first."""
    regressions = [change for change in changes if change.verdict == "worse"]
    return sorted(regressions, key=lambda change: 1.0 if change.p is None else change.p)


def split_movers(change: MetricChange) -> tuple[tuple[int, tuple[MovedTrace, ...]], tuple[int, tuple[MovedTrace, ...]]]:
    """Split the traces that got worse and those that got better, each with their number."""
    sides = (change.fell, change.drops), (change.rose, change.gains)
    return sides if change.better == "higher" else (sides[1], sides[0])


def format_movers(movers: Sequence[MovedTrace]) -> str:
    """Format traces that moved, each with its values."""
    return ", ".join(
        f"{clip_text(mover.trace, 60)} ({format_number(mover.baseline)} → {format_number(mover.candidate)})"
        for mover in movers[:MOVERS_SHOWN]
    )


def summarize_movers(change: MetricChange) -> str:
    """Summarize losers and winners of a metric in a line."""
    (lost, losing), (won, winning) = split_movers(change)
    parts = [
        f"{format_count(count, 'trace')} {word}: {format_movers(some)}{' …' if count > MOVERS_SHOWN else ''}"
        for count, word, some in ((lost, "worse", losing), (won, "better", winning))
        if count
    ]
    return "; ".join(parts)


def describe_pairing(comparison: Comparison) -> list[str]:
    """Describe how the runs were paired, and what is the same in both on at least half of the pairs."""
    names = clip_text(comparison.baseline, 60), clip_text(comparison.candidate, 60)
    total = comparison.manifests[0].traces
    all_baseline = comparison.pairs + comparison.unpaired[0] == total
    share = f" ({format_percent(comparison.pairs / total)})" if total else ""
    paired = f"{comparison.pairs:,} of {total:,} traces of {names[0]} paired by {comparison.paired_by}{share}"
    if not all_baseline:
        paired = f"{comparison.pairs:,} pairs by {comparison.paired_by}"
    alone = [f"{count:,} only in {name}" for count, name in zip(comparison.unpaired, names, strict=True) if count]
    known = {item.metric for item in comparison.changes if item.n}.union(*(m.left_out for m in comparison.mismatches))
    cited = " and citations" if "citation_validity" in known else ""
    same = [
        f"identical {what} on {'every pair' if count == comparison.pairs else f'{count:,} of them'}"
        for count, what in ((comparison.same_chunks, "chunks"), (comparison.same_answers, f"answers{cited}"))
        if count
        and 2 * count >= comparison.pairs
        # else nothing is recorded
        and known - {"error", "latency", "tokens"}
    ]
    return [
        paired,
        *([comparison.dependence] if comparison.dependence else []),
        *(alone if all_baseline else []),
        *same,
    ]


def list_warnings(comparison: Comparison, sentence: str = "") -> list[str]:
    """List what keeps two runs from being fully comparable: mismatches with the metrics left out, then warnings.

    What `sentence`, shown above them, states already is left out.
    """
    texts = []
    for mismatch in comparison.mismatches:
        names = [clean_text(name) for name in mismatch.left_out]
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        left_out = f" (left out there: {', '.join(names[:4])}{more})" if names else ""
        texts.append(f"{mismatch.sentence}{left_out}")
    return [text for text in (*texts, *comparison.warnings) if text[1:] not in sentence]


def describe_test_terms(comparison: Comparison) -> str:
    """Describe the parameters of the tests, and what the pairs that are needed would tell."""
    terms = f"alpha {comparison.alpha:.3g}, power {comparison.power:.3g}, p corrected by Holm"
    aim = "needed: pairs required to detect a change as large as the margin"
    if any(has_too_few(change.difference) for change in comparison.changes):
        terms = f"{terms}; {TOO_FEW}: fewer than {MIN_INDEPENDENT} independent pairs"
    return f"{terms}; {aim}" if any(map(find_useful_count, comparison.changes)) else terms


def summarize_comparison(comparison: Comparison) -> str:
    """Summarize the comparison in a sentence: how many metrics got worse, better, stayed, or cannot be told."""
    measured = [change for change in comparison.changes if change.n]
    parts = []
    for verdict in VERDICT_GLYPHS:
        these = [clean_text(change.metric) for change in measured if change.verdict == verdict]
        if these:
            listed = f" ({', '.join(these[:4])}{', …' if len(these) > 4 else ''})" if verdict == "worse" else ""
            parts.append(f"{len(these)} {verdict}{listed}")
    count = f"{len(measured)} metric{'' if len(measured) == 1 else 's'}"
    return f"{count} on {format_count(comparison.pairs, 'paired trace')}: {', '.join(parts) or 'nothing measured'}"


def summarize_verdict(result: Bisection | LayerFault) -> str:
    """Summarize the verdict in a sentence, or a fault in a title."""
    if isinstance(result, Bisection):
        return clean_text(result.sentence)
    return f"{result.layer.capitalize()}: {clean_text(result.title)}"


def format_suspect(suspect: Suspect) -> str:
    """Format a suspect: its stage, its probability, and the evidence for it."""
    return clean_text(f"{suspect.stage} ({format_percent(suspect.probability)}): {suspect.evidence}")


def describe_segment(segment: BrokenSegment) -> str:
    """Describe where a drop is confined to, with its p."""
    p = format_p_value(segment.adjusted)
    return f"{clean_text(segment.text)} (p {p if p.startswith('<') else f'= {p}'}, {segment.pairs:,} pairs)"


def describe_setting(setting: SettingDifference) -> str:
    """Describe a changed setting, and whether the evidence supports that it caused the fault."""
    return clean_text(f"{setting.text}   {setting.outcome}: {setting.why}")


def summarize_segments(parts: Sequence[tuple[str, Bisection]], by: str) -> str:
    """Summarize the verdicts of all segments in a sentence."""
    kinds = [part.verdict for _, part in parts]
    words = {"fault": "at fault", "cannot tell": "cannot tell", "no fault": "without fault"}
    counts = [f"{kinds.count(kind)} {word}" for kind, word in words.items() if kind in kinds]
    count = f"{len(kinds)} segment{'' if len(kinds) == 1 else 's'}"
    return f"{count} by {clean_text(by)}: {', '.join(counts)}."


def combine_verdicts(parts: Iterable[Bisection]) -> str:
    """Combine the verdict over several bisections: a fault where any has one, else "cannot tell" where any cannot."""
    kinds = {part.verdict for part in parts}
    return next((kind for kind in ("fault", "cannot tell") if kind in kinds), "no fault")
