"""`ragfault gate`."""

from __future__ import annotations

import click

from ragfault.cli.options import settings, setup
from ragfault.cli.report import colourful

__all__ = ["gate"]


@click.command(
    epilog="""\b
Examples:
  ragfault gate runs/today --bar "groundedness>=0.85" --bar "latency<=2000"
  ragfault gate runs/today --junit gate.xml --markdown gate.md
  ragfault gate runs/today --coverage 0.9

\b
Bars also come from ragfault.toml:
  [gate]
  bars = ["groundedness>=0.85", "context_recall>=0.7"]
  coverage = 0.5

Exit code 0: every bar is passed; 1: one is failed; 3: the data cannot tell."""
)
@click.argument("run", type=click.Path())
@click.option(
    "--bar", "bars", multiple=True, metavar="METRIC>=VALUE", help="A bar: >=, >, <= or <. Repeatable."
)
@click.option("--coverage", type=click.FloatRange(0, 1), help="Least share of traces scored.  [default: 0.5]")
@click.option("--junit", type=click.Path(), help="Write JUnit XML to this file, replacing it.")
@click.option(
    "--markdown", type=click.Path(), help="Write GitHub-flavoured Markdown to this file, replacing it."
)
@setup
def gate(
    run: str,
    bars: tuple[str, ...],
    coverage: float | None,
    junit: str | None,
    markdown: str | None,
    config: str | None,
) -> int:
    """Hold RUN against bars: pass, fail, or cannot tell.

    A bar is decided on the 95 % interval of the metric's mean, never on the mean alone: passed where all of the
    interval reaches it, failed where none does. Otherwise: "cannot tell", with about how many traces would.
    """
    from ragfault.findings import COVERAGE
    from ragfault.findings import gate as decide
    from ragfault.report import gate as written
    from ragfault.report.saving import save
    from ragfault.runs import Run

    table = settings(config).get("gate", {})
    found = decide(
        Run.open(run),
        bars or table.get("bars", ()),
        coverage=coverage if coverage is not None else table.get("coverage", COVERAGE),
    )
    if junit:
        save(junit, written.junit(found), force=True)
    if markdown:
        save(markdown, written.markdown(found), force=True)
    click.echo(written.terminal(found, colour=colourful()), nl=False)
    return found.code
