"""Sparse search: BM25 over the stems of the chunks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ragfault.errors import MissingExtra

if TYPE_CHECKING:
    from bm25s import BM25

__all__ = ["Lexicon"]

Array = np.ndarray[Any, Any]


class Lexicon:
    """BM25 (Robertson & Zaragoza 2009) in the variant of Lucene, by bm25s; English stop words do not count.

    Raises MissingExtra without the extra `retrieval`.

    >>> lexicon = Lexicon().fit(["The ferry leaves at ten.", "Dogs need a lead."])
    >>> [bool(score > 0) for score in lexicon.scores("When do ferries leave?")]
    [True, False]
    """

    def __init__(self, k1: float = 1.5, b: float = 0.75) -> None:
        self.k1, self.b = k1, b
        self._model: BM25 | None = None
        self._size = 0

    @property
    def fingerprint(self) -> str:
        """Its parameters."""
        return f"bm25/1 k1={self.k1:g} b={self.b:g}"

    def fit(self, texts: Sequence[str]) -> Self:
        """Index the texts."""
        package = _package()
        self._size = len(texts)
        self._model = package.BM25(k1=self.k1, b=self.b)
        self._model.index(_tokens(texts), show_progress=False)
        return self

    def scores(self, query: str) -> Array:
        """The score of each text; zeros where they share no word with the query."""
        assert self._model is not None
        found = _tokens([query])
        known = self._model.vocab_dict
        ids = [known[word] for word in found.vocab if word and word in known]
        if not ids:
            return np.zeros(self._size, np.float32)
        made: Array = self._model.get_scores_from_ids(ids)
        return made

    def save(self, folder: Path) -> None:
        """Keep the index in a folder."""
        assert self._model is not None
        self._model.save(str(folder), show_progress=False)

    @classmethod
    def open(cls, folder: Path, size: int) -> Lexicon:
        """The index that was kept in a folder."""
        model = _package().BM25.load(str(folder), show_progress=False, load_vocab=True)
        made = cls(model.k1, model.b)
        made._model, made._size = model, size
        return made


@cache
def _package() -> Any:
    try:
        import bm25s
    except ImportError:
        raise MissingExtra("the search for words (BM25)", "retrieval") from None
    return bm25s


def _tokens(texts: Sequence[str]) -> Any:
    from Stemmer import Stemmer

    return _package().tokenize(list(texts), stopwords="en", stemmer=Stemmer("english"), show_progress=False)
