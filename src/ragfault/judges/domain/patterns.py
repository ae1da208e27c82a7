"""User-supplied regular expressions, checked against runaway matching and searched within bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from time import process_time
from typing import Any

from ragfault.errors import InputError

MAX_PATTERN_CHARS = 2_000
"""A pattern has at most so many characters."""
SEARCH_WINDOW, WINDOW_OVERLAP = 2_000, 200
"""A text is searched in stretches of so many characters, so that the time grows with its length and no faster."""
MAX_SEARCH_SECONDS = 0.25
"""Seconds of computing that one stretch may take, made as hard as the pattern allows."""
SAMPLE_CHARACTERS = "a0A _-.,:/(§$%é\n"
REPEAT_COUNTS = (*range(1, 40), 60, 90, 140, 200, 300, 450, 700, 1_000, 1_500, SEARCH_WINDOW)
"""How often a repeat is repeated, step by step: the time may double with each sign."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern made ready: it does not tell capitals from small letters, unless it says so by (?-i:…)."""
    return re.compile(pattern, re.IGNORECASE)


def iterate_matches(pattern: str, text: str) -> Iterator[re.Match[str]]:
    """All matches in a text, stretch by stretch.

    >>> [match.group() for match in iterate_matches("[0-9]+", "12 and 13" + " " * 5000 + "14")]
    ['12', '13', '14']
    """
    search = compile_pattern(pattern)
    place = 0
    while place < len(text):
        end = min(len(text), place + SEARCH_WINDOW)
        following = end if end == len(text) else end - WINDOW_OVERLAP
        for match in search.finditer(text, place, end):
            if match.end() > following and match.start() > place and end < len(text):
                following = min(following, match.start())
                break
            yield match
            following = max(following, match.end())
        place = following


@lru_cache(maxsize=256)
def check_pattern(pattern: str) -> str:
    """A pattern that compiles, matches something, and does not run away on a hostile text.

    Raises InputError where it does not.

    >>> check_pattern(r"section (?P<id>[0-9]+)")
    'section (?P<id>[0-9]+)'
    >>> check_pattern("(a+)+b")
    Traceback (most recent call last):
    ragfault.errors.InputError: the pattern (a+)+b takes too long on some texts. Let no repeat stand within another
    of the same signs, bound the repeats, as in {1,9}, or make them possessive, as in \\d++.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise InputError(
            f"a pattern has at most {MAX_PATTERN_CHARS:,} characters, this one has {len(pattern):,}."
        )
    try:
        search = compile_pattern(pattern)
        tree = import_module("re._parser").parse(pattern, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"the pattern {pattern} is not a regular expression: {error}.") from None
    if search.search(""):
        raise InputError(f"the pattern {pattern} matches where nothing stands. Let it ask for a sign.")
    if "GROUPREF" in repr(tree):
        raise InputError(
            f"the pattern {pattern} refers back to a group, so that its time cannot be told. Write out what it says."
        )
    for repeat in _iterate_repeats(tree):
        for choice in range(3):
            _time_search(search, tree, repeat, choice)
    return pattern


def _time_search(search: re.Pattern[str], tree: Any, repeat: Any, choice: int) -> None:
    """Search longer and longer texts that the pattern nearly matches; refuse it when that takes too long."""
    for times in REPEAT_COUNTS:
        text, _ = _build_sample(tree, repeat, times, choice)
        began = process_time()
        for _ in search.finditer(f"{text[-SEARCH_WINDOW:]}\0"):
            pass
        if process_time() - began > MAX_SEARCH_SECONDS:
            raise InputError(
                f"the pattern {search.pattern} takes too long on some texts. Let no repeat stand within another "
                "of the same signs, bound the repeats, as in {1,9}, or make them possessive, as in \\d++."
            )


def _iterate_nodes(tree: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a parsed pattern, each with its name."""
    for name, value in tree:
        yield str(name), value


def _iterate_repeats(tree: Any) -> Iterator[Any]:
    """Every repeat of a parsed pattern, inner ones too."""
    for name, value in _iterate_nodes(tree):
        if name.endswith("REPEAT"):
            if value[1] > 1:
                yield value
            yield from _iterate_repeats(value[2])
        elif name in {"SUBPATTERN", "ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"}:
            yield from _iterate_repeats(value if name == "ATOMIC_GROUP" else value[-1])
        elif name == "BRANCH":
            for branch in value[1]:
                yield from _iterate_repeats(branch)


def _build_sample(tree: Any, repeat: Any, count: int, choice: int) -> tuple[str, bool]:
    """A text that a parsed pattern matches up to a repeat, which stands there so many times; whether it was reached."""
    text = ""
    for name, value in _iterate_nodes(tree):
        more, reached = "", False
        if name == "LITERAL":
            more = chr(value)
        elif name in {"NOT_LITERAL", "ANY", "IN"}:
            more = _choose_character(name, value)
        elif name.endswith("REPEAT"):
            body, reached = _build_sample(value[2], repeat, count, choice)
            if value is repeat:
                return text + body * min(count, value[1]), True
            more = body if reached else body * max(value[0], 1)
        elif name in {"SUBPATTERN", "ATOMIC_GROUP"}:
            more, reached = _build_sample(value[-1] if name == "SUBPATTERN" else value, repeat, count, choice)
        elif name == "BRANCH":
            more, reached = _build_sample(_choose_branch(value[1], repeat, choice), repeat, count, choice)
        elif name in {"ASSERT", "ASSERT_NOT"}:
            ahead, reached = _build_sample(value[-1], repeat, count, choice)
            more = ahead if reached else ""
        text += more
        if reached:
            return text, True
    return text, False


def _choose_branch(branches: list[Any], repeat: Any, choice: int) -> Any:
    """The branch that holds the repeat, else the one of choice."""
    holding = [one for one in branches if any(inner is repeat for inner in _iterate_repeats(one))]
    return holding[0] if holding else branches[choice % len(branches)]


def _choose_character(name: str, value: Any) -> str:
    """A sign that a class takes."""
    if name != "IN":
        return next(sign for sign in SAMPLE_CHARACTERS if name == "ANY" or ord(sign) != value)
    signs = SAMPLE_CHARACTERS + "".join(chr(part[1]) for part in value if str(part[0]) == "LITERAL")
    signs += "".join(chr(part[1][0]) for part in value if str(part[0]) == "RANGE")
    return next((sign for sign in signs if _class_accepts(value, sign)), "")


def _class_accepts(value: Any, character: str) -> bool:
    """Whether a class takes a sign."""
    held = any(_part_accepts(str(name), inner, character) for name, inner in value)
    return held != any(str(name) == "NEGATE" for name, _ in value)


def _part_accepts(name: str, argument: Any, character: str) -> bool:
    """Whether one part of a class takes a sign."""
    if name == "LITERAL":
        return bool(ord(character) == argument)
    if name == "RANGE":
        return bool(argument[0] <= ord(character) <= argument[1])
    if name != "CATEGORY":
        return False
    kind = str(argument)
    word = character.isalnum() or character == "_"
    held = character.isdecimal() if "DIGIT" in kind else character.isspace() if "SPACE" in kind else word
    return held != ("NOT" in kind)
