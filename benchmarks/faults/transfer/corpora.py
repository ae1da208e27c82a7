"""Read public corpora and questions as systems to put faults into; no text of theirs is in the repository."""

from __future__ import annotations

import random
import re
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.datasets import read_rows

SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"'(A-Z0-9`*])|\n{2,}")
HEADING = re.compile(r"^(#{2,4}) +(.+)$|^(.+)\n[-=~]{4,}$", re.M)
REPOSITORIES = ("starlette", "sqlite-utils", "rust-forge")
SNAPSHOTS = {
    "new": {"starlette": "2022", "sqlite-utils": "2022", "rust-forge": "2024"},
    "old": {"starlette": "2019", "sqlite-utils": "2020", "rust-forge": "2020"},
}


@dataclass(frozen=True)
class Question:
    """A query with what a right answer has to hold."""

    id: str
    query: str
    keys: tuple[str, ...] = ()
    """Short answers or sentences of the corpus that answer it; a good reader finds them."""
    spans: tuple[tuple[str, int, int], ...] = ()
    references: tuple[str, ...] = ()
    answerable: bool = True
    history: tuple[tuple[str, str], ...] = ()
    group: str = ""
    """What a filter selects by: the title, corpus or collection of the document."""


@dataclass(frozen=True)
class Corpus:
    """Documents by their id, the group of each, and questions about them."""

    name: str
    documents: dict[str, str]
    groups: dict[str, str]
    questions: list[Question]
    older: dict[str, str] = field(default_factory=dict)
    """An older snapshot of documents of the same ids."""


def split_sentences(text: str) -> list[str]:
    """Return the sentences and paragraphs of a text."""
    return [part.strip() for part in SENTENCE_END.split(text) if part.strip()]


def read_squad(folder: Path) -> Corpus:
    """Read paragraphs of every second article of Wikipedia, with short answers; a fifth of the questions has none."""
    documents: dict[str, str] = {}
    places: dict[str, tuple[str, int, str]] = {}
    titles = sorted({row["title"] for row in read_rows(folder, "squad2_paragraphs")})[::2]
    for row in read_rows(folder, "squad2_paragraphs"):
        if row["title"] not in titles:
            continue
        before = documents.get(row["title"], "")
        start = len(before) + 2 if before else 0
        documents[row["title"]] = f"{before}\n\n{row['text']}" if before else row["text"]
        places[row["pid"]] = (row["title"], start, row["text"])
    questions = []
    for row in read_rows(folder, "squad2_questions"):
        if row["gold_pid"] not in places:
            continue
        title, start, text = places[row["gold_pid"]]
        if not row["answerable"]:
            questions.append(Question(row["id"], row["query"], answerable=False, group=title))
            continue
        at = row["answer_start"][0]
        sentence = next((s for s in split_sentences(text) if text.find(s) <= at < text.find(s) + len(s)), text)
        first = start + text.find(sentence)
        spans = ((title, first, first + len(sentence)),)
        answers = tuple(dict.fromkeys(row["answers"]))
        questions.append(Question(row["id"], row["query"], (sentence,), spans, answers, group=title))
    return Corpus("squad", documents, {title: title for title in documents}, mix_questions(questions, 0.2))


def read_clapnq(folder: Path) -> Corpus:
    """Read passages with long answers that people wrote; a fifth of the questions has none."""
    rows = read_rows(folder, "clapnq_dev")
    documents = {f"passage-{at}": row["contexts"][0] for at, row in enumerate(rows)}
    groups = {name: f"part-{at % 6}" for at, name in enumerate(documents)}
    questions = []
    for at, row in enumerate(rows):
        name, text = f"passage-{at}", row["contexts"][0]
        keys = tuple(s for s in row["selected_sentences"] if s in text) if row["answerable"] else ()
        spans = tuple((name, text.find(key), text.find(key) + len(key)) for key in keys)
        references = (row["answer"],) if row["answerable"] else ()
        if keys or not row["answerable"]:
            questions.append(
                Question(row["id"], row["query"], keys, spans, references, row["answerable"], group=groups[name])
            )
    return Corpus("clapnq", documents, groups, mix_questions(questions, 0.2))


