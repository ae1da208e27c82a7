"""Patterns of injected instructions, and the search for them by the words that they begin with."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, NamedTuple


class InjectionPattern(NamedTuple):
    """Pattern of one kind of injection."""

    kind: str
    regex: re.Pattern[str]
    prefixes: tuple[str, ...]
    """Literal beginnings: a text with none of them cannot match; empty where they cannot be derived."""
    starts_word: bool = False
    """True where a match can only begin with a word, and the word with one of the prefixes."""
    excepted: bool = False
    """Whether the exceptions of orders to forget hold for it."""

    def list_matches(self, text: str, starts: Sequence[int]) -> Iterator[re.Match[str]]:
        """Yield the matches in a folded text; within an excepted one the search goes on.

        `starts` are the offsets where a match may begin, in order; they are read where the pattern starts a word.
        """
        position = 0
        while (match := self._search_next(text, starts, position)) is not None:
            is_order = not (self.excepted and _is_exception(text, match))
            if is_order:
                yield match
            position = max(match.end(), match.start() + 1) if is_order else match.start() + 1

    def _search_next(self, text: str, starts: Sequence[int], position: int) -> re.Match[str] | None:
        if not self.starts_word:
            return self.regex.search(text, position)
        left = range(bisect_left(starts, position), len(starts))
        return next(filter(None, (self.regex.match(text, starts[number]) for number in left)), None)


LITERAL_HEAD = re.compile(r"[^\W\d_](?:[^\W\d_]| (?=[^\W\d_]))*(?![?*{])")
"""Letters and spaces that stand for themselves."""
FRAGMENT_NAME = re.compile(r"\{([a-z_]+)\}")
WORD_BOUNDARY = r"\b"
WORD_START = re.compile(r"\b\w{1,3}")
PREFIX_LENGTH = 3
"""Letters at the beginning of a word by which patterns are looked up."""


def _derive_prefixes(pattern: str) -> tuple[str, ...]:
    """Derive the literal beginnings of a pattern; none where it may begin otherwise.

    >>> _derive_prefixes(r"\\b(?:say|out(?:put|line))s? it|\\bprint"), _derive_prefixes("(?:now )?say")
    (('say', 'out', 'print'), ())
    """
    prefixes: list[str] = []
    for alternative in _split_alternatives(pattern):
        bare = alternative.removeprefix(WORD_BOUNDARY)
        group = _read_group(bare)
        heads = _derive_prefixes(group) if group is not None else ()
        if group is None and (head := LITERAL_HEAD.match(bare)):
            heads = (head.group(),)
        if not heads:
            return ()
        prefixes += heads
    return tuple(prefixes)


def _read_group(pattern: str) -> str | None:
    """Read the group that a pattern begins with and must match; None where it begins otherwise."""
    if not pattern.startswith("(?:"):
        return None
    end = next((end for depth, end in _measure_depths(pattern) if depth == 0), len(pattern))
    return None if pattern[end + 1 : end + 2] in ("?", "*", "{") else pattern[3:end]


def _split_alternatives(pattern: str) -> list[str]:
    """Split a pattern at the signs of alternatives outside of any group.

    >>> _split_alternatives(r"a(?:b|c)|[|]\\||d")
    ['a(?:b|c)', '[|]\\\\|', 'd']
    """
    places = [place for depth, place in _measure_depths(pattern) if depth == 0 and pattern[place] == "|"]
    return [pattern[start + 1 : end] for start, end in pairwise([-1, *places, len(pattern)])]


def _measure_depths(pattern: str) -> Iterator[tuple[int, int]]:
    """Yield the depth of groups after each bracket and sign of alternatives, and its place."""
    depth = 0
    for match in re.finditer(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()|]", pattern, re.DOTALL):
        depth += {"(": 1, ")": -1}.get(match.group(), 0)
        if match.group() in ("(", ")", "|"):
            yield depth, match.start()


def _join_lines(pattern: str | list[str]) -> str:
    return pattern if isinstance(pattern, str) else "".join(pattern)


def _compile_patterns(table: Mapping[str, Any]) -> tuple[InjectionPattern, ...]:
    fragments = {name: _join_lines(text) for name, text in table["fragments"].items()}
    texts = [
        (kind, group == "override", FRAGMENT_NAME.sub(lambda match: fragments[match[1]], _join_lines(pattern)))
        for kind, groups in table["patterns"].items()
        for group, patterns in groups.items()
        for pattern in patterns.values()
    ]
    return tuple(
        InjectionPattern(kind, re.compile(text), prefixes, bool(prefixes) and _starts_word(text), excepted)
        for kind, excepted, text in texts
        for prefixes in (_derive_prefixes(text),)
    )


def _starts_word(pattern: str) -> bool:
    return all(alternative.startswith(WORD_BOUNDARY) for alternative in _split_alternatives(pattern))


_TABLE = tomllib.loads(
    files("ragfault.judges.llm").joinpath("prompts", "injection_patterns.toml").read_text(encoding="utf-8")
)
INJECTION_PATTERNS = _compile_patterns(_TABLE)


def match_patterns(text: str) -> Iterator[tuple[InjectionPattern, re.Match[str]]]:
    """Yield the injections in a folded text, pattern by pattern."""
    starts: dict[int, list[int]] = {}
    for word in WORD_START.finditer(text):
        for number in _list_candidates(word.group()):
            starts.setdefault(number, []).append(word.start())
    for number, pattern in enumerate(INJECTION_PATTERNS):
        if pattern.starts_word:
            possible = number in starts
        else:
            possible = not pattern.prefixes or any(prefix in text for prefix in pattern.prefixes)
        if possible:
            for match in pattern.list_matches(text, starts.get(number, ())):
                yield pattern, match


@lru_cache(maxsize=8_192)
def _list_candidates(head: str) -> tuple[int, ...]:
    """List the patterns that may match at a word with these first letters."""
    return tuple(
        number
        for number, pattern in enumerate(INJECTION_PATTERNS)
        if pattern.starts_word
        and any(head.startswith(prefix.split()[0][:PREFIX_LENGTH]) for prefix in pattern.prefixes)
    )


EXCEPTION_BEFORE, EXCEPTION_START, EXCEPTION_AFTER = (
    re.compile(_join_lines(_TABLE["exceptions"][place])) for place in ("before", "start", "after")
)
"""Words around an order to forget that make it none: "do not ignore", "who ignored"."""
EXCEPTION_LENGTH = 24
"""Characters around a match in which they are looked for."""


def _is_exception(text: str, match: re.Match[str]) -> bool:
    """Tell whether the words around a match make it no order."""
    start, end = match.span()
    return bool(
        EXCEPTION_BEFORE.search(text[max(0, start - EXCEPTION_LENGTH) : start])
        or EXCEPTION_START.search(match.group())
        or EXCEPTION_AFTER.search(text[end : end + EXCEPTION_LENGTH])
    )


SPACED_PATTERN = re.compile(_join_lines(_TABLE["disguised"]["spaced"]))
"""Instructions in spaced letters, matched without the spaces."""
ENCODED_WORDS = tuple(_TABLE["disguised"]["words"])
"""Words of instructions with each letter turned by thirteen places, or written backwards."""
