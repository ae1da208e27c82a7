"""Further questions about the handbook, made by templates from its own sentences and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ragfault.records import Gold, Span, Trace

from .chunking import blocks
from .words import chance, pick, sentences, words

__all__ = ["combined", "of_sentences", "of_tables"]

VERB = (
    r"(?P<verb>must not|may not|cannot|must|may|can|is|are|costs?|pays?|has|have|takes?|needs?|receives?|holds?|"
    r"carries|carry|stands?|was|were)"
)
SUBJECT = re.compile(rf"^(?P<subject>(?:[\w'’£.-]+,? ){{1,8}}?){VERB} (?P<rest>.+)$")
VAGUE = re.compile(
    r"^(?:It|They|This|That|These|Those|He|She|Both|Each|All|None|Here|There|If|When|In|On|At|From|For|Under|After|"
    r"Before|During|With|Within|Of|As|Anyone|Nobody|No|Every|Last)\b"
)
"""Openings after which what stands before the verb names nothing that could be asked about by itself."""
ASKS: Mapping[str, tuple[str, ...]] = {
    "must": ("What is required of {0}?", "What obligation is there for {0}?"),
    "must not": ("What is forbidden for {0}?",),
    "may not": ("What is forbidden for {0}?",),
    "cannot": ("What is not possible for {0}?",),
    "may": ("What is allowed for {0}?", "What permission is given for {0}?"),
    "cost": ("How much is charged for {0}?", "What is the price of {0}?"),
    "pay": ("How much money is due from {0}?",),
    "": ("What is the rule on {0}?", "What applies to {0}?", "Can you tell me how it stands with {0}?"),
}
BROKEN = re.compile(r"\b(?:and|or|but|that|which|who|work|serve|travel)(?: |,|$)")
"""What shows that the words before the verb are more than a subject."""
COMBINATIONS = 200


def of_sentences(documents: Mapping[str, str]) -> Iterator[Trace]:
    """Return one question for every sentence whose subject can be told, the section named in every other one."""
    for name, text in documents.items():
        for begin, finish, title in blocks(text):
            for start, end in sentences(text, begin, finish):
                asked = question(text[start:end], title)
                if asked:
                    yield _statement_of(f"{_stem(name)}-s{start}", name, asked, text[start:end], ((start, end),))


def question(sentence: str, title: str) -> str | None:
    """Return the question that a sentence answers; None where its subject cannot be told.

    >>> question("Unaccompanied trailers must be delivered by noon.", "Freight")
    'What obligation is there for unaccompanied trailers under “Freight”?'
    """
    match = SUBJECT.match(sentence)
    if not match or VAGUE.match(sentence) or BROKEN.search(match["subject"]) or not words(match["subject"]):
        return None
    verb = match["verb"]
    forms = ASKS.get(verb) or ASKS.get(verb.removesuffix("s")) or ASKS[""]
    subject = match["subject"].strip(" ,")
    named = re.match(r"(?:Route|Port|Ardvane|Scarra|MV|VHF|Class|Regatta|Christmas|[A-Z]{2}|[A-Z]-)", subject)
    asked = pick(forms, "form", sentence).format(subject if named else subject[0].lower() + subject[1:])
    if chance("title", sentence) < 0.5 and len(words(subject)) > 1:
        return asked
    return f"{asked[:-1]} under “{title}”?"


def of_tables(documents: Mapping[str, str]) -> Iterator[Trace]:
    """Return one question for every cell of every table."""
    for name, text in documents.items():
        for begin, finish, title in blocks(text):
            rows = [(a, b) for a, b in sentences(text, begin, finish) if text[a] == "|"]
            heads: Sequence[str] = ()
            for a, b in rows:
                cells = [cell.strip() for cell in text[a:b].strip("|").split("|")]
                heads = heads or cells
                if cells == heads:
                    continue
                for i, cell in enumerate(cells[1:], start=1):
                    asked = f"What does the table “{title}” give as {heads[i]} for {cells[0]}?"
                    statement = f"For {cells[0]} the {heads[i]} is {cell}."
                    yield _statement_of(f"{_stem(name)}-t{a}-{i}", name, asked, statement, ((a, b),))


def combined(questions: Sequence[Trace]) -> Iterator[Trace]:
    """Return questions about two things at once, each told in another sentence."""
    order = sorted(questions, key=lambda question: chance("combined", question.id))
    half = len(order) // 2
    for left, right in list(zip(order, [*order[half:], *order[:half]], strict=True))[:COMBINATIONS]:
        query = f"{left.query[:-1]}, and {right.query[0].lower()}{right.query[1:]}"
        spans = (*(left.gold.spans if left.gold else ()), *(right.gold.spans if right.gold else ()))
        yield Trace(
            id=f"{left.id}+{right.id}",
            query=query,
            reference=f"{left.reference} {right.reference}",
            facts=(*(left.facts or ()), *(right.facts or ())),
            gold=Gold(spans=spans),
            route="combined",
        )


def _statement_of(name: str, document: str, query: str, statement: str, spans: Sequence[tuple[int, int]]) -> Trace:
    return Trace(
        id=name,
        query=query,
        reference=statement,
        facts=(statement,),
        gold=Gold(spans=tuple(Span(document=document, start=a, end=b) for a, b in spans)),
        route=_stem(document),
    )


def _stem(name: str) -> str:
    return name.removesuffix(".md")
