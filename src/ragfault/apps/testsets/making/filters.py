"""Checks of drafted questions, each with the reason of a rejection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from ragfault.apps.testsets.answerability import PROBABILITY_BOUNDS, score_answerability
from ragfault.apps.testsets.making.questions import Draft, find_list
from ragfault.apps.testsets.making.wording import QUESTION_WORDS
from ragfault.apps.testsets.passages import CorpusIndex
from ragfault.diagnosis.clusters.promotion import CaseIndex
from ragfault.judges.embedded.word_vectors import embed_word_vectors
from ragfault.model.records import Span, Trace
from ragfault.text.normalization import split_content_words, split_words

MIN_GOLD_SHARE = 0.2
"""Least share of a query's words, by rarity, that its gold holds."""
MAX_RANK = 10
"""The gold passage is among so many best by words or by meaning; else the query points elsewhere."""
MIN_COPIED_WORDS = 5
"""A query that repeats so many words of its gold in a row asks nothing of a retriever."""
EQUAL_FIT = 0.95
"""A question in the words of its gold is ambiguous where another passage has this share of those that its gold has."""
WITHHELD_SENTENCE_SHARE, WITHHELD_QUERY_SHARE = 0.75, 0.6
"""Shares, by rarity, of the words of a withheld sentence, or of its question, from which a passage may answer it."""

MIN_ANSWERABILITY, MAX_ANSWERABILITY = PROBABILITY_BOUNDS["embedded"]
SEARCHED_PASSAGES = 3
"""Passages, those with most of its words, in which an unanswerable question may not have an answer."""


