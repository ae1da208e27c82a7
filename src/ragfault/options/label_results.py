"""Results that are derived from label files: the options are read, the result is printed and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ragfault.labels.settings import LabelSettings
from ragfault.model.errors import BadLine
from ragfault.options.llm_judge import resolve_judge_options
from ragfault.options.output import encode_json, print_notice, print_report
from ragfault.options.records import take_fields
from ragfault.options.runs import show_progress
from ragfault.options.settings import load_settings

if TYPE_CHECKING:
    from ragfault.report.document import ReportDocument

EXIT_NOT_SHOWN = 3
"""Exit code where the labels do not show what was asked of them."""


def derive_from_labels(
    work: Callable[[Any, Any], Any],
    record: type[LabelSettings],
    build: Callable[[Any], ReportDocument],
    is_shown: Callable[[Any], bool],
    labels: tuple[str, ...],
    options: dict[str, Any],
) -> int:
    """Derive a result from labels and print it; write it where they show that it holds. Return the exit code."""
    from ragfault.report.output import check_output_path

    output = {name: options.pop(name) for name in ("out", "force", "quiet", "kind")}
    out = output["out"]
    if out is not None:
        check_output_path(out, force=output["force"])
    result = run_with_labels(work, record, labels, {**options, "out": out}, quiet=output["quiet"])
    holds = is_shown(result)
    show_result(result, build, {**output, "out": out if holds else None})
    if not holds and out is not None:
        print_notice(f"not written: {out}")
    return 0 if holds else EXIT_NOT_SHOWN


def run_with_labels(
    work: Callable[[Any, Any], Any],
    record: type[LabelSettings],
    labels: tuple[str, ...],
    options: dict[str, Any],
    *,
    quiet: bool,
) -> Any:
    """Measure or calibrate a judge on labels, as the options of `add_label_options` and of the record ask for it."""
    fields = take_fields(record, options)
    judge_options = resolve_judge_options(fields.get("judge"), options, load_settings(None).get("llm", {}))
    with show_progress(quiet) as progress, _handle_bad_lines(options["skip_bad"], options["out"]) as on_bad:
        settings = record(
            **fields,
            options=judge_options,
            on_bad=on_bad,
            on_progress=progress,
            on_notice=lambda line: None if quiet else print_notice(line),
        )
        return work(list(labels) if len(labels) > 1 else labels[0], settings)


@contextmanager
def _handle_bad_lines(skip: bool, out: str | None) -> Iterator[Literal["raise", "skip"] | Callable[[BadLine], object]]:
    """Handle what becomes of bad lines: an error, or a side file of the output, or a count alone."""
    if not skip or out is None:
        yield "skip" if skip else "raise"
        return
    from ragfault.evaluation.jobs import BadLineWriter

    with BadLineWriter(Path(f"{out}.bad.jsonl"), print_notice) as side:
        yield side.write


def show_result(
    record: Any, build: Callable[[Any], ReportDocument], options: dict[str, Any], command: str = ""
) -> None:
    """Print the report that `build` makes, or JSON; write the files that the options name, and print their paths."""
    from ragfault.report.output import write_report_file
    from ragfault.report.renderers.html import render_html_page

    if options["kind"] == "json" or not options["quiet"]:
        print_report(record, options["kind"], build)
    if options["out"] is not None:
        print_notice(f"written: {write_report_file(options['out'], encode_json(record), force=options['force'])}")
    if options.get("html") is not None:
        page = render_html_page(build(record), command)
        print_notice(f"written: {write_report_file(options['html'], page, force=options['force'])}")
