"""Commands `testset make` and `testset convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.io.atomic_files import write_atomically
from ragfault.io.trace_reader import read_traces
from ragfault.model.errors import UsageError
from ragfault.options.llm_judge import add_llm_options, resolve_judge_options
from ragfault.options.output import add_corpus_options, json_option, print_json, print_notice, read_corpus
from ragfault.options.runs import read_logged
from ragfault.options.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ragfault.apps.testsets.making.estimates import MakingEstimate
    from ragfault.apps.testsets.records import TestsetResult
    from ragfault.judges.llm.judge import LLMGenerator
    from ragfault.model.records import Document, Trace


MINED_TRACES = 8_000
"""Traces of a run whose queries are mined; of a larger run a random sample."""
FORMATS = ("ragfault", "beir", "ragas", "deepeval", "langsmith", "huggingface")
"""Formats of evaluation sets that `testset convert` writes."""


@click.command(
    epilog="""\b
Examples:
  ragfault testset make handbook/documents -o set.jsonl -n 200
  ragfault testset make docs/ -o set.jsonl -n 500 --traces logs.jsonl --rejected rejected.jsonl
  ragfault testset make docs/ -o set.jsonl -n 300 --from runs/today
  ragfault testset make docs/ -o set.jsonl --only keywords --seed 7
  ragfault testset make docs/ -o set.jsonl --judge llm:gpt-5-mini --budget 2 --questions ours.csv"""
)
@click.argument("corpus", type=click.Path())
@click.option(
    "-o", "--out", required=True, type=click.Path(dir_okay=False), help="File for the evaluation set (JSON Lines)."
)
@click.option("-n", "count", default=200, show_default=True, type=click.IntRange(1), help="How many questions.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random choice of passages."
)
@click.option(
    "--mix",
    metavar="KIND=SHARE,…",
    help="Shares of the kinds: cloze, keywords; with --judge extractive, two-passage, abstract, unanswerable.  "
    "[default: all]",
)
@click.option("--only", metavar="KIND", help="Only items of this kind.")
@click.option(
    "--traces", type=click.Path(), metavar="LOGS", help="Write queries in the style of those of these traces."
)
@click.option(
    "--rejected", type=click.Path(dir_okay=False), metavar="FILE", help="Write the rejected drafts, with reasons."
)
@click.option("--questions", type=click.Path(), metavar="FILE", help="Your own questions, which come first in the set.")
@click.option(
    "--from",
    "mined",
    type=click.Path(),
    metavar="RUN|LOG",
    help="Take up to half of the set from the queries of these traces, sampled by topic, length and route; the others "
    "are in their style. They have no gold.",
)
@click.option("--judge", metavar="llm:MODEL", help="Model that words questions and checks them: llm:PROVIDER/MODEL.")
@add_llm_options
@click.option("--dry-run", is_flag=True, help="Print what the calls of the model cost at most, and make none.")
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@add_corpus_options
@json_option
def make(
    corpus: str,
    out: str,
    count: int,
    seed: int,
    mix: str | None,
    only: str | None,
    traces: str | None,
    rejected: str | None,
    questions: str | None,
    mined: str | None,
    judge: str | None,
    dry_run: bool,
    force: bool,
    skip_bad: bool,
    exclude: tuple[str, ...],
    kind: str | None,
    **llm_flags: object,
) -> int:
    """Make an evaluation set from the documents of CORPUS: retrieval probes, or with --judge the questions of a model.

    Without a model nothing but CORPUS is needed. A probe is a sentence with a blank (cloze) or its rarest words
    (keywords), with that sentence as exact gold: recall on probes is higher than on people's questions, so compare
    retrievers with them and state no level. With --judge llm:MODEL (such as llm:ollama/qwen3 on this machine) a model
    writes natural questions, with at most two calls for each; given again, the command goes on where the budget ended.
    Read the items before you rely on them. Exit code 1 if fewer items than were asked for passed the checks.
    """
    from ragfault.apps.testsets.making.make import estimate_testset, make_testset
    from ragfault.apps.testsets.making.style import fit_style
    from ragfault.apps.testsets.settings import MakingSettings

    if mix is not None and only is not None:
        raise UsageError("--only KIND is the same as --mix KIND=1. Give one of them.")
    for path in (out, rejected):
        check_target(path, force)
    check_distinct([out, rejected], [corpus, questions, mined, traces])
    model = _load_model(judge, llm_flags)
    own_questions = [] if questions is None else list(read_traces(questions, notice=print_notice))
    style = _fit_style(traces)
    if mined:
        logged = list(read_logged(mined, MINED_TRACES))
        own_questions += _mine(logged, count // 2, seed)
        style = style or fit_style(logged)
    shares: Any = _parse_mix(mix) if only is None else {only: 1.0}
    documents: Iterable[Document] = read_corpus(corpus, skip_bad, exclude)
    settings = MakingSettings(seed=seed, mix=shares, style=style, own=own_questions, model=model, notice=print_notice)
    if dry_run:
        return _show_estimate(estimate_testset(documents, count, settings), kind)
    try:
        result = make_testset(documents, count, settings)
    finally:
        if model is not None:
            model.end()
    write_atomically(Path(out), encode_lines(result.items))
    if rejected:
        write_atomically(Path(rejected), encode_lines(result.rejected))
    if kind == "json":
        print_json(_summarize(result, out))
    else:
        _print_result(result, out)
    return 1 if len(result.items) < count else 0


def _print_result(result: TestsetResult, out: str) -> None:
    """Print how many items were written and rejected, what the calls cost, and the notes."""
    from ragfault.text.number_format import format_cost, format_count

    kinds = ", ".join(f"{name} {number}" for name, number in result.counts.items())
    drafts = format_count(len(result.rejected), "draft")
    click.echo(f"{len(result.items):,} items in {out} ({kinds}); {drafts} rejected")
    if result.usage is not None:
        cost = format_cost(result.usage.cost)
        click.echo(f"{result.usage.calls:,} calls ({result.usage.cached:,} more from the cache), {cost}")
    for note in result.notes:
        print_notice(note)


def _show_estimate(estimate: MakingEstimate | None, kind: str | None) -> int:
    """Print what the calls of the model cost at most."""
    from ragfault.apps.testsets.making.estimates import describe_estimate

    if estimate is None:
        raise UsageError("--dry-run estimates the calls of a model. Name one with --judge llm:MODEL.")
    if kind == "json":
        print_json(estimate)
    else:
        click.echo(describe_estimate(estimate))
    return 0


def _load_model(judge: str | None, flags: dict[str, Any]) -> LLMGenerator | None:
    """Load the model that words questions; None without one. Raises UsageError for a judge that is none."""
    options = resolve_judge_options(judge, flags, load_settings(None).get("llm", {}))
    if judge is None:
        return None
    if judge.partition(":")[0] != "llm":
        raise UsageError(f"--judge {judge}: questions are worded by a language model. Name one with --judge llm:MODEL.")
    from ragfault.judges.llm.judge import LLMGenerator

    return LLMGenerator(judge.partition(":")[2], **options)


def check_target(path: str | None, force: bool) -> None:
    """Refuse a file that exists, or that is no JSON Lines."""
    if path is None:
        return
    if Path(path).suffix.lower() not in (".jsonl", ".ndjson"):
        raise UsageError(f"{path} is written as JSON Lines: end it in .jsonl.")
    if Path(path).exists() and not force:
        raise UsageError(f"{path} exists. Choose another file, or replace it with --force.")


def check_distinct(written: Iterable[str | None], read: Iterable[str | None] = ()) -> None:
    """Refuse a file to write that is also one to read, or another one to write."""
    inputs = {Path(path).resolve() for path in read if path is not None}
    for path in written:
        if path is None:
            continue
        if Path(path).resolve() in inputs:
            raise UsageError(f"{path} is named twice: the one would replace the other. Write to another file.")
        inputs.add(Path(path).resolve())


def encode_lines(records: Any) -> bytes:
    """Encode records as JSON Lines."""
    import msgspec

    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def _parse_mix(text: str | None) -> Any:
    """Parse KIND=SHARE,… to a map; None for None."""
    if text is None:
        return None
    mix = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        try:
            mix[name.strip()] = float(share)
        except ValueError:
            raise UsageError(f'--mix "{part}": write KIND=SHARE, such as cloze=0.8') from None
    return mix


def _fit_style(traces: str | None) -> Any:
    """Fit the style to the queries of traces; None for None, or where they are too few."""
    if traces is None:
        return None
    from ragfault.apps.testsets.making.style import fit_style

    style = fit_style(read_traces(traces, notice=print_notice))
    if style is None:
        print_notice(f"{traces} holds fewer than 20 distinct queries: the default style is used")
    return style


def _mine(traces: list[Trace], count: int, seed: int) -> tuple[Trace, ...]:
    """Draw a sample of the queries of traces, and say how many are distinct."""
    from ragfault.apps.testsets.making.mining import mine_queries

    mined = mine_queries(traces, max(1, count), seed=seed)
    print_notice(
        f"{len(mined.items)} queries mined, of {mined.distinct:,} distinct in {mined.traces:,} traces, without gold"
    )
    return mined.items


def _summarize(result: TestsetResult, out: str) -> Any:
    from ragfault.apps.testsets.documents import WrittenTestset

    return WrittenTestset(
        path=out,
        items=len(result.items),
        requested=result.requested,
        counts=result.counts,
        rejected=len(result.rejected),
        usage=result.usage,
        notes=result.notes,
    )


@click.command(
    epilog="""\b
