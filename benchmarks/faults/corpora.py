"""Two corpora with questions that nobody has answered yet: the demo handbook, and paragraphs in the shape of SQuAD."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragfault.io.datasets import load_handbook
from ragfault.records import Gold, Span, Trace

from .templates import combined, of_sentences, of_tables
from .words import chance, sentences, words

__all__ = ["Corpus", "handbook_corpus", "sample", "squad_corpus"]

UNANSWERABLE = 0.15
"""The share of the unanswerable questions that is kept, so that they make up about a tenth."""
LONG = 170
"""A sentence of more characters is cut to the clauses around its answer before it becomes a fact."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents, and questions about them with their answer key."""

    name: str
    documents: Mapping[str, str]
    questions: tuple[Trace, ...]


def sample(corpus: Corpus, n: int, seed: int = 0) -> tuple[Trace, ...]:
    """Return so many questions drawn at random without repetition; other seeds draw others.

    Raises ValueError where the corpus has fewer.
    """
    if n > len(corpus.questions):
        raise ValueError(f"{n} questions asked for, the corpus {corpus.name} has {len(corpus.questions)}.")
    return tuple(sorted(corpus.questions, key=lambda question: chance(seed, "sample", question.id))[:n])


def handbook_corpus() -> Corpus:
    """Return the demo handbook with its 104 questions and more than 400 made by templates from its text."""
    data = load_handbook()
    plain = list(of_sentences(data.documents))
    questions = [*plain, *of_tables(data.documents), *combined(plain)]
    return Corpus("handbook", data.documents, (*data.questions, *questions))


# --- paragraphs and questions in the shape of SQuAD --------------------------------------------------


def squad_corpus(folder: str | Path) -> Corpus:
    """Return the corpus of `squad2_paragraphs.jsonl.gz` and `squad2_questions.jsonl.gz`, one document a title.

    An answerable question has its answers as references, the sentence of the paragraph that holds the answer
    as gold span, and as its fact that sentence, or the clauses around the answer where it is long.
    """
    documents: dict[str, str] = {}
    places: dict[str, tuple[str, int, int]] = {}
    for question in _rows(Path(folder, "squad2_paragraphs.jsonl.gz")):
        name, text = question["title"], " ".join(question["text"].split("\n"))
        before = documents.get(name)
        start = len(before) + 2 if before is not None else 0
        documents[name] = f"{before}\n\n{text}" if before is not None else text
        places[question["pid"]] = (name, start, start + len(text))
    questions = [
        trace
        for question in _rows(Path(folder, "squad2_questions.jsonl.gz"))
        if (trace := _asked(question, documents, places))
    ]
    return Corpus("squad", documents, tuple(questions))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def _asked(
    question: dict[str, Any], documents: Mapping[str, str], places: Mapping[str, tuple[str, int, int]]
) -> Trace | None:
    """Return a question as a trace; None where it is left out."""
    if not question["answerable"]:
        selected = chance("unanswerable", question["id"]) < UNANSWERABLE
        return Trace(id=question["id"], query=question["query"].strip(), route="unanswerable") if selected else None
    name, start, end = places[question["gold_pid"]]
    text = documents[name]
    at = start + question["answer_start"][0]
    answer_text = next((answer for answer in question["answers"] if text.startswith(answer, at)), None)
    if answer_text is None:
        return None
    around = [(a, b) for a, b in sentences(text, start, end) if a <= at and at + len(answer_text) <= b]
    if not around:
        return None
    a, b = around[0]
    return Trace(
        id=question["id"],
        query=question["query"].strip(),
        reference=tuple(dict.fromkeys(question["answers"])),
        facts=(fact(text[a:b], at - a, at - a + len(answer_text)),),
        gold=Gold(spans=(Span(document=name, start=a, end=b),)),
        route=name,
    )


def fact(sentence: str, start: int, end: int) -> str:
    """Return the clauses of a sentence around its answer, as a statement of their own.

    >>> fact("The mill, built by monks, burned down.", 16, 21)
    'The mill, built by monks, burned down.'
    """
    if len(sentence) <= LONG:
        return sentence
    cuts = [0, *(i + 2 for i in range(len(sentence)) if sentence.startswith((", ", "; "), i)), len(sentence)]
    left = max(at for at in cuts if at <= start)
    right = min(at for at in cuts if at >= end)
    while len(words(sentence[left:right])) < 8 and (left > 0 or right < len(sentence)):
        if left > 0:
            left = max(at for at in cuts if at < left)
        else:
            right = min(at for at in cuts if at > right)
    text = sentence[left:right].strip(" ,;")
    return text[0].upper() + text[1:].rstrip(".") + "."
