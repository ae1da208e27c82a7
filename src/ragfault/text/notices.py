"""Notices: sentences that stand word for word in nearly all texts, such as a disclaimer or a greeting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ragfault.text.sentences import split_sentences

NOTICE_SHARE = 0.9  # of the texts; a model that wanders words it in several ways
MAX_SHOWN = 60  # characters
LEAST_WORDS = 5  # of a sentence; shorter ones are phrases that a model likes


def find_notices(texts: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """Find the sentences of at least five words that nine in ten of the texts hold, and none of the others.

    In the order of the first text that holds one; none where there are no texts.

    >>> answers = [f"Pier {number} is open. A machine wrote this, so check it." for number in range(10)]
    >>> find_notices(answers, ["Pier 3 is open."])
    ('A machine wrote this, so check it.',)
    """
    sentences = [_list_sentences(text) for text in texts]
    counts = Counter(sentence for listed in sentences for sentence in dict.fromkeys(listed))
    frequent = [sentence for sentence, count in counts.items() if count >= NOTICE_SHARE * len(texts)]
    long = [sentence for sentence in frequent if len(sentence.split()) >= LEAST_WORDS]
    return tuple(sentence for sentence in long if not any(sentence in other for other in others))


def cut_notices(text: str, notices: Sequence[str]) -> str:
    """Remove notices from a text.

    >>> cut_notices("It is open. A machine wrote this.", ["A machine wrote this."])
    'It is open.'
    """
    for notice in notices:
        text = text.replace(notice, " ")
    return " ".join(text.split())


def clip_notice(notice: str) -> str:
    """Quote the beginning of a notice, at most 60 characters, without braces.

    >>> clip_notice("A machine wrote {this}.")
    '"A machine wrote this."'
    """
    text = " ".join(notice.replace("{", "").replace("}", "").split())
    return f'"{text}"' if len(text) <= MAX_SHOWN else f'"{text[:MAX_SHOWN]}…"'


def _list_sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]
