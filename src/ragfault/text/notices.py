"""Notices: sentences or lines around what texts say, the same in many of them but for names, dates and numbers.

Such as a disclaimer, a greeting, a signature, a date or the number of a ticket.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from ragfault.text.normalization import split_content_words
from ragfault.text.sentences import split_sentences

# of the texts; a model words some of its notices differently
NOTICE_SHARE = 0.9
# of the texts; what begins or ends fewer is no variant of a notice
VARIANT_SHARE = 0.1
# texts
LEAST_VARIANTS = 5
# sentences of a notice at the beginning, and at the end
MAX_OUTER_SENTENCES = 5
# characters
MAX_SHOWN = 60
# of a sentence within a text; shorter ones are phrases that a model often uses
LEAST_WORDS = 5
MONTH = r"(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)[a-z]*\.?"
DATE_PATTERN = re.compile(
    r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?)?"
    r"|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th|\.)? {MONTH},? \d{{4}}\b|\b{MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}\b"
)
ASIDE_PATTERN = re.compile(
    r"\b(?:answer|response|reply|assistant|chatbot|bot|ai|language model|generated|automatic(?:ally)?|automated"
    r"|confidence|updated|disclaimer|advice|regards|sincerely)\b"
)
"""Words about an answer or who gives it, and not about its subject, in lower case."""
ONLY_DATES = re.compile(rf"(?>(?:{DATE_PATTERN.pattern}|[ .()])*)")
LINK_PATTERN = re.compile(r"https?://|www\.|\S@\S")

Stretch = tuple[int, int]
"""Where a stretch of a text begins and ends."""


def locate_notices(texts: Sequence[str], counterparts: Sequence[str]) -> list[tuple[Stretch, ...]]:
    """Locate the notices of each text, as stretches in their order; none of them may stand in the other texts.

    A sentence of at least five words that nine in ten of the texts hold is one. So are the first or last sentences
    where those of nine in ten texts are one of a few, names and numbers apart; never all of a text.

    >>> answers = [f"Hi Ann! Pier {number} is open. Ticket {number * 7} is closed." for number in range(10)]
    >>> [answers[3][start:end] for start, end in locate_notices(answers, ["Pier 3 is open."])[3]]
    ['Hi Ann!', 'Ticket 21 is closed.']
    """
    sentences = [split_sentences(text) for text in texts]
    same = _find_same_sentences(texts, sentences, counterparts)
    notices: list[list[Stretch]] = []
    rests: list[list[Stretch]] = []
    for text, spans in zip(texts, sentences, strict=True):
        notices.append([(start, end) for start, end in spans if text[start:end] in same])
        rests.append([(start, end) for start, end in spans if text[start:end] not in same])
    for at in (-1, 0):
        for _ in range(MAX_OUTER_SENTENCES):
            outer = _find_outer_sentences(texts, rests, counterparts, at)
            for number, span in outer.items():
                notices[number].append(span)
                rests[number].remove(span)
            if not outer:
                break
    return [tuple(sorted(spans)) for spans in notices]


def _find_same_sentences(
    texts: Sequence[str], sentences: Sequence[Sequence[Stretch]], counterparts: Sequence[str]
) -> frozenset[str]:
    counts = Counter(
        sentence
        for text, spans in zip(texts, sentences, strict=True)
        for sentence in dict.fromkeys(text[start:end] for start, end in spans)
    )
    frequent = [sentence for sentence, count in counts.items() if count >= NOTICE_SHARE * len(texts)]
    long = [sentence for sentence in frequent if len(sentence.split()) >= LEAST_WORDS]
    return frozenset(sentence for sentence in long if not any(sentence in counterpart for counterpart in counterparts))


def _find_outer_sentences(
    texts: Sequence[str], rests: Sequence[Sequence[Stretch]], counterparts: Sequence[str], at: int
) -> dict[int, Stretch]:
    """Return the first (at 0) or last (at -1) sentence of each text that is a variant of a notice; none without one."""
    forms = {
        number: list_forms(texts[number][slice(*spans[at])]) for number, spans in enumerate(rests) if len(spans) > 1
    }
    counts = Counter(form for lines in forms.values() for form in lines)
    least = max(LEAST_VARIANTS, VARIANT_SHARE * len(texts))
    frequent = {form for form, count in counts.items() if count >= least}
    if sum(not frequent.isdisjoint(lines) for lines in forms.values()) < NOTICE_SHARE * len(texts):
        return {}
    for counterpart in counterparts:
        for start, end in split_sentences(counterpart):
            frequent.difference_update(list_forms(counterpart[start:end]))
    outer = {number: rests[number][at] for number, lines in forms.items() if not frequent.isdisjoint(lines)}
    return outer if len(outer) >= NOTICE_SHARE * len(texts) else {}


def locate_added_lines(texts: Sequence[str], others: Sequence[Sequence[str]], least: int) -> list[tuple[Stretch, ...]]:
    """Locate the notices that some texts hold as lines of their own, or as last sentences about the text itself.

    The first or last lines of at least so many distinct texts have the same form, names, dates and numbers apart, which
    no line of the texts beside each (`others`) has, and hold other words than these. A line of names belongs to the one
    beside it.

    >>> answers = [f"Pier {number} is open.\\nConfidence: {number} %" for number in range(6)]
    >>> [text[start:end] for text in answers[:1] for start, end in locate_added_lines(answers, [()] * 6, 5)[0]]
    ['Confidence: 0 %']
    """
    list_line_forms = cache(lambda text: frozenset().union(*map(list_forms, text.split("\n"))))
    list_words = cache(lambda text: frozenset(split_content_words(text)))
    notices: list[list[Stretch]] = [[] for _ in texts]
    rests = [(len(text) - len(text.lstrip()), len(text.rstrip())) for text in texts]
    for _ in range(MAX_OUTER_SENTENCES):
        before = sum(map(len, notices))
        for find_outer in (_find_last_lines, _find_last_line, _find_first_lines, _find_first_line, _find_aside):
            outer = {number: find_outer(text, *rests[number]) for number, text in enumerate(texts)}
            forms = {number: list_forms(texts[number][slice(*span)]) for number, span in outer.items() if span}
            frequent = _count_forms(texts, forms, least)
            for number in [number for number, lines in forms.items() if lines & frequent]:
                forms[number] = forms[number].difference(*map(list_line_forms, others[number]))
                span = outer[number]
                if span and _repeats_words(texts[number][slice(*span)], list(map(list_words, others[number]))):
                    forms[number] = frozenset()
            frequent = frequent and _count_forms(texts, forms, least)
            cut = {number: span for number, lines in forms.items() if (span := outer[number]) and lines & frequent}
            for number, span in cut.items():
                notices[number].append(span)
                rests[number] = _trim(texts[number], rests[number], span)
        if sum(map(len, notices)) == before:
            break
    return [tuple(sorted(spans)) for spans in notices]


def _repeats_words(line: str, sources: Sequence[frozenset[str]]) -> bool:
    """Return whether other texts hold half of the content words of a line, numbers apart; such a line is no notice."""
    words = {word for word in split_content_words(line) if not word[0].isdigit()}
    return bool(words) and 2 * len(words.difference(*sources)) <= len(words)


def _count_forms(texts: Sequence[str], forms: Mapping[int, frozenset[str]], least: int) -> set[str]:
    """Return the forms of at least so many distinct texts."""
    counts = Counter(form for form, _ in {(form, texts[number]) for number, lines in forms.items() for form in lines})
    return {form for form, count in counts.items() if count >= least}


def _trim(text: str, remaining: Stretch, notice: Stretch) -> Stretch:
    """Return what is left of the rest of a text without a notice at its beginning or end, and white space."""
    begin, stop = (notice[1], remaining[1]) if notice[0] == remaining[0] else (remaining[0], notice[0])
    inner = text[begin:stop]
    return begin + len(inner) - len(inner.lstrip()), stop - len(inner) + len(inner.rstrip())


def _find_last_line(text: str, begin: int, stop: int) -> Stretch | None:
    """Return the last line; None where no line stands before."""
    start = text.rfind("\n", begin, stop)
    return None if start < 0 else (start + 1, stop)


def _find_last_lines(text: str, begin: int, stop: int) -> Stretch | None:
    """Return the last line that is more than names and numbers, and those behind it; None where no line is before."""
    start = stop
    while (start := text.rfind("\n", begin, start)) >= 0:
        if _has_words(text[start:stop].strip().split("\n")[0]):
            return start + 1, stop
    return None


def _find_first_line(text: str, begin: int, stop: int) -> Stretch | None:
    """Return the first line; None where no line stands behind."""
    end = text.find("\n", begin, stop)
    return None if end < 0 else (begin, end)


def _find_first_lines(text: str, begin: int, stop: int) -> Stretch | None:
    """Return the lines to the first that is more than names and numbers; None where no line stands behind."""
    end = begin
    while (end := text.find("\n", end, stop)) >= 0:
        if _has_words(text[begin:end].strip().split("\n")[-1]):
            return begin, end
        end += 1
    return None


def _has_words(line: str) -> bool:
    return any(_mask_word(word) == word != "" and any(map(str.isalpha, word)) for word in line.split())


def _find_aside(text: str, begin: int, stop: int) -> Stretch | None:
    """Return the last sentences, from the first that is about the text itself, or a date; None where it begins so."""
    sentences = [(begin + start, begin + end) for start, end in split_sentences(text[begin:stop])]
    if len(sentences) < 2:
        return None
    for index, (start, end) in enumerate(sentences):
        if ASIDE_PATTERN.search(text[start:end].lower()) or ONLY_DATES.fullmatch(text[start:end]):
            return (start, stop) if index else None
    return None


def list_forms(sentence: str) -> frozenset[str]:
    """Return a sentence with placeholders for links, dates, numbers and names, its first word as it is and as a name.

    A form without a word of its own is left out, unless the sentence has none.

    >>> sorted(list_forms("Ann closed ticket A-17 on Monday."))
    ['Ann closed ticket # on ~', '~ closed ticket # on ~']
    """
    words = DATE_PATTERN.sub("date", sentence).split()
    masked = [_mask_word(word) for word in words]
    forms = set()
    for first in (words[0] if words and masked[0] == "~" else "", ""):
        parts = [first, *masked[1:]] if first else masked
        joined = " ".join(part for i, part in enumerate(parts) if part != "~" or i == 0 or parts[i - 1] != "~")
        if any(part not in ("@", "#", "~") and any(map(str.isalpha, part)) for part in parts):
            forms.add(joined)
    return frozenset(forms)


def _mask_word(word: str) -> str:
    if LINK_PATTERN.search(word):
        return "@"
    if any(map(str.isdigit, word)):
        return "#"
    return "~" if word.strip("\"'(*_“‘")[:1].isupper() else word


def cut_stretches(text: str, stretches: Sequence[Stretch]) -> str:
    """Remove stretches from a text; the lines of the rest stay.

    >>> cut_stretches("It is open. A machine wrote this.", [(12, 33)])
    'It is open.'
    """
    for start, end in sorted(stretches, reverse=True):
        text = text[:start] + text[end:]
    return text.strip()


def clip_notice(notice: str) -> str:
    """Quote the beginning of a notice, at most 60 characters, without braces.

    >>> clip_notice("A machine wrote {this}.")
    '"A machine wrote this."'
    """
    text = " ".join(notice.replace("{", "").replace("}", "").split())
    return f'"{text}"' if len(text) <= MAX_SHOWN else f'"{text[:MAX_SHOWN]}…"'
