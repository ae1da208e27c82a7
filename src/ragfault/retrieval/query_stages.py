"""Query stages: rewrite, shorten, decompose, expand and route a query before the search."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from ragfault.model.errors import UnknownName, UsageError
from ragfault.model.protocols import Generator
from ragfault.model.records import Chunk
from ragfault.retrieval.pipeline import Hits, Query, Stage, StageResult
from ragfault.text.normalization import split_content_words, split_words
from ragfault.text.sentences import split_sentences

SHORT_QUERY_WORDS = 3
"""So many content words or fewer say too little by themselves."""
QUESTION_WORDS = (
    r"(?:who|whom|whose|what|when|where|which|why|how|is|are|was|were|do|does|did"
    r"|can|could|may|must|should|will|would)"
)
PART_BREAK = re.compile(rf"(?:[,;]\s*|\s+)(?:and|or|but)\s+(?:also\s+)?(?={QUESTION_WORDS}\b)|;\s+", re.IGNORECASE)
OUTLIER_FACTOR = 1.5
"""A query is over-long beyond the third quartile by so many times the distance between the quartiles (Tukey 1977)."""
MAX_REPLY_LINES = 8
"""A model's reply has at most so many lines that count."""

REWRITE_PROMPT = (
    "The text is a short query to a search engine. Write it as one full question that says what is meant, "
    "with no more than it implies. Reply with the question alone."
)
SHORTEN_PROMPT = (
    "The text is a long request to a search engine. Write the one question that it asks above all, "
    "in at most 25 words. Reply with the question alone."
)
DECOMPOSE_PROMPT = (
    "The text is a question. If it asks for several things, write each as a question that stands by itself, one on a "
    "line; otherwise repeat it. Reply with the questions alone."
)
EXPAND_PROMPT = (
    "The text is a query to a search engine. Write other wordings of it, one on a line, at most three, with synonyms "
    "and technical terms. Reply with the wordings alone."
)


def rewrite(
    generator: Generator | None = None, *, context: Sequence[str] = (), short: int = SHORT_QUERY_WORDS
) -> Stage:
    """Return the stage that extends a short query: one of at most `short` content words.

    A generator writes it out as a question, and is told the `context`: of the user (product, place, role), or examples
    of experts ("RAG metrics: What metrics measure a RAG system?"). Without one the context is added to the words of the
    query. Longer queries pass unchanged.

    >>> stage = rewrite(context=("ferry to the island",))
    >>> stage(Query(text="opening hours"), ()).query.search_texts
    ('opening hours ferry to the island',)
    """
    addition = "".join(f"\nContext of the user, or an example by experts: {text}" for text in context)

    def stage(query: Query, hits: Hits) -> StageResult:
        if len(set(split_content_words(query.text))) > short:
            return StageResult(query, hits)
        if generator is None:
            rewritten = " ".join([query.text, *context])
            return StageResult(query if not context else replace(query, variants=(rewritten,)), hits)
        return StageResult(_generate_variants(query, generator, REWRITE_PROMPT + addition, limit=1), hits)

    return stage


def estimate_length_limit(queries: Sequence[str]) -> int:
    """Return the number of words from which a query is over-long, by the queries of users.

    The third quartile of their lengths and 1.5 times the distance between the quartiles (Tukey's fence). Raises
    UsageError for fewer than two queries.

    >>> estimate_length_limit(["ferry times", "when does it open", "may dogs travel on the late ferry", "a b c d"])
    6
    """
    from statistics import quantiles

    if len(queries) < 2:
        raise UsageError(f"the length of queries is estimated from at least 2 of them, got {len(queries)}.")
    low, _, high = quantiles([len(split_words(query)) for query in queries], n=4, method="inclusive")
    return int(high + OUTLIER_FACTOR * (high - low))


def shorten(threshold: int, generator: Generator | None = None) -> Stage:
    """Return the stage that simplifies a query of more than `threshold` words (see `estimate_length_limit`).

    A generator writes the main question; without one its questions are kept, else its last sentence with content.
    Raises UsageError for a threshold below 1.

    >>> text = "I came here last year with my two dogs and loved it. We may come again. When does the last ferry leave?"
    >>> shorten(12)(Query(text=text), ()).query.search_texts
    ('When does the last ferry leave?',)
    """
    if threshold < 1:
        raise UsageError(f"the threshold is at least 1 word, got {threshold}.")

    def stage(query: Query, hits: Hits) -> StageResult:
        if len(split_words(query.text)) <= threshold:
            return StageResult(query, hits)
        if generator is not None:
            return StageResult(_generate_variants(query, generator, SHORTEN_PROMPT, limit=1), hits)
        spans = [query.text[start:end].strip() for start, end in split_sentences(query.text)]
        # long requests tell a story first: what is asked stands in the questions, else in the last words
        asking = [span for span in spans if span.endswith("?")]
        selected = asking or [span for span in spans if split_content_words(span)][-1:]
        return StageResult(replace(query, variants=(" ".join(selected),)) if selected else query, hits)

    return stage


