"""`ragfault lint`, `ragfault savings` and `ragfault relevance`: advice and arithmetic about retrieval."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.errors import UsageError

if TYPE_CHECKING:
    from ragfault.tuning.saving import Savings
    from ragfault.tuning.scoring import Relevance

__all__ = ["lint", "relevance", "savings"]

LETTERS = 60
"""Characters of a chunk that are shown."""


@click.command(
    epilog="""\b
Examples:
  ragfault lint pipeline.toml --index index/
  ragfault lint runs/today --json

Exit 0: none was found; 1: one was."""
)
@click.argument("target", type=click.Path(exists=True))
@click.option(
    "--index", type=click.Path(), help="The index that the pipeline searches, to hold its embedder against."
)
@click.option("--json", "as_json", is_flag=True, help="The findings as JSON.")
def lint(target: str, index: str | None, as_json: bool) -> int:
    """Look for six pitfalls of retrieval in TARGET, a pipeline.toml or a run.

    Lost in the middle, static chunk size, dense only, filter after retrieval, nothing monitored, embedder changed
    without embedding the corpus again: each with what was seen of it.
    """
    import msgspec

    from ragfault.report.plain import clean
    from ragfault.tuning.pitfalls import lint as look

    found = look(Path(target), index)
    bad = [one for one in found if one.found]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return 1 if bad else 0
    for one in found:
        click.echo(f"{'✗' if one.found else '·'} {one.name}: {clean(one.evidence)}")
        if one.found:
            click.echo(f"    {one.remedy}")
    click.echo(f"\n{len(bad)} of {len(found)} pitfalls found.")
    return 1 if bad else 0


@click.command(
    epilog="""\b
Examples:
  ragfault savings --precision 0.60 0.85 --recall 0.65 0.75 --cost 0.05 --queries 100000
  ragfault savings --runs runs/v1 runs/v2 --queries 100000 --model gpt-4o-mini"""
)
@click.option("--precision", nargs=2, type=float, metavar="BEFORE AFTER", help="Precision, from 0 to 1.")
@click.option("--recall", nargs=2, type=float, metavar="BEFORE AFTER", help="Recall, from 0 to 1.")
@click.option(
    "--runs", nargs=2, type=click.Path(), metavar="OLD NEW", help="Precision, recall and tokens of two runs."
)
@click.option("--queries", type=click.FloatRange(0), required=True, help="Queries a month.")
@click.option("--cost", type=click.FloatRange(0), help="US$ a query before; of runs: by the price catalogue.")
@click.option("--model", help="Whose price counts, where the traces do not say.")
@click.option(
    "--extra", type=float, default=0.0, show_default=True, help="US$ that each query costs more afterwards."
)
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
def savings(
    precision: tuple[float, float] | None,
    recall: tuple[float, float] | None,
    runs: tuple[str, str] | None,
    queries: float,
    cost: float | None,
    model: str | None,
    extra: float,
    as_json: bool,
) -> None:
    """Say what better retrieval is worth a month and a year.

    From precision and recall before and after, tokens are taken to fall by 0.3 of the relative gain in precision; from
    two runs they are measured.
    """
    import msgspec

    from ragfault.runs import Run
    from ragfault.tuning import saving

    if runs and not (precision or recall):
        old, new = map(Run.open, runs)
        found = saving.of_runs(old, new, queries=queries, cost=cost, model=model, extra=extra)
    elif precision and recall and not runs and cost is not None:
        found = saving.savings(precision, recall, cost=cost, queries=queries, extra=extra)
    else:
        raise UsageError("give --precision, --recall and --cost, or --runs OLD NEW.")
    click.echo(
        msgspec.json.format(msgspec.json.encode(found)).decode() if as_json else "\n".join(_told(found))
    )


def _told(found: Savings) -> list[str]:
    before, after = found.monthly
    return [
        *found.basis,
        f"precision {found.precision[0]:.3f} → {found.precision[1]:.3f}, "
        f"recall {found.recall[0]:.3f} → {found.recall[1]:.3f}",
        f"quality (their harmonic mean) {found.quality[0]:.3f} → {found.quality[1]:.3f}, {found.gain:+.1f} %",
        *_beware(found),
        f"tokens × {found.tokens:.3f}",
        f"a month US$ {before:,.2f} → {after:,.2f}: US$ {found.saved:,.2f} saved, US$ {found.yearly:,.2f} a year",
    ]


def _beware(found: Savings) -> list[str]:
    """That one of the two fell, which their harmonic mean may hide."""
    pairs = (("precision", found.precision), ("recall", found.recall))
    return [
        f"beware: {name} fell; what is saved by that is paid for in answers"
        for name, (a, b) in pairs
        if b < a
    ]


@click.command(
    epilog="""\b
