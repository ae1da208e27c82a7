"""Words of the names of columns, in English whatever language they are written in."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from ragfault.model.whole_files import read_toml

WORD_FILE = Path(__file__).with_name("field_words.toml")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|(?:[^\W\d_A-Za-z]|[\u0900-\u0dff\u0e30-\u0e4e])+")
"""A word of a folded name: capitals begin one; marks of the vowels of India and Thailand belong to it."""
ACCENT = re.compile("[\u0300-\u036f]")
LETTERS = str.maketrans({"ı": "i", "ł": "l", "Ł": "L", "đ": "d", "ø": "o", "Ø": "O", "ß": "ss", "æ": "ae", "œ": "oe"})
"""Letters that no accent is taken from."""
MAX_PHRASE = 3
LEAST_HEAD = 5
"""Letters of a word from which on it may end a compound."""
OWNER = "of"
"""The translation of words between a thing and its owner."""


class FieldWords(NamedTuple):
    """The words of field_words.toml: word or phrase → words in English."""

    english: dict[str, tuple[str, ...]]
    heads: frozenset[str]
    """Words that end compounds."""
    followers: frozenset[str]
    """Words of languages in which what describes a thing stands behind it."""


@cache
def load_field_words() -> FieldWords:
    """Load the table of words in other languages.

    >>> load_field_words().english["frage"]
    ('question',)
    """
    english: dict[str, tuple[str, ...]] = {}
    heads: set[str] = set()
    followers: set[str] = set()
    for table in read_toml(WORD_FILE).values():
        rows = {name: words for name, words in table.items() if isinstance(words, str)}
        for name, words in rows.items():
            plain = {fold_name(word).lower().replace("_", " ") for word in words.split()}
            english |= dict.fromkeys(plain, () if name == "nothing" else tuple(name.split()))
            if table.get("compounds") and name not in ("nothing", OWNER):
                heads |= {word for word in plain if len(word) >= LEAST_HEAD}
            followers |= plain if table.get("head_first") else set()
    return FieldWords(english, frozenset(heads), frozenset(followers))


def fold_name(name: str) -> str:
    """Take the accents from the letters of a name.

    >>> fold_name("Réponse attendue"), fold_name("Musterlösung")
    ('Reponse attendue', 'Musterlosung')
    """
    if name.isascii():
        return name
    return unicodedata.normalize("NFC", ACCENT.sub("", unicodedata.normalize("NFD", name.translate(LETTERS))))


@lru_cache(4096)
def split_words(name: str) -> tuple[str, ...]:
    """Split a name into its words in English and in lower case.

    >>> split_words("expectedOutput"), split_words("LLM-response_2"), split_words("Nutzerfrage")
    (('expected', 'output'), ('llm', 'response', '2'), ('user', 'question'))
    >>> split_words("参考回答"), split_words("Respuesta esperada"), split_words("Antwort des Modells")
    (('reference', 'answer'), ('expected', 'answer'), ('model', 'answer'))
    """
    plain = [word.lower() for word in WORD.findall(fold_name(name))]
    words = tuple(_translate(plain))
    if len(plain) > 1 and plain[-1] in load_field_words().followers:
        return tuple(word for word in reversed(words) if word != OWNER)
    if OWNER not in words[1:-1]:
        return words
    parts: list[list[str]] = [[]]
    for word in words:
        if word == OWNER:
            parts.append([])
        else:
            parts[-1].append(word)
    return tuple(word for part in reversed(parts) for word in part)


def _translate(words: Sequence[str]) -> Iterator[str]:
    """Yield words in English: phrases first, then words, then the parts of a word."""
    english = load_field_words().english
    place = 0
    while place < len(words):
        sizes = range(min(MAX_PHRASE, len(words) - place), 0, -1)
        size = next((n for n in sizes if " ".join(words[place : place + n]) in english), 0)
        if size:
            yield from english[" ".join(words[place : place + size])]
        else:
            yield from _split_compound(words[place])
        place += max(1, size)


def _split_compound(word: str) -> Iterator[str]:
    """Yield the parts of a word that joins several: those in the table in English, the others as they are."""
    english, heads, _ = load_field_words()
    if word.isascii():
        starts = range(1, len(word) - LEAST_HEAD + 1)
        start = next((start for start in starts if word[start:] in heads), 0)
        if start:
            yield from english.get(word[:start], english.get(word[:start].removesuffix("s"), (word[:start],)))
        yield from english[word[start:]] if start else (word,)
        return
    place = begin = 0
    while place < len(word):
        end = next((end for end in range(len(word), place, -1) if word[place:end] in english), 0)
        if not end:
            place += 1
            continue
        yield from (word[begin:place],) if place > begin else ()
        yield from english[word[place:end]]
        place = begin = end
    if begin < place:
        yield word[begin:]


@lru_cache(4096)
def join_words(name: str) -> str:
    """Join the words of a name, so that spellings of one name are equal.

    >>> join_words("userInput") == join_words("User Input") == join_words("user_input")
    True
    """
    return "".join(split_words(name))
