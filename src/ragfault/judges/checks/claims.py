"""Claim extraction: the checkable sentences of an answer, without small talk and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from ragfault.judges.checks.passages import normalize_spelling
from ragfault.judges.checks.refusals import is_refusal_sentence
from ragfault.judges.checks.sentence_kinds import is_talk
from ragfault.text.citation_marks import blank_citations, remove_citations
from ragfault.text.normalization import split_content_words, split_words
from ragfault.text.sentences import split_sentences

MAX_HEADING_WORDS = 6


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


def extract_claims(answer: str, refuses: Callable[[str], bool] | None = None) -> list[Claim]:
    """Return the checkable sentences of an answer.

    Questions, headings, heads of tables, refusals, talk about answering and thinking about the task (`is_talk`) are not
    claims; a heading is one if the answer has nothing else. Of a question or a doubt that states something
    (`locate_statement`), that is the claim.
    `refuses` decides whether a sentence refuses; without it the words do (`is_refusal_sentence`). One word that opens
    an answer ("Yes.") is one claim with the sentence that follows it.

    >>> [claim.text for claim in extract_claims("Sure! Oslo is old. It was founded in 1040 [1]. Shall I go on?")]
    ['Oslo is old.', 'It was founded in 1040 [1].']
    >>> [claim.text for claim in extract_claims("Yes. Dogs are free.")]
    ['Yes. Dogs are free.']
    """
    claims: list[Claim] = []
    headings: list[Claim] = []
    refuses = refuses or is_refusal_sentence
    plain = TABLE_HEAD.sub(lambda head: " " * len(head[0]), blank_tags(blank_citations(answer)))
    for start, end in split_sentences(plain):
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
        (headings if is_heading else claims).extend(split_list(claim))
    return join_opening(claims or headings, answer)


INLINE_LIST = re.compile(r":[^:;]+(?:;[^:;]+){2,}$")
"""The items of a list in a sentence: after a colon, parted by semicolons."""


def split_list(claim: Claim) -> list[Claim]:
    """Split a sentence with a list into its items, each a claim like the lines of a list; its lead stays on the first.

    >>> [part.text for part in split_list(Claim("It has: a pool; a gym; and free parking.", 0, 40))]
    ['It has: a pool;', 'a gym;', 'and free parking.']
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
    if not split_content_words(bare) or bare.endswith("?") or (bare.endswith(":") and len(bare) < 120):
        return False
    if is_talk(blank_tags(text)) or refuses(bare):
        return False
    return not (text.startswith("**") and text.rstrip().endswith("**") and _is_heading(bare))


def _is_heading(text: str) -> bool:
    """Return whether an emphasized line is a heading: it is short and ends without a full stop."""
    return text[-1].isalnum() and len(split_content_words(text)) <= MAX_HEADING_WORDS
