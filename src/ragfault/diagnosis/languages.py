"""Traces in a language or in markup that their judge does not know."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ragfault.judges.checks.claims import strip_tags
from ragfault.judges.checks.languages import ENGLISH, LANGUAGE_NAMES
from ragfault.text.markup import MARKUP_SHARE, is_wrapped

ENGLISH_ONLY = frozenset({ENGLISH})
KNOWN_LANGUAGES = {
    "embedded": ENGLISH_ONLY,
    "encoder": frozenset({ENGLISH, "de", "es", "fr", "it", "ja", "pl", "pt", "zh"}),
    "lexical": ENGLISH_ONLY,
}
"""Judge → the languages that it was measured in; other judges know those that their model knows."""
WORD_JUDGES = (*KNOWN_LANGUAGES, "onnx")
"""Judges that tell by words what no chunk holds, and read markup as words."""
MIN_FOREIGN_SHARE = 0.1
"""Least share of traces in another language that is reported."""
MOSTLY_FOREIGN_SHARE = 0.5
"""Share of traces in another language from which all count as such: of a few words none may be told."""


def read_judge_name(judge: str) -> str:
    """Return the name of a judge from its fingerprint."""
    return re.split("[ /]", judge, maxsplit=1)[0]


def knows_language(judge: str, language: str) -> bool:
    """Return whether a judge, by its fingerprint, was measured in a language, or is not known to be limited."""
    known = KNOWN_LANGUAGES.get(read_judge_name(judge))
    return known is None or language in known


def describe_foreign(judge: str, languages: Mapping[str, int], traces: int, of: str = "") -> str | None:
    """Describe how many traces are in a language that the judge does not know, or knows less well than English.

    `languages` counts the traces of each language but English. None where few are, or the judge is not limited.

    >>> describe_foreign("embedded/7 a=b", {"de": 9}, 12, of="v1")
    'at least 9 of 12 traces of v1 have a query or answer in another language; embedded/7 knows English only: do not
     rely on its verdicts on them, take another judge (--judge llm:MODEL)'
    >>> describe_foreign("encoder/8 a=b", {"ja": 2, "de": 10}, 12)
    '12 of 12 traces have a query or answer in German or Japanese; encoder/8 reads that less well than English: confirm
     what it says by labels or another judge (--judge llm:MODEL)'
    >>> describe_foreign("llm:some-model/1", {"de": 9}, 12)
    """
    known = {language: count for language, count in languages.items() if knows_language(judge, language)}
    name, foreign = judge.split(" ", maxsplit=1)[0], sum(languages.values())
    if read_judge_name(judge) not in KNOWN_LANGUAGES or not foreign or foreign < MIN_FOREIGN_SHARE * traces:
        return None
    read = sum(known.values())
    # The larger part of them is described.
    stated = read if 2 * read > foreign else foreign - read
    # of a few words none may be told
    least = "at least " if stated < traces else ""
    which = f"{least}{stated:,} of {traces:,} traces{f' of {of}' if of else ''}"
    which += f" {'have' if stated != 1 else 'has'} a query or answer in "
    if 2 * read > foreign:
        names = " or ".join(LANGUAGE_NAMES[language] for language in sorted(known, key=known.__getitem__, reverse=True))
        return (
            f"{which}{names}; {name} reads that less well than English: confirm what it says by labels or another "
            "judge (--judge llm:MODEL)"
        )
    knows_english = KNOWN_LANGUAGES[read_judge_name(judge)] == ENGLISH_ONLY
    return (
        f"{which}another language; {name} {'knows English only' if knows_english else 'was not measured in it'}: do "
        "not rely on its verdicts on them, take another judge (--judge llm:MODEL)"
    )


def has_markup(answer: str) -> bool:
    """Return whether an answer is JSON, or holds tags that do not only format text, reasoning or fenced code."""
    plain = strip_tags(answer)
    return "```" in plain or is_wrapped(plain)


def describe_wrapped(judge: str, wrapped: int, traces: int, of: str = "") -> str | None:
    """Describe how many answers hold markup that the judge reads as their words; None where that is no trouble.

    >>> describe_wrapped("embedded/7 a=b", 12, 12)
    '12 of 12 answers are JSON, or hold tags, code, reasoning or the like, which embedded/7 reads as words: record plain
     ones'
    """
    name = judge.split(" ", maxsplit=1)[0]
    if name.split("/")[0] not in WORD_JUDGES or wrapped < max(1, MARKUP_SHARE * traces):
        return None
    which = f"{wrapped:,} of {traces:,} answers{f' of {of}' if of else ''}"
    return (
        f"{which} are JSON, or hold tags, code, reasoning or the like, which {name} reads as words: record plain ones"
    )
