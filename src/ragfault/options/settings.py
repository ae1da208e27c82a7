"""Shared options for input, executor and configuration, and the settings file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import msgspec
from msgspec import Meta

from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.whole_files import read_toml
from ragfault.options.llm_judge import add_llm_options
from ragfault.options.output import combine_options
from ragfault.options.process import GIT_OPTION

SETTINGS_FILE = "ragfault.toml"

NonEmptyText = Annotated[str, Meta(min_length=1, description="a text")]
PositiveInt = Annotated[int, Meta(ge=1, description="a whole number, 1 or more")]
TextList = Annotated[str | list[str], Meta(description="a text or a list of texts")]
ClosedShare = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
OpenShare = Annotated[float, Meta(gt=0, lt=1, description="a number between 0 and 1")]
PositiveNumber = Annotated[float, Meta(gt=0, description="a number above 0")]
MarginTable = Annotated[dict[str, PositiveNumber], Meta(description="a table of metrics, each with a number above 0")]
RouteTable = Annotated[
    dict[str, str | list[str]], Meta(description="a table of routes, each with a threshold or a list of thresholds")
]

SETTINGS_SCHEMA: dict[str, dict[str, Any]] = {
    "evaluate": {
        "judge": NonEmptyText,
        "profile": NonEmptyText,
        "calibration": NonEmptyText,
        "trusted": NonEmptyText,
        "metrics": TextList,
        "metrics_by": TextList,
        "gold": Annotated[Literal["apply", "ignore"], Meta(description='"apply" or "ignore"')],
        "workers": PositiveInt,
        "ray": NonEmptyText,
        "batch": PositiveInt,
        "shape": NonEmptyText,
    },
    "map": {},
    "llm": {
        "model": NonEmptyText,
        "provider": NonEmptyText,
        "base_url": NonEmptyText,
        "temperature": Annotated[float | str, Meta(description='a number or "none"')],
        "max_tokens": PositiveInt,
        "parameters": Annotated[dict[str, Any], Meta(description="a table of parameters of the request")],
        "votes": PositiveInt,
        "context": PositiveInt,
        "images": Annotated[Literal["none", "data", "url"], Meta(description='"none", "data" or "url"')],
        "structured": Annotated[
            Literal["auto", "schema", "object", "none"], Meta(description='"auto", "schema", "object" or "none"')
        ],
        "reverse": Annotated[bool, Meta(description="true or false")],
        "rubrics": NonEmptyText,
        "concurrency": PositiveInt,
        "timeout": PositiveNumber,
        "tries": PositiveInt,
        "budget": Annotated[
            float | str | list[str], Meta(description='US$, or a text such as "200000 tokens", or a list of both')
        ],
        "price": Annotated[
            tuple[float, float], Meta(description="a list of US$ for a million tokens sent and received")
        ],
        "cache": NonEmptyText,
    },
    "gate": {
        "thresholds": TextList,
        "coverage": ClosedShare,
        "max_drop": OpenShare,
        "alpha": OpenShare,
        "power": OpenShare,
        "margins": MarginTable,
        "rubric_proof": TextList,
    },
    "compare": {"margin": OpenShare, "alpha": OpenShare, "power": OpenShare, "margins": MarginTable},
    "targets": {"thresholds": TextList, "routes": RouteTable},
}
"""Tables of the settings file, with their keys and what they hold; `map` has the keys that maps have."""


add_trace_options = combine_options(
    click.option(
        "--map",
        "maps",
        multiple=True,
        metavar="FIELD=COLUMN|FILE",
        help="Read FIELD from COLUMN, or from a path into it: a.b, messages[-1].content, docs[].text, context_*; "
        "or a TOML file of such mappings. Repeatable.",
    ),
    click.option(
        "--shape",
        help="Input format: a name (ragas, deepeval, …), or a file FILE.toml that describes one.  [default: detected]",
    ),
    click.option("--qrels", type=click.Path(), help="Relevance judgements (qrels) of a TREC run."),
    click.option("--encoding", help="Encoding of text files: utf-16, latin-1, ….  [default: detected, else UTF-8]"),
    click.option(
        "--documents",
        type=click.Path(),
        help="Corpus whose documents hold the texts of chunks that the traces name by id alone.",
    ),
    click.option(
        "--turns",
        type=click.Choice(["auto", "last", "each"]),
        help="Traces of a conversation: its last turn, each turn, or each if turns have chunks of their own (auto).  "
        "[default: auto]",
    ),
    click.option("--id-from", metavar="COLUMN,…|line", help="Build ids from these columns, or from file and line."),
)
"""Add the options that say how traces are read."""


READ_OPTIONS = ("shape", "qrels", "documents", "encoding", "turns", "id_from")


def pick_trace_options(options: dict[str, Any], table: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Pick the options above that were given, in the form that `read_traces` takes; they are taken out.

    The column map is that of the flags, else that of the settings.
    """
    picked = {name: options.pop(name, None) for name in READ_OPTIONS}
    options_set = {name: value for name, value in picked.items() if value is not None}
    return {"map": parse_column_map(options.pop("maps"), table or {}), **options_set}


add_executor_options = combine_options(
    click.option(
        "-w",
        "--workers",
        type=click.IntRange(1),
        help="Worker processes; with --ray, concurrent tasks.  [default: 1; with --ray every processor]",
    ),
    click.option(
        "--ray",
        metavar="ADDRESS|local",
        help="Ray cluster to run on: auto, HOST:PORT, ray://HOST:PORT, or local to start one here.",
    ),
)
"""Add the options that say where the work is done."""


