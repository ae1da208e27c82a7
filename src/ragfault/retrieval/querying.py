"""Query stages: what is searched for in the place of what was asked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from ragfault.errors import UnknownName, UsageError
from ragfault.ports import Generator
from ragfault.records import Chunk
from ragfault.retrieval.records import Found, Hits, Query, Stage
from ragfault.text import content, sentences, words

__all__ = ["decompose", "expand", "longest", "rewrite", "route", "shorten"]

SHORT = 3
"""So many content words or fewer say too little by themselves."""
ASKING = (
    r"(?:who|whom|whose|what|when|where|which|why|how|is|are|was|were|do|does|did"
    r"|can|could|may|must|should|will|would)"
)
PARTS = re.compile(rf"(?:[,;]\s*|\s+)(?:and|or|but)\s+(?:also\s+)?(?={ASKING}\b)|;\s+", re.IGNORECASE)
OVER = 1.5
"""A query is over-long beyond the third quartile by so many times the distance between the quartiles (Tukey 1977)."""
LINES = 8
"""A model's reply has at most so many lines that count."""

REWRITE = (
    "The text is a short query to a search engine. Write it as one full question that says what is meant, "
    "with no more than it implies. Reply with the question alone."
)
SHORTEN = (
    "The text is a long request to a search engine. Write the one question that it asks above all, "
    "in at most 25 words. Reply with the question alone."
)
DECOMPOSE = (
    "The text is a question. If it asks for several things, write each as a question that stands by itself, one on a "
    "line; otherwise repeat it. Reply with the questions alone."
)
EXPAND = (
    "The text is a query to a search engine. Write other wordings of it, one on a line, at most three, with synonyms "
    "and technical terms. Reply with the wordings alone."
)


def rewrite(generator: Generator | None = None, *, context: Sequence[str] = (), short: int = SHORT) -> Stage:
    """The stage that makes more of a short query: of at most `short` content words.

    A generator writes it out as a question; without one the `context` of the user (product, place, role) is added to
    its words. Longer queries pass unchanged.

    >>> stage = rewrite(context=("ferry to the island",))
    >>> stage(Query(text="opening hours"), ()).query.searched
    ('opening hours ferry to the island',)
    """

    def stage(query: Query, hits: Hits) -> Found:
        if len(set(content(query.text))) > short:
            return Found(query, hits)
        if generator is None:
            made = " ".join([query.text, *context])
            return Found(query if not context else replace(query, forms=(made,)), hits)
        return Found(_asked(query, generator, REWRITE, most=1), hits)

    return stage


def longest(queries: Sequence[str]) -> int:
    """From how many words on a query is over-long, by the queries that users ask.

    The third quartile of their lengths and 1.5 times the distance between the quartiles.

    >>> longest(["ferry times", "when does it open", "may dogs travel on the late ferry", "fares for two children"])
    6
    """
    from statistics import quantiles

    if len(queries) < 2:
        raise UsageError(f"the length of queries is told from at least 2 of them, got {len(queries)}.")
    low, _, high = quantiles([len(words(query)) for query in queries], n=4, method="inclusive")
    return int(high + OVER * (high - low))


def shorten(threshold: int, generator: Generator | None = None) -> Stage:
    """The stage that simplifies a query of more than `threshold` words (see `longest`).

    A generator writes the main question; without one its questions are kept, else its last sentence with content.

    >>> text = "I came here last year with my two dogs and loved it. We may come again. When does the last ferry leave?"
    >>> shorten(12)(Query(text=text), ()).query.searched
    ('When does the last ferry leave?',)
    """
    if threshold < 1:
        raise UsageError(f"the threshold is at least 1 word, got {threshold}.")

    def stage(query: Query, hits: Hits) -> Found:
        if len(words(query.text)) <= threshold:
            return Found(query, hits)
        if generator is not None:
            return Found(_asked(query, generator, SHORTEN, most=1), hits)
        spans = [query.text[start:end].strip() for start, end in sentences(query.text)]
        asking = [span for span in spans if span.endswith("?")]
        kept = asking or [span for span in spans if content(span)][-1:]
        return Found(replace(query, forms=(" ".join(kept),)) if kept else query, hits)

    return stage