def read_reports(folder: Path) -> Corpus:
    """Read three long documents with gold spans and no reference answers, cut into files of forty paragraphs."""
    documents: dict[str, str] = {}
    starts: dict[str, list[tuple[int, str]]] = {}
    for path in sorted((folder / "chunking_corpora").glob("*.md")):
        text, at = path.read_text(encoding="utf-8"), 0
        cuts = [match.end() for match in re.finditer(r"\n\s*\n|(?<=[.]) (?=[A-Z])", text)][59::60]
        for number, end in enumerate([*cuts, len(text)]):
            name = f"{path.stem}-{number}"
            documents[name] = text[at:end]
            starts.setdefault(path.stem, []).append((at, name))
            at = end
    questions = []
    for row in read_rows(folder, "chunking_questions"):
        spans = []
        for span in row["gold_spans"]:
            at, name = [place for place in starts[row["corpus"]] if place[0] <= span["start_index"]][-1]
            spans.append((name, span["start_index"] - at, span["end_index"] - at))
        keys = tuple(span["content"] for span in row["gold_spans"])
        questions.append(Question(row["id"], row["query"], keys, tuple(spans), group=row["corpus"]))
    groups = {name: corpus for corpus, files in starts.items() for _, name in files}
    return Corpus("reports", documents, groups, mix_questions(questions, 0.0))


def read_conversations(folder: Path) -> Corpus:
    """Read last turns of conversations over four collections, with references; near passages are in the corpus."""
    documents: dict[str, str] = {}
    groups: dict[str, str] = {}
    names: dict[str, str] = {}
    questions = []
    for row in read_rows(folder, "multi_turn_dev"):
        for text in [*row["contexts"], *row["near_contexts"]]:
            name = names.setdefault(text, f"{row['collection']}-{len(names)}")
            documents[name], groups[name] = text, row["collection"]
        spans = tuple((names[text], 0, len(text)) for text in row["contexts"])
        words = set(re.findall(r"\w{4,}", row["reference"].lower()))
        sentences = [s for text in row["contexts"] for s in split_sentences(text) if len(s.split()) > 4]
        sentences.sort(key=lambda s: -len(words & set(re.findall(r"\w{4,}", s.lower()))))
        history = tuple((turn["role"], turn["text"]) for turn in row["turns"][:-1])
        answerable = row["answerability"] in ("ANSWERABLE", "PARTIAL", "answerable", "partial")
        references = (row["reference"],) if answerable else ()
        keys = tuple(sentences[:2]) if answerable else ()
        questions.append(
            Question(row["id"], row["query"], keys, spans, references, answerable, history, row["collection"])
        )
    return Corpus("conversations", documents, groups, mix_questions(questions, 0.2))


def read_documentation(folder: Path) -> Corpus:
    """Read the documentation of three projects, with queries made of its headings and an older snapshot."""
    sides: dict[str, dict[str, str]] = {"new": {}, "old": {}}
    for side, dates in SNAPSHOTS.items():
        for name in REPOSITORIES:
            with tarfile.open(folder / "doc_histories" / f"{name}_{dates[name]}.tar.gz") as archive:
                for member in archive.getmembers():
                    if member.name.endswith((".md", ".rst")) and "LICENSE" not in member.name:
                        content = archive.extractfile(member)
                        text = content.read().decode("utf-8", "replace") if content else ""
                        sides[side][f"{name}/{member.name}"] = text[:12_000]
    documents = {name: text for name, text in sides["new"].items() if len(text) > 400}
    groups = {name: name.split("/")[0] for name in documents}
    questions = []
    for name, text in documents.items():
        for match in HEADING.finditer(text):
            title = (match[2] or match[3]).strip("`* ")
            body = [s for s in split_sentences(text[match.end() : match.end() + 1500]) if len(s.split()) > 7]
            body = [s for s in body if not s.startswith(("#", "```", "..", "-", "*", "$"))]
            if body and 2 <= len(title.split()) <= 8 and not re.search(r"\d", title):
                query = f"What does the documentation of {groups[name]} say about {title.lower()}?"
                questions.append(
                    Question(f"{name}@{match.start()}", query, (body[0],), (), (body[0],), group=groups[name])
                )
    return Corpus("documentation", documents, groups, mix_questions(questions, 0.0), sides["old"])


def mix_questions(questions: list[Question], unanswerable: float) -> list[Question]:
    """Return the questions in a fixed random order, in which a share has no answer."""
    draw = random.Random(7)
    right, other = ([q for q in questions if q.answerable is side] for side in (True, False))
    draw.shuffle(right)
    draw.shuffle(other)
    mixed: list[Question] = []
    while right:
        mixed.append(other.pop() if other and draw.random() < unanswerable else right.pop())
    return mixed


READERS = {
    "squad": read_squad,
    "clapnq": read_clapnq,
    "reports": read_reports,
    "conversations": read_conversations,
    "documentation": read_documentation,
}
