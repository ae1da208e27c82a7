"""Answer checks: relevance to the query, focus, expected facts, citations, and truth against a reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ragfault.judges.checks.claims import Claim, is_personal, is_refusal, is_refusal_sentence, strip_marks
from ragfault.judges.checks.contradictions import are_rival_quantities, collect_negated_words
from ragfault.judges.checks.passages import Passage
from ragfault.judges.checks.queries import KIND_PATTERNS, classify_answer_kind, split_query
from ragfault.judges.scorer import Entailment, ScorerSession
from ragfault.records import AnswerVerdict, Aspect, Citation, TruthVerdict
from ragfault.text import (
    STOP_WORDS,
    EntityIndex,
    extract_entities,
    extract_literals,
    normalize_answer,
    normalize_typography,
    split_content_words,
    split_sentences,
    split_words,
)

MAX_SHORT_FACT = 6
"""A fact of at most so many words beyond the query is looked for word by word."""
MIN_ANSWERED = 0.5
"""A part of the query with this relevance in the answer counts as answered."""


def judge_answer(
    query: str, answer: str, evidence: str, best_relevance: float, session: ScorerSession
) -> AnswerVerdict:
    """How an answer stands to the query: part by part, in its own words or in those of its evidence.

    A terse answer repeats nothing of the question; then the stretch of the chunks that it was drawn
    from shows what it is about, measured by `best`, the relevance of the best chunk. A refusal answers
    nothing, and what speaks about another section or version than was asked for, next to nothing.
    """
    if not answer.strip():
        return AnswerVerdict(
            relevance=0.0, aspects=tuple(Aspect(text=one, answered=False) for one in split_query(query))
        )
    turned = is_refusal(answer)
    found = []
    for part in split_query(query):
        passages = [Passage("answer", answer), Passage("evidence", evidence)]
        own, drawn = session.score_coverage(part, passages)
        value = max(own.value, 0.9 * min(1.0, drawn.value / max(best_relevance, MIN_ANSWERED)))
        kind = classify_answer_kind(part)
        if own.is_other_subject:
            value = own.value
        elif kind and KIND_PATTERNS[kind].search(answer):
            value = max(value, 0.4 + 0.6 * value)
        found.append((part, 0.1 * value if turned else value))
    return AnswerVerdict(
        relevance=min(1.0, sum(value for _, value in found) / len(found)),
        aspects=tuple(Aspect(text=part, answered=value >= MIN_ANSWERED) for part, value in found),
        refused=turned,
    )


def contains_fact(fact: str, answer: str, query: str) -> bool:
    """Whether a short fact stands in the answer as it is; what the query says need not be said again.

    >>> contains_fact("30 days", "You have thirty days to return it.", "How long can I return it?")
    True
    """
    asked = frozenset(split_content_words(fact)) - frozenset(split_words(query))
    exact, bare = extract_entities(fact), normalize_answer(fact)
    denied = collect_negated_words(split_words(fact))
    for start, end in split_sentences(answer):
        said = answer[start:end]
        tokens = split_words(said)
        if bool(denied) != bool(
            collect_negated_words(tokens, reach=2) & frozenset(split_content_words(fact))
        ):
            continue
        if bare and f" {bare} " in f" {normalize_answer(said)} ":
            return True
        if asked and len(asked) <= MAX_SHORT_FACT and asked <= frozenset(tokens):
            stock = EntityIndex(said)
            if all(item in stock for item in exact):
                return True
    return False


def locate_citing_sentence(citation: Citation, position: int, answer: str) -> str | None:
    """The sentence of an answer that holds the quote of a citation, or its mark.

    >>> locate_citing_sentence(Citation(chunk="c7"), 0, "Oslo is old [c7]. Bergen is wet [c8].")
    'Oslo is old [c7].'
    """
    marks = (f"[{citation.chunk}]", f"({citation.chunk})", f"[{position + 1}]")
    spans = [answer[start:end] for start, end in split_sentences(answer)]
    for mark in marks[:2]:
        for span in spans:
            if mark in span:
                return span
    quote = normalize_typography(citation.quote or "").strip("\"'. ").lower()
    if quote:
        for span in spans:
            if quote in normalize_typography(span).lower():
                return span
    else:
        return next((span for span in spans if marks[2] in span), None)
    wanted = frozenset(split_words(quote)) - STOP_WORDS
    best = max(spans, key=lambda span: len(wanted & frozenset(split_words(span))), default="")
    return best if wanted and len(wanted & frozenset(split_words(best))) >= 0.5 * len(wanted) else None


MIN_SOURCE_SHARE = 0.5
"""A claim is drawn from a chunk one of whose sentences covers so much of it, and no other chunk clearly more."""
MIN_RELEVANCE_RATIO = 0.6
"""A chunk with this share of the relevance of the best one speaks to the query."""
MIN_QUERY_COVERAGE = 0.25
"""A claim speaks to the query itself if it covers so much of a part of it."""
FREE_WORDS = 4
"""So many words of courtesy or digression cost nothing."""


def select_source_chunks(entailment: Entailment) -> list[int]:
    """The places of the chunks that a claim is drawn from.

    >>> select_source_chunks(Entailment("supported", 0.9, shares=(0.2, 0.8, 0.75)))
    [1, 2]
    """
    most = max(entailment.shares, default=0.0)
    return [
        place
        for place, share in enumerate(entailment.shares)
        if share >= MIN_SOURCE_SHARE and share >= 0.9 * most
    ]


def measure_focus(
    query: str,
    answer: str,
    claims: Sequence[Claim],
    entailments: Sequence[Entailment],
    relevance: Sequence[float],
    session: ScorerSession,
) -> float:
    """The share of an answer's words that do not lead away from the query.

    Small talk leads away, and so does a claim drawn from a chunk that is not about the query, unless it
    speaks to the query itself or another claim from that chunk does. What was drawn from nowhere is
    for groundedness to blame; headings and words about missing sources are neither.
    """
    astray = {claim.start for claim in _collect_digressions(query, claims, entailments, relevance, session)}
    ends = {claim.end: claim.start for claim in claims}
    kept = lost = 0
    for start, end in split_sentences(answer):
        size = len(split_content_words(answer[start:end]))
        if end in ends:
            wanders = ends[end] in astray
        else:
            wanders = _is_courtesy(answer[start:end])
            if not wanders:
                continue
        kept, lost = (kept, lost + size) if wanders else (kept + size, lost)
    return kept / (kept + max(0, lost - FREE_WORDS)) if kept else 1.0


def _is_courtesy(text: str) -> bool:
    """Whether a sentence that claims nothing is small talk; not so a heading, a refusal, a question in general."""
    text = text.strip(" *_\"'")
    if text[:1] == "#" or text[-1:] == ":" or text[-1:].isalnum() or is_refusal_sentence(text):
        return False
    return is_personal(text) or not text.endswith("?")


def _collect_digressions(
    query: str,
    claims: Sequence[Claim],
    entailments: Sequence[Entailment],
    relevance: Sequence[float],
    session: ScorerSession,
) -> list[Claim]:
    """The claims that were drawn from chunks on something else."""
    bar = MIN_RELEVANCE_RATIO * max(relevance, default=0.0)
    sources = [select_source_chunks(seen) for seen in entailments]
    far = [bool(places) and max(relevance[place] for place in places) < bar for places in sources]
    if not any(far):
        return []
    parts = split_query(query)
    near: set[int] = set()
    for claim, places in zip(claims, sources, strict=True):
        passage = [Passage("claim", claim.text)]
        if places and any(
            session.score_coverage(part, passage)[0].value >= MIN_QUERY_COVERAGE for part in parts
        ):
            near.update(places)
    return [
        claim
        for claim, places, away in zip(claims, sources, far, strict=False)
        if away and near.isdisjoint(places)
    ]


TruthStatus = Literal["supported", "contradicted", "unknown"]
STATUS_BY_SUPPORT: dict[str, TruthStatus] = {
    "supported": "supported",
    "inferred": "supported",
    "contradicted": "contradicted",
}
MAX_TERSE_WORDS = 6
"""A reference of at most so many words of content is an answer to the query, not a statement."""
MIN_SHARED_WORDS = 3
"""A claim that has all words of a short statement but its figures, and so many, is about the same thing."""
MIN_QUERY_SHARE = 0.75
"""The share of the query that a claim must cover to give another answer to it."""


def judge_truth(
    query: str, claims: Sequence[Claim], references: Sequence[str], session: ScorerSession
) -> tuple[TruthVerdict, ...]:
    """One verdict for each claim: against statements by entailment, against terse answers by their items."""
    if not claims:
        return ()
    seen = session.score_entailment([claim.text for claim in claims], build_reference_passages(references))
    status: list[TruthStatus] = [STATUS_BY_SUPPORT.get(one.support, "unknown") for one in seen]
    terse = [text for text in references if len(split_content_words(text)) <= MAX_TERSE_WORDS]
    if terse:
        short = [_judge_terse(query, claim.text, terse, session) for claim in claims]
        told = "supported" in short
        status = [_combine_statuses(one, two, told) for one, two in zip(status, short, strict=True)]
    return tuple(
        TruthVerdict(claim=claim.text, status=one) for claim, one in zip(claims, status, strict=True)
    )


def build_reference_passages(references: Sequence[str]) -> list[Passage]:
    """What is known, as passages."""
    return [Passage(f"key {place}", text) for place, text in enumerate(references)]


def _combine_statuses(
    statement_status: TruthStatus, terse_status: TruthStatus, is_answered: bool
) -> TruthStatus:
    """Support wins; once the answer is told, the rest of it is no other answer."""
    if "supported" in (statement_status, terse_status):
        return "supported"
    return (
        "contradicted"
        if statement_status == "contradicted" or (terse_status == "contradicted" and not is_answered)
        else "unknown"
    )


def _judge_terse(query: str, claim: str, answers: Sequence[str], session: ScorerSession) -> TruthStatus:
    """How a claim stands to terse answers to the query."""
    claim = strip_marks(claim)
    if any(contains_fact(answer, claim, query) for answer in answers):
        return "supported"
    brief = len(split_content_words(claim)) <= MAX_TERSE_WORDS
    if any(_restates_differently(query, claim, answer) for answer in answers):
        agrees = any(
            extract_literals(claim).keys() & extract_literals(answer).keys() - extract_entities(query)
            for answer in answers
        )
        return "unknown" if agrees else "contradicted"
    if not brief and session.score_coverage(query, [Passage("claim", claim)])[0].value < MIN_QUERY_SHARE:
        return "unknown"
    return "contradicted" if all(_is_other_answer(query, claim, answer) for answer in answers) else "unknown"


def _restates_differently(query: str, claim: str, answer: str) -> bool:
    """Whether a claim says all that a short statement says, but for a figure that it gives otherwise."""
    asked = extract_entities(query)
    stated = {item: forms for item, forms in extract_literals(answer).items() if item not in asked}
    if not stated:
        return False
    rest = frozenset(split_content_words(answer)) - {form for forms in stated.values() for form in forms}
    return (
        len(rest) >= MIN_SHARED_WORDS
        and rest <= frozenset(split_content_words(claim))
        and any(
            are_rival_quantities(one, two) for one in extract_literals(claim).keys() - asked for two in stated
        )
    )


def _is_other_answer(query: str, claim: str, answer: str) -> bool:
    """Whether a claim gives another answer of the same kind: another number, date or name."""
    asked = extract_entities(query)
    ours, theirs = extract_entities(claim) - asked, extract_entities(answer) - asked
    if ours & theirs:
        return False
    counted = extract_literals(answer).keys() & theirs
    if counted:
        return any(
            are_rival_quantities(one, two) for one in extract_literals(claim).keys() & ours for two in counted
        )
    held = {word[:5] for word in split_content_words(claim)}
    if any(
        word[:5] in held
        for word in frozenset(split_content_words(answer)) - frozenset(split_content_words(query))
    ):
        return False
    return bool(theirs) and any(not any(sign.isdigit() for sign in one) for one in ours)
