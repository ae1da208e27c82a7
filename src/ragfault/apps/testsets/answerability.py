"""Answerability of a question by a passage: features of their words, weighed by a packaged model.

Besides features of its own the model has those of a judge, for which the question without its question words is a
claim: what a claim has that a passage does not say is what a question presupposes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ragfault.judges.checks.contradictions import ANTONYMS
from ragfault.judges.checks.lexicon import load_idf
from ragfault.judges.checks.passages import Passage
from ragfault.judges.checks.queries import KIND_PATTERNS, classify_answer_kind
from ragfault.judges.embedded.features import FEATURE_NAMES as CLAIM_FEATURE_NAMES
from ragfault.judges.embedded.judge import EmbeddedJudge
from ragfault.judges.embedded.network import TreeEnsemble
from ragfault.judges.embedded.word_vectors import embed_word_vectors, load_vectors
from ragfault.model.errors import UnknownName
from ragfault.model.grouping import group_positions
from ragfault.text.normalization import NEGATIONS, STOP_WORDS, split_words
from ragfault.text.sentences import split_sentences

if TYPE_CHECKING:
    from ragfault.judges.minilm.judge import MiniLMJudge

Array = np.ndarray[Any, Any]

MAX_SENTENCES = 60
MAX_QUERY_WORDS = 40
NEAR = 0.55
"""Cosine of two word vectors from which a word stands for another."""
LIMITING = frozenset(
    ("first", "last", "onli", "most", "least", "largest", "smallest", "best", "main", "earliest", "latest")
)
"""Words that single out one of several."""
QUERY_WORD = re.compile(r"[^\W_]+(?:[.'’-][^\W_]+)*")


class QueryWord(NamedTuple):
    """A word of content of a question."""

    stem: str
    rarity: float
    is_name: bool
    is_number: bool
    place: float
    """Its place in the question, from 0 to 1."""
    text: str


FEATURE_NAMES = (
    "exact coverage",
    "near coverage",
    "best sentence exact",
    "best sentence near",
    "second sentence",
    "two sentences",
    "missing rarity",
    "missing near",
    "missing count",
    "missing share",
    "missing names",
    "missing numbers",
    "sentence missing names",
    "sentence missing numbers",
    "lowest near",
    "second lowest near",
    "lowest rarity",
    "lowest is name",
    "lowest place",
    "lowest elsewhere",
    "opposite",
    "negation differs",
    "limiting missing",
    "pairs",
    "sequence",
    "run",
    "kind number",
    "kind date",
    "kind name",
    "kind in sentence",
    "new of kind",
    "new names",
    "new numbers",
    "noun in sentence",
    "noun near",
    "sentence cosine",
    "passage cosine",
    "sentences",
    "words of query",
    "why or how",
    "claim odds",
    "answer odds",
    "worst word",
    "second word",
    "third word",
    "mean word",
    *(f"claim {name}" for name in CLAIM_FEATURE_NAMES),
)
READER_FEATURE_NAMES = (
    *(
        f"{text} {name}"
        for text in ("claim", "question")
        for name in ("logit", "worst token", "mean token", "two worst tokens", "share of tokens in doubt")
    ),
    "closeness",
)
"""What the judge minilm adds: of the question without its question words, and of the whole question."""
AnswerabilityJudge = Literal["embedded", "minilm"]
PROBABILITY_BOUNDS: dict[AnswerabilityJudge, tuple[float, float]] = {"embedded": (0.17, 0.8), "minilm": (0.17, 0.85)}
"""2 % of the pairs with an answer are below, 2 % of those without one above, out of fold (`training.answerability`)."""
WEIGHED_WORDS = 3
NO_WORD_ODDS = -5.0
"""Log-odds that stand for a word that a claim does not have."""
QUESTION_OPENING = re.compile(
    r"^\W*(?:(?:in|on|at|by|for|to|from|of|with)\s+)?"
    r"(?:what|which|who|whom|whose|when|where|why|how(?: many| much| long| often| far)?)\b\s*"
    r"(?:(?:is|are|was|were|did|does|do|has|have|had|can|could|would|will)\b)?\s*",
    re.IGNORECASE,
)


def list_query_words(query: str) -> list[QueryWord]:
    """List the words of content of a question, in order.

    >>> [word.stem for word in list_query_words("Who built the quay of Ostrey?")]
    ['built', 'quay', 'ostrey']
    """
    rarity = load_idf()
    matches = list(QUERY_WORD.finditer(query))[:MAX_QUERY_WORDS]
    words = []
    for index, match in enumerate(matches):
        for stem in split_words(match.group())[:1]:
            if stem not in STOP_WORDS:
                capital = index > 0 and match.group()[0].isupper()
                number = any(map(str.isdigit, stem))
                place = index / max(1, len(matches) - 1)
                words.append(QueryWord(stem, rarity(stem), capital, number, place, match.group()))
    return words


class PassageWords:
    """The sentences of a passage as words and vectors."""

    def __init__(self, text: str) -> None:
        self.text = text
        spans = split_sentences(text)[:MAX_SENTENCES] or [(0, len(text))]
        self.sentences = [text[start:end] for start, end in spans]
        self.words = [split_words(sentence) or ["the"] for sentence in self.sentences]
        self.content = [frozenset(words) - STOP_WORDS for words in self.words]
        self.stems = frozenset().union(*self.content)

    def measure_nearness(self, stems: Sequence[str]) -> Array:
        """Return for each sentence and each word its similarity to the nearest word, 1 where it stands there."""
        table = load_vectors()
        query = table.get_rows(list(stems))
        unit = table.get_vectors(query) / table.norms[query][:, None]
        unit[query >= table.stem_count] = 0
        nearness = np.zeros((len(self.words), len(stems)))
        for i, words in enumerate(self.words):
            rows = table.get_rows(words)
            known = rows[rows < table.stem_count]
            if len(known):
                nearness[i] = (unit @ (table.get_vectors(known) / table.norms[known][:, None]).T).max(1)
            nearness[i] = np.maximum(0, np.where([stem in self.content[i] for stem in stems], 1.0, nearness[i]))
        return nearness


def compute_features(query: str, passage: str, prepared: PassageWords | None = None) -> Array:
    """Compute the features of a question and a passage, in the order of `FEATURE_NAMES`."""
    words = list_query_words(query)
    if not words or not passage.strip():
        return np.zeros(len(FEATURE_NAMES))
    source = prepared or PassageWords(passage)
    stems = [word.stem for word in words]
    weights = np.array([word.rarity for word in words])
    weights = weights / weights.sum()
    nearness = source.measure_nearness(stems)
    exact: Array = np.greater_equal(nearness, 1.0)
    soft = np.where(nearness >= NEAR, nearness, 0.0)
    totals = 0.5 * (exact @ weights) + 0.5 * (soft @ weights)
    order = np.argsort(-totals, kind="stable")
    best, second = int(order[0]), int(order[1] if len(order) > 1 else order[0])
    anywhere: Array = np.asarray(exact.any(0))
    missing = [i for i in range(len(words)) if not anywhere[i]]
    least = [int(at) for at in np.argsort(nearness[best] - 1e-3 * weights, kind="stable")]
    low = words[least[0]]
    rarest = max(missing, key=lambda at: weights[at], default=None)
    kind = classify_answer_kind(query)
    vectors = embed_word_vectors([query, source.sentences[best], passage])
    values = (
        float(anywhere @ weights),
        float(soft.max(0) @ weights),
        float(exact[best] @ weights),
        float(soft[best] @ weights),
        float(totals[second]),
        float((exact[best] | exact[second]) @ weights),
        words[rarest].rarity if rarest is not None else 0.0,
        float(nearness[:, rarest].max()) if rarest is not None else 1.0,
        len(missing),
        len(missing) / len(words),
        sum(words[at].is_name for at in missing),
        sum(words[at].is_number for at in missing),
        sum(word.is_name and not hit for word, hit in zip(words, exact[best], strict=True)),
        sum(word.is_number and not hit for word, hit in zip(words, exact[best], strict=True)),
        float(nearness[best, least[0]]),
        float(nearness[best, least[min(1, len(least) - 1)]]),
        low.rarity,
        low.is_name,
        low.place,
        bool(anywhere[least[0]]),
        _count_opposites(stems, source.content[best]),
        bool(NEGATIONS & set(split_words(query))) != bool(NEGATIONS & set(source.words[best])),
        sum(stem in LIMITING and not hit for stem, hit in zip(stems, exact[best], strict=True)),
        *_measure_order(stems, source.words[best]),
        kind == "number",
        kind == "date",
        kind == "name",
        *_find_answers(kind, source.sentences[best], set(stems)),
        *_compare_noun(query, source, best),
        float(vectors[0] @ vectors[1]),
        float(vectors[0] @ vectors[2]),
        min(20, len(source.sentences)),
        min(20, len(words)),
        bool(re.match(r"\W*(?:why|how)\b", query, re.IGNORECASE)),
    )
    return np.concatenate([values, _weigh_claim(query, passage)])


def _cut_question_words(query: str) -> str:
    """Return a question without its question words, as a claim."""
    return f"{QUESTION_OPENING.sub('', query.strip().rstrip('?').strip()) or 'it'}."


def read_with_minilm(query: str, passage: str) -> Array:
    """Compute what the judge minilm says of a question and a passage, in the order of `READER_FEATURE_NAMES`."""
    session = _load_minilm().open_session(query)
    weighing = session.weigh_with_model([_cut_question_words(query), query], [Passage("passage", passage)])
    if weighing is None:
        return np.zeros(len(READER_FEATURE_NAMES))
    values: list[float] = []
    for logits in weighing[1]:
        tokens = np.array(logits.tokens or (0.0,))
        worst = np.sort(tokens)[-2:]
        values += [logits[0], worst[-1], tokens.mean(), worst.mean(), (tokens > 0).mean()]
    return np.array([*values, session.measure_closeness(query, passage)])


@cache
def _load_minilm() -> MiniLMJudge:
    from ragfault.judges.minilm.judge import MiniLMJudge

    return MiniLMJudge()


def _weigh_claim(query: str, passage: str) -> Array:
    """Return what the judge says of a question without its question words, taken as a claim about a passage."""
    claim = _cut_question_words(query)
    weighed = EmbeddedJudge().open_session(query).weigh_claims([claim], [Passage("passage", passage)])
    if weighed is None:
        return np.zeros(6 + len(CLAIM_FEATURE_NAMES))
    odds = np.sort(weighed.word_odds[0])[::-1]
    worst = np.concatenate([odds, np.full(WEIGHED_WORDS, NO_WORD_ODDS)])[:WEIGHED_WORDS]
    mean = float(odds.mean()) if len(odds) else 0.0
    return np.concatenate([[weighed.odds[0], weighed.answer_odds], worst, [mean], weighed.features[0]])


def _count_opposites(stems: Sequence[str], others: frozenset[str]) -> int:
    """Count the words of a question whose opposite stands in a sentence in their place."""
    return sum(stem not in others and bool(ANTONYMS.get(stem, frozenset()) & others) for stem in stems)


def _measure_order(stems: Sequence[str], words: Sequence[str]) -> tuple[float, float, float]:
    """Return the shares of a question that a sentence has as near pairs, in the same order, and in one run."""
    content_words = [word for word in words if word not in STOP_WORDS]
    positions = group_positions(content_words)
    pairs = list(pairwise(stems))
    near_count = sum(
        any(abs(i - j) <= 3 for i in positions.get(first, ()) for j in positions.get(next_word, ()))
        for first, next_word in pairs
    )
    longest = [0] * (len(content_words) + 1)
    run, best_run = [0] * (len(content_words) + 1), 0
    for stem in stems:
        previous, before = longest[:], run[:]
        for index, word in enumerate(content_words, 1):
            longest[index] = previous[index - 1] + 1 if stem == word else max(previous[index], longest[index - 1])
            run[index] = before[index - 1] + 1 if stem == word else 0
            best_run = max(best_run, run[index])
    return near_count / max(1, len(pairs)), longest[-1] / len(stems), best_run / len(stems)


def _find_answers(kind: str | None, sentence: str, stems: set[str]) -> tuple[float, float, float, float]:
    """Return whether a sentence has an answer of the expected kind, and how many it has that the question lacks."""
    present = bool(KIND_PATTERNS[kind].search(sentence)) if kind else True
    tokens = list(QUERY_WORD.finditer(sentence))
    fresh = [match.group() for match in tokens[1:] if not set(split_words(match.group())) & stems]
    names = sum(word[0].isupper() for word in fresh)
    numbers = sum(word[0].isdigit() for word in fresh)
    of_kind = {"number": numbers, "date": numbers, "name": names}.get(kind or "", len(fresh))
    return float(present), min(6, of_kind), min(6, names), min(6, numbers)


def _compare_noun(query: str, passage: PassageWords, best: int) -> tuple[float, float]:
    """Return whether the noun after "what" or "which" stands in the best sentence, and how near a word comes to it."""
    match = re.search(r"\b(?:what|which|how many)\s+((?:[\w-]+\s+){0,3}?[\w-]+)", query, re.IGNORECASE)
    nouns = [stem for stem in split_words(match[1]) if stem not in STOP_WORDS][:2] if match else []
    if not nouns:
        return 0.5, 0.5
    nearness = passage.measure_nearness(nouns)[best]
    return float(nearness.max() >= 1), float(nearness.max())


class AnswerabilityModel(NamedTuple):
    """Boosted trees and a linear model, the mean of whose probabilities counts."""

    mean: Array
    deviation: Array
    weights: Array
    bias: float
    trees: TreeEnsemble

    def predict(self, features: Array) -> Array:
        """Return the probability that the passage of each row answers its question."""
        linear = 1 / (1 + np.exp(-(((features - self.mean) / self.deviation) @ self.weights + self.bias)))
        boosted = 1 / (1 + np.exp(-(self.trees(features))))
        mean: Array = (linear + boosted) / 2
        return mean

    @staticmethod
    def unpack(arrays: dict[str, Array]) -> AnswerabilityModel:
        """Unpack a model from its arrays."""
        return AnswerabilityModel(
            arrays["mean"],
            arrays["deviation"],
            arrays["weights"],
            float(arrays["bias"]),
            TreeEnsemble.unpack(arrays, "trees"),
        )


@cache
def load_model(judge: AnswerabilityJudge = "embedded") -> AnswerabilityModel:
    """Load the packaged weights of the features with a judge, once."""
    with files(__package__).joinpath(f"answerability-{judge}.npz").open("rb") as body, np.load(body) as arrays:
        return AnswerabilityModel.unpack({name: arrays[name] for name in arrays.files})


def score_answerability(query: str, passages: Sequence[str], judge: AnswerabilityJudge = "embedded") -> list[float]:
    """Return the probability that each passage by itself answers a question, in [0, 1]; 0 for a blank passage.

    It tells a passage with the answer from another on the same subject better than it notices that one word of the
    question is not what the passage says (`docs/testsets.md`). With the judge "minilm" it is better at both, and takes
    about seven times as long. Raises MissingExtra without the packages of that judge, UnknownName for others.

    >>> near, far = score_answerability("Who built the quay?", ["Ann Lee built the quay in 1907.", "Soup is warm."])
    >>> near > far
    True
    """
    if judge not in PROBABILITY_BOUNDS:
        raise UnknownName("judge of answerability", judge, PROBABILITY_BOUNDS)
    if not passages:
        return []
    features = np.array([compute_features(query, passage) for passage in passages])
    if judge == "minilm":
        features = np.hstack([features, [read_with_minilm(query, passage) for passage in passages]])
    scores = load_model(judge).predict(features)
    return [float(score) if text.strip() else 0.0 for score, text in zip(scores, passages, strict=True)]
