"""Draw the pictures of the README from real output: a terminal as SVG, and a page of a report as PNG.

python docs/pictures.py

`docs/generate.py --check` compares the terminal with the code. The page needs a Chromium, and stays as it is
without one.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from ragfault.cli.commands import run_command

FOLDER = Path(__file__).parent / "pictures"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH = 104
"""Columns of the terminal."""
PAGE_SIZE = "1100,610"
"""Pixels of the page that are shown: its first sentences and the causes."""
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>ragfault demo, in a terminal</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px; \
line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""The frame of the picture: as rich draws it, without the fonts that it would load from a server."""


def build_terminal() -> str:
    """Build the picture of `ragfault demo` in a terminal."""
    shown = Console(
        file=io.StringIO(),
        record=True,
        width=WIDTH,
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    shown.print(Text("$ ragfault demo", style="bold"))
    shown.print(Text.from_ansi(show_demo()[0]))
    svg = shown.export_svg(title="ragfault demo", theme=DIMMED_MONOKAI, code_format=SVG, unique_id="ragfault")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


@cache
def show_demo() -> tuple[str, tempfile.TemporaryDirectory[str]]:
    """Run `ragfault demo` once for all pages; return what it prints and its folder, which holds `ragfault-demo`."""
    folder = tempfile.TemporaryDirectory()
    return print_commands(["demo"], folder=folder.name, color=True, width=WIDTH), folder


def print_commands(*commands: list[str], folder: str, color: bool, width: int) -> str:
    """Return what some commands print, one after the other in a folder, on a terminal of this width."""
    printed = io.StringIO()
    with (
        contextlib.chdir(folder),
        set_terminal(color, width),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        for command in commands:
            assert run_command(command) in (0, 1)  # 1: a fault was found
    return printed.getvalue().rstrip()


@contextlib.contextmanager
def set_terminal(color: bool, width: int) -> Iterator[None]:
    """Set the environment of a terminal of this width for as long as the block runs."""
    before = dict(os.environ)
    os.environ.update(COLUMNS=str(width), **({"FORCE_COLOR": "1", "NO_COLOR": ""} if color else {"NO_COLOR": "1"}))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def draw_page() -> bool:
    """Draw the first screen of a report; return whether there is a browser for it."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        return False
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run_command(["demo", "handbook"])
        run_command(["evaluate", "handbook/traces-v2.jsonl", "-o", "v2", "--quiet"])
        run_command(["report", "v2", "-o", "v2.html"])
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [
            f"--window-size={PAGE_SIZE}",
            f"--screenshot={FOLDER / 'report.png'}",
            Path("v2.html").resolve().as_uri(),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    return True


def main() -> int:
    """Draw both pictures; say if there was no browser for the page."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "demo.svg").write_text(build_terminal(), encoding="utf-8")
    if not draw_page():
        print(f"no Chromium ({', '.join(BROWSERS)}): pictures/report.png stays as it is", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
