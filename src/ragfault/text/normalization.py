"""Normal forms of words and texts: tokenization, stemming, stop words, case, accents and typography."""

from __future__ import annotations

import re
import string
import sys
import unicodedata
from functools import lru_cache

import Stemmer

ARTICLES = re.compile(r"\b(a|an|the)\b")
ARTICLE_WORDS = ("a", "an", "the")
PUNCTUATION = str.maketrans("", "", string.punctuation)
TYPOGRAPHY_MAP = str.maketrans(
    dict.fromkeys("‘’‚‛ʼ´`′", "'")
    | dict.fromkeys("“”„‟«»″", '"')
    | dict.fromkeys("‐‑‒–—−", "-")
    | {"…": "...", "\u00ad": "", "\u200b": "", "\ufeff": ""}
)

NON_ASCII = re.compile(r"[^\x00-\x7f]+")
"""The few parts of most texts that need more than a look."""


def normalize_answer(text: str) -> str:
    """Normalize an answer as the SQuAD evaluation does: lower case, no punctuation, no articles.

    >>> normalize_answer("  The Eiffel Tower, a landmark. ")
    'eiffel tower landmark'
    """
    text = text.lower().translate(PUNCTUATION)
    words = text.split()
    # then articles are words by themselves, and need no search
    if "".join(words).isalnum():
        return " ".join([word for word in words if word not in ARTICLE_WORDS])
    return " ".join(ARTICLES.sub(" ", text).split())


MISREAD_TAIL = r"[\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
MISREAD_BYTES = re.compile(rf"[ÂÃÐÑ]{MISREAD_TAIL}|â{MISREAD_TAIL}{{2}}")
"""Letters that begin two or three bytes of UTF-8 where these are read as Latin-1 or Windows-1252."""


def repair_encoding(text: str) -> str:
    """Return a text with UTF-8 that was read as Latin-1 or Windows-1252 read rightly.

    >>> repair_encoding("cafÃ© for Â£2")
    'café for £2'
    """
    return text if text.isascii() else MISREAD_BYTES.sub(_decode_misread, text)


def _decode_misread(match: re.Match[str]) -> str:
    raw = b"".join(bytes([ord(sign)]) if ord(sign) < 256 else sign.encode("cp1252") for sign in match[0])
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return match[0]


def normalize_typography(text: str) -> str:
    r"""Return a text with one kind of space, quotation mark and dash, as quotations are compared.

    >>> normalize_typography("She  said:\n“It’s done”")
    'She said: "It\'s done"'
    """
    if not text.isascii():
        text = NON_ASCII.sub(lambda match: match.group().translate(TYPOGRAPHY_MAP), text.replace("`", "'"))
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.replace("''", '"').replace("``", '"').split())


NEGATIONS = frozenset(("no", "not", "never", "none", "nobody", "nothing", "neither", "nor", "without"))
"""Words that negate a statement; they count as stop words, and are compared separately."""
FUNCTION_WORDS = """
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
STOP_WORDS = NEGATIONS | frozenset(map(sys.intern, FUNCTION_WORDS.split()))
"""Words without content of their own."""
SMALL_NUMERALS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty
"""
TENS_NUMERALS = "thirty forty fifty sixty seventy eighty ninety"
NUMERALS = dict(zip(SMALL_NUMERALS.split(), map(str, range(21)), strict=True)) | dict(
    zip(TENS_NUMERALS.split(), map(str, range(30, 100, 10)), strict=True)
)

STRAIGHT_QUOTES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "´": "'", "`": "'", "“": '"', "”": '"', "„": '"'})
WORD_PATTERN = re.compile(
    # 1,234  3.5  17:00  2.3.1
    r"\d+(?:[.,:/]\d+)*"
    # scripts written without spaces: sign by sign
    r"|[\u3040-\u30ff\u3400-\u9fff]"
    r"|[^\W\d_\u3040-\u30ff\u3400-\u9fff]+(?:'[^\W\d_]+)*"
)
ASCII_WORD_PATTERN = re.compile(r"[A-Za-z]++(?:'[A-Za-z]++)*|\d++(?:[.,:/]\d++)*", re.ASCII)
"""A faster pattern for ASCII texts."""
GROUPED_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
STEM_CACHE_SIZE = 1 << 16
"""Number of words whose stems are cached."""
MAX_CACHED_LENGTH = 500
"""Shorter texts are cached: a sentence occurs as claim, as part of the answer and as part of a chunk."""
NEGATED_VERB = re.compile(r"\b(?:(ca|wo|sha)n't|([a-z]+)n't|(can)not)\b")
NEGATED_VERB_STEMS = {"ca": "can", "wo": "will", "sha": "shall"}

