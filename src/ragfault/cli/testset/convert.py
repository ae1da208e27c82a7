"""Command `testset convert`."""

from __future__ import annotations

from pathlib import Path

import click

from ragfault.cli.options.output import json_option, print_json, print_notice
from ragfault.cli.testset.make import encode_lines
from ragfault.errors import UsageError

FORMATS = ("ragfault", "beir", "ragas", "deepeval", "langsmith", "huggingface")


@click.command(
    epilog="""\b
Examples:
  ragfault testset convert set.jsonl goldens.json --to deepeval
  ragfault testset convert set.jsonl beir/ --to beir --corpus docs/
  ragfault testset convert beir/ set.jsonl"""
)
@click.argument("items", metavar="SET", type=click.Path())
@click.argument("out", type=click.Path())
@click.option("--to", "to", type=click.Choice(FORMATS), default="ragfault", show_default=True, help="Format of OUT.")
@click.option("--corpus", type=click.Path(), help="Corpus to include, for BEIR.")
@click.option("--force", is_flag=True, help="Replace OUT.")
@json_option
def convert(items: str, out: str, to: str, corpus: str | None, force: bool, kind: str | None) -> None:
    """Convert SET (any file that evaluate reads, or a folder of BEIR) to the format of another tool.

    Only the format of ragfault keeps gold spans with quotes and provenance; beir and the others keep less.
    """
    from ragfault.io import read_traces
    from ragfault.io.atomic_files import write_atomically
    from ragfault.io.documents import read_documents
    from ragfault.reports.testset_documents import WrittenItems
    from ragfault.testsets.formats import read_beir, write_testset

    if Path(out).exists() and not force:
        raise UsageError(f"{out} exists. Choose another place, or replace it with --force.")
    listed = read_beir(items) if Path(items).is_dir() else list(read_traces(items, notice=print_notice))
    if to == "ragfault":
        write_atomically(Path(out), encode_lines(listed))
        count = len(listed)
    else:
        documents = None if corpus is None else read_documents(corpus, notice=print_notice)
        count = write_testset(listed, out, to, documents)
    if kind == "json":
        print_json(WrittenItems(path=out, format=to, items=count))
        return
    click.echo(f"{count:,} of {len(listed):,} items written to {out} ({to})")
