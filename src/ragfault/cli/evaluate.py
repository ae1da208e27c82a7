"""`ragfault evaluate` and `ragfault rescore`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ragfault.cli.llm import FLAGS, asking, chosen, estimate
from ragfault.cli.options import executor, mapping, reading, settings, setup, spreading
from ragfault.cli.progress import progressing
from ragfault.cli.rectify import rectify

__all__ = ["evaluate", "rescore"]

LOST = 3
"""The exit code where scores were lost to failures of the judge or of a metric."""


@click.command(
    epilog="""\b
Examples:
  ragfault evaluate traces.jsonl -o runs/today
  ragfault evaluate traces.parquet -o runs/today --workers 2 -m default -m rouge_l
  ragfault evaluate old.jsonl -o runs/old --map query=question --map chunks=docs
  ragfault evaluate traces.jsonl -o runs/law --lens legal
  ragfault evaluate traces.jsonl -o runs/model --judge llm:gpt-4o-mini --budget 2 --dry-run
  ragfault evaluate run.trec --qrels qrels.txt -o runs/trec -m ndcg@10 -m recall@100
  zcat traces.jsonl.gz | ragfault evaluate - -o runs/today
  ragfault evaluate s3://logs/day.parquet -o s3://runs/day --ray auto

Killed, it goes on where it stopped when the same command is given again. Exit code 3: some scores
were lost to failures; the summary says which."""
)
@click.argument("traces", nargs=-1, required=True)
@click.option(
    "-o", "--out", required=True, type=click.Path(), help="Where the run is written: a new directory."
)
@click.option(
    "-m",
    "--metrics",
    multiple=True,
    help="A metric such as ndcg@10, a layer, `default` or `all`. Repeatable.  [default: default]",
)
@click.option(
    "--judge",
    help="Who makes the observations: embedded (trained, in the package), lexical (words alone), minilm (a small "
    "language model), none, onnx:PATH for a model in ONNX: a folder, a file, or OWNER/NAME in the cache of the "
    "Hugging Face hub, or llm:MODEL or llm:PROVIDER/MODEL, which is asked over the network.  [default: embedded]",
)
@click.option(
    "--lens",
    metavar="NAME|FILE",
    help="What must agree exactly: legal, medical, financial, technical, or a TOML file.  [default: general]",
)
@spreading
@click.option(
    "--batch",
    type=click.IntRange(1),
    help="Traces judged and saved together.  [default: 64; up to 1024 on a cluster or in an object store]",
)
@asking
@click.option("--dry-run", is_flag=True, help="Say what a model would be asked and cost; send nothing.")
@reading
@click.option(
    "--skip-bad", is_flag=True, help="Leave out lines that are not traces; keep them in OUT.bad.jsonl."
)
@click.option("--force", is_flag=True, help="Replace the run that stands at OUT.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar and no scorecard.")
@rectify
@setup
def evaluate(
    traces: tuple[str, ...],
    out: str,
    maps: tuple[str, ...],
    metrics: tuple[str, ...],
    force: bool,
    skip_bad: bool,
    quiet: bool,
    dry_run: bool,
    rectify: tuple[str, ...],
    config: str | None,
    **options: Any,
) -> int:
    """Judge every trace, compute every metric on it, and leave the result as a run.

    TRACES are files, folders or globs of JSONL, JSON, CSV or Parquet (also .gz and .zst), a TREC run, or - for
    standard input; also in an object store (s3://, gs://, az://), as OUT may be. The shapes of Ragas, DeepEval,
    RAGChecker, TruLens and RAGTruth, and what OpenTelemetry, Phoenix, Langfuse and LangSmith export, are recognised.
    """
    from ragfault.evaluation import evaluate as work

    table = settings(config)
    asked = _asked(metrics, options, table)
    asked |= executor(asked.pop("ray", None), asked)
    where = list(traces) if len(traces) > 1 else traces[0]
    maps_to = mapping(maps, table.get("map", {}))
    if dry_run:
        click.echo(_estimated(where, asked, map=maps_to))
        return 0
    with progressing(quiet) as progress:
        run = work(
            where,
            out,
            map=maps_to,
            force=force,
            skip_bad=skip_bad,
            progress=progress,
            spent=progress.spent,
            notice=_say(quiet),
            **asked,
        )
    return _finish(run, quiet, table, rectify)


def _asked(metrics: tuple[str, ...], options: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """What `evaluate` is given: flags before settings, and what is for a judge that asks a model apart."""
    given = {name: value for name, value in options.items() if value is not None and name not in FLAGS}
    asked = {**table.get("evaluate", {}), **given, **({"metrics": metrics} if metrics else {})}
    return {**asked, "options": chosen(asked.get("judge"), options, table.get("llm", {}))}


def _estimated(where: Any, asked: dict[str, Any], **reading: Any) -> str:
    """What evaluating would ask of a model, in words."""
    from ragfault.sources import read_traces

    given = {name: asked[name] for name in ("shape", "qrels") if name in asked}
    traces = read_traces(where, **reading, **given)
    return estimate(traces, asked.get("judge"), asked["options"], asked.get("lens", "general"))


@click.command(
    epilog="""\b
Examples:
  ragfault rescore runs/today -o runs/strict -m "groundedness(strict=true)" -m triad
  ragfault rescore runs/today -o runs/weights -m "context_relevance(low=0, medium=0.5)" """
)
@click.argument("run", type=click.Path())
@click.option("-o", "--out", required=True, type=click.Path(), help="Where the new run is written.")
@click.option("-m", "--metrics", multiple=True, help="As for evaluate.  [default: those of RUN]")
@spreading
@click.option("--force", is_flag=True, help="Replace the run that stands at OUT.")
@click.option("-q", "--quiet", is_flag=True, help="No scorecard.")
@setup
def rescore(
    run: str,
    out: str,
    metrics: tuple[str, ...],
    workers: int | None,
    ray: str | None,
    force: bool,
    quiet: bool,
    config: str | None,
) -> int:
    """Compute metrics on the stored verdicts of RUN, without judging again.

    For other weights, penalties, thresholds or metrics. Nothing is sent or spent.
    """
    from ragfault.evaluation import rescore as work
    from ragfault.metrics.aliases import told

    spread: dict[str, Any] = {} if workers is None else {"workers": workers}
    spread |= executor(ray, spread)
    for line in told(metrics):
        click.echo(line, err=True)
    return _finish(work(run, out, metrics=metrics or None, force=force, **spread), quiet, settings(config))


def _finish(run: Any, quiet: bool, table: dict[str, Any], rectify: tuple[str, ...] = ()) -> int:
    """Show the scorecard, say where the run is, and give the exit code."""
    made = run.manifest
    if not quiet:
        from ragfault.cli.report import show

        show(run, table, rectify)
        click.echo(f"\n{made.traces:,} traces in {run.path}   →   ragfault report {run.path} -o report.html")
    if made.failed:
        total = made.scored + made.undefined + made.failed
        click.echo(
            f"{made.failed:,} of {total:,} scores were lost to failures; the reasons stand beside them.",
            err=True,
        )
        return LOST
    return 0


def _say(quiet: bool) -> Callable[[str], None]:
    def say(line: str) -> None:
        if not quiet or line.startswith("left out") or " is answered by " in line:
            click.echo(line, err=True)

    return say
