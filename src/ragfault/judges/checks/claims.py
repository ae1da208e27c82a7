"""Claim extraction: the checkable sentences of an answer, without small talk and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from ragfault.judges.checks.lexicon import LINKING_STEMS
from ragfault.judges.checks.passages import normalize_spelling
from ragfault.judges.checks.refusals import is_refusal_sentence
from ragfault.text.citation_marks import blank_citations, remove_citations
from ragfault.text.entities import extract_entities
from ragfault.text.normalization import NEGATIONS, STOP_WORDS, split_content_words, split_words, stem_word
from ragfault.text.sentences import split_sentences

CONVERSATION_WORDS = """
adage ai aim angle answer apologize appreciate ask aspect assist assistance assistant attention chat clarify
communication complicated consider contemplate context conversation converse curiosity curious delighted delve
discuss discussion dive effort elaborate excited explain explanation explore fascinate fascinating forgive frank
glad goal grateful gratitude guide happy heart help helpful honest honestly honored hope inquiry intricate
intrigue intriguing joy knowledge matter mind nuance nuanced opinion patience patient perspective pleasure
ponder proverb query question reach reflect remark reply respond response saying share sincere strive subject
summarize talk talking thank thanks think thought thoughtful topic trust truth understand understanding unpack
viewpoint virtue walk wisdom wise wish wonder wondering worth
"""
GENERAL_WORDS = """
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
CONVERSATION_STEMS = frozenset(map(stem_word, CONVERSATION_WORDS.split()))
"""Stems of asking, answering, thinking and courtesy."""
GENERAL_STEMS = frozenset(map(stem_word, GENERAL_WORDS.split())) | CONVERSATION_STEMS
"""Those, and stems so general that a sentence of them alone cannot be checked."""
FIRST_PERSON = frozenset(("i", "me", "my", "myself", "us", "let"))
SHARED_PERSON = frozenset(("we", "our", "ours", "ourselves", "you", "your", "yours", "yourself"))
THIRD_PERSON = frozenset(("he", "him", "his", "she", "her", "hers"))
RULE_WORDS = NEGATIONS | frozenset(("must", "shall", "should", "only"))
"""Words that make a sentence a rule or a denial."""
COURTESY_OPENING = re.compile(
    r"(?:(?:i |we )?(?:really |truly |sincerely |greatly |very much )?(?:thank|appreciate)|(?:many )?thanks)\b"
    r"|as an? (?:\w+ )?(?:ai|assistant|language model|chatbot|virtual)\b"
    r"|(?:what|that(?:'s| is)|this is|it(?:'s| is)) (?:such )?an? (?:\w+ ){0,3}(?:question|query|topic)\b"
    r"|rest assured|(?:that|this) brings (?:us|me)\b|before (?:i|we) \w+|it goes without saying",
    re.IGNORECASE,
)
"""The opening of a sentence of courtesy."""
CLAUSE_BOUNDARY = re.compile(
    r"[:;]|\bthat (?!is\b)(?:the|an?|it|this|they|there|all|\w+s)\b|\bbecause\b", re.IGNORECASE
)
"""The start of a clause that may be checkable."""
MAX_TALK_WORDS = 25
"""A sentence with more content words is not small talk."""
MAX_HEADING_WORDS = 6


def is_small_talk(text: str) -> bool:
    """Return whether a sentence is about answering itself, or so general that nothing in it can be checked.

    It has no name, no figure and no rule, and its words are those of asking, answering and courtesy. With "I"
    a third of the words may be others; with "we" and "you", who may act elsewhere too, a quarter.

    >>> is_small_talk("Let me gather my thoughts first."), is_small_talk("There are many sides to consider.")
    (True, True)
    >>> is_small_talk("Let me see your ticket."), is_small_talk("We consider late claims.")
    (False, False)
    """
    tokens = split_words(text)
    content_words = [word for word in tokens if word not in STOP_WORDS and word not in LINKING_STEMS]
    if not content_words or len(content_words) > MAX_TALK_WORDS or not THIRD_PERSON.isdisjoint(tokens):
        return False
    specific_count = sum(word not in GENERAL_STEMS for word in content_words)
    if 2 * specific_count > len(content_words) or (specific_count and CLAUSE_BOUNDARY.search(text)):
        return False
    return (
        COURTESY_OPENING.match(text) is not None or _is_general(tokens, content_words, specific_count)
    ) and not _has_specifics(text, content_words)


