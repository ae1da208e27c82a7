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
"""A longer pattern is refused."""
SEARCH_WINDOW, WINDOW_OVERLAP = 2_000, 200
"""A text is searched in windows of this many characters, so that the time is linear in its length."""
MAX_SEARCH_SECONDS = 0.25
"""Seconds of processor time that the search of one hostile window may take."""
SAMPLE_CHARACTERS = "a0A _-.,:/(§$%é\n"
REPEAT_COUNTS = (*range(1, 40), 60, 90, 140, 200, 300, 450, 700, 1_000, 1_500, SEARCH_WINDOW)
"""Numbers of repetitions to try, in steps, since the time may double with each character."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern without regard to case, unless it asks for it by (?-i:…)."""
    return re.compile(pattern, re.IGNORECASE)


def iterate_matches(pattern: str, text: str) -> Iterator[re.Match[str]]:
    """Yield all matches in a text, window by window.

    >>> [match.group() for match in iterate_matches("[0-9]+", "12 and 13" + " " * 5000 + "14")]
    ['12', '13', '14']
    """
    search = compile_pattern(pattern)
    position = 0
    while position < len(text):
        end = min(len(text), position + SEARCH_WINDOW)
        next_position = end if end == len(text) else end - WINDOW_OVERLAP
        for match in search.finditer(text, position, end):
            if match.end() > next_position and match.start() > position and end < len(text):
                next_position = min(next_position, match.start())
                break
            yield match
            next_position = max(next_position, match.end())
        position = next_position


@lru_cache(maxsize=256)
def check_pattern(pattern: str) -> str:
    r"""Return a pattern that compiles, matches something, and does not run away on a hostile text.

    Raises InputError for any other.

    >>> check_pattern(r"section (?P<id>[0-9]+)")
    'section (?P<id>[0-9]+)'
    >>> check_pattern("(a+)+b")
    Traceback (most recent call last):
    ragfault.errors.InputError: the pattern (a+)+b takes too long on some texts. Let no repeat stand within another
    of the same signs, bound the repeats, as in {1,9}, or make them possessive, as in \d++.
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
    """Time the search of ever longer texts that nearly match; raise InputError if it takes too long."""
    for count in REPEAT_COUNTS:
        text, _ = _build_sample(tree, repeat, count, choice)
        started = process_time()
        for _ in search.finditer(f"{text[-SEARCH_WINDOW:]}\0"):
            pass
        if process_time() - started > MAX_SEARCH_SECONDS:
            raise InputError(
                f"the pattern {search.pattern} takes too long on some texts. Let no repeat stand within another "
                "of the same signs, bound the repeats, as in {1,9}, or make them possessive, as in \\d++."
            )


def _iterate_nodes(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield the nodes of a parsed pattern, each with its name."""
    for name, value in tree:
        yield str(name), value


def _iterate_repeats(tree: Any) -> Iterator[Any]:
    """Yield every repeat of a parsed pattern, inner ones too."""
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
    """Build a text that matches a pattern up to a repeat, repeated `count` times.

    Also return whether the repeat was reached.
    """
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
    """Return the branch that contains the repeat, else the one with the number `choice`."""
    holding = [branch for branch in branches if any(inner is repeat for inner in _iterate_repeats(branch))]
    return holding[0] if holding else branches[choice % len(branches)]


def _choose_character(name: str, value: Any) -> str:
    """Return a character that matches a class."""
    if name != "IN":
        return next(character for character in SAMPLE_CHARACTERS if name == "ANY" or ord(character) != value)
    characters = SAMPLE_CHARACTERS + "".join(chr(part[1]) for part in value if str(part[0]) == "LITERAL")
    characters += "".join(chr(part[1][0]) for part in value if str(part[0]) == "RANGE")
    return next((character for character in characters if _class_accepts(value, character)), "")


def _class_accepts(value: Any, character: str) -> bool:
    """Return whether a class accepts a character."""
    is_accepted = any(_part_accepts(str(name), inner, character) for name, inner in value)
    return is_accepted != any(str(name) == "NEGATE" for name, _ in value)


def _part_accepts(name: str, argument: Any, character: str) -> bool:
    """Return whether one part of a class accepts a character."""
    if name == "LITERAL":
        return bool(ord(character) == argument)
    if name == "RANGE":
        return bool(argument[0] <= ord(character) <= argument[1])
    if name != "CATEGORY":
        return False
    kind = str(argument)
    is_word = character.isalnum() or character == "_"
    is_accepted = (
        character.isdecimal() if "DIGIT" in kind else character.isspace() if "SPACE" in kind else is_word
    )
    return is_accepted != ("NOT" in kind)
