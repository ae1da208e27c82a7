"""Sentences about scorecards and comparisons that all formats share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ragfault.comparison.gate.regression import MAX_NEEDED
from ragfault.comparison.records import (
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
    describe_dependence,
)
from ragfault.comparison.run_history import MetricHistory
from ragfault.diagnosis.languages import describe_foreign, describe_wrapped
from ragfault.diagnosis.records import Findings, GoldAgreement, HealthAlert, MetricAggregate
from ragfault.diagnosis.scorecard import HEALTH_ALERTS
from ragfault.diagnosis.steps.records import FaultyStep, StepSuspect
from ragfault.io.runs.run import Manifest
from ragfault.judges.cards.card import JudgeCard, list_cards, load_card, lookup_card
from ragfault.model.records import Usage
from ragfault.report.document import StyledText, Text
from ragfault.report.format import (
    LAYER_TITLES,
    bracket_reasons,
    clean_text,
    clip_text,
    describe_label_source,
    format_width_ratio,
)
from ragfault.text.number_format import (
    MIN_INDEPENDENT,
    TOO_FEW,
    format_cost,
    format_count,
    format_interval,
    format_number,
    format_p_value,
    format_percent,
    has_too_few,
)


def describe_judge_usage(findings: Findings) -> Iterator[str]:
    """Describe the lines on a run whose judge asked a model; none for other runs."""
    if (usage := findings.manifest.usage) is not None:
        unanswered = "; calls without a reply count as the most that they may cost" if findings.manifest.failed else ""
        yield f"{format_usage(usage)}{unanswered}"
    if findings.suspected_injections:
        hold = "hold" if findings.suspected_injections != 1 else "holds"
        traces = format_count(findings.suspected_injections, "trace")
        yield f"{traces} {hold} text that looks like an instruction to the judge"


def format_usage(usage: Usage) -> str:
    """Format what calls to a model cost.

    >>> format_usage(Usage(calls=1200, cached=30, prompt=1_000_000, completion=200_000, cost=0.27))
    '1,200 calls to the model, 1,000,000 tokens sent and 200,000 received: US$ 0.2700; the cache answered 30 more'
    """
    calls = f"{usage.calls:,} call{'s' if usage.calls != 1 else ''} to the model"
    tokens = f"{usage.prompt:,} tokens sent and {usage.completion:,} received"
    cached = f"; the cache answered {usage.cached:,} more" if usage.cached else ""
    return f"{calls}, {tokens}: {format_cost(usage.cost)}{cached}"


def describe_alert(alert: HealthAlert) -> str:
    """Describe an alert of RAG health: its figure, on which side of the limit it is, and how severe that is.

    >>> describe_alert(HealthAlert(name="LOW_USAGE", severity="medium", value=0.2, limit=0.4, certain=False))
    'chunk_utilization 0.200 is below 0.4, which may be chance; severity: medium'
    """
    figure = next(figure for name, _, figure, _ in HEALTH_ALERTS if name == alert.name)
    side = "above" if alert.value > alert.limit else "below"
    sure = "with its whole interval" if alert.certain else "which may be chance"
    return f"{figure} {format_number(alert.value)} is {side} {alert.limit:g}, {sure}; severity: {alert.severity}"


def list_run_warnings(findings: Findings) -> list[str]:
    """List warnings on languages and markup that the judge does not know, and on gold ids that no trace retrieves."""
    manifest, unmatched = findings.manifest, findings.unmatched_gold
    texts = [
        describe_foreign(manifest.judge, findings.foreign_traces, manifest.traces),
        describe_wrapped(manifest.judge, findings.markup_answers, manifest.traces),
    ]
    if unmatched:
        texts.append(
            f"none of the chunk ids that gold names is retrieved by any of {format_count(unmatched, 'trace')}: if they "
            "are ids of another index, no metric of gold ids (recall@k, ndcg@k, …) means anything here"
        )
    return [clean_text(text) for text in texts if text]


def describe_trace_count(manifest: Manifest, aggregates: Iterable[MetricAggregate] = ()) -> str:
    """Describe how many traces a run has, of how many if it stopped or is a sample, and how many are independent."""
    text = format_count(manifest.traces, "trace")
    if manifest.population:
        text = describe_sample_size(manifest.traces, manifest.population)
    elif manifest.planned:
        text = f"partial run: {manifest.traces:,} of {format_count(manifest.planned, 'trace')}"
    dependence = describe_dependence(manifest.traces, [item.interval for item in aggregates])
    return f"{text}, {dependence}" if dependence else text


def describe_sample_size(traces: int, population: int) -> str:
    """Describe the size of a random sample and of what it was drawn from."""
    return f"random sample: {traces:,} of {format_count(population, 'trace')}"


MEASURE_COMMAND = "ragfault judge measure LABELS --card .ragfault/cards/NAME.json"
"""Command that measures a judge, so that its figures are shown."""


def describe_judge_trust(fingerprint: str) -> str | None:
    """Describe how far a judge agrees with people, by its card; None where there was no judge.

    >>> describe_judge_trust("mine/1")
    'mine/1: never measured against human labels (ragfault judge measure LABELS --card .ragfault/cards/NAME.json)'
    """
    name = clean_text(fingerprint).split(" ")[0]
    if name.split("/")[0] in ("", "none"):
        return None
    card = lookup_card(fingerprint)
    if card is None or not card.measured:
        known = load_card(name.split("/")[0]).fingerprint.split() if name.split("/")[0] in list_cards() else [""]
        others = " ".join(item for item in clean_text(fingerprint).split() if item not in known)
        with_settings = f" with {clip_text(others, 60)}" if others and known[0] == name else ""
        return f"{name}{with_settings}: never measured against human labels ({MEASURE_COMMAND})"
    return f"{name}: {_describe_measurements(card)}"


def summarize_judge_trust(fingerprint: str) -> str | None:
    """Summarize how far a judge agrees with people in a short line; None where there was no judge.

    >>> summarize_judge_trust("mine/1")
    'Judge mine/1 was never measured against human labels.'
    """
    name = clip_text(clean_text(fingerprint).split(" ")[0], 40)
    if name.split("/")[0] in ("", "none"):
        return None
    card = lookup_card(fingerprint)
    if card is None or not card.measured:
        return f"Judge {name} was never measured against human labels."
    best = max(card.measured, key=lambda entry: entry.n)
    figure = best.balanced_accuracy
    share = f"right on {format_percent(figure.value)} of {best.level}s" if figure and figure.value else "measured"
    return f"Judge {name}: {share} against human labels (ragfault judge card)."


def list_unusable_verdicts(findings: Findings) -> list[str]:
    """List the verdicts of the judge that the gold of this run shows to be wrong too often, one sentence each."""
    texts = []
    for item in findings.gold_agreement:
        if item.usable is False and item.statistic == "precision":
            of = f"{item.positives:,} of {item.positives + item.negatives:,}"
            texts.append(f"Checked against your gold: only {of} alarms of {item.verdict} were right.")
    return texts


def _describe_measurements(card: JudgeCard) -> str:
    """Describe the figures of the largest set, and how many more there are."""
    best = max(card.measured, key=lambda entry: entry.n)
    estimates = {"balanced accuracy": best.balanced_accuracy, "kappa": best.kappa}
    figures = ", ".join(
        f"{name} {format_interval(estimate)}"
        for name, estimate in estimates.items()
        if estimate is not None and estimate.value is not None
    )
    more = len(card.measured) - 1
    rest = f"; {more:,} more set{'' if more == 1 else 's'} on its card" if more else ""
    units = f"{best.n:,} {best.level}{'' if best.n == 1 else 's'} of {clip_text(best.set, 60)}"
    return f"measured against human labels on {units}: {figures or 'no figures'}{rest}"


def describe_gold_agreement(findings: Findings) -> list[str]:
    """Describe how far the judge of a run agrees with its gold, and which verdicts are too often wrong to act on."""
    if not findings.gold_agreement:
        return []
    use = "decides before the judge" if findings.manifest.gold == "apply" else "is ignored in metrics from verdicts"
    figures = "; ".join(map(_describe_agreement, findings.gold_agreement))
    lines = [f"gold {use}; the judge against it on this data: {figures}"]
    low = dict.fromkeys(item.verdict for item in findings.gold_agreement if item.usable is False)
    if low:
        lines.append(f"too often wrong on this data to act on without gold: {', '.join(low)} by this judge")
    return lines


def _describe_agreement(item: GoldAgreement) -> str:
    """Describe one figure with its cases: `chunk relevance: AUROC 0.93 (95 gold chunks, 119 others)`."""
    few = "; too few to tell" if item.usable is None else "; too low" if item.usable is False else ""
    name = f"{item.verdict}: {item.statistic} {format_number(item.value)}"
    if item.interval is not None:
        total = item.positives + item.negatives
        low, high = map(format_number, item.interval)
        of = "alarms" if item.statistic == "precision" else "traces that lack gold"
        return f"{name} [{low}, {high}] ({item.positives:,} of {total:,} {of}{few})"
    kinds = ("gold", "other chunks") if item.verdict == "chunk relevance" else ("right", "wrong answers")
    return f"{name} ({item.positives:,} {kinds[0]}, {item.negatives:,} {kinds[1]}{few})"


VERDICT_GLYPHS = {"worse": "▼", "better": "▲", "steady": "=", "cannot tell": "?"}
"""Verdict on a metric → its sign, so that colour is never the only one."""

MOVERS_SHOWN = 3
"""Number of winners and losers of a metric that are named."""


def format_segment(name: str | None) -> str:
    """Format a segment's name, short and clean."""
    return "(none)" if name is None else clip_text(name, 60)


