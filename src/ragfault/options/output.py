"""Options that say where a result goes and in which format, and its printing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ragfault.model.errors import BadLine, UsageError

if TYPE_CHECKING:
    from ragfault.io.runs.run import Run
    from ragfault.model.records import Document
    from ragfault.report.document import ReportDocument

F = TypeVar("F", bound=Callable[..., Any])

SUFFIX_FORMATS = {".html": "html", ".htm": "html", ".md": "md", ".json": "json", ".csv": "csv", ".txt": "terminal"}
"""Suffix of the output → format."""

json_option = click.option(
    "--json",
    "kind",
    flag_value="json",
    help="Print the result as one JSON document; `ragfault run schema` describes it.",
)


def combine_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine options into one decorator, whose help lists them in this order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def add_output_options(*formats: str) -> Callable[[F], F]:
    """Add the options of a verb that has these formats beside the terminal's and JSON."""
    choices = ["terminal", *formats, "json"]
    return combine_options(
        click.option("-o", "--out", type=click.Path(), help=f"Write to this file: {_list_suffixes(formats)}."),
        click.option("--format", "kind", type=click.Choice(choices), help="Output format.  [default: by suffix]"),
        json_option,
        click.option("--force", is_flag=True, help="Replace an existing file OUT."),
    )


def _list_suffixes(formats: tuple[str, ...]) -> str:
    kinds = (*formats, "json", "terminal")
    return ", ".join(suffix for suffix, name in SUFFIX_FORMATS.items() if name in kinds and suffix != ".htm")


class OutputPlan(NamedTuple):
    """Formats in which a result is printed and written; None: not at all."""

    printed: str | None
    written: str | None


def plan_output(options: dict[str, Any], *formats: str) -> OutputPlan:
    """Plan the output that was asked for, before any work is done.

    JSON that was asked for is printed whatever else is written, so that `--json` means the same for every verb. Raises
    UsageError where the name of the file says no format there is.
    """
    kind, out = options["kind"], options["out"]
    if out is None:
        return OutputPlan(kind or "terminal", None)
    by_suffix = SUFFIX_FORMATS.get(Path(out).suffix.lower())
    if by_suffix not in ("terminal", "json", *formats):
        by_suffix = None
    written = by_suffix or kind if kind in (None, "json") else kind
    if written is None:
        raise UsageError(f'"{out}" has no known suffix: use one of {_list_suffixes(formats)}, or give --format.')
    return OutputPlan("json" if kind == "json" else None, written)


def write_output(
    plan: OutputPlan, render: Callable[[str, bool], str], options: dict[str, Any], summary: str = ""
) -> None:
    """Print a result and write it, as planned; where it is written, say in a line what it says and where it is.

    `render` takes a format, and whether it is for the screen.
    """
    if options["out"] is not None:
        from ragfault.report.output import write_report_file

        path = write_report_file(options["out"], render(plan.written or "json", False), force=options["force"])
        if summary:
            click.echo(summary, err=True)
        click.echo(f"{path}", err=True)
    if plan.printed is not None:
        click.echo(render(plan.printed, True), nl=False)


def encode_json(record: Any) -> str:
    """Encode the result of a verb as its JSON document."""
    from ragfault.report.json_documents import encode_document

    return encode_document(record)


def print_json(record: Any) -> None:
    """Print the result of a verb as its JSON document."""
    click.echo(encode_json(record), nl=False)


def print_files(written: Iterable[Path]) -> None:
    """Print the names of files that were written as JSON."""
    from ragfault.report.json_documents import WrittenFiles

    print_json(WrittenFiles(files=tuple(str(path) for path in written)))


def render_document(document: ReportDocument, kind: str, screen: bool, page: str = "", *, width: int = 100) -> str:
    """Render a report as a page of this name, as Markdown, or for the terminal: so wide where it isn't for a screen."""
    if kind == "html":
        from ragfault.report.renderers.html import render_html_page

        return render_html_page(document, page)
    if kind == "md":
        from ragfault.report.renderers.markdown import render_markdown

        return render_markdown(document)
    from ragfault.report.renderers.terminal import render_terminal

    return render_terminal(document, width=None if screen else width, color=screen and supports_color())


def print_report(result: Any, kind: str | None, build: Callable[[Any], ReportDocument]) -> None:
    """Print the result of a verb as JSON where that was asked for, else the report that `build` makes of it."""
    if kind == "json":
        print_json(result)
    else:
        click.echo(render_document(build(result), "terminal", True), nl=False)


def print_notice(text: str) -> None:
    """Print a line that is not the result, on standard error."""
    click.echo(text, err=True)


def print_text_warnings(*runs: Run) -> None:
    """Print on standard error which runs hold texts in a language or in markup that their judge does not know."""
    from ragfault.diagnosis.run_table import list_text_warnings

    for warning in list_text_warnings(*runs):
        print_notice(f"warning: {warning}")


def print_left_out(bad_line: BadLine) -> None:
    """Print a line or document that --skip-bad leaves out."""
    print_notice(f"left out: {bad_line}")


exclude_option = click.option(
    "--exclude",
    multiple=True,
    metavar="GLOB",
    help="Leave out files of the corpus by name or path: drafts, *.txt, api/*.md. Repeatable.",
)
add_corpus_options = combine_options(
    click.option("--skip-bad", is_flag=True, help="Leave out what cannot be read, naming each."), exclude_option
)
"""Add the options of a verb that reads a corpus by `read_corpus`."""


def read_corpus(corpus: str, skip_bad: bool, exclude: Sequence[str] = ()) -> Iterator[Document]:
    """Yield the documents of a corpus; with `skip_bad` those that cannot be read are named and left out."""
    from ragfault.io.documents import read_documents

    where = [corpus, *(f"!{pattern}" for pattern in exclude)]
    return read_documents(where, notice=print_notice, on_bad=print_left_out if skip_bad else "raise")


def supports_color() -> bool:
    """Return whether standard output is a terminal that wants colour.

    NO_COLOR switches it off, and FORCE_COLOR on where there is no terminal, if they are not empty.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def add_result_options(what: str) -> Callable[[F], F]:
    """Add the options that say where a result of labels goes."""
    return combine_options(
        click.option("-o", "--out", type=click.Path(), help=f"Write the {what} as JSON to this file."),
        click.option("--force", is_flag=True, help="Replace an existing file OUT."),
        json_option,
        click.option("-q", "--quiet", is_flag=True, help="No progress bar and no table."),
    )


def align_columns(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Align rows of cells as lines, two spaces between columns; the first `left` columns begin at their left.

    >>> align_columns([("model", "calls"), ("a", "12")], left=1)
    ['model  calls', 'a         12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        aligned = [cell.ljust(width) if at < left else cell.rjust(width) for at, (cell, width) in enumerate(cells)]
        lines.append("  ".join(aligned).rstrip())
    return lines
