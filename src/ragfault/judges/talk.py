"""Talk: what an answer says about the answering and about nothing else, and so does not claim."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragfault.judges.aliases import LINKS
from ragfault.text import NEGATIONS, STOP, items, stem, words

__all__ = ["idle", "personal"]

TELLING = """
adage ai aim angle answer apologize appreciate ask aspect assist assistance assistant attention chat clarify
communication complicated consider contemplate context conversation converse curiosity curious delighted delve
discuss discussion dive effort elaborate excited explain explanation explore fascinate fascinating forgive frank
glad goal grateful gratitude guide happy heart help helpful honest honestly honored hope inquiry intricate
intrigue intriguing joy knowledge matter mind nuance nuanced opinion patience patient perspective pleasure
ponder proverb query question reach reflect remark reply respond response saying share sincere strive subject
summarize talk talking thank thanks think thought thoughtful topic trust truth understand understanding unpack
viewpoint virtue walk wisdom wise wish wonder wondering worth
"""
COMMON = """
able ahead alike always apart appear approach attempt away back bear beauty begin beginning behalf believe best
better big bigger bit break brief briefly bring broad broader call care careful carefully case certain certainly
clear clearly close closer come common companion complete complex complicate concern concise core count dear
deep deeper deepest delightful deserve destination detail differ different discover easier easiest easy enjoy
everybody everyone everything excellent exciting exist expect express eye eyes fact fair far feel find fine
first follow fond forward friend friendly full further gather gem general get give go goes good great grow
guarantee happen hard hear heartfelt hello here hesitate hint hold human humble hurry hurt idea imagine
impartial important impression inform informed inspire interest interesting journey joy joyful keep keeps key
kind know language last later lead learn lend less liberty lie life light like line listen little long look lot
love lovely make many mean meet mention model moment move name natural need new nice nobody note now nowadays
often open ourselves own part path people perfect perfectly perhaps person picture place pleasant point possible
prepare problem proceed put quick quickly quite raise read ready real relax remember remind rest reveal right
say see sense serve set several shed shine side sight silly simple simplest simply sit situation small something
sometimes soon sort speak special specific spend spirit stand start state stay step still story straight succeed
support sure surprise surround take task tell theme thing thorough time today together tonight touch toward
treasure treat trip try turn useful usual valuable various view wait want way welcome well whatever whenever
wherever whole wide wisdom wonderful word world write year young
"""
TOLD = frozenset(map(stem, TELLING.split()))
"""Words of asking, answering, thinking and courtesy."""
EVERYDAY = frozenset(map(stem, COMMON.split())) | TOLD
"""Those, and words so general that with them alone nothing can be checked."""
MINE = frozenset(("i", "me", "my", "myself", "us", "let"))
OURS = frozenset(("we", "our", "ours", "ourselves", "you", "your", "yours", "yourself"))
OTHERS = frozenset(("he", "him", "his", "she", "her", "hers"))
BINDING = NEGATIONS | frozenset(("must", "shall", "should", "only"))
"""Words that make a rule or a denial of a sentence."""
COURTESY = re.compile(
    r"(?:(?:i |we )?(?:really |truly |sincerely |greatly |very much )?(?:thank|appreciate)|(?:many )?thanks)\b"
    r"|as an? (?:\w+ )?(?:ai|assistant|language model|chatbot|virtual)\b"
    r"|(?:what|that(?:'s| is)|this is|it(?:'s| is)) (?:such )?an? (?:\w+ ){0,3}(?:question|query|topic)\b"
    r"|rest assured|(?:that|this) brings (?:us|me)\b|before (?:i|we) \w+|it goes without saying",
    re.IGNORECASE,
)
"""How a sentence of courtesy begins."""
CLAUSE = re.compile(
    r"[:;]|\bthat (?!is\b)(?:the|an?|it|this|they|there|all|\w+s)\b|\bbecause\b", re.IGNORECASE
)
"""Where something is said beside."""
BROAD = 25
"""A sentence with more words of content is no mere talk."""


def idle(text: str) -> bool:
    """Whether a sentence speaks of the answering, or so generally that nothing in it could be checked.

    It names nothing, gives no figure and lays down no rule, and its words are those of asking, answering
    and courtesy. Beside "I" a third of them may be others, beside "we" and "you", who may do things
    elsewhere too, a quarter.

    >>> idle("Let me gather my thoughts first."), idle("There are many sides to consider.")
    (True, True)
    >>> idle("Let me see your ticket."), idle("We consider late claims."), idle("Members may ask the board.")
    (False, False, False)
    """
    tokens = words(text)
    held = [word for word in tokens if word not in STOP and word not in LINKS]
    if not held or len(held) > BROAD or not OTHERS.isdisjoint(tokens):
        return False
    strange = sum(word not in EVERYDAY for word in held)
    if 2 * strange > len(held) or (strange and CLAUSE.search(text)):
        return False
    return (COURTESY.match(text) is not None or _general(tokens, held, strange)) and not _names(text, held)


def _general(tokens: Sequence[str], held: Sequence[str], strange: int) -> bool:
    """Whether the words of a sentence, so many of them strange, are those of asking and answering."""
    told = any(word in TOLD for word in held)
    mine = any(word.partition("'")[0] in MINE for word in tokens)
    if not (mine or told):
        return False
    if not (mine and told) and (strange or len(held) < 3) and not BINDING.isdisjoint(tokens):
        return False
    if not strange:
        return mine or len(held) > 1
    ours = told and any(word.partition("'")[0] in OURS for word in tokens)
    return strange * 3 <= len(held) if mine else ours and strange * 4 <= len(held)


def personal(text: str) -> bool:
    """Whether a sentence speaks of who answers or of who asked.

    >>> personal("Let us begin."), personal("Patience is a virtue.")
    (True, False)
    """
    return any(word.partition("'")[0] in MINE | OURS for word in words(text))


def _names(text: str, held: Sequence[str]) -> bool:
    """Whether anything is named or counted."""
    if any(word[0].isdigit() for word in held):
        return True
    return any(not EVERYDAY.issuperset(words(item)) for item in items(text) if item != "i")
