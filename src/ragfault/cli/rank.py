"""`ragfault rank`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.errors import UsageError

if TYPE_CHECKING:
    from ragfault.metrics.ranking import Measured, Ranking

__all__ = ["rank"]

USUAL = (
    "average_precision",
    "reciprocal_rank",
    "ndcg@10",
    "precision@5",
    "recall@5",
    "recall@100",
    "hit@1",
    "hit@10",
)
"""The metrics computed where none are named."""


@click.command(
    epilog="""\b
Examples:
  ragfault rank run.trec qrels.txt
  ragfault rank run.trec.gz qrels.txt -m ndcg@10 -m "recall(relevant=2)@100"
  ragfault rank run.trec qrels.txt -m ndcg@10 --per-query > ndcg.tsv

For a run with traces, reports and gates: ragfault evaluate run.trec --qrels qrels.txt -o RUN"""
)
@click.argument("run", type=click.Path())
@click.argument("qrels", type=click.Path())
@click.option(
    "-m", "--metrics", multiple=True, help=f"A ranked metric. Repeatable.  [default: {', '.join(USUAL)}]"
)
@click.option("--per-query", is_flag=True, help="Every value: metric, query and value, separated by tabs.")
@click.option("--json", "as_json", is_flag=True, help="The means as JSON.")
def rank(run: str, qrels: str, metrics: tuple[str, ...], per_query: bool, as_json: bool) -> None:
    """Score the TREC run RUN against QRELS: the ranked metrics alone, fast.

    Values equal trec_eval's. A query of the qrels that the run lacks scores 0; one that was not judged is undefined.
    """
    from ragfault.metrics.qrels import from_columns
    from ragfault.sources.trec import read_qrels, read_run

    asked = _asked(metrics or USUAL)
    ranking = from_columns(read_run(Path(run)), read_qrels(Path(qrels)))
    found = {text: measure(ranking) for text, measure in asked.items()}
    if per_query:
        _values(ranking, found)
        return
    rows = list(_rows(found))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        _table(rows)


def _asked(texts: tuple[str, ...]) -> dict[str, Any]:
    """Metric → a function of the ranking."""
    from functools import partial

    from ragfault.metrics import parse
    from ragfault.metrics.ranking import FORMULAS, rank_metric

    asked = {}
    for text in texts:
        metric = parse(text)
        if metric.name not in FORMULAS:
            raise UsageError(f"{text} is not a ranked metric. There is: {', '.join(FORMULAS)}.")
        parameters: dict[str, Any] = dict(metric.parameters)
        asked[str(metric)] = partial(rank_metric, metric.name, k=metric.k, **parameters)
    return asked


def _values(ranking: Ranking, found: dict[str, Measured]) -> None:
    for text, (values, defined) in found.items():
        for query, value, known in zip(ranking.queries, values.tolist(), defined.tolist(), strict=True):
            click.echo(f"{text}\t{query}\t{f'{value:.6f}' if known else 'undefined'}")


def _rows(found: dict[str, Measured]) -> Iterator[dict[str, Any]]:
    from ragfault.stats import mean_interval

    for text, (values, defined) in found.items():
        scored = int(defined.sum())
        interval = mean_interval(values[defined], bounds=(0, 1)) if scored else None
        yield {
            "metric": text,
            "mean": interval.mean if interval else None,
            "low": interval.low if interval else None,
            "high": interval.high if interval else None,
            "scored": scored,
            "undefined": len(values) - scored,
        }


def _table(rows: list[dict[str, Any]]) -> None:
    width = max(len(row["metric"]) for row in rows) + 2
    click.echo(f"{'metric':<{width}}{'mean':>7}   95 % interval      scored  undefined")
    for row in rows:
        figures = "      –                  "
        if row["mean"] is not None:
            figures = f"{row['mean']:>7.4f}   {row['low']:.4f} – {row['high']:.4f}"
        click.echo(f"{row['metric']:<{width}}{figures}  {row['scored']:>7,}{row['undefined']:>11,}")
