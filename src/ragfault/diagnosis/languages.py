"""Traces in a language or in markup that their judge does not know."""

from __future__ import annotations

import re

from ragfault.judges.checks.claims import strip_tags
from ragfault.judges.checks.lexicon import load_idf
from ragfault.text.markup import MARKUP_SHARE, is_wrapped
from ragfault.text.normalization import ENGLISH_WORDS, STOP_WORDS, split_words

ENGLISH_JUDGES = ("embedded", "encoder", "lexical")
"""Judges that were measured in English only."""
WORD_JUDGES = (*ENGLISH_JUDGES, "onnx")
"""Judges that tell by words what no chunk holds, and read markup as words."""
COMMON_WORDS = """
der das dem und ist nicht ein eine einen einem mit auf für von zu sich auch wird werden bei oder wie nach sind vom zum
zur aus beim durch le les des et est une du dans avec pas qui que au aux ce cette sont ou il elle ne sur el los las y
con por como se su lo más una del al está pero gli della di che è non sono nel alla dei delle per o os da dos em um
uma não com são na à het een van dat niet voor op aan zijn wordt worden ook naar uit og och det ett av af til till
på er är som ikke inte med den har ved fra från kan w z się nie jest i od że są przez oraz
"""
FOREIGN_WORDS = frozenset(COMMON_WORDS.split()) - STOP_WORDS
"""Common words of other languages in Latin script that are none in English; some stand in names as well."""
PLAIN_ENGLISH_WORDS = ENGLISH_WORDS & STOP_WORDS
"""Those of the common English words that are their own stems."""
MIN_FOREIGN_SHARE = 0.1
"""Least share of traces in another language that is reported."""
MOSTLY_FOREIGN_SHARE = 0.5
"""Share of traces in another language from which all count as such: of a few words none may be told."""


LETTERS_PATTERN = re.compile(r"[^\W\d_]+")
CODE_PATTERN = re.compile(r"[_={}<>;\\/@#|`]|\w\(")
"""Signs of code, paths and addresses, whose words are in no lexicon."""
OTHER_SCRIPT_PATTERN = re.compile(r"[^\W\d_\x00-\u024f\u1e00-\u1eff]")
"""A letter that is not Latin; the second range holds the letters of Vietnamese."""
LEAST_COMMON, LEAST_LETTERS, LEAST_WORDS = 2, 4, 3
MIN_UNKNOWN_SHARE = 0.4


def is_foreign(text: str) -> bool:
    """Return whether a text shows that it is in another language than English; of a few words none may.

    Most of its letters are of another script, or it has more common words of other languages than of English, or none
    of English and, names apart, at least 40 % words that no English text of the lexicon has. Of 31,601 questions and
    answers of eleven English data sets 10 are said to be, most of them titles and names in other languages.

    >>> is_foreign("No puedo responder a esa pregunta."), is_foreign("Cheap red shoes, size nine?"), is_foreign("Yes.")
    (True, False, False)
    """
    words = LETTERS_PATTERN.findall(text)
    if not text.isascii():
        letters, others = sum(map(len, words)), len(OTHER_SCRIPT_PATTERN.findall(text))
        if letters >= LEAST_LETTERS and 2 * others > letters:
            return True
    common = sum(map(FOREIGN_WORDS.__contains__, map(str.lower, words)))
    if common < LEAST_COMMON and not PLAIN_ENGLISH_WORDS.isdisjoint(text.lower().split()):
        # as most English texts: one such word suffices, and none need be stemmed
        return False
    english = sum(map(ENGLISH_WORDS.__contains__, split_words(text)))
    if common >= LEAST_COMMON and common > english:
        return True
    if english or len(words) < LEAST_WORDS or CODE_PATTERN.search(text):
        return False
    known = load_idf().rarities
    unknown = [
        word
        for word in words
        if word[0].islower() and not all(stem in known or stem in STOP_WORDS for stem in split_words(word))
    ]
    return len(unknown) >= MIN_UNKNOWN_SHARE * len(words)


def knows_english_only(judge: str) -> bool:
    """Return whether a judge, by its fingerprint, knows English only."""
    return re.split("[ /]", judge, maxsplit=1)[0] in ENGLISH_JUDGES


def describe_foreign(judge: str, foreign: int, traces: int, of: str = "") -> str | None:
    """Describe how many traces are in a language that the judge does not know; None where that is no trouble.

    >>> describe_foreign("embedded/6 a=b", 9, 12, of="v1")
    'at least 9 of 12 traces of v1 have a query or answer in another language; embedded/6 knows English only: do not
     rely on its verdicts on them, take another judge (--judge llm:MODEL)'
    >>> describe_foreign("llm:some-model/1", 9, 12)
    """
    name = judge.split(" ", maxsplit=1)[0]
    if not knows_english_only(judge) or not foreign or foreign < MIN_FOREIGN_SHARE * traces:
        return None
    # of a few words none may be told
    least = "at least " if foreign < traces else ""
    which = f"{least}{foreign:,} of {traces:,} traces{f' of {of}' if of else ''}"
    return (
        f"{which} {'have' if foreign != 1 else 'has'} a query or answer in another language; {name} knows English "
        "only: do not rely on its verdicts on them, take another judge (--judge llm:MODEL)"
    )


def has_markup(answer: str) -> bool:
    """Return whether an answer is JSON, or holds tags that do not only format text, reasoning or fenced code."""
    plain = strip_tags(answer)
    return "```" in plain or is_wrapped(plain)


def describe_wrapped(judge: str, wrapped: int, traces: int, of: str = "") -> str | None:
    """Describe how many answers hold markup that the judge reads as their words; None where that is no trouble.

    >>> describe_wrapped("embedded/6 a=b", 12, 12)
    '12 of 12 answers are JSON, or hold tags, code, reasoning or the like, which embedded/6 reads as words: record plain
     ones'
    """
    name = judge.split(" ", maxsplit=1)[0]
    if name.split("/")[0] not in WORD_JUDGES or wrapped < max(1, MARKUP_SHARE * traces):
        return None
    which = f"{wrapped:,} of {traces:,} answers{f' of {of}' if of else ''}"
    return (
        f"{which} are JSON, or hold tags, code, reasoning or the like, which {name} reads as words: record plain ones"
    )
