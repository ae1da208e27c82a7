"""Claims: the checkable sentences of an answer, and what is said without claiming anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from ragfault.judges.talk import idle
from ragfault.text import content, sentences

__all__ = ["Claim", "bare", "claims", "refused", "refuses"]

LEAD = re.compile(r"(?:[-*•–]|#+|>|\(?(?:\d{1,3}|[A-Za-z])[.)])\s+")
MARK = re.compile(
    r"\s*(?:\[(?:\d{1,3}(?:[,;–-]\s*)?)+\]|【[^】]{0,40}】|\((?:source|passage|chunk|doc(?:ument)?)s? ?\d+\))",
    re.IGNORECASE,
)
EMPTY = re.compile(
    r"(?:i |we )?(?:hope|trust) (?:this|that|it|you)\b|you(?:'re| are) welcome"
    r"|(?:please )?(?:let me know|feel free|do not hesitate)"
    r"|(?:sure|certainly|of course|absolutely|okay|ok)[,!.:]? (?:here|i)\b"
    r"|(?:sure|certainly|of course|absolutely|okay|ok|hello|hi|hey|dear|thanks|thank you|great question|good luck)\b"
    r"[^.]{0,60}[,!:.]?$"
    r"|here(?:'s| is| are) (?:a |an |the |my |some |your )?(?:[\w-]+ ){0,6}"
    r"(?:summary|overview|answer|response|list|steps?|points?)\b"
    r"|(?:in )?(?:summary|conclusion|short)[:.]?$"
    r"|based on the (?:\w+ ){0,3}(?:passages?|context|information|data)[^,]{0,40}[:,]?$",
    re.IGNORECASE,
)
NOUNS = (
    r"(?:handbooks?|documentation|manuals?|guides?|materials?|sections?|documents?|sources?|passages?|context"
    r"|texts?)"
)
"""What an answer calls the texts it was given."""
CANNOT = re.compile(
    r"\b(?:unable|not able|not possible|impossible|difficult) to"
    r" (?:answer|determine|provide|find|say|tell|confirm|give|help|assist)"
    r"|\b(?:do(?:es)?|did)(?: ?not|n['’]t) say anything (?:about|on)\b|\bsays? nothing (?:about|on)\b"
    r"|\b(?:that|this|it)(?:['’]s not| is not| isn['’]t| was not| wasn['’]t) (?:\w+ )?"
    r"(?:covered|addressed|answered|described|discussed|mentioned|found|included) (?:by|in) (?:\w+ ){1,2}"
    + NOUNS
    + r"\b"
    r"|\b(?:can|could)(?: ?not|n't)"
    r" (?:answer|be (?:answered|determined)|determine|find|provide|tell|confirm|help|assist|say\b)"
    r"|\bi(?:'m| am)? (?:do not|don't|not sure|have no|am sorry|sorry)\b.{0,30}"
    r"\b(?:know|information|sure|answer|help|sorry|have)"
    r"|\b(?:do(?:es)?|did|is|are|was|were)(?: ?not|n't) (?:\w+ ){0,2}"
    r"(?:provide|contain|mention|specify|include|state|give|offer|address|discuss"
    r"|mentioned|specified|provided|stated|given|available|enough|sufficient)\b"
    r"|\b(?:no|not enough|insufficient|lacks?(?: the)?|without) (?:\w+ ){0,3}"
    r"(?:information|mention|details?|data|answer|context|evidence) "
    r"(?:is|are|was|were|about|on|in|to|regarding|provided|available|given|of|that|for)\b",
)
"""How a sentence in lower case says that something cannot be told."""
HINTS = (
    "not", "n't", "n’t", "no ", "have no", "sorry", "able", "possible", "difficult", "sufficient", "lack", "without"
)  # fmt: skip
"""What such a sentence holds somewhere."""
ABOUT = re.compile(
    rf"\b{NOUNS}\b|\b(?:article|information|excerpts?|chunks?|question|search results"
    r"|provided|given|data|i|we|sorry|details?|it is)\b"
)


SOURCE = re.compile(
    r"\s*[(\[]?(?:(?:as )?(?:mentioned|stated|described|noted|given|found|seen|suggested|provided|shown) (?:in|by)"
    r"|according to|based on|from|in|per|see)? ?(?:the )?"
    r"\b(?:passage|document|source|context|excerpt|chunk)s? (?:#?\d+)(?:,? (?:and|&|,) #?\d+)*[)\]]?,?",
    re.IGNORECASE,
)
NUMBERED = re.compile(r"(?:passage|document|source|context|excerpt|chunk)s? #?\d")
"""What a text in lower case holds that says where it was read."""


class Claim(NamedTuple):
    """A checkable sentence and where it stands in the answer."""

    text: str
    start: int
    end: int


def claims(answer: str, meant: Callable[[str], bool] | None = None) -> list[Claim]:
    """The checkable sentences of an answer.

    Questions, greetings, headings, offers of help and refusals claim nothing. Nor does small talk, unless it
    is `meant`, because words so general are the very subject of the query or of a source, or is all there is.

    >>> [claim.text for claim in claims("Sure! Oslo is old. It was founded in 1040 [1]. Shall I go on?")]
    ['Oslo is old.', 'It was founded in 1040 [1].']
    """
    found: list[Claim] = []
    talk: list[Claim] = []
    for start, end in sentences(answer):
        lead = LEAD.match(answer, start, end)
        begin = lead.end() if lead else start
        text = answer[begin:end]
        if answer[start] == "#" or not _claims(text):
            continue
        small = not lead and idle(bare(text)) and not (meant and meant(text))
        (talk if small else found).append(Claim(text, begin, end))
    if talk and not found and not any(refuses(answer[start:end]) for start, end in sentences(answer)):
        return talk
    return found


@lru_cache(maxsize=1 << 12)
def bare(text: str) -> str:
    """A claim without citation marks, emphasis, and words about where it was read.

    >>> bare("It was **founded** in 1040 [1, 2].")
    'It was founded in 1040.'
    >>> bare("According to passage 2, it was founded in 1040 (Passage 1).")
    'it was founded in 1040.'
    """
    text = text.replace("**", "").replace("__", "")
    if "[" in text or "(" in text or "【" in text:
        text = MARK.sub("", text)
    return SOURCE.sub("", text).lstrip(" ,") if NUMBERED.search(text.lower()) else text


@lru_cache(maxsize=1 << 12)
def refuses(sentence: str) -> bool:
    """Whether a sentence says that the question cannot be answered, or that the sources are silent.

    >>> refuses("The passages do not mention a deadline."), refuses("Dogs cannot provide wool.")
    (True, False)
    >>> refuses("The sections I have do not say anything about that."), refuses("The ticket does not cover parking.")
    (True, False)
    """
    low = sentence.lower()
    return any(hint in low for hint in HINTS) and bool(CANNOT.search(low)) and bool(ABOUT.search(low))


def refused(answer: str) -> bool:
    """Whether an answer as a whole is a refusal: it says so first, and claims next to nothing beside.

    >>> refused("I'm sorry, I don't have information about that."), refused("Oslo was founded in 1040.")
    (True, False)
    """
    spans = sentences(answer)
    refusing = [refuses(answer[start:end]) for start, end in spans]
    if not any(refusing):
        return False
    said = len(claims(answer))
    return said <= 1 if refusing[0] or said == 0 else False


def _claims(text: str) -> bool:
    """Whether a sentence claims something that can be checked."""
    plain = bare(text).strip(" *_\"'")
    if not plain or plain.endswith("?") or EMPTY.match(plain) or refuses(plain):
        return False
    if plain.endswith(":") and len(plain) < 120:
        return False
    held = content(plain)
    if not held:
        return False
    heading = (
        len(held) <= 6 and plain[-1].isalnum() and text.startswith("**") and text.rstrip().endswith("**")
    )
    return not heading
