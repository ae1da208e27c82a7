"""Command `testset refresh`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragfault.apps.testsets.cli.make import check_distinct, check_target, encode_lines
from ragfault.options.output import add_corpus_options, json_option, print_json, print_notice, read_corpus

if TYPE_CHECKING:
    from ragfault.apps.testsets.anchors import RefreshResult

MAX_SHOWN = 40
"""Changed spans that are printed; --json has all."""


@click.command(
    epilog="""\b
Examples:
  ragfault testset refresh docs/ set.jsonl
  ragfault testset refresh docs/ set.jsonl -o set-new.jsonl --broken repair.jsonl
  ragfault testset refresh docs/ set.jsonl --old docs-last-month/ -o set-new.jsonl"""
)
@click.argument("corpus", type=click.Path())
@click.argument("items", metavar="SET", type=click.Path())
@click.option("-o", "--out", type=click.Path(dir_okay=False), help="Write the items that hold, with their new spans.")
@click.option("--broken", type=click.Path(dir_okay=False), metavar="FILE", help="Write the other items, as they were.")
@click.option("--old", type=click.Path(), metavar="CORPUS", help="Corpus of the set, for spans without a quote.")
@click.option("--force", is_flag=True, help="Replace existing files.")
@add_corpus_options
@json_option
def refresh(
    corpus: str,
    items: str,
    out: str | None,
    broken: str | None,
    old: str | None,
    force: bool,
    skip_bad: bool,
    exclude: tuple[str, ...],
    kind: str | None,
) -> int:
    """Find every gold span of SET again in the present documents of CORPUS: kept, moved, changed meaning or gone.

    Spans are found by their quotes, so that renamed files, moved sections and edits elsewhere do not matter. Exit
    code 0: every span is kept or moved; 1: some changed their meaning or are gone, each is named; 3: nothing broke, and
    some cannot be verified.
    """
    from ragfault.apps.testsets.anchors import refresh_testset
    from ragfault.io.atomic_files import write_atomically
    from ragfault.io.trace_reader import read_traces

    for path in (out, broken):
        check_target(path, force)
    check_distinct([out, broken], [corpus, old])
    result = refresh_testset(
        read_corpus(corpus, skip_bad, exclude),
        read_traces(items, notice=print_notice),
        None if old is None else read_corpus(old, skip_bad),
    )
    for path, records in ((out, result.items), (broken, result.broken)):
        if path is not None:
            write_atomically(Path(path), encode_lines(records))
    if kind == "json":
        print_json(result)
    else:
        _print_changes(result)
    if result.counts.keys() & {"changed meaning", "gone"}:
        return 1
    return 3 if "unverified" in result.counts else 0


def _print_changes(result: RefreshResult) -> None:
    """Print the number of spans by state, then each that is not kept, in the order of the set."""
    total = len(result.items) + len(result.broken)
    states = ", ".join(f"{number:,} {state}" for state, number in sorted(result.counts.items()))
    click.echo(f"{len(result.items):,} of {total:,} items hold; gold spans: {states or 'none'}")
    changed = [change for change in result.changes if change.state != "kept"]
    for change in changed[:MAX_SHOWN]:
        moved_to = f" → {change.span.document}" if change.span and change.span.document != change.document else ""
        reason = f": {change.reason}" if change.reason else ""
        click.echo(f"  {change.item}  {change.state}  {change.document}{moved_to}{reason}")
    if len(changed) > MAX_SHOWN:
        rest = Counter(change.state for change in changed[MAX_SHOWN:])
        click.echo(f"  … and {', '.join(f'{number:,} {state}' for state, number in sorted(rest.items()))}; all: --json")
