"""Options of commands and tables of the settings file, made from the fields of records of settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec

from ragfault.model.errors import InputError
from ragfault.model.settings import PathText, Setting, Settings, TextList
from ragfault.options.output import F, combine_options


def is_given(value: Any) -> bool:
    """Return whether an option was given, from its value."""
    return value is not None and value is not False and value != ()


def add_fields(record: type[Settings], *names: str) -> Callable[[F], F]:
    """Add an option for each field that a record declares itself, or for those that are named.

    Fields of the records that it extends are added by a call of their own, so that a verb can place them.
    """
    chosen = names or [name for name in vars(record)["__annotations__"] if name in record.declared]
    settings = {name: record.declared[name] for name in chosen}
    return combine_options(
        *(
            build_option(name, setting, record.declared)
            for name, setting in settings.items()
            if setting.flag is not None
        )
    )


def build_option(name: str, setting: Setting, fields: Mapping[str, Setting]) -> Callable[[F], F]:
    """Build the option of a field: its flags, type, range, default and help follow from the declaration."""
    assert setting.flag is not None
    flag = setting.flag
    bounds, terms = setting.bounds, dict[str, Any]()
    if setting.kind is bool:
        terms["is_flag"] = True
    elif setting.choices:
        terms["type"] = click.Choice(setting.choices)
    elif setting.kind in (int, float) and bounds is not None and flag.parse is None:
        number_range: Any = click.IntRange if setting.kind is int else click.FloatRange
        low, high = bounds.ge if bounds.ge is not None else bounds.gt, bounds.le if bounds.le is not None else bounds.lt
        terms["type"] = number_range(low, high, min_open=bounds.gt is not None, max_open=bounds.lt is not None)
    elif setting.form == PathText:
        terms["type"] = click.Path()
    elif is_repeatable(setting):
        terms["multiple"] = True
    flags = flag.names or (name_flag(name, setting),)
    return click.option(*flags, name, metavar=flag.metavar, help=describe_option(setting, fields), **terms)


def is_repeatable(setting: Setting) -> bool:
    """Return whether the option of a field may be given several times: that of a list or a table."""
    return setting.form == TextList or getattr(setting.kind, "__origin__", None) is dict


def describe_option(setting: Setting, fields: Mapping[str, Setting]) -> str:
    """Describe the option of a field: its sentence, with flags in place of fields, and its default."""
    default = setting.flag.default if setting.flag is not None and setting.flag.default else setting.default
    text = f"{setting.sentence} Repeatable." if is_repeatable(setting) else setting.sentence
    text += f"  [default: {default}]" if is_given(default) else ""
    return re.sub(
        r"`(\w+)`", lambda match: name_flag(match[1], fields[match[1]]) if match[1] in fields else match[0], text
    )


def name_flag(field: str, setting: Setting) -> str:
    """Return the flag of a field: the long one that it names, else its name with hyphens."""
    named = setting.flag.names if setting.flag is not None else ()
    return named[-1] if named else f"--{field.replace('_', '-')}"


def take_fields(
    record: type[Settings], options: dict[str, Any], table: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Take the fields of a record out of the options of a command: flags first, else a table of the settings file.

    Only fields that were given are there, so that `record(**fields)` has the defaults of the others.
    """
    fields = {name: value for name, value in (table or {}).items() if name in record.declared}
    for name, setting in record.declared.items():
        value = options.pop(name, None)
        if not is_given(value):
            continue
        parse = setting.flag.parse if setting.flag is not None else None
        fields[name] = parse(value) if parse is not None else list(value) if isinstance(value, tuple) else value
    return fields


def merge_margins(fields: dict[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the margins of the flags into those of the settings file, metric by metric."""
    merged = {**table.get("margins", {}), **fields.get("margins", {})}
    return {**fields, "margins": merged} if merged else fields


def convert_value(setting: Setting, value: Any, place: str) -> Any:
    """Convert a value of a file to that of a field; a lone text is a list where a list is meant.

    Raises InputError, with the place of the value, for one of another kind or out of its range.
    """
    try:
        converted = msgspec.convert(value, setting.form)
    except msgspec.ValidationError:
        raise InputError(f"{place} should be {setting.words}, not {format_value(value)}.") from None
    if setting.kind == dict[str, str | list[str]]:
        return {key: [item] if isinstance(item, str) else item for key, item in converted.items()}
    return [converted] if setting.form == TextList and isinstance(converted, str) else converted


def format_value(value: Any) -> str:
    """Format a value as a settings file would have it, as far as there is room."""
    try:
        text = str(value) if isinstance(value, float) else msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
