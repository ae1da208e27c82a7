"""Commands `evaluate`, `rescore` and `rank`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.evaluation.settings import EvaluationSettings, RescoringSettings
from ragfault.model.errors import UsageError
from ragfault.options.llm_judge import add_llm_options, estimate_cost, print_estimate, resolve_judge_options
from ragfault.options.output import json_option, print_json
from ragfault.options.records import add_fields, take_fields
from ragfault.options.runs import human_labels_option, show_progress
from ragfault.options.settings import add_config_option, add_trace_options, list_fields, load_settings
from ragfault.text.number_format import MIN_INDEPENDENT, TOO_FEW

if TYPE_CHECKING:
    from ragfault.metrics.ranking import QueryValues, Ranking
    from ragfault.report.json_documents import RankedMetric, RankedValue


EXIT_SCORES_LOST = 3
"""The exit code where scores were lost to failures of the judge or of a metric."""


full_option = click.option("--full", is_flag=True, help="Also print every table, as `ragfault report` does.")


@click.command(
    epilog="""\b
Examples:
  ragfault evaluate traces.jsonl -o runs/today
  ragfault evaluate traces.parquet -o runs/today --workers 2 -m default -m rouge_l
  ragfault evaluate old.jsonl -o runs/old --map query=question --map chunks=docs
  ragfault evaluate traces.jsonl -o runs/law --profile legal
  ragfault evaluate traces.jsonl -o runs/tags --metrics-by "route=faq:groundedness,refusal"
  ragfault evaluate traces.jsonl -o runs/checked --trusted handbook/documents
  ragfault evaluate traces.jsonl -o runs/model --judge llm:gpt-4o-mini --budget 2 --dry-run
  ragfault evaluate run.trec --qrels qrels.txt -o runs/trec -m ndcg@10 -m recall@100
  zcat traces.jsonl.gz | ragfault evaluate - -o runs/today
  ragfault evaluate s3://logs/day.parquet -o s3://runs/day --ray auto

