"""Retrieval probes: queries without a model whose right place is known exactly, drafted from sentences of a corpus."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ragfault.apps.testsets.making.style import QueryStyle
from ragfault.apps.testsets.passages import WORD, CorpusIndex, Sentence
from ragfault.apps.testsets.records import QuestionKind
from ragfault.model.records import Span
from ragfault.text.normalization import STOP_WORDS, stem_word

LINK_ALONE = re.compile(r"[\W\d]*\[[^\[\]]*\](?:\([^()]*\)|\[[^\[\]]*\])?\W*")
NAME_OR_NUMBER = re.compile(
    r"\b\d+(?:[:.,/-]\d+)*(?:-?[^\W_]+)*|\b[A-Z][\w.-]*\w(?: [A-Z][\w.-]*\w){0,3}|\b[a-z]+[A-Z\d]\w*"
)
CONTRACTION = re.compile(r"['’](?:t|re|ve|ll|s|d|m)$", re.IGNORECASE)
BLANK = "____"
"""What stands in the place of the answer of a cloze."""


class Draft(NamedTuple):
    """A query with its answer key, before it is checked."""

    kind: QuestionKind
    query: str
    spans: tuple[Span, ...]
    facts: tuple[str, ...]
    reference: str | None
    answerable: bool | None
    passages: tuple[int, ...]
    """Positions of the passages that it was made from, the first of which names it."""
    note: str = ""
    """Remark on how it was made, such as the name that joins two passages."""
    rejection: str = ""
    """Reason of a rejection before the checks."""
    original: str = ""
    """The question with an answer that an unanswerable one was edited from."""
    asker: str = ""
    """The person as whom a model asked."""


def take_answer_away(draft: Draft, edit: str) -> Draft:
    """Return the draft of an unanswerable question: the edit of one that has an answer, without gold.

    >>> asked = Draft("unanswerable", "Who built the quay?", (), ("Ann Lee built it.",), "Ann Lee", True, (0,))
    >>> take_answer_away(asked, "Who built the mill?")[1:6]
    ('Who built the mill?', (), (), None, False)
    """
    return draft._replace(
        query=edit,
        spans=(),
        facts=(),
        reference=None,
        answerable=False,
        original=draft.query,
        note=f"edited from: {draft.query}",
        rejection=draft.rejection or ("" if edit else "the model wrote no edit of it"),
    )


def clean_fact(text: str) -> str:
    """Return a stretch of a document as a fact on one line.

    >>> clean_fact("  - It opens\\n  at 7. ")
    'It opens at 7.'
    """
    return " ".join(re.sub(r"^\s*(?:[-*+•#>]|\d{1,3}[.)])+\s+", "", text).split())


def is_content(word: str) -> bool:
    """Return whether a word is neither a stop word, nor a contraction ("we're"), nor a single letter."""
    return len(word) > 1 and stem_word(word.lower()) not in STOP_WORDS and not CONTRACTION.search(word)


def is_statement(text: str) -> bool:
    """Return whether a sentence says something by itself: not a lead-in, a beginning of a sentence or only a link.

    >>> is_statement("These documents are needed:"), is_statement("The pier is closed."), is_statement("It is in the")
    (False, True, False)
    """
    words = WORD.findall(text)
    is_cut = text[-1].isalnum() and not (is_content(words[-1]) or words[-1].isdigit())
    return text[-1] not in ":,;(" and not is_cut and LINK_ALONE.fullmatch(text) is None


def list_answers(index: CorpusIndex, sentence: str) -> list[re.Match[str]]:
    """List the names and numbers of a sentence, its first word and abbreviations such as "Dr." apart."""
    first = next(WORD.finditer(sentence)).start()
    return [
        match
        for match in NAME_OR_NUMBER.finditer(sentence)
        if match.start() > first
        and is_content(match[0])
        and not sentence.startswith(". ", match.end())
        and index.is_proper_name(match[0].split()[0])
    ]


def draft_clozes(index: CorpusIndex, style: QueryStyle, rng: random.Random) -> Iterator[Draft]:  # noqa: ARG001
    """Yield sentences with a blank in the place of a name or a number."""
    for sentence in _shuffle_statements(index, rng):
        answers = list_answers(index, sentence.text)
        if answers:
            answer = rng.choice(answers)
            query = clean_fact(f"{sentence.text[: answer.start()]}{BLANK}{sentence.text[answer.end() :]}")
            yield _make_draft(index, "cloze", query, sentence, answer[0])


def draft_keywords(index: CorpusIndex, style: QueryStyle, rng: random.Random) -> Iterator[Draft]:
    """Yield the words of a sentence that tell it from the rest of the corpus, in their order, as many as in the style.

    The longest words of equal rarity come first, so that a query is the same for the same corpus.
    """
    for sentence in _shuffle_statements(index, rng):
        words = list(dict.fromkeys(word for word in WORD.findall(sentence.text) if is_content(word)))
        size = rng.choice(style.sizes)
        rarest = sorted(words, key=lambda word: (-index.compute_rarity(stem_word(word.lower())), -len(word), word))
        query = " ".join(word for word in words if word in rarest[:size])
        if rng.random() < style.lower:
            query = query.lower()
        yield _make_draft(index, "keywords", query, sentence, None)


def _make_draft(index: CorpusIndex, kind: QuestionKind, query: str, sentence: Sentence, answer: str | None) -> Draft:
    span = index.make_span(index.passages[sentence.passage].document, sentence.start, sentence.end)
    return Draft(kind, query, (span,), (clean_fact(sentence.text),), answer, True, (sentence.passage,))


def _shuffle_statements(index: CorpusIndex, rng: random.Random) -> Sequence[Sentence]:
    statements = [sentence for sentence in index.sentences if is_statement(sentence.text)]
    return rng.sample(statements, len(statements))


DRAFTERS: dict[QuestionKind, Callable[[CorpusIndex, QueryStyle, random.Random], Iterator[Draft]]] = {
    "cloze": draft_clozes,
    "keywords": draft_keywords,
}
"""Kind of probe → the function that yields drafts of it, in random order."""
