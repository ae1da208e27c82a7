"""The short answer of a text: what it marks as its answer, and whether it gives up."""

from __future__ import annotations

import re

from ragfault.judges.checks.claims import is_refusal
from ragfault.text.sentences import split_sentences

GIVING_UP = re.compile(
    r"\b(insufficient|unable to|cannot (determine|find|identify|access|confirm|be determined)|can't (find|share)|"
    r"could(n't| not) (find|determine|identify|locate)|no (information|results?|answer|such|specific)|none found|"
    r"not (clear\w*|specif\w*|mention\w*|provide\w*|found|explicit\w*|available|directly)|unknown|"
    r"(provide|need) more (information|context)|there is no|do(es)? not exist|unfortunately|sorry)\b",
    re.IGNORECASE,
)
ANSWER_MARK = re.compile(r"<answer>(.*?)(</answer>|$)", re.IGNORECASE | re.DOTALL)


def extract_marked_answer(text: str) -> str:
    """Return what a text marks as its answer, else the text."""
    marked = ANSWER_MARK.findall(text)
    return str(marked[-1][0].strip()) if marked and marked[-1][0].strip() else text


def extract_short_answer(text: str) -> str:
    """Return what a text marks as its answer, else its last sentence.

    >>> extract_short_answer("So it is Oslo. <answer> Oslo </answer>"), extract_short_answer("It was. In 1040.")
    ('Oslo', 'In 1040.')
    """
    marked = extract_marked_answer(text)
    if marked != text:
        return marked
    sentences = split_sentences(text)
    return text[sentences[-1][0] : sentences[-1][1]].strip() if sentences else text.strip()


def gives_up(answer: str) -> bool:
    """Return whether an answer refuses or says that nothing was found.

    >>> gives_up("I could not find it."), gives_up("In 1040.")
    (True, False)
    """
    return is_refusal(answer) or bool(GIVING_UP.search(answer))
