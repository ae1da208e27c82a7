"""Command `testset describe`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragfault.model.errors import UsageError
from ragfault.options.output import json_option, print_json, print_notice, read_corpus, skip_bad_option
from ragfault.text.number_format import format_percent

if TYPE_CHECKING:
    from ragfault.apps.testsets.description import TestsetDescription
    from ragfault.apps.testsets.difficulty import TestsetDifficulty


@click.command(
    epilog="""\b
Examples:
  ragfault testset describe set.jsonl
  ragfault testset describe set.jsonl --corpus docs/ --json
  ragfault testset describe set.jsonl --corpus docs/ --runs runs/v1 --runs runs/v2 --html set.html"""
)
@click.argument("items", metavar="SET", type=click.Path())
@click.option("--corpus", type=click.Path(), help="Corpus whose coverage is measured.")
@click.option(
    "--runs", multiple=True, type=click.Path(), metavar="RUN", help="Run of a system on SET: difficulty. Repeatable."
)
@click.option("--metric", help="Metric of the difficulty.  [default: the first that all runs have of ndcg, recall, …]")
@click.option("--html", type=click.Path(dir_okay=False), metavar="FILE", help="Also write a page with pictures.")
@skip_bad_option
@json_option
def describe(
    items: str,
    corpus: str | None,
    runs: tuple[str, ...],
    metric: str | None,
    html: str | None,
    skip_bad: bool,
    kind: str | None,
) -> None:
    """Describe SET: kinds of questions, coverage, effective size, and the smallest change that it detects.

    With --runs also the difficulty of its items: which ones every system solves, and which ones none does.
    """
    from ragfault.apps.testsets.description import describe_testset
    from ragfault.apps.testsets.difficulty import measure_difficulty
    from ragfault.apps.testsets.documents import DescribedTestset
    from ragfault.apps.testsets.report.html import render_testset_html
    from ragfault.io.atomic_files import write_atomically
    from ragfault.io.runs.run import Run
    from ragfault.io.trace_reader import read_traces

    if metric is not None and not runs:
        raise UsageError("--metric is that of the difficulty: name runs with --runs RUN.")
    testset = list(read_traces(items, notice=print_notice))
    documents = None if corpus is None else read_corpus(corpus, skip_bad)
    result = describe_testset(testset, documents)
    difficulty = measure_difficulty(testset, [Run.open(path) for path in runs], metric) if runs else None
    if html is not None:
        write_atomically(Path(html), render_testset_html(Path(items).name, result, difficulty).encode())
    if kind == "json":
        print_json(result if difficulty is None else DescribedTestset(description=result, difficulty=difficulty))
        return
    for line in [*_format_lines(result), *(_format_difficulty(difficulty) if difficulty else ())]:
        click.echo(line)
    if html is not None:
        click.echo(f"page: {html}")


def _format_difficulty(difficulty: TestsetDifficulty) -> list[str]:
    count = len(difficulty.items)
    lines = [
        f"difficulty by {difficulty.metric}: of {count:,} items {difficulty.solved:,} have at least 0.5 in every run, "
        f"{difficulty.unsolved:,} in none; {difficulty.missing:,} have no value in some run"
    ]
    lines += [f"  run {name}: mean {mean:.3f}" for name, mean in difficulty.runs.items()]
    lines += [f"  kind {name}: mean {mean:.3f}" for name, mean in difficulty.kinds.items()]
    hardest = difficulty.items[: min(5, count)]
    return lines + [f"  hard: {row.item}  {row.mean:.2f}  {row.query}" for row in hardest]


def _format_lines(result: TestsetDescription) -> list[str]:
    from ragfault.apps.testsets.report.html import list_facts

    lines = list_facts(result)
    lines += [f"  {part.document}: {part.items:,} items, {format_percent(part.share)}" for part in result.documents[:5]]
    weakest = sorted(result.topics.items(), key=lambda pair: pair[1])[:5]
    lines += [f"  topic {topic}: {format_percent(share)} of its passages have gold" for topic, share in weakest]
    if result.uncovered:
        lines.append(f"  without an item: {', '.join(result.uncovered[:5])}")
    return lines + [f"warning: {text}" for text in result.warnings]
