"""Normal forms of whole texts: for exact match, and for finding quotations."""

from __future__ import annotations

import re
import string
import unicodedata

__all__ = ["plain", "squad"]

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
MARKS = str.maketrans(
    dict.fromkeys("‘’‚‛ʼ´`′", "'")
    | dict.fromkeys("“”„‟«»″", '"')
    | dict.fromkeys("‐‑‒–—−", "-")
    | {"…": "...", "\u00ad": "", "\u200b": "", "\ufeff": ""}
)


def squad(text: str) -> str:
    """An answer as the SQuAD evaluation compares it: lower case, no punctuation, no articles.

    >>> squad("  The Eiffel Tower, a landmark. ")
    'eiffel tower landmark'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def plain(text: str) -> str:
    """A text with one kind of space, quotation mark and dash, as quotations are compared.

    >>> plain("She  said:\\n“It’s done”")
    'She said: "It\\'s done"'
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(MARKS))
    return " ".join(text.replace("''", '"').replace("``", '"').split())
