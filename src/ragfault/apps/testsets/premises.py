"""Questions against the chunks that were retrieved for them: answered, doubtful, or of a false premise."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from ragfault.apps.testsets.answerability import PROBABILITY_BOUNDS, score_answerability
from ragfault.judges.checks.lexicon import load_idf
from ragfault.model.records import Trace
from ragfault.stats.classification import auroc
from ragfault.text.normalization import STOP_WORDS, split_words
from ragfault.text.sentences import split_sentences

PremiseOutcome = Literal["answered", "doubtful", "false premise", "cannot tell"]
MIN_SHARE = 0.5
"""Share of the other words of a question, by rarity, that a sentence has which states another number."""
MIN_WORDS = 3
MAX_SENTENCES = 60
MAX_QUERY_WORDS = 40
QUERY_WORD = re.compile(r"[^\W_]+(?:[.'’-][^\W_]+)*")
YEAR = re.compile(r"1\d{3}|20\d\d")
BOUNDS = re.compile(
    r"\b(up to|(?:more|less|fewer|later|longer|higher|lower) than|or (?:more|less|fewer|later|earlier)"
    r"|at (?:least|most)|above|below|over|under|before|after|beyond|within|minimum|maximum|by (?=\d)"
    r"|about|around|approximately|nearly|almost|roughly)\b",
    re.IGNORECASE,
)
"""Words of a rule that holds for many numbers: that a question has another one than the rule contradicts nothing."""


class QueryWord(NamedTuple):
    """A word of content of a question."""

    stem: str
    rarity: float
    is_number: bool
    text: str


def list_query_words(query: str) -> list[QueryWord]:
    """List the words of content of a question, in order.

    >>> [word.stem for word in list_query_words("Who built the quay of Ostrey?")]
    ['built', 'quay', 'ostrey']
    """
    rarity = load_idf()
    words = []
    for match in list(QUERY_WORD.finditer(query))[:MAX_QUERY_WORDS]:
        for stem in split_words(match.group())[:1]:
            if stem not in STOP_WORDS:
                words.append(QueryWord(stem, rarity(stem), any(map(str.isdigit, stem)), match.group()))
    return words


class PassageWords:
    """The sentences of a passage and their words."""

    def __init__(self, text: str) -> None:
        spans = split_sentences(text)[:MAX_SENTENCES] or [(0, len(text))]
        self.sentences = [text[start:end] for start, end in spans]
        self.words = [split_words(sentence) for sentence in self.sentences]
        self.content = [frozenset(words) - STOP_WORDS for words in self.words]
        self.stems = frozenset().union(*self.content)


class PremiseCheck(Struct, frozen=True, kw_only=True):
    """One question and its chunks."""

    trace: str
    query: str
    outcome: PremiseOutcome
    probability: float
    """The probability that one of the chunks by itself answers the question (`score_answerability`)."""
    reason: str
    sentence: str | None = None
    """The sentence that states another number, verbatim."""


class PremiseReport(Struct, frozen=True, kw_only=True):
    """All questions of some traces."""

    counts: dict[str, int]
    """Outcome → number of traces; every trace with chunks counts once."""
    left_out: int
    """Traces without a chunk with text."""
    auroc: float | None = None
    """Of the probability against the labels `answerable`; None where the traces have not both."""
    checks: tuple[PremiseCheck, ...]


def check_premise(trace: Trace) -> PremiseCheck | None:
    """Check whether the chunks of a trace answer its question; None without a chunk with text.

    A premise is false where the question has a number that no chunk has, and a sentence has at least half of its
    other words, by rarity, and another number beside the same word, or another year, and states no bound ("up to 9
    metres"). Else the probability decides: the question is answered, or doubtful, beyond bounds on whose wrong side 2 %
    of the labelled pairs are, and in between it cannot be told. Of traffic that is nearly all answered, doubtful
    questions are mostly answered, too, as are those that only several chunks together answer.

    >>> from ragfault.model.records import Chunk
    >>> chunk = Chunk(id="a", text="The quay of Ostrey was built in 1907 by Ann Lee. Soup is served at noon.")
    >>> check_premise(Trace(id="1", query="Who built the quay of Ostrey in 1911?", chunks=(chunk,))).outcome
    'false premise'
    """
    texts = [chunk.text for chunk in trace.chunks or () if chunk.text.strip()]
    if not texts:
        return None
    probability = max(score_answerability(trace.query, texts))
    lowest, highest = PROBABILITY_BOUNDS
    words = list_query_words(trace.query)
    passages = [PassageWords(text) for text in texts]
    stems = frozenset().union(*(passage.stems for passage in passages))
    missing = [word for word in words if word.stem not in stems]
    sentence = _find_rival(trace.query, words, missing, passages)
    outcome: PremiseOutcome
    if sentence is not None:
        outcome, reason = (
            "false premise",
            f"no chunk has {_join(missing, numbers=True)}, and a sentence has another number",
        )
    elif probability >= highest:
        outcome, reason = "answered", "a chunk has what is asked for"
    elif probability < lowest:
        outcome = "doubtful"
        reason = f"no chunk has {_join(missing)}" if missing else "no chunk has the words of the question together"
    else:
        outcome, reason = (
            "cannot tell",
            f"no chunk has {_join(missing)}" if missing else "the chunks are near the question",
        )
    return PremiseCheck(
        trace=trace.id,
        query=trace.query,
        outcome=outcome,
        probability=round(probability, 3),
        reason=reason,
        sentence=sentence,
    )


def check_premises(traces: Iterable[Trace]) -> PremiseReport:
    """Check the questions of some traces, and measure the probability where they have labels of answerability."""
    checks: list[PremiseCheck] = []
    labels: list[tuple[bool, float]] = []
    left_out = 0
    for trace in traces:
        check = check_premise(trace)
        if check is None:
            left_out += 1
            continue
        checks.append(check)
        if trace.answerable is not None:
            labels.append((trace.answerable, check.probability))
    return PremiseReport(
        counts=dict(Counter(check.outcome for check in checks)),
        left_out=left_out,
        auroc=auroc([score for _, score in labels], [int(label) for label, _ in labels]) if labels else None,
        checks=tuple(checks),
    )


def _find_rival(
    query: str, words: Sequence[QueryWord], missing: Sequence[QueryWord], passages: Sequence[PassageWords]
) -> str | None:
    """Return the sentence that has another number in the place of one that no chunk has; None without one."""
    if len(words) < MIN_WORDS or not any(word.is_number for word in missing):
        return None
    query_stems = {word.stem for word in words}
    rarities = {word.stem: word.rarity for word in words if word not in missing}
    total = sum(rarities.values())
    best = max(
        (
            (sum(rarities.get(stem, 0.0) for stem in content_stems), sentence, tokens)
            for passage in passages
            for sentence, content_stems, tokens in zip(passage.sentences, passage.content, passage.words, strict=True)
        ),
        key=lambda item: item[0],
    )
    asked = {word.stem for word in missing if word.is_number}
    numbers = {token for token in best[2] if token[0].isdigit() and token not in query_stems}
    is_same_thing = _list_neighbours(split_words(query), asked) & _list_neighbours(best[2], numbers)
    rivals = total and best[0] >= MIN_SHARE * total and is_same_thing and not BOUNDS.search(best[1])
    return best[1] if rivals else None


def _list_neighbours(tokens: Sequence[str], numbers: Collection[str]) -> set[str]:
    """List the words of content right before and after some numbers, which tell what they count; "year" for a year."""
    neighbours = {"year" for number in numbers if YEAR.fullmatch(number)}
    for index, token in enumerate(tokens):
        if token in numbers:
            neighbours.update(tokens[max(0, index - 1) : index + 2])
    return {word for word in neighbours if word not in STOP_WORDS and word not in numbers}


def _join(words: Sequence[QueryWord], *, numbers: bool = False) -> str:
    return ", ".join(f"“{word.text}”" for word in words if word.is_number or not numbers)
