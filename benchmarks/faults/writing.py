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

__all__ = ["WrittenSentence", "cited", "write"]

PARTS = re.compile(r", and (?=how|what|when|where|who|which|can|is|are|do|must)|\? (?=\w)", re.IGNORECASE)
FIGURES = re.compile(
    r"\b(?:how (?:much|many|long|far|old|often|early|late)|when|what (?:year|time|date|is the price))\b"
)

OTHER_UNITS = {
    "£": "$", "$": "€", "€": "$", "%": " per mille", "minutes": "hours", "hours": "days", "days": "weeks",
    "weeks": "months", "months": "years", "years": "months", "metres": "feet", "kilometres": "miles",
    "miles": "kilometres", "km": "miles", "m": "ft", "kg": "lb", "million": "billion", "billion": "million",
    "feet": "metres",
}  # fmt: skip
UNIT = re.compile(r"[£$€](?=\d)|(?<=\d)%|(?<=\d )(?:" + "|".join(key for key in OTHER_UNITS if key.isalpha()) + r")\b")

LOWERED = frozenset(re.findall("[a-z]+", "a all an at each every for from if in no on the there these this when"))
"""First words of a sentence that are written small once something stands before them."""


class WrittenSentence(NamedTuple):
    """A sentence of an answer, the chunk it points to, and the words it says stand there."""

    text: str
    chunk: str | None = None
    quote: str | None = None


def write(query: str, chunks: Sequence[Chunk], index: Index, settings: Generation, name: str) -> list[WrittenSentence]:
    """Return the sentences of an answer to a query from its chunks, with the slips and faults of the writer."""
    sentences = _sober(query, chunks, index, settings, name)
    if (
        not sentences
        or _hit(settings, settings.refusing, "refuse", name)
        or _hit(settings, 0.02 * settings.slips, "shy", name)
    ):
        return [WrittenSentence(pick(REFUSALS, settings.seed, "refusal", name))]
    sentences = _altered(sentences, settings, name)
    if _hit(settings, settings.converting, "convert", name):
        sentences = [sentence._replace(text=_converted(sentence.text)) for sentence in sentences]
    if _hit(settings, max(settings.inventing, 0.04 * settings.slips), "invent", name):
        sentences = _embroidered(sentences, query, settings, name)
    sentences = [_misquoted(sentence, chunks, settings, name, i) for i, sentence in enumerate(sentences)]
    if _hit(settings, settings.shifting, "shift", name):
        sentences = [_shifted(sentence, chunks) for sentence in sentences]
    if _hit(settings, settings.wandering, "wander", name):
        sentences = [*_wandering(settings, name), *sentences]
    if _hit(settings, settings.digressing, "digress", name):
        sentences = [*_digression(sentences, chunks, index), *sentences]
    return _truncated(sentences, settings.max_words)


def cited(sentences: Sequence[WrittenSentence]) -> tuple[Citation, ...]:
    """Return the citations of an answer."""
    return tuple(Citation(chunk=s.chunk, quote=s.quote, claim=s.text) for s in sentences if s.chunk is not None)


def _hit(settings: Generation, share: float, what: str, name: str, *more: object) -> bool:
    return share > 0 and chance(settings.seed, what, name, *more) < share


# --- what a good day yields --------------------------------------------------------------------------


def _sober(query: str, chunks: Sequence[Chunk], index: Index, settings: Generation, name: str) -> list[WrittenSentence]:
    """Return the sentences that cover the query best, part by part, phrased and cited; none where nothing does."""
    taken: list[tuple[int, Chunk, Sentence]] = []
    for part in PARTS.split(query):
        ranked = _ranked(part, chunks, index)
        if not ranked or ranked[0][0] < settings.refuses_below:
            continue
        first = int(len(ranked) > 1 and _hit(settings, 0.07 * settings.slips, "second", name))
        best = ranked[first][0]
        near = [item for item in ranked[first : first + 3] if item[0] >= 0.8 * best]
        taken += [(place, chunk, sentence) for place, (_, chunk, sentence) in enumerate(near)]
    remaining: list[tuple[Chunk, Sentence]] = []
    for _, chunk, sentence in sorted(taken, key=lambda item: item[0]):
        if all(sentence.text != other.text for _, other in remaining):
            remaining.append((chunk, sentence))
    remaining = remaining[: settings.sentences]
    if len(remaining) > 1 and _hit(settings, 0.04 * settings.slips, "short", name):
        remaining = remaining[:-1]
    return [WrittenSentence(_phrased(s.tokens, settings, name, i), c.id, s.text) for i, (c, s) in enumerate(remaining)]


def _ranked(part: str, chunks: Sequence[Chunk], index: Index) -> list[tuple[float, Chunk, Sentence]]:
    """Return all sentences of the chunks by how much of the query they cover, the earlier chunk first."""
    asked = frozenset(words(part))
    weight = {term: index.idf.get(term, 3.0) for term in asked}
    total = sum(weight.values()) or 1.0
    figures = bool(FIGURES.search(part.lower()))
    match = []
    for rank, chunk in enumerate(chunks):
        titled = sum(weight[t] for t in asked & frozenset(words(str(chunk.metadata.get("title", ""))))) / total
        for sentence in index.sentences(chunk.id):
            own = sum(weight[t] for t in asked & sentence.terms) / total
            bonus = 0.08 if figures and NUMBER.search(sentence.text) else 0.0
            score = own + bonus + 0.25 * titled if own else 0.0
            match.append((score - 0.015 * rank, chunk, sentence))
    return sorted(match, key=lambda item: -item[0])


