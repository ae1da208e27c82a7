"""Commands `tune`, `lint`, `savings` and `relevance`."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.apps.tune.cli.search_files import check_folder, print_written, write_search
from ragfault.apps.tune.settings import TuneSettings
from ragfault.judges.loading import DEFAULT_JUDGE
from ragfault.model.errors import BadTraces, UsageError
from ragfault.options.output import (
    add_corpus_options,
    json_option,
    print_json,
    print_left_out,
    print_notice,
    print_report,
    read_corpus,
)
from ragfault.options.records import add_fields, take_fields
from ragfault.options.runs import sample_option
from ragfault.options.settings import add_executor_options, add_trace_options, pick_trace_options
from ragfault.text.number_format import format_cost, format_count, format_number, format_signed

if TYPE_CHECKING:
    from ragfault.apps.tune.savings import Savings
    from ragfault.apps.tune.search_space import SearchSpace
    from ragfault.io.error_collector import OnBad
    from ragfault.io.runs.run import Run


@click.command(
    epilog="""\b
Examples:
  ragfault tune pipeline handbook/documents handbook/questions.jsonl -o tuned
  ragfault tune pipeline docs.jsonl questions.jsonl -o tuned --subject-to "latency_p95<=200" --subject-to "tokens<=2000"
  ragfault tune pipeline docs/ questions.jsonl -o tuned --baseline pipeline.toml --budget 10m --embedders latent,minilm
  ragfault tune pipeline docs/ questions.jsonl -o tuned --from runs/today"""
)
@click.argument("corpus", type=click.Path())
@click.argument("questions", type=click.Path())
@click.option("-o", "--out", required=True, type=click.Path(file_okay=False), help="Output folder.")
@add_fields(TuneSettings, "metric", "subject_to", "budget", "baseline")
@click.option("--embedders", default="latent", show_default=True, help="Embedders to search over (latent,minilm).")
@click.option("--chunkers", multiple=True, metavar="CHUNKER", help="Chunkers to search over. Repeatable.")
@add_fields(TuneSettings, "run", "holdout", "seed")
@add_executor_options
@add_corpus_options
@json_option
@click.option("--force", is_flag=True, help="Replace the result of an earlier tuning in OUT.")
@click.option("--quiet", is_flag=True, help="No progress.")
@add_trace_options
def pipeline(
    corpus: str,
    questions: str,
    out: str,
    embedders: str,
    chunkers: tuple[str, ...],
    skip_bad: bool,
    exclude: tuple[str, ...],
    kind: str | None,
    force: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Search for the pipeline that retrieves best for QUESTIONS from CORPUS, and test its gain.

    QUESTIONS are traces with gold: spans of documents, or ids of documents. One half of them chooses, the other
    measures. OUT gets pipeline.toml, search.html and search.json; results are cached in OUT/cache, so that the same
    command resumes an interrupted search.
    """
    from ragfault.apps.tune.report.pipelines import build_tuning, describe_tuning_terms
    from ragfault.apps.tune.results import summarize_tuning
    from ragfault.apps.tune.tuner import tune
    from ragfault.io.trace_reader import read_traces

    folder = check_folder(out, force) or Path(out)
    on_bad: OnBad = print_left_out if skip_bad else "raise"
    with _show_progress(quiet) as progress:
        settings = TuneSettings(
            **take_fields(TuneSettings, options),
            space=_make_space(embedders, chunkers),
            cache=folder / "cache",
            progress=progress,
            notice=print_notice,
        )
        result = tune(
            read_corpus(corpus, skip_bad, exclude),
            read_traces(questions, notice=print_notice, on_bad=on_bad, **pick_trace_options(options)),
            settings,
        )
    comment = f"{summarize_tuning(result)}\n{describe_tuning_terms(result)}"
    files = write_search(folder, result, build_tuning(result), result.config, comment)
    print_report(result, kind, build_tuning)
    print_written(files, kind)


def _make_space(embedders: str, chunkers: tuple[str, ...]) -> SearchSpace:
    """Return the space of the searched embedders and chunkers; the usual chunkers if none is named."""
    from msgspec.structs import replace

    from ragfault.apps.tune.search_space import default_space

    space = default_space(name.strip() for name in embedders.split(",") if name.strip())
    return replace(space, chunkers=chunkers) if chunkers else space


@contextlib.contextmanager
def _show_progress(quiet: bool) -> Iterator[Callable[[str, int, int], Any]]:
    """Show a progress bar for the step that is searched, on standard error; nothing where that is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=None)

        def advance(step: str, done: int, total: int) -> None:
            progress.update(task, description=step, completed=done, total=total)

        yield advance


MAX_LEAVES = 40
"""Parts of the first record that are shown."""


@click.command(
    epilog="""\b
