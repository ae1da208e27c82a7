"""`ragfault convert` and `ragfault demo`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragfault.cli.options import mapping, reading
from ragfault.errors import InputError

if TYPE_CHECKING:
    from ragfault.evaluation import Side
    from ragfault.records import Trace

__all__ = ["convert", "demo"]


@click.command(
    epilog="""\b
Examples:
  ragfault convert ragas.jsonl traces.jsonl
  ragfault convert traces.jsonl traces.parquet
  ragfault convert traces.jsonl deepeval.json --to deepeval
  ragfault convert traces.jsonl shared.jsonl --redact all
  ragfault convert traces.jsonl run.trec --to trec --to-qrels qrels.txt"""
)
@click.argument("traces", nargs=-1, required=True)
@click.argument("out", type=click.Path())
@reading
@click.option("--to", default="ragfault", show_default=True, help="The shape to write.")
@click.option(
    "--redact",
    help="Replace email, phone, card, key (a,b), or all, by placeholders. With RAGFAULT_REDACT_KEY set, "
    "ids that are replaced are so in the same way each time.",
)
@click.option("--to-qrels", type=click.Path(), help="Where the gold goes, with --to trec.")
@click.option(
    "--skip-bad", is_flag=True, help="Leave out lines that are not traces; keep them in OUT.bad.jsonl."
)
@click.option("--force", is_flag=True, help="Replace the file that stands at OUT.")
def convert(
    traces: tuple[str, ...],
    out: str,
    maps: tuple[str, ...],
    shape: str | None,
    qrels: str | None,
    redact: str | None,
    to: str,
    to_qrels: str | None,
    skip_bad: bool,
    force: bool,
) -> None:
    """Read TRACES in any format that `evaluate` reads, and write them to OUT.

    The format follows the name of OUT: .jsonl, .json, .csv, .parquet, also with .gz or .zst.
    """
    from ragfault.evaluation import Side
    from ragfault.sources import read_traces, write_traces

    def say(line: str) -> None:
        click.echo(line, err=True)

    with Side(Path(out).with_name(Path(out).name + ".bad.jsonl"), say) as side:
        found = read_traces(
            list(traces) if len(traces) > 1 else traces[0],
            map=mapping(maps, {}),
            shape=shape,
            qrels=qrels,
            on_bad=side.keep if skip_bad else "raise",
            notice=say,
        )
        counts: Counter[str] = Counter()
        if redact is not None:
            found = _redacted(found, redact, counts)
        count = write_traces(_some(found, out, side), out, shape=to, qrels=to_qrels, force=force)
    if redact is not None:
        say("redacted: " + (", ".join(f"{n:,} {kind}" for kind, n in sorted(counts.items())) or "nothing"))
    click.echo(f"{count:,} traces in {out}")


def _redacted(traces: Iterator[Trace], kinds: str, counts: Counter[str]) -> Iterator[Trace]:
    """The traces without what was to go, which is counted."""
    from ragfault.sources.redacting import Redactor

    redactor = Redactor(kinds, os.environ.get("RAGFAULT_REDACT_KEY"))
    for trace in traces:
        made = redactor.trace(trace)
        counts.update(made.counts)
        yield made.trace


def _some(traces: Iterator[Trace], out: str, side: Side) -> Iterator[Trace]:
    """The traces; raises InputError at the end where there was none, so that nothing is written."""
    count = 0
    for trace in traces:
        count += 1
        yield trace
    if not count:
        raise InputError(
            f"{out} is not written: the input holds no trace, and bad lines: {side.count:,}. "
            "Leave out --skip-bad to see what is wrong with them."
        )


@click.command(
    epilog="\b\nExample:\n  ragfault demo handbook && ragfault evaluate handbook/traces-v1.jsonl -o runs/v1"
)
@click.argument("folder", type=click.Path(file_okay=False), default="handbook")
@click.option("--force", is_flag=True, help="Replace files that are there already.")
def demo(folder: str, force: bool) -> None:
    """Write the demo into FOLDER: a handbook, questions about it, and the traces of two versions of a system."""
    from ragfault.datasets import write_handbook

    written = write_handbook(folder, force=force)
    for path in written:
        if path.suffix == ".jsonl":
            click.echo(path)
    click.echo(f"\n{len(written)} files. Next: ragfault evaluate {folder}/traces-v1.jsonl -o runs/v1")
