"""`ragfault compare` and `ragfault bisect`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ragfault.cli.beside import margins, rejudged
from ragfault.cli.options import settings, setup
from ragfault.cli.rectify import rectifiers, rectify
from ragfault.errors import UsageError

if TYPE_CHECKING:
    pass

__all__ = ["bisect", "compare"]

F = TypeVar("F", bound=Callable[..., Any])

CODES = {"no fault": 0, "fault": 1, "cannot tell": 3}
"""The verdict of a bisection → the exit code."""

SUFFIXES = {".md": "md", ".json": "json", ".html": "html", ".htm": "html", ".txt": "terminal"}
"""Suffix of the output → format."""

COMPARED, BISECTED = ("terminal", "md", "json"), ("terminal", "md", "json", "html")
"""The formats of each verb."""


TERMS = (
    click.option("--margin", type=float, help="Smallest change that matters, as a share.  [default: 0.02]"),
    click.option(
        "--margins", multiple=True, metavar="METRIC=VALUE", help="The same for one metric. Repeatable."
    ),
    click.option("--alpha", type=float, help="Chance of a false alarm, over all metrics.  [default: 0.05]"),
    click.option("--power", type=float, help="Power for the pairs needed.  [default: 0.8]"),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the resampling."),
    click.option("--by", help="Each segment apart, corrected: route, conversation, metadata.KEY, …"),
    click.option(
        "--flakiness",
        type=click.Path(),
        help="How far the judge differs from itself, by `judge repeat -o`: intervals widen.",
    ),
    click.option("--anyway", is_flag=True, help="Also runs of other judges or metric parameters."),
    click.option(
        "--rejudge", is_flag=True, help="Judge BASELINE's traces again, as CANDIDATE's were judged."
    ),
    rectify,
)
"""The options of both verbs that say what is compared."""


def _terms(formats: Sequence[str]) -> Callable[[F], F]:
    """Add the options of both verbs."""
    ends = ", ".join(f".{name}" for name in formats if name != "terminal")
    output = (
        click.option("-o", "--out", type=click.Path(), help=f"Write to this file: {ends}."),
        click.option("--format", "kind", type=click.Choice(formats), help="The format, if not by suffix."),
        click.option("--force", is_flag=True, help="Replace the file that stands at OUT."),
        setup,
    )

    def add(function: F) -> F:
        for option in reversed((*TERMS, *output)):
            function = option(function)
        return function

    return add


@click.command(
    epilog="""\b
Examples:
  ragfault compare runs/v1 runs/v2
  ragfault compare runs/v1 runs/v2 --margin 0.05 --margins latency=50
  ragfault compare runs/v1 runs/v2 --by route
  ragfault compare runs/old runs/v2 --rejudge -o compare.md
  ragfault compare runs/v1 runs/v2 --rectify v1-labels.jsonl --rectify v2-labels.jsonl

\b
Terms also come from ragfault.toml:
  [compare]
  margin = 0.02
  alpha = 0.05
  [compare.margins]
  latency = 50

Exit code 0 whatever moved: bisect and gate are the verbs that decide."""
)
@click.argument("baseline", type=click.Path())
@click.argument("candidate", type=click.Path())
@_terms(COMPARED)
def compare(baseline: str, candidate: str, **options: Any) -> None:
    """Compare two runs on the traces they share: each metric worse, better, steady, or cannot tell.

    Traces are paired by id, else by query. "Steady" is shown by an equivalence test within the margin; it is
    not merely the absence of a change.
    """
    from ragfault import findings
    from ragfault.report import comparison as written

    kind = _kind(options, COMPARED)
    terms = _read(options)
    with tempfile.TemporaryDirectory() as folder:
        side = _frame(baseline, candidate, options, folder)
        if options["by"]:
            found: Any = findings.segmented(side, options["by"], **terms)
            _some(found, options["by"])
        else:
            found = findings.compare(side, **terms)
        if kind == "terminal":
            text = written.terminal(found, **_screen(options))
        else:
            text = written.markdown(found) if kind == "md" else written.to_json(found)
    _give(text, options)


@click.command(
    epilog="""\b
Examples:
  ragfault bisect runs/v1 runs/v2
  ragfault bisect runs/v1 runs/v2 -o bisect.html
  ragfault bisect runs/v1 runs/v2 --format md >> "$GITHUB_STEP_SUMMARY"
  ragfault bisect runs/v1 runs/v2 --by route --margins groundedness=0.05
  ragfault bisect runs/monday runs/tuesday runs/wednesday

\b
Terms also come from the table [compare] of ragfault.toml, as for compare.

