"""In which language a text is, by the model of py3langid."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

ENGLISH = "en"
LANGUAGE_NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German",
    "el": "Greek", "en": "English", "es": "Spanish", "et": "Estonian", "fa": "Persian", "fi": "Finnish", "fr": "French",
    "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "it": "Italian",
    "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "nl": "Dutch", "no": "Norwegian",
    "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak", "sl": "Slovenian",
    "sr": "Serbian", "sv": "Swedish", "ta": "Tamil", "te": "Telugu", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
"""Language code → English name, for each language that can be detected."""
SPELLED_NAMES = {
    "de": "german deutsch allemand alemán alemão tedesc niemieck duits ドイツ語 德语 德文",
    "en": "english englisch anglais inglés inglese inglês angiels engels 英語 英语 英文",
    "es": "spanish spanisch espagnol español spagnol espanhol hiszpańsk spaans スペイン語 西班牙语",
    "fr": "french französ français francés frances francês francusk frans フランス語 法语 法文",
    "it": "italian italien italiaans włosk イタリア語 意大利语",
    "ja": "japan japon japón giappon 日本語 日语 日文",
    "nl": "dutch niederländ holländ néerland neerland holand oland nederlands オランダ語 荷兰语",
    "pl": "polish polnisch polonais polaco polacc polon polsk pools ポーランド語 波兰语",
    "pt": "portug portoghes ポルトガル語 葡萄牙语",
    "zh": "chinese chinesisch chinois chino cines chinês chińsk chinees 中国語 中文 汉语",
}  # fmt: skip
"""Language code → how its name begins in these ten languages."""
TRANSLATING = "translat übersetz tradu przetłumacz tłumacz vertaal 翻訳 翻译 訳して"
"""How words for translating begin in them."""
LEAST_MARGIN = 10.0
"""A text counts as one in another language if that language is likelier by at least this natural logarithm."""
DETECTED_LENGTH = 1_000
"""Characters of a text that are read, from its start."""
CACHED_TEXTS = 4_096
LATIN_PATTERN = re.compile(r"[A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff]")
OTHER_SCRIPT_PATTERN = re.compile(r"[^\W\d_A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff]")
"""A letter that is not Latin."""


@cache
def _load_identifier() -> LanguageIdentifier:
    """Load the model, for the languages that have a name here; it takes half a second."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    identifier.set_languages(list(LANGUAGE_NAMES))
    return identifier


def _read_main_script(text: str) -> str:
    """Return a text without the letters of the script that has fewer of them; empty if it holds names and signs only.

    A name is a name in any language: where no word begins with a small letter, nothing tells the language.
    """
    others = len(OTHER_SCRIPT_PATTERN.findall(text))
    if others > len(LATIN_PATTERN.findall(text)):
        return LATIN_PATTERN.sub("", text)
    plain = OTHER_SCRIPT_PATTERN.sub("", text) if others else text
    return plain if any(word[0].islower() for word in plain.split()) else ""


@lru_cache(CACHED_TEXTS)
def _score_languages(text: str) -> Mapping[str, float]:
    """Return the natural logarithm of the likelihood of each language, up to a constant."""
    plain = _read_main_script(text)
    return dict(_load_identifier().rank(plain)) if plain else dict.fromkeys(LANGUAGE_NAMES, 0.0)


def _find_likeliest(text: str) -> tuple[str, Mapping[str, float]]:
    scores = _score_languages(text[:DETECTED_LENGTH])
    return max(scores, key=scores.__getitem__), scores


def detect_language(text: str) -> str:
    """Return the code of the language of a text; of names, signs and a few words it is English if nothing else shows.

    >>> [detect_language(text) for text in ("Der Antrag ist nicht da.", "営業時間は何時ですか。", "Yes.")]
    ['de', 'ja', 'en']
    """
    likeliest, scores = _find_likeliest(text)
    return likeliest if scores[likeliest] - scores[ENGLISH] >= LEAST_MARGIN else ENGLISH


def is_foreign(text: str) -> bool:
    """Return whether a text shows that it is in another language than English; of a few words none may.

    >>> is_foreign("No puedo responder a esa pregunta."), is_foreign("Cheap red shoes, size nine?"), is_foreign("Yes.")
    (True, False, False)
    """
    return detect_language(text) != ENGLISH


def may_ask_for(text: str, language: str) -> bool:
    """Return whether a text names a language, or translating, or the language has no name here.

    >>> may_ask_for("Wie heißt das auf Englisch?", "en"), may_ask_for("Wann öffnet das Bad?", "en")
    (True, False)
    """
    starts = SPELLED_NAMES.get(language)
    if starts is None:
        return True
    lowered = text.lower()
    return any(re.search(rf"(?<![a-z]){start}", lowered) for start in f"{starts} {TRANSLATING}".split())


def differ_in_language(first: str, second: str) -> bool:
    """Return whether two texts show that they are in two languages.

    >>> differ_in_language("Wann öffnet das Bad am Sonntag?", "It opens at eight.")
    True
    >>> differ_in_language("Wann öffnet das Bad am Sonntag?", "Um acht.")
    False
    """
    (language, scores), (other_language, other_scores) = _find_likeliest(first), _find_likeliest(second)
    margins = scores[language] - scores[other_language], other_scores[other_language] - other_scores[language]
    return min(margins) >= LEAST_MARGIN
