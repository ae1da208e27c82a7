"""Writing of reports: files, JSON and CSV."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import TYPE_CHECKING

from ragfault.io.atomic_files import write_atomically
from ragfault.model.errors import OutputError
from ragfault.report.format import get_common_reason
from ragfault.report.safe_text import clean_text

if TYPE_CHECKING:
    from ragfault.diagnosis.records import Findings, MetricAggregate, Scorecard
    from ragfault.stats.estimates import Interval


def write_report_file(path: str | Path, text: str, *, force: bool = False) -> Path:
    """Write a text to a file, under another name first, and return its path.

    Raises OutputError where something stands there already (unless `force`) or it cannot be written.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> write_report_file(f"{folder}/report.md", "# Report").read_text()
    '# Report'
    """
    path = check_output_path(path, force=force)
    write_atomically(path, text.encode("utf-8", "replace"))
    return path


def check_output_path(path: str | Path, *, force: bool = False) -> Path:
    """Return the path, where a file may be written to it; for a look before long work.

    Raises OutputError where something stands there already (unless `force`).
    """
    path = Path(path)
    if path.is_dir():
        raise OutputError(f"{path} is a directory. Name a file with -o, such as {path / 'report.html'}.")
    if path.exists() and not force:
        raise OutputError(f"{path} exists already. Choose another path with -o, or replace it with --force.")
    return path


CSV_COLUMNS = (
    "by", "segment", "metric", "layer", "better", "mean", "low", "high", "n", "clusters", "scored", "undefined",
    "failed", "target", "result", "reason", "corrected", "corrected_low", "corrected_high", "ppi", "ppi_low",
    "ppi_high", "labels",
)  # fmt: skip
"""The columns of the CSV: one row for each metric, over all traces and then over each segment."""


def encode_findings_csv(findings: Findings) -> str:
    """Encode the scorecard as CSV: the columns of COLUMNS, one row for each metric and segment.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for card in (findings.scorecard, *findings.segments):
        writer.writerows(_build_csv_row(card, item) for item in card.aggregates)
    return out.getvalue()


def escape_csv_cell(text: str | None) -> str:
    """Return a text that no spreadsheet takes for a formula.

    >>> escape_csv_cell("=1+1"), escape_csv_cell("groundedness"), escape_csv_cell(None)
    ("'=1+1", 'groundedness', '')
    """
    text = clean_text(text or "")
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _build_csv_row(card: Scorecard, item: MetricAggregate) -> list[str | int | float | None]:
    interval = item.interval
    return [
        escape_csv_cell(card.by),
        escape_csv_cell(card.segment),
        escape_csv_cell(item.metric),
        item.layer,
        item.better,
        *_list_bounds(interval),
        interval.n if interval else 0,
        interval.clusters if interval else 0,
        item.scored,
        item.undefined,
        item.failed,
        escape_csv_cell(str(item.target)) if item.target else "",
        item.result or "",
        escape_csv_cell(get_common_reason(item)),
        *_list_bounds(item.corrected.interval if item.corrected else None),
        *_list_bounds(item.ppi.interval if item.ppi else None),
        item.ppi.labelled if item.ppi else 0,
    ]


def _list_bounds(interval: Interval | None) -> tuple[float | None, ...]:
    """List the mean and the ends of an interval; an infinite end is left out."""
    numbers = (interval.mean, interval.low, interval.high) if interval else (None, None, None)
    return tuple(None if number is None or math.isinf(number) else number for number in numbers)