If it is interrupted, the same command resumes it. Exit code 3: some scores
were lost to failures; the summary says which."""
)
@click.argument("traces", nargs=-1, required=True)
@click.option("-o", "--out", type=click.Path(), help="New directory for the run.  [default: runs/NAME-TIME]")
@add_fields(EvaluationSettings)
@add_llm_options
@click.option(
    "--batch-api",
    is_flag=True,
    help="Ask by the batch endpoint of OpenAI or Anthropic: at half the price, within a day.",
)
@click.option("--dry-run", is_flag=True, help="Estimate calls, tokens and cost without sending anything.")
@add_trace_options
@full_option
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Print neither progress nor verdict.")
@human_labels_option
@add_config_option
def evaluate(
    traces: tuple[str, ...],
    out: str | None,
    full: bool,
    kind: str | None,
    quiet: bool,
    dry_run: bool,
    human_labels: tuple[str, ...],
    config: str | None,
    **options: Any,
) -> int:
    """Judge every trace, compute every metric on it, and leave the result as a run.

    TRACES are files, folders or globs of JSONL, JSON, CSV or Parquet (also .gz, .zst, .bz2, .xz), a TREC run, or - for
    standard input; also in an object store (s3://, gs://, az://), as OUT may be. Columns are recognised by their names
    and contents, and so is what OpenTelemetry, Phoenix, Langfuse and LangSmith export; `ragfault lint FILE` shows how.
    """
    from ragfault.cli.report import print_scorecard
    from ragfault.evaluation.evaluator import evaluate

    table = load_settings(config)
    fields = take_fields(EvaluationSettings, options, list_fields(table))
    judge = EvaluationSettings(**fields).combined_judge
    fields["options"] = resolve_judge_options(str(judge), options, table.get("llm", {}))
    where = list(traces) if len(traces) > 1 else traces[0]
    if dry_run:
        if fields.get("trusted"):
            raise UsageError("--dry-run does not know what --trusted adds: up to as many calls again. Leave it out.")
        _print_estimate(where, EvaluationSettings(**fields), kind)
        return 0
    with show_progress(quiet) as progress:
        reports: dict[str, Any] = {
            "on_progress": progress,
            "on_usage": progress.show_usage,
            "on_notice": _make_notice(quiet),
        }
        run = evaluate(where, out or _name_run(traces[0]), EvaluationSettings(**fields, **reports))
    if not human_labels and not quiet and len(traces) == 1 and Path(traces[0]).is_file():
        _suggest_labels(run, traces[0])
    if kind == "json" or not quiet:
        print_scorecard(run, table, human_labels, full=full, kind=kind)
    return _report_failures(run)


SPAN_COLUMNS = frozenset(("spans", "hallucination_spans", "hallucinated_spans"))
LABEL_COLUMNS = SPAN_COLUMNS | {
    "human_label",
    "human_labels",
    "gold_label",
    "hallucinated",
    "is_hallucinated",
    "is_hallucination",
    "has_hallucination",
    "attributable",
    "is_attributable",
    "is_supported",
    "is_grounded",
    "is_faithful",
}
"""Columns that hardly hold anything but labels, of stretches of an answer or of answers."""


def _suggest_labels(run: Any, source: str) -> None:
    """Name what reads human labels where the file seems to have some, which were left aside."""
    first_trace = next(iter(run.traces()), None)
    columns = LABEL_COLUMNS.intersection(first_trace.metadata if first_trace else ())
    if columns:
        use = "put them before the judge with --human-labels" if columns & SPAN_COLUMNS else "ragfault judge measure"
        click.echo(f"labels ({', '.join(sorted(columns))}) were not read: {use} {source}", err=True)


def _name_run(source: str) -> str:
    """Name a new run after its first source and the time: `runs/traces-2026-11-02T09-30-00`."""
    name = re.sub(r"[^\w-]+", "-", Path(source).name.partition(".")[0]).strip("-") or "traces"
    return f"runs/{name}-{datetime.now().strftime('%Y-%m-%dT%H-%M-%S')}"


def _print_estimate(where: Any, settings: EvaluationSettings, kind: str | None) -> None:
    """Print what evaluating would ask of a model."""
    from ragfault.evaluation.metric_choices import add_chosen_metrics, select_judged
    from ragfault.io.trace_reader import read_traces
    from ragfault.judges.loading import limit_verdicts
    from ragfault.metrics.catalog import list_verdict_kinds
    from ragfault.metrics.selection import select_metrics

    traces, choices = read_traces(where, **settings.reading), settings.tag_choices
    requested = [settings.metrics] if isinstance(settings.metrics, str) else list(map(str, settings.metrics))
    metrics = add_chosen_metrics(select_metrics(requested), choices)
    if choices:
        traces = select_judged(traces, metrics, choices)
    judge, profile = str(settings.combined_judge), str(settings.profile)
    judge_options = {**limit_verdicts(judge, list_verdict_kinds(metrics)), **dict(settings.options or {})}  # type: ignore[arg-type]
    print_estimate(estimate_cost(traces, judge, judge_options, profile), kind)


@click.command(
    epilog="""\b
Examples:
  ragfault run rescore runs/today -o runs/strict -m "groundedness(strict=true)" -m triad
  ragfault run rescore runs/today -o runs/weights -m "context_relevance(low=0, medium=0.5)" """
)
@click.argument("run", type=click.Path())
@click.option("-o", "--out", required=True, type=click.Path(), help="Directory for the new run.")
@add_fields(RescoringSettings)
@full_option
@json_option
@click.option("-q", "--quiet", is_flag=True, help="No verdict.")
@add_config_option
def rescore(run: str, out: str, full: bool, kind: str | None, quiet: bool, config: str | None, **options: Any) -> int:
    """Compute metrics on the stored verdicts of RUN, without judging again.

    For other weights, penalties, thresholds or metrics. Nothing is sent or spent.
    """
    from ragfault.cli.report import print_scorecard
    from ragfault.evaluation.rescorer import rescore
    from ragfault.metrics.aliases import explain_aliases

    table = load_settings(config)
    gold = {key: value for key, value in table.get("evaluate", {}).items() if key == "gold"}
    settings = RescoringSettings(**take_fields(RescoringSettings, options, gold))
    for line in explain_aliases(settings.metrics or ()):
        click.echo(line, err=True)
    rescored = rescore(run, out, settings)
    if kind == "json" or not quiet:
        print_scorecard(rescored, table, full=full, kind=kind, has_chosen_metrics=settings.metrics is not None)
    return _report_failures(rescored)


def _report_failures(run: Any) -> int:
    """Say how many scores failed, and give the exit code."""
    manifest = run.manifest
    if manifest.failed:
        total = manifest.scored + manifest.undefined + manifest.failed
        click.echo(f"{manifest.failed:,} of {total:,} scores failed; each has its reason.", err=True)
        return EXIT_SCORES_LOST
    return 0


def _make_notice(quiet: bool) -> Callable[[str], None]:
    def say(line: str) -> None:
        if not quiet or line.startswith(("left out", "warning")) or " is answered by " in line:
            click.echo(line, err=True)

    return say


DEFAULT_METRICS = (
    "average_precision", "reciprocal_rank", "ndcg@10", "precision@5", "recall@5", "recall@100", "hit@1", "hit@10",
)  # fmt: skip
"""The metrics computed where none are named."""


@click.command(
    epilog="""\b
Examples:
  ragfault run rank run.trec qrels.txt
  ragfault run rank run.trec.gz qrels.txt -m ndcg@10 -m "recall(relevant=2)@100"
  ragfault run rank run.trec qrels.txt -m ndcg@10 --per-query > ndcg.tsv

For a run with traces, reports and gates: ragfault evaluate run.trec --qrels qrels.txt -o RUN"""
)
@click.argument("run", type=click.Path())
@click.argument("qrels", type=click.Path())
@click.option(
    "-m", "--metrics", multiple=True, help=f"A ranked metric. Repeatable.  [default: {', '.join(DEFAULT_METRICS)}]"
)
@click.option("--per-query", is_flag=True, help="Print one line per query: metric, query and value, separated by tabs.")
@json_option
def rank(run: str, qrels: str, metrics: tuple[str, ...], per_query: bool, kind: str | None) -> None:
    """Score the TREC run RUN against QRELS: the ranked metrics alone, fast.

    Values equal trec_eval's. A query of the qrels that the run lacks scores 0; one that was not judged is undefined.
    """
    from ragfault.io.formats.trec import count_ties, read_qrels, read_run
    from ragfault.metrics.qrels import ranking_from_columns

    chosen_metrics = _parse_metrics(metrics or DEFAULT_METRICS)
    retrieved = read_run(Path(run))
    if (ties := count_ties(retrieved)) >= len(retrieved) / 2:
        click.echo(
            f"warning: {ties:,} of {len(retrieved):,} lines of {run} have the score of the line before and its query: "
            "ties are ordered by descending id, as in trec_eval, and not by rank",
            err=True,
        )
    ranking = ranking_from_columns(retrieved, read_qrels(Path(qrels)))
    measured = {text: measure(ranking) for text, measure in chosen_metrics.items()}
    if per_query:
        rows: list[Any] = _list_values(ranking, measured)
    else:
        rows = _summarize_metrics(measured)
    if kind == "json":
        print_json(rows)
    elif per_query:
        for row in rows:
            click.echo(f"{row.metric}\t{row.query}\t{'undefined' if row.value is None else f'{row.value:.6f}'}")
    else:
        _print_table(rows)


def _parse_metrics(texts: tuple[str, ...]) -> dict[str, Any]:
    """Parse metric → a function of the ranking."""
    from functools import partial

    from ragfault.metrics.aliases import resolve_alias
    from ragfault.metrics.catalog import parse_metric
    from ragfault.metrics.ranking import RANK_METRICS, compute_rank_metric

    parsed = {}
    for text in texts:
        metric = parse_metric(resolve_alias(text))
        if metric.name not in RANK_METRICS:
            raise UsageError(f"{text} is not a ranked metric. Ranked metrics: {', '.join(RANK_METRICS)}.")
        parameters: dict[str, Any] = dict(metric.parameters)
        parsed[str(metric)] = partial(compute_rank_metric, metric.name, k=metric.k, **parameters)
    return parsed


def _list_values(ranking: Ranking, measured: dict[str, QueryValues]) -> list[RankedValue]:
    """List every value, metric by metric."""
    from ragfault.report.json_documents import RankedValue

    return [
        RankedValue(metric=text, query=query, value=value if is_defined else None)
        for text, (values, defined) in measured.items()
        for query, value, is_defined in zip(ranking.queries, values.tolist(), defined.tolist(), strict=True)
    ]


def _summarize_metrics(measured: dict[str, QueryValues]) -> list[RankedMetric]:
    """Summarize each metric over its queries: the mean with its interval, and the counts."""
    from ragfault.metrics.catalog import parse_metric
    from ragfault.report.json_documents import RankedMetric
    from ragfault.stats.intervals import mean_interval

    rows = []
    for text, (values, defined) in measured.items():
        scored = int(defined.sum())
        interval = mean_interval(values[defined], bounds=parse_metric(text).range) if scored else None
        figures = (interval.mean, interval.low, interval.high) if interval else (None, None, None)
        mean, low, high = figures
        row = RankedMetric(metric=text, mean=mean, low=low, high=high, scored=scored, undefined=len(values) - scored)
        rows.append(row)
    return rows


def _print_table(rows: list[RankedMetric]) -> None:
    width = max(len(row.metric) for row in rows) + 2
    click.echo(f"{'metric':<{width}}{'mean':>7}   95 % interval      scored  undefined")
    for row in rows:
        figures = "      –                  "
        if row.mean is not None:
            ends = f"{row.low:.4f} – {row.high:.4f}" if row.scored >= MIN_INDEPENDENT else f"{TOO_FEW:<15}"
            figures = f"{row.mean:>7.4f}   {ends}"
        click.echo(f"{row.metric:<{width}}{figures}  {row.scored:>7,}{row.undefined:>11,}")
