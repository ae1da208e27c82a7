"""Sentences about runs, scorecards and steps that all formats share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ragfault.comparison.records import describe_dependence
from ragfault.diagnosis.languages import describe_foreign, describe_wrapped
from ragfault.diagnosis.records import HEALTH_ALERTS
from ragfault.judges.cards.card import JudgeCard, list_cards, load_card, lookup_card
from ragfault.report.document import StyledText, Text
from ragfault.report.safe_text import clean_text, clip_text
from ragfault.text.number_format import format_cost, format_count, format_interval, format_number, format_percent

if TYPE_CHECKING:
    from ragfault.comparison.records import MetricChange
    from ragfault.comparison.run_history import MetricHistory
    from ragfault.diagnosis.records import Findings, GoldAgreement, HealthAlert, MetricAggregate
    from ragfault.diagnosis.steps.records import FaultyStep, StepSuspect
    from ragfault.io.runs.run import Manifest
    from ragfault.model.records import Usage


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

    >>> from ragfault.model.records import Usage
    >>> format_usage(Usage(calls=1200, cached=30, prompt=1_000_000, completion=200_000, cost=0.27))
    '1,200 calls to the model, 1,000,000 tokens sent and 200,000 received: US$ 0.2700; the cache answered 30 more'
    """
    calls = f"{usage.calls:,} call{'s' if usage.calls != 1 else ''} to the model"
    tokens = f"{usage.prompt:,} tokens sent and {usage.completion:,} received"
    cached = f"; the cache answered {usage.cached:,} more" if usage.cached else ""
    return f"{calls}, {tokens}: {format_cost(usage.cost)}{cached}"


def describe_alert(alert: HealthAlert) -> str:
    """Describe an alert of RAG health: its figure, on which side of the limit it is, and how severe that is.

    >>> from ragfault.diagnosis.records import HealthAlert
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
        describe_foreign(manifest.judge, findings.languages, manifest.traces),
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


def describe_faulty_step(finding: FaultyStep) -> str:
    """Describe the first faulty step of one trace in a sentence, or that it cannot be told."""
    if finding.status == "no fault":
        return "no step is faulty"
    if finding.status == "cannot tell" or not finding.suspects:
        first = next(iter(finding.suspects), None)
        suspected = f"; most suspected: {format_step_suspect(first)}" if first is not None else ""
        return f"cannot tell ({clean_text(finding.reason or 'no step stands out')}){suspected}"
    if finding.best is None:
        steps = ", ".join(clean_text(suspect.step) for suspect in finding.suspects)
        return f"one of the steps is faulty ({clean_text(finding.reason or 'which one is not known')}): look at {steps}"
    return format_step_suspect(finding.best)


def format_step_suspect(suspect: StepSuspect) -> str:
    """Format a suspected step: its kind, its layer and what was seen."""
    who = ", ".join(filter(None, (suspect.kind, suspect.agent)))
    seen = "; ".join(suspect.evidence) or "nothing was seen; it is the last step"
    name = f"step {suspect.step}" + (f" ({who})" if who else "")
    return clean_text(f"{name}  {suspect.layer}, {suspect.fault.replace('_', ' ')}: {seen}")
