"""Lexical query analysis: expected kind of answer, relevance of a passage, and what no chunk covers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from ragfault.judges.checks.lexicon import IdfTable, load_idf
from ragfault.judges.checks.passages import Passage, SentenceIndex, normalize_spelling, split_passage
from ragfault.judges.scorer import RelevanceScore, ScorerSession
from ragfault.text.entities import EntityIndex, extract_entities
from ragfault.text.normalization import STOP_WORDS, split_content_words, split_words
from ragfault.text.times import YEAR, remove_asked_time

QUESTION_WORDS = frozenset(
    split_words(
        "mean define difference tell explain describe give list name example kind type many much long old far"
        " year word term call usually often"
    )
)
"""Words of questions that do not name their subject."""
TASK_QUERY = re.compile(
    r"\s*(?:summari[sz]e|rewrite|translate|paraphrase|shorten|instruction:|write (?:an?|the) )", re.IGNORECASE
)
"""Queries that give a task on the passage itself, such as a summary."""
IDENTIFIER_PATTERN = re.compile(
    r"(?:section|article|chapter|clause|rule|step|figure|table|part|appendix|annex|page) |v\d|(?=\D*\d)[a-z]+\d*-?\d"
)
ANSWER_KINDS = {
    "number": r"\bhow (?:many|much|long|old|far|tall|big|large|high|fast|often|deep|heavy)\b|\bwhat (?:number|age)",
    "date": r"\bwhen\b|\b(?:what|which) (?:year|date|day|month|time|century)\b",
    "name": r"\bwhos?e?\b|\bwhere\b|\b(?:what|which) (?:city|country|state|company|person|team|actor|place)\b",
}
NUMBER_PATTERN = re.compile(r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|hundred|thousand|million)\b", re.I)
DATE_PATTERN = re.compile(
    r"\b[12]\d{3}\b|\b(?:january|february|march|april|june|july|august|september|october|november|december|monday|friday)\b|\d(?:st|nd|rd|th)\b|\d:\d\d",
    re.I,
)
NAME_PATTERN = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")
KIND_PATTERNS = {"number": NUMBER_PATTERN, "date": DATE_PATTERN, "name": NAME_PATTERN}
OTHER_KIND_FACTOR = 0.75
"""Factor on the relevance of a passage without the kind of answer that is asked for."""


class WeightedQuery:
    """A query as words weighted by rarity, with the identifiers that must agree exactly."""

    def __init__(self, text: str, rarity: IdfTable) -> None:
        content_words = [word for word in split_words(text) if word not in STOP_WORDS]
        subject_words = [word for word in content_words if word not in QUESTION_WORDS] or content_words
        self.text = text
        self.weights = {word: rarity(word) for word in subject_words}
        self.total_weight = sum(self.weights.values())
        self.answer_kind = classify_answer_kind(text)
        self.is_task = bool(TASK_QUERY.match(text))

    @cached_property
    def spellings(self) -> dict[str, str]:
        """Stem → spelling in the query."""
        terms = ((split_words(term), term) for term in re.findall(r"[^\W_]+", self.text))
        return {stems[0]: term for stems, term in terms if stems}

    def describe_missing(self, missing: Iterable[str]) -> str | None:
        """Return the rarest of the words that a passage lacks, spelled as in the query; None without any."""
        rarest = sorted(missing, key=lambda word: (-self.weights[word], word))[:3]
        return f"without {', '.join(self.spellings.get(word, word) for word in rarest)}" if rarest else None

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """Sections, versions and codes that a relevant passage must have."""
        return extract_identifiers(self.text)


def extract_identifiers(text: str) -> frozenset[str]:
    """Return the sections, versions and codes that a text names.

    >>> sorted(extract_identifiers("Section 12 holds for v2 alone, not for Oslo."))
    ['section 12', 'v2']
    """
    return frozenset(item for item in extract_entities(text) if IDENTIFIER_PATTERN.match(item))


def classify_answer_kind(query: str) -> str | None:
    """Return the kind of answer that a query asks for: number, date, name, or None.

    >>> classify_answer_kind("How many people live in Oslo?"), classify_answer_kind("Why?")
    ('number', None)
    """
    return next((kind for kind, pattern in ANSWER_KINDS.items() if re.search(pattern, query, re.I)), None)


def score_relevance(weighted_query: WeightedQuery, index: SentenceIndex) -> RelevanceScore:
    """Return how much of a query one passage covers, as a whole and in its best place.

    Rare words weigh more, and so do words that occur together. A section, version or code of the query must
    be there: a passage about another one is not relevant.
    """
    if not weighted_query.total_weight or not index.sentences:
        return RelevanceScore(0.0, "nothing to compare")
    weights = weighted_query.weights
    matched_words = {word for word in weights if word in index.postings or index.has_variant(word)}
    coverage = sum(weights[word] for word in matched_words) / weighted_query.total_weight
    votes = index.sum_shared_weights(weights)
    best = max((vote + 0.5 * votes.get(best_share + 1, 0.0) for best_share, vote in votes.items()), default=0.0)
    best_share = min(1.0, best / weighted_query.total_weight)
    value = 0.5 * coverage + 0.5 * best_share
    return _apply_query_checks(weighted_query, index, value, weights.keys() - matched_words)


def _apply_query_checks(
    weighted_query: WeightedQuery, index: SentenceIndex, value: float, missing: set[str]
) -> RelevanceScore:
    """Lower the relevance if no identifier agrees, or the expected kind of answer does not occur."""
    text = index.passages[0].text
    score = RelevanceScore(min(1.0, value), weighted_query.describe_missing(missing))
    checked = check_identifiers(weighted_query, text, score)
    # by its words alone: a terse answer need not repeat the section
    if checked.is_other_subject:
        return checked._replace(is_other_subject=False)
    if weighted_query.answer_kind and not KIND_PATTERNS[weighted_query.answer_kind].search(text):
        return score._replace(value=score.value * OTHER_KIND_FACTOR)
    return score


def check_identifiers(weighted_query: WeightedQuery, text: str, score: RelevanceScore) -> RelevanceScore:
    """Return the score of a passage, lowered if it has none of the identifiers of the query: it is off-topic."""
    if not weighted_query.identifiers:
        return score
    entities = EntityIndex(text)
    if any(item in entities for item in weighted_query.identifiers):
        return score
    reason = f"does not mention {', '.join(sorted(weighted_query.identifiers))}"
    return RelevanceScore(min(score.value * 0.4, 0.2), reason, is_other_subject=True)


QUERY_BOUNDARY = re.compile(
    r"(?<=\?)\s+|\s*(?:\n+|;)\s*(?:\d+[.)]\s*|[-*•]\s*)?"
    r"|,?\s+(?:and|or|also|as well as),?\s+"
    r"(?=(?:what|when|where|who|whom|whose|why|how|which|is|are|was|were|do|does|did|can|should)\b)",
    re.IGNORECASE,
)
QUERY_TERM = re.compile(r"[^\W_][\w.'’:/-]*[^\W_]|[^\W_]")
MIN_TERM_RARITY = 6.5
"""Minimum rarity of a word that counts as missing if no chunk has it."""
MIN_PART_RELEVANCE = 0.25
"""Minimum relevance of the best chunk; below it a part of the query is missing as a whole."""
COVERED_RELEVANCE = 0.75
"""Coverage by one chunk from which only names and numbers can be missing."""
MAX_MISSING = 5
"""Maximum number of listed items."""


GREETING = re.compile(
    r"\s*(?:(?:(?:hi|hello|hey)(?: there| all| team| everyone)?|good (?:morning|afternoon|evening|day)|greetings"
    r"|dear (?:all|team|support|colleagues?|sir|madam|sir or madam|sirs)|(?:(?:a|one|just a) )?(?:quick )?question)"
    r"(?:\s*(?:[,!;]|[.:](?=\s))+\s*|\s+[\u2013-]\s+|\s*\n\s*"
    r"|\s+(?=(?:can|could|what|when|where|who|why|how|which|is|are|do|does|did|i|we|my|please)\b)))+",
    re.IGNORECASE,
)
"""Words that open a query and ask for nothing, where a sign, a line break or a question follows."""
THANKS = re.compile(
    r"(?<=[?.!\n])\s*(?:many )?(?:thanks|thank you|thx)(?: in advance| so much| a lot| very much)?[.!\s]*$",
    re.IGNORECASE,
)


def remove_courtesies(query: str) -> str:
    """Remove the greeting and the thanks around a query; one of nothing else stays as it is.

    >>> remove_courtesies("Hi there, how long is the ferry? Thanks!"), remove_courtesies("Hello Kitty price")
    ('how long is the ferry?', 'Hello Kitty price')
    """
    greeting = GREETING.match(query)
    request = THANKS.sub("", query[greeting.end() if greeting else 0 :])
    return request if request.strip() else query


def split_query(query: str) -> list[str]:
    """Split a query into its questions.

    >>> split_query("When was Oslo founded, and who founded it? How many live there?")
    ['When was Oslo founded', 'who founded it?', 'How many live there?']
    """
    if TASK_QUERY.match(query) or len(query) > 2000:
        return [query]
    parts = [part.strip() for part in QUERY_BOUNDARY.split(query)]
    parts = [part for part in parts if split_content_words(part)]
    return parts[:12] if len(parts) > 1 else [query]


def list_missing(query: str, chunks: Sequence[Passage], session: ScorerSession) -> tuple[str, ...]:
    """List what the query needs and no chunk has, in the query's own words.

    That no chunk repeats the time asked about ("as of 2024") is no gap where none names a year: what holds, holds then.
    """
    if TASK_QUERY.match(query) and chunks:
        return ()
    if not any(YEAR.search(chunk.text) for chunk in chunks):
        query = remove_asked_time(query)
    parts = split_query(query)
    if not chunks:
        return tuple(part.strip(" ?.") for part in parts)[:MAX_MISSING]
    chunk_words: set[str] = set()
    for chunk in chunks:
        for sentence in split_passage(chunk.text):
            chunk_words |= sentence.content
    prefixes = {word[:6] for word in chunk_words if len(word) >= 6}
    missing: list[str] = []
    for part in parts:
        best = max(score.value for score in session.score_coverage(part, chunks))
        if best < MIN_PART_RELEVANCE and len(parts) > 1:
            missing.append(part.strip(" ?."))
        else:
            missing += _list_missing_terms(part, chunk_words, prefixes, names_only=best >= COVERED_RELEVANCE)
    texts = [chunk.text for chunk in chunks]
    return tuple(item for item in dict.fromkeys(missing) if not _is_spelled_out(item, texts))[:MAX_MISSING]


def _is_spelled_out(term: str, texts: Sequence[str]) -> bool:
    """Return whether a text has the words of an abbreviation.

    >>> _is_spelled_out("EU", ["Law of the European Union."]), _is_spelled_out("UN", ["A U.N. envoy."])
    (True, True)
    """
    pattern = r"\b" + r"\w*\W+(?:(?:of|and|the|for)\W+)?".join(term)
    return term.isalpha() and term.isupper() and len(term) > 1 and any(re.search(pattern, text) for text in texts)


def _list_missing_terms(part: str, chunk_words: set[str], prefixes: set[str], *, names_only: bool) -> list[str]:
    """List the specific words of a part that no chunk has; adjacent words are joined.

    A spelled number is no such word: "the two sources" are two, whether or not a chunk counts them.
    """
    missing: list[str] = []
    last_position = -2
    for position, match in enumerate(QUERY_TERM.finditer(part)):
        term = match.group()
        is_name = position > 0 and term[0].isupper()
        stems = [
            word
            for word in split_words(normalize_spelling(term))
            if word not in STOP_WORDS and word not in QUESTION_WORDS and not (word.isdigit() and term.isalpha())
        ]
        missing_stems = [
            word for word in stems if word not in chunk_words and (is_name or word[:6] not in prefixes or len(word) < 6)
        ]
        table = load_idf()
        if not any(
            is_name or word[0].isdigit() or (not names_only and table(word) >= MIN_TERM_RARITY)
            for word in missing_stems
        ):
            continue
        if last_position == position - 1:
            missing[-1] = f"{missing[-1]} {term}"
        else:
            missing.append(term)
        last_position = position
    return missing