Examples:
  ragfault lint pipeline.toml --index index/
  ragfault lint runs/today --json
  ragfault lint log.csv --map chunks=found

Exit 0: none was found; 1: one was."""
)
@click.argument("target", type=click.Path())
@add_trace_options
@click.option("--index", type=click.Path(), help="Index that the pipeline searches, to check its embedder against.")
@sample_option
@json_option
def lint(target: str, index: str | None, sample: int, kind: str | None, **reading: object) -> int:
    """Look for six pitfalls of retrieval in TARGET, a pipeline.toml or a run; or show how a file of traces is read.

    Lost in the middle, static chunk size, dense only, filter after retrieval, nothing monitored, embedder changed
    without embedding the corpus again: each with what was seen of it.
    """
    from ragfault.apps.tune.pitfalls import lint
    from ragfault.report.safe_text import clean_text

    if target == "-" or not (Path(target).is_dir() or target.endswith(".toml")):
        return _show_reading(target, pick_trace_options(reading), kind)

    opened = _open_target(Path(target), sample)
    pitfalls = lint(opened, index)
    detected = [pitfall for pitfall in pitfalls if pitfall.detected]
    if kind == "json":
        print_json(pitfalls)
        return 1 if detected else 0
    names = f": {', '.join(pitfall.name for pitfall in detected)}" if detected else ""
    hidden = [pitfall for pitfall in pitfalls if pitfall.evidence.startswith("not seen")]
    rest = f"; {len(hidden)} cannot be checked here" if hidden else ""
    click.echo(f"{len(detected)} of {len(pitfalls)} pitfalls detected{names}{rest}\n")
    for pitfall in pitfalls:
        sign = "✗" if pitfall.detected else "?" if pitfall in hidden else "·"
        click.echo(f"{sign} {pitfall.name}: {clean_text(pitfall.evidence)}")
        if pitfall.detected:
            click.echo(f"    {pitfall.remedy}")
    if not isinstance(opened, Path) and (line := _describe_lengths([trace.query for trace in opened.traces()])):
        click.echo(f"\n{line}")
    return 1 if detected else 0


def _describe_lengths(queries: list[str]) -> str:
    """Describe from which length on a query is over-long among these; empty for fewer than two."""
    from ragfault.retrieval.query_stages import estimate_length_limit
    from ragfault.text.normalization import split_words

    if len(queries) < 2:
        return ""
    limit = estimate_length_limit(queries)
    longer = sum(len(split_words(query)) > limit for query in queries)
    share = f"{longer:,} of {len(queries):,}" + (f": the stage shorten({limit}) simplifies them" if longer else "")
    return f"Queries of more than {format_count(limit, 'word')} are over-long here: {share}."


def _open_target(path: Path, sample: int) -> Run | Path:
    """Open a run to check, or a sample of a large one, with a notice; return the path of anything else."""
    from ragfault.io.runs.run import Run
    from ragfault.io.runs.samples import sample_run
    from ragfault.report.wording import describe_trace_count

    if not path.is_dir():
        return path
    run = sample_run(Run.open(path), sample)
    if run.manifest.population:
        print_notice(f"{describe_trace_count(run.manifest)}; --sample 0 takes all")
    return run


def _show_reading(target: str, reading: dict[str, Any], kind: str | None) -> int:
    """Show which columns of a file are which fields, and the first record next to its trace."""
    from ragfault.io.formats.reading_examples import format_read_leaves
    from ragfault.io.trace_reader import explain_missing_fields, summarize_input
    from ragfault.options.process import clean_output
    from ragfault.report.safe_text import clean_text

    summary = summarize_input(target, **reading)
    if kind == "json":
        print_json(summary)
        return 1 if summary.bad_count else 0
    unreadable = f", {format_count(summary.bad_count, 'line')} that cannot be read" if summary.bad_count else ""
    click.echo(f"{format_count(summary.count, 'trace')}{unreadable}: {clean_text(summary.shape)}")
    for name, count in summary.fields.items():
        click.echo(f"  {name:<10} in {count:,} of {summary.count:,} traces")
    if summary.example:
        click.echo("\nThe first record, and where each part of it is in the trace:")
        for line in format_read_leaves(summary.example[:MAX_LEAVES], clean_text):
            click.echo(line)
        if len(summary.example) > MAX_LEAVES:
            click.echo(f"  … and {len(summary.example) - MAX_LEAVES:,} more parts (--json lists all)")
    if summary.bad_count:
        bad_traces = BadTraces(summary.bad_lines, summary.count, summary.bad_count, summary.bad_kinds)
        click.echo(clean_output(str(bad_traces)), err=True)
    if (missing := explain_missing_fields(summary)) is not None:
        click.echo(missing, err=True)
    return 1 if summary.bad_count else 0


@click.command(
    epilog="""\b
