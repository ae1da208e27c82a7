"""Command `testset describe`."""

from __future__ import annotations

from pathlib import Path

import click

from ragfault.model.errors import UsageError
from ragfault.options.output import (
    add_corpus_options,
    json_option,
    print_json,
    print_notice,
    read_corpus,
    render_document,
)


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
@add_corpus_options
@json_option
def describe(
    items: str,
    corpus: str | None,
    runs: tuple[str, ...],
    metric: str | None,
    html: str | None,
    skip_bad: bool,
    exclude: tuple[str, ...],
    kind: str | None,
) -> None:
    """Describe SET: kinds of questions, coverage, effective size, and the smallest change that it detects.

    With --runs also the difficulty of its items: which ones every system solves, and which ones none does.
    """
    from ragfault.apps.testsets.description import describe_testset
    from ragfault.apps.testsets.difficulty import measure_difficulty
    from ragfault.apps.testsets.documents import DescribedTestset
    from ragfault.apps.testsets.report.description import build_description
    from ragfault.io.atomic_files import write_atomically
    from ragfault.io.runs.run import Run
    from ragfault.io.trace_reader import read_traces

    if metric is not None and not runs:
        raise UsageError("--metric is that of the difficulty: name runs with --runs RUN.")
    testset = list(read_traces(items, notice=print_notice))
    documents = None if corpus is None else read_corpus(corpus, skip_bad, exclude)
    result = describe_testset(testset, documents)
    difficulty = measure_difficulty(testset, [Run.open(path) for path in runs], metric) if runs else None
    document = build_description(Path(items).name, result, difficulty)
    if html is not None:
        write_atomically(Path(html), render_document(document, "html", False, "testset describe").encode())
    if kind == "json":
        print_json(result if difficulty is None else DescribedTestset(description=result, difficulty=difficulty))
        return
    click.echo(render_document(document, "terminal", True), nl=False)
    if html is not None:
        click.echo(f"page: {html}")
