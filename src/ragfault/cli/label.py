"""Command group `label`: annotation in the terminal by single key presses, and agreement of raters."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.judges.loading import DEFAULT_JUDGE
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.options.keys import KeyReader, name_person, open_key_reader
from ragfault.options.output import json_option, print_json, print_notice, print_report, supports_color
from ragfault.options.runs import cause_option, human_labels_option, load_run_labels
from ragfault.options.settings import add_trace_options, pick_trace_options
from ragfault.text.number_format import format_count

if TYPE_CHECKING:
    from ragfault.labels.annotation.items import AnnotationItem
    from ragfault.labels.annotation.session import Question, Session
    from ragfault.model.records import Trace, Verdicts


DEFAULT_LABEL_FILE = "labels.jsonl"
BATCH_SIZE = 32
"""Traces that are read, and judged where they are not, at once."""


class LabelGroup(click.Group):
    """Group whose first argument, where it names no command, is the traces to ask about."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["ask", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=LabelGroup,
    epilog="""\b
Examples:
  ragfault label runs/today
  ragfault label runs/today --by ann --only claim,chunk --limit 50
  ragfault label traces.jsonl -o labels.jsonl
  ragfault label agreement labels.jsonl""",
)
def label() -> None:
    """Label traces in the terminal, one key press per verdict; measure the agreement of annotators.

    `ragfault label RUN` is short for `ragfault label ask RUN`.
    """


@label.command(
    epilog="""\b
Examples:
  ragfault label runs/today
  ragfault label runs/today --by ben --show-judge
  ragfault label runs/today --from picks.jsonl
  ragfault label runs/today --cause undecided --show-judge"""
)
@click.argument("traces", nargs=-1, required=True, metavar="TRACES | RUN")
@click.option("-o", "--out", type=click.Path(), default=DEFAULT_LABEL_FILE, show_default=True, help="File of labels.")
@click.option("--by", help="Name of the annotator.  [default: the user name]")
@click.option(
    "--only",
    help="Kinds to label: chunk, claim, citation, fact, refusal, cause (a,b).  [default: all but cause; with --cause "
    "only cause]",
)
@click.option("--limit", type=click.IntRange(1), help="So many traces.")
@click.option(
    "--from", "picks", type=click.Path(), help="Label the traces that `label suggest` selected, in that order."
)
@cause_option
@human_labels_option
@click.option(
    "--order",
    type=click.Choice(["random", "file"]),
    default="random",
    show_default=True,
    help="Random order, so that any prefix of the labels is a random sample; or file order.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the order.")
@click.option("--show-judge", is_flag=True, help="Show the judge's verdicts: faster, but labels are no longer blind.")
@click.option(
    "--judge",
    "name",
    default=DEFAULT_JUDGE,
    show_default=True,
    help="Judge that splits answers into claims, if no run is given.",
)
@add_trace_options
def ask(traces: tuple[str, ...], out: str, by: str | None, show_judge: bool, **options: Any) -> None:
    """Label each item of TRACES, or of the traces of a RUN, by one key press.

    Chunks: h high, m medium, l low, n none. Claims: s supported, i inferred, u unsupported, c contradicted. Citations,
    expected facts and refusals: y yes, n no. Causes of bad answers: the key next to each, r for a right answer. Space
    skips, b goes back, z undoes the last label, v shows texts in full, q ends. Each label is written before the next
    item is shown; run the same command again to go on.

    With --human-labels a cause that people name goes before the computed one, and the report says how often both agree.

    Two annotators label the same traces with --by NAME each; their agreement is shown at the end.
    """
    from ragfault.labels.annotation.items import ask_item
    from ragfault.labels.annotation.sampling import read_suggestions
    from ragfault.labels.annotation.session import Session

    picks = read_suggestions(options["picks"]) if options["picks"] is not None else None
    items = _collect_items(traces, {**options, "picks": picks})
    chances = {pick.trace: pick.chance for pick in picks or ()}
    by = name_person(by)
    session = Session((ask_item(item, by, chances.get(item.trace.id)) for item in items), out, by)
    with open_key_reader() as read:
        left = _run_session(session, read, show_judge)
    _finish_session(session, left)


def _collect_items(traces: tuple[str, ...], options: dict[str, Any]) -> Iterator[AnnotationItem]:
    """Collect the items of the traces, in the order in which they are asked."""
    from ragfault.labels.annotation.items import ITEM_KINDS, JUDGED_ITEMS, list_items

    only, default = options["only"], ("cause",) if options["causes"] else JUDGED_ITEMS
    kinds = tuple(name.strip() for name in only.split(",")) if only else default
    for name in kinds:
        if name not in ITEM_KINDS:
            raise UnknownName("kind of item", name, ITEM_KINDS)
    is_run = len(traces) == 1 and Path(traces[0], "manifest.json").exists()
    if options["causes"] and not is_run:
        raise UsageError("--cause chooses traces of a run, and files were given. Run `ragfault evaluate` first.")
    pairs = _read_run(traces[0], options) if is_run else _read_files(traces, options)
    computed = _describe_causes(traces[0]) if is_run and "cause" in kinds else {}
    items = (item for trace, seen in pairs for item in list_items(trace, seen, kinds))
    return (item._replace(computed=computed.get(item.trace.id)) if item.kind == "cause" else item for item in items)


