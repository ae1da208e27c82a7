"""Commands `convert` and `export`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.model.errors import InputError, UsageError
from ragfault.options.output import json_option, print_files, print_json, print_notice
from ragfault.options.runs import sample_option
from ragfault.options.settings import add_trace_options, pick_trace_options
from ragfault.text.number_format import format_count

if TYPE_CHECKING:
    from ragfault.evaluation.jobs import BadLineWriter
    from ragfault.model.records import Trace


@click.command(
    epilog="""\b
Examples:
  ragfault run convert ragas.jsonl traces.jsonl
  ragfault run convert traces.jsonl traces.parquet
  ragfault run convert traces.jsonl deepeval.json --to deepeval
  ragfault run convert traces.jsonl shared.jsonl --redact all
  ragfault run convert traces.jsonl run.trec --to trec --to-qrels qrels.txt"""
)
@click.argument("traces", nargs=-1, required=True)
@click.argument("out", type=click.Path())
@add_trace_options
@click.option("--to", default="ragfault", show_default=True, help="Output format.")
@click.option(
    "--redact",
    help="Replace email, phone, card, key (a,b), or all, by placeholders. With RAGFAULT_REDACT_KEY set, "
    "the same id has the same placeholder each time.",
)
@click.option("--to-qrels", type=click.Path(), help="Path for the qrels, with --to trec.")
@click.option("--skip-bad", is_flag=True, help="Skip lines that are not traces and write them to OUT.bad.jsonl.")
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@json_option
def convert(
    traces: tuple[str, ...],
    out: str,
    redact: str | None,
    to: str,
    to_qrels: str | None,
    skip_bad: bool,
    force: bool,
    kind: str | None,
    **options: Any,
) -> None:
    """Read TRACES in any format that `evaluate` reads, and write them to OUT.

    The format follows the name of OUT: .jsonl, .json, .csv, .parquet, also with .gz or .zst.
    """
    from ragfault.evaluation.jobs import BadLineWriter
    from ragfault.io.trace_reader import read_traces
    from ragfault.io.trace_writer import write_traces

    with BadLineWriter(Path(out).with_name(Path(out).name + ".bad.jsonl"), print_notice) as side:
        stream = read_traces(
            list(traces) if len(traces) > 1 else traces[0],
            on_bad=side.write if skip_bad else "raise",
            notice=print_notice,
            **pick_trace_options(options),
        )
        counts: Counter[str] = Counter()
        if redact is not None:
            stream = _redact_traces(stream, redact, counts)
        required = _require_traces(stream, out, side)
        count = write_traces(required, out, shape=to, qrels=to_qrels, force=force, notice=print_notice)
    if kind == "json":
        from ragfault.report.json_documents import WrittenTraces

        print_json(WrittenTraces(path=out, traces=count, redacted=dict(sorted(counts.items()))))
        return
    click.echo(f"{format_count(count, 'trace')} in {out}")
    if redact is not None:
        print_notice("redacted: " + (", ".join(f"{n:,} {name}" for name, n in sorted(counts.items())) or "nothing"))


def _redact_traces(traces: Iterator[Trace], kinds: str, counts: Counter[str]) -> Iterator[Trace]:
    """Yield the traces redacted, and count the replacements by kind."""
    from ragfault.io.redaction import Redactor

    redactor = Redactor(kinds, os.environ.get("RAGFAULT_REDACT_KEY"))
    for trace in traces:
        redacted = redactor.redact_trace(trace)
        counts.update(redacted.counts)
        yield redacted.trace


def _require_traces(traces: Iterator[Trace], out: str, side: BadLineWriter) -> Iterator[Trace]:
    """Yield the traces; raise InputError at the end where there was none, so that nothing is written."""
    count = 0
    for trace in traces:
        count += 1
        yield trace
    if not count:
        raise InputError(
            f"{out} is not written: the input holds no trace, and bad lines: {side.count:,}. "
            "Leave out --skip-bad to see what is wrong with them."
        )


@click.command(
    epilog="""\b
Examples:
  ragfault run export runs/v1 runs/v2 --to mlflow --experiment handbook
  ragfault run export runs/v1 --to mlflow --uri http://127.0.0.1:5000
  ragfault run export runs/v1 runs/v2 --to wandb -o wandb/"""
)
@click.argument("runs", nargs=-1, required=True, type=click.Path())
@click.option(
    "--to",
    required=True,
    type=click.Choice(["mlflow", "wandb"]),
    help="mlflow: log parameters, metrics, tables and files of each run; wandb: write a history and a table as CSV.",
)
@click.option("--uri", help="MLflow tracking server or store.  [default: MLFLOW_TRACKING_URI]")
@click.option("--experiment", default="ragfault", show_default=True, help="MLflow's experiment.")
@click.option("-o", "--out", type=click.Path(), help="Folder for the CSV files of --to wandb.")
@click.option("--force", is_flag=True, help="Replace existing CSV files.")
@sample_option
@json_option
def export(
    runs: tuple[str, ...],
    to: str,
    uri: str | None,
    experiment: str,
    out: str | None,
    force: bool,
    sample: int,
    kind: str | None,
) -> None:
    """Export RUNS to an experiment tracker."""
    from ragfault.report.experiment_trackers import to_mlflow, write_history

    if to == "wandb":
        if out is None:
            raise UsageError("--to wandb writes CSV: name the folder for them with -o.")
        written = write_history(runs, out, force=force, sample=sample)
        if kind == "json":
            print_files(written)
            return
        for path in written:
            click.echo(f"{path}")
        return
    if out is not None:
        raise UsageError("--to mlflow writes to MLflow: name its server or store with --uri, not -o.")
    ids = {}
    for run in runs:
        ids[run] = to_mlflow(run, uri=uri, experiment=experiment, sample=sample)
        if kind != "json":
            click.echo(f"{run}: run {ids[run]} of MLflow")
    if kind == "json":
        from ragfault.report.json_documents import TrackedRun

        print_json([TrackedRun(run=run, id=name) for run, name in ids.items()])
