"""Unanswerable questions about passages that are taken out of the corpus."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.testsets.making.filters import DraftFilter
from ragfault.apps.testsets.making.questions import draft_extractive
from ragfault.apps.testsets.making.wording import QueryStyle, QueryWriter
from ragfault.apps.testsets.passages import CorpusIndex, CorpusPassage, cut_passages
from ragfault.apps.testsets.records import RejectedItem
from ragfault.diagnosis.languages import is_foreign
from ragfault.io.field_values import make_content_id
from ragfault.model.errors import InputError, UsageError
from ragfault.model.grouping import group_by
from ragfault.model.records import Document, Trace
from ragfault.text.normalization import normalize_answer

DEFAULT_SHARE = 0.05


class WithheldQuestions(Struct, frozen=True, kw_only=True):
    """Unanswerable questions, and the corpus that does not answer them."""

    documents: tuple[Document, ...]
    """The corpus without the passages that were withheld: the one that the system has to index."""
    items: tuple[Trace, ...]
    passages: int
    """Passages that were withheld."""
    rejected: tuple[RejectedItem, ...]


def make_withheld(
    documents: Iterable[Document],
    n: int,
    *,
    share: float = DEFAULT_SHARE,
    seed: int = 0,
    style: QueryStyle | None = None,
) -> WithheldQuestions:
    """Take a share of the passages out of a corpus, and make questions that only they answer: at most n.

    A question is left out where the rest of the corpus may answer it: a passage has three quarters of the words of its
    sentence, or the answer and six tenths of the words of the question (both by rarity), or, of the three passages
    with most of its words, one answers it with a probability above 0.8 (`score_answerability`). `metadata.withheld`
    has the place of the passage in the corpus as it was, and the sentence and its answer. Tables stay.

    Raises UsageError for a share outside 0 … 0.5, InputError for a corpus with fewer than two passages.

    >>> texts = ("Ann Lee built the canal bridge of Hallgate in 1907, with stones from the quarry.",
    ...          "The night ferry to Tarvik carries forty bicycles in a shed on its lower deck.",
    ...          "Soup is served in the harbour kitchen by Eva Dahl and her brother at noon.")
    >>> documents = [Document(id=f"{at}", text=text) for at, text in enumerate(texts)]
    >>> result = make_withheld(documents, 1, share=0.4)
    >>> result.passages, len(result.documents), result.items[0].answerable
    (1, 2, False)
    """
    if not 0 < share <= 0.5:
        raise UsageError(f"a share of {share:g} of the passages cannot be withheld: name one above 0, at most 0.5.")
    documents_list = list(documents)
    withheld, reduced = _split_corpus(documents_list, share, seed)
    index, reduced_index = CorpusIndex(withheld), CorpusIndex(reduced)
    writer = QueryWriter(index, style or QueryStyle(), random.Random(f"{seed} withheld"))
    draft_filter = DraftFilter(reduced_index)
    items: list[Trace] = []
    rejected: list[RejectedItem] = []
    by_passage: Counter[int] = Counter()
    per_passage = max(1, -(-2 * n // max(1, len(index.passages))))
    for draft in draft_extractive(index, writer):
        if len(items) >= n:
            break
        passage = index.passages[draft.passages[0]]
        if by_passage[draft.passages[0]] >= per_passage or is_foreign(passage.text):
            continue
        span, document = draft.spans[0], draft.spans[0].document.rpartition("@")[0]
        reason = draft_filter.reject_withheld(draft.query, span.quote or "", draft.reference or "")
        if reason is not None:
            rejected.append(RejectedItem(query=draft.query, kind="unanswerable", document=document, reason=reason))
            continue
        start = int(span.document.rpartition("@")[2])
        item = Trace(
            id=make_content_id(f"{normalize_answer(draft.query)} {span.document}", "q-"),
            query=draft.query,
            answerable=False,
            metadata={
                "kind": "unanswerable",
                "review": "pending",
                "note": "its passage was withheld of the corpus",
                "withheld": {
                    "document": document,
                    "start": start + span.start,
                    "end": start + span.end,
                    "quote": span.quote,
                    "answer": draft.reference,
                },
            },
        )
        draft_filter.accept(item)
        by_passage[draft.passages[0]] += 1
        items.append(item)
    return WithheldQuestions(
        documents=tuple(reduced), items=tuple(items), passages=len(withheld), rejected=tuple(rejected)
    )


def _split_corpus(documents: Sequence[Document], share: float, seed: int) -> tuple[list[Document], list[Document]]:
    """Return the passages that are withheld, as documents DOCUMENT@START, and the documents without them."""
    passages = [passage for document in documents for passage in cut_passages(document) if not passage.is_table]
    if len(passages) < 2:
        raise InputError("the corpus has fewer than two passages: none can be withheld.")
    count = max(1, min(len(passages) - 1, round(share * len(passages))))
    withheld_passages = random.Random(f"{seed} passages").sample(passages, count)
    withheld = [Document(id=f"{passage.document}@{passage.start}", text=passage.text) for passage in withheld_passages]
    passages_by_document = group_by(withheld_passages, lambda passage: passage.document)
    reduced = [_cut_out(document, passages_by_document.get(document.id, [])) for document in documents]
    return withheld, [document for document in reduced if document.text.strip()]


def _cut_out(document: Document, passages: Iterable[CorpusPassage]) -> Document:
    text = document.text
    for passage in sorted(passages, key=lambda passage: -passage.start):
        text = f"{text[: passage.start].rstrip()}\n\n{text[passage.end :].lstrip()}"
    return document if text == document.text else replace(document, text=text)
