"""Fit where the passage of a query is, by what was shown and what else a run retrieved: python -m training.places DATA.

DATA holds squad2_paragraphs, squad2_questions, multi_turn_dev, clapnq_dev, chunking_questions and chunking_corpora. For
each question three situations are made: its passage is shown, it is among the other chunks of the run, or it is taken
out of the corpus, alone or with all others on its topic. What is shown beside it is ranked by words, by words with
noise, or by the judge `embedded`. Questions that people found unanswerable are in no passage. Each set counts alike,
and is left out once: printed is how well it is told. Writes `passage_places.toml` of `src/ragfault/evaluation/`.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

from ragfault.evaluation.passage_places import (
    PLACES,
    READERS,
    WORDS,
    ChunkPool,
    PlaceEvidence,
    Search,
    join_query,
    read_searches,
)
from ragfault.judges.loading import load_judge
from ragfault.judges.numeric_threads import use_one_thread
from ragfault.model.records import Chunk, ConversationTurn, Trace
from ragfault.stats.classification import auroc
from training.data_files import read_rows

TARGET = Path(__file__).parents[1] / "src/ragfault/evaluation/passage_places.toml"
ANSWERABLE, UNANSWERABLE = 700, 200
CHUNK_WORDS = 110
SHOWN_COUNTS = (1, 3, 5, 8)
NEAR = 60
NOISE = (0.6, 1.4)
RIDGE = 0.1


class Question(NamedTuple):
    """A question, the texts of its corpus, and those that hold its answer; none if it is unanswerable."""

    source: str
    query: str
    corpus: Sequence[str]
    gold: frozenset[str]
    topic: frozenset[str] = frozenset()
    """All texts on its subject, where they are known: without them the corpus says nothing on it."""


class Case(NamedTuple):
    """A question in a situation."""

    source: str
    place: str
    evidence: PlaceEvidence


def read_squad(data: Path, rng: random.Random) -> Iterator[Question]:
    """Yield questions on paragraphs of Wikipedia, and those that only seem to be answered there."""
    paragraphs = {row["pid"]: row for row in read_rows(data, "squad2_paragraphs")}
    corpus, rows = tuple(row["text"] for row in paragraphs.values()), read_rows(data, "squad2_questions")
    by_title = defaultdict(set)
    for row in paragraphs.values():
        by_title[row["title"]].add(row["text"])
    for row in rng.sample([row for row in rows if row["answerable"]], ANSWERABLE):
        gold = paragraphs[row["gold_pid"]]
        yield Question("squad2", row["query"], corpus, frozenset({gold["text"]}), frozenset(by_title[gold["title"]]))
    for row in rng.sample([row for row in rows if not row["answerable"]], UNANSWERABLE):
        yield Question("squad2", row["query"], corpus, frozenset())


def read_conversations(data: Path) -> Iterator[Question]:
    """Yield the last questions of conversations, over the passages of their collection."""
    by_collection = defaultdict(list)
    for row in read_rows(data, "multi_turn_dev"):
        by_collection[row["collection"]].append(row)
    for rows in by_collection.values():
        corpus = tuple(dict.fromkeys(text for row in rows for text in (*row["contexts"], *row["near_contexts"])))
        for row in rows:
            turns = [ConversationTurn(**turn) for turn in row["turns"]]
            before = tuple(turns[:-1] if turns and turns[-1].text == row["query"] else turns)
            query = join_query(Trace(id="", query=row["query"], history=before))
            if row["answerability"] == "unanswerable" or (row["answerability"] == "answerable" and row["contexts"]):
                yield Question("mtrag", query, corpus, frozenset(row["contexts"]))


def read_searched(data: Path) -> Iterator[Question]:
    """Yield what people typed into a search engine, over passages of Wikipedia without their titles."""
    rows = read_rows(data, "clapnq_dev")
    corpus = tuple(dict.fromkeys(text for row in rows for text in row["contexts"]))
    for row in rows:
        yield Question("clapnq", row["query"], corpus, frozenset(row["contexts"]) if row["answerable"] else frozenset())


def read_documents(data: Path) -> Iterator[Question]:
    """Yield questions on long documents, cut after so many words."""
    for row in read_rows(data, "chunking_questions"):
        text = (data / "chunking_corpora" / f"{row['corpus']}.md").read_text("utf-8")
        words = [match.span() for match in re.finditer(r"\S+", text)]
        parts = [words[place : place + CHUNK_WORDS] for place in range(0, len(words), CHUNK_WORDS)]
        spans = [(part[0][0], part[-1][1]) for part in parts]
        gold = {
            text[start:end]
            for start, end in spans
            if any(start < span["end_index"] and end > span["start_index"] for span in row["gold_spans"])
        }
        yield Question(row["corpus"], row["query"], tuple(text[start:end] for start, end in spans), frozenset(gold))


def rank_corpus(question: Question, pool: ChunkPool, kind: int, rng: random.Random) -> list[str]:
    """Rank the passages of a corpus that are near a question, as one of three retrievers would."""
    hits = pool.rank(question.query, NEAR)
    if kind == 0:
        return [hit.chunk.text for hit in hits]
    if kind == 1:
        noisy = {hit.chunk.text: hit.share * rng.uniform(*NOISE) for hit in hits}
    else:
        chunks = tuple(Chunk(id=str(number), text=hit.chunk.text) for number, hit in enumerate(hits))
        [verdicts] = load_judge("embedded").observe([Trace(id="", query=question.query, chunks=chunks)])
        scores = {item.chunk: item.relevance or 0.0 for item in verdicts.chunk or ()}
        noisy = {chunk.text: scores.get(chunk.id, 0.0) for chunk in chunks}
    return sorted(noisy, key=lambda text: -noisy[text])


def make_cases(questions: Sequence[Question], rng: random.Random) -> Iterator[tuple[Question, str, Search]]:
    """Yield each question in each situation that it can be in."""
    pools: dict[int, ChunkPool] = {}
    for number, question in enumerate(questions):
        if id(question.corpus) not in pools:
            pool = pools[id(question.corpus)] = ChunkPool()
            pool.add(Trace(id="", query="", chunks=tuple(Chunk(id="", text=text) for text in question.corpus)))
        pool = pools[id(question.corpus)]
        ranked, count = rank_corpus(question, pool, number % 3, rng), rng.choice(SHOWN_COUNTS)
        situations = [(place, question.gold) for place in PLACES] if question.gold else [("nowhere", question.gold)]
        if question.topic:
            situations.append(("nowhere", question.topic))
        for place, gone in situations:
            gold = sorted(question.gold)[:count] if place == "shown" else []
            texts = (gold + [text for text in ranked if text not in gone])[:count]
            rng.shuffle(texts)
            chunks = [Chunk(id="", text=text) for text in texts]
            hidden = gone if place == "nowhere" else ()
            yield question, place, Search.of_pool(question.query, chunks, pool, hidden)


def fit(cases: Sequence[Case]) -> tuple[np.ndarray, np.ndarray]:
    """Fit a row of weights for each place; each source counts alike, and within it each place."""
    counts = Counter((case.source, case.place) for case in cases)
    inputs = np.array([case.evidence.inputs for case in cases])
    places = np.array([PLACES.index(case.place) for case in cases])
    weights = np.array([1 / counts[case.source, case.place] for case in cases])
    model = LogisticRegression(C=1 / RIDGE, max_iter=5000)
    model.fit(inputs, places, sample_weight=weights * len(cases) / weights.sum())
    return model.coef_, model.intercept_


def report(cases: Sequence[Case]) -> None:
    """Print how well each source is told by the weights of the others."""
    for source in dict.fromkeys(case.source for case in cases):
        coefficients, intercept = fit([case for case in cases if case.source != source])
        own = [case for case in cases if case.source == source]
        odds = np.array([case.evidence.inputs for case in own]) @ coefficients.T + intercept
        parts = np.exp(odds - odds.max(1, keepdims=True))
        parts /= parts.sum(1, keepdims=True)
        places = np.array([PLACES.index(case.place) for case in own])
        hits = [f"{name} {np.mean(odds[places == row].argmax(1) == row):.2f}" for row, name in enumerate(PLACES)]
        areas = [f"{name} {auroc(parts[:, row], places == row):.3f}" for row, name in enumerate(PLACES)]
        sure = parts[:, 1] > 0.8
        print(f"{source:20} {len(own):5} right: {', '.join(hits)}; AUROC: {', '.join(areas)}; ", end="")
        print(f"elsewhere at .8: {np.mean(places[sure] == 1):.3f} of {sure.sum()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    rng = random.Random(1)
    questions = [*read_squad(data, rng), *read_conversations(data), *read_searched(data), *read_documents(data)]
    corpora: dict[tuple[str, ...], tuple[str, ...]] = {}
    questions = [item._replace(corpus=corpora.setdefault(tuple(item.corpus), tuple(item.corpus))) for item in questions]
    print(Counter(question.source for question in questions))
    lines = ["# Written by training/places.py: for each reader a row of weights for each place, the intercept last."]
    with use_one_thread():
        cases_of_questions = list(make_cases(questions, random.Random(2)))
        for reader in (*READERS, WORDS):
            searches = [search for *_, search in cases_of_questions]
            if reader != WORDS:
                searches = read_searches(load_judge(reader), searches)
            cases = [
                Case(question.source, place, search.evidence)
                for (question, place, _), search in zip(cases_of_questions, searches, strict=True)
            ]
            print(f"== {reader}")
            report(cases)
            lines += ["", f"[{reader}]"]
            for place, row, last in zip(PLACES, *fit(cases), strict=True):
                lines.append(f"{place} = [{', '.join(f'{value:.3f}' for value in (*row, last))}]")
    TARGET.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