def _is_general(tokens: Sequence[str], content_words: Sequence[str], specific_count: int) -> bool:
    """Return whether the words of a sentence, `specific_count` of them specific, only concern asking and answering."""
    has_conversation = any(word in CONVERSATION_STEMS for word in content_words)
    is_first_person = any(word.partition("'")[0] in FIRST_PERSON for word in tokens)
    if not (is_first_person or has_conversation):
        return False
    if (
        not (is_first_person and has_conversation)
        and (specific_count or len(content_words) < 3)
        and not RULE_WORDS.isdisjoint(tokens)
    ):
        return False
    if not specific_count:
        return is_first_person or len(content_words) > 1
    is_shared = has_conversation and any(word.partition("'")[0] in SHARED_PERSON for word in tokens)
    return (
        specific_count * 3 <= len(content_words)
        if is_first_person
        else is_shared and specific_count * 4 <= len(content_words)
    )


def is_personal(text: str) -> bool:
    """Return whether a sentence is about its speaker or addressee.

    >>> is_personal("Let us begin."), is_personal("Patience is a virtue.")
    (True, False)
    """
    return any(word.partition("'")[0] in FIRST_PERSON | SHARED_PERSON for word in split_words(text))


def _has_specifics(text: str, content_words: Sequence[str]) -> bool:
    if any(word[0].isdigit() for word in content_words):
        return True
    return any(not GENERAL_STEMS.issuperset(split_words(item)) for item in extract_entities(text) if item != "i")


TAG_PATTERN = re.compile(
    r"</?(?P<name>p|br|hr|div|section|article|blockquote|pre|[uod]l|li|d[td]|table|thead|tbody|t[rdh]|h[1-6]"
    r"|[abisu]|em|strong|small|mark|span|code|sub|sup)"
    r"(?:\s+[a-z-]+=(?:\"[^\s\"<>]{0,200}\"|'[^\s'<>]{0,200}'))*\s*/?>",
    re.IGNORECASE,
)
"""A tag that formats text. A value of an attribute with spaces may say something, and no tag with one is meant."""
INLINE_TAGS = frozenset(("a", "b", "i", "s", "u", "em", "strong", "small", "mark", "span", "code", "sub", "sup"))
HEADING_END = re.compile(r"\s*</h[1-6]>", re.IGNORECASE)


def blank_tags(text: str) -> str:
    r"""Return a text of the same length with line breaks or spaces for its formatting tags.

    >>> blank_tags("<p>Oslo is <i>old</i>.</p>"), blank_tags('<p title="Entry is free">')
    ('\n\n Oslo is    old    .\n\n  ', '<p title="Entry is free">')
    """
    return TAG_PATTERN.sub(_blank_tag, text) if "<" in text else text


def _blank_tag(tag: re.Match[str]) -> str:
    name = tag["name"].lower()
    return ("" if name in INLINE_TAGS else "\n" if name == "br" else "\n\n").ljust(len(tag[0]))


def strip_tags(text: str) -> str:
    """Return a text without its formatting tags.

    >>> strip_tags("<p>It is H<sub>2</sub>O.</p>")
    ' It is H2O. '
    """
    return TAG_PATTERN.sub(lambda tag: "" if tag["name"].lower() in INLINE_TAGS else " ", text) if "<" in text else text


