"""`ragfault ci`: evaluate, gate and bisect in one command, for a job on every pull request."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.cli.beside import rejudged
from ragfault.cli.compare import CODES
from ragfault.cli.options import mapping, reading, settings, setup
from ragfault.cli.progress import progressing
from ragfault.errors import UsageError

if TYPE_CHECKING:
    from ragfault.findings import Bisection, Gate
    from ragfault.runs import Run

__all__ = ["ci"]

Table = dict[str, dict[str, Any]]

EMPTY = '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites tests="0" failures="0" errors="0" />\n'
"""JUnit XML where nothing was asked, so that a job that collects it finds a file."""


@click.command(
    epilog="""\b
Examples:
  ragfault ci traces.jsonl -o runs/candidate
  ragfault ci traces.jsonl -o runs/candidate --baseline runs/main
  ragfault ci traces.jsonl -o runs/candidate --baseline runs/main --comment comment.md --junit ragfault.xml

\b
Judge, metrics, column map, bars and margins come from ragfault.toml:
  [evaluate]
  metrics = ["default"]
  [gate]
  bars = ["groundedness>=0.85"]
  max_drop = 0.02

Exit code 0: every bar and metric is passed, or nothing was asked; 1: one is failed, or a layer broke;
3: the data cannot tell, which --unsure pass lets by; 2: the command is wrong."""
)
@click.argument("traces", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Where the run is written.")
@click.option("--baseline", type=click.Path(), help="A run to hold it against, if it is there.")
@click.option(
    "--bar", "bars", multiple=True, metavar="METRIC>=VALUE", help="A bar, beside those of the settings."
)
@click.option(
    "--comment", "said", type=click.Path(), help="Write the comment of a pull request (Markdown) here."
)
@click.option("--junit", type=click.Path(), help="Write JUnit XML here.")
@click.option("--report", "page", type=click.Path(), help="Write the HTML report of the run here.")
@click.option("--rejudge", is_flag=True, help="Judge the baseline's traces again, as these were judged.")
@click.option(
    "--unsure",
    type=click.Choice(["fail", "pass"]),
    default="fail",
    show_default=True,
    help="Whether what cannot be told is let by.",
)
@reading
@click.option(
    "--skip-bad", is_flag=True, help="Leave out lines that are not traces; keep them in OUT.bad.jsonl."
)
@click.option("-w", "--workers", type=click.IntRange(1), help="Processes.  [default: 1]")
@setup
def ci(
    traces: tuple[str, ...], out: str, bars: tuple[str, ...], unsure: str, config: str | None, **options: Any
) -> int:
    """Evaluate TRACES, hold the run against bars and a baseline, and name the layer that broke.

    It is evaluate, gate and bisect in one, for a job on every pull request. A run that stands at OUT is replaced.
    Where no baseline is given, or nothing lies at its path (the first run of a branch), bars alone are decided, and
    that is said.
    """
    from ragfault.findings import read_bar

    table = settings(config)
    asked = (*table.get("gate", {}).get("bars", ()), *bars)
    for bar in asked:
        read_bar(bar)
    old, notes = _baseline(options["baseline"], out, bool(asked))
    run = _evaluated(traces, out, options, table)
    with tempfile.TemporaryDirectory() as folder:
        if old is not None and options["rejudge"]:
            old = rejudged(old, run, Path(folder))
        decided, found = _gated(run, old, asked, table), _bisected(old, run, table)
    _written(run, decided, found, notes, options)
    return _code(decided, found, unsure)


def _evaluated(traces: tuple[str, ...], out: str, options: dict[str, Any], table: Table) -> Run:
    """The run of the traces, as flags and settings ask for it."""
    from ragfault.cli.llm import chosen
    from ragfault.evaluation import evaluate

    given = {name: options[name] for name in ("workers", "shape", "qrels") if options[name] is not None}
    asked = {**table.get("evaluate", {}), **given}
    asked["options"] = chosen(asked.get("judge"), {}, table.get("llm", {}))
    with progressing(False) as progress:
        return evaluate(
            list(traces) if len(traces) > 1 else traces[0],
            out,
            map=mapping(options["maps"], table.get("map", {})),
            force=True,
            skip_bad=options["skip_bad"],
            progress=progress,
            spent=progress.spent,
            notice=lambda line: click.echo(line, err=True),
            **asked,
        )


def _baseline(path: str | None, out: str, barred: bool) -> tuple[Run | None, tuple[str, ...]]:
    """The run to hold against, and what is to be said where there is none."""
    from ragfault.runs import Run

    rest = ": bars alone are decided" if barred else ", and there are no bars: nothing is decided"
    if path is None:
        return None, (f"no baseline was given{rest}",)
    if not Path(path).exists():
        return None, (f"no run lies at the baseline {path}{rest}",)
    if Path(path).resolve() == Path(out).resolve():
        raise UsageError(
            f"{out} is both the baseline and where the new run is written, which replaces it. Give another --out."
        )
    return Run.open(path), ()


def _gated(run: Run, old: Run | None, bars: tuple[str, ...], table: Table) -> Gate | None:
    from ragfault.findings import COVERAGE, gate

    if old is None and not bars:
        return None
    kept = table.get("gate", {})
    terms = {
        key: kept[key] for key in ("max_drop", "alpha", "power", "margins") if key in kept and old is not None
    }
    return gate(run, bars, coverage=kept.get("coverage", COVERAGE), baseline=old, **terms)


def _bisected(old: Run | None, run: Run, table: Table) -> Bisection | None:
    from ragfault.findings import bisect, frame

    return None if old is None else bisect(frame(old, run), **table.get("compare", {}))


def _written(
    run: Run, decided: Gate | None, found: Bisection | None, notes: tuple[str, ...], options: dict[str, Any]
) -> None:
    """Say what was found, and write what was asked for."""
    from ragfault.cli.report import colourful
    from ragfault.findings import find
    from ragfault.report import bisection, comment, gate, markdown
    from ragfault.report.html import write_html
    from ragfault.report.saving import save

    for note in notes:
        click.echo(note, err=True)
    if options["said"]:
        text = comment.comment(decided, found, markdown.render(find(run)), notes)
        save(options["said"], text, force=True)
    if options["junit"]:
        save(options["junit"], EMPTY if decided is None else gate.junit(decided), force=True)
    if options["page"]:
        write_html(run, options["page"], force=True)
    if found is not None:
        click.echo(bisection.terminal(found, colour=colourful()))
    if decided is not None:
        click.echo(gate.terminal(decided, colour=colourful()), nl=False)
    click.echo(f"\n{run.manifest.traces:,} traces in {run.path}   →   ragfault report {run.path}")


def _code(decided: Gate | None, found: Bisection | None, unsure: str) -> int:
    """1 where the gate fails or a layer broke; else what the gate says."""
    if found is not None and found.verdict == "fault":
        return CODES["fault"]
    code = 0 if decided is None else decided.code
    return 0 if code == CODES["cannot tell"] and unsure == "pass" else code