_stemmer = Stemmer.Stemmer("english")


def split_words(text: str) -> tuple[str, ...]:
    """Split a text into normalized words, in order.

    Lower case, no accents, negations written out, numbers in one spelling, all but stop words stemmed.

    >>> split_words("She didn’t sell the 1,234 boxes; three were Anna's.")
    ('she', 'did', 'not', 'sell', 'the', '1234', 'box', '3', 'were', 'anna')
    """
    return _split_cached(text) if len(text) < MAX_CACHED_LENGTH else _split_text(text)


@lru_cache(maxsize=1 << 13)
def _split_cached(text: str) -> tuple[str, ...]:
    return _split_text(text)


def _split_text(text: str) -> tuple[str, ...]:
    text = text.lower() if text.isascii() else fold_case(text)
    if "n't" in text or "cannot" in text:
        text = NEGATED_VERB.sub(_expand_negation, text)
    return tuple(map(_stem_cache.__getitem__, (ASCII_WORD_PATTERN if text.isascii() else WORD_PATTERN).findall(text)))


def split_content_words(text: str) -> tuple[str, ...]:
    """Split a text into normalized words without stop words.

    >>> split_content_words("The risk of a stroke was reduced by 12.0 %")
    ('risk', 'stroke', 'reduc', '12')
    """
    return tuple([word for word in split_words(text) if word not in STOP_WORDS])


def stem_word(word: str) -> str:
    """Return the normal form of a lower-case word.

    >>> stem_word("running"), stem_word("three"), stem_word("1,234.50"), stem_word("because")
    ('run', '3', '1234.5', 'because')
    """
    return _stem_cache[word]


class _StemCache(dict[str, str]):
    """Normal forms of recent words; interned, so that equal stems are one object and compare fast."""

    def __missing__(self, word: str) -> str:
        if len(self) >= STEM_CACHE_SIZE:
            self.clear()
        stem = self[word] = sys.intern(_compute_stem(word))
        return stem


_stem_cache = _StemCache()


def _compute_stem(word: str) -> str:
    if word[0].isdigit():
        return normalize_number(word)
    word = word.removesuffix("'s").removesuffix("'")
    if word in STOP_WORDS:
        return word
    if word in NUMERALS:
        return NUMERALS[word]
    stemmed: str = _stemmer.stemWord(word)
    return stemmed or word


def normalize_number(text: str) -> str:
    """Return a number in its shortest spelling; other texts with digits are unchanged.

    >>> [normalize_number(text) for text in ("1,234", "3.50", "007", "2.3.1", "17:05")]
    ['1234', '3.5', '7', '2.3.1', '17:05']
    """
    if GROUPED_NUMBER.fullmatch(text):
        text = text.replace(",", "")
    integer, dot, fraction = text.partition(".")
    if not integer.isdecimal() or (dot and not fraction.isdecimal()):
        return text
    fraction = fraction.rstrip("0")
    return (integer.lstrip("0") or "0") + (f".{fraction}" if fraction else "")


def fold_case(text: str) -> str:
    """Remove case and accents, as names are compared.

    >>> fold_case("Röntgen"), fold_case("ŁÓDŹ"), fold_case("Straße")
    ('rontgen', 'łodz', 'strasse')
    """
    text = text.replace("`", "'")
    if text.isascii():
        return text.lower()
    text = NON_ASCII.sub(lambda match: match.group().translate(STRAIGHT_QUOTES), text).casefold()
    return NON_ASCII.sub(_remove_marks, text)


def _remove_marks(match: re.Match[str]) -> str:
    parts = unicodedata.normalize("NFKD", match.group())
    return unicodedata.normalize("NFC", "".join([part for part in parts if not unicodedata.combining(part)]))


def _expand_negation(match: re.Match[str]) -> str:
    """Write out "n't" and "cannot"."""
    odd, verb, can = match.groups()
    return f"{NEGATED_VERB_STEMS[odd] if odd else verb or can} not"


def measure_nesting(text: str) -> tuple[int, bool]:
    """Return the depth of the brackets of JSON, and True where a bracket or a string is never closed."""
    depth = deepest = 0
    quoted = escaped = False
    for character in text:
        if quoted:
            quoted, escaped = escaped or character != '"', character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "{[(":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "}])":
            depth -= 1
    return deepest, depth > 0 or quoted