LIST_MARKER = re.compile(r"(?:[-*•–]|#+|>|\(?(?:\d{1,3}|[A-Za-z])[.)])\s+|\|[ \t]*\d{1,3}[.)]?[ \t]*\|\s*")
FILLER_PHRASE = re.compile(
    r"(?:i |we )?(?:hope|trust) (?:this|that|it|you)\b|you(?:'re| are) welcome"
    r"|(?:please )?(?:let me know|feel free|do not hesitate)"
    r"|(?:sure|certainly|of course|absolutely|okay|ok)[,!.:]? (?:here|i)\b"
    r"|(?:sure|certainly|of course|absolutely|okay|ok|hello|hi|hey|dear|thanks|thank you|great question|good luck)\b"
    r"[^.]{0,60}[,!:.]?$"
    r"|here(?:'s| is| are) (?:a |an |the |my |some |your )?(?:[\w-]+ ){0,6}"
    r"(?:summary|overview|answer|response|list|steps?|points?)\b"
    r"|(?:in )?(?:summary|conclusion|short)[:.]?$"
    r"|based on the (?:\w+ ){0,3}(?:passages?|context|information|data)[^,]{0,40}[:,]?$"
    r"|(?:sincerely|(?:best|kind|warm) regards|yours (?:truly|sincerely|faithfully)),?$|\[(?:your|my) [\w ']{1,30}\]$",
    re.IGNORECASE,
)
SOURCE_NOUNS = (
    r"(?:handbooks?|documentation|manuals?|guides?|materials?|sections?|documents?|sources?|passages?|context"
    r"|texts?)"
)
"""Nouns with which an answer refers to the texts it was given."""
ANSWER_TALK = re.compile(
    r"here you (?:go|are)|here(?:['’]s| is| are) (?:"
    r"(?:the|a|all the|your|some) (?:short version|(?:\w+ )?(?:details?|information|breakdown|rundown))"
    r"(?: (?:that )?you (?:need|requested|asked for))?"
    rf"|what (?:i|we|the (?:\w+ )?{SOURCE_NOUNS}) (?:can |could |have |has )?(?:found|find|know|says?|tells?|states?)"
    r"(?: you)?(?: (?:about|on) (?:this|that|it))?)"
    r"|(?:the|my|your|this) (?:answer|response|reply|summary|explanation) (?:is|follows)(?: (?:as follows|below))?"
    r"|(?:(?:(?:the|this|my|all|all the) (?:answer|response|reply|summary|information|above)(?: (?:above|here))?)"
    r" (?:is|was|comes)(?: (?:all|solely|only|entirely|directly|based|taken|drawn)){0,2}"
    rf" (?:on|upon|from) (?:the|your|these) (?:\w+ )?{SOURCE_NOUNS}"
    rf"|this is (?:all )?(?:based on|taken from|according to) (?:the|your|these) "
    rf"(?:(?:provided|given|retrieved|available) {SOURCE_NOUNS}|{SOURCE_NOUNS}(?= (?:provided|given|above|you))))"
    r"(?: (?:provided|given|above|alone|that you (?:gave|provided)|you (?:gave|provided))(?: me)?)?"
    r"|i(?:['’]ve| have)? (?:looked (?:through|into|at)|checked|searched|reviewed|read|consulted|found this in)"
    rf" (?:the|your|these) (?:\w+ )?{SOURCE_NOUNS}(?: (?:provided|above|given|carefully))?(?: for you)?"
    r"|allow me to (?:explain|help)|(?:have a (?:great|good|nice|lovely)|enjoy your) (?:day|trip|time|journey)"
    r"|(?:please )?(?:see|read|refer to)(?: the)?(?: (?:details?|steps?|list|table|answer|explanation|summary))?"
    r" (?:below|above)(?: for (?:the |more )?details?)?|(?:the )?details (?:are )?below|as shown below"
    r"|(?:if anything is unclear,? )?(?:please |just )?(?:ask|reach out)(?: any ?time| if anything is unclear)?"
    r"|don['’]t hesitate to (?:ask|reach out|contact (?:me|us))|glad (?:i|we) could help|(?:best|kind) regards"
    r"|i['’]m (?:here|happy to help(?: you)?)(?: (?:if you need|with) (?:anything(?: else)?|(?:more )?help))?",
    re.IGNORECASE,
)
"""A whole sentence that says where the answer stands or what it was made from, and states nothing else."""


SOURCE_REFERENCE = re.compile(
    r"\s*[(\[]?(?:(?:as )?(?:mentioned|stated|described|noted|given|found|seen|suggested|provided|shown) (?:in|by)"
    r"|according to|based on|from|in|per|see)? ?(?:the )?"
    r"\b(?:passage|document|source|context|excerpt|chunk)s? (?:#?\d+)(?:,? (?:and|&|,) #?\d+)*[)\]]?,?",
    re.IGNORECASE,
)
SOURCE_NUMBER = re.compile(r"(?:passage|document|source|context|excerpt|chunk)s? #?\d")
"""A text in lower case that refers to a numbered source."""