Examples:
  ragfault testset convert set.jsonl goldens.json --to deepeval
  ragfault testset convert set.jsonl beir/ --to beir --corpus docs/
  ragfault testset convert beir/ set.jsonl"""
)
@click.argument("items", metavar="SET", type=click.Path())
@click.argument("out", type=click.Path())
@click.option("--to", "to", type=click.Choice(FORMATS), default="ragfault", show_default=True, help="Format of OUT.")
@click.option("--corpus", type=click.Path(), help="Corpus to include, for BEIR.")
@click.option("--force", is_flag=True, help="Replace OUT.")
@add_corpus_options
@json_option
def convert(
    items: str,
    out: str,
    to: str,
    corpus: str | None,
    force: bool,
    skip_bad: bool,
    exclude: tuple[str, ...],
    kind: str | None,
) -> None:
    """Convert SET (any file that evaluate reads, or a folder of BEIR) to the format of another tool.

    Only the format of ragfault keeps gold spans with quotes and provenance; beir and the others keep less.
    """
    from ragfault.apps.testsets.documents import WrittenItems
    from ragfault.apps.testsets.formats import read_beir, write_testset

    if Path(out).exists() and not force:
        raise UsageError(f"{out} exists. Choose another place, or replace it with --force.")
    testset = read_beir(items) if Path(items).is_dir() else list(read_traces(items, notice=print_notice))
    if to == "ragfault":
        write_atomically(Path(out), encode_lines(testset))
        count = len(testset)
    else:
        documents = None if corpus is None else read_corpus(corpus, skip_bad, exclude)
        count = write_testset(testset, out, to, documents)
    if kind == "json":
        print_json(WrittenItems(path=out, format=to, items=count))
        return
    click.echo(f"{count:,} of {len(testset):,} items written to {out} ({to})")
