"""Command `retrieve`: record what a pipeline retrieves for some questions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ragfault.model.errors import OutputError, UsageError
from ragfault.options.output import (
    add_corpus_options,
    json_option,
    print_json,
    print_left_out,
    print_notice,
    read_corpus,
)
from ragfault.options.settings import add_trace_options, pick_trace_options
from ragfault.text.number_format import format_count

if TYPE_CHECKING:
    from ragfault.model.records import Trace
    from ragfault.retrieval.pipeline import Pipeline


@click.command(
    epilog="""\b
Examples:
  ragfault tune retrieve docs/ questions.jsonl -o retrieved.jsonl --pipeline tuned/pipeline.toml
  ragfault tune generator search retrieved.jsonl space.toml -o chosen
  ragfault evaluate retrieved.jsonl -o runs/retrieval -m recall@10"""
)
@click.argument("corpus", type=click.Path())
@click.argument("questions", type=click.Path())
@click.option("-o", "--out", required=True, type=click.Path(dir_okay=False), help="File for the traces (JSON Lines).")
@click.option(
    "--pipeline",
    "config",
    type=click.Path(dir_okay=False),
    help="Pipeline (pipeline.toml).  [default: BM25, 10 chunks]",
)
@add_trace_options
@add_corpus_options
@click.option("--force", is_flag=True, help="Replace an existing file OUT.")
@json_option
def retrieve(
    corpus: str,
    questions: str,
    out: str,
    config: str | None,
    skip_bad: bool,
    exclude: tuple[str, ...],
    force: bool,
    kind: str | None,
    **reading: object,
) -> None:
    """Record what a pipeline retrieves from CORPUS for QUESTIONS, as traces with chunks and without answers.

    `tune generator search` and `improve` read them, and `evaluate` measures the retrieval. Ids, gold, references,
    history and metadata of QUESTIONS stay; their chunks and answers are replaced. No generator is called.
    """
    import msgspec

    from ragfault.apps.tune.documents import RecordedRetrievals
    from ragfault.io.atomic_files import write_atomically
    from ragfault.io.trace_reader import read_traces
    from ragfault.retrieval.pipeline_config import PipelineConfig, build_index, build_pipeline, read_pipeline_config

    if Path(out).suffix.lower() not in (".jsonl", ".ndjson"):
        raise UsageError(f"{out} is written as JSON Lines: end it in .jsonl.")
    if Path(out).exists() and not force:
        raise OutputError(f"{out} exists. Choose another file, or replace it with --force.")
    settings = PipelineConfig() if config is None else read_pipeline_config(config)
    # what is recorded is the input of generators, so that none answers here
    settings = msgspec.structs.replace(settings, generator=None, checks={})
    asked = read_traces(
        questions, notice=print_notice, on_bad=print_left_out if skip_bad else "raise", **pick_trace_options(reading)
    )
    pipeline = build_pipeline(settings, build_index(settings, read_corpus(corpus, skip_bad, exclude)))
    traces = [retrieve_chunks(pipeline, trace) for trace in asked]
    write_atomically(Path(out), b"".join(msgspec.json.encode(trace) + b"\n" for trace in traces))
    chunks = sum(len(trace.chunks or ()) for trace in traces)
    if kind == "json":
        print_json(RecordedRetrievals(path=out, traces=len(traces), chunks=chunks, pipeline=settings.name))
    else:
        click.echo(f"{format_count(len(traces), 'trace')} with {chunks:,} chunks in {out}, by {settings.name}")


def retrieve_chunks(pipeline: Pipeline, question: Trace) -> Trace:
    """Return a question with what a pipeline retrieves for it, and without the answer to other chunks."""
    from msgspec.structs import replace

    from ragfault.retrieval.pipeline import Query

    earlier = tuple(turn.text for turn in question.history or () if turn.role == "user")
    query = Query(text=question.query, route=question.route, time=question.time, earlier=earlier)
    result = pipeline(query, question.id)
    return replace(
        question,
        chunks=result.chunks,
        steps=result.steps,
        latency=result.latency,
        answer=None,
        citations=None,
        messages=None,
        model=None,
        finish_reason=None,
        tokens=None,
        error=None,
        metadata=question.metadata | result.metadata,
    )
