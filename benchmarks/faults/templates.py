"""Questions about the handbook made by templates from its own sentences and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ragfault.model.records import Gold, Span, Trace

from .chunking import split_sections
from .words import chance, extract_words, pick, split_sentences

__all__ = ["ask_about_sentences", "ask_about_tables", "combine_questions"]

VERB = (
    r"(?P<verb>must not|may not|cannot|must|may|can|is|are|costs?|pays?|has|have|takes?|needs?|receives?|holds?|"
    r"carries|carry|stands?|was|were)"
)
SUBJECT = re.compile(rf"^(?P<subject>(?:[\w'’£.-]+,? ){{1,8}}?){VERB} (?P<rest>.+)$")
VAGUE_OPENING = re.compile(
    r"^(?:It|They|This|That|These|Those|He|She|Both|Each|All|None|Here|There|If|When|In|On|At|From|For|Under|After|"
    r"Before|During|With|Within|Of|As|Anyone|Nobody|No|Every|Last)\b"
)
"""Openings of sentences whose subject cannot be asked about by itself."""
QUESTION_FORMS: Mapping[str, tuple[str, ...]] = {
    "must": ("What is required of {0}?", "What obligation is there for {0}?"),
    "must not": ("What is forbidden for {0}?",),
    "may not": ("What is forbidden for {0}?",),
    "cannot": ("What is not possible for {0}?",),
    "may": ("What is allowed for {0}?", "What permission is given for {0}?"),
    "cost": ("How much is charged for {0}?", "What is the price of {0}?"),
    "pay": ("How much money is due from {0}?",),
    "": ("What is the rule on {0}?", "What applies to {0}?", "Can you tell me how it stands with {0}?"),
}
NO_SUBJECT = re.compile(r"\b(?:and|or|but|that|which|who|work|serve|travel)(?: |,|$)")
"""Words by which the words before the verb are more than a subject."""
MAX_COMBINATIONS = 200


def ask_about_sentences(documents: Mapping[str, str]) -> Iterator[Trace]:
    """Yield one question for every sentence whose subject is recognized, about half with the section's title."""
    for name, text in documents.items():
        for section_start, section_end, title in split_sections(text):
            for start, end in split_sentences(text, section_start, section_end):
                question = form_question(text[start:end], title)
                if question:
                    yield _build_question(
                        f"{_remove_suffix(name)}-s{start}", name, question, text[start:end], ((start, end),)
                    )


def form_question(sentence: str, title: str) -> str | None:
    """Return the question that a sentence answers; None where its subject is not recognized.

    >>> form_question("Unaccompanied trailers must be delivered by noon.", "Freight")
    'What obligation is there for unaccompanied trailers under “Freight”?'
    """
    match = SUBJECT.match(sentence)
    if (
        not match
        or VAGUE_OPENING.match(sentence)
        or NO_SUBJECT.search(match["subject"])
        or not extract_words(match["subject"])
    ):
        return None
    verb = match["verb"]
    forms = QUESTION_FORMS.get(verb) or QUESTION_FORMS.get(verb.removesuffix("s")) or QUESTION_FORMS[""]
    subject = match["subject"].strip(" ,")
    named = re.match(r"(?:Route|Port|Ardvane|Scarra|MV|VHF|Class|Regatta|Christmas|[A-Z]{2}|[A-Z]-)", subject)
    question = pick(forms, "form", sentence).format(subject if named else subject[0].lower() + subject[1:])
    if chance("title", sentence) < 0.5 and len(extract_words(subject)) > 1:
        return question
    return f"{question[:-1]} under “{title}”?"


def ask_about_tables(documents: Mapping[str, str]) -> Iterator[Trace]:
    """Yield one question for every cell of every table."""
    for name, text in documents.items():
        for section_start, section_end, title in split_sections(text):
            rows = [(a, b) for a, b in split_sentences(text, section_start, section_end) if text[a] == "|"]
            heads: Sequence[str] = ()
            for a, b in rows:
                cells = [cell.strip() for cell in text[a:b].strip("|").split("|")]
                heads = heads or cells
                if cells == heads:
                    continue
                for i, cell in enumerate(cells[1:], start=1):
                    question = f"What does the table “{title}” give as {heads[i]} for {cells[0]}?"
                    statement = f"For {cells[0]} the {heads[i]} is {cell}."
                    yield _build_question(f"{_remove_suffix(name)}-t{a}-{i}", name, question, statement, ((a, b),))


def combine_questions(questions: Sequence[Trace]) -> Iterator[Trace]:
    """Yield questions that join two others, whose answers are in different sentences."""
    order = sorted(questions, key=lambda question: chance("combined", question.id))
    half = len(order) // 2
    for left, right in list(zip(order, [*order[half:], *order[:half]], strict=True))[:MAX_COMBINATIONS]:
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


def _build_question(name: str, document: str, query: str, statement: str, spans: Sequence[tuple[int, int]]) -> Trace:
    return Trace(
        id=name,
        query=query,
        reference=statement,
        facts=(statement,),
        gold=Gold(spans=tuple(Span(document=document, start=a, end=b) for a, b in spans)),
        route=_remove_suffix(document),
    )


def _remove_suffix(name: str) -> str:
    return name.removesuffix(".md")