SOURCE_SAYS = re.compile(
    r"(?:as (?:we can see|mentioned|stated)[^,]{0,40}, )?(?:the|this|these|both|all(?: of)? the) (?:\w+ ){0,2}?"
    r"(?:passages?|contexts?|texts?|documents?|excerpts?|sources?|articles?) (?:also |further |then |only )?"
    r"(?:says?|states?|mentions?|notes?|explains?|indicates?|suggests?|describes?|reports?|adds?|tells? us) that ",
    re.IGNORECASE,
)
"""The opening of a sentence that says what a source says."""
SOURCE_TALK = re.compile(
    r"(?:passages?|contexts?|documents?|excerpts?|sources?|chunks?) #?\d+(?:,? (?:and|&) #?\d+)*"
    r" (?:also |only |further )?(?:provides?|discuss(?:es)?|talks? about|gives?|contains?|is (?:about|relevant|related)"
    r"|are (?:about|relevant|related)|focus(?:es)? on|covers?|offers?|includes?|lists?|does not|do not)\b"
    r"|(?:(?:however|unfortunately|additionally), )?(?:none|neither) of (?:the|these|those) (?:\w+ )?"
    r"(?:passages|documents|sources|texts|excerpts|articles) (?:mentions?|provides?|address(?:es)?|discuss(?:es)?"
    r"|contains?|gives?|offers?|covers?|explains?|describes?|states?|specif(?:y|ies)|says?)\b"
    r"|(?:the|these|both|all|all the) (?:provided |given |retrieved )?(?:passages|excerpts|chunks) (?:only |mainly )?"
    r"(?:discuss|talk about|focus on|provide (?:\w+ )?information|are (?:focused on|related to))\b"
    r"|reference (?:passages?|sources?|documents?) #?\d+[^a-z]{0,9}$"
    r"|(?:sources?|references?|citations?|see also|retrieved from|further reading)\s*:"
    r"|\[?\d{0,3}\]?:?\s*https?://\S+\s*$",
    re.IGNORECASE,
)
"""A sentence about the passages themselves, or the stub of a citation."""


FINITE_VERB = (
    r"(?:(?:is|are|was|were|has|have|had|does|do|did|can|could|will|would|may|might|must|should|began|became|built|came"
    r"|gave|got|kept|led|lost|made|said|took|went|won|wrote)(?:n['’]t)?|\w+[^\We]ed)"
)
STATING_QUESTION = re.compile(
    r"\b(?:did|do) you (?:(?:also|already|even) )?know,? that (?=(?:\S+ ){2})"
    r"|\bdid you (?:(?:also|already|even) )?know,? "
    r"(?!(?:who|what|when|where|why|how|which|whose|whether|if|about|of|any\w*|some\w*|that)\b)"
    rf"(?=(?:(?!who\b|which\b|that\b)\S+ ){{1,12}}?{FINITE_VERB}\b)",
    re.IGNORECASE,
)
"""The opening of a question that states what follows: "Did you know that ..."; without "that" a verb must follow."""
DOUBTED_STATEMENT = re.compile(
    r"\bi(?:(?:['’]m| am) (?:not|n['’]t) (?:\w+ )?(?:sure|certain)| (?:do not|do n['’]t|don['’]t) (?:really )?know"
    r"| have no idea)\b[^,;.?!]{0,60}[,;]? but (?:i (?:do )?know (?:that )?)?",
    re.IGNORECASE,
)
"""A speaker's doubt, up to what the sentence states all the same: "I have no idea, but ..."."""
AUXILIARIES = r"is|are|was|were|do|does|did|has|have|had|ca|can|could|wo|will|would|should"
TAG_QUESTION = re.compile(
    rf",? (?:{AUXILIARIES}) ?n['’]t (?:it|he|she|they|we)\s*\?\W*$"
    rf"|, (?:(?:{AUXILIARIES}) (?:it|he|she|they)|right|correct|huh)\s*\?\W*$",
    re.IGNORECASE,
)
"""The question at the end of a statement: ", isn't it?"."""
INTERROGATIVE = re.compile(
    rf"(?:(?:and|but|so|or|well|then) )?(?:wh(?:o|at|en|ere|y|ich|ose)|how|shall|may|might|must|{AUXILIARIES})\b",
    re.IGNORECASE,
)
"""The opening of a question that asks."""
TABLE_HEAD = re.compile(r"(?m)^[ \t]*\|[^\n\d]*\|[ \t]*(?=\n[ \t]*\|(?:[ \t]*:?-+:?[ \t]*\|)+[ \t]*\n[ \t]*\|)")
"""The head of a Markdown table with rows: its cells name the columns. One with a figure may be a row that states it."""


