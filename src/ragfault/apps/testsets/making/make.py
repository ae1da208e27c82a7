"""Making of evaluation sets from the documents of a corpus, without a key and deterministic by the seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ragfault.apps.testsets.answerability import score_answerability
from ragfault.apps.testsets.difficulty import rank_gold
from ragfault.apps.testsets.making.estimates import MakingEstimate, describe_estimate, estimate_calls
from ragfault.apps.testsets.making.filters import DraftFilter
from ragfault.apps.testsets.making.model_questions import CALLS_PER_ITEM, ModelWriter
from ragfault.apps.testsets.making.probes import DRAFTERS, Draft
from ragfault.apps.testsets.making.style import QueryStyle
from ragfault.apps.testsets.passages import CorpusIndex, find_heading
from ragfault.apps.testsets.records import (
    MODEL_MIX,
    PROBE_KINDS,
    PROBE_MIX,
    QUESTION_KINDS,
    QuestionKind,
    RejectedItem,
    TestsetResult,
)
from ragfault.apps.testsets.settings import MakingSettings
from ragfault.io.field_values import make_content_id
from ragfault.model.errors import InputError, MissingExtra, UnknownName, UsageError
from ragfault.model.records import Document, Gold, Trace
from ragfault.model.settings import accept_fields
from ragfault.text.normalization import normalize_answer
from ragfault.text.number_format import format_percent

if TYPE_CHECKING:
    from ragfault.judges.llm.judge import LLMGenerator

MAKER_VERSION = 2
PROBE_WARNING = (
    "these are retrieval probes in the words of the corpus: recall on them is higher than on people's questions (.99 "
    "where those reached .64). Compare retrievers with them, and state no level; questions come with --judge llm:MODEL"
)
MAX_REJECTED_RUN = 400
"""After so many drafts of a kind in a row that were left out, no further ones are tried."""
MAX_NAMED_FILES = 10
"""Files with passages in another language that a note names."""
DOCUMENT_SHARE = 0.2
"""Largest share of the items from one document, where there are documents enough."""


@accept_fields(MakingSettings)
def make_testset(documents: Iterable[Document], n: int, settings: MakingSettings) -> TestsetResult:
    """Make an evaluation set of `n` items with gold spans from the documents of a corpus.

    Without a `model` the items are retrieval probes, whose gold is exact: sentences with a blank in the place of a name
    or a number (`cloze`), and the rarest words of a sentence (`keywords`). With a `model` they are questions that it
    writes, with at most two calls for each and one about who asks; `notice` gets their cost first. Where its budget
    ends, the items so far are returned, and `notes` say so: what was paid for is in its cache. An `unanswerable`
    question is an edit of one with an answer: the model finds no passage that answers it, and the judge of the package
    confirms that the probability of an answer fell.

    `mix` is the share of each kind (`PROBE_MIX`, with a model `MODEL_MIX`); what a kind falls short by is in `notes`,
    and no other kind makes up for it. `style` is that of the queries (`fit_style` fits it to a log). `own` are
    questions of people: they come first, count as items, and no made one repeats them. No two items have the same gold
    or nearly the same query. The same documents, numbers and seed give the same set. People have to accept the items
    (`metadata.review` is "pending").

    Raises InputError for a corpus without a passage, UsageError for n below 1 or a mix without a share above 0 or with
    a kind that needs a model, UnknownName for a kind that does not exist.

    >>> text = "The canal bridge was opened by Ann Lee in 1907. It carries 40 carts an hour across the river Bren."
    >>> result = make_testset([Document(id="bridge.md", text=text)], n=1, mix={"cloze": 1})
    >>> result.items[0].gold.spans[0].document, result.items[0].answerable
    ('bridge.md', True)
    """
    maker, counts = _prepare(documents, n, settings)
    if maker.model_writer is not None and counts:
        settings.notice(describe_estimate(estimate_calls(maker.index, counts, maker.model_writer.model)))
    return maker.make(counts)


def estimate_testset(documents: Iterable[Document], n: int, settings: MakingSettings) -> MakingEstimate | None:
    """Estimate the calls of a model that `make_testset` makes at most, and their cost; None without a model.

    Nothing is called. Raises as `make_testset` does.
    """
    maker, counts = _prepare(documents, n, settings)
    return None if maker.model_writer is None else estimate_calls(maker.index, counts, maker.model_writer.model)


def _prepare(
    documents: Iterable[Document], n: int, settings: MakingSettings
) -> tuple[_TestsetMaker, dict[QuestionKind, int]]:
    """Check the settings; return the maker with the questions of people, and the number of items of each kind."""
    mix, model = settings.mix, settings.model
    shares = dict((PROBE_MIX if model is None else MODEL_MIX) if mix is None else mix)
    for kind in shares:
        if kind not in QUESTION_KINDS:
            raise UnknownName("kind of question", kind, QUESTION_KINDS)
    if n < 1 or sum(shares.values()) <= 0 or min(shares.values()) < 0:
        raise UsageError("a set has at least 1 item, and its mix at least one share above 0 and none below.")
    unwritten = [kind for kind, share in shares.items() if share and kind not in DRAFTERS]
    if model is None and unwritten:
        raise UsageError(f"{unwritten[0]} questions are written by a language model. Name one with --judge llm:MODEL.")
    index = CorpusIndex(documents)
    if not index.passages:
        raise InputError("the corpus has no passage of twelve words or more to ask about.")
    maker = _TestsetMaker(index, n, settings.seed, settings.style or QueryStyle(), model)
    maker.add_own(settings.own)
    return maker, _plan_counts(shares, max(0, n - len(maker.items)))


def _plan_counts(shares: Mapping[QuestionKind, float], n: int) -> dict[QuestionKind, int]:
    """Divide n by shares, the largest remainders first."""
    total = sum(shares.values())
    exact = {kind: n * share / total for kind, share in shares.items()}
    counts = {kind: int(value) for kind, value in exact.items()}
    for kind in sorted(exact, key=lambda kind: (counts[kind] - exact[kind], QUESTION_KINDS.index(kind))):
        if sum(counts.values()) == n:
            break
        counts[kind] += 1
    return counts


class _TestsetMaker:
    """Takes drafts of each kind until its number is reached."""

    def __init__(
        self, index: CorpusIndex, n: int, seed: int, style: QueryStyle, model: LLMGenerator | None = None
    ) -> None:
        self.index, self.n, self.seed, self.style = index, n, seed, style
        self.filter = DraftFilter(index)
        self.items: list[Trace] = []
        self.rejected: list[RejectedItem] = []
        self.notes: list[str] = []
        self.by_document: Counter[str] = Counter()
        self.by_passage: Counter[int] = Counter()
        self.limit = self._compute_limit()
        self.model_writer = None
        if model is not None:
            self.model_writer = ModelWriter(index, model, style, seed, self.filter.reject_written, self._is_full)

    def _is_full(self, document: str) -> bool:
        return self.by_document[document] >= self.limit

    def add_own(self, own: Sequence[Trace]) -> None:
        """Add questions of people as they are, without their answers and chunks."""
        for trace in own:
            kind = {} if "kind" in trace.metadata else {"kind": "own"}
            item = replace(trace, answer=None, chunks=None, metadata=trace.metadata | kind)
            self.filter.accept(item)
            self.items.append(item)

    def _compute_limit(self) -> int:
        """Return the most items from one document: a fifth of the set, or twice its share of the passages."""
        sizes = Counter(passage.document for passage in self.index.passages)
        largest = max(sizes.values()) / len(self.index.passages)
        return max(1, round(self.n * max(DOCUMENT_SHARE, min(1.0, 2 * largest)))) if len(sizes) > 1 else self.n

    def make(self, counts: Mapping[QuestionKind, int]) -> TestsetResult:
        """Make the items of all kinds, the rarest first, and note what a kind falls short by."""
        for kind in reversed(QUESTION_KINDS):
            goal = counts.get(kind, 0)
            if not goal:
                continue
            added = self._add_kind(kind, goal)
            if added < goal:
                is_unasked = self.model_writer is not None and self.model_writer.stopped
                reason = "the model was asked no further" if is_unasked else "no more drafts pass the checks"
                self.notes.append(f"{kind}: {added} of {goal}, {reason}")
        self._note_shortage()
        kinds = Counter(item.metadata["kind"] for item in self.items)
        if any(kinds[kind] for kind in PROBE_KINDS):
            self.notes.append(PROBE_WARNING)
        random.Random(self.seed).shuffle(self.items)
        return TestsetResult(
            items=self._mark_difficulty(),
            rejected=tuple(self.rejected),
            requested=self.n,
            counts={
                kind: kinds[kind]
                for kind in (*QUESTION_KINDS, *sorted(set(kinds) - set(QUESTION_KINDS)))
                if kinds[kind]
            },
            notes=tuple(self.notes),
            usage=None if self.model_writer is None else self.model_writer.model.usage,
        )

    def _mark_difficulty(self) -> tuple[Trace, ...]:
        """Return the items with the rank that BM25 gives to their gold, and note how many it ranks first."""
        try:
            ranks = rank_gold(self.index, self.items)
        except MissingExtra:
            return tuple(self.items)
        known = [rank for rank in ranks if rank is not None]
        if known:
            shares = [format_percent(sum(rank <= depth for rank in known) / len(known)) for depth in (1, 10)]
            self.notes.append(
                f"BM25 ranks the gold first for {shares[0]} of the {len(known)} items that have a place in the corpus, "
                f"and among ten for {shares[1]} (metadata.bm25_rank)"
            )
        return tuple(
            item if rank is None else replace(item, metadata=item.metadata | {"bm25_rank": rank})
            for item, rank in zip(self.items, ranks, strict=True)
        )

    def _note_shortage(self) -> None:
        """Note why there are fewer items than were asked for, and what became of calls to the model."""
        writer = self.model_writer
        is_spent = writer is not None and len(self.items) < self.n and writer.calls >= writer.max_calls - 1
        if writer is not None and (writer.stopped or is_spent):
            spent = f"{writer.calls:,} calls were made, {CALLS_PER_ITEM} for each item of its kinds"
            self.notes.append(f"the model was asked no further: {writer.stopped or spent}")
        if writer is not None and writer.failures and writer.stopped not in writer.failures:
            reason, number = writer.failures.most_common(1)[0]
            self.notes.append(f"{writer.failures.total()} of {writer.calls} calls failed, {number} with: {reason}")
        if len(self.items) < self.n and not (writer is not None and writer.stopped):
            self.notes.append(
                f"{len(self.items)} of {self.n} items: no more drafts of these kinds from {len(self.index.passages):,} "
                "passages pass the checks; another mix may give more"
            )
        if self.index.foreign:
            passages = Counter(self.index.passages[at].document for at in self.index.foreign)
            named = [f"{name} ({count})" for name, count in passages.most_common(MAX_NAMED_FILES)]
            more = f" and {len(passages) - len(named)} more files" if len(passages) > len(named) else ""
            self.notes.append(
                f"passages in a language that the judge of the package does not know, by file: {', '.join(named)}"
                f"{more}. Probes and unanswerable questions are not made of them, and no judge reads other questions "
                "about them but the model that wrote them"
            )

    def _add_kind(self, kind: QuestionKind, count: int) -> int:
        """Add items of a kind, at first one for each passage, then more; return how many."""
        if kind not in DRAFTERS:
            assert self.model_writer is not None
            self.model_writer.max_calls += CALLS_PER_ITEM * count
            return self._add_written(self.model_writer, kind, count)
        added = 0
        for attempts in (1, 2, 4, 8):
            misses = 0
            for draft in DRAFTERS[kind](self.index, self.style, random.Random(f"{self.seed} {kind}")):
                if added == count or misses >= MAX_REJECTED_RUN:
                    break
                if self.by_passage[draft.passages[0]] >= attempts or not self.index.foreign.isdisjoint(draft.passages):
                    continue
                misses = 0 if self._take(draft) else misses + 1
                added += misses == 0
        return added

    def _add_written(self, writer: ModelWriter, kind: QuestionKind, count: int) -> int:
        """Add items of a kind that the model writes; return how many."""
        before = len(self.items)
        goal = before + count
        for draft in writer.draft(kind, count, lambda: goal - len(self.items)):
            if len(self.items) < goal:
                self._take(draft)
        return len(self.items) - before

    def _take(self, draft: Draft) -> bool:
        """Check a draft and add it; return whether it was accepted."""
        document = self.index.passages[draft.passages[0]].document
        reason = draft.rejection or self.filter.reject(draft)
        if reason is None and self.by_document[document] >= self.limit:
            reason = f"{document} has {self.limit} items already, a fifth of the set or twice its share of the corpus"
        if reason is not None:
            self.rejected.append(RejectedItem(query=draft.query, kind=draft.kind, document=document, reason=reason))
            return False
        item = self._build_item(draft, document)
        self.filter.accept(item)
        self.items.append(item)
        self.by_document[document] += 1
        self.by_passage[draft.passages[0]] += 1
        return True

    def _build_item(self, draft: Draft, document: str) -> Trace:
        provenance = {
            "maker": f"testset/{MAKER_VERSION}",
            "seed": self.seed,
            "corpus": self.index.digest,
            "document": document,
            "style": self.style.source,
        }
        if self.model_writer is not None and draft.kind not in DRAFTERS:
            provenance["model"] = self.model_writer.model.fingerprint
        passage = self.index.passages[draft.passages[0]]
        place = draft.spans[0].start if draft.spans else passage.start
        heading = find_heading(self.index.headings[document], place) or passage.heading
        score = {}
        if draft.kind in ("extractive", "abstract") and self.index.foreign.isdisjoint(draft.passages):
            score = {"answerability": round(score_answerability(draft.query, [passage.text])[0], 3)}
        return Trace(
            id=make_content_id(f"{normalize_answer(draft.query)} {document}", "q-"),
            query=draft.query,
            reference=draft.reference,
            facts=draft.facts or None,
            gold=Gold(spans=draft.spans) if draft.spans else None,
            answerable=draft.answerable,
            metadata={"kind": draft.kind, "review": "pending"}
            | ({"section": heading} if heading else {})
            | score
            | {name: text for name, text in (("note", draft.note), ("asker", draft.asker)) if text}
            | {"provenance": provenance},
        )
