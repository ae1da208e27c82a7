"""Command `testset pool`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragfault.apps.testsets.cli.make import check_distinct, check_target, encode_lines
from ragfault.options.output import add_corpus_options, json_option, print_json, print_notice, read_corpus
from ragfault.text.number_format import format_percent

if TYPE_CHECKING:
    from ragfault.apps.testsets.pooling import PoolEstimate


@click.command(
    epilog="""\b
Examples:
  ragfault testset pool docs/ set.jsonl -o pool.jsonl --depth 10
  ragfault evaluate pool.jsonl -o runs/pool
  ragfault label runs/pool
  ragfault testset pool docs/ pool.jsonl --labels labels.jsonl -o labelled.jsonl"""
)
@click.argument("corpus", type=click.Path())
@click.argument("items", metavar="SET", type=click.Path())
@click.option("-o", "--out", required=True, type=click.Path(dir_okay=False), help="File to write (JSON Lines).")
@click.option(
    "--depth", type=click.IntRange(1, 1000), default=10, show_default=True, help="Passages of each retriever."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the order of passages.")
@click.option(
    "--labels",
    type=click.Path(),
    help="Labels of the passages of a pool: write SET with them as gold, and estimate what the pool misses.",
)
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@add_corpus_options
@json_option
def pool(
    corpus: str,
    items: str,
    out: str,
    depth: int,
    seed: int,
    labels: str | None,
    force: bool,
    skip_bad: bool,
    exclude: tuple[str, ...],
    kind: str | None,
) -> None:
    """Pool the passages of CORPUS that several retrievers return for the items of SET, to be labelled by people.

    The passages of an item are in random order. With --labels SET is a pool: the passages that people call relevant
    become gold spans, and the number of relevant passages that no retriever returned is estimated.
    """
    from ragfault.apps.testsets.documents import WrittenPool
    from ragfault.apps.testsets.pooling import apply_pool_labels, pool_passages
    from ragfault.io.atomic_files import write_atomically
    from ragfault.io.trace_reader import read_traces
    from ragfault.labels.reading.label_files import read_labels

    check_target(out, force)
    check_distinct([out], [corpus, items, labels])
    documents = list(read_corpus(corpus, skip_bad, exclude))
    testset = list(read_traces(items, notice=print_notice))
    if labels is None:
        pooled = pool_passages(documents, testset, depth=depth, seed=seed)
        write_atomically(Path(out), encode_lines(pooled))
        passages = sum(len(item.chunks or ()) for item in pooled)
        names = pooled[0].metadata["pool"]["retrievers"]
        if kind == "json":
            print_json(WrittenPool(path=out, items=len(pooled), passages=passages, retrievers=tuple(names)))
            return
        click.echo(f"{passages:,} passages for {len(pooled):,} items in {out}, by {', '.join(names)}")
        click.echo(f"Next: ragfault evaluate {out} -o runs/pool, then ragfault label runs/pool")
        return
    result, estimate = apply_pool_labels(documents, testset, read_labels(labels), seed=seed)
    write_atomically(Path(out), encode_lines(result))
    if kind == "json":
        print_json(estimate)
        return
    click.echo(f"{len(result):,} items in {out}")
    for line in _format_estimate(estimate):
        click.echo(line)


def _format_estimate(estimate: PoolEstimate) -> list[str]:
    lines = [
        f"{estimate.labelled:,} labelled passages of {estimate.queries:,} queries, {estimate.relevant:,} are relevant"
    ]
    if estimate.unseen is None or estimate.unseen_low is None or estimate.unseen_high is None:
        return [*lines, "what the pool misses cannot be estimated: no relevant passage, or only one retriever"]
    share = estimate.unseen / (estimate.unseen + estimate.relevant)
    interval = f"[{estimate.unseen_low:.0f}, {estimate.unseen_high:.0f}]"
    return [
        *lines,
        f"at least about {estimate.unseen:.0f} {interval} relevant ones "
        f"({format_percent(share)}) were returned by no retriever",
    ]
