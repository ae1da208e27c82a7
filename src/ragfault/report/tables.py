"""A run's findings for machines: JSON in full, CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
import math

import msgspec

from ragfault.findings import Aggregate, Findings, Gate, Scorecard
from ragfault.report.plain import clean, why
from ragfault.stats import Interval

__all__ = ["COLUMNS", "cell", "to_csv", "to_json"]

COLUMNS = (
    "by",
    "segment",
    "metric",
    "layer",
    "better",
    "mean",
    "low",
    "high",
    "n",
    "clusters",
    "scored",
    "undefined",
    "failed",
    "target",
    "result",
    "reason",
    "corrected",
    "corrected_low",
    "corrected_high",
    "rectified",
    "rectified_low",
    "rectified_high",
    "labels",
)
"""The columns of the CSV: one row for each metric, over all traces and then over each segment."""


def to_json(found: Findings | Gate) -> str:
    """Findings or a gate as JSON, every field under its name; an interval's end that is infinite is null.

    A gate says its `result` as well.
    """
    plain = msgspec.to_builtins(found)
    if isinstance(found, Gate):
        plain = {"result": found.result, **plain}
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def to_csv(findings: Findings) -> str:
    """The scorecard as CSV: the columns of COLUMNS, one row for each metric and segment.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for card in (findings.scorecard, *findings.segments):
        writer.writerows(_row(card, item) for item in card.aggregates)
    return out.getvalue()


def cell(text: str | None) -> str:
    """A text that no spreadsheet takes for a formula.

    >>> cell("=1+1"), cell("groundedness"), cell(None)
    ("'=1+1", 'groundedness', '')
    """
    text = clean(text or "")
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _row(card: Scorecard, item: Aggregate) -> list[str | int | float | None]:
    found = item.interval
    return [
        cell(card.by),
        cell(card.segment),
        cell(item.metric),
        item.layer,
        item.better,
        *_ends(found),
        found.n if found else 0,
        found.clusters if found else 0,
        item.scored,
        item.undefined,
        item.failed,
        cell(str(item.target)) if item.target else "",
        item.result or "",
        cell(why(item)),
        *_ends(item.corrected.interval if item.corrected else None),
        *_ends(item.rectified.interval if item.rectified else None),
        item.rectified.labelled if item.rectified else 0,
    ]


def _ends(found: Interval | None) -> tuple[float | None, ...]:
    """The mean and the ends of an interval; an infinite end is left out."""
    numbers = (found.mean, found.low, found.high) if found else (None, None, None)
    return tuple(None if number is None or math.isinf(number) else number for number in numbers)
