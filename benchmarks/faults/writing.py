"""The generator: selects sentences, rewrites and cites them, with the small errors and the faults of its settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ragfault.model.records import Chunk, Citation

from .config import Generation
from .phrases import FALSE_QUOTE_ENDINGS, INVENTIONS, OPENING_TEMPLATES, REFUSALS, SYNONYMS, WANDERINGS
from .retrieving import Index, IndexedSentence
from .words import NUMBER, chance, extract_words, pick

__all__ = ["WrittenSentence", "build_citations", "write_answer"]

QUERY_PARTS = re.compile(r", and (?=how|what|when|where|who|which|can|is|are|do|must)|\? (?=\w)", re.IGNORECASE)
FIGURE_QUESTION = re.compile(
    r"\b(?:how (?:much|many|long|far|old|often|early|late)|when|what (?:year|time|date|is the price))\b"
)

OTHER_UNITS = {
    "£": "$", "$": "€", "€": "$", "%": " per mille", "minutes": "hours", "hours": "days", "days": "weeks",
    "weeks": "months", "months": "years", "years": "months", "metres": "feet", "kilometres": "miles",
    "miles": "kilometres", "km": "miles", "m": "ft", "kg": "lb", "million": "billion", "billion": "million",
    "feet": "metres",
}  # fmt: skip
UNIT = re.compile(r"[£$€](?=\d)|(?<=\d)%|(?<=\d )(?:" + "|".join(key for key in OTHER_UNITS if key.isalpha()) + r")\b")

LOWERCASED_WORDS = frozenset(
    re.findall("[a-z]+", "a all an at each every for from if in no on the there these this when")
)
"""First words of a sentence that are written in lower case after an opening."""


class WrittenSentence(NamedTuple):
    """A sentence of an answer, the chunk that it cites, and the quote from it."""

    text: str
    chunk: str | None = None
    quote: str | None = None


def write_answer(
    query: str, chunks: Sequence[Chunk], index: Index, settings: Generation, name: str
) -> list[WrittenSentence]:
    """Write the sentences of an answer to a query from its chunks, with the errors and faults of the settings."""
    sentences = _select_sentences(query, chunks, index, settings, name)
    if (
        not sentences
        or _draw_event(settings, settings.refusal_share, "refuse", name)
        or _draw_event(settings, 0.02 * settings.error_rate, "shy", name)
    ):
        return [WrittenSentence(pick(REFUSALS, settings.seed, "refusal", name))]
    sentences = _alter_figure(sentences, settings, name)
    if _draw_event(settings, settings.conversion_share, "convert", name):
        sentences = [sentence._replace(text=_convert_units(sentence.text)) for sentence in sentences]
    if _draw_event(settings, max(settings.invention_share, 0.04 * settings.error_rate), "invent", name):
        sentences = _add_inventions(sentences, query, settings, name)
    sentences = [_alter_citation(sentence, chunks, settings, name, i) for i, sentence in enumerate(sentences)]
    if _draw_event(settings, settings.shift_share, "shift", name):
        sentences = [_shift_citation(sentence, chunks) for sentence in sentences]
    if _draw_event(settings, settings.preamble_share, "wander", name):
        sentences = [*_write_preamble(settings, name), *sentences]
    if _draw_event(settings, settings.digression_share, "digress", name):
        sentences = [*_write_digression(sentences, chunks, index), *sentences]
    return _truncate_answer(sentences, settings.max_words)


def build_citations(sentences: Sequence[WrittenSentence]) -> tuple[Citation, ...]:
    """Build the citations of an answer."""
    return tuple(Citation(chunk=s.chunk, quote=s.quote, claim=s.text) for s in sentences if s.chunk is not None)


def _draw_event(settings: Generation, share: float, event: str, name: str, *key: object) -> bool:
    """Draw whether an event that has this share occurs for a question."""
    return share > 0 and chance(settings.seed, event, name, *key) < share


# --- selecting and rewriting -------------------------------------------------------------------------


def _select_sentences(
    query: str, chunks: Sequence[Chunk], index: Index, settings: Generation, name: str
) -> list[WrittenSentence]:
    """Select the sentences that cover the parts of the query best, rewritten and cited; none that cover too little."""
    candidates: list[tuple[int, Chunk, IndexedSentence]] = []
    for part in QUERY_PARTS.split(query):
        ranked = _rank_sentences(part, chunks, index)
        if not ranked or ranked[0][0] < settings.min_coverage:
            continue
        first = int(len(ranked) > 1 and _draw_event(settings, 0.07 * settings.error_rate, "second", name))
        best = ranked[first][0]
        best_sentences = [item for item in ranked[first : first + 3] if item[0] >= 0.8 * best]
        candidates += [(rank, chunk, sentence) for rank, (_, chunk, sentence) in enumerate(best_sentences)]
    selected: list[tuple[Chunk, IndexedSentence]] = []
    for _, chunk, sentence in sorted(candidates, key=lambda item: item[0]):
        if all(sentence.text != other.text for _, other in selected):
            selected.append((chunk, sentence))
    selected = selected[: settings.max_sentences]
    if len(selected) > 1 and _draw_event(settings, 0.04 * settings.error_rate, "short", name):
        selected = selected[:-1]
    return [
        WrittenSentence(_rewrite_sentence(s.tokens, settings, name, i), c.id, s.text)
        for i, (c, s) in enumerate(selected)
    ]


def _rank_sentences(part: str, chunks: Sequence[Chunk], index: Index) -> list[tuple[float, Chunk, IndexedSentence]]:
    """Rank all sentences of the chunks by the share of the query that they cover, earlier chunks preferred."""
    query_terms = frozenset(extract_words(part))
    weight = {term: index.idf.get(term, 3.0) for term in query_terms}
    total = sum(weight.values()) or 1.0
    asks_figure = bool(FIGURE_QUESTION.search(part.lower()))
    scored = []
    for rank, chunk in enumerate(chunks):
        title_share = (
            sum(weight[t] for t in query_terms & frozenset(extract_words(str(chunk.metadata.get("title", ""))))) / total
        )
        for sentence in index.split_chunk(chunk.id):
            sentence_share = sum(weight[t] for t in query_terms & sentence.terms) / total
            bonus = 0.08 if asks_figure and NUMBER.search(sentence.text) else 0.0
            score = sentence_share + bonus + 0.25 * title_share if sentence_share else 0.0
            scored.append((score - 0.015 * rank, chunk, sentence))
    return sorted(scored, key=lambda item: -item[0])


def _rewrite_sentence(text: str, settings: Generation, name: str, position: int) -> str:
    """Rewrite a sentence of a chunk with synonyms and an opening."""
    for old, new in SYNONYMS:
        if old in text and chance(settings.seed, "swap", name, old) < 0.5:
            text = text.replace(old, new)
    text = text if text[-1] in ".!?" else f"{text.rstrip(',;: ')}."
    first, _, rest = text.partition(" ")
    if position or first.lower() not in LOWERCASED_WORDS:
        return text
    return pick(OPENING_TEMPLATES, settings.seed, "opener", name).format(text, f"{first.lower()} {rest}")


# --- errors and faults -------------------------------------------------------------------------------


def _alter_figure(sentences: list[WrittenSentence], settings: Generation, name: str) -> list[WrittenSentence]:
    """Return the answer with one of its figures changed, at the rate of the settings."""
    indexes = [i for i, sentence in enumerate(sentences) if NUMBER.search(sentence.text)]
    if not indexes or not _draw_event(
        settings, max(settings.alteration_share, 0.03 * settings.error_rate), "alter", name
    ):
        return sentences
    index = indexes[0]
    match = list(NUMBER.finditer(sentences[index].text))[-1]
    text = sentences[index].text
    changed = text[: match.start()] + _change_figure(match[0]) + text[match.end() :]
    return [*sentences[:index], sentences[index]._replace(text=changed), *sentences[index + 1 :]]


def _convert_units(text: str) -> str:
    """Convert a sentence to other currencies and units, the figures unchanged.

    >>> _convert_units("A cabin costs £9 and measures 4 m.")
    'A cabin costs $9 and measures 4 ft.'
    """
    return UNIT.sub(lambda match: OTHER_UNITS[match[0]], text)


def _change_figure(figure: str) -> str:
    """Return another figure of the same format.

    >>> _change_figure("30"), _change_figure("16:00"), _change_figure("2.50"), _change_figure("1998")
    ('45', '19:00', '4.50', '2011')
    """
    integer_part = re.match(r"\d+", figure)
    digits = integer_part[0] if integer_part else figure
    value = int(digits)
    if ":" in figure:
        changed = (value + 3) % 24
    else:
        changed = value + (2 if value < 10 else 15 if value < 100 else 110 if value < 1000 else 13)
    return str(changed).zfill(len(digits)) + figure[len(digits) :]


def _add_inventions(
    sentences: list[WrittenSentence], query: str, settings: Generation, name: str
) -> list[WrittenSentence]:
    """Return the answer with one or two statements that no source makes."""
    topic = max(extract_words(query), key=len, default="matter")
    count = 1 + (chance(settings.seed, "invented", name) < 0.4)
    first = int(chance(settings.seed, "which", name) * len(INVENTIONS))
    added = [WrittenSentence(INVENTIONS[(first + i) % len(INVENTIONS)].format(topic)) for i in range(count)]
    return [*sentences, *added]


def _alter_citation(
    sentence: WrittenSentence, chunks: Sequence[Chunk], settings: Generation, name: str, position: int
) -> WrittenSentence:
    """Return a sentence with a fabricated quote or with the citation of another chunk, at the rates of the settings."""
    if sentence.chunk is None:
        return sentence
    if _draw_event(settings, max(settings.fabrication_share, 0.03 * settings.error_rate), "misquote", name, position):
        half = (sentence.quote or "").split(" ")[: max(2, len((sentence.quote or "").split(" ")) // 3)]
        return sentence._replace(
            quote=f"{' '.join(half)} {pick(FALSE_QUOTE_ENDINGS, settings.seed, 'quote', name, position)}"
        )
    return (
        _shift_citation(sentence, chunks)
        if _draw_event(settings, 0.02 * settings.error_rate, "slip", name, position)
        else sentence
    )


def _shift_citation(sentence: WrittenSentence, chunks: Sequence[Chunk]) -> WrittenSentence:
    """Return a sentence that cites the chunk after the one it was taken from."""
    ids = [chunk.id for chunk in chunks]
    return (
        sentence if sentence.chunk is None else sentence._replace(chunk=ids[(ids.index(sentence.chunk) + 1) % len(ids)])
    )


def _write_preamble(settings: Generation, name: str) -> list[WrittenSentence]:
    """Write the sentences of small talk before an answer."""
    order = sorted(WANDERINGS, key=lambda sentence: chance(settings.seed, "preamble", name, sentence))
    return [WrittenSentence(sentence) for sentence in order[: settings.preamble_sentences]]


def _write_digression(
    sentences: Sequence[WrittenSentence], chunks: Sequence[Chunk], index: Index
) -> list[WrittenSentence]:
    """Write the first sentences of the last two chunks that the answer does not cite, word for word and uncited."""
    cited_chunks = {sentence.chunk for sentence in sentences}
    others = [chunk for chunk in chunks if chunk.id not in cited_chunks][-2:]
    first_sentences = [next((sentence.tokens for sentence in index.split_chunk(chunk.id)), "") for chunk in others]
    return [WrittenSentence(text if text[-1] in ".!?" else f"{text}.") for text in first_sentences if text]


def _truncate_answer(sentences: list[WrittenSentence], max_words: int) -> list[WrittenSentence]:
    """Truncate the answer after so many words; a truncated sentence keeps its citation."""
    result: list[WrittenSentence] = []
    for sentence in sentences:
        tokens = sentence.text.split(" ")
        if max_words <= 0:
            break
        result.append(sentence if len(tokens) <= max_words else sentence._replace(text=" ".join(tokens[:max_words])))
        max_words -= len(tokens)
    return result
