"""Words: the normal form in which texts are compared."""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache

import Stemmer

__all__ = ["NEGATIONS", "STOP", "content", "fold", "number", "stem", "words"]

NEGATIONS = frozenset(("no", "not", "never", "none", "nobody", "nothing", "neither", "nor", "without"))
"""Words that turn a statement round; they count as stop words, and are compared apart."""

FUNCTION = """
a about above after again against all also although am among an and another any anyone are as at
be because been before being below between both but by can could did do does doing down during
each either else etc even ever every few for from further had has have having he hence her here
hers herself him himself his how however i if in into is it its itself just let may me might mine
more most much must my myself of off on once one only onto or other others our ours ourselves out
over own per please quite rather really same shall she should since so some such than that the
their theirs them themselves then there therefore these they this those though through thus to
too toward towards under until up upon us very via was we were what when where whether which
while who whom whose why will with within would yet you your yours yourself th st nd rd s t d ll
m re ve
"""
STOP = NEGATIONS | frozenset(map(sys.intern, FUNCTION.split()))
"""Words that carry no content of their own."""

SMALL = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty
"""
TENS = "thirty forty fifty sixty seventy eighty ninety"
NUMERALS = dict(zip(SMALL.split(), map(str, range(21)), strict=True)) | dict(
    zip(TENS.split(), map(str, range(30, 100, 10)), strict=True)
)

CURLY = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "´": "'", "`": "'", "“": '"', "”": '"', "„": '"'})
WORD = re.compile(
    r"\d+(?:[.,:/]\d+)*"  # 1,234  3.5  17:00  2.3.1
    r"|[\u3040-\u30ff\u3400-\u9fff]"  # scripts written without spaces: sign by sign
    r"|[^\W\d_\u3040-\u30ff\u3400-\u9fff]+(?:'[^\W\d_]+)*"
)
ASCII = re.compile(r"[A-Za-z]++(?:'[A-Za-z]++)*+|\d++(?:[.,:/]\d++)*+", re.ASCII)
"""The same for a text of nothing but ASCII, where it is found sooner."""
GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
KNOWN = 1 << 16
"""So many words are remembered with their normal forms."""
SHORT = 500
"""Texts shorter than this are remembered for a while."""
NEGATED = re.compile(r"\b(?:(ca|wo|sha)n't|([a-z]+)n't|(can)not)\b")
FULL = {"ca": "can", "wo": "will", "sha": "shall"}

_stemmer = Stemmer.Stemmer("english")


def words(text: str) -> tuple[str, ...]:
    """The words of a text in normal form, in order.

    Lower case, no accents, quotes straightened, contractions of "not" written out, numbers in one spelling,
    possessives dropped, everything but stop words stemmed.

    >>> words("She didn’t sell the 1,234 boxes; three were Anna's.")
    ('she', 'did', 'not', 'sell', 'the', '1234', 'box', '3', 'were', 'anna')
    """
    return _short(text) if len(text) < SHORT else _words(text)


@lru_cache(maxsize=1 << 13)
def _short(text: str) -> tuple[str, ...]:
    """Sentences come again: as claim, as part of the answer, as part of a chunk."""
    return _words(text)


def _words(text: str) -> tuple[str, ...]:
    text = text.lower() if text.isascii() else fold(text)
    if "n't" in text or "cannot" in text:
        text = NEGATED.sub(_negated, text)
    return tuple(map(_stems.__getitem__, (ASCII if text.isascii() else WORD).findall(text)))


def content(text: str) -> tuple[str, ...]:
    """The words of a text that carry content: `words` without stop words.

    >>> content("The risk of a stroke was reduced by 12.0 %")
    ('risk', 'stroke', 'reduc', '12')
    """
    return tuple([word for word in words(text) if word not in STOP])


def stem(word: str) -> str:
    """The normal form of one lower-case word.

    >>> stem("running"), stem("three"), stem("1,234.50"), stem("because")
    ('run', '3', '1234.5', 'because')
    """
    return _stems[word]


class _Stems(dict[str, str]):
    """The normal forms of the words met last, looked up without a call; equal ones are one object, found sooner."""

    def __missing__(self, word: str) -> str:
        if len(self) >= KNOWN:
            self.clear()
        found = self[word] = sys.intern(_stem(word))
        return found


_stems = _Stems()


def _stem(word: str) -> str:
    if word[0].isdigit():
        return number(word)
    word = word.removesuffix("'s").removesuffix("'")
    if word in STOP:
        return word
    if word in NUMERALS:
        return NUMERALS[word]
    stemmed: str = _stemmer.stemWord(word)
    return stemmed or word


def number(text: str) -> str:
    """A number in its shortest spelling; whatever else is written with digits stays as it is.

    >>> number("1,234"), number("3.50"), number("007"), number("2.3.1"), number("17:05")
    ('1234', '3.5', '7', '2.3.1', '17:05')
    """
    if GROUPED.fullmatch(text):
        text = text.replace(",", "")
    whole, dot, rest = text.partition(".")
    if not whole.isdecimal() or (dot and not rest.isdecimal()):
        return text
    rest = rest.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{rest}" if rest else "")


def fold(text: str) -> str:
    """A text without case and accents, as names are compared.

    >>> fold("Röntgen"), fold("ŁÓDŹ"), fold("Straße")
    ('rontgen', 'łodz', 'strasse')
    """
    text = text.translate(CURLY).casefold()
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(sign for sign in parts if not unicodedata.combining(sign)))


def _negated(match: re.Match[str]) -> str:
    """Write out "n't" and "cannot"."""
    odd, plain, can = match.groups()
    return f"{FULL[odd] if odd else plain or can} not"
