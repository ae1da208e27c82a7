"""Patterns of injected instructions, and the search for them by the words that they begin with."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, NamedTuple


class InjectionPattern(NamedTuple):
    """Pattern of one kind of injection."""

    kind: str
    regex: re.Pattern[str]
    signs: tuple[str, ...]
    """Literals: a text with none of them cannot match; empty where they cannot be derived."""
    prefixes: tuple[str, ...] = ()
    """Literal beginnings, where a match can only begin with a word and the word with one of them; else empty."""
    excepted: bool = False
    """Whether the exceptions of orders to forget hold for it."""

    def list_matches(self, text: str, starts: Sequence[int]) -> Iterator[re.Match[str]]:
        """Yield the matches in a folded text; within an excepted one the search goes on.

        `starts` are the offsets where a match may begin, in order; they are read where the pattern has prefixes.
        """
        position = 0
        for start in starts if self.prefixes else ():
            match = self.regex.match(text, start) if start >= position else None
            if match is not None and not (self.excepted and _is_exception(text, match)):
                yield match
                position = max(match.end(), start + 1)
        while not self.prefixes and (match := self.regex.search(text, position)) is not None:
            is_order = not (self.excepted and _is_exception(text, match))
            if is_order:
                yield match
            position = max(match.end(), match.start() + 1) if is_order else match.start() + 1


ATOM = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
"""Class of characters, or one character of a pattern."""
LITERAL_RUN = re.compile(r"""(?:(?:[^\W_]|[ _<>/=:#"',~!-]|\\[|\[\](){}.*+?])(?![?*{]))+""")
"""Characters that stand for themselves, each of them exactly once or, the last, more often."""
ESCAPE = re.compile(r"\\(.)")
QUANTIFIER = re.compile(r"(?:[?*+]|\{\d*,?\d*\})*")
RARE_CHARACTERS = frozenset("<>[]{}|#=/")
RARITY = 10
"""A rare character is so many times rarer than others."""
LITERAL_HEAD = re.compile(r"[^\W\d_](?:[^\W\d_]| (?=[^\W\d_]))*(?![?*{])")
"""Letters and spaces that stand for themselves."""
FRAGMENT_NAME = re.compile(r"\{([a-z_]+)\}")
WORD_BOUNDARY = r"\b"


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


def _derive_signs(pattern: str) -> tuple[str, ...]:
    """Derive literals of which every match of a pattern has one; none where there are none.

    >>> _derive_signs(r"(?:^|\\n)[ \t]{0,4}(?:ai|bot)s? (?:notes?)?:|<\\|x?end"), _derive_signs(r"(?:say)?\\w+")
    (('ai', 'bot', '<|'), ())
    """
    signs: list[str] = []
    for alternative in _split_alternatives(pattern):
        required = list(_list_required(alternative))
        if not required:
            return ()
        signs += max(required, key=lambda literals: min(map(_rate_rarity, literals)))
    return tuple(signs)


def _rate_rarity(literal: str) -> int:
    return sum(RARITY if character in RARE_CHARACTERS else 1 for character in literal)


def _list_required(alternative: str) -> Iterator[tuple[str, ...]]:
    """Yield literals, and the signs of groups, that every match of an alternative has."""
    position = 0
    while position < len(alternative):
        group = _read_group(alternative[position:])
        if group is not None:
            if signs := _derive_signs(group):
                yield signs
            position += len(group) + 4
        elif literal := LITERAL_RUN.match(alternative, position):
            yield (ESCAPE.sub(r"\1", literal.group()),)
            position = literal.end()
        elif alternative[position] == "(":
            position = next(end for depth, end in _measure_depths(alternative, position) if depth == 0) + 1
        else:
            position = ATOM.match(alternative, position).end()  # type: ignore[union-attr]
        position = QUANTIFIER.match(alternative, position).end()  # type: ignore[union-attr]


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
    cuts = [i for depth, i in _measure_depths(pattern) if depth == 0 and pattern[i] == "|"]
    return [pattern[start + 1 : end] for start, end in pairwise([-1, *cuts, len(pattern)])]


def _measure_depths(pattern: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the depth of groups after each bracket and sign of alternatives, and its place."""
    depth = 0
    for match in ATOM.finditer(pattern, start):
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
        InjectionPattern(
            kind, re.compile(text), _derive_signs(text), _derive_prefixes(text) if _starts_word(text) else (), excepted
        )
        for kind, excepted, text in texts
    )


def _starts_word(pattern: str) -> bool:
    return all(alternative.startswith(WORD_BOUNDARY) for alternative in _split_alternatives(pattern))


def _write_trie(words: Iterable[str]) -> str:
    """Write the regular expression of the longest of some words that a text begins with.

    >>> _write_trie(["say", "sayid", "set"])
    's(?:ay(?:id)?|et)'
    """
    tails: dict[str, list[str]] = {}
    for word in sorted(set(words)):
        tails.setdefault(word[:1], []).append(word[1:])
    is_end = tails.pop("", None) is not None
    branches = [re.escape(letter) + _write_trie(tail) for letter, tail in tails.items()]
    if not branches:
        return ""
    if len(branches) == 1 and not is_end:
        return branches[0]
    return f"(?:{'|'.join(branches)}){'?' if is_end else ''}"


def _index_signs(patterns: Sequence[InjectionPattern]) -> dict[str, list[int]]:
    """Return the signs of the patterns without prefixes, each with the numbers of its patterns."""
    index: dict[str, list[int]] = {}
    for number, pattern in enumerate(patterns):
        for sign in () if pattern.prefixes else pattern.signs or ("",):
            index.setdefault(sign, []).append(number)
    return index


class InjectionTable(NamedTuple):
    """The patterns of `injection_patterns.toml`, compiled and indexed by what a match begins with or holds."""

    patterns: tuple[InjectionPattern, ...]
    prefix_start: re.Pattern[str]
    """First letter of a word that begins with a prefix; the group is the longest such prefix."""
    signs: Mapping[str, Sequence[int]]
    """Sign → the numbers of the patterns without prefixes that have it."""
    ascii_signs: Mapping[str, Sequence[int]]
    alternative_signs: Mapping[int, tuple[tuple[str, ...], ...]]
    """Number of a pattern without prefixes → the signs of each of its alternatives."""
    exceptions: Mapping[str, re.Pattern[str]]
    """Words around an order to forget that make it none: "do not ignore", "who ignored"."""
    spaced: re.Pattern[str]
    """Instructions in spaced letters, matched without the spaces."""
    encoded_words: tuple[str, ...]
    """Words of instructions with each letter turned by thirteen places, or written backwards."""


@cache
def load_injections() -> InjectionTable:
    """Load the patterns of injected instructions."""
    # Compiled at the first search: it takes longer than all else that the judges of language models import.
    place = files("ragfault.judges.llm").joinpath("prompts", "injection_patterns.toml")
    table = tomllib.loads(place.read_text(encoding="utf-8"))
    patterns = _compile_patterns(table)
    prefixes = sorted({prefix for pattern in patterns for prefix in pattern.prefixes})
    signs = _index_signs(patterns)
    return InjectionTable(
        patterns=patterns,
        prefix_start=re.compile(
            rf"\b[{''.join(sorted({prefix[0] for prefix in prefixes}))}](?<=(?=({_write_trie(prefixes)})).)"
        ),
        signs=signs,
        ascii_signs={sign: numbers for sign, numbers in signs.items() if sign.isascii()},
        alternative_signs={
            number: tuple(_derive_signs(part) or ("",) for part in _split_alternatives(patterns[number].regex.pattern))
            for number in {number for numbers in signs.values() for number in numbers}
        },
        exceptions={name: re.compile(_join_lines(text)) for name, text in table["exceptions"].items()},
        spaced=re.compile(_join_lines(table["disguised"]["spaced"])),
        encoded_words=tuple(table["disguised"]["words"]),
    )


def match_patterns(text: str) -> Iterator[tuple[InjectionPattern, re.Match[str]]]:
    """Yield the injections in a folded text, pattern by pattern."""
    table = load_injections()
    starts: dict[int, list[int]] = {}
    for prefix in table.prefix_start.finditer(text):
        start = prefix.start()
        for number, begins in _list_candidates(prefix[1]):
            if begins(text, start):
                starts.setdefault(number, []).append(start)
    signs = table.ascii_signs if text.isascii() else table.signs
    signed = (number for sign, numbers in signs.items() if sign in text for number in numbers)
    for number in sorted({*starts, *signed}):
        pattern = table.patterns[number]
        narrowed = pattern if pattern.prefixes else _narrow_pattern(number, text)
        for match in narrowed.list_matches(text, starts.get(number, ())):
            yield pattern, match


def _narrow_pattern(number: int, text: str) -> InjectionPattern:
    """Leave out the alternatives of a pattern of which a text has no sign: they cannot match."""
    table = load_injections()
    pattern = table.patterns[number]
    possible = tuple(any(sign in text for sign in signs) for signs in table.alternative_signs[number])
    return pattern if all(possible) else pattern._replace(regex=_compile_alternatives(number, possible))


@cache
def _compile_alternatives(number: int, possible: tuple[bool, ...]) -> re.Pattern[str]:
    alternatives = _split_alternatives(load_injections().patterns[number].regex.pattern)
    return re.compile("|".join(part for part, is_possible in zip(alternatives, possible, strict=True) if is_possible))


@cache
def _list_candidates(longest: str) -> tuple[tuple[int, Callable[[str, int], re.Match[str] | None]], ...]:
    """List the patterns that may match where this is the longest prefix, each with its method that matches there."""
    return tuple(
        (number, pattern.regex.match)
        for number, pattern in enumerate(load_injections().patterns)
        if any(longest.startswith(prefix) for prefix in pattern.prefixes)
    )


EXCEPTION_LENGTH = 24
"""Characters around a match in which the words that make it none are looked for."""


def _is_exception(text: str, match: re.Match[str]) -> bool:
    """Tell whether the words around a match make it no order."""
    start, end = match.span()
    exceptions = load_injections().exceptions
    return bool(
        exceptions["before"].search(text[max(0, start - EXCEPTION_LENGTH) : start])
        or exceptions["start"].search(match.group())
        or exceptions["after"].search(text[end : end + EXCEPTION_LENGTH])
    )
