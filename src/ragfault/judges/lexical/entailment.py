"""The lexical judge: entailment and relevance by words alone."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

from ragfault.judges.assembly import ScorerJudge
from ragfault.judges.checks.claims import strip_marks
from ragfault.judges.checks.contradictions import detect_contradiction, get_neighbors, measure_overlap, select_contested
from ragfault.judges.checks.lexicon import IdfTable, load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex
from ragfault.judges.checks.queries import WeightedQuery, score_relevance
from ragfault.judges.checks.tables import detect_row_conflict
from ragfault.judges.checks.word_reading import WordReading
from ragfault.judges.lexical.features import (
    ClaimAlignment,
    ClaimCounts,
    ClaimStatement,
    align_statement,
    count_claim,
    detect_field_conflict,
    extract_names,
    measure_features,
    parse_statement,
)
from ragfault.judges.lexical.weights import BIAS, WEIGHTS
from ragfault.judges.scorer import Entailment, EntailmentGroup, RelevanceScore
from ragfault.model.records import ClaimSupport, Evidence
from ragfault.text.normalization import STOP_WORDS, split_words

STEM_MARK = re.compile(r"<([^<>]+)>")
SPELLED_TERM = re.compile(r"\d[\d.,:]*\d|[^\W_]+")
SMALL_NUMBERS = {"one": "1", "two": "2", "three": "3"}
"""Spelled numbers that count what a text names ("the two"), and need not be in it."""
SMALL_NUMBER = re.compile(r"\b(one|two|three)\b")
MIN_CONFLICT_COVERAGE = 0.6
"""The share of a claim's weight that a sentence must cover for a difference to be a contradiction."""
MAX_MISSING_SHARE = 0.6
"""A claim with a larger share of words in no passage is unsupported."""
MIN_NAME_OVERLAP = 0.6
"""The share of the best sentence that a claim must repeat for a name to replace another."""
CONTRADICTION_FACTOR = 0.5
"""Factor on the probability of a contradicted claim."""
MIN_REST_COVERAGE = 0.85
"""The share of the rest of the claim that this sentence must cover."""
MIN_DIRECT_COVERAGE = 0.7
"""The share that one sentence must cover for a claim to be supported rather than inferred."""


class EntailmentThresholds(NamedTuple):
    """Probabilities from which a claim counts as supported, and as inferred."""

    supported: float
    inferred: float

    def __str__(self) -> str:
        return f"supported={self.supported:g} inferred={self.inferred:g}"


class ClaimCheck(NamedTuple):
    """The checks of a claim before its label is decided."""

    statement: ClaimStatement
    alignment: ClaimAlignment
    contradiction: str | None
    """Reason of a contradiction by a sentence."""
    field_conflict: tuple[str, str] | None
    """The field of a record that contradicts it."""
    missing_name: str | None
    """The name or number that no passage has."""
    row_conflict: str | None = None
    """Reason where it gives one row of a table the value of another."""


def check_claim(
    claim: str, index: SentenceIndex, rarity: IdfTable, query_words: frozenset[str] = frozenset()
) -> ClaimCheck | None:
    """Compare a claim with the passages; None if there is nothing to compare.

    A name or number that the query gives (`query_words`, stemmed) may be missing from the passages, unless they have
    another in its place.
    """
    statement = parse_statement(claim, rarity)
    if not statement.weights or not index.sentences:
        return None
    alignment = align_statement(statement, index)
    contradiction = _detect_sentence_conflict(statement, alignment, index)
    field_conflict = detect_field_conflict(statement, index)
    return ClaimCheck(
        statement,
        alignment,
        contradiction,
        field_conflict,
        _detect_missing_name(statement, alignment, index, rarity, query_words),
        detect_row_conflict(statement.weights.keys(), statement.tokens, index.table_rows, index.prose)
        if index.table_rows
        else None,
    )


def measure_claim(check: ClaimCheck, index: SentenceIndex, counts: ClaimCounts | None = None) -> tuple[float, ...]:
    """Return the features of a claim, in the order of `FEATURE_NAMES`; without `counts` it is counted here."""
    flags = (check.contradiction is not None, check.field_conflict is not None, check.missing_name is not None)
    counts = counts or count_claim(check.statement, index)
    return (*measure_features(check.statement, check.alignment, index, counts), *map(float, flags))