class Claim(NamedTuple):
    """A checkable sentence with its span in the answer."""

    text: str
    start: int
    end: int


def extract_claims(
    answer: str, is_on_topic: Callable[[str], bool] | None = None, refuses: Callable[[str], bool] | None = None
) -> list[Claim]:
    """Return the checkable sentences of an answer.

    Questions, greetings, headings, heads of tables, offers of help and refusals are no claims. Small talk is none
    either, unless `is_on_topic` holds for it, because the query or a source is about such general words, or the
    answer has nothing else. Of a question or a doubt that states something (`locate_statement`), that is the claim.
    `refuses` decides whether a sentence refuses; without it the words do (`is_refusal_sentence`). One word that opens
    an answer ("Yes.") is one claim with the sentence that follows it.

    >>> [claim.text for claim in extract_claims("Sure! Oslo is old. It was founded in 1040 [1]. Shall I go on?")]
    ['Oslo is old.', 'It was founded in 1040 [1].']
    >>> [claim.text for claim in extract_claims("Yes. Dogs are free.")]
    ['Yes. Dogs are free.']
    """
    claims: list[Claim] = []
    talk: list[Claim] = []
    refuses = refuses or is_refusal_sentence
    plain = TABLE_HEAD.sub(lambda head: " " * len(head[0]), blank_tags(blank_citations(answer)))
    sentences = split_sentences(plain)
    for start, end in sentences:
        marker = LIST_MARKER.match(plain, start, end)
        claim_start = marker.end() if marker else start
        text = answer[claim_start:end]
        if plain[start] == "#":
            continue
        is_heading = HEADING_END.match(answer, end) is not None and "<" not in text and _is_heading(text)
        claim = Claim(text, claim_start, end)
        stated = locate_statement(plain[claim_start:end])
        if stated is not None and _is_claim(text[slice(*stated)], refuses):
            claim = Claim(text[slice(*stated)], claim_start + stated[0], claim_start + stated[1])
        elif not _is_claim(text, refuses):
            continue
        is_talk = (
            not marker and is_small_talk(strip_marks(claim.text)) and not (is_on_topic and is_on_topic(claim.text))
        )
        (talk if is_talk or is_heading else claims).extend(split_list(claim))
    if talk and not claims and not any(refuses(strip_tags(answer[start:end])) for start, end in sentences):
        return talk
    return join_opening(claims, answer)


INLINE_LIST = re.compile(r":[^:;]+(?:;[^:;]+){2,}$")
"""The items of a list in a sentence: after a colon, parted by semicolons."""


def split_list(claim: Claim) -> list[Claim]:
    """Split a sentence with a list into its items, each a claim like the lines of a list; its lead stays on the first.

    >>> [part.text for part in split_list(Claim("It has: a pool; a bar; and free parking.", 0, 40))]
    ['It has: a pool;', 'a bar;', 'and free parking.']
    """
    items = INLINE_LIST.search(claim.text)
    if items is None:
        return [claim]
    ends = [claim.start + items.start() + place + 1 for place, letter in enumerate(items[0]) if letter == ";"]
    spans = zip([claim.start, *ends], [*ends, claim.end], strict=True)
    parts = ((start, claim.text[start - claim.start : end - claim.start]) for start, end in spans)
    return [
        Claim(part.strip(), start + len(part) - len(part.lstrip()), start + len(part.rstrip())) for start, part in parts
    ]


def join_opening(claims: Sequence[Claim], answer: str) -> list[Claim]:
    """Return the claims with one of a single word joined to the one that goes on in its line, of which it is a part."""
    if len(claims) < 2 or len(split_words(strip_marks(claims[0].text))) != 1:
        return list(claims)
    first, second = claims[:2]
    if answer[first.end : second.start].strip(" "):
        return list(claims)
    return [Claim(answer[first.start : second.end], first.start, second.end), *claims[2:]]


def locate_statement(text: str) -> tuple[int, int] | None:
    """Return the span of what a question or a sentence of doubt states all the same; None where it states nothing.

    >>> for text in ("Did you know that Oslo is old?", "I don't know, but it was founded in 1040.", "Is it old?"):
    ...     span = locate_statement(text)
    ...     print(span and text[slice(*span)])
    Oslo is old
    it was founded in 1040.
    None
    """
    end = len(text.rstrip(" ?!*_\"'"))
    if "?" not in text[end:]:
        doubt = DOUBTED_STATEMENT.search(text)
        return (doubt.end(), len(text)) if doubt else None
    opening = STATING_QUESTION.search(text)
    if opening:
        return opening.end(), end
    tag = TAG_QUESTION.search(text)
    return (0, tag.start()) if tag and not INTERROGATIVE.match(text) else None


