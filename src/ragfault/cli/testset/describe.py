"""Command `testset describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ragfault.cli.options.output import json_option, print_json, print_notice

if TYPE_CHECKING:
    from ragfault.testsets import TestsetDescription


@click.command(
    epilog="""\b
Examples:
  ragfault testset describe set.jsonl
  ragfault testset describe set.jsonl --corpus docs/ --json"""
)
@click.argument("items", metavar="SET", type=click.Path())
@click.option("--corpus", type=click.Path(), help="Corpus whose coverage is measured.")
@json_option
def describe(items: str, corpus: str | None, kind: str | None) -> None:
    """Describe SET: kinds of questions, coverage, effective size, and the smallest change that it detects."""
    from ragfault.io import read_traces
    from ragfault.io.documents import read_documents
    from ragfault.testsets import describe_testset

    result = describe_testset(
        read_traces(items, notice=print_notice), None if corpus is None else read_documents(corpus, notice=print_notice)
    )
    if kind == "json":
        print_json(result)
        return
    for line in _format_lines(result):
        click.echo(line)


def _format_lines(result: TestsetDescription) -> list[str]:
    kinds = ", ".join(f"{name} {count:,}" for name, count in result.kinds.items())
    covered = f"{result.covered:,}" + (f" of {result.corpus:,}" if result.corpus is not None else "")
    lines = [
        f"{result.items:,} items: {kinds}; {result.unanswerable:,} unanswerable, {result.reviewed:,} reviewed",
        f"gold in {covered} documents"
        + (f", {result.chunks_needed:.2f} places an item" if result.chunks_needed is not None else ""),
        f"effective size {result.effective:.0f} ({result.groups:,} groups of overlapping gold or nearly one query)",
    ]
    if result.detectable is not None:
        lines.append(
            f"detects a change of {result.detectable:.3f} (power 0.8, paired, deviation 0.25); "
            f"a change of 0.05 takes {result.required:,}"
        )
    lines += [f"  {part.document}: {part.items:,} items, {part.share:.0%}" for part in result.documents[:5]]
    weakest = sorted(result.topics.items(), key=lambda pair: pair[1])[:5]
    lines += [f"  topic {topic}: {share:.0%} of its passages have gold" for topic, share in weakest]
    if result.uncovered:
        lines.append(f"  without an item: {', '.join(result.uncovered[:5])}")
    return lines + [f"warning: {text}" for text in result.warnings]