def judge_claim(
    claim: str,
    index: SentenceIndex,
    rarity: IdfTable,
    thresholds: EntailmentThresholds,
    query_words: frozenset[str] = frozenset(),
) -> Entailment:
    """Return the support of a claim by the indexed passages."""
    check = check_claim(claim, index, rarity, query_words)
    if check is None:
        return Entailment("unsupported", 0.0, shares=(0.0,) * len(index.passages))
    p = 1.0 / (1.0 + math.exp(compute_odds(check, index)))
    return decide_support(claim, check, index, p, thresholds)


def decide_support(
    claim: str,
    check: ClaimCheck,
    index: SentenceIndex,
    p: float,
    thresholds: EntailmentThresholds,
    *,
    max_missing: float = MAX_MISSING_SHARE,
) -> Entailment:
    """Return the label for a probability, after exact checks; a claim that lacks over `max_missing` is unsupported."""
    support, reason = _choose_support(check, index, p, thresholds, max_missing)
    if support in {"contradicted", "unsupported"}:
        p = min(p, thresholds.inferred - 0.01) * (CONTRADICTION_FACTOR if support == "contradicted" else 1.0)
    evidence = _select_evidence(check.alignment, index)
    # the sentence that says it or otherwise, or that comes nearest
    if support != "inferred":
        evidence = evidence[:1]
    return Entailment(
        support,
        p,
        evidence,
        _spell_reason(reason, claim, check.alignment, index),
        _measure_shares(check.alignment, index),
    )


def _mark_key(key: str) -> str:
    return " ".join(f"<{stem}>" for stem in key.split())


def _mark_stems(stems: Sequence[str]) -> str:
    return ", ".join(f"<{stem}>" for stem in stems)


def _spell_reason(reason: str | None, claim: str, alignment: ClaimAlignment, index: SentenceIndex) -> str | None:
    """Return a reason with its stems spelled as in the claim or the passages."""
    if not reason or "<" not in reason:
        return reason
    texts = [claim, *(index.get_source(position) for position in alignment.best_sentences)]
    return STEM_MARK.sub(lambda match: _restore_spelling(match[1], texts), reason)


def _restore_spelling(stem: str, texts: Sequence[str]) -> str:
    """Return the spelling of a stem in the first text that has it, at its last occurrence."""
    head = stem[0]
    terms = (
        term
        for text in texts
        for term in reversed(SPELLED_TERM.findall(text))
        # Only a number, an accent or a possessive changes how a word begins.
        if term[0].lower() == head or head.isdigit() or not term.isascii()
    )
    return next((term for term in terms if split_words(term)[:1] == (stem,)), stem)


def _choose_support(
    check: ClaimCheck, index: SentenceIndex, p: float, thresholds: EntailmentThresholds, max_missing: float
) -> tuple[ClaimSupport, str | None]:
    """Choose the label and its reason: exact checks first, then the probability."""
    if check.row_conflict:
        return "contradicted", check.row_conflict
    if check.field_conflict and check.field_conflict[1] != "absent":
        return "contradicted", f"{_mark_key(check.field_conflict[0])}: {check.field_conflict[1]}"
    if check.contradiction:
        return "contradicted", check.contradiction
    if check.field_conflict:
        return "unsupported", f"the record says nothing of {_mark_key(check.field_conflict[0])}"
    if check.missing_name:
        return "unsupported", check.missing_name
    return _grade_probability(check.statement, check.alignment, index, p, thresholds, max_missing)


def compute_odds(check: ClaimCheck, index: SentenceIndex, counts: ClaimCounts | None = None) -> float:
    """Compute the log-odds that a claim is unsupported, from its words alone."""
    odds: float = BIAS + sum(map(mul, WEIGHTS, measure_claim(check, index, counts)))
    return odds


def _grade_probability(
    statement: ClaimStatement,
    alignment: ClaimAlignment,
    index: SentenceIndex,
    p: float,
    thresholds: EntailmentThresholds,
    max_missing: float,
) -> tuple[ClaimSupport, str | None]:
    absent = sum(statement.weights[word] for word in alignment.missing)
    if p < thresholds.inferred or absent > max_missing * alignment.total_weight:
        missing_words = sorted(alignment.missing, key=lambda word: (-statement.weights[word], word))[:3]
        return (
            "unsupported",
            f"no chunk holds {_mark_stems(missing_words)}" if missing_words else "the chunks say it nowhere together",
        )
    best_content = index.sentences[alignment.best_sentences[0]].content if alignment.best_sentences else frozenset()
    has_scattered_names = any(
        (word[0].isdigit() or word in statement.names) and word not in best_content for word in statement.weights
    )
    if p >= thresholds.supported and alignment.coverage >= MIN_DIRECT_COVERAGE and not has_scattered_names:
        return "supported", None
    needs_several = len(alignment.best_sentences) > 1 and (
        has_scattered_names or alignment.coverage < MIN_DIRECT_COVERAGE
    )
    return "inferred", "drawn from several sentences" if needs_several else "in other words than the chunk"


