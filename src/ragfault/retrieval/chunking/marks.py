"""Marks: where the parts of documents of different kinds begin: sections, questions, clauses, turns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ragfault.retrieval.chunking.blocks import DEPTHS, Blocks, json_levels, lines

__all__ = ["Marks", "clauses", "pairs", "recursive", "sections", "turns"]

Levels = list[list[int]]
"""Places where parts begin, in characters; the coarsest first."""


class Marks(NamedTuple):
    """Where the parts of a document begin."""

    levels: Levels
    titles: Sequence[int] = ()
    """Where lines begin that are never parted from what follows them, in characters."""


LONG = 300
"""No line longer than this is a heading or a question."""
NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,4})\.?[ \t]+[^\W\d_]")
ROMAN = re.compile(r"[IVX]{1,5}\.[ \t]+[A-Z]")
NAMED = re.compile(
    r"(?:abstract|introduction|background|related work|preliminaries|materials and methods|methods?|methodology"
    r"|experiments?|experimental setup|evaluation|results(?: and discussion)?|discussion|limitations|conclusions?"
    r"|future work|acknowledge?ments?|references|bibliography|appendix(?: [A-Z0-9])?|supplementary material)[.:]?",
    re.IGNORECASE,
)
ASKS = re.compile(r"(?:q|question|frage|pregunta)[ \t]*\d{0,4}[ \t]*[:.)]", re.IGNORECASE)
DECOR = "#*_>-+• \t"
ARTICLE = re.compile(
    r"(?:article|section|clause|chapter|part|title|schedule|annex|appendix|exhibit|artikel|paragraph)[ \t]+"
    r"(?:\d{1,4}|[IVXLC]{1,7}|[A-Z])(?![\w'])"
    r"|§{1,2}[ \t]*\d{1,4}|recitals?$|preamble$|definitions$",
    re.IGNORECASE,
)
CLAUSE = re.compile(r"(\d{1,3}(?:\.\d{1,3}){0,4})(?:[.)][ \t]+|[ \t]+(?=[A-Z\"“]))\S?")
LETTERED = re.compile(r"\(?(?:([ivx]{1,5})|([a-z]{1,2}|\d{1,3}|[A-Z]))\)[ \t]+\S")
TURN = re.compile(
    r"(?:\[[^\]\n]{1,40}\]|\(?\d{1,2}:\d{2}(?::\d{2})?\)?(?:[ \t]?[AaPp][Mm])?)?[ \t]*[-–]?[ \t]*"
    r"[*_]{0,2}<?([^\W\d_][\w.'-]{0,30}(?:[ \t][\w.'-]{1,30}){0,3})>?[ \t]*(?:[(\[][^)\]\n]{1,40}[)\]])?[ \t]*[*_]{0,2}"
    r"(?::[*_]{0,2}(?:[ \t]|$)|(?<=>)[ \t])"
)
ROLES = frozenset(
    "user assistant system human ai bot agent customer client support operator caller tool model".split()  # noqa: SIM905
)


def recursive(text: str, found: Blocks) -> Marks:
    """Headings from the highest on, paragraphs, list items; of a JSON document its members by their depth."""
    levels = json_levels(text) or [*_depths(found.headings), found.paragraphs, found.items]
    return Marks(levels, _places(found))


def _places(found: Blocks) -> list[int]:
    return [place for place, _ in found.headings]


def _depths(headings: Sequence[tuple[int, int]]) -> Levels:
    """For each depth of a heading those at most so deep."""
    return [[place for place, depth in headings if depth <= most] for most in range(1, DEPTHS + 1)]


def sections(text: str, found: Blocks) -> Marks:
    """Sections of a paper: by its headings, or by numbered and customary titles where it marks none as such.

    The first level is the highest of which there are two.
    """
    headings = found.headings if len(found.headings) > 1 else _titles(text)
    several = (depth for depth, count in sorted(Counter(d for _, d in headings).items()) if count > 1)
    top = next(several, 1)
    levels = [*_depths(headings)[top - 1 :], found.paragraphs, found.items]
    return Marks(levels, [place for place, _ in headings])


def _titles(text: str) -> list[tuple[int, int]]:
    """Titles of sections in plain text, with their depth: a short line by itself that is numbered or customary."""
    titles: list[tuple[int, int]] = []
    fresh = True
    for place, line in lines(text):
        bare = line.strip()
        if fresh and 0 < len(bare) <= 90 and not bare.endswith((".", ",", ";")):
            numbered = NUMBERED.match(bare)
            if numbered:
                titles.append((place, min(numbered[1].count(".") + 1, DEPTHS)))
            elif ROMAN.match(bare) or NAMED.fullmatch(bare):
                titles.append((place, 1))
        fresh = not bare
    return titles


def pairs(text: str, found: Blocks) -> Marks:
    """Questions with the answers below them, headings of groups of them before.

    Questions are lines that are labelled so; where there are no two of these, headings that end in a question mark;
    else any line after an empty one that does.
    """
    headed = {place for place, _ in found.headings}
    labelled: list[int] = []
    titled: list[int] = []
    asked: list[int] = []
    fresh = True
    for place, line in lines(text):
        bare = line.strip(DECOR)
        if bare and len(bare) <= LONG:
            if ASKS.match(bare):
                labelled.append(place)
            if bare.endswith(("?", "？")):
                (titled if place in headed else asked if fresh else []).append(place)
        fresh = not bare
    questions = next((each for each in (labelled, titled) if len(each) > 1), sorted(titled + asked))
    starts = sorted({*questions, *(headed.difference(titled) if questions else ())})
    return Marks([starts, found.paragraphs, found.items], [*_places(found), *questions])


def clauses(text: str, found: Blocks) -> Marks:
    """Articles and headings, then clauses by how deep they are numbered: 1., 1.1, 1.1.1, (a), (i)."""
    levels: Levels = [[] for _ in range(7)]
    levels[0] += _places(found)
    for place, line in lines(text):
        bare = line.strip(DECOR)
        if not bare:
            continue
        numbered = CLAUSE.match(bare)
        if ARTICLE.match(bare):
            levels[0].append(place)
        elif numbered:
            levels[min(numbered[1].count(".") + 1, 4)].append(place)
        elif lettered := LETTERED.match(bare):
            levels[6 if lettered[1] and lettered[1] not in ("i", "v", "x") else 5].append(place)
    titles = list(levels[0])
    return Marks([*(sorted(set(level)) for level in levels), found.paragraphs], titles)


def turns(text: str, found: Blocks) -> Marks:
    """Turns of a chat: lines that begin with who speaks, who is a customary role or speaks at least twice."""
    spoken: list[tuple[int, str]] = []
    for place, line in lines(text):
        bare = line.lstrip(DECOR)
        turn = TURN.match(bare[:200])
        if turn:
            spoken.append((place, turn[1].casefold()))
    counts = Counter(who for _, who in spoken)
    starts = [place for place, who in spoken if counts[who] > 1 or who in ROLES]
    levels = [starts] if starts else (json_levels(text) or [])
    return Marks([*levels, found.paragraphs, found.items])
