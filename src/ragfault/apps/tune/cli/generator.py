"""Command group `generator`: choose among recorded generators, and search the settings of one by calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragfault.apps.tune.cli.search_files import check_folder, print_written, write_search
from ragfault.apps.tune.settings import GeneratorSettings, PromptSettings
from ragfault.judges.loading import DEFAULT_JUDGE
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.options.output import align_columns, combine_options, json_option, print_notice, print_report
from ragfault.options.records import add_fields, take_fields
from ragfault.options.runs import read_logged
from ragfault.options.settings import add_trace_options, pick_trace_options

if TYPE_CHECKING:
    from ragfault.apps.tune.generators.records import GeneratorChoice
    from ragfault.model.protocols import Judge
    from ragfault.model.records import Trace, Verdicts
    from ragfault.retrieval.generation.settings import GeneratorConfig
    from ragfault.retrieval.pipeline_config import PipelineConfig


@click.group(
    epilog="""\b
Examples:
  ragfault tune generator choose gpt.jsonl llama.jsonl mistral.jsonl --present llama
  ragfault tune generator search retrieved.jsonl space.toml -o chosen --share 0.3
  ragfault tune generator improve retrieved.jsonl pipeline.toml -o improved --writer llm:gpt-4o"""
)
def generator() -> None:
    """Choose a generator, its settings or its prompt on some questions, and prove the gain on others."""


add_choice_options = combine_options(
    add_fields(GeneratorSettings, "metric"),
    click.option("--judge", default=DEFAULT_JUDGE, show_default=True, help="Judge of the answers, as for evaluate."),
    add_fields(GeneratorSettings, "subject_to", "holdout", "seed"),
    click.option("--force", is_flag=True, help="Replace an earlier result in OUT."),
)
"""Add the options that every choice of a generator has."""
add_call_options = combine_options(
    click.option("--skip-control", is_flag=True, help="Leave out the second answers of the present generator."),
    click.option("--budget", type=click.FloatRange(0), metavar="US$", help="Spending limit of each model."),
    click.option("--price", is_flag=True, help="Print what an answer of each model costs, and call none."),
)
"""Add the options of a choice that calls models."""
DEFAULT_SHARE = 0.3
"""Share of the calls of the whole grid that a search takes unless another is named."""


@generator.command(
    epilog="""\b
Examples:
  ragfault tune generator choose gpt.jsonl llama.jsonl mistral.jsonl --present llama
  ragfault tune generator choose answers.jsonl --by-model -m token_f1 -o chosen
  ragfault tune generator choose runs/gpt runs/llama --human-labels labels.jsonl --null-replays 200

Exit code 3: the present generator stays."""
)
@click.argument("recorded", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--out", type=click.Path(file_okay=False), help="Output folder for the result.")
@click.option("--present", metavar="NAME", help="Generator in use.  [default: the first]")
@click.option("--by-model", is_flag=True, help="RECORDED holds several generators: divide it by the field `model`.")
@add_fields(GeneratorSettings, "share", "null_replays")
@click.option(
    "--human-labels",
    type=click.Path(),
    metavar="FILE",
    help="Table of generator, trace and METRIC by people: corrects the gain.",
)
@add_choice_options
@json_option
@add_trace_options
def choose(
    recorded: tuple[str, ...],
    out: str | None,
    present: str | None,
    by_model: bool,
    human_labels: str | None,
    judge: str,
    force: bool,
    kind: str | None,
    **options: Any,
) -> int:
    """Choose among the generators whose answers are in RECORDED: files of traces or runs, one for each generator.

    The answers are to the same questions from the same sources, joined by id, else by query and chunks; several answers
    of a generator to a question are repetitions. One half of the questions races the generators, the other measures
    the winner against the present one. Nothing is generated; the judge is asked only about answers that the race needs.
    """
    from ragfault.apps.tune.generators.recorded import read_human_table
    from ragfault.apps.tune.generators.search import choose_recorded

    folder = check_folder(out, force)
    settings = GeneratorSettings(**take_fields(GeneratorSettings, options), notice=print_notice)
    traces, verdicts = _read_recorded(recorded, by_model, pick_trace_options(options))
    people = None if human_labels is None else read_human_table(human_labels, settings.metric, list(traces))
    loaded = _load_judge(judge)
    choice = choose_recorded(traces, present, settings, judge=loaded, verdicts=verdicts, people=people)
    return _show_choice(choice, None, folder, kind)


@generator.command(
    epilog="""\b
