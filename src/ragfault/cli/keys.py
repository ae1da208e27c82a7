"""Keys as they are pressed, of a terminal or of a pipe."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

import click

__all__ = ["pressing"]

Read = Callable[[], str | None]

ENDS = ("\x04", "\x1a")
"""Ctrl-D and Ctrl-Z: there are no more."""


@contextlib.contextmanager
def pressing() -> Iterator[Read]:
    """What gives the next key, without Enter and without showing it; None where there are no more.

    Of a terminal a key may be a sequence, such as that of an arrow; keys that are pressed before they are asked for
    are not lost. What is piped in is read character by character.
    """
    if not sys.stdin.isatty():
        yield lambda: _known(sys.stdin.read(1))
        return
    try:
        import termios
        import tty
    except ImportError:
        yield lambda: _known(click.getchar())
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    waiting: list[str] = []
    try:
        tty.setcbreak(terminal, termios.TCSANOW)
        yield lambda: _known(_next(terminal, waiting))
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _next(terminal: int, waiting: list[str]) -> str:
    """The first key that waits, else the next that is pressed."""
    if not waiting:
        try:
            pressed = os.read(terminal, 64).decode(errors="replace")
        except OSError:
            return ""
        waiting += [pressed] if pressed.startswith("\x1b") else list(pressed)
    return waiting.pop(0) if waiting else ""


def _known(key: str) -> str | None:
    return None if not key or key in ENDS else key