def build_executor(ray: str | None, asked: dict[str, Any]) -> dict[str, Any]:
    """Take the workers from the options, and return who judges as arguments of `evaluate` and of what measures."""
    workers = asked.pop("workers", None)
    if ray is None:
        return {} if workers is None else {"workers": workers}
    from ragfault.evaluation.executors import RayExecutor

    return {"executor": RayExecutor(ray, workers)}


add_config_option = click.option(
    "--config", type=click.Path(dir_okay=False), help=f"Settings file.  [default: ./{SETTINGS_FILE}, if it exists]"
)
"""Add the option that names the settings file."""

calibration_option = click.option(
    "--calibration",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Calibration of this judge, written by `judge calibrate -o`.",
)


add_git_option = click.option(
    GIT_OPTION,
    is_flag=True,
    expose_value=False,
    help="Exit codes for git bisect run: 125 (skip) instead of 2, 3 and above.",
)
"""Add the option by which exit codes are those of `git bisect run`; `run_command` maps them."""


def parse_column_map(maps: tuple[str, ...], table: Mapping[str, Any]) -> dict[str, str] | str | None:
    """Parse the column map of the flags, else of the settings, in the form that `read_traces` takes."""
    pairs = {}
    for text in maps:
        field, equals, column = text.partition("=")
        if not equals:
            if len(maps) > 1:
                raise UsageError(f"--map {text}: a map file cannot be combined with other --map options.")
            return text
        pairs[field.strip()] = column.strip()
    return pairs or dict(table) or None


def load_settings(path: str | None) -> dict[str, dict[str, Any]]:
    """Load the settings file that was named, or the one that lies here, or nothing: table → key → value.

    Only what the file says is there; a lone text stands as a list where a list is meant, and the map is flat.
    Raises InputError where it cannot be read or a value is of the wrong kind, UnknownName for a table or key
    that does not exist.
    """
    file = Path(path or SETTINGS_FILE)
    if path is None and not file.is_file():
        return {}
    other = "" if file.suffix.lower() == ".toml" else f". It is read as {SETTINGS_FILE}, the settings of ragfault"
    tables = read_toml(file, other)
    return {name: _check_table(file, name, table) for name, table in tables.items()}


def _check_table(path: Path, name: str, table: Any) -> dict[str, Any]:
    """Check a table of the settings file, each value checked."""
    if name not in SETTINGS_SCHEMA:
        raise UnknownName(f"table of {path}", name, SETTINGS_SCHEMA, listed=True)
    if not isinstance(table, dict):
        raise InputError(f"{path}: {name} is a table. Write [{name}] and its keys below it.")
    if name == "map":
        from ragfault.io.formats.columns import flatten_map

        return {key: _check_value(path, name, key, value, NonEmptyText) for key, value in flatten_map(table).items()}
    for key in table:
        if name == "llm" and "key" in key.lower():
            raise UsageError(f"{path}: API keys are read only from the environment. Leave {key} out of [llm].")
        if key not in SETTINGS_SCHEMA[name]:
            raise UnknownName(f"key of [{name}] in {path}", key, SETTINGS_SCHEMA[name], listed=True)
    return {key: _check_value(path, name, key, value, SETTINGS_SCHEMA[name][key]) for key, value in table.items()}


def _check_value(path: Path, name: str, key: str, value: Any, kind: Any) -> Any:
    """Check the value of a key, in the one form that it has."""
    try:
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        expected = kind.__metadata__[0].description
        raise InputError(f"{path}: {key} of [{name}] should be {expected}, not {_format_value(value)}.") from None
    if kind is TextList:
        return _as_list(converted)
    return {route: _as_list(thresholds) for route, thresholds in converted.items()} if kind is RouteTable else converted


def _as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _format_value(value: Any) -> str:
    """Format a value as a settings file would have it, as far as there is room."""
    try:
        text = str(value) if isinstance(value, float) else msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


add_label_options = combine_options(
    click.option("--judge", "name", help="Judge to use.  [default: embedded; with --run, the judge of the run]"),
    click.option("--run", type=click.Path(), help="LABELS are those of `ragfault label` on this run."),
    click.option("--profile", metavar="NAME|FILE", help="Domain profile, as for evaluate.  [default: general]"),
    click.option(
        "--task",
        type=click.Choice(["answer", "support", "relevance"]),
        help="Unit of the labels: answers, claims, or chunks.  [default: inferred from the columns]",
    ),
    click.option(
        "--positive",
        multiple=True,
        metavar="VALUE",
        help="Label value of a bad answer or claim; for relevance the lowest relevant grade. Repeatable.",
    ),
    click.option(
        "--group",
        metavar="COLUMN",
        help="Column of independent groups, kept whole in folds and resampling.  [default: source_id, group, "
        "conversation or query]",
    ),
    click.option(
        "--limit", type=click.IntRange(1), help="Judge at most about this many traces, drawn at random by whole groups."
    ),
    click.option(
        "--seed",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="Seed of the sample, the folds and the intervals.",
    ),
    add_executor_options,
    add_llm_options,
    add_trace_options,
    click.option("--skip-bad", is_flag=True, help="Skip lines and labels that cannot be read."),
)
"""Add the options that say which labels are read, and who judges them."""
