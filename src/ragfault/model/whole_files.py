"""Small files that are read whole: texts, TOML, and the record of a result in JSON."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ragfault.model.errors import InputError

Record = TypeVar("Record")


def read_text(path: str | Path) -> str:
    """Return the text of a file in UTF-8. Raises InputError where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: {error.reason} at byte {error.start:,}.") from None


def parse_toml(text: str, source: str, note: str = "") -> dict[str, Any]:
    """Return the tables of a TOML text. Raises InputError, with the note at its end, for text that is no TOML."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{source} is not TOML: {error}{note}") from None


def read_toml(path: str | Path, note: str = "") -> dict[str, Any]:
    """Return the tables of a TOML file. Raises what `read_text` and `parse_toml` raise."""
    return parse_toml(read_text(path), str(path), note)


def read_record(path: str | Path, kind: type[Record], noun: str, note: str = "") -> Record:
    """Return the record in a JSON file, which is `noun`, such as "a certificate".

    Raises InputError where the file cannot be read, or holds no such record; the note is the end of that message.
    """
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=kind)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not {noun}: {error}.{note}") from None
