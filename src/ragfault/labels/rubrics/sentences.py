"""Sentences of a rubric, one by one: where each is written, and the rubric with other words in its place."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ragfault.model.rubrics import MAX_TEXT, MET_OR_NOT, Rubric
from ragfault.text.sentences import split_sentences


class RubricSentence(Struct, frozen=True, kw_only=True):
    """Sentence of the criterion of a rubric, or of the description of one of its levels."""

    text: str
    value: float | None
    """Value of the level that it describes; None: it is part of the criterion."""
    start: int
    """Where it begins in the criterion or the description."""
    end: int


def list_sentences(rubric: Rubric) -> tuple[RubricSentence, ...]:
    """List the sentences that the author of a rubric wrote: of the criterion, then of each level.

    >>> from ragfault.model.rubrics import rubric
    >>> [item.text for item in list_sentences(rubric("It is formal. It is short.", name="tone"))]
    ['It is formal.', 'It is short.']
    """
    texts: list[tuple[float | None, str]] = [(None, rubric.criterion)]
    if rubric.levels != MET_OR_NOT:
        texts += [(level.value, level.description) for level in rubric.levels]
    return tuple(
        RubricSentence(text=text[start:end], value=value, start=start, end=end)
        for value, text in texts
        for start, end in split_sentences(text)
    )


def rewrite_sentence(rubric: Rubric, sentence: RubricSentence, text: str) -> Rubric | None:
    """Return a rubric with other words for one of its sentences, or without it; None if that leaves no usable text.

    >>> from ragfault.model.rubrics import rubric
    >>> tone = rubric("It is formal. It is short.", name="tone")
    >>> first, second = list_sentences(tone)
    >>> rewrite_sentence(tone, second, "").criterion, rewrite_sentence(tone, first, "It uses no slang.").criterion
    ('It is formal.', 'It uses no slang. It is short.')
    """
    words = " ".join(text.split())
    if sentence.value is None:
        criterion = _replace_part(rubric.criterion, sentence, words)
        return replace(rubric, criterion=criterion) if 0 < len(criterion) <= MAX_TEXT else None
    description = _replace_part(rubric.get_level(sentence.value).description, sentence, words)
    if not 0 < len(description) <= MAX_TEXT:
        return None
    levels = (
        replace(level, description=description) if level.value == sentence.value else level for level in rubric.levels
    )
    return replace(rubric, levels=tuple(levels))


def _replace_part(text: str, sentence: RubricSentence, words: str) -> str:
    return " ".join(f"{text[: sentence.start]} {words} {text[sentence.end :]}".split())
