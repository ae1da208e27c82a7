"""Command `investigate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ragfault.model.errors import UsageError
from ragfault.options.output import json_option, print_json
from ragfault.options.runs import cause_option, human_labels_option, load_run_labels, sample_option
from ragfault.text.number_format import format_count, format_number

if TYPE_CHECKING:
    from ragfault.comparison.investigation.records import ClaimOrigins, Hypothesis, Investigation

EXIT_CODES = {"no fault": 0, "fault": 1, "cannot tell": 3}


@click.command(
    epilog="""\b
Examples:
  ragfault investigate runs/v2 --baseline runs/v1
  ragfault investigate runs/today
  ragfault investigate runs/today --cause not-retrieved
  ragfault investigate runs/today --human-labels labels.jsonl
  ragfault investigate runs/v2 --baseline runs/v1 --json
  ragfault investigate runs/v2 --baseline runs/v1 --by llm:gpt-4o-mini --budget 0.50

\b
Exit code 0: no fault, and that is shown; 1: a fault; 3: the data cannot tell."""
)
@click.argument("run", type=click.Path())
@click.option("--baseline", type=click.Path(), help="Run from before the change.  [default: only RUN]")
@cause_option
@human_labels_option
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the resampling.")
@click.option("--by", metavar="llm:MODEL", help="Let this model investigate too, by the tools of `ragfault mcp`.")
@click.option("--budget", metavar="AMOUNT", help='Limit for --by: 0.50 (US$) or "100k tokens".')
@sample_option
@json_option
def investigate(
    run: str,
    baseline: str | None,
    causes: tuple[str, ...],
    human_labels: tuple[str, ...],
    seed: int,
    by: str | None,
    budget: str | None,
    sample: int,
    kind: str | None,
) -> int:
    """Find the root cause of what is wrong with RUN, without a language model unless --by names one.

    Tests hypotheses with the other commands (bisect, compare, diagnose), quotes the recorded texts that show
    it, proposes a fix and a test for the fix, and states how sure it is. Beside a baseline the hypotheses are stages
    of the pipeline; of a run alone they are the kinds of problem that come first.
    """
    from ragfault.comparison.investigation.hypotheses import investigate
    from ragfault.io.runs.run import Run
    from ragfault.report.safe_text import clean_text

    if baseline is not None and baseline == run:
        raise UsageError(f"{run} is its own baseline. Name the run from before the change.")
    if (causes or human_labels) and (baseline is not None or by is not None or budget is not None):
        raise UsageError(
            "--cause and --human-labels concern the failures of a single run. Leave out --baseline, --by and --budget."
        )
    if by is not None or budget is not None:
        return _investigate_by_model(run, baseline, by, budget, kind)
    opened = Run.open(run)
    labels = load_run_labels(human_labels, opened) if human_labels else None
    result = investigate(opened, baseline, causes=causes, seed=seed, sample=sample, labels=labels)
    if kind == "json":
        print_json(result)
    else:
        for line in _format_investigation(result):
            text = line.lstrip()
            click.echo(f"{' ' * (len(line) - len(text))}{clean_text(text)}")
    return EXIT_CODES[result.verdict]


def _investigate_by_model(run: str, baseline: str | None, by: str | None, budget: str | None, kind: str | None) -> int:
    """Print the conclusion of a model, then the investigation without one; its exit code is the latter's."""
    from ragfault.integrations.investigator import investigate_by_model
    from ragfault.judges.llm.judge import LLMGenerator
    from ragfault.options.llm_judge import parse_budgets
    from ragfault.report.safe_text import clean_text

    if by is None or not by.startswith("llm:") or budget is None or baseline is None:
        raise UsageError(
            "a model investigates within a budget, against a baseline: give --by llm:MODEL, --budget, --baseline."
        )
    budgets: dict[str, Any] = {**parse_budgets([budget])}
    result = investigate_by_model(run, baseline, LLMGenerator(by.removeprefix("llm:"), **budgets))
    if kind == "json":
        print_json(result)
        return EXIT_CODES[result.without_model.verdict]
    if result.layer is None:
        click.echo(clean_text(result.cause))
    else:
        sure = format_number(result.confidence or 0.0, 2)
        click.echo(
            clean_text(
                f"{by} names {result.stage or result.layer} ({result.layer}), by itself {sure} sure: {result.cause}"
            )
        )
        click.echo(clean_text(f"  fix: {result.fix}"))
        for quote in result.quotes:
            click.echo(clean_text(f"  {quote.run} {quote.trace} [{quote.start}:{quote.end}]: “{quote.text}”"))
        agreement = "the same layer" if result.agrees else "another layer"
        quotes = format_count(result.rejected_quotes, "quote")
        click.echo(f"  {quotes} not in the record; without a model {agreement} is named")
    click.echo(f"  {format_count(len(result.calls), 'call')} of tools\n")
    for line in _format_investigation(result.without_model):
        text = line.lstrip()
        click.echo(f"{' ' * (len(line) - len(text))}{clean_text(text)}")
    return EXIT_CODES[result.without_model.verdict]


def _format_investigation(result: Investigation) -> list[str]:
    lines = [f"{result.verdict.upper()}: {result.sentence}"]
    if result.confidence is not None:
        subject = f"root cause: {result.stage}" if result.stage else f"layer: {result.layer}"
        lines.append(f"{subject}, confidence {format_number(result.confidence, 2)}")
    lines += [f"beware: {text}" for text in result.warnings]
    live = [hypothesis for hypothesis in result.hypotheses if hypothesis.confidence is not None]
    others = [hypothesis for hypothesis in result.hypotheses if hypothesis.confidence is None]
    lines += ["", "hypotheses:"] if result.hypotheses else []
    lines += [line for hypothesis in live for line in _format_hypothesis(hypothesis)]
    for outcome in ("ruled out", "cannot tell"):
        names = [f"{item.layer}, {item.text}" for item in others if item.outcome == outcome]
        lines += [f"  {outcome}: {'; '.join(names)}"] if names else []
    if result.quotes:
        lines += ["", "quotes (white space folded here; character by character with --json):"]
        for quote in result.quotes:
            subject = f"chunk {quote.chunk}" if quote.chunk else "answer"
            lines.append(f"  {quote.run} {quote.trace}, {subject} [{quote.start}:{quote.end}] ({quote.reason}):")
            lines.append(f"    “{' '.join(quote.text.split())}”")
    if result.origins is not None:
        lines += ["", _format_origins(result.origins)]
    lines += ["", "fix:", *(f"  {step}" for step in result.fix)] if result.fix else []
    lines += ["", "test of the fix:", *(f"  {command}" for command in result.fix_test)] if result.fix_test else []
    return lines


def _format_hypothesis(hypothesis: Hypothesis) -> list[str]:
    head = f"  {hypothesis.outcome}, confidence {format_number(hypothesis.confidence or 0.0, 2)}: {hypothesis.text}"
    return [head, *(f"    {test.outcome}: {test.reason}  ({test.command})" for test in hypothesis.tests)]


def _format_origins(origins: ClaimOrigins) -> str:
    share = origins.from_retrieval
    low, mean, high = (f"{format_number(100 * value, 0)}" for value in (share.low, share.mean, share.high))
    others = origins.without_fault
    beside = (
        "" if others is None else f"; of the traces without such a claim {format_number(100 * others, 0)} % lack it too"
    )
    return (
        f"{mean} % [{low}, {high}] of {format_count(origins.claims, 'unsupported claim')} stand where retrieval did "
        f"not bring what was asked for{beside}"
    )
