"""Text processing without a model: words, sentences, entities, quantities and similarity."""

from ragfault.text.entities import EntityIndex, extract_entities, extract_literals
from ragfault.text.normalization import (
    NEGATIONS,
    STOP_WORDS,
    normalize_answer,
    normalize_typography,
    split_content_words,
    split_words,
    stem_word,
)
from ragfault.text.sentences import split_sentences
from ragfault.text.similarity import make_shingles, score_quote_match

__all__ = [
    "NEGATIONS", "STOP_WORDS", "EntityIndex", "extract_entities", "extract_literals", "make_shingles",
    "normalize_answer", "normalize_typography", "score_quote_match", "split_content_words",
    "split_sentences", "split_words", "stem_word",
]  # fmt: skip
