"""Names: capitalised runs that are not capitals by position only."""

from __future__ import annotations

import re

from ragfault.text.sentences import sentences
from ragfault.text.words import STOP, fold

__all__ = ["names"]

INITIALS = re.compile(r"\b(?:[A-Z]\.){2,}")
WORD = r"[^\W\d_a-zß-öø-ÿ][^\W_]*(?:['&.-][^\W_]+){0,6}\.?"
LINK = r"(?:of|de|da|di|del|della|van|von|der|den|la|le|du|bin|al|y|for)"
RUN = re.compile(rf"\b{WORD}(?: (?:{LINK} )?{WORD}){{0,9}}")
AFTER = re.compile(r"(?:'s)?,? (?:is|was|are|were|has|had|and [A-Z])|'s\b")
"""What follows a name, rather than a capital that opens a sentence."""


def names(text: str) -> list[str]:
    """The names in a text, folded, in order.

    >>> names("The Oslo Accords were signed by Yitzhak Rabin of the U.S. side. Later came Nigeria.")
    ['oslo accords', 'yitzhak rabin', 'us', 'nigeria']
    """
    text = INITIALS.sub(lambda match: match.group().replace(".", ""), text)
    found: list[str] = []
    for start, end in sentences(text):
        sentence = text[start:end]
        if sentence.isupper() and sentence.count(" ") > 3:
            continue
        first = next((at for at, sign in enumerate(sentence) if sign.isalnum()), 0)
        last = len(sentence.rstrip(".,;:!?\"')"))
        for match in RUN.finditer(sentence):
            opens = match.start() <= first
            bare = opens and match.end() < last and not AFTER.match(sentence, match.end())
            found += _parts(match.group(), bare)
    return found


def _parts(run: str, bare: bool) -> list[str]:
    """The names of one run: cut at full stops, without stop words, without a bare opening word."""
    found = []
    for at, part in enumerate(re.split(r"(?<=[^\W_]{3})\. ", run)):
        parts = part.split()
        kept = parts
        while kept and fold(kept[0]) in STOP and not _acronym(kept[0]):
            kept = kept[1:]
        if not kept or (len(kept) == 1 and len(kept[0]) == 1):
            continue
        mere = bare and at == 0 and len(parts) == 1 and not _acronym(parts[0])
        if not mere:
            found.append(fold(" ".join(kept)).removesuffix("'s").replace(".", ""))
    return found


def _acronym(word: str) -> bool:
    """Whether a word has a second capital."""
    return sum(map(str.isupper, word)) > 1
