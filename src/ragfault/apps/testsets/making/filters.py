"""Checks of drafted queries, each with the reason of a rejection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache

from ragfault.apps.testsets.answerability import PROBABILITY_BOUNDS, score_answerability
from ragfault.apps.testsets.making.probes import Draft
from ragfault.apps.testsets.passages import Array, CorpusIndex
from ragfault.apps.testsets.records import PROBE_KINDS
from ragfault.diagnosis.clusters.promotion import CaseIndex
from ragfault.judges.embedded.word_vectors import embed_word_vectors
from ragfault.model.records import Span, Trace
from ragfault.text.entities import extract_entities, extract_literals
from ragfault.text.normalization import normalize_answer, split_content_words, split_words

MIN_GOLD_SHARE = 0.2
"""Least share of a query's words, by rarity, that its gold holds."""
MAX_RANK = 10
"""The gold passage is among so many best by words or by meaning; else the query points elsewhere."""
MIN_COPIED_WORDS = 5
"""A question that repeats so many words of its gold in a row asks nothing of a retriever."""
QUESTION_WORDS = frozenset(("what", "who", "whom", "whose", "which", "when", "where", "why", "how"))

MIN_ANSWERABILITY = PROBABILITY_BOUNDS[0]
MIN_FALL = 0.1
"""Least fall of the probability of an answer that shows that an edit took the answer away.

Of 368 pairs of SQuAD 2.0 that differ in one word 61 % fall by so much, and 4 % rise by it, out of fold
(`python -m training.answerability DATA`)."""
NEAR_PASSAGES = 10
"""Passages of the corpus, those that share most words with it, that must not answer an unanswerable question."""
SAME_MEANING = 0.8
"""Cosine of two questions with the same names and numbers from which on they ask the same.

It finds 15 of 24 authored paraphrases, and 3.5 % of the pairs of different questions on one paragraph
(`python -m benchmarks.same_questions DATA`)."""


