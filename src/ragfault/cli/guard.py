"""Command group `guard`: certify a threshold."""

from __future__ import annotations

from typing import Any

import click

from ragfault.cli.judge import add_label_options, run_with_labels, show_result
from ragfault.cli.options.output import json_option, print_notice
from ragfault.cli.options.settings import calibration_option

EXIT_NO_PROMISE = 3
"""Exit code where nothing can be promised."""


@click.group(
    epilog="""\b
Examples:
  ragfault guard certify labelled.jsonl --alpha 0.1 --delta 0.1 -o certificate.json"""
)
def guard() -> None:
    """Decide which answers are released, with a bound on the share of bad ones among them."""


@guard.command(
    epilog="""\b
Examples:
  ragfault guard certify labelled.jsonl -o certificate.json
  ragfault guard certify labels.jsonl --run runs/today --alpha 0.05 -o certificate.json
  ragfault guard certify labelled.jsonl --route support --route billing -o certificate.json

Exit code 3: nothing can be promised; nothing is written."""
)
@click.argument("labels", nargs=-1, required=True)
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.1,
    show_default=True,
    help="Largest share of bad answers among the released ones.",
)
@click.option(
    "--delta",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.1,
    show_default=True,
    help="Chance that the promise is broken.",
)
@click.option(
    "--start",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Share of the answers from which thresholds are tested; choose it before seeing labels.  [default: the "
    "smaller of 0.5 and 5 alpha]",
)
@click.option(
    "--route",
    "routes",
    multiple=True,
    metavar="ROUTE",
    help="Certify this route apart, with its share of delta; repeatable.  [default: one threshold for all]",
)
@add_label_options
@calibration_option
@click.option("-o", "--out", type=click.Path(), help="Write the certificate as JSON to this file.")
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@json_option
@click.option("-q", "--quiet", is_flag=True, help="No progress bar and no table.")
def certify(
    labels: tuple[str, ...],
    name: str | None,
    out: str | None,
    force: bool,
    quiet: bool,
    skip_bad: bool,
    kind: str | None,
    **options: Any,
) -> int:
    """Certify the largest threshold of the judge's risk with P(bad | released) ≤ alpha.

    LABELS are read as by `judge measure`: traces with a label of the answer. They must be drawn at random from the
    traffic that the guard will see. The certificate states threshold, counts, released share and bound, and keeps the
    inputs of the released answers, against which traffic is watched.
    """
    from ragfault.guard.certificate import certify as work
    from ragfault.reports.output import check_output_path
    from ragfault.reports.terminal.guard import render_certificate_terminal

    if out is not None:
        check_output_path(out, force=force)
    certificate = run_with_labels(work, labels, name, out, options, quiet=quiet, skip_bad=skip_bad)
    written = out if certificate.promises else None
    show_result(
        certificate,
        (render_certificate_terminal, None),
        {"out": written, "html": None, "force": force, "quiet": quiet, "kind": kind},
    )
    if not certificate.promises and out is not None:
        print_notice(f"not written: {out}")
    return 0 if certificate.promises else EXIT_NO_PROMISE