class DraftFilter:
    """Checks drafts against the corpus and the items that were accepted before."""

    def __init__(self, index: CorpusIndex) -> None:
        self.index = index
        self._accepted = CaseIndex(())
        self._golds: dict[object, str] = {}
        lists = [
            index.texts[passage.document][block.start : block.end]
            for passage in index.passages
            if (block := find_list(passage))
        ]
        self._texts = [
            Counter(map(split_words, texts))
            for texts in (
                lists,
                [sentence.text for sentence in index.sentences],
                [passage.text for passage in index.passages],
            )
        ]
        self._checks: tuple[Callable[[Draft], str | None], ...] = (
            self._check_words,
            self._check_leak,
            self._check_copy,
            self._check_repeats,
            self._check_gold,
            self._check_other_passages,
            self._check_duplicate,
        )

    def reject(self, draft: Draft) -> str | None:
        """Return the reason why a draft is left out; None where it is accepted."""
        return next((reason for check in self._checks if (reason := check(draft))), None)

    def reject_written(self, draft: Draft) -> str | None:
        """Return the reason why a question in whole sentences is left out; its gold must look like an answer, too."""
        reason = self.reject(draft) or self._find_copy(draft)
        if reason is None and draft.kind == "extractive":
            score = score_answerability(draft.query, [self.index.passages[draft.passages[0]].text])[0]
            if score < MIN_ANSWERABILITY:
                reason = f"not answerable from its gold: probability {score:.2f}"
        return reason

    def reject_withheld(self, query: str, sentence: str, answer: str) -> str | None:
        """Return the reason why a question about a sentence that is not in the corpus may have an answer in it."""
        stems = split_content_words(query)
        if len(set(stems)) < 2:
            return "too few words of content"
        repeated = self.index.score_passages(split_content_words(sentence))
        for at, score in repeated.items():
            if score >= WITHHELD_SENTENCE_SHARE:
                return f"may be answerable: {self.index.passages[at].document} has most words of its sentence"
        scores = self.index.score_passages(stems)
        answer_stems = split_content_words(answer)
        for at, score in scores.items():
            passage = self.index.passages[at]
            if score >= WITHHELD_QUERY_SHARE and answer_stems and all(stem in passage.stems for stem in answer_stems):
                return f"may be answerable: {passage.document} has its answer and most of its words"
        double = self._accepted.duplicate_id(query)
        return self._check_unanswerable(query, scores) or (None if double is None else f"near-duplicate of {double}")

    def accept(self, item: Trace) -> None:
        """Remember the query of an item, so that no later one is its duplicate."""
        self._accepted.add(item)
        if item.gold is not None:
            self._golds[_identify_gold(item.metadata["kind"], item.gold.spans)] = item.id

    def _check_words(self, draft: Draft) -> str | None:
        words = set(split_content_words(draft.query))
        few = 1 if draft.kind in ("definition", "ambiguous") else 2
        return None if len(words) >= few else "too few words of content"

    def _check_leak(self, draft: Draft) -> str | None:
        """Reject a query that contains its answer: it is answerable without the gold."""
        if draft.kind not in ("extractive", "factoid", "table", "two-passage") or not draft.reference:
            return None
        answer = set(split_content_words(draft.reference))
        if answer and answer <= set(split_content_words(draft.query)):
            return "answerable without its gold: the query contains the answer"
        return None

    def _check_copy(self, draft: Draft) -> str | None:
        """Reject a query in the words of its gold, unless its kind is made of them."""
        return self._find_copy(draft) if draft.kind in ("extractive", "list", "comparison", "abstract") else None

    def _find_copy(self, draft: Draft) -> str | None:
        if not draft.spans:
            return None
        words = [word for word in split_words(draft.query) if word not in QUESTION_WORDS]
        gold = f" {' '.join(split_words(draft.spans[0].quote or ''))} "
        runs = range(len(words) - MIN_COPIED_WORDS + 1)
        if any(f" {' '.join(words[i : i + MIN_COPIED_WORDS])} " in gold for i in runs):
            return f"simplistic: {MIN_COPIED_WORDS} words in a row are those of its gold"
        return None

    def _check_repeats(self, draft: Draft) -> str | None:
        """Reject a question whose gold stands in the corpus twice: who finds the other place is right, too."""
        if draft.kind in ("ambiguous", "unanswerable"):
            return None
        texts = [span.quote or "" for span in draft.spans] + [self.index.passages[at].text for at in draft.passages]
        is_repeated = any(counts[split_words(text)] > 1 for counts in self._texts for text in texts)
        return "ambiguous: its gold is in the corpus twice" if is_repeated else None

    def _check_gold(self, draft: Draft) -> str | None:
        """Reject a query whose gold does not say what it asks for, or is hard to tell from other passages."""
        if not draft.spans or draft.kind == "ambiguous":
            return None
        stems = split_content_words(draft.query)
        scores = self.index.score_passages(stems)
        best = max(scores.get(passage, 0.0) for passage in draft.passages)
        if best < MIN_GOLD_SHARE and draft.kind != "extractive":
            return "not answerable from its gold: the gold has hardly any of its words"
        if sum(score > best for score in scores.values()) < MAX_RANK:
            return None
        similarity = self.index.embeddings @ embed_word_vectors([draft.query])[0]
        nearest = max(similarity[passage] for passage in draft.passages)
        if int((similarity > nearest).sum()) < MAX_RANK:
            return None
        return f"ambiguous: {MAX_RANK} passages or more fit it better than its gold, by words and by meaning"

    def _check_other_passages(self, draft: Draft) -> str | None:
        """Reject a question that is answered elsewhere, too, or that should have no answer and may have one."""
        scores = self.index.score_passages(split_content_words(draft.query))
        if draft.kind == "unanswerable":
            return self._check_unanswerable(draft.query, scores)
        if draft.kind in ("factoid", "table", "false premise"):
            rival = self._find_rival(draft)
            return None if rival is None else f"ambiguous: {self.index.passages[rival].document} has its words, too"
        if draft.kind != "extractive" or not draft.reference:
            return None
        answer = split_content_words(draft.reference)
        least = max(scores.get(place, 0.0) for place in draft.passages)
        for at, score in scores.items():
            passage = self.index.passages[at]
            if at not in draft.passages and score > least and answer and all(stem in passage.stems for stem in answer):
                return f"answered by another passage, too, in {passage.document}"
        return None

    def _find_rival(self, draft: Draft) -> int | None:
        """Return another passage of its topic that has the words of a question; None without one."""
        topic, _, question = draft.query.rpartition(": ")
        scores = self.index.score_passages(split_content_words(question))
        least = EQUAL_FIT * max(scores.get(at, 0.0) for at in draft.passages)
        for at, score in scores.items():
            passage = self.index.passages[at]
            context = f"{passage.text} {passage.heading} {self.index.titles[passage.document] or ''}"
            if at not in draft.passages and score >= least and set(split_words(topic)) <= set(split_words(context)):
                return at
        return None

    def _check_unanswerable(self, query: str, scores: Mapping[int, float]) -> str | None:
        nearest = sorted(scores, key=lambda i: (-scores[i], i))[:SEARCHED_PASSAGES]
        texts = [self.index.passages[i].text for i in nearest]
        for i, score in zip(nearest, score_answerability(query, texts), strict=True):
            if score > MAX_ANSWERABILITY:
                return f"may be answerable: by {self.index.passages[i].document}, probability {score:.2f}"
        return None

    def _check_duplicate(self, draft: Draft) -> str | None:
        double = self._accepted.duplicate_id(draft.query)
        if double is None and draft.spans and draft.kind not in ("extractive", "factoid"):
            double = self._golds.get(_identify_gold(draft.kind, draft.spans))
        return None if double is None else f"near-duplicate of {double}"


def _identify_gold(kind: str, spans: Iterable[Span]) -> object:
    """Return a key that items of one kind with the same gold share."""
    return kind, frozenset((span.document, span.start) for span in spans)