def _detect_missing_name(
    statement: ClaimStatement,
    alignment: ClaimAlignment,
    index: SentenceIndex,
    rarity: IdfTable,
    query_words: frozenset[str],
) -> str | None:
    """Return why a claim cannot be supported whatever else agrees: a name or number is missing or misplaced."""
    counted = {SMALL_NUMBERS[word] for word in SMALL_NUMBER.findall(statement.text.lower())}
    missing = [word for word in alignment.missing - counted if word in statement.names or word[0].isdigit()]
    crucial = sorted(
        word for word in missing if word not in query_words or _has_rival(word, statement, alignment, index, rarity)
    )
    if crucial:
        return f"no chunk holds {_mark_stems(crucial[:3])}"
    if not alignment.best_sentences:
        return None
    best = index.sentences[alignment.best_sentences[0]]
    missing_names = statement.names - best.content
    if (
        not missing_names
        or measure_overlap(statement.tokens, best) < MIN_NAME_OVERLAP
        or alignment.shared_weights[alignment.best_sentences[0]]
        < MIN_REST_COVERAGE * (alignment.total_weight - sum(statement.weights[word] for word in missing_names))
    ):
        return None
    source_names = extract_names(index.get_source(alignment.best_sentences[0]), rarity) & best.content - frozenset(
        statement.tokens
    )
    for claim_name in sorted(missing_names):
        for source_name in sorted(source_names):
            if claim_name[:4] != source_name[:4] and get_neighbors(statement.tokens, claim_name) & get_neighbors(
                best.tokens, source_name
            ):
                return f"<{claim_name}> in the place of <{source_name}>"
    return None


def _has_rival(
    word: str, statement: ClaimStatement, alignment: ClaimAlignment, index: SentenceIndex, rarity: IdfTable
) -> bool:
    """Return whether the best sentences have another name or number in the place of one that the claim has."""
    neighbors = get_neighbors(statement.tokens, word)
    for position in alignment.best_sentences:
        sentence = index.sentences[position]
        rivals = extract_names(index.get_source(position), rarity) & sentence.content - frozenset(statement.tokens)
        rivals |= {rival for rival in sentence.content.difference(statement.tokens) if rival[0].isdigit()}
        if any(neighbors & get_neighbors(sentence.tokens, rival) for rival in rivals):
            return True
    return False


def _detect_sentence_conflict(statement: ClaimStatement, alignment: ClaimAlignment, index: SentenceIndex) -> str | None:
    """Return why one of the best sentences contradicts the claim, None if none does."""
    contested = {word: statement.weights[word] for word in select_contested(statement.weights)}
    rest_weight = alignment.total_weight - sum(contested.values())
    for position in alignment.best_sentences:
        sentence = index.sentences[position]
        needed = rest_weight + sum([weight for word, weight in contested.items() if word in sentence.content])
        is_aligned = not sentence.polarity and alignment.shared_weights[position] >= MIN_CONFLICT_COVERAGE * needed
        if not is_aligned or len(statement.weights.keys() & sentence.content) < 2:
            continue
        reason = detect_contradiction(
            statement.text, statement.tokens, sentence, index.get_source(position), index.are_adjacent
        )
        if reason:
            return reason
        if alignment.coverage >= MIN_DIRECT_COVERAGE:
            return None
    return None


def _select_evidence(alignment: ClaimAlignment, index: SentenceIndex) -> tuple[Evidence, ...]:
    """Return the best sentence, and those that add to it, as evidence."""
    spans = []
    for position in alignment.best_sentences:
        if alignment.shared_weights[position] < 0.4 * alignment.shared_weights[alignment.best_sentences[0]]:
            break
        sentence = index.sentences[position]
        spans.append(
            Evidence(chunk=index.passages[index.passage_numbers[position]].name, start=sentence.start, end=sentence.end)
        )
    return tuple(spans)


