"""Cut, index and search a corpus with the libraries llama-index, bm25s and scikit-learn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Passage:
    """A stretch of a document."""

    id: str
    text: str
    document: str
    start: int
    end: int
    group: str = ""


def split_words(text: str) -> list[str]:
    """Return the words of a text."""
    return re.findall(r"\w+", text.lower())


def cut_documents(documents: dict[str, str], groups: dict[str, str], size: int, splitter: str) -> list[Passage]:
    """Return the passages of documents, of about `size` words."""
    from llama_index.core.node_parser import SentenceSplitter, TokenTextSplitter

    kind = SentenceSplitter if splitter == "sentences" else TokenTextSplitter
    cutter = kind(chunk_size=size, chunk_overlap=0, tokenizer=str.split)
    passages = []
    for name, document in documents.items():
        at = 0
        for number, text in enumerate(cutter.split_text(document)):
            place = document.find(text[:60], at)
            start = place if place >= 0 else at
            at = start + 1
            end = min(start + len(text), len(document))
            passages.append(Passage(f"{name}#{number}", text, name, start, end, groups.get(name, "")))
    return passages


class Index:
    """Passages with two ways to search them, and a reranker."""

    def __init__(self, passages: list[Passage], kind: str) -> None:
        import bm25s
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.passages, self.kind = passages, kind
        texts = [passage.text for passage in passages]
        self.words = TfidfVectorizer(sublinear_tf=True, stop_words="english")
        self.rows = self.words.fit_transform(texts)
        if kind == "bm25":
            self.bm25 = bm25s.BM25()
            self.bm25.index([split_words(text) for text in texts], show_progress=False)

    def score_passages(self, query: str) -> np.ndarray:
        """Return the score of every passage."""
        if self.kind == "bm25":
            return np.asarray(self.bm25.get_scores(split_words(query) or ["?"]))
        return np.asarray((self.rows @ self.words.transform([query]).T).todense()).ravel()

    def rerank(self, query: str, places: Sequence[int]) -> list[tuple[int, float]]:
        """Return the places by how much of the words of the query their passage holds, rare words first."""
        known = self.words.vocabulary_
        weights = {w: self.words.idf_[known[w]] for w in split_words(query) if w in known}
        total = sum(weights.values()) or 1.0
        sparse = np.asarray((self.rows[list(places)] @ self.words.transform([query]).T).todense()).ravel()
        scored = []
        for rank, place in enumerate(places):
            words = set(split_words(self.passages[place].text))
            cover = sum(weight for word, weight in weights.items() if word in words) / total
            scored.append((place, float(cover + sparse[rank] + 0.3 / (rank + 1))))
        return sorted(scored, key=lambda pair: -pair[1])
