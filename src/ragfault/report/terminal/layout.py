"""Lines, indented lines and tables of rich, and their text at a width of the terminal."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


def render_rich(parts: Iterable[RenderableType], *, width: int | None = None, color: bool) -> str:
    """Render what rich would print of these, as text; as wide as the terminal where no width is given."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=max(40, width or shutil.get_terminal_size((100, 24)).columns),
        force_terminal=color,
        force_jupyter=False,
        color_system="standard" if color else None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    for part in parts:
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def build_line(*parts: str | tuple[str, str]) -> Text:
    """Build a line of plain and styled pieces; never markup."""
    from rich.text import Text

    return Text.assemble(*parts)


def indent_line(depth: int, *parts: str | tuple[str, str]) -> RenderableType:
    """Return an indented line, as are the lines it wraps to."""
    from rich.padding import Padding

    return Padding(build_line(*parts), (0, 0, 0, depth))
