"""In which language a text is, as far as its script and its common words tell."""

from __future__ import annotations

import re

from ragfault.judges.checks.lexicon import load_idf
from ragfault.text.normalization import ENGLISH_WORDS, STOP_WORDS, split_words

ENGLISH, OTHER = "en", "other"
LANGUAGE_NAMES = {
    "en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "pt": "Portuguese",
    "nl": "Dutch", "pl": "Polish", "zh": "Chinese", "ja": "Japanese", "sv": "a Nordic language",
    OTHER: "another language",
}  # fmt: skip
"""Code → name of each language that can be detected; Danish, Norwegian and Swedish count as one."""
COMMON_WORDS = {
    "de": """der das dem den und ist nicht ein eine einen einem mit auf für von zu sich auch wird werden bei oder wie
    nach sind vom zum zur aus beim durch""",
    "fr": "le les des et est une du dans avec pas qui que au aux ce cette sont ou il elle ne sur",
    "es": "el los las y con por como se su lo más una del al está pero que",
    "it": "gli della di che è non sono nel alla dei delle per il una con del",
    "pt": "o os da dos em um uma não com são na à que por se",
    "nl": "het een van dat niet voor op aan zijn wordt worden ook naar uit",
    "sv": "og och det ett av af til till på er är som ikke inte med den har ved fra från kan",
    "pl": "w z się nie jest i od że są przez oraz",
}
"""Common words of languages in Latin script; some are of several."""
FOREIGN_WORDS = frozenset(" ".join(COMMON_WORDS.values()).split()) - STOP_WORDS
"""Those of them that are none in English; some stand in names as well."""
PLAIN_ENGLISH_WORDS = ENGLISH_WORDS & STOP_WORDS
"""Those of the common English words that are their own stems."""
LETTERS_PATTERN = re.compile(r"[^\W\d_]+")
CODE_PATTERN = re.compile(r"[_={}<>;\\/@#|`]|\w\(")
"""Signs of code, paths and addresses, whose words are in no lexicon."""
OTHER_SCRIPT_PATTERN = re.compile(r"[^\W\d_\x00-\u024f\u1e00-\u1eff]")
"""A letter that is not Latin; the second range holds the letters of Vietnamese."""
KANA_PATTERN, HAN_PATTERN = re.compile(r"[\u3040-\u30ff]"), re.compile(r"[\u3400-\u9fff]")
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
    return len(_list_unknown_words(text)) >= MIN_UNKNOWN_SHARE * len(words)


def shows_english(text: str) -> bool:
    """Return whether a text shows that it is English: it has more common English words than words that none has.

    >>> shows_english("How do I return a licence?"), shows_english("Puis-je rendre ma licence ?")
    (True, False)
    """
    english = sum(map(ENGLISH_WORDS.__contains__, split_words(text)))
    return not is_foreign(text) and english > len(_list_unknown_words(text))


def _list_unknown_words(text: str) -> list[str]:
    """List the words, names apart, that no English text of the lexicon has."""
    known = load_idf().rarities
    return [
        word
        for word in LETTERS_PATTERN.findall(text)
        if word[0].islower() and not all(stem in known or stem in STOP_WORDS for stem in split_words(word))
    ]


def detect_language(text: str) -> str:
    """Return the code of the language of a text, `OTHER` for one that is not told apart; of a few words none may be.

    >>> [detect_language(text) for text in ("Der Antrag ist nicht da.", "営業時間は何時ですか。", "Yes.")]
    ['de', 'ja', 'en']
    """
    if not is_foreign(text):
        return ENGLISH
    letters = sum(map(len, LETTERS_PATTERN.findall(text)))
    if 2 * len(OTHER_SCRIPT_PATTERN.findall(text)) > letters:
        if KANA_PATTERN.search(text):
            return "ja"
        return "zh" if 2 * len(HAN_PATTERN.findall(text)) > letters else OTHER
    words = [word.lower() for word in LETTERS_PATTERN.findall(text)]
    counts = {code: sum(word in common for word in words) for code, common in COMMON_BY_LANGUAGE.items()}
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] else OTHER


COMMON_BY_LANGUAGE = {code: frozenset(words.split()) for code, words in COMMON_WORDS.items()}
