"""The files that every search writes: the recommended pipeline, the result as JSON, and one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.model.errors import OutputError

if TYPE_CHECKING:
    from ragfault.report.document import ReportDocument
    from ragfault.retrieval.pipeline_config import PipelineConfig

PIPELINE_FILE, RESULT_FILE, PAGE_FILE = "pipeline.toml", "search.json", "search.html"


def check_folder(out: str | None, force: bool) -> Path | None:
    """Return the folder of a result; raises OutputError if it holds an earlier one."""
    folder = None if out is None else Path(out)
    if folder is not None and not force and (folder / RESULT_FILE).exists():
        raise OutputError(f"{folder / RESULT_FILE} exists. Choose another folder, or replace it with --force.")
    return folder


def write_search(
    folder: Path, result: Any, document: ReportDocument, config: PipelineConfig | None, comment: str
) -> list[Path]:
    """Write the files of a search; the pipeline only if there is one. Return their names."""
    from ragfault.report.json_documents import encode_document
    from ragfault.report.output import write_report_file
    from ragfault.report.renderers.html import render_html_page
    from ragfault.retrieval.pipeline_config import format_pipeline_config

    texts = {RESULT_FILE: encode_document(result), PAGE_FILE: render_html_page(document, "tune")}
    if config is not None:
        texts = {PIPELINE_FILE: format_pipeline_config(config, comment)} | texts
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_report_file(folder / name, text, force=True)
    return [folder / name for name in texts]


def print_written(files: list[Path], kind: str | None) -> None:
    """Print the names of the files, unless the result is printed as JSON."""
    if files and kind != "json":
        click.echo(f"\nwritten: {', '.join(map(str, files))}")