def format_metric(item: MetricChange | MetricAggregate | MetricHistory) -> str:
    """Format the name of a metric, with a sign where lower is better."""
    return clean_text(item.metric) + (" ↓" if item.better == "lower" else "")


def name_metric(item: MetricChange | MetricAggregate | MetricHistory) -> Text:
    """Name a metric in a document, with a sign where lower is better."""
    name = StyledText(item.metric, "code")
    return (name, " ↓") if item.better == "lower" else name


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
    begin = "Cannot tell although the interval, which is for one metric alone, leaves out 0"
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
    aim = "needed: pairs that tell a change of the margin from none, up or down (a gate asks about a worsening alone)"
    if any(has_too_few(change.difference) for change in comparison.changes):
        terms = f"{terms}; {TOO_FEW}: fewer than {MIN_INDEPENDENT} independent pairs, of which nothing is told"
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
    sure = "" if result.certain else " (on the traces whose retrieval did not get worse)"
    return f"{result.layer.capitalize()}: {clean_text(result.title)}{sure}"


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
    words = (("fault", "at fault"), ("cannot tell", "cannot be told"), ("no fault", "without fault"))
    counts = [f"{kinds.count(kind)} {word}" for kind, word in words if kind in kinds]
    count = f"{len(kinds)} segment{'' if len(kinds) == 1 else 's'}"
    return f"Of {count} by {clean_text(by)}: {', '.join(counts)}."