Examples:
  ragfault tune savings --precision 0.60 0.85 --recall 0.65 0.75 --cost 0.05 --queries 100000
  ragfault tune savings --runs runs/v1 runs/v2 --queries 100000 --model gpt-4o-mini
  ragfault tune savings --runs runs/v1 runs/v2 --queries 100000 --cost 0.05 --html savings.html
  ragfault tune savings --runs runs/v1 runs/v2 --queries 100000 --cost 0.05 --setup labelling=3000"""
)
@click.option("--precision", nargs=2, type=float, metavar="BEFORE AFTER", help="Precision, from 0 to 1.")
@click.option("--recall", nargs=2, type=float, metavar="BEFORE AFTER", help="Recall, from 0 to 1.")
@click.option("--runs", nargs=2, type=click.Path(), metavar="OLD NEW", help="Precision, recall and tokens of two runs.")
@click.option("--queries", type=click.FloatRange(0), required=True, help="Queries a month.")
@click.option(
    "--cost",
    type=click.FloatRange(0),
    help="Cost of a query before, in US$.  [default with --runs: from the price catalogue]",
)
@click.option("--model", help="Model whose price applies where the traces name none.")
@click.option(
    "--extra", type=float, default=0.0, show_default=True, help="Additional cost per query afterwards, in US$."
)
@click.option(
    "--latency",
    nargs=2,
    type=float,
    metavar="BEFORE AFTER",
    help="Latency per query in milliseconds.  [default with --runs: measured]",
)
@click.option(
    "--setup", multiple=True, metavar="WHAT=US$", help="Paid once: labelling=3000, compliance=750. Repeatable."
)
@click.option("--html", type=click.Path(), help="Write an interactive calculator page to this file.")
@click.option("--force", is_flag=True, help="Replace an existing HTML file.")
@json_option
def savings(
    precision: tuple[float, float] | None,
    recall: tuple[float, float] | None,
    runs: tuple[str, str] | None,
    queries: float,
    cost: float | None,
    model: str | None,
    extra: float,
    latency: tuple[float, float] | None,
    setup: tuple[str, ...],
    html: str | None,
    force: bool,
    kind: str | None,
) -> None:
    """Estimate what better retrieval saves per month and per year.

    From precision and recall before and after, tokens are taken to fall by 0.3 of the relative gain in precision; from
    two runs they are measured.
    """
    from ragfault.apps.tune import savings
    from ragfault.apps.tune.report.savings import render_savings_html
    from ragfault.io.runs.run import Run
    from ragfault.report.output import check_output_path, write_report_file

    if html is not None:
        check_output_path(html, force=force)
    costs = savings.QueryCosts(queries=queries, cost=cost, extra=extra, latency=latency)
    if runs and not (precision or recall):
        old, new = map(Run.open, runs)
        result = savings.compute_run_savings(old, new, costs, model)
    elif precision and recall and not runs and cost is not None:
        result = savings.compute_savings(precision, recall, costs)
    else:
        raise UsageError("give --precision, --recall and --cost, or --runs OLD NEW.")
    result = savings.add_setup(result, _parse_setup(setup))
    if html is not None:
        click.echo(f"written: {write_report_file(html, render_savings_html(result), force=force)}", err=True)
    if kind == "json":
        print_json(result)
    else:
        click.echo("\n".join(_format_savings(result)))


def _parse_setup(texts: tuple[str, ...]) -> dict[str, float]:
    """Parse what is paid once; the same name adds up."""
    amounts: dict[str, float] = {}
    for text in texts:
        name, _, amount = text.partition("=")
        try:
            amounts[name] = amounts.get(name, 0.0) + float(amount)
        except ValueError:
            raise UsageError(f'--setup is WHAT=US$, such as labelling=3000, not "{text}".') from None
    return amounts


def _format_savings(savings: Savings) -> list[str]:
    from ragfault.apps.tune.savings import describe_impacts

    before, after = savings.monthly
    pairs = (savings.precision, savings.recall, savings.quality)
    precision, recall, quality = (f"{format_number(old, 3)} → {format_number(new, 3)}" for old, new in pairs)
    word, more = ("saves", "") if savings.saved >= 0 else ("costs", " more")
    ends = sorted(math.copysign(1, savings.saved) * end for end in savings.saved_interval or ())
    bounds = f" [{format_number(ends[0], 2)}, {format_number(ends[1], 2)}]" if ends else ""
    unsure = "the tokens cannot tell whether it saves anything: " if ends and ends[0] < 0 else ""
    moved = f"{format_cost(before)} → {format_cost(after)}"
    total = f"{format_cost(abs(savings.saved))}{more} a month{bounds} ({moved})"
    return [
        f"cannot tell what is saved: {moved} a month at the tokens of these traces"
        if savings.is_measured and not ends
        else f"{unsure}{word} {total}, {format_cost(abs(savings.yearly))}{more} a year",
        *_list_setup(savings),
        *_list_warnings(savings),
        *describe_impacts(savings),
        f"precision {precision}, recall {recall}",
        f"quality (their harmonic mean) {quality}, {format_signed(savings.gain, 1)} %",
        f"cost × {format_number(savings.tokens, 3)}",
        f"cost a month for irrelevant chunks, at most: {' → '.join(map(format_cost, savings.irrelevant))}",
        *_list_latency(savings),
        *savings.basis,
    ]


def _list_setup(savings: Savings) -> list[str]:
    """List what is paid once, and when it is paid back."""
    if savings.first_year is None:
        return []
    parts = ", ".join(f"{name} {format_cost(amount)}" for name, amount in savings.setup.items())
    months = savings.payback_months
    when = "never paid back" if months is None else f"paid back after {format_number(months, 1)} months"
    if savings.is_measured and savings.saved_interval is None:
        when = "when it is paid back is not known"
    return [f"set-up {format_cost(sum(savings.setup.values()))} ({parts}): {when}"]


def _list_latency(savings: Savings) -> list[str]:
    if savings.latency is None or savings.waiting is None:
        return []
    latency, waiting = (" → ".join(map(format_number, pair)) for pair in (savings.latency, savings.waiting))
    return [f"latency a query {latency} ms; waiting a month {waiting} hours"]


def _list_warnings(savings: Savings) -> list[str]:
    """List that one of the two fell, which their harmonic mean may hide, and a gain beyond the rule of thumb."""
    paid = "; the lower cost comes with fewer relevant chunks" if savings.saved > 0 else ""
    fell = [f"beware: {name} fell{paid}" for name in savings.fell] + [f"beware: {text}" for text in savings.warnings]
    if savings.tokens == 0 and not savings.is_measured:
        fell.append("beware: by the rule of thumb no token would be left at this gain in precision; measure it: --runs")
    return fell


@click.command(
    epilog="""\b
