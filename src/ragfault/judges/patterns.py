"""Patterns: regular expressions that others wrote, checked before they are used, and used within bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from time import process_time
from typing import Any

from ragfault.errors import InputError

__all__ = ["checked", "compiled", "found"]

LONGEST = 2_000
"""A pattern has at most so many characters."""
WINDOW, OVERLAP = 2_000, 200
"""A text is searched in stretches of so many characters, so that the time grows with its length and no faster."""
PATIENCE = 0.25
"""Seconds of computing that one stretch may take, made as hard as the pattern allows."""
SIGNS = "a0A _-.,:/(§$%é\n"
TIMES = (*range(1, 40), 60, 90, 140, 200, 300, 450, 700, 1_000, 1_500, WINDOW)
"""How often a repeat is repeated, step by step: the time may double with each sign."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern made ready: it does not tell capitals from small letters, unless it says so by (?-i:…)."""
    return re.compile(pattern, re.IGNORECASE)


def found(pattern: str, text: str) -> Iterator[re.Match[str]]:
    """All matches in a text, stretch by stretch.

    >>> [match.group() for match in found("[0-9]+", "12 and 13" + " " * 5000 + "14")]
    ['12', '13', '14']
    """
    search = compiled(pattern)
    place = 0
    while place < len(text):
        end = min(len(text), place + WINDOW)
        following = end if end == len(text) else end - OVERLAP
        for match in search.finditer(text, place, end):
            if match.end() > following and match.start() > place and end < len(text):
                following = min(following, match.start())
                break
            yield match
            following = max(following, match.end())
        place = following


@lru_cache(maxsize=256)
def checked(pattern: str) -> str:
    """A pattern that compiles, matches something, and does not run away on a hostile text.

    Raises InputError where it does not.

    >>> checked(r"section (?P<id>[0-9]+)")
    'section (?P<id>[0-9]+)'
    >>> checked("(a+)+b")
    Traceback (most recent call last):
    ragfault.errors.InputError: the pattern (a+)+b takes too long on some texts. Let no repeat stand within another
    of the same signs, bound the repeats, as in {1,9}, or make them possessive, as in \\d++.
    """
    if len(pattern) > LONGEST:
        raise InputError(f"a pattern has at most {LONGEST:,} characters, this one has {len(pattern):,}.")
    try:
        search = compiled(pattern)
        tree = import_module("re._parser").parse(pattern, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"the pattern {pattern} is not a regular expression: {error}.") from None
    if search.search(""):
        raise InputError(f"the pattern {pattern} matches where nothing stands. Let it ask for a sign.")
    if "GROUPREF" in repr(tree):
        raise InputError(
            f"the pattern {pattern} refers back to a group, so that its time cannot be told. Write out what it says."
        )
    for repeat in _repeats(tree):
        for choice in range(3):
            _tried(search, tree, repeat, choice)
    return pattern


def _tried(search: re.Pattern[str], tree: Any, repeat: Any, choice: int) -> None:
    """Search longer and longer texts that the pattern nearly matches; refuse it when that takes too long."""
    for times in TIMES:
        text, _ = _sample(tree, repeat, times, choice)
        began = process_time()
        for _ in search.finditer(f"{text[-WINDOW:]}\0"):
            pass
        if process_time() - began > PATIENCE:
            raise InputError(
                f"the pattern {search.pattern} takes too long on some texts. Let no repeat stand within another "
                "of the same signs, bound the repeats, as in {1,9}, or make them possessive, as in \\d++."
            )


def _parts(tree: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a parsed pattern, each with its name."""
    for name, value in tree:
        yield str(name), value


def _repeats(tree: Any) -> Iterator[Any]:
    """Every repeat of a parsed pattern, inner ones too."""
    for name, value in _parts(tree):
        if name.endswith("REPEAT"):
            if value[1] > 1:
                yield value
            yield from _repeats(value[2])
        elif name in {"SUBPATTERN", "ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"}:
            yield from _repeats(value if name == "ATOMIC_GROUP" else value[-1])
        elif name == "BRANCH":
            for branch in value[1]:
                yield from _repeats(branch)


def _sample(tree: Any, repeat: Any, times: int, choice: int) -> tuple[str, bool]:
    """A text that a parsed pattern matches up to a repeat, which stands there so many times; whether it was reached."""
    text = ""
    for name, value in _parts(tree):
        more, reached = "", False
        if name == "LITERAL":
            more = chr(value)
        elif name in {"NOT_LITERAL", "ANY", "IN"}:
            more = _sign(name, value)
        elif name.endswith("REPEAT"):
            body, reached = _sample(value[2], repeat, times, choice)
            if value is repeat:
                return text + body * min(times, value[1]), True
            more = body if reached else body * max(value[0], 1)
        elif name in {"SUBPATTERN", "ATOMIC_GROUP"}:
            more, reached = _sample(value[-1] if name == "SUBPATTERN" else value, repeat, times, choice)
        elif name == "BRANCH":
            more, reached = _sample(_branch(value[1], repeat, choice), repeat, times, choice)
        elif name in {"ASSERT", "ASSERT_NOT"}:
            ahead, reached = _sample(value[-1], repeat, times, choice)
            more = ahead if reached else ""
        text += more
        if reached:
            return text, True
    return text, False


def _branch(branches: list[Any], repeat: Any, choice: int) -> Any:
    """The branch that holds the repeat, else the one of choice."""
    holding = [one for one in branches if any(inner is repeat for inner in _repeats(one))]
    return holding[0] if holding else branches[choice % len(branches)]


def _sign(name: str, value: Any) -> str:
    """A sign that a class takes."""
    if name != "IN":
        return next(sign for sign in SIGNS if name == "ANY" or ord(sign) != value)
    signs = SIGNS + "".join(chr(part[1]) for part in value if str(part[0]) == "LITERAL")
    signs += "".join(chr(part[1][0]) for part in value if str(part[0]) == "RANGE")
    return next((sign for sign in signs if _takes(value, sign)), "")


def _takes(value: Any, sign: str) -> bool:
    """Whether a class takes a sign."""
    held = any(_in(str(name), inner, sign) for name, inner in value)
    return held != any(str(name) == "NEGATE" for name, _ in value)


def _in(name: str, inner: Any, sign: str) -> bool:
    """Whether one part of a class takes a sign."""
    if name == "LITERAL":
        return bool(ord(sign) == inner)
    if name == "RANGE":
        return bool(inner[0] <= ord(sign) <= inner[1])
    if name != "CATEGORY":
        return False
    kind = str(inner)
    word = sign.isalnum() or sign == "_"
    held = sign.isdecimal() if "DIGIT" in kind else sign.isspace() if "SPACE" in kind else word
    return held != ("NOT" in kind)