def combine_verdicts(parts: Iterable[Bisection]) -> str:
    """Combine the verdict over several bisections: a fault where any has one, else "cannot tell" where any cannot."""
    kinds = {part.verdict for part in parts}
    return next((kind for kind in ("fault", "cannot tell") if kind in kinds), "no fault")


def describe_faulty_step(finding: FaultyStep) -> str:
    """Describe the first faulty step of one trace in a sentence, or that it cannot be told."""
    if finding.status == "no fault":
        return "no step is faulty"
    if finding.status == "cannot tell" or not finding.suspects:
        first = next(iter(finding.suspects), None)
        suspected = f"; most suspected: {format_step_suspect(first)}" if first is not None else ""
        return f"cannot tell ({clean_text(finding.reason or 'no step stands out')}){suspected}"
    if len(finding.suspects) == 1:
        return format_step_suspect(finding.suspects[0])
    others = ", ".join(clean_text(suspect.step) for suspect in finding.suspects[1:])
    likeliest = format_step_suspect(finding.suspects[0])
    return f"one of {len(finding.suspects)} steps, with 90 % confidence: {likeliest}; or step {others}"


def format_step_suspect(suspect: StepSuspect) -> str:
    """Format a suspected step: its kind, its probability, its layer and what was seen."""
    who = ", ".join(filter(None, (suspect.kind, suspect.agent)))
    seen = "; ".join(suspect.evidence) or "nothing specific was seen; its place and form are those of faulty steps"
    name = f"step {suspect.step}" + (f" ({who})" if who else "")
    return clean_text(
        f"{name}  {format_percent(suspect.probability)}  {suspect.layer}, {suspect.fault.replace('_', ' ')}: {seen}"
    )