def decompose(generator: Generator | None = None, *, limit: int = 4) -> Stage:
    """Return the stage that splits a query: it searches for each question and each part that asks by itself.

    Parts are fused by the search. The query as a whole is searched for, too.

    >>> decompose()(Query(text="When does the ferry leave, and what does a ticket cost?"), ()).query.search_texts[1:]
    ('When does the ferry leave', 'what does a ticket cost?')
    """

    def stage(query: Query, hits: Hits) -> StageResult:
        if generator is not None:
            return StageResult(
                _generate_variants(query, generator, DECOMPOSE_PROMPT, limit=limit, keep_original=True), hits
            )
        spans = [query.text[start:end] for start, end in split_sentences(query.text)]
        parts = [part.strip() for span in spans for part in PART_BREAK.split(span)]
        parts = [part for part in dict.fromkeys(parts) if split_content_words(part)][:limit]
        # one passage may answer all parts, so the whole query is searched for as well
        forms = (query.text, *parts) if len(parts) > 1 else query.variants
        return StageResult(replace(query, variants=forms), hits)

    return stage


def expand(search: Stage | None = None, generator: Generator | None = None, *, terms: int = 5, depth: int = 3) -> Stage:
    """Return the stage that adds words to a query.

    A generator writes other wordings. A `search` gives them from the corpus itself, by pseudo relevance feedback: the
    `terms` words that are commonest in the first `depth` hits and not in the query, counted once a hit (Rocchio 1971).
    Raises UsageError unless one of the two is given.
    """
    if (search is None) == (generator is None):
        raise UsageError("a query is expanded by a search or by a generator: give one of the two.")

    def stage(query: Query, hits: Hits) -> StageResult:
        if generator is not None:
            return StageResult(_generate_variants(query, generator, EXPAND_PROMPT, limit=3, keep_original=True), hits)
        assert search is not None
        feedback = search(query, hits).hits[:depth]
        added = _select_feedback_terms(query.text, feedback, terms)
        return StageResult(replace(query, variants=(" ".join([query.text, *added]),)) if added else query, hits)

    return stage


def _select_feedback_terms(query: str, hits: Sequence[Chunk], terms: int) -> list[str]:
    """Return the words that most hits share and the query lacks, in their first spelling."""
    query_words = set(split_content_words(query))
    counts: Counter[str] = Counter()
    for hit in hits:
        counts.update(set(split_content_words(hit.text)) - query_words)
    # a word of one hit only may be chance, unless there is no other hit
    common = [word for word, count in counts.items() if count > 1 or len(hits) == 1]
    return sorted(common, key=lambda word: (-counts[word], word))[:terms]


RouteRule = str | Collection[str] | Callable[[str], bool]
"""Rule that assigns a query to a route: a regular expression, words of which it has one, or a predicate."""


def route(
    rules: Mapping[str, RouteRule], stages: Mapping[str, Stage] | None = None, *, default: str | None = None
) -> Stage:
    """Return the stage that classifies a query by the first matching rule and runs the stage of that route.

    Without `stages` the route is only written down. Raises UnknownName for a stage of a route without a rule.

    >>> stage = route({"fares": ["ticket", "fare"], "dogs": r"dogs?"}, default="other")
    >>> [stage(Query(text=text), ()).query.route for text in ("What is the fare?", "A dog on board", "Opening hours")]
    ['fares', 'dogs', 'other']
    """
    tests = {name: _compile_rule(rule) for name, rule in rules.items()}
    for name in stages or {}:
        if name not in rules and name != default:
            raise UnknownName("route", name, [*rules, *([default] if default else [])])

    def stage(query: Query, hits: Hits) -> StageResult:
        name = next((name for name, test in tests.items() if test(query.text)), default)
        query = replace(query, route=name)
        onward = (stages or {}).get(name or "")
        return onward(query, hits) if onward else StageResult(query, hits)

    return stage


def _compile_rule(rule: RouteRule) -> Callable[[str], bool]:
    if callable(rule):
        return rule
    if isinstance(rule, str):
        pattern = re.compile(rule, re.IGNORECASE)
        return lambda text: pattern.search(text) is not None
    stems = {stem for word in rule for stem in split_words(word)}
    return lambda text: not stems.isdisjoint(split_words(text))


def _generate_variants(
    query: Query, generator: Generator, instructions: str, *, limit: int, keep_original: bool = False
) -> Query:
    """Return the query with the variants that a model writes; where it fails, the query with a note."""
    try:
        reply = generator.generate(instructions, query.text)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - a model error costs the rewrite, not the search
        note = f"the query was searched for unchanged: {type(error).__name__}: {error}"
        return query.with_failure(note)
    lines = [re.sub(r"^\s*(?:[-*•]|\d+[.)])\s*", "", line).strip() for line in reply.splitlines()[:MAX_REPLY_LINES]]
    forms = [line for line in dict.fromkeys(lines) if line][:limit]
    if not forms:
        return query
    return replace(query, variants=tuple(dict.fromkeys([query.text, *forms] if keep_original else forms)))
