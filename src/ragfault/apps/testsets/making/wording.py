"""Wording of queries: few words, some of them other words than those of the passage, in the style of query logs."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from msgspec import Struct

from ragfault.apps.testsets.passages import WORD, CorpusIndex, CorpusPassage, find_form, rank_topics
from ragfault.model.records import Trace
from ragfault.text.normalization import STOP_WORDS, split_content_words, stem_word

QUESTION_WORDS = frozenset(("what", "who", "whom", "whose", "which", "when", "where", "why", "how"))
OPENINGS = {
    "number": ("how many", "how much", "what number of"),
    "year": ("when", "in what year"),
    "name": ("who", "which", "what is the name of the"),
    "other": ("what", "what kind of", "how", "which"),
}
"""Kind of answer → the words that a question opens with."""
NAME_OR_NUMBER = re.compile(
    r"\b\d+(?:[:.,/-]\d+)*(?:-?[^\W_]+)*|\b[A-Z][\w.-]*\w(?: [A-Z][\w.-]*\w){0,3}|\b[a-z]+[A-Z\d]\w*"
)
MIN_STYLE_QUERIES = 20
"""Fewer real queries than that do not set the style."""
TOPIC_SHARE = 0.45
"""Share of a query's words that name the topic of its passage; the rest is from one sentence."""
TOPIC_CANDIDATES = 3
KEEP_WORD, KEEP_NAME = 0.8, 0.6
"""Chance that a word or a name within the chosen stretch of a sentence stays in the query."""
INFLECT = 0.15
"""Chance that a word stands in another form of it that the corpus has."""
TOPIC_GAP = 0.25
"""Chance of another word, for a word of the topic in relation to a word of the sentence."""
SIMILARITY_SCALE = 0.1
"""Difference in similarity that makes a word e times as likely a replacement."""
DANGLING = frozenset(("and", "or", "but", "that", "which", "of", "to", "by", "who", "as", "with", "for", "in", "than"))


class QueryStyle(Struct, frozen=True, kw_only=True):
    """Style of queries, by default about that of questions to search engines and encyclopedias."""

    sizes: tuple[int, ...] = (3, 3, 4, 4, 5, 5, 6, 7)
    """Numbers of words of content, each as likely as the others."""
    gap: tuple[float, float] = (0.4, 0.85)
    """Range of the chance that a word is replaced by one of near meaning; each query draws its own."""
    questions: float = 0.9
    """Share of queries that open with a question word."""
    lower: float = 0.5
    """Share of queries without capitals."""
    source: str = "default"
    """Where it is from: "default", or "N queries" of a log."""