Examples:
  ragfault tune generator search retrieved.jsonl space.toml -o chosen
  ragfault tune generator search runs/today space.toml -o chosen --share 0.3 --repetitions 2 --subject-to "cost<=0.01"

Exit code 3: the present generator stays."""
)
@click.argument("questions", type=click.Path())
@click.argument("space", type=click.Path(dir_okay=False))
@click.option("-o", "--out", required=True, type=click.Path(file_okay=False), help="Output folder.")
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    default=DEFAULT_SHARE,
    show_default=True,
    help=GeneratorSettings.declared["share"].sentence,
)
@add_fields(GeneratorSettings, "repetitions")
@add_call_options
@click.option("--pipeline", type=click.Path(dir_okay=False), help="Pipeline whose stages OUT/pipeline.toml takes over.")
@add_choice_options
@json_option
@add_trace_options
def search(
    questions: str,
    space: str,
    out: str,
    skip_control: bool,
    price: bool,
    budget: float | None,
    pipeline: str | None,
    judge: str,
    force: bool,
    kind: str | None,
    **options: Any,
) -> int:
    """Search the settings of a generator over QUESTIONS, traces with chunks, by calling its endpoints.

    SPACE is TOML: [generator] the present settings, [search] the values of each setting to try. The models are raced
    first, then prompt, chunks, order, temperature, length, format, citations and examples. OUT gets pipeline.toml with
    the recommended generator, search.html and search.json. Replies are cached: the same command resumes. The
    endpoint is RAGFAULT_LLM_BASE_URL, else the provider's.
    """
    from msgspec.structs import replace

    from ragfault.apps.tune.generators.search import search_generators

    folder = check_folder(out, force)
    present, values = _read_space(space)
    fields = take_fields(GeneratorSettings, options)
    settings = GeneratorSettings(**fields, control=not skip_control, notice=print_notice)
    traces = list(read_logged(questions, reading=pick_trace_options(options)))
    if price:
        models = dict.fromkeys((present.model, *values.model))
        longest = None if present.chunks is None else max((present.chunks, *values.chunks))
        configs = [replace(present, model=model, chunks=longest) for model in models]
        answers = int((settings.share or 1.0) * values.size * len(traces) * settings.repetitions)
        return _show_prices(traces, configs, answers)
    choice, config = search_generators(
        traces, present, values, settings, judge=_load_judge(judge), answer=_make_answer(budget)
    )
    return _show_choice(choice, _join_pipeline(pipeline, config), folder, kind)


@generator.command(
    epilog="""\b
Examples:
  ragfault tune generator improve retrieved.jsonl pipeline.toml -o improved --writer llm:gpt-4o
  ragfault tune generator improve runs/today pipeline.toml -o improved --writer llm:ollama/qwen3 --rounds 10