class DraftFilter:
    """Checks drafts against the corpus and the items that were accepted before."""

    def __init__(self, index: CorpusIndex) -> None:
        self.index = index
        self._accepted = CaseIndex(())
        self._golds: dict[object, str] = {}
        self._questions: list[Trace] = []
        self._texts = [Counter(split_words(part.text) for part in parts) for parts in (index.sentences, index.passages)]
        self._checks: tuple[Callable[[Draft], str | None], ...] = (
            self._check_words,
            self._check_leak,
            self._check_repeats,
            self._check_gold,
            self._check_other_passages,
            self._check_duplicate,
        )

    def reject(self, draft: Draft) -> str | None:
        """Return the reason why a draft is left out; None where it is accepted."""
        return next((reason for check in self._checks if (reason := check(draft))), None)

    def reject_written(self, draft: Draft) -> str | None:
        """Return the reason why a question of a model is left out, by words, meaning and the judge."""
        return self.reject(draft) or self._find_copy(draft) or self._find_same_meaning(draft) or self._judge(draft)

    def _judge(self, draft: Draft) -> str | None:
        """Reject a question whose gold does not look like its answer, or whose edit did not take the answer away."""
        if not self.index.foreign.isdisjoint(draft.passages):
            return None
        own = [self.index.passages[at].text for at in draft.passages]
        if draft.kind == "extractive":
            (score,) = score_answerability(draft.query, own)
            return f"not answerable from its gold: probability {score:.2f}" if score < MIN_ANSWERABILITY else None
        if draft.kind != "unanswerable":
            return None
        scores = self.index.score_passages(split_content_words(draft.query))
        nearest = sorted(scores, key=lambda at: (-scores[at], at))[:NEAR_PASSAGES]
        texts = own + [self.index.passages[at].text for at in nearest]
        before, after = max(score_answerability(draft.original, own)), max(score_answerability(draft.query, texts))
        if after <= before - MIN_FALL:
            return None
        return f"its edit does not take the answer away: probability of one {before:.2f} before, {after:.2f} after"

    def _find_same_meaning(self, draft: Draft) -> str | None:
        """Reject a question that asks the same as an accepted item, unless the two have different answers."""
        answer = normalize_answer(draft.reference or "")
        for item in self._questions:
            other = normalize_answer(item.references[0]) if item.references else ""
            if (not answer or not other or answer == other) and ask_the_same(draft.query, item.query):
                return f"asks the same as {item.id}"
        return None

    def accept(self, item: Trace) -> None:
        """Remember the query of an item and its gold, so that no later one repeats either."""
        self._accepted.add(item)
        if item.metadata.get("kind") not in PROBE_KINDS:
            self._questions.append(item)
        if item.gold is not None:
            self._golds[_identify_gold(item.gold.spans)] = item.id

    def _check_words(self, draft: Draft) -> str | None:
        return None if len(set(split_content_words(draft.query))) >= 2 else "too few words of content"

    def _check_leak(self, draft: Draft) -> str | None:
        """Reject a query that contains its answer: it is answerable without the gold."""
        if draft.kind not in ("cloze", "extractive", "two-passage") or not draft.reference:
            return None
        answer = set(split_content_words(draft.reference))
        if answer and answer <= set(split_content_words(draft.query)):
            return "answerable without its gold: the query contains the answer"
        return None

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
        """Reject a query whose gold stands in the corpus twice: who finds the other place is right, too."""
        if not draft.answerable:
            return None
        texts = [span.quote or "" for span in draft.spans] + [self.index.passages[at].text for at in draft.passages]
        is_repeated = any(counts[split_words(text)] > 1 for counts in self._texts for text in texts)
        return "ambiguous: its gold is in the corpus twice" if is_repeated else None

    def _check_gold(self, draft: Draft) -> str | None:
        """Reject a probe whose gold is hard to tell from other passages; a question may be hard to find by words."""
        if draft.kind not in PROBE_KINDS:
            return None
        scores = self.index.score_passages(split_content_words(draft.query))
        best = max(scores.get(passage, 0.0) for passage in draft.passages)
        if best < MIN_GOLD_SHARE:
            return "not answerable from its gold: the gold has hardly any of its words"
        if sum(score > best for score in scores.values()) < MAX_RANK:
            return None
        similarity = self.index.embeddings @ embed_word_vectors([draft.query])[0]
        nearest = max(similarity[passage] for passage in draft.passages)
        if int((similarity > nearest).sum()) < MAX_RANK:
            return None
        return f"ambiguous: {MAX_RANK} passages or more fit it better than its gold, by words and by meaning"

    def _check_other_passages(self, draft: Draft) -> str | None:
        """Reject a probe that another passage fits as well, and a question that another passage answers."""
        scores = self.index.score_passages(split_content_words(draft.query))
        least = max((scores.get(place, 0.0) for place in draft.passages), default=0.0)
        answer = split_content_words(draft.reference or "")
        is_probe = draft.kind in PROBE_KINDS
        for at, score in scores.items():
            if at in draft.passages:
                continue
            if is_probe and score >= least:
                return f"ambiguous: {self.index.passages[at].document} has its words, too"
            stems = self.index.passages[at].stems
            if draft.kind == "extractive" and score > least and answer and all(stem in stems for stem in answer):
                return f"answered by another passage, too, in {self.index.passages[at].document}"
        return None

    def _check_duplicate(self, draft: Draft) -> str | None:
        double = self._accepted.duplicate_id(draft.query) or self._golds.get(_identify_gold(draft.spans))
        return None if double is None else f"near-duplicate of {double}"


def ask_the_same(first: str, second: str) -> bool:
    """Return whether two questions ask the same, by the vectors of their words: with the same names and numbers only.

    >>> ask_the_same("What does error E-7 mean?", "What is the meaning of the error E-7?")
    True
    >>> ask_the_same("What does error E-7 mean?", "What does error E-4 mean?")
    False
    """
    vector, entities = _read_question(first)
    other_vector, other_entities = _read_question(second)
    return entities == other_entities and float(vector @ other_vector) >= SAME_MEANING


@lru_cache(maxsize=10_000)
def _read_question(query: str) -> tuple[Array, object]:
    """Return the vector of a question, and its names and numbers."""
    return embed_word_vectors([query])[0], (extract_entities(query), frozenset(extract_literals(query)))


def _identify_gold(spans: Iterable[Span]) -> object:
    """Return a key that items with the same gold share."""
    return frozenset((span.document, span.start, span.end) for span in spans) or object()
