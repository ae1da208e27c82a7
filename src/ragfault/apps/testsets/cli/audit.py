"""Commands `testset audit` and `testset premises`."""

from __future__ import annotations

from datetime import date, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragfault.apps.testsets.cli.make import check_distinct, check_target, encode_lines
from ragfault.options.output import add_corpus_options, json_option, print_json, print_notice, read_corpus
from ragfault.options.runs import read_logged

if TYPE_CHECKING:
    from ragfault.apps.testsets.audit import AuditFinding

MAX_SHOWN = 10
"""Findings of a kind that are printed; --json and --out have all."""
MAX_CHARACTERS = 160
MAX_QUESTIONS = 20
"""Questions of `testset premises` that are printed."""


@click.command(
    epilog="""\b
Examples:
  ragfault testset audit docs/
  ragfault testset audit docs/ set.jsonl -o findings.jsonl --today 2026-01-31"""
)
@click.argument("corpus", type=click.Path())
@click.argument("items", metavar="[SET]", type=click.Path(), required=False)
@click.option("-o", "--out", type=click.Path(dir_okay=False), help="Write all findings, JSON Lines.")
@click.option("--today", type=click.DateTime(["%Y-%m-%d"]), help="The day by which dates are stale.  [default: today]")
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@add_corpus_options
@json_option
def audit(
    corpus: str,
    items: str | None,
    out: str | None,
    today: datetime | None,
    force: bool,
    skip_bad: bool,
    exclude: tuple[str, ...],
    kind: str | None,
) -> int:
    """Audit the documents of CORPUS: near-duplicates, contradictions, stale dates, orphans, unreachable documents.

    Contradictions are pairs of sentences on one subject that differ in a number, a date, a negation or an opposite;
    read them, as the two may be about different things. With SET, documents that none of its queries retrieves are
    named, too. Exit code 0: nothing was noticed; 1: something was.
    """
    from ragfault.apps.testsets.audit import audit_corpus
    from ragfault.io.atomic_files import write_atomically
    from ragfault.io.trace_reader import read_traces

    check_target(out, force)
    check_distinct([out], [corpus, items])
    result = audit_corpus(
        read_corpus(corpus, skip_bad, exclude),
        () if items is None else read_traces(items, notice=print_notice),
        today=today.date() if today else date.today(),
    )
    if out is not None:
        write_atomically(Path(out), encode_lines(result.findings))
    if kind == "json":
        print_json(result)
    else:
        counts = ", ".join(f"{number:,} × {name}" for name, number in result.counts.items())
        click.echo(f"{result.documents:,} documents, {result.passages:,} passages: {counts or 'nothing was noticed'}")
        for name, group in groupby(result.findings, key=lambda finding: finding.kind):
            _print_findings(name, list(group))
    return 1 if result.findings else 0


def _print_findings(kind: str, findings: list[AuditFinding]) -> None:
    """Print the first findings of a kind, each with its places."""
    for finding in findings[:MAX_SHOWN]:
        other = f" ↔ {finding.other_document}" if finding.other_document else ""
        click.echo(f"  {kind}  {finding.document}{other}: {finding.reason}")
        for text in (finding.text, finding.other_text if kind == "contradiction" else None):
            if text:
                short = " ".join(text.split())
                click.echo(f"    {short[:MAX_CHARACTERS]}{'…' if len(short) > MAX_CHARACTERS else ''}")
    if len(findings) > MAX_SHOWN:
        click.echo(f"  … and {len(findings) - MAX_SHOWN:,} more; all: --json or --out")


@click.command(
    epilog="""\b
Examples:
  ragfault testset premises traces.jsonl
  ragfault testset premises runs/today --json"""
)
@click.argument("traces", type=click.Path())
@json_option
def premises(traces: str, kind: str | None) -> None:
    """Check which questions of TRACES, a file or a run, their chunks do not answer, or answer to a false premise.

    A premise is false where a sentence of a chunk states another number than the question. Labels of answerability
    measure the probability, where there are some.
    """
    from ragfault.apps.testsets.premises import check_premises
    from ragfault.report.safe_text import clean_text

    report = check_premises(read_logged(traces))
    if kind == "json":
        print_json(report)
        return
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(report.counts.items()))
    left = f"; {report.left_out:,} traces without the text of a chunk left out" if report.left_out else ""
    measured = "" if report.auroc is None else f"; AUROC against the labels {report.auroc:.2f}"
    click.echo(f"{len(report.checks):,} questions: {counts or 'none'}{left}{measured}")
    doubtful = [check for check in report.checks if check.outcome in ("false premise", "doubtful")]
    for check in sorted(doubtful, key=lambda check: (check.outcome, check.probability))[:MAX_QUESTIONS]:
        click.echo(f"  {check.outcome} ({check.probability:.2f}): {clean_text(check.query)}")
        click.echo(f"    {clean_text(check.reason)}" + (f": “{clean_text(check.sentence)}”" if check.sentence else ""))
    if len(doubtful) > MAX_QUESTIONS:
        click.echo(f"  … and {len(doubtful) - MAX_QUESTIONS:,} more: --json lists all")
