"""Options that several verbs share, and the settings file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from ragfault.errors import InputError, UnknownName, UsageError

__all__ = ["SETTINGS", "mapping", "reading", "settings", "setup"]

SETTINGS = "ragfault.toml"

F = TypeVar("F", bound=Callable[..., Any])

KNOWN: dict[str, tuple[str, ...]] = {
    "evaluate": ("judge", "metrics", "workers", "batch", "shape"),
    "map": (),
    "gate": ("bars", "coverage"),
    "targets": ("bars", "routes"),
}
"""Tables of the settings file and their keys; without keys, any."""


def reading(function: F) -> F:
    """Add the options that say how traces are read."""
    for option in (
        click.option("--qrels", type=click.Path(), help="Relevance judgements beside a TREC run."),
        click.option("--shape", help="Read as this shape instead of recognising it (ragas, deepeval, …)."),
        click.option(
            "--map",
            "maps",
            multiple=True,
            metavar="FIELD=COLUMN|FILE",
            help="Read FIELD from COLUMN (dots go into objects); or a TOML file of such lines. Repeatable.",
        ),
    ):
        function = option(function)
    return function


def setup(function: F) -> F:
    """Add the option that names the settings file."""
    return click.option(
        "--config",
        type=click.Path(dir_okay=False),
        help=f"Settings file; ./{SETTINGS} is read where it exists.",
    )(function)


def mapping(maps: tuple[str, ...], table: Mapping[str, Any]) -> dict[str, str] | str | None:
    """The column map of the flags, else of the settings, in the form that `read_traces` takes."""
    pairs = {}
    for text in maps:
        field, equals, column = text.partition("=")
        if not equals:
            if len(maps) > 1:
                raise UsageError(
                    f"--map {text}: a map file is given alone. Write --map FIELD=COLUMN, or one file."
                )
            return text
        pairs[field.strip()] = column.strip()
    return pairs or {key: str(value) for key, value in table.items()} or None


def settings(path: str | None) -> dict[str, Any]:
    """The settings file that was named, or the one that lies here, or nothing.

    Raises InputError where it cannot be read, UnknownName for a table or key that does not exist.
    """
    import tomllib

    place = Path(path or SETTINGS)
    if path is None and not place.is_file():
        return {}
    try:
        found = tomllib.loads(place.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {place}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{place} is not TOML: {error}") from None
    for name, table in found.items():
        if name not in KNOWN:
            raise UnknownName(f"table of {place}", name, KNOWN)
        if not isinstance(table, dict):
            raise InputError(f"{place}: {name} is a table. Write [{name}] and its keys below it.")
        for key in table:
            if KNOWN[name] and key not in KNOWN[name]:
                raise UnknownName(f"key of [{name}] in {place}", key, KNOWN[name])
    return found
