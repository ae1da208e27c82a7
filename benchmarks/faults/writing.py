"""The writer: picks sentences, phrases them, cites them, slips now and then; and the faults a writer can have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ragfault.records import Chunk, Citation

from .config import Generation
from .phrases import INVENTIONS, OPENERS, QUOTES, REFUSALS, SWAPS, WANDERINGS
from .retrieving import Index, Sentence
from .words import NUMBER, chance, pick, words

__all__ = ["Said", "cited", "write"]

PARTS = re.compile(r", and (?=how|what|when|where|who|which|can|is|are|do|must)|\? (?=\w)", re.IGNORECASE)
FIGURES = re.compile(
    r"\b(?:how (?:much|many|long|far|old|often|early|late)|when|what (?:year|time|date|is the price))\b"
)

LOWERED = frozenset(
    re.findall("[a-z]+", "a all an at each every for from if in no on the there these this when")
)
"""First words of a sentence that are written small once something stands before them."""


class Said(NamedTuple):
    """A sentence of an answer, the chunk it points to, and the words it says stand there."""

    text: str
    chunk: str | None = None
    quote: str | None = None


def write(query: str, chunks: Sequence[Chunk], index: Index, how: Generation, name: str) -> list[Said]:
    """The sentences of an answer to a query from its chunks, with the slips and faults of the writer."""
    said = _sober(query, chunks, index, how, name)
    if not said or _hit(how, how.refusing, "refuse", name) or _hit(how, 0.02 * how.slips, "shy", name):
        return [Said(pick(REFUSALS, how.seed, "refusal", name))]
    said = _altered(said, how, name)
    if _hit(how, max(how.inventing, 0.04 * how.slips), "invent", name):
        said = _embroidered(said, query, how, name)
    said = [_misquoted(one, chunks, how, name, i) for i, one in enumerate(said)]
    if _hit(how, how.shifting, "shift", name):
        said = [_shifted(one, chunks) for one in said]
    if _hit(how, how.wandering, "wander", name):
        said = [*_wandering(how, name), *said]
    if _hit(how, how.digressing, "digress", name):
        said = [*_digression(said, chunks, index), *said]
    return _truncated(said, how.max_words)


def cited(said: Sequence[Said]) -> tuple[Citation, ...]:
    """The citations of an answer."""
    return tuple(Citation(chunk=s.chunk, quote=s.quote, claim=s.text) for s in said if s.chunk is not None)


def _hit(how: Generation, share: float, what: str, name: str, *more: object) -> bool:
    return share > 0 and chance(how.seed, what, name, *more) < share


# --- what a good day yields --------------------------------------------------------------------------


def _sober(query: str, chunks: Sequence[Chunk], index: Index, how: Generation, name: str) -> list[Said]:
    """The sentences that cover the query best, part by part, phrased and cited; none where nothing does."""
    taken: list[tuple[int, Chunk, Sentence]] = []
    for part in PARTS.split(query):
        ranked = _ranked(part, chunks, index)
        if not ranked or ranked[0][0] < how.refuses_below:
            continue
        first = int(len(ranked) > 1 and _hit(how, 0.07 * how.slips, "second", name))
        best = ranked[first][0]
        near = [one for one in ranked[first : first + 3] if one[0] >= 0.8 * best]
        taken += [(place, chunk, sentence) for place, (_, chunk, sentence) in enumerate(near)]
    kept: list[tuple[Chunk, Sentence]] = []
    for _, chunk, sentence in sorted(taken, key=lambda one: one[0]):
        if all(sentence.text != other.text for _, other in kept):
            kept.append((chunk, sentence))
    kept = kept[: how.sentences]
    if len(kept) > 1 and _hit(how, 0.04 * how.slips, "short", name):
        kept = kept[:-1]
    return [Said(_phrased(s.said, how, name, i), c.id, s.text) for i, (c, s) in enumerate(kept)]


def _ranked(part: str, chunks: Sequence[Chunk], index: Index) -> list[tuple[float, Chunk, Sentence]]:
    """All sentences of the chunks by how much of the query they cover, the earlier chunk first."""
    asked = frozenset(words(part))
    weight = {term: index.idf.get(term, 3.0) for term in asked}
    total = sum(weight.values()) or 1.0
    figures = bool(FIGURES.search(part.lower()))
    found = []
    for rank, chunk in enumerate(chunks):
        titled = (
            sum(weight[t] for t in asked & frozenset(words(str(chunk.metadata.get("title", ""))))) / total
        )
        for sentence in index.sentences(chunk.id):
            own = sum(weight[t] for t in asked & sentence.terms) / total
            bonus = 0.08 if figures and NUMBER.search(sentence.text) else 0.0
            score = own + bonus + 0.25 * titled if own else 0.0
            found.append((score - 0.015 * rank, chunk, sentence))
    return sorted(found, key=lambda one: -one[0])


def _phrased(text: str, how: Generation, name: str, place: int) -> str:
    """A sentence of a chunk in nearly its own words."""
    for old, new in SWAPS:
        if old in text and chance(how.seed, "swap", name, old) < 0.5:
            text = text.replace(old, new)
    text = text if text[-1] in ".!?" else f"{text.rstrip(',;: ')}."
    first, _, rest = text.partition(" ")
    if place or first.lower() not in LOWERED:
        return text
    return pick(OPENERS, how.seed, "opener", name).format(text, f"{first.lower()} {rest}")


# --- what goes wrong ---------------------------------------------------------------------------------


def _altered(said: list[Said], how: Generation, name: str) -> list[Said]:
    """The answer with one of its figures changed, if it was its turn."""
    places = [i for i, one in enumerate(said) if NUMBER.search(one.text)]
    if not places or not _hit(how, max(how.altering, 0.03 * how.slips), "alter", name):
        return said
    at = places[0]
    found = list(NUMBER.finditer(said[at].text))[-1]
    text = said[at].text
    changed = text[: found.start()] + _another(found[0]) + text[found.end() :]
    return [*said[:at], said[at]._replace(text=changed), *said[at + 1 :]]


def _another(figure: str) -> str:
    """Another figure of the same kind.

    >>> _another("30"), _another("16:00"), _another("2.50"), _another("1998")
    ('45', '19:00', '4.50', '2011')
    """
    whole = re.match(r"\d+", figure)
    digits = whole[0] if whole else figure
    value = int(digits)
    if ":" in figure:
        changed = (value + 3) % 24
    else:
        changed = value + (2 if value < 10 else 15 if value < 100 else 110 if value < 1000 else 13)
    return str(changed).zfill(len(digits)) + figure[len(digits) :]


def _embroidered(said: list[Said], query: str, how: Generation, name: str) -> list[Said]:
    """The answer with one or two statements that no source makes."""
    topic = max(words(query), key=len, default="matter")
    count = 1 + (chance(how.seed, "invented", name) < 0.4)
    first = int(chance(how.seed, "which", name) * len(INVENTIONS))
    added = [Said(INVENTIONS[(first + i) % len(INVENTIONS)].format(topic)) for i in range(count)]
    return [*said, *added]


def _misquoted(one: Said, chunks: Sequence[Chunk], how: Generation, name: str, place: int) -> Said:
    """A sentence whose quote is made up, or whose citation points elsewhere, if it was its turn."""
    if one.chunk is None:
        return one
    if _hit(how, max(how.fabricating, 0.03 * how.slips), "misquote", name, place):
        half = (one.quote or "").split(" ")[: max(2, len((one.quote or "").split(" ")) // 3)]
        return one._replace(quote=f"{' '.join(half)} {pick(QUOTES, how.seed, 'quote', name, place)}")
    return _shifted(one, chunks) if _hit(how, 0.02 * how.slips, "slip", name, place) else one


def _shifted(one: Said, chunks: Sequence[Chunk]) -> Said:
    """A sentence that points to the chunk after the one it was drawn from."""
    ids = [chunk.id for chunk in chunks]
    return one if one.chunk is None else one._replace(chunk=ids[(ids.index(one.chunk) + 1) % len(ids)])


def _wandering(how: Generation, name: str) -> list[Said]:
    """The sentences with which a wandering answer begins."""
    order = sorted(WANDERINGS, key=lambda one: chance(how.seed, "preamble", name, one))
    return [Said(one) for one in order[: how.preamble]]


def _digression(said: Sequence[Said], chunks: Sequence[Chunk], index: Index) -> list[Said]:
    """The first sentences of the last two chunks that the answer does not draw on, word for word and uncited."""
    drawn = {one.chunk for one in said}
    others = [chunk for chunk in chunks if chunk.id not in drawn][-2:]
    held = [next((one.said for one in index.sentences(chunk.id)), "") for chunk in others]
    return [Said(text if text[-1] in ".!?" else f"{text}.") for text in held if text]


def _truncated(said: list[Said], most: int) -> list[Said]:
    """The answer up to so many words; what is left of a sentence keeps its citation."""
    kept: list[Said] = []
    for one in said:
        tokens = one.text.split(" ")
        if most <= 0:
            break
        kept.append(one if len(tokens) <= most else one._replace(text=" ".join(tokens[:most])))
        most -= len(tokens)
    return kept