def _measure_shares(alignment: ClaimAlignment, index: SentenceIndex) -> tuple[float, ...]:
    """Return, for each passage, the share of the claim that its best sentence covers."""
    shares = [0.0] * len(index.passages)
    for position, weight in alignment.shared_weights.items():
        passage = index.passage_numbers[position]
        shares[passage] = max(shares[passage], weight / alignment.total_weight)
    return tuple(shares)


VERSION = 8


class LexicalSession(WordReading):
    """The scores of one trace by its words."""

    def __init__(self, rarity: IdfTable, thresholds: EntailmentThresholds, query: str = "") -> None:
        self._rarity = rarity
        self._query_words = frozenset(split_words(query))
        self._thresholds = thresholds
        self._queries: dict[str, WeightedQuery] = {}
        self._indexes: dict[tuple[Passage, ...], SentenceIndex] = {}
        self._scores: dict[tuple[str, Passage], RelevanceScore] = {}

    def score_relevance(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        weighted_query = self.get_query(query)
        if weighted_query.is_task:
            return [RelevanceScore(1.0, "the query is about the passage itself")] * len(passages)
        for key in ((query, passage) for passage in passages):
            if key not in self._scores:
                self._scores[key] = score_relevance(weighted_query, self.get_index((key[1],)))
        return [self._scores[query, passage] for passage in passages]

    def score_coverage(self, query: str, passages: Sequence[Passage]) -> list[RelevanceScore]:
        return self.score_relevance(query, passages)

    def prefetch(self, groups: Sequence[EntailmentGroup]) -> None:
        """Do nothing: words are looked up when needed."""

    def score_entailment(self, claims: Sequence[str], passages: Sequence[Passage]) -> list[Entailment]:
        index = self.get_index(tuple(passages))
        return [
            judge_claim(strip_marks(claim), index, self._rarity, self._thresholds, self._query_words)
            for claim in claims
        ]

    def score_groundedness(self, answer: str, claims: Sequence[str], entailments: Sequence[Entailment]) -> float:  # noqa: ARG002
        return min((entailment.p for entailment in entailments), default=1.0)

    def measure_similarity(self, left: str, right: str) -> float:
        first, second = self._build_vector(left), self._build_vector(right)
        norm = math.sqrt(
            sum([value * value for value in first.values()]) * sum([value * value for value in second.values()])
        )
        products = sum([value * second[key] for key, value in first.items() if key in second])
        return min(1.0, products / norm) if norm else 0.0

    def get_query(self, query: str) -> WeightedQuery:
        weighted_query = self._queries.get(query)
        if weighted_query is None:
            weighted_query = self._queries[query] = WeightedQuery(query, self._rarity)
        return weighted_query

    def get_index(self, passages: tuple[Passage, ...]) -> SentenceIndex:
        index = self._indexes.get(passages)
        if index is None:
            index = self._indexes[passages] = SentenceIndex(passages)
        return index

    def _build_vector(self, text: str) -> dict[str, float]:
        counts = Counter(word for word in split_words(text) if word not in STOP_WORDS)
        vector = {word: math.sqrt(count) * self._rarity(word) for word, count in counts.items()}
        letters = f" {' '.join(counts)} "[:20_000]
        for gram, count in Counter([letters[start : start + 4] for start in range(len(letters) - 3)]).items():
            vector[f"#{gram}"] = math.sqrt(count)
        return vector


class LexicalJudge(ScorerJudge):
    """A judge that needs nothing but words.

    Each verdict rests on words that are present or not, and can be checked by hand. It knows no synonyms, so
    a free paraphrase may come out unsupported.

    >>> from ragfault.model.records import Chunk, Trace
    >>> chunks = (Chunk(id="a", text="Oslo was founded in 1040 by King Harald."),)
    >>> trace = Trace(id="1", query="When was Oslo founded?", chunks=chunks, answer="Oslo was founded in 1050.")
    >>> verdicts = LexicalJudge().observe([trace])[0]
    >>> verdicts.claim[0].support, verdicts.claim[0].reason
    ('contradicted', '1050 against 1040')
    """

    def __init__(self, *, supported: float = 0.7, inferred: float = 0.5) -> None:
        self._thresholds = EntailmentThresholds(supported, inferred)

    @property
    def fingerprint(self) -> str:
        thresholds = self._thresholds
        return f"lexical/{VERSION} rarity={load_idf().digest} {thresholds}"

    def open_session(self, query: str = "", history: Sequence[str] = ()) -> LexicalSession:  # noqa: ARG002
        return LexicalSession(load_idf(), self._thresholds, query)
