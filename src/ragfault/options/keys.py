"""Keys that a person presses, and the person's name."""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
from collections.abc import Callable, Iterator

import click


def name_person(by: str | None) -> str:
    """Return the name that was given, with single spaces, or the user's; empty where the user has none.

    >>> name_person(" Ann  Lee ")
    'Ann Lee'
    """
    if by is None:
        with contextlib.suppress(OSError, KeyError, ImportError):
            return getpass.getuser()
    return " ".join((by or "").split())


@contextlib.contextmanager
def open_key_reader() -> Iterator[KeyReader]:
    """Yield a function that returns the next key, without Enter and without showing it; None where there are no more.

    Of a terminal a key may be a sequence, such as that of an arrow; keys that are pressed before they are asked for
    are not lost. What is piped in is read character by character.
    """
    if not sys.stdin.isatty():
        yield lambda: _filter_end(sys.stdin.read(1))
        return
    try:
        import termios
        import tty
    except ImportError:
        yield lambda: _filter_end(click.getchar())
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    waiting: list[str] = []
    try:
        tty.setcbreak(terminal, termios.TCSANOW)
        yield lambda: _filter_end(_read_key(terminal, waiting))
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _read_key(terminal: int, waiting: list[str]) -> str:
    """Read the first key that waits, else the next that is pressed."""
    if not waiting:
        try:
            pressed = os.read(terminal, 64).decode(errors="replace")
        except OSError:
            return ""
        waiting += [pressed] if pressed.startswith("\x1b") else list(pressed)
    return waiting.pop(0) if waiting else ""


def _filter_end(key: str) -> str | None:
    return None if not key or key in END_KEYS else key


KeyReader = Callable[[], str | None]

END_KEYS = ("\x04", "\x1a")
"""Ctrl-D and Ctrl-Z: there are no more."""
