"""Notices: sentences around what texts say, the same in nearly all of them but for names and numbers.

Such as a disclaimer, a greeting, a signature or the number of a ticket.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ragfault.text.sentences import split_sentences

NOTICE_SHARE = 0.9  # of the texts; a model words some of its notices differently
VARIANT_SHARE = 0.1  # of the texts; what begins or ends fewer is no variant of a notice
LEAST_VARIANTS = 5  # texts
MAX_OUTER_SENTENCES = 5  # sentences of a notice at the beginning, and at the end
MAX_SHOWN = 60  # characters
LEAST_WORDS = 5  # of a sentence within a text; shorter ones are phrases that a model often uses
LINK_PATTERN = re.compile(r"https?://|www\.|\S@\S")

Stretch = tuple[int, int]
"""Where a stretch of a text begins and ends."""


def locate_notices(texts: Sequence[str], others: Sequence[str]) -> list[tuple[Stretch, ...]]:
    """Locate the notices of each text, as stretches in their order; none of them may stand in the other texts.

    A sentence of at least five words that nine in ten of the texts hold is one. So are the first or last sentences
    where those of nine in ten texts are one of a few, names and numbers apart; never all of a text.

    >>> answers = [f"Hi Ann! Pier {number} is open. Ticket {number * 7} is closed." for number in range(10)]
    >>> [answers[3][start:end] for start, end in locate_notices(answers, ["Pier 3 is open."])[3]]
    ['Hi Ann!', 'Ticket 21 is closed.']
    """
    sentences = [split_sentences(text) for text in texts]
    same = _find_same_sentences(texts, sentences, others)
    notices: list[list[Stretch]] = []
    rests: list[list[Stretch]] = []
    for text, spans in zip(texts, sentences, strict=True):
        notices.append([(start, end) for start, end in spans if text[start:end] in same])
        rests.append([(start, end) for start, end in spans if text[start:end] not in same])
    for at in (-1, 0):
        for _ in range(MAX_OUTER_SENTENCES):
            outer = _find_outer_sentences(texts, rests, others, at)
            for number, span in outer.items():
                notices[number].append(span)
                rests[number].remove(span)
            if not outer:
                break
    return [tuple(sorted(spans)) for spans in notices]


def _find_same_sentences(
    texts: Sequence[str], sentences: Sequence[Sequence[Stretch]], others: Sequence[str]
) -> frozenset[str]:
    counts = Counter(
        sentence
        for text, spans in zip(texts, sentences, strict=True)
        for sentence in dict.fromkeys(text[start:end] for start, end in spans)
    )
    frequent = [sentence for sentence, count in counts.items() if count >= NOTICE_SHARE * len(texts)]
    long = [sentence for sentence in frequent if len(sentence.split()) >= LEAST_WORDS]
    return frozenset(sentence for sentence in long if not any(sentence in other for other in others))


def _find_outer_sentences(
    texts: Sequence[str], rests: Sequence[Sequence[Stretch]], others: Sequence[str], at: int
) -> dict[int, Stretch]:
    """Return the first (at 0) or last (at -1) sentence of each text that is a variant of a notice; none without one."""
    forms = {
        number: list_forms(texts[number][slice(*spans[at])]) for number, spans in enumerate(rests) if len(spans) > 1
    }
    counts = Counter(form for listed in forms.values() for form in listed)
    least = max(LEAST_VARIANTS, VARIANT_SHARE * len(texts))
    frequent = {form for form, count in counts.items() if count >= least}
    if sum(not frequent.isdisjoint(listed) for listed in forms.values()) < NOTICE_SHARE * len(texts):
        return {}
    for other in others:
        for start, end in split_sentences(other):
            frequent.difference_update(list_forms(other[start:end]))
    outer = {number: rests[number][at] for number, listed in forms.items() if not frequent.isdisjoint(listed)}
    return outer if len(outer) >= NOTICE_SHARE * len(texts) else {}


def list_forms(sentence: str) -> frozenset[str]:
    """Return a sentence with placeholders for links, numbers and names, its first word as it is and as a name.

    A form without a word of its own is left out, unless the sentence has none.

    >>> sorted(list_forms("Ann closed ticket A-17 on Monday."))
    ['Ann closed ticket # on ~', '~ closed ticket # on ~']
    """
    words = sentence.split()
    masked = [_mask_word(word) for word in words]
    forms = set()
    for first in (words[0] if words and masked[0] == "~" else "", ""):
        parts = [first, *masked[1:]] if first else masked
        joined = " ".join(
            part for place, part in enumerate(parts) if part != "~" or place == 0 or parts[place - 1] != "~"
        )
        if any(part not in "@#~" for part in parts):
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