Exit code 0: no layer broke, and that is shown; 1: a fault; 3: the data cannot tell."""
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(), metavar="BASELINE CANDIDATE | RUNS...")
@_terms(BISECTED)
def bisect(runs: tuple[str, ...], **options: Any) -> int:
    """Name the layer that broke between two runs: retrieval, generation, or the source data.

    Walks a decision tree on tested changes and says what was ruled out and why, what to look at, how to
    mend it, and which traces show it best; or that the data cannot tell, and about how many traces would.

    Of three or more RUNS, oldest first, or of a folder that holds runs, it finds the run at which each metric
    broke.
    """
    from ragfault import findings
    from ragfault.report.wording import joint, lead, summary

    runs = _inside(runs)
    kind, by = _kind(options, BISECTED), options["by"]
    terms = _read(options)
    if len(runs) != 2:
        return _traced(runs, kind, terms, options)
    with tempfile.TemporaryDirectory() as folder:
        side = _frame(*runs, options, folder)
        found: Any = findings.bisect_segments(side, by, **terms) if by else findings.bisect(side, **terms)
        if by:
            _some(found, by)
        text = _bisected(found, kind, options)
    verdict = joint(each for _, each in found) if by else found.verdict
    _give(text, options, f"{verdict}: {summary(found, by) if by else lead(found)}")
    return CODES[verdict]


def _inside(runs: tuple[str, ...]) -> tuple[str, ...]:
    """The runs as they were named, or those in the one folder that was, the oldest first."""
    from ragfault.runs import Run

    if len(runs) != 1:
        return runs
    folder = Path(runs[0])
    if not folder.is_dir() or (folder / "manifest.json").exists():
        raise UsageError(
            f"bisect takes two runs, BASELINE and CANDIDATE, or a folder of runs; not {runs[0]} alone."
        )
    places = [place.parent for place in sorted(folder.glob("*/manifest.json"))]
    if len(places) < 2:
        raise UsageError(f"{folder} holds {len(places)} runs: bisect takes two or more.")
    return tuple(str(each) for each in sorted(places, key=lambda place: Run.open(place).manifest.created))


def _traced(runs: tuple[str, ...], kind: str, terms: dict[str, Any], options: dict[str, Any]) -> int:
    """Find the run at which a sequence broke; the exit code is 1 where one is found, else 3."""
    from ragfault import findings
    from ragfault.report import sequence as written
    from ragfault.runs import Run

    void = [
        f"--{name}"
        for name in ("margin", "margins", "power", "by", "anyway", "rejudge", "rectify")
        if options[name]
    ]
    if void or kind == "html":
        told = ", ".join(void) or "HTML"
        raise UsageError(
            f"{told}: not for {len(runs)} runs. Find the run first, then bisect it and the one before."
        )
    kept = {key: terms[key] for key in ("alpha", "seed") if key in terms}
    found = findings.history([Run.open(run) for run in runs], **kept)
    if kind == "terminal":
        text = written.terminal(found, **_screen(options))
    else:
        text = written.markdown(found) if kind == "md" else written.to_json(found)
    _give(text, options, written.sentence(found))
    return CODES["cannot tell" if found.broken is None else "fault"]


def _bisected(found: Any, kind: str, options: dict[str, Any]) -> str:
    from ragfault.report import bisection as written

    by = options["by"] or ""
    if kind == "html":
        from ragfault.report.bisection_html import render_bisection

        return render_bisection(found, by=by)
    if kind == "terminal":
        return written.terminal(found, by=by, **_screen(options))
    return written.markdown(found, by=by) if kind == "md" else written.to_json(found, by=by)


def _kind(options: dict[str, Any], formats: Sequence[str]) -> str:
    """The format that was asked for."""
    if options["kind"] or options["out"] is None:
        return options["kind"] or "terminal"
    suffix = Path(options["out"]).suffix.lower()
    if SUFFIXES.get(suffix) not in formats:
        ends = ", ".join(end for end, name in SUFFIXES.items() if name in formats and end != ".htm")
        raise UsageError(
            f'"{options["out"]}" does not say a format there is: {ends}. End it so, or give --format.'
        )
    return SUFFIXES[suffix]


def _read(options: dict[str, Any]) -> dict[str, Any]:
    """The terms of the comparison: of the flags, else of the settings."""
    table = settings(options["config"]).get("compare", {})
    terms = {"seed": options["seed"]}
    for key in ("margin", "alpha", "power"):
        value = options[key] if options[key] is not None else table.get(key)
        if value is not None:
            terms[key] = value
    return {**terms, "margins": {**table.get("margins", {}), **margins(options["margins"])}}


def _frame(baseline: str, candidate: str, options: dict[str, Any], folder: str) -> Any:
    """The two runs side by side, the baseline judged again where that was asked for."""
    from ragfault.findings import frame
    from ragfault.findings.flaking import read_flakiness
    from ragfault.runs import Run

    old, new = Run.open(baseline), Run.open(candidate)
    if options["rejudge"]:
        old = rejudged(old, new, Path(folder))
    people = rectifiers(options["rectify"], old, new)
    flakiness = read_flakiness(options["flakiness"]) if options["flakiness"] else None
    side = frame(old, new, anyway=options["anyway"], people=people, flakiness=flakiness)
    return _known(side, options["margins"])


def _known(side: Any, texts: Sequence[str]) -> Any:
    """The frame, if every metric with a margin of its own is in it."""
    from ragfault.errors import UnknownName
    from ragfault.findings.grid import bare
    from ragfault.findings.tree import DEPTH

    names = {DEPTH, *(name for each in side.shared() for name in (each.name, bare(each.name)))}
    for name in margins(texts):
        if name not in names:
            raise UnknownName("metric in both runs", name, sorted(names))
    return side


def _some(found: Sequence[Any], by: str) -> None:
    if not found:
        raise UsageError(f"no paired trace of the baseline has a {by}: there is nothing to divide by.")


def _screen(options: dict[str, Any]) -> dict[str, Any]:
    """Width and colour: those of the screen, or plain in a file."""
    from ragfault.cli.report import colourful

    return {"width": 100} if options["out"] else {"colour": colourful()}


def _give(text: str, options: dict[str, Any], told: str = "") -> None:
    """Print the report; or save it, and say what it says and where it is."""
    from ragfault.report.saving import save

    if options["out"] is None:
        click.echo(text, nl=False)
        return
    place = save(options["out"], text, force=options["force"])
    if told:
        click.echo(told, err=True)
    click.echo(f"{place}", err=True)
