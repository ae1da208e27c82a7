"""`ragfault tune`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.cli.options import mapping, reading
from ragfault.cli.report import colourful
from ragfault.errors import OutputError

if TYPE_CHECKING:
    from ragfault.errors import Fault
    from ragfault.sources.desk import OnBad
    from ragfault.tuning import Tuned

__all__ = ["tune"]

FILES = ("pipeline.toml", "tuning.json", "tuning.md", "tuning.html")


@click.command(
    epilog="""\b
Examples:
  ragfault tune handbook/ questions.jsonl -o tuned
  ragfault tune docs.jsonl questions.jsonl -o tuned --subject-to "latency_p95<=200" --subject-to "tokens<=2000"
  ragfault tune docs/ questions.jsonl -o tuned --baseline pipeline.toml --budget 10m --embedders latent,minilm
  ragfault tune docs/ questions.jsonl -o tuned --from runs/today"""
)
@click.argument("corpus", type=click.Path())
@click.argument("questions", type=click.Path())
@click.option(
    "-o", "--out", required=True, type=click.Path(file_okay=False), help="The folder for what is found."
)
@click.option(
    "--metric", default="ndcg@10", show_default=True, help="What is made best; a metric of chunks and gold."
)
@click.option(
    "--subject-to",
    multiple=True,
    metavar="BOUND",
    help="A bound to keep to: latency_p95, latency, tokens (<=), recall, precision, iou (>=). Repeatable.",
)
@click.option("--budget", metavar="TIME", help="End with the best so far: 10m, 90s, 1h.  [default: no end]")
@click.option(
    "--baseline", type=click.Path(dir_okay=False), help="The present configuration, a pipeline.toml."
)
@click.option("--embedders", default="latent", show_default=True, help="Embedders to try (latent,minilm).")
@click.option("--chunkers", multiple=True, metavar="CHUNKER", help="Only these chunkers. Repeatable.")
@click.option(
    "--from", "run_", type=click.Path(), metavar="RUN", help="Search only what the diagnosis of RUN blames."
)
@click.option("--holdout", default=0.5, show_default=True, help="The share of the questions that measures.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the division and the tests."
)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes that index.")
@click.option(
    "--skip-bad", is_flag=True, help="Leave out documents and questions that cannot be read; name each."
)
@click.option("--json", "as_json", is_flag=True, help="What was found as JSON.")
@click.option("--force", is_flag=True, help="Replace what an earlier tuning wrote to OUT.")
@click.option("--quiet", is_flag=True, help="No progress.")
@reading
def tune(
    corpus: str, questions: str, out: str, as_json: bool, force: bool, quiet: bool, **given: Any
) -> None:
    """Search for the pipeline that finds best what QUESTIONS ask of CORPUS, and prove its gain.

    QUESTIONS are traces with gold: spans of documents, or ids of documents. One half of them chooses, the other
    measures. OUT gets pipeline.toml, tuning.html, tuning.md and tuning.json; what is computed is kept in OUT/cache, so
    that the same command goes on where it was stopped.
    """
    from ragfault.report.tuning import render, to_json

    place = Path(out)
    _vacant(place, force)
    with _progressing(quiet) as progress:
        found = _found(corpus, questions, place, progress, given)
    _write(found, place)
    if as_json:
        click.echo(to_json(found), nl=False)
        return
    screen = sys.stdout.isatty()
    click.echo(render(found, width=None if screen else 140, colour=screen and colourful()), nl=False)
    click.echo(f"\nwritten: {', '.join(str(place / name) for name in FILES if (place / name).is_file())}")


def _found(
    corpus: str, questions: str, place: Path, progress: Callable[[str, int, int], Any], given: dict[str, Any]
) -> Tuned:
    """What the search finds, by the options as they were given."""
    from msgspec.structs import replace

    from ragfault.sources import read_traces
    from ragfault.sources.documents import read_documents
    from ragfault.tuning import default_space, tune

    space = default_space(name.strip() for name in given["embedders"].split(",") if name.strip())
    on_bad: OnBad = _left_out if given["skip_bad"] else "raise"
    same = ("metric", "subject_to", "budget", "baseline", "holdout", "seed", "workers")
    reading = {"map": mapping(given["maps"], {}), "shape": given["shape"], "qrels": given["qrels"]}
    return tune(
        read_documents(corpus, notice=_say, on_bad=on_bad),
        read_traces(questions, notice=_say, on_bad=on_bad, **reading),
        space=replace(space, chunkers=given["chunkers"]) if given["chunkers"] else space,
        run=given["run_"],
        cache=place / "cache",
        progress=progress,
        notice=_say,
        **{name: given[name] for name in same},
    )


def _say(line: str) -> None:
    click.echo(line, err=True)


def _left_out(fault: Fault) -> None:
    _say(f"left out: {fault}")


def _vacant(place: Path, force: bool) -> None:
    """Refuse a place where an earlier tuning has written what it found."""
    if not force and (place / FILES[0]).exists():
        raise OutputError(f"{place / FILES[0]} exists. Choose another folder, or replace it with --force.")


def _write(found: Tuned, place: Path) -> None:
    """The files of what was found; the page is left out, with a word, where nothing can draw its charts."""
    from ragfault.errors import MissingExtra
    from ragfault.report.saving import save
    from ragfault.report.tuning import circumstances, headline, to_json, to_markdown
    from ragfault.report.tuning_html import write_tuning
    from ragfault.retrieval.recipes import write_recipe

    place.mkdir(parents=True, exist_ok=True)
    said = f"{headline(found)}\n{circumstances(found)}"
    save(place / "pipeline.toml", write_recipe(found.recipe, said), force=True)
    save(place / "tuning.json", to_json(found), force=True)
    save(place / "tuning.md", to_markdown(found), force=True)
    try:
        write_tuning(found, place / "tuning.html", force=True)
    except MissingExtra as error:
        _say(f"tuning.html is left out: {error}")


@contextlib.contextmanager
def _progressing(quiet: bool) -> Iterator[Callable[[str, int, int], Any]]:
    """A bar for the step that is searched, on standard error; nothing where that is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def advance(step: str, done: int, total: int) -> None:
            bar.update(task, description=step, completed=done, total=total)

        yield advance