def _phrased(text: str, settings: Generation, name: str, place: int) -> str:
    """Return a sentence of a chunk in nearly its own words."""
    for old, new in SWAPS:
        if old in text and chance(settings.seed, "swap", name, old) < 0.5:
            text = text.replace(old, new)
    text = text if text[-1] in ".!?" else f"{text.rstrip(',;: ')}."
    first, _, rest = text.partition(" ")
    if place or first.lower() not in LOWERED:
        return text
    return pick(OPENERS, settings.seed, "opener", name).format(text, f"{first.lower()} {rest}")


# --- what goes wrong ---------------------------------------------------------------------------------


def _altered(sentences: list[WrittenSentence], settings: Generation, name: str) -> list[WrittenSentence]:
    """Return the answer with one of its figures changed, if it was its turn."""
    rows = [i for i, sentence in enumerate(sentences) if NUMBER.search(sentence.text)]
    if not rows or not _hit(settings, max(settings.altering, 0.03 * settings.slips), "alter", name):
        return sentences
    at = rows[0]
    match = list(NUMBER.finditer(sentences[at].text))[-1]
    text = sentences[at].text
    changed = text[: match.start()] + _another(match[0]) + text[match.end() :]
    return [*sentences[:at], sentences[at]._replace(text=changed), *sentences[at + 1 :]]


def _converted(text: str) -> str:
    """Return a sentence with other currencies and units; its figures stay.

    >>> _converted("A cabin costs £9 and measures 4 m.")
    'A cabin costs $9 and measures 4 ft.'
    """
    return UNIT.sub(lambda match: OTHER_UNITS[match[0]], text)


def _another(figure: str) -> str:
    """Return another figure of the same kind.

    >>> _another("30"), _another("16:00"), _another("2.50"), _another("1998")
    ('45', '19:00', '4.50', '2011')
    """
    sentence_text = re.match(r"\d+", figure)
    digits = sentence_text[0] if sentence_text else figure
    value = int(digits)
    if ":" in figure:
        changed = (value + 3) % 24
    else:
        changed = value + (2 if value < 10 else 15 if value < 100 else 110 if value < 1000 else 13)
    return str(changed).zfill(len(digits)) + figure[len(digits) :]


def _embroidered(
    sentences: list[WrittenSentence], query: str, settings: Generation, name: str
) -> list[WrittenSentence]:
    """Return the answer with one or two statements that no source makes."""
    topic = max(words(query), key=len, default="matter")
    count = 1 + (chance(settings.seed, "invented", name) < 0.4)
    first = int(chance(settings.seed, "which", name) * len(INVENTIONS))
    added = [WrittenSentence(INVENTIONS[(first + i) % len(INVENTIONS)].format(topic)) for i in range(count)]
    return [*sentences, *added]


def _misquoted(
    sentence: WrittenSentence, chunks: Sequence[Chunk], settings: Generation, name: str, place: int
) -> WrittenSentence:
    """Return a sentence whose quote is made up, or whose citation points elsewhere, if it was its turn."""
    if sentence.chunk is None:
        return sentence
    if _hit(settings, max(settings.fabricating, 0.03 * settings.slips), "misquote", name, place):
        half = (sentence.quote or "").split(" ")[: max(2, len((sentence.quote or "").split(" ")) // 3)]
        return sentence._replace(quote=f"{' '.join(half)} {pick(QUOTES, settings.seed, 'quote', name, place)}")
    return _shifted(sentence, chunks) if _hit(settings, 0.02 * settings.slips, "slip", name, place) else sentence


def _shifted(sentence: WrittenSentence, chunks: Sequence[Chunk]) -> WrittenSentence:
    """Return a sentence that points to the chunk after the one it was drawn from."""
    ids = [chunk.id for chunk in chunks]
    return (
        sentence if sentence.chunk is None else sentence._replace(chunk=ids[(ids.index(sentence.chunk) + 1) % len(ids)])
    )


def _wandering(settings: Generation, name: str) -> list[WrittenSentence]:
    """Return the sentences with which a wandering answer begins."""
    order = sorted(WANDERINGS, key=lambda sentence: chance(settings.seed, "preamble", name, sentence))
    return [WrittenSentence(sentence) for sentence in order[: settings.preamble]]


def _digression(sentences: Sequence[WrittenSentence], chunks: Sequence[Chunk], index: Index) -> list[WrittenSentence]:
    """Return the first sentences of the last two chunks that the answer does not draw on, word for word and uncited."""
    choices = {sentence.chunk for sentence in sentences}
    others = [chunk for chunk in chunks if chunk.id not in choices][-2:]
    topics = [next((sentence.tokens for sentence in index.sentences(chunk.id)), "") for chunk in others]
    return [WrittenSentence(text if text[-1] in ".!?" else f"{text}.") for text in topics if text]


def _truncated(sentences: list[WrittenSentence], most: int) -> list[WrittenSentence]:
    """Return the answer up to so many words; what is left of a sentence keeps its citation."""
    remaining: list[WrittenSentence] = []
    for sentence in sentences:
        tokens = sentence.text.split(" ")
        if most <= 0:
            break
        remaining.append(sentence if len(tokens) <= most else sentence._replace(text=" ".join(tokens[:most])))
        most -= len(tokens)
    return remaining