def decompose(generator: Generator | None = None, *, most: int = 4) -> Stage:
    """The stage that takes a query apart: each question, and each part that asks by itself, is searched for.

    Parts are fused by the search. The query as a whole is searched for, too.

    >>> decompose()(Query(text="When does the ferry leave, and what does a ticket cost?"), ()).query.searched[1:]
    ('When does the ferry leave', 'what does a ticket cost?')
    """

    def stage(query: Query, hits: Hits) -> Found:
        if generator is not None:
            return Found(_asked(query, generator, DECOMPOSE, most=most, whole=True), hits)
        spans = [query.text[start:end] for start, end in sentences(query.text)]
        parts = [part.strip() for span in spans for part in PARTS.split(span)]
        parts = [part for part in dict.fromkeys(parts) if content(part)][:most]
        forms = (query.text, *parts) if len(parts) > 1 else query.forms
        return Found(replace(query, forms=forms), hits)

    return stage


def expand(
    search: Stage | None = None, generator: Generator | None = None, *, terms: int = 5, depth: int = 3
) -> Stage:
    """The stage that adds words to a query.

    A generator writes other wordings. A `search` gives them from the corpus itself, by pseudo relevance feedback: the
    `terms` words that are commonest in the first `depth` hits and not in the query, counted once a hit (Rocchio 1971).
    """
    if (search is None) == (generator is None):
        raise UsageError("a query is expanded by a search or by a generator: give one of the two.")

    def stage(query: Query, hits: Hits) -> Found:
        if generator is not None:
            return Found(_asked(query, generator, EXPAND, most=3, whole=True), hits)
        assert search is not None
        first = search(query, hits).hits[:depth]
        added = _terms(query.text, first, terms)
        return Found(replace(query, forms=(" ".join([query.text, *added]),)) if added else query, hits)

    return stage


def _terms(query: str, hits: Sequence[Chunk], terms: int) -> list[str]:
    """The words that most of the hits have and the query has not, as they are spelled first."""
    asked = set(content(query))
    counts: Counter[str] = Counter()
    for hit in hits:
        counts.update(set(content(hit.text)) - asked)
    shared = [word for word, count in counts.items() if count > 1 or len(hits) == 1]
    return sorted(shared, key=lambda word: (-counts[word], word))[:terms]


Rule = str | Collection[str] | Callable[[str], bool]
"""What sends a query on a route: a regular expression, words of which one is in it, or a predicate."""


def route(
    rules: Mapping[str, Rule], stages: Mapping[str, Stage] | None = None, *, default: str | None = None
) -> Stage:
    """The stage that tells what a query is about, by the first rule that fits, and hands it to the stage of that route.

    Without `stages` the route is only written down. Raises UnknownName for a stage of a route without a rule.

    >>> stage = route({"fares": ["ticket", "fare"], "dogs": r"dogs?"}, default="other")
    >>> [stage(Query(text=text), ()).query.route for text in ("What is the fare?", "A dog on board", "Opening hours")]
    ['fares', 'dogs', 'other']
    """
    tests = {name: _test(rule) for name, rule in rules.items()}
    for name in stages or {}:
        if name not in rules and name != default:
            raise UnknownName("route", name, [*rules, *([default] if default else [])])

    def stage(query: Query, hits: Hits) -> Found:
        name = next((name for name, test in tests.items() if test(query.text)), default)
        query = replace(query, route=name)
        onward = (stages or {}).get(name or "")
        return onward(query, hits) if onward else Found(query, hits)

    return stage


def _test(rule: Rule) -> Callable[[str], bool]:
    if callable(rule):
        return rule
    if isinstance(rule, str):
        pattern = re.compile(rule, re.IGNORECASE)
        return lambda text: pattern.search(text) is not None
    wanted = {stem for word in rule for stem in words(word)}
    return lambda text: not wanted.isdisjoint(words(text))


def _asked(query: Query, generator: Generator, instructions: str, *, most: int, whole: bool = False) -> Query:
    """The query with the forms that a model writes; where it fails, as it was, with a note that says so."""
    try:
        said = generator.generate(instructions, query.text)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - the door to models: a search without its rewrite is still a search
        note = f"the query was searched for as it stands: {type(error).__name__}: {error}"
        return query.failing(note)
    lines = [re.sub(r"^\s*(?:[-*•]|\d+[.)])\s*", "", line).strip() for line in said.splitlines()[:LINES]]
    forms = [line for line in dict.fromkeys(lines) if line][:most]
    if not forms:
        return query
    return replace(query, forms=tuple(dict.fromkeys([query.text, *forms] if whole else forms)))