def _describe_causes(path: str) -> dict[str, str]:
    """Describe what ragfault says of each answer of a run: the cause of a bad one, else its rating."""
    from ragfault.diagnosis.causes.storage import read_causes
    from ragfault.io.runs.run import Run

    return {item.trace: (item.cause or item.rating.outcome).replace("_", " ") for item in read_causes(Run.open(path))}


def _read_run(path: str, options: dict[str, Any]) -> Iterator[tuple[Trace, Verdicts]]:
    """Read the traces of a run with its verdicts, read as they are needed."""
    from ragfault.io.runs.run import Run

    run = Run.open(path)
    known: list[str] = run.to_arrow("traces", ["id"])["id"].to_pylist()
    if options["causes"]:
        from ragfault.diagnosis.causes.selection import select_causes
        from ragfault.diagnosis.run_table import RunTable

        labels = load_run_labels(options["human_labels"], run)
        known = [cause.trace for cause in select_causes(RunTable(run, labels), options["causes"])]
    ids = _order_ids(known, options)
    for part in _split_batches(ids):
        by_id = {trace.id: trace for trace in run.traces(part)}
        verdicts_by_trace = {verdicts.trace: verdicts for verdicts in run.verdicts(part)}
        yield from ((by_id[name], verdicts_by_trace[name]) for name in part)


def _read_files(paths: tuple[str, ...], options: dict[str, Any]) -> Iterator[tuple[Trace, Verdicts]]:
    """Read the traces of files, with what a judge finds in them: the claims that are asked about."""
    from ragfault.io.attempts import rename_attempts
    from ragfault.io.trace_reader import read_traces
    from ragfault.judges.assembly import observe_traces
    from ragfault.judges.loading import load_judge

    where = list(paths) if len(paths) > 1 else paths[0]
    by_id = {trace.id: trace for trace in rename_attempts(read_traces(where, **pick_trace_options(options)))}
    judge = load_judge(options["name"])
    ids = _order_ids(list(by_id), options)
    for part in _split_batches(ids):
        here = [by_id[name] for name in part]
        yield from zip(here, observe_traces(judge, here), strict=True)


def _split_batches(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[i : i + BATCH_SIZE] for i in range(0, len(ids), BATCH_SIZE)]


def _order_ids(ids: list[str], options: dict[str, Any]) -> list[str]:
    """Order the ids in the order that was asked for, as many as were."""
    from ragfault.labels.annotation.sampling import shuffle_ids

    if options["picks"] is not None:
        present = set(ids)
        ids = [pick.trace for pick in options["picks"] if pick.trace in present]
        if not ids:
            raise InputError("the picks name no trace of these. Make them with: ragfault label suggest")
    elif options["order"] == "random":
        ids = shuffle_ids(ids, options["seed"])
    return ids[: options["limit"]]


def _run_session(session: Session[AnnotationItem], read: KeyReader, judge: bool) -> bool:
    """Ask until every item is labeled or the annotator quits; return whether items are left."""
    from ragfault.labels.annotation.session import ask_questions
    from ragfault.report.terminal.annotation import CardView, render_item

    def show(question: Question[AnnotationItem], key: str) -> None:
        item, label_value = question.content, None if session.answer is None else session.answer.value
        if isinstance(label_value, bool):
            label_value = "yes" if label_value else "no"
        state = f"{item.kind} · trace {item.trace.id} · {format_count(session.label_count, 'label')} written"
        answer = None if label_value is None else str(label_value)
        view = CardView(answer, judge, full=key == "v", explained=key == "?", color=supports_color())
        _show_card(render_item(item, state, view))

    return ask_questions(session, read, show)


def _show_card(text: str) -> None:
    """Print a card, on a clean screen where there is one."""
    if sys.stdout.isatty():
        click.clear()
    click.echo(text)


def _finish_session(session: Session[AnnotationItem], left: bool) -> None:
    """Print the count of labels, and the agreement of annotators where there are several."""
    from ragfault.labels.annotation.items import measure_annotators
    from ragfault.labels.reading.label_files import read_labels
    from ragfault.report.builders.annotators import build_annotators

    written = f"{format_count(session.label_count, 'label')} written to {session.path}"
    click.echo(f"{written}. {'Run the same command again to resume.' if left else 'Every item is labelled.'}")
    if not session.path.exists() or not session.path.stat().st_size:
        return
    agreements = [rater_pair for rater_pair in measure_annotators(read_labels(session.path)) if rater_pair.shared]
    if agreements:
        print_report(agreements, None, build_annotators)