Examples:
  ragfault tune relevance "When does the last ferry leave?" handbook/documents/*.md
  ragfault tune relevance "May dogs travel?" docs/ --judge embedded --judge lexical --judge llm:gpt-4o-mini"""
)
@click.argument("query")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option(
    "--judge",
    "judges",
    multiple=True,
    help=f"Judge that scores; several are shown side by side. Repeatable.  [default: {DEFAULT_JUDGE}]",
)
@click.option("--chunker", default="sentences(256)", show_default=True, help="Chunker for the documents.")
@click.option("--disputed", is_flag=True, help="Sort by disagreement of the judges, not by relevance.")
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="Number of chunks to show.")
@click.option("--skip-bad", is_flag=True, help="Skip documents that cannot be read.")
@json_option
def relevance(
    query: str,
    files: tuple[str, ...],
    judges: tuple[str, ...],
    chunker: str,
    disputed: bool,
    limit: int,
    skip_bad: bool,
    kind: str | None,
) -> None:
    """Score the documents in FILES against QUERY, by chunk, with one judge or several side by side.

    Shows model, time and cost of each judge, and how far they differ.
    """
    from ragfault.apps.tune.relevance import compare_relevance
    from ragfault.apps.tune.report.relevance import build_relevance
    from ragfault.io.documents import read_documents

    documents = tuple(read_documents(list(files), on_bad="skip" if skip_bad else "raise"))
    comparison = compare_relevance(query, documents, judges or (DEFAULT_JUDGE,), chunker)
    if kind == "json":
        from ragfault.apps.tune.documents import RelevanceDocument

        print_json(RelevanceDocument(comparison=comparison, gaps=comparison.gaps, documents=comparison.documents))
        return
    print_report(comparison, kind, partial(build_relevance, limit=limit, disputed=disputed))