TERM = re.compile(r"\d[\d.,:]*\d|[^\W_]+(?:[-'’][^\W_]+)*")
MAX_SKIPPED = 3
"""Words of a claim that its text does not spell alike, and may be passed over before the next that it does."""


def locate_words(text: str, words: Sequence[str]) -> list[tuple[int, int] | None]:
    """Return the span of each normalized word of a claim in its text; None for a word that is spelled otherwise.

    >>> locate_words("It **never** closed [1].", ["it", "never", "close"])
    [(0, 2), (5, 10), (13, 19)]
    """
    spans: list[tuple[int, int] | None] = [None] * len(words)
    position = 0
    for term in TERM.finditer(text):
        stems = split_words(normalize_spelling(term[0]))
        for start in range(position, min(position + MAX_SKIPPED + 1, len(words))):
            if stems and tuple(words[start : start + len(stems)]) == stems:
                position = start + len(stems)
                spans[start:position] = [term.span()] * len(stems)
                break
    return spans


def join_spans(spans: Sequence[tuple[int, int] | None], selected: Sequence[bool]) -> tuple[tuple[int, int], ...]:
    """Join the spans of chosen words that follow each other.

    >>> join_spans([(0, 2), (3, 8), None, (10, 12)], [True, True, False, True])
    ((0, 8), (10, 12))
    """
    joined: list[tuple[int, int]] = []
    follows = False
    for span, is_chosen in zip(spans, selected, strict=True):
        if span is None:
            follows = follows and is_chosen
            continue
        if is_chosen and follows:
            joined[-1] = (joined[-1][0], span[1])
        elif is_chosen:
            joined.append(span)
        follows = is_chosen
    return tuple(joined)


@lru_cache(maxsize=1 << 12)
def strip_marks(text: str) -> str:
    """Return a claim without formatting tags, citation marks, emphasis and references to its source.

    >>> strip_marks("It was **founded** in 1040 [1, 2].")
    'It was founded in 1040.'
    >>> strip_marks("According to passage 2, it was founded in 1040 (Passage 1).")
    'it was founded in 1040.'
    >>> strip_marks("The passage also states that it was founded in 1040.")
    'it was founded in 1040.'
    """
    text = strip_tags(text).replace("**", "").replace("__", "")
    text = remove_citations(text)
    if SOURCE_NUMBER.search(text.lower()):
        text = SOURCE_REFERENCE.sub("", text).lstrip(" ,")
    opening = SOURCE_SAYS.match(text)
    return text[opening.end() :] if opening else text


def is_refusal(answer: str) -> bool:
    """Return whether an answer as a whole is a refusal: it refuses first and claims next to nothing else.

    >>> is_refusal("I'm sorry, I don't have information about that."), is_refusal("Oslo was founded in 1040.")
    (True, False)
    """
    sentences = [strip_tags(answer[start:end]) for start, end in split_sentences(blank_tags(answer))]
    refusing = [is_refusal_sentence(text) and locate_statement(text) is None for text in sentences]
    if not any(refusing):
        return False
    claim_count = len(extract_claims(answer))
    return claim_count <= 1 if refusing[0] or claim_count == 0 else False


def _is_claim(text: str, refuses: Callable[[str], bool]) -> bool:
    bare = strip_marks(text).strip(" *_\"'")
    if not bare or bare.endswith("?") or FILLER_PHRASE.match(bare) or refuses(bare):
        return False
    if ANSWER_TALK.fullmatch(bare.rstrip(" .!:")) or SOURCE_TALK.match(text.strip(" *_\"'([")):
        return False
    if bare.endswith(":") and len(bare) < 120:
        return False
    if not split_content_words(bare):
        return False
    return not (text.startswith("**") and text.rstrip().endswith("**") and _is_heading(bare))


def _is_heading(text: str) -> bool:
    """Return whether an emphasized line is a heading: it is short and ends without a full stop."""
    return text[-1].isalnum() and len(split_content_words(text)) <= MAX_HEADING_WORDS