Exit code 3: the present generator stays."""
)
@click.argument("questions", type=click.Path())
@click.argument("pipeline", type=click.Path(dir_okay=False))
@click.option("-o", "--out", required=True, type=click.Path(file_okay=False), help="Output folder.")
@click.option("--writer", required=True, metavar="llm:MODEL", help="Model that rewrites the prompt.")
@add_fields(PromptSettings, "rounds")
@add_call_options
@add_choice_options
@json_option
@add_trace_options
def improve(
    questions: str,
    pipeline: str,
    out: str,
    writer: str,
    skip_control: bool,
    price: bool,
    budget: float | None,
    judge: str,
    force: bool,
    kind: str | None,
    **options: Any,
) -> int:
    """Rewrite the prompt of the generator of PIPELINE from the claims that fail on QUESTIONS, and prove the gain.

    QUESTIONS are traces with chunks. One half of them shows the writer failed answers and chooses among its prompts,
    the other measures the best of them against the present one. OUT gets the pipeline with the recommended prompt. The
    endpoint is RAGFAULT_LLM_BASE_URL, else the provider's.
    """
    from ragfault.apps.tune.generators.reflection import improve_prompt, make_prompt_writer
    from ragfault.retrieval.generation.answering import load_writer
    from ragfault.retrieval.generation.settings import GeneratorConfig
    from ragfault.retrieval.pipeline_config import read_pipeline_config

    folder = check_folder(out, force)
    present = read_pipeline_config(pipeline).generator
    if present is None:
        raise InputError(f"{pipeline} has no table [generator]. Name its model and prompt there.")
    fields = take_fields(PromptSettings, options)
    settings = PromptSettings(**fields, control=not skip_control, notice=print_notice)
    traces = list(read_logged(questions, reading=pick_trace_options(options)))
    if price:
        return _show_prices(traces, [present], (settings.rounds + 1) * len(traces))
    choice, config = improve_prompt(
        traces,
        present,
        make_prompt_writer(load_writer(GeneratorConfig(model=writer), budget)),
        settings,
        judge=_load_judge(judge),
        answer=_make_answer(budget),
    )
    return _show_choice(choice, _join_pipeline(pipeline, config), folder, kind)


def _show_prices(traces: list[Trace], configs: list[GeneratorConfig], answers: int) -> int:
    """Print what an answer by each of some settings costs, and all answers by it; nothing is called."""
    from ragfault.apps.tune.generators.search import REPLY_TOKENS, price_answers
    from ragfault.text.number_format import format_cost

    rows = [("model", "tokens sent", "an answer", f"{answers:,} answers")]
    rows += [
        (
            price.model,
            f"{price.prompt:,}",
            format_cost(price.cost),
            format_cost(None if price.cost is None else price.cost * answers),
        )
        for price in price_answers(traces, configs)
    ]
    click.echo("\n".join(align_columns(rows, left=1)))
    click.echo(
        f"Nothing was called. Estimated, with replies of {REPLY_TOKENS} tokens; race and measurement take at most "
        f"{answers:,} answers together, by whatever models."
    )
    return 0


def _make_answer(budget: float | None) -> Callable[[GeneratorConfig, Trace, int], Trace]:
    """Return the call of an endpoint within a budget."""
    from ragfault.retrieval.generation.answering import answer_trace

    return lambda config, trace, repetition: answer_trace(config, trace, repetition=repetition, budget=budget)


def _join_pipeline(path: str | None, config: GeneratorConfig) -> PipelineConfig:
    """Return the pipeline of a file, else the default one, with a generator."""
    from msgspec.structs import replace

    from ragfault.retrieval.pipeline_config import PipelineConfig, read_pipeline_config

    return replace(PipelineConfig() if path is None else read_pipeline_config(path), generator=config)


def _load_judge(name: str) -> Judge:
    from ragfault.judges.loading import load_judge

    return load_judge(name)


def _read_recorded(
    paths: tuple[str, ...], by_model: bool, reading: dict[str, Any]
) -> tuple[dict[str, list[Trace]], dict[int, Verdicts]]:
    """Return the traces of each generator, and the verdicts that runs have stored, by the identity of the trace."""
    from ragfault.apps.tune.generators.recorded import group_by_model
    from ragfault.io.runs.run import Run

    traces: dict[str, list[Trace]] = {}
    verdicts: dict[int, Verdicts] = {}
    for path in paths:
        name = Path(path).stem if Path(path).suffix else Path(path).name
        if name in traces:
            raise UsageError(f'two generators would be named "{name}". Rename one of the files.')
        if (Path(path) / "manifest.json").is_file():
            pairs = list(Run.open(path).evidence())
            traces[name] = [trace for trace, _ in pairs]
            verdicts |= {id(trace): verdict for trace, verdict in pairs}
        else:
            traces[name] = list(read_logged(path, reading={"unique": "none", **reading}))
    if not by_model:
        return traces, verdicts
    grouped = group_by_model([trace for rows in traces.values() for trace in rows])
    if not grouped:
        raise InputError("no trace names its model, so that --by-model has nothing to divide by.")
    return grouped, verdicts


def _read_space(path: str) -> tuple[GeneratorConfig, Any]:
    """Return the present settings and the space of a TOML file."""
    import msgspec

    from ragfault.apps.tune.generators.search import GeneratorSpace
    from ragfault.model.whole_files import read_toml
    from ragfault.retrieval.generation.settings import parse_generator_config

    tables = read_toml(path)
    for name in ("generator", "search"):
        if name not in tables:
            raise InputError(f"{path} has no table [{name}]. [generator] is the present settings, [search] the values.")
    for name in tables["search"]:
        if name not in GeneratorSpace.__struct_fields__:
            raise UnknownName(f"setting of [search] in {path}", name, GeneratorSpace.__struct_fields__)
    try:
        space = msgspec.convert(tables["search"], GeneratorSpace)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: [search]: {error}.") from None
    return parse_generator_config(tables["generator"], path), space


def _show_choice(choice: GeneratorChoice, config: PipelineConfig | None, folder: Path | None, kind: str | None) -> int:
    """Print a choice, and write its files."""
    from ragfault.apps.tune.report.generators import build_choice

    files = [] if folder is None else write_search(folder, choice, build_choice(choice), config, choice.reason)
    print_report(choice, kind, build_choice)
    print_written(files, kind)
    return 0 if choice.gain is not None and choice.recommended == choice.chosen else 3
