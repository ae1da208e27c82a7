"""Shared options for input, executor and configuration, and the settings file."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import click
from msgspec import Meta

from ragfault.evaluation.settings import EvaluationSettings
from ragfault.io.reading_settings import ReadingSettings
from ragfault.labels.settings import LabelSettings
from ragfault.model.errors import InputError, UnknownName, UsageError
from ragfault.model.settings import NonEmptyText, PositiveInt, PositiveNumber, Setting, TextList
from ragfault.model.whole_files import read_toml
from ragfault.options.llm_judge import add_llm_options
from ragfault.options.output import combine_options
from ragfault.options.process import GIT_OPTION
from ragfault.options.records import add_fields, convert_value, take_fields

SETTINGS_FILE = "ragfault.toml"

RouteTable = Annotated[
    dict[str, str | list[str]], Meta(description="a table of routes, each with a threshold or a list of thresholds")
]

SETTINGS_SCHEMA: dict[str, dict[str, Any]] = {
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
    "targets": {"thresholds": TextList, "routes": RouteTable},
}
"""Tables of the settings file that no record describes yet, with their keys and what they hold."""

SETTINGS_TABLES = {
    "evaluate": "ragfault.evaluation.settings:EvaluationSettings",
    "compare": "ragfault.comparison.settings:BisectionSettings",
    "gate": "ragfault.comparison.settings:GateTable",
}
"""Table of the settings file → the record whose fields are its keys; imported when a file has the table."""


add_trace_options = add_fields(ReadingSettings)
"""Add the options that say how traces are read."""


def pick_trace_options(options: dict[str, Any], table: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Take the options above that were given, in the form that `read_traces` takes.

    The column map is that of the flags, else that of the settings.
    """
    return take_fields(ReadingSettings, options, {"map": dict(table)} if table else {})


add_executor_options = add_fields(EvaluationSettings, "workers", "ray")
"""Add the options that say where the work is done."""


add_config_option = click.option(
    "--config", type=click.Path(dir_okay=False), help=f"Settings file.  [default: ./{SETTINGS_FILE}, if it exists]"
)
"""Add the option that names the settings file."""

calibration_option = add_fields(EvaluationSettings, "calibration")


add_git_option = click.option(
    GIT_OPTION,
    is_flag=True,
    expose_value=False,
    help="Exit codes for git bisect run: 125 (skip) instead of 2, 3 and above.",
)
"""Add the option by which exit codes are those of `git bisect run`; `run_command` maps them."""


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


def list_fields(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """List the fields of an evaluation that the settings file gives: those of [evaluate], and the map."""
    column_map = tables.get("map")
    return {**tables.get("evaluate", {}), **({"map": dict(column_map)} if column_map else {})}


def _check_table(path: Path, name: str, table: Any) -> dict[str, Any]:
    """Check a table of the settings file, each value checked."""
    known = ("map", *SETTINGS_TABLES, *SETTINGS_SCHEMA)
    if name not in known:
        raise UnknownName(f"table of {path}", name, known, listed=True)
    if not isinstance(table, dict):
        raise InputError(f"{path}: {name} is a table. Write [{name}] and its keys below it.")
    if name == "map":
        from ragfault.io.formats.columns import flatten_map

        table = flatten_map(table)
        keys = dict.fromkeys(table, Setting(None, "", NonEmptyText, None, True))
    else:
        keys = _list_keys(name)
    for key in table:
        if name == "llm" and "key" in key.lower():
            raise UsageError(f"{path}: API keys are read only from the environment. Leave {key} out of [llm].")
        if key not in keys:
            raise UnknownName(f"key of [{name}] in {path}", key, keys, listed=True)
    return {key: convert_value(keys[key], value, f"{path}: {key} of [{name}]") for key, value in table.items()}


def _list_keys(name: str) -> dict[str, Setting]:
    """List the keys of a table of the settings file, each with its declaration."""
    if name not in SETTINGS_TABLES:
        return {key: Setting(None, "", form, None, True) for key, form in SETTINGS_SCHEMA[name].items()}
    module, _, record = SETTINGS_TABLES[name].partition(":")
    declared: dict[str, Setting] = getattr(import_module(module), record).declared
    return {key: setting for key, setting in declared.items() if setting.is_key}


add_label_options = combine_options(
    add_fields(LabelSettings),
    add_llm_options,
    add_trace_options,
    click.option("--skip-bad", is_flag=True, help="Skip lines and labels that cannot be read."),
)
"""Add the options that say which labels are read, and who judges them."""
