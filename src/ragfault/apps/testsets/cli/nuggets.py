"""Commands `testset nuggets` and `testset key`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragfault.apps.testsets.cli.make import check_distinct, check_target, encode_lines
from ragfault.io.atomic_files import write_atomically
from ragfault.io.trace_reader import read_traces
from ragfault.judges.loading import DEFAULT_JUDGE
from ragfault.options.llm_judge import add_llm_options, resolve_judge_options
from ragfault.options.output import json_option, print_json, print_notice
from ragfault.options.runs import read_logged
from ragfault.options.settings import load_settings

if TYPE_CHECKING:
    from ragfault.apps.testsets.nuggets import NuggetResult


@click.command(
    epilog="""\b
Examples:
  ragfault testset nuggets set.jsonl -o nuggets.jsonl
  ragfault testset nuggets set.jsonl -o nuggets.jsonl --answers runs/v1 --answers runs/v2
  ragfault testset key nuggets.jsonl answers-v3.jsonl -o keyed-v3.jsonl
  ragfault evaluate keyed-v3.jsonl -o runs/v3 -m "completeness(okay=0.5)" -m "context_recall(okay=0.5)\""""
)
@click.argument("items", metavar="SET", type=click.Path())
@click.option("-o", "--out", required=True, type=click.Path(dir_okay=False), help="File to write (JSON Lines).")
@click.option(
    "--answers",
    multiple=True,
    type=click.Path(),
    metavar="RUN|FILE",
    help="Answers of a system to the queries of SET, whose claims are pooled. Repeatable.",
)
@click.option("--replace", is_flag=True, help="Also replace the facts that items have already.")
@click.option("--judge", default=DEFAULT_JUDGE, show_default=True, help="Judge that extracts and compares claims.")
@add_llm_options
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@json_option
def nuggets(
    items: str,
    out: str,
    answers: tuple[str, ...],
    replace: bool,
    judge: str,
    force: bool,
    kind: str | None,
    **llm_flags: object,
) -> int:
    """Add nuggets to the items of SET: facts that a good answer states, vital and okay ones.

    They are the statements of the references, and the claims of pooled answers that the chunks of their traces
    support; those that half of the references or of the answers state are vital, unless others contradict them.
    Systems are then scored without gold
    chunks, by completeness (of answers) and context_recall (of retrieved chunks). People have to accept the items.
    Exit code 1 where no item has nuggets.
    """
    from ragfault.apps.testsets.documents import WrittenNuggets
    from ragfault.apps.testsets.nuggets import add_nuggets
    from ragfault.judges.loading import load_judge

    check_target(out, force)
    check_distinct([out], [items, *answers])
    judge_options = resolve_judge_options(judge, llm_flags, load_settings(None).get("llm", {}))
    pooled = (trace for path in answers for trace in read_logged(path))
    testset = read_traces(items, notice=print_notice)
    result = add_nuggets(testset, load_judge(judge, **judge_options), pooled, replace_facts=replace)
    write_atomically(Path(out), encode_lines(result.items))
    if kind == "json":
        print_json(
            WrittenNuggets(
                path=out,
                items=len(result.items),
                vital=result.vital,
                okay=result.okay,
                unchanged=result.unchanged,
                without=result.without,
                contradicted=result.contradicted,
                unmatched=result.unmatched,
            )
        )
    else:
        for line in _format_lines(result, out):
            click.echo(line)
    return 0 if any(item.facts for item in result.items) else 1


def _format_lines(result: NuggetResult, out: str) -> Iterator[str]:
    changed = len(result.items) - result.unchanged - sum(result.without.values())
    items = f"{changed:,} of {len(result.items):,} items in {out}"
    yield f"{result.vital:,} vital and {result.okay:,} okay nuggets for {items}"
    if result.unchanged:
        yield f"{result.unchanged:,} items kept the facts that they had (--replace: make new ones)"
    for reason, number in sorted(result.without.items()):
        yield f"{number:,} items without a nugget: {reason}"
    if result.contradicted:
        yield f"{result.contradicted:,} okay nuggets contradict others (metadata.nuggets.contradicted): review them"
    for reason, number in sorted(result.unmatched.items()):
        yield f"{number:,} answers left out: {reason}"


@click.command(
    epilog="""\b
Examples:
  ragfault testset key set.jsonl answers.jsonl -o keyed.jsonl
  ragfault evaluate keyed.jsonl -o runs/today"""
)
@click.argument("items", metavar="SET", type=click.Path())
@click.argument("traces", metavar="RUN|FILE", type=click.Path())
@click.option("-o", "--out", required=True, type=click.Path(dir_okay=False), help="File to write (JSON Lines).")
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@json_option
def key(items: str, traces: str, out: str, force: bool, kind: str | None) -> int:
    """Write the traces of a RUN or FILE that ask what an item of SET asks, each with the answer key of its item.

    Traces and items are matched by query; where several items with different keys ask it, by id, too. Other traces are
    left out, and counted. Exit code 1 where no trace matches.
    """
    from ragfault.apps.testsets.documents import KeyedTraces
    from ragfault.apps.testsets.nuggets import apply_key

    check_target(out, force)
    check_distinct([out], [items, traces])
    logged = list(read_logged(traces))
    result = apply_key(read_traces(items, notice=print_notice), logged)
    keyed = result.traces
    write_atomically(Path(out), encode_lines(keyed))
    if kind == "json":
        print_json(KeyedTraces(path=out, traces=len(logged), matched=len(keyed), unmatched=result.unmatched))
    else:
        click.echo(f"{len(keyed):,} of {len(logged):,} traces in {out} have the answer key of an item")
        for reason, number in sorted(result.unmatched.items()):
            click.echo(f"{number:,} traces left out: {reason}")
    return 0 if keyed else 1
