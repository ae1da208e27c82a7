"""Two corpora with questions as traces without answers: the demo handbook, and paragraphs in the format of SQuAD."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragfault.io.datasets.demo_handbook import load_handbook
from ragfault.model.records import Gold, Span, Trace

from .templates import ask_about_sentences, ask_about_tables, combine_questions
from .words import chance, extract_words, split_sentences

__all__ = ["Corpus", "load_handbook_corpus", "load_squad_corpus", "sample"]

UNANSWERABLE_SHARE = 0.15
"""The share of the unanswerable questions that is included, so that they are about a tenth of all."""
MAX_FACT_LENGTH = 170
"""A sentence of more characters is cut to the clauses around its answer, and these are the fact."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents, and questions about them with their answer key."""

    name: str
    documents: Mapping[str, str]
    questions: tuple[Trace, ...]


def sample(corpus: Corpus, n: int, seed: int = 0) -> tuple[Trace, ...]:
    """Sample questions at random without replacement, by a seed.

    Raises ValueError where the corpus has fewer.
    """
    if n > len(corpus.questions):
        raise ValueError(f"{n} questions asked for, the corpus {corpus.name} has {len(corpus.questions)}.")
    return tuple(sorted(corpus.questions, key=lambda question: chance(seed, "sample", question.id))[:n])


def load_handbook_corpus() -> Corpus:
    """Load the demo handbook with its 104 questions and more than 400 made by templates from its text."""
    data = load_handbook()
    sentence_questions = list(ask_about_sentences(data.documents))
    questions = [*sentence_questions, *ask_about_tables(data.documents), *combine_questions(sentence_questions)]
    return Corpus("handbook", data.documents, (*data.questions, *questions))


# --- paragraphs and questions in the format of SQuAD-------------------------------------------------


def load_squad_corpus(folder: str | Path) -> Corpus:
    """Load the corpus of `squad2_paragraphs.jsonl.gz` and `squad2_questions.jsonl.gz`, one document for each title.

    An answerable question has its answers as references, the sentence of the paragraph that holds the answer
    as gold span, and as its fact that sentence, or the clauses around the answer where it is long.
    """
    documents: dict[str, str] = {}
    spans: dict[str, tuple[str, int, int]] = {}
    for question in _read_rows(Path(folder, "squad2_paragraphs.jsonl.gz")):
        name, text = question["title"], " ".join(question["text"].split("\n"))
        before = documents.get(name)
        start = len(before) + 2 if before is not None else 0
        documents[name] = f"{before}\n\n{text}" if before is not None else text
        spans[question["pid"]] = (name, start, start + len(text))
    questions = [
        trace
        for question in _read_rows(Path(folder, "squad2_questions.jsonl.gz"))
        if (trace := _build_question(question, documents, spans))
    ]
    return Corpus("squad", documents, tuple(questions))


def _read_rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def _build_question(
    question: dict[str, Any], documents: Mapping[str, str], spans: Mapping[str, tuple[str, int, int]]
) -> Trace | None:
    """Return a question as a trace; None where it is not sampled, or its answer is not within one sentence."""
    if not question["answerable"]:
        selected = chance("unanswerable", question["id"]) < UNANSWERABLE_SHARE
        return Trace(id=question["id"], query=question["query"].strip(), route="unanswerable") if selected else None
    name, start, end = spans[question["gold_pid"]]
    text = documents[name]
    answer_start = start + question["answer_start"][0]
    answer_text = next((answer for answer in question["answers"] if text.startswith(answer, answer_start)), None)
    if answer_text is None:
        return None
    containing = [
        (a, b)
        for a, b in split_sentences(text, start, end)
        if a <= answer_start and answer_start + len(answer_text) <= b
    ]
    if not containing:
        return None
    a, b = containing[0]
    return Trace(
        id=question["id"],
        query=question["query"].strip(),
        reference=tuple(dict.fromkeys(question["answers"])),
        facts=(extract_fact(text[a:b], answer_start - a, answer_start - a + len(answer_text)),),
        gold=Gold(spans=(Span(document=name, start=a, end=b),)),
        route=name,
    )


def extract_fact(sentence: str, start: int, end: int) -> str:
    """Return the clauses of a sentence around its answer as a statement.

    >>> extract_fact("The mill, built by monks, burned down.", 16, 21)
    'The mill, built by monks, burned down.'
    """
    if len(sentence) <= MAX_FACT_LENGTH:
        return sentence
    cuts = [0, *(i + 2 for i in range(len(sentence)) if sentence.startswith((", ", "; "), i)), len(sentence)]
    left = max(at for at in cuts if at <= start)
    right = min(at for at in cuts if at >= end)
    while len(extract_words(sentence[left:right])) < 8 and (left > 0 or right < len(sentence)):
        if left > 0:
            left = max(at for at in cuts if at < left)
        else:
            right = min(at for at in cuts if at > right)
    text = sentence[left:right].strip(" ,;")
    return text[0].upper() + text[1:].rstrip(".") + "."