@label.command(
    epilog="""\b
Examples:
  ragfault label agreement labels.jsonl
  ragfault label agreement ann.jsonl ben.jsonl --json"""
)
@click.argument("labels", nargs=-1, required=True, type=click.Path())
@json_option
def agreement(labels: tuple[str, ...], kind: str | None) -> None:
    """Measure the agreement of the annotators in LABELS: share alike, Cohen's kappa, Krippendorff's alpha.

    No judge can agree with annotators more than they do with each other.
    """
    from ragfault.labels.annotation.items import measure_annotators
    from ragfault.labels.reading.label_files import read_labels
    from ragfault.report.builders.annotators import build_annotators

    agreements = measure_annotators([row for path in labels for row in read_labels(path)])
    print_report(agreements, kind, build_annotators)


@label.command(
    epilog="""\b
Examples:
  ragfault label suggest runs/today -n 50
  ragfault label suggest runs/today -n 50 --metric context_relevance -o picks.jsonl"""
)
@click.argument("run", type=click.Path())
@click.option("-n", "count", type=click.IntRange(1), default=50, show_default=True, help="So many traces.")
@click.option(
    "--metric",
    default="groundedness",
    show_default=True,
    help="Metric whose interval to narrow: groundedness, context_relevance, chunk_attribution.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the draw.")
@click.option("-o", "--out", type=click.Path(), help="Write the selected traces to this file, for `label --from`.")
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@json_option
def suggest(run: str, count: int, metric: str, seed: int, out: str | None, force: bool, kind: str | None) -> None:
    """Pick the traces of RUN whose labels narrow the prediction-powered interval of a metric most.

    Each trace is drawn with a chance that grows with the judge's doubt; the chance is written along, and with it
    the estimate stays without bias.
    """
    import msgspec

    from ragfault.io.runs.run import Run
    from ragfault.labels.annotation.sampling import suggest_traces
    from ragfault.report.output import write_report_file

    opened = Run.open(run)
    suggestions = suggest_traces(opened, count, metric, seed)
    text = "".join(msgspec.json.encode(suggestion).decode() + "\n" for suggestion in suggestions)
    if out is not None:
        print_notice(f"written: {write_report_file(out, text, force=force)}")
    if kind == "json":
        print_json(suggestions)
        return
    if out is None:
        click.echo(text, nl=False)
    print_notice(f"{len(suggestions):,} of {format_count(opened.manifest.traces, 'trace')} picked to label")


EXIT_NO_PREFERENCE = 3


@label.command(
    epilog="""\b
Examples:
  ragfault label prefer runs/old runs/new -o sheet.csv --limit 100
  ragfault label prefer sheet.csv

Exit code 3: no version is shown to be preferred."""
)
@click.argument("sources", nargs=-1, required=True, metavar="PREFERENCES | RUN_A RUN_B")
@click.option("-o", "--out", type=click.Path(), help="Write the sheet of two runs to this CSV file.")
@click.option("--limit", type=click.IntRange(1), help="Rows of the sheet, drawn at random.  [default: all]")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of sheet and intervals.")
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@json_option
def prefer(
    sources: tuple[str, ...], out: str | None, limit: int | None, seed: int, force: bool, kind: str | None
) -> int:
    """Say which version people prefer, from pairs of answers; or write a sheet of such pairs.

    PREFERENCES are CSV or JSON Lines: id, first, second (versions in the order shown) and winner (1, 2 or tie). Two
    runs make a sheet with the answers in random order, whose column winner people fill in.
    """
    from ragfault.labels.preferences import rate_versions, write_preference_sheet
    from ragfault.labels.reading.label_files import read_labels
    from ragfault.report.builders.judges import build_preferences
    from ragfault.report.output import check_output_path

    if len(sources) > 2 or (len(sources) == 2) != (out is not None) or (not out and Path(sources[0]).is_dir()):
        given = f"{' '.join(sources)}{' with -o' if out else ''}"
        raise UsageError(f"{given}: give one file of preferences, or two runs and -o SHEET.")
    if limit and out is None:
        raise UsageError("--limit is for the sheet of two runs: give them and -o SHEET, or leave it out.")
    if out is not None:
        check_output_path(out, force=force)
        rows = write_preference_sheet(sources[0], sources[1], out, limit=limit or 0, seed=seed)
        print_notice(
            f"{format_count(rows, 'pair')} with two different answers in {out}: fill in winner with 1, 2 or tie"
        )
        return 0
    report = rate_versions(read_labels(sources[0], "preferences", notice=print_notice), seed=seed)
    print_report(report, kind, build_preferences)
    return 0 if report.preferred else EXIT_NO_PREFERENCE
