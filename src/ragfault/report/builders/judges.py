"""The reports about judges: cards, two judges compared, one judge repeated, rubrics, and preferences of people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ragfault.model.grouping import group_by
from ragfault.report.builders.agreement import FIGURE_TITLES, format_speed
from ragfault.report.document import (
    Block,
    Heading,
    Listing,
    Paragraph,
    ReportDocument,
    StyledText,
    Table,
    TableColumn,
    Text,
    VerdictMark,
    build_section,
)
from ragfault.report.safe_text import clean_text, clip_text
from ragfault.stats.estimates import BASE_RATES, BootstrapEstimate
from ragfault.text.number_format import MISSING, format_count, format_interval, format_number, format_percent

if TYPE_CHECKING:
    from ragfault.judges.cards.card import CardEntry, JudgeCard
    from ragfault.labels.judges.comparison import JudgeComparison, JudgeDisagreement
    from ragfault.labels.judges.contest import JudgeContest
    from ragfault.labels.judges.flakiness import JudgeFlakiness
    from ragfault.labels.preferences import PreferenceReport
    from ragfault.labels.rubrics.proofs import RubricMeasurement, RubricProof

CARD_COLUMNS = (
    TableColumn("Set"),
    TableColumn("What was judged"),
    TableColumn("Level"),
    TableColumn("n", numeric=True, aside=True),
    TableColumn("Bad", numeric=True, aside=True),
    TableColumn("AUROC", aside=True),
    TableColumn("Within", aside=True),
    TableColumn("AUROC of lexical", aside=True),
    TableColumn("AUROC of trivial", aside=True),
    TableColumn("F1", aside=True),
    TableColumn("Recall at precision 0.80", numeric=True, aside=True),
    TableColumn("Order of generators", aside=True),
    TableColumn("F1 at 5 / 10 / 20 / 40 % bad", aside=True),
    TableColumn("Sensitivity", aside=True),
    TableColumn("Specificity", aside=True),
    TableColumn("Balanced accuracy", aside=True),
    TableColumn("Calibration error", numeric=True, aside=True),
    TableColumn("Bias of groundedness", aside=True),
    TableColumn("Verbosity", aside=True),
    TableColumn("Moved by the order of chunks", aside=True),
)
VERDICT_COLUMNS = (
    TableColumn("Verdicts on"),
    TableColumn("n", numeric=True),
    TableColumn("Only by the first, only by the second", room=100),
    TableColumn("Alike"),
    TableColumn("Kappa"),
    TableColumn("Alpha"),
)
METRIC_COLUMNS = (
    TableColumn("Metric"),
    TableColumn("Layer", room=100),
    TableColumn("n", numeric=True),
    TableColumn("First", numeric=True),
    TableColumn("Second", numeric=True),
    TableColumn("Second less first"),
    TableColumn("Correlation"),
)
CONTEST_COLUMNS = (TableColumn("Figure"), TableColumn("First"), TableColumn("Second"), TableColumn("Second less first"))
FLAKINESS_COLUMNS = (
    TableColumn("Metric"),
    TableColumn("n", numeric=True),
    TableColumn("Within a trace", numeric=True),
    TableColumn("Traces that move", numeric=True),
    TableColumn("Reliability", numeric=True),
    TableColumn("Drift of the mean", numeric=True),
)
RUBRIC_COLUMNS = (
    TableColumn("Rubric"),
    TableColumn("Labels", numeric=True),
    TableColumn("Agree"),
    TableColumn("Kappa"),
    TableColumn("Repeated", numeric=True),
    TableColumn("Alike", numeric=True),
)
PREFERENCE_COLUMNS = (
    TableColumn("Version"),
    TableColumn("Compared", numeric=True),
    TableColumn("Wins", numeric=True),
    TableColumn("Strength"),
    TableColumn("Chance against the mean"),
)

FITTED_MARK = " ¹"
"""Stands beside the sets that the judge was fitted on, in part."""

DISAGREEMENTS_SHOWN = 10
"""Items shown in a terminal on which two judges differ."""

VERDICT_TITLES = {
    "chunk": "relevance of chunks", "use": "use of chunks", "claim": "support of claims", "citation": "citations",
    "fact": "expected facts", "recall": "what the chunks cover", "refusal": "refusals",
}  # fmt: skip
"""Kind of verdict → what it is on, in words."""

ANSWER_WORDS = {True: "yes", False: "no"}


def build_judge_card(card: JudgeCard) -> ReportDocument:
    """Build the card of a judge: its figures on each set of labels, its weaknesses, and what it is."""
    facts = {
        "fingerprint": card.fingerprint,
        "reads": card.reads,
        "made from": "; ".join(card.training) or "nothing",
        "licence": card.licence,
        "size": card.size,
        "speed": card.speed,
    }
    listed = tuple((StyledText(f"{name}: ", "strong"), text) for name, text in facts.items())
    body = [
        *build_section("Measured against human labels", *build_card_figures(card)),
        *build_section("Known weaknesses", Listing(card.weaknesses)),
        *build_section("What it is", Listing(listed)),
    ]
    title = f"The judge {card.judge}"
    return ReportDocument(title, (Heading(title, 1), Paragraph(card.summary)), tuple(body))


def build_card_figures(card: JudgeCard) -> list[Block]:
    """Build the figures of a card, a row for each set of labels, with notes and commands below."""
    notes: list[Block] = [Paragraph(note, "note") for note in _list_card_notes(card)]
    rows = [_build_card_row(entry) for entry in card.measured]
    known = [place for place in range(len(CARD_COLUMNS)) if any(row[place] != MISSING for row in rows)]
    table = Table(
        tuple(CARD_COLUMNS[place] for place in known), tuple(tuple(row[place] for place in known) for row in rows)
    )
    return [table, *notes]


def _build_card_row(entry: CardEntry) -> tuple[Text, ...]:
    predicted = " / ".join(format_number(entry.predict_f1(rate)) for rate in BASE_RATES)
    return (
        entry.set + (FITTED_MARK if entry.trained_on else ""),
        entry.shape,
        entry.level,
        f"{entry.n:,}",
        format_percent(entry.share_bad),
        format_interval(entry.auroc),
        format_interval(entry.auroc_within),
        format_number(entry.auroc_lexical),
        format_number(entry.auroc_trivial),
        format_interval(entry.f1),
        format_number(entry.recall_at_precision.value if entry.recall_at_precision else None),
        format_interval(entry.kendall_tau, signed=True),
        predicted if entry.sensitivity else MISSING,
        format_interval(entry.sensitivity),
        format_interval(entry.specificity),
        format_interval(entry.balanced_accuracy),
        format_number(entry.calibration_error.value if entry.calibration_error else None),
        format_interval(entry.groundedness_bias, signed=True) if entry.level == "claim" else MISSING,
        format_interval(entry.verbosity, signed=True),
        format_interval(entry.order_flips),
    )


def _list_card_notes(card: JudgeCard) -> Iterator[str]:
    """List what must be known to read the figures, and the commands that measure them anew."""
    yield (
        "Positive is what is bad. AUROC: 0.5 is guessing; within: inside groups that give nothing away by style. "
        "Lexical is the judge that reads only words, trivial the share of the words that no chunk has, on the same "
        "units. F1 is at the threshold that is best on the other folds; the order of generators is Kendall's τ between "
        "people and the judge. Sensitivity, specificity and their mean, "
        "the balanced accuracy, are by the judge's own word. From sensitivity and specificity follows F1 where 5, 10, "
        "20 or 40 % are bad. Bias is the judge's mean groundedness less that of people. Intervals are 95 %, by sources "
        "or queries."
    )
    if any(entry.trained_on for entry in card.measured):
        yield "¹ The judge was fitted on other sources of the same set: elsewhere expect less."
    for name, entries in group_by(card.measured, lambda entry: entry.set).items():
        corrected = [
            f"By {entry.level} it corrects the rates of {entry.corrects} verdicts."
            for entry in entries
            if entry.corrects
        ]
        yield " ".join(part for part in (f"{name}: {entries[0].split}.", entries[0].note, *corrected) if part)
    for command in dict.fromkeys(entry.command for entry in card.measured):
        yield f"Measured by: {command}"


def build_judges(comparison: JudgeComparison) -> ReportDocument:
    """Build the report of two judges: how far they agree, what metrics come to, and where they differ most."""
    title = summarize_contest(comparison) or summarize_judges(comparison)
    splits: list[Text | Listing] = []
    for split in comparison.disagreements:
        splits += [
            (StyledText(clip_text(split.trace, 60), "strong"), f"  {_format_verdict_pair(split)}"),
            Listing((StyledText(split.item, "quote"), *_list_reasons(split))),
        ]
    count = format_count(comparison.disagreement_count, "item")
    body = [
        *(_build_contest(comparison.better) if comparison.better else ()),
        *build_section("Verdicts", Table(VERDICT_COLUMNS, tuple(_list_verdicts(comparison)))),
        *build_section("Metrics", Table(METRIC_COLUMNS, tuple(_list_metrics(comparison)))),
        *build_section(f"Largest disagreements, of {count}", Listing(tuple(splits), shown=DISAGREEMENTS_SHOWN)),
        Paragraph("kappa is linear and alpha ordinal for levels of relevance; 95 % intervals over traces", "note"),
    ]
    judges = [Paragraph(line, "note") for line in _describe_judges(comparison)]
    if comparison.better:
        judges.append(Paragraph(summarize_judges(comparison), "note"))
    return ReportDocument(title, (Heading(title, 1), *judges), tuple(body))


def summarize_contest(comparison: JudgeComparison) -> str | None:
    """Say in a sentence which judge is better on the labels, or what would decide; None without labels."""
    contest = comparison.better
    if contest is None:
        return None
    first, second = _name_judges(comparison)
    units = format_count(contest.n, contest.unit)
    value, low, high = contest.difference
    if value is None:
        missing = f"none of the {units} is labelled {'good' if contest.positives else 'bad'}"
        return f"Cannot tell which judge is better: {missing}"
    if contest.decision in ("first", "second"):
        # The difference is stated as that of the better judge.
        better, other = (second, first) if contest.decision == "second" else (first, second)
        gain = (
            contest.difference if contest.decision == "second" else BootstrapEstimate(-value, _flip(high), _flip(low))
        )
        return f"{better} is better than {other} by {format_interval(gain, 3)} AUROC on {units}"
    gap = f"AUROC of {second} less {first} {format_interval(contest.difference, 3, signed=True)} on {units}"
    if contest.decision == "equal":
        return f"{first} and {second} are equally good, within {format_number(contest.margin)}: {gap}"
    plan = "" if contest.needed is None else f"; about {contest.needed:,} labels would decide"
    return f"Cannot tell which judge is better: {gap}{plan}"


def _flip(value: float | None) -> float | None:
    return None if value is None else -value


def _build_contest(contest: JudgeContest) -> list[Block]:
    """Build the figures of both judges on the labels."""
    rows = tuple(
        (
            FIGURE_TITLES[figure.name],
            format_interval(figure.first, 3),
            format_interval(figure.second, 3),
            format_interval(figure.difference, 3, signed=True),
        )
        for figure in contest.figures
    )
    by = f"by {clip_text(contest.group, 40)}" if contest.group else "of one trace each"
    positives = f"{contest.positives:,} with the label {clip_text(contest.positive, 80)}"
    terms = f"{positives}; {format_count(contest.groups, 'group')} {by}"
    return build_section("Against the labels", Table(CONTEST_COLUMNS, rows), Paragraph(terms, "note"))


def _name_judges(comparison: JudgeComparison) -> list[str]:
    return [clean_text(name).split(" ")[0] for name in comparison.judges]


def summarize_judges(comparison: JudgeComparison) -> str:
    """Summarize which judges were compared, on how many traces, and on what share of verdicts they agree."""
    names = _name_judges(comparison)
    shares = [
        f"{VERDICT_TITLES[agreement.kind]} {format_interval(agreement.accuracy, 2)}"
        for agreement in comparison.kinds
        if agreement.accuracy is not None
    ]
    alike = f"; alike: {', '.join(shares)}" if shares else ""
    sample = f" in a random sample of a run of {comparison.population:,}" if comparison.population else ""
    return f"{names[0]} beside {names[1]}: {format_count(comparison.traces, 'trace')}{sample}{alike}"


def _describe_judges(comparison: JudgeComparison) -> Iterator[str]:
    """Describe who the judges are, what they cost, what they lost, and labels that cannot be read."""
    if comparison.unread_labels:
        yield f"compared without labels: {clip_text(comparison.unread_labels, 300)}"
    for position, judge, speed, lost in zip(
        ("first", "second"), comparison.judges, comparison.speeds, comparison.failed, strict=True
    ):
        cost = f"; {format_speed(speed)}" if speed is not None else ""
        failed = f"; failed in part on {format_count(lost, 'trace')}" if lost else ""
        yield f"{position}: {clean_text(judge)}{cost}{failed}"


def _list_verdicts(comparison: JudgeComparison) -> Iterator[tuple[Text, ...]]:
    for agreement in comparison.kinds:
        yield (
            VERDICT_TITLES[agreement.kind],
            f"{agreement.n:,}",
            f"{agreement.unmatched[0]:,}, {agreement.unmatched[1]:,}",
            format_interval(agreement.accuracy, 2),
            format_interval(agreement.kappa, 2),
            format_interval(agreement.alpha, 2),
        )


def _list_metrics(comparison: JudgeComparison) -> Iterator[tuple[Text, ...]]:
    for metric in comparison.metrics:
        yield (
            StyledText(metric.metric, "code"),
            metric.layer,
            f"{metric.n:,}",
            *(format_number(mean.mean, 3) for mean in metric.means),
            format_interval(metric.difference, 3),
            format_interval(metric.correlation, 2),
        )


def _format_verdict_pair(split: JudgeDisagreement) -> str:
    """Format what each says of an item."""
    words = [ANSWER_WORDS[word] if isinstance(word, bool) else str(word) for word in split.values]
    return f"{VERDICT_TITLES[split.kind]}: {words[0]}, {words[1]}"


def _list_reasons(split: JudgeDisagreement) -> list[Text]:
    pairs = zip(("first", "second"), split.reasons, strict=True)
    return [
        (StyledText(f"{position}: ", "muted"), StyledText(clip_text(reason, 300), "quote"))
        for position, reason in pairs
        if reason
    ]


def build_flakiness(flakiness: JudgeFlakiness) -> ReportDocument:
    """Build the report of how far a judge differs from itself, metric by metric."""
    name = clean_text(flakiness.judge).split(" ")[0]
    title = f"{name}, {flakiness.repeats} times over {format_count(flakiness.traces, 'trace')}"
    judge = Paragraph(f"judge {clean_text(flakiness.judge)}", "note")
    if flakiness.deterministic:
        same = Paragraph("Its verdicts were identical each time: no interval needs widening.")
        return ReportDocument(title, (Heading(title, 1), judge, same))
    rows = tuple(
        (
            StyledText(metric.metric, "code"),
            f"{metric.n:,}",
            f"{metric.deviation:.3f}",
            format_percent(metric.flips),
            MISSING if metric.reliability is None else f"{metric.reliability:.2f}",
            f"{metric.drift:.3f}",
        )
        for metric in flakiness.metrics
    )
    return ReportDocument(title, (Heading(title, 1), judge), (Table(FLAKINESS_COLUMNS, rows),))


def build_rubrics(measurement: RubricMeasurement) -> ReportDocument:
    """Build the report of how far the rubrics of a judge agree with people and with themselves."""
    usable, total = len(measurement.usable), len(measurement.proofs)
    title = f"{usable} of {format_count(total, 'rubric')} may decide a gate"
    problems = tuple(
        (StyledText(proof.rubric, "strong"), f": {problem}")
        for proof in measurement.proofs
        for problem in proof.shortcomings
    )
    mark = VerdictMark("usable", "good") if usable else VerdictMark("not shown", "unsure")
    judge = Paragraph(f"judge {clean_text(measurement.judge)}", "note")
    body = (
        Table(RUBRIC_COLUMNS, tuple(map(_build_rubric_row, measurement.proofs))),
        *build_section("What is missing", Listing(problems)),
    )
    return ReportDocument(title, (Heading(title, 1, mark), judge), body)


def _build_rubric_row(proof: RubricProof) -> tuple[Text, ...]:
    return (
        proof.rubric,
        f"{proof.labelled:,}",
        format_interval(proof.agreement, 2),
        format_interval(proof.kappa, 2),
        f"{proof.repeated:,}",
        MISSING if proof.consistency is None else format_percent(proof.consistency),
    )


def build_preferences(report: PreferenceReport) -> ReportDocument:
    """Build the report of which version people prefer, and how strongly."""
    rows = tuple(
        (
            item.version,
            f"{item.compared:,}",
            f"{item.wins:g}",
            format_interval(item.strength, 2),
            format_interval(item.win_rate, 2),
        )
        for item in report.versions
    )
    notes = [Paragraph(note, "note") for note in report.notes]
    lead = (Heading(report.sentence, 1),)
    return ReportDocument("preferences", lead, (Table(PREFERENCE_COLUMNS, rows), *notes))
