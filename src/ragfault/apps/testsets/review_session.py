"""Session over a set and its file of reviews, shared by several reviewers at once: terminal and dashboard."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from ragfault.apps.testsets.passages import CorpusIndex
from ragfault.apps.testsets.reviews import LAYOUT, NEW, add_written, fingerprint_item, merge_reviews
from ragfault.io.decoder import NoticeCallback
from ragfault.io.documents import read_documents
from ragfault.io.field_values import make_content_id
from ragfault.io.trace_reader import read_traces
from ragfault.labels.label import Label, normalize_name
from ragfault.labels.reading.label_files import append_label, encode_label, read_saved_labels
from ragfault.model.records import Document, Trace
from ragfault.text.normalization import split_content_words

CORPUS_SECONDS = 60.0
"""Seconds for which a corpus that was read counts as what it is."""
SEARCHED_PASSAGES = 5
PASSAGE_CHARACTERS = 700
"""Characters of a passage that a search shows."""

FileStamp = tuple[int, int, int] | None


class ReviewState(NamedTuple):
    """Items and reviews at one moment."""

    items: dict[str, Trace]
    """Items by id, in order; those that reviewers wrote are last."""
    fingerprints: dict[str, str]
    reviews: tuple[Label, ...]
    latest: dict[tuple[str, str], Label]
    """(Item, normalized name of the reviewer) → the last review of the item as it stands."""
    authors: dict[str, str]
    """Item that a reviewer wrote → the normalized name of the author."""

    def get_review(self, item: str, name: str) -> Label | None:
        """Return the last review of a person for an item as it stands."""
        return self.latest.get((item, normalize_name(name)))

    def list_waiting(self, name: str) -> list[Trace]:
        """List the items that a person has not reviewed as they stand."""
        reviewer = normalize_name(name)
        return [item for item in self.items.values() if (item.id, reviewer) not in self.latest]

    def find_disputes(self, name: str) -> dict[str, tuple[Label, ...]]:
        """Return the items on which people other than the named one differ, each with their reviews."""
        reviewer = normalize_name(name)
        other_reviews = [review for review in self.reviews if review.person != reviewer]
        return {dispute.item: dispute.reviews for dispute in merge_reviews(self.items.values(), other_reviews).disputes}


class PassageExcerpt(Struct, frozen=True, kw_only=True):
    """A passage of the corpus that has words of a search."""

    document: str
    text: str


def fingerprint_review(review: Label | None) -> str:
    """Return a fingerprint of a review; empty without one."""
    return "" if review is None else make_content_id(encode_label(review, LAYOUT).decode(), "review-")


class ReviewSession:
    """A set, the file of its reviews, and the corpus in which new gold spans are located.

    Each call sees what others have written since. Raises InputError for a set, or reviews, that cannot be read.
    """

    def __init__(
        self,
        items: str | Path,
        reviews: str | Path,
        corpus: str | Path | None = None,
        notice: NoticeCallback | None = None,
    ) -> None:
        self.items, self.reviews, self.corpus = str(items), Path(reviews), corpus
        self._notice = notice
        self._lock = threading.Lock()
        self._listed: tuple[FileStamp, tuple[Trace, ...]] = (None, ())
        self._state: tuple[tuple[FileStamp, FileStamp], ReviewState] | None = None
        self._corpus: tuple[float, CorpusIndex] | None = None

    def load(self) -> ReviewState:
        """Return items and reviews as the files have them."""
        with self._lock:
            stamps = _stamp_file(self.items), _stamp_file(self.reviews)
            if self._state is None or self._state[0] != stamps or stamps[0] is None:
                if self._listed[0] != stamps[0] or stamps[0] is None:
                    self._listed = stamps[0], tuple(read_traces(self.items, notice=self._notice))
                self._state = stamps, _build_state(self._listed[1], self.reviews)
            return self._state[1]

    def add(self, review: Label, check: Callable[[ReviewState], None]) -> None:
        """Write a review to disk, unless `check` raises on the state as it is when nobody else writes."""
        append_label(self.reviews, review, LAYOUT, lambda: check(self.load()))

    def load_documents(self) -> dict[str, Document]:
        """Return the documents of the corpus by id, at most a minute old; empty without a corpus."""
        index = self._load_corpus()
        return {} if index is None else {document.id: document for document in index.documents}

    def search_passages(self, text: str) -> tuple[PassageExcerpt, ...]:
        """Return the passages of the corpus with the largest share of the rarity of these words, the best first."""
        index = self._load_corpus()
        if index is None:
            return ()
        scores = index.score_passages(split_content_words(text))
        best = sorted(scores, key=lambda i: (-scores[i], i))[:SEARCHED_PASSAGES]
        passages = [index.passages[i] for i in best]
        return tuple(
            PassageExcerpt(document=passage.document, text=passage.text[:PASSAGE_CHARACTERS]) for passage in passages
        )

    def _load_corpus(self) -> CorpusIndex | None:
        if self.corpus is None:
            return None
        with self._lock:
            if self._corpus is None or time.monotonic() - self._corpus[0] > CORPUS_SECONDS:
                self._corpus = time.monotonic(), CorpusIndex(read_documents(str(self.corpus)))
            return self._corpus[1]


def _stamp_file(path: str | Path) -> FileStamp:
    """Return what differs after a file was written or replaced; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _build_state(listed: tuple[Trace, ...], path: Path) -> ReviewState:
    given = read_saved_labels(path, LAYOUT)
    items, reviews = add_written(listed, given)
    by_id = {item.id: item for item in items}
    fingerprints = {item.id: fingerprint_item(item) for item in items}
    latest = {
        (review.trace, review.person): review for review in reviews if fingerprints.get(review.trace) == review.shown
    }
    item_ids = {item.id for item in listed}
    authors = {review.trace: review.person for review in given if review.shown == NEW}
    written_items = {name: author for name, author in authors.items() if name in by_id and name not in item_ids}
    return ReviewState(by_id, fingerprints, tuple(reviews), latest, written_items)