def fit_style(traces: Iterable[Trace]) -> QueryStyle | None:
    """Fit the style to the queries of real traces; None below 20 distinct queries.

    Lengths, the share of questions and of queries without capitals are those of the queries. The gap is that between
    the queries and the retrieved chunk that shares most words with each, where chunks were recorded; else the default.

    >>> fit_style([Trace(id="1", query="When?")]) is None
    True
    """
    queries: dict[str, Trace] = {}
    for trace in traces:
        queries.setdefault(trace.query, trace)
    sizes = sorted(len(words) for query in queries if (words := set(split_content_words(query))))
    if len(sizes) < MIN_STYLE_QUERIES:
        return None
    gaps = [gap for trace in queries.values() if (gap := _measure_gap(trace)) is not None]
    default = QueryStyle()
    return QueryStyle(
        sizes=tuple(min(20, max(2, sizes[i * len(sizes) // 20])) for i in range(20)),
        gap=_spread_gap(fmean(gaps)) if len(gaps) >= MIN_STYLE_QUERIES else default.gap,
        questions=fmean(bool(QUESTION_WORDS & set(query.lower().split()[:2])) for query in queries),
        lower=fmean(query == query.lower() for query in queries),
        source=f"{len(queries)} queries",
    )


def _measure_gap(trace: Trace) -> float | None:
    """Return the share of a query's words that no single retrieved chunk has; None without chunks or words."""
    words = set(split_content_words(trace.query))
    texts = [chunk.text for chunk in trace.chunks or () if chunk.text.strip()]
    if not words or not texts:
        return None
    return min(len(words - set(split_content_words(text))) for text in texts) / len(words)


def _spread_gap(mean: float) -> tuple[float, float]:
    """Return a range around the chance of replacing a word that leaves the given share of words out of the passage.

    Names, numbers and words without a relative stay, and so do most words of the topic: measured on four corpora, a
    chance of p leaves 0.57 p of the words out.
    """
    middle = min(1.0, mean / 0.57)
    return max(0.0, middle - 0.25), min(1.0, middle + 0.25)


class Answer(NamedTuple):
    """A stretch of a sentence that a question can ask for."""

    text: str
    kind: str
    """A key of `OPENINGS`."""
    words: frozenset[int]
    """Positions of its words in the sentence."""


def is_content(word: str) -> bool:
    """Return whether a word is no stop word and no single letter."""
    return len(word) > 1 and stem_word(word.lower()) not in STOP_WORDS


def is_name(word: str) -> bool:
    """Return whether a word is a name or a number, which no other word may stand for."""
    return word[0].isupper() or any(map(str.isdigit, word))


def choose_answer(sentence: str, rng: random.Random, is_proper: Callable[[str], bool] = is_name) -> Answer | None:
    """Choose a name, number or year within a sentence at random, else any word of content; None without one.

    `is_proper` says whether a word with a capital or a digit is a name.

    >>> choose_answer("The ferry was built in 1907 by hand.", random.Random(0))
    Answer(text='1907', kind='year', words=frozenset({5}))
    >>> choose_answer("It opens at 22:30 on weekdays.", random.Random(0)).text
    '22:30'
    """
    words = list(WORD.finditer(sentence))
    usual = [match for match in words if is_content(match.group())]
    names = [
        match
        for match in NAME_OR_NUMBER.finditer(sentence)
        if match.start() > words[0].start() and is_content(match.group()) and is_proper(match.group().split()[0])
    ]
    if not usual:
        return None
    chosen = rng.choice(names or usual)
    places = (i for i, word in enumerate(words) if chosen.start() <= word.start() and word.end() <= chosen.end())
    return Answer(chosen.group(), name_answer_kind(chosen.group()), frozenset(places))


def name_answer_kind(text: str) -> str:
    """Name the kind of an answer: "year", "number", "name" or "other".

    >>> name_answer_kind("1907"), name_answer_kind("12"), name_answer_kind("Ann Lee"), name_answer_kind("fee")
    ('year', 'number', 'name', 'other')
    """
    if re.fullmatch(r"1\d{3}|20\d\d", text):
        return "year"
    return "number" if text[0].isdigit() else "name" if text[0].isupper() else "other"


class QueryWriter:
    """Writes queries about stretches of passages in a style."""

    def __init__(self, index: CorpusIndex, style: QueryStyle, rng: random.Random) -> None:
        self.index, self.style, self.rng = index, style, rng

    def write(
        self, passage: CorpusPassage, sentence: str, answer: Answer | None, opening: str | None = None
    ) -> str | None:
        """Write a query for what a sentence says of an answer; None where too few words are left to ask with.

        The words are those of a short stretch of the sentence without the answer, then words that tell the passage
        from others. Some are replaced by words of near meaning that the passage does not have.
        """
        words = WORD.findall(sentence)
        hidden = {stem_word(words[i].lower()) for i in answer.words} if answer else set()
        size = self.rng.choice(self.style.sizes)
        gap = self.rng.uniform(*self.style.gap)
        topic_count = max(1, round(size * TOPIC_SHARE))
        stretch = self._choose_stretch(words, passage, hidden, size - topic_count)
        query_words = [self._vary(word, passage, gap) if is_content(word) else word.lower() for word in stretch]
        used_stems = {stem_word(word.lower()) for word in stretch} | hidden
        topics = self._choose_topics(passage, used_stems, topic_count, gap)
        if sum(map(is_content, query_words)) + len(topics) < 2:
            return None
        is_question = self.rng.random() < self.style.questions
        start = (opening or self.rng.choice(OPENINGS[answer.kind if answer else "other"])) if is_question else ""
        joint = [self.rng.choice(("in", "of"))] if is_question and query_words and topics else []
        query = " ".join([*start.split(), *query_words, *joint, *topics])
        return query.lower() if self.rng.random() < self.style.lower else query

    def _choose_stretch(self, words: Sequence[str], passage: CorpusPassage, hidden: set[str], size: int) -> list[str]:
        """Choose words of a stretch of a sentence, most likely where its words tell the passage from others."""
        stems = [stem_word(word.lower()) for word in words]
        weights = [
            self.index.compute_rarity(stem) ** 0.7 * math.sqrt(passage.stems[stem] or 1)
            if is_content(word) and stem not in hidden
            else 0.0
            for word, stem in zip(words, stems, strict=True)
        ]
        width = max(2, 2 * size)
        starts = range(max(1, len(words) - width + 1))
        totals = [sum(weights[i : i + width]) ** 2 + 1e-9 for i in starts]
        start = self.rng.choices(starts, totals)[0]
        stretch: list[str] = []
        count = 0
        for index in range(start, min(len(words), start + width)):
            word = words[index]
            if stems[index] in hidden:
                continue
            if is_content(word):
                if count >= size or self.rng.random() > (KEEP_NAME if is_name(word) else KEEP_WORD):
                    continue
                count += 1
            stretch.append(word)
        while stretch and not is_content(stretch[-1]):
            stretch.pop()
        while stretch and stretch[0].lower() in DANGLING:
            stretch.pop(0)
        return stretch

    def _choose_topics(self, passage: CorpusPassage, used_stems: set[str], count: int, gap: float) -> list[str]:
        passage_words = WORD.findall(f"{passage.text} {passage.heading}")
        topics: list[str] = []
        for _ in range(count):
            candidates = rank_topics(self.index, passage, used_stems)[:TOPIC_CANDIDATES]
            if not candidates:
                break
            stem = self.rng.choice(candidates)
            used_stems.add(stem)
            topics.append(self._vary(find_form(stem, passage_words), passage, gap * TOPIC_GAP))
        return topics

    def _vary(self, word: str, passage: CorpusPassage, gap: float) -> str:
        """Return a word, another form of it, or one of near meaning that the passage does not have."""
        if is_name(word):
            return word
        stem, draw = stem_word(word.lower()), self.rng.random()
        if draw < gap:
            return self._replace_word(stem, passage) or word
        if draw < gap + INFLECT:
            forms = Counter(self.index.list_forms(stem))
            forms.pop(word.lower(), None)
            if forms:
                return self.rng.choices(list(forms), list(forms.values()))[0]
        return word

    def _replace_word(self, stem: str, passage: CorpusPassage) -> str | None:
        related = [item for item in self.index.list_related(stem) if item[0] not in passage.stems]
        if not related:
            return None
        weights = [math.exp(similarity / SIMILARITY_SCALE) for _, similarity in related]
        related_word = self.rng.choices([name for name, _ in related], weights)[0]
        return self.index.list_forms(related_word).most_common(1)[0][0]
