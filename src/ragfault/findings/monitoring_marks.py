"""Marks: what happened to the system and when, such as a deployment."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from ragfault.errors import InputError

__all__ = ["Mark", "read_marks"]


class Mark(Struct, frozen=True, kw_only=True):
    """Something that happened at a time."""

    time: datetime
    text: str
    """In words: "release 7"."""
    route: str | None = None
    """None: to all routes."""

    @property
    def minute(self) -> int:
        """Minutes since 1970."""
        moment = self.time if self.time.tzinfo else self.time.replace(tzinfo=UTC)
        return int(moment.timestamp() // 60)


def read_marks(path: str | Path) -> tuple[Mark, ...]:
    """The marks of a JSONL file, a line each: `{"time": "2026-11-02T09:30:00Z", "text": "release 7"}`.

    A time without a zone is UTC. Raises InputError with the line where one is not a mark.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                mark = msgspec.json.decode(line, type=Mark)
            except msgspec.MsgspecError as error:
                raise InputError(
                    f'{path}:{number} is not a mark ({error}). Write {{"time": "2026-11-02T09:30:00Z", "text": "…"}}.'
                ) from None
            moment = mark.time if mark.time.tzinfo else mark.time.replace(tzinfo=UTC)
            found.append(Mark(time=moment, text=mark.text, route=mark.route))
    return tuple(found)
