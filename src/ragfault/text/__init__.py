"""Text: sentences, words, normal forms, items and likeness; all comparison of texts stands on these."""

from ragfault.text.alike import shingles, similar_span
from ragfault.text.items import Stock, figures, items, occurs
from ragfault.text.normal import plain, squad
from ragfault.text.sentences import sentences
from ragfault.text.words import NEGATIONS, STOP, content, stem, words

__all__ = [
    "NEGATIONS",
    "STOP",
    "Stock",
    "content",
    "figures",
    "items",
    "occurs",
    "plain",
    "sentences",
    "shingles",
    "similar_span",
    "squad",
    "stem",
    "words",
]
