"""`ragfault gate`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.cli.beside import margins, rejudged
from ragfault.cli.options import settings, setup
from ragfault.cli.rectify import rectifier, rectifiers, rectify
from ragfault.cli.report import colourful
from ragfault.errors import UsageError

if TYPE_CHECKING:
    from ragfault.runs import Run

__all__ = ["gate"]

BESIDE = ("metrics", "margins", "max_drop", "alpha", "power", "anyway", "rejudge", "flakiness")
"""The options that say nothing without a baseline."""


@click.command(
    epilog="""\b
Examples:
  ragfault gate runs/today --bar "groundedness>=0.85" --bar "latency<=2000"
  ragfault gate runs/today --baseline runs/main --max-drop 0.03
  ragfault gate runs/today --baseline runs/main -m groundedness -m latency --margins latency=50
  ragfault gate runs/today --junit gate.xml --markdown gate.md

\b
What is asked also comes from ragfault.toml:
  [gate]
  bars = ["groundedness>=0.85", "context_recall>=0.7"]
  coverage = 0.5
  max_drop = 0.02
  [gate.margins]
  groundedness = 0.01

Exit code 0: every bar and metric is passed; 1: one is failed; 3: the data cannot tell."""
)
@click.argument("run", type=click.Path())
@click.option(
    "--bar", "bars", multiple=True, metavar="METRIC>=VALUE", help="A bar: >=, >, <= or <. Repeatable."
)
@click.option("--coverage", type=click.FloatRange(0, 1), help="Least share of traces scored.  [default: 0.5]")
@click.option("--baseline", type=click.Path(), help="A run that RUN must not be worse than.")
@click.option(
    "-m",
    "--metrics",
    multiple=True,
    help="A metric to hold against the baseline. Repeatable.  [default: those of the decision tree]",
)
@click.option(
    "--max-drop",
    type=float,
    help="Margin of a metric as a share of its range; without an end 5 % of its mean.  [default: 0.02]",
)
@click.option(
    "--margins",
    multiple=True,
    metavar="METRIC=VALUE",
    help="Margin of one metric, in its own units. Repeatable.",
)
@click.option("--alpha", type=float, help="Chance of a false alarm, over all metrics.  [default: 0.05]")
@click.option("--power", type=float, help="Power for the pairs needed.  [default: 0.8]")
@click.option(
    "--flakiness", type=click.Path(), help="How far the judge differs from itself, by `judge repeat -o`."
)
@click.option("--anyway", is_flag=True, help="Also a baseline of another judge or of other parameters.")
@click.option("--rejudge", is_flag=True, help="Judge the baseline's traces again, as RUN's were judged.")
@rectify
@click.option("--junit", type=click.Path(), help="Write JUnit XML to this file, replacing it.")
@click.option(
    "--markdown", type=click.Path(), help="Write GitHub-flavoured Markdown to this file, replacing it."
)
@setup
def gate(
    run: str,
    bars: tuple[str, ...],
    coverage: float | None,
    baseline: str | None,
    junit: str | None,
    markdown: str | None,
    config: str | None,
    rectify: tuple[str, ...],
    **options: Any,
) -> int:
    """Hold RUN against bars, against a baseline, or both: pass, fail, or cannot tell.

    A bar is decided on the 95 % interval of the metric's mean, never on the mean alone: passed where all of the
    interval reaches it, failed where none does. Beside a baseline a metric fails where a significant worsening
    beyond its margin is shown, and passes where one is ruled out. Otherwise: "cannot tell", with about how
    many traces would.
    """
    from ragfault.findings import COVERAGE
    from ragfault.findings import gate as decide
    from ragfault.report import gate as written
    from ragfault.report.saving import save
    from ragfault.runs import Run

    table = settings(config).get("gate", {})
    terms = _terms(options, table, baseline)
    held = Run.open(run)
    with tempfile.TemporaryDirectory() as folder:
        old = None if baseline is None else _opened(baseline, held, folder if options["rejudge"] else None)
        found = decide(
            held,
            bars or table.get("bars", ()),
            coverage=coverage if coverage is not None else table.get("coverage", COVERAGE),
            baseline=old,
            people=(None, rectifier(rectify, held)) if old is None else rectifiers(rectify, old, held),
            **terms,
        )
    if junit:
        save(junit, written.junit(found), force=True)
    if markdown:
        save(markdown, written.markdown(found), force=True)
    click.echo(written.terminal(found, colour=colourful()), nl=False)
    return found.code


def _opened(baseline: str, run: Run, folder: str | None) -> Run:
    """The baseline; with a folder, judged there as the run was."""
    from ragfault.runs import Run

    found = Run.open(baseline)
    return found if folder is None else rejudged(found, run, Path(folder))


def _terms(options: Mapping[str, Any], table: Mapping[str, Any], baseline: str | None) -> dict[str, Any]:
    """On what terms the baseline is held against: those of the flags, else of the settings."""
    given = {
        key: options[key] for key in BESIDE if options[key] not in (None, ()) and options[key] is not False
    }
    if baseline is None:
        if given:
            named = ", ".join(f"--{key.replace('_', '-')}" for key in given)
            raise UsageError(f"{named}: there is nothing to hold RUN against. Give a --baseline.")
        return {}
    from ragfault.findings.flaking import read_flakiness

    kept = {key: table[key] for key in ("max_drop", "alpha", "power") if key in table}
    single = {**table.get("margins", {}), **margins(given.pop("margins", ()))}
    given.pop("rejudge", None)
    if "flakiness" in given:
        given["flakiness"] = read_flakiness(given["flakiness"])
    return {**kept, **given, "margins": single}