Examples:
  ragfault relevance "When does the last ferry leave?" handbook/*.md
  ragfault relevance "May dogs travel?" docs/ --judge embedded --judge lexical --judge llm:gpt-4o-mini"""
)
@click.argument("query")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option(
    "--judge", "judges", multiple=True, help="Who scores; several stand side by side.  [default: embedded]"
)
@click.option("--chunker", default="sentences(256)", show_default=True, help="How the documents are cut.")
@click.option("--worst", is_flag=True, help="Chunks on which the judges differ most first.")
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="Chunks that are shown.")
@click.option("--skip-bad", is_flag=True, help="Leave out documents that cannot be read.")
@click.option("--json", "as_json", is_flag=True, help="Every chunk and value as JSON.")
def relevance(
    query: str,
    files: tuple[str, ...],
    judges: tuple[str, ...],
    chunker: str,
    worst: bool,
    limit: int,
    skip_bad: bool,
    as_json: bool,
) -> None:
    """Score the documents in FILES against QUERY, by chunk, with one judge or several side by side.

    Shows model, time and cost of each judge, and how far they differ.
    """
    import msgspec

    from ragfault.sources.documents import read_documents
    from ragfault.tuning.scoring import relevances

    documents = tuple(read_documents(list(files), on_bad="skip" if skip_bad else "raise"))
    found = relevances(query, documents, judges or ("embedded",), chunker)
    if as_json:
        held: dict[str, Any] = {"found": found, "gaps": found.gaps, "documents": found.documents}
        click.echo(msgspec.json.format(msgspec.json.encode(held), indent=2).decode())
        return
    width = 100 if not sys.stdout.isatty() else None
    click.echo(_scores(found, limit, worst, width), nl=False)


def _scores(found: Relevance, limit: int, worst: bool, width: int | None) -> str:
    """The chunks with each judge's value, then the judges."""
    import shutil

    from rich.table import Table

    from ragfault.report.plain import clean, clip
    from ragfault.report.terminal import paint

    several = len(found.scored) > 1
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for head in (
        *(one.judge for one in found.scored),
        *(["difference"] if several else []),
        "document",
        "text",
    ):
        table.add_column(clean(head), overflow="fold")
    first, gaps = found.scored[0].values, found.gaps
    order = sorted(range(len(first)), key=lambda at: -(gaps if worst else first)[at])[:limit]
    for at in order:
        values = [f"{one.values[at]:.3f}" for one in found.scored]
        chunk = found.chunks[at]
        shown = clip(" ".join(chunk.text.split()), LETTERS)
        table.add_row(*values, *([f"{gaps[at]:.3f}"] if several else []), clean(chunk.document or ""), shown)
    lines = [
        f"{clean(one.judge)}: {clean(one.fingerprint)}, {one.seconds:.2f} s, "
        + ("no known price" if one.cost is None else f"US$ {one.cost:.6g}")
        for one in found.scored
    ]
    count = f"{len(first):,} chunks of {len(found.documents):,} documents"
    return paint(
        [table, "", count, *lines], width=width or shutil.get_terminal_size((100, 24)).columns, colour=False
    )
