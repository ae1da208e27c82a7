"""Application of a trace's answer key to the verdicts of a judge: where gold exists, gold decides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from ragfault.model.records import (
    Chunk,
    ChunkVerdict,
    GoldVerdicts,
    RecallVerdict,
    RelevanceLevel,
    Span,
    Trace,
    Verdicts,
)
from ragfault.text.entities import EntityIndex, extract_entities
from ragfault.text.normalization import NEGATIONS, split_content_words, split_words
from ragfault.text.substitutions import Substitution, find_substitution

GOLD_SHARE = 0.5
"""The share of a gold span that a chunk covers to count as gold, and that the chunks cover to hold it."""
WORD_SHARE = 0.6
"""The share of a reference's words, beside all its names and numbers, that an answer in agreement repeats."""
GRADED = 2.0
"""The least grade of high relevance where a trace's gold has several grades."""
CLAUSE_END = re.compile(r"[.,;:!?](?=\s|$)|\s(?:and|but|or)\s")
COMPARISON = re.compile(
    r"\b(?:no|not) (?:more|less|fewer|later|longer|earlier|higher|lower|sooner) than\b", re.IGNORECASE
)
LEAST_RELEVANCE: dict[RelevanceLevel, float] = {"high": 0.75, "medium": 0.5}
"""Relevance of a gold chunk: the least of its level."""


RETRIEVED_COVERS = {"all": True, "none": False, "some": None}
"""Gold that was retrieved → whether the chunks cover the query."""


class GoldCoverage(NamedTuple):
    """Relevance of the retrieved chunks by gold, and what of the gold they hold."""

    levels: tuple[RelevanceLevel | None, ...]
    """The level of each chunk by gold; None: it has no gold label."""
    absent_spans: tuple[Span, ...]
    """Gold spans that the chunks do not hold; empty too where the chunks do not say where they stand."""
    retrieved: Literal["all", "some", "none"]
    share: float
    """The share of the gold that was retrieved, in [0, 1]: of its chunks or of its spans, whichever is larger."""


def apply_gold(trace: Trace, verdicts: Verdicts) -> Verdicts:
    """Return the verdicts that metrics and analyses read where gold decides; without an answer key, the judge's.

    A chunk is as relevant as the larger of the judge's level and that of gold. `missing` lists what of the gold no
    chunk holds. Verdicts to which gold was applied are returned unchanged.

    >>> from ragfault.model.records import Gold
    >>> trace = Trace(id="1", query="When?", chunks=(Chunk(id="a", text="At 7:30."),), gold=Gold(chunks={"a": 1}))
    >>> judged = Verdicts(trace="1", chunk=(ChunkVerdict(chunk="a", relevance=0.1, level="none"),), missing=("when",))
    >>> seen = apply_gold(trace, judged)
    >>> seen.chunk[0].level, seen.missing, seen.covered
    ('high', (), True)
    """
    if isinstance(verdicts, GoldVerdicts) or not has_answer_key(trace):
        return verdicts
    coverage = measure_coverage(trace)
    covered = None if coverage is None else RETRIEVED_COVERS[coverage.retrieved]
    parts = {name: getattr(verdicts, name) for name in Verdicts.__struct_fields__}
    if verdicts.chunk:
        parts["chunk"] = _raise_levels(verdicts.chunk, coverage)
    if verdicts.missing is not None:
        parts["missing"] = _list_missing(trace, verdicts, coverage)
    if verdicts.recall and covered:
        parts["recall"] = _confirm_recall(trace, verdicts.recall)
    return GoldVerdicts(**parts, covered=False if trace.answerable is False else covered)


def apply_gold_to_chunks(trace: Trace, chunks: tuple[ChunkVerdict, ...] | None) -> tuple[ChunkVerdict, ...] | None:
    """Return the verdicts on chunks as `apply_gold` does, which costs much less than all verdicts."""
    return _raise_levels(chunks, measure_coverage(trace) if chunks else None)


def _raise_levels(
    chunks: tuple[ChunkVerdict, ...] | None, coverage: GoldCoverage | None
) -> tuple[ChunkVerdict, ...] | None:
    if coverage is None or not chunks or len(chunks) != len(coverage.levels):
        return chunks
    return tuple(map(_raise_level, chunks, coverage.levels))


def has_answer_key(trace: Trace) -> bool:
    """Return whether a trace has gold, facts, a reference or an answerability label."""
    return bool(trace.gold or trace.facts or trace.references) or trace.answerable is not None


def measure_coverage(trace: Trace) -> GoldCoverage | None:
    """Measure which retrieved chunks are gold; None without relevant gold or where no chunks were recorded.

    A chunk is gold by its id, or if it covers at least half of a gold span; grade 1 is medium and 2 high, and where no
    grade is above 1 (ungraded gold) 1 is high. A chunk without text among others that have text holds nothing.
    """
    if trace.gold is None or trace.chunks is None:
        return None
    grades = {name: grade for name, grade in trace.gold.chunks.items() if grade > 0}
    spans = tuple(span for span in trace.gold.spans if span.grade > 0 and span.end > span.start)
    if not grades and not spans:
        return None
    best = max([*grades.values(), *(span.grade for span in spans)])
    has_text = any(chunk.text.strip() for chunk in trace.chunks)
    recorded = [chunk for chunk in trace.chunks if chunk.text.strip() or not has_text]
    levels = tuple(_rate_chunk(chunk, grades, spans, best) if chunk in recorded else None for chunk in trace.chunks)
    absent = tuple(span for span in spans if _covered_share(span, recorded) < GOLD_SHARE)
    retrieved_ids = {chunk.id for chunk in recorded} & grades.keys()
    located = all(chunk.start is not None and chunk.end is not None for chunk in trace.chunks)
    if (spans and not absent) or (grades and len(retrieved_ids) == len(grades)):
        return GoldCoverage(levels, (), "all", 1.0)
    if not grades and not located:
        return None
    partly = bool(retrieved_ids) or len(absent) < len(spans)
    shares = [1 - len(absent) / len(spans)] if spans else []
    shares += [len(retrieved_ids) / len(grades)] if grades else []
    return GoldCoverage(levels, absent if located else (), "some" if partly else "none", max(shares))


def _rate_chunk(chunk: Chunk, grades: dict[str, float], spans: Sequence[Span], best: float) -> RelevanceLevel | None:
    """Return the level of a chunk by gold; None where it has no relevant gold."""
    covered_grades = [span.grade for span in spans if _covered_share(span, [chunk]) >= GOLD_SHARE]
    grade = max([grades.get(chunk.id, 0.0), *covered_grades])
    if grade <= 0:
        return None
    return "high" if grade >= GRADED or best <= 1 else "medium"


def _covered_share(span: Span, chunks: Iterable[Chunk]) -> float:
    """Return the share of a span's characters that the chunks cover; of a clipped chunk only the recorded part."""
    parts = sorted(
        (max(chunk.start, span.start), min(_recorded_end(chunk, chunk.start, chunk.end), span.end))
        for chunk in chunks
        if chunk.document == span.document and chunk.start is not None and chunk.end is not None
    )
    recorded, reached = 0, span.start
    for start, end in parts:
        recorded += max(0, end - max(start, reached))
        reached = max(reached, end)
    return recorded / (span.end - span.start)


def _recorded_end(chunk: Chunk, start: int, end: int) -> int:
    """Return the end of a chunk; where less than half of its text was recorded, the end of that."""
    size = len(chunk.text.strip())
    return start + size if 0 < size < (end - start) / 2 else end


def _raise_level(verdict: ChunkVerdict, level: RelevanceLevel | None) -> ChunkVerdict:
    """Return the verdict at the level of gold where that is higher."""
    if level is None or verdict.level in ("high", level):
        return verdict
    return replace(
        verdict, level=level, relevance=max(verdict.relevance, LEAST_RELEVANCE[level]), reason="relevant by gold"
    )


def _list_missing(trace: Trace, verdicts: Verdicts, coverage: GoldCoverage | None) -> tuple[str, ...] | None:
    """List the gold spans or facts that no chunk holds; the judge's items where gold is silent."""
    if coverage is not None and coverage.retrieved == "all":
        return ()
    if coverage is not None and coverage.absent_spans:
        return tuple(f"{span.document}, characters {span.start} to {span.end} (gold)" for span in coverage.absent_spans)
    if trace.facts and verdicts.recall is not None:
        return tuple(item.statement for item in verdicts.recall if not item.covered)
    if coverage is not None and coverage.retrieved == "none":
        return verdicts.missing or ("the gold chunks: none was retrieved",)
    return () if trace.answerable is False and coverage is None else verdicts.missing


def _confirm_recall(trace: Trace, recall: Sequence[RecallVerdict]) -> tuple[RecallVerdict, ...]:
    """Return the statements as covered where all gold was retrieved and its text holds their names and numbers."""
    index = EntityIndex(*(chunk.text for chunk in trace.chunks or ()))
    return tuple(
        item
        if item.covered or any(entity not in index for entity in extract_entities(item.statement))
        else replace(item, covered=True)
        for item in recall
    )


AGREEMENT_UNSURE = (0.25, 0.6)
"""Between these probabilities it cannot be told whether an answer agrees with its reference.

Most answers of a system are right, so that one is called wrong only if that is likely; chosen on authored answers
(decision 33)."""


def measure_key_agreement(trace: Trace, verdicts: Verdicts) -> float | None:
    """Measure how much of the answer key the answer states, in [0, 1]; None where that cannot be told.

    1: it repeats a reference, or all facts, in their names, numbers and words; or the judge finds all facts in it and
    none contradicted (without facts: some claim supported by the reference and none contradicted). Less than 1 only
    where names or numbers of the key are absent from the answer: then the share of the facts that it states, 0 without
    facts. A judge that misses a fact which is told in other words is no evidence. A refusal states none of it: None.
    Where the answer repeats a reference except for another name or number, two exchanged words or a negation, it
    states none of it (`find_substitution`). Otherwise the judge decides if it reads the answer beside the reference
    (`AnswerVerdict.agreement`); the agreement is None between the probabilities `AGREEMENT_UNSURE`, and where the
    judge calls an answer wrong that repeats the reference: its reading and the words are two witnesses. Without such a
    judge it is None too where other words stand in the place of the reference's: they may say the same.
    """
    if verdicts.answer is not None and verdicts.answer.refused:
        return None
    substitutions = list_substitutions(trace)
    if substitutions and not trace.facts and all(substitution.is_certain for substitution in substitutions):
        return 0.0
    if verdicts.answer is not None and verdicts.answer.agreement is not None and not trace.facts:
        low, high = AGREEMENT_UNSURE
        agreement = verdicts.answer.agreement
        if low < agreement < high or (agreement <= low and match_answer(trace) is True):
            return None
        return float(agreement >= high)
    if substitutions and not trace.facts:
        return None
    matched = match_answer(trace)
    facts = [item.present and not item.contradicted for item in verdicts.fact or ()]
    if len(facts) == len(trace.facts or ()):
        facts = [
            stated and not states_otherwise(trace, fact) for stated, fact in zip(facts, trace.facts or (), strict=True)
        ]
    truths = {item.status for item in verdicts.truth or ()}
    if matched or (facts and all(facts)):
        return 1.0
    if matched is None:
        by_reference = trace.references and not trace.facts
        return 1.0 if by_reference and "supported" in truths and "contradicted" not in truths else None
    return sum(facts) / len(facts) if facts else 0.0


def list_substitutions(trace: Trace) -> list[Substitution]:
    """List what an answer says in the place of each reference; empty if it does so of none or of some of them only.

    >>> trace = Trace(id="1", query="When is it open?", reference="It opens on Thursday.", answer="It opens on Friday.")
    >>> [substitution.text for substitution in list_substitutions(trace)]
    ['"Friday" in place of "Thursday"']
    """
    answer = trace.stated
    if not answer or not trace.references:
        return []
    compared = [find_substitution(trace.query, reference, answer) for reference in trace.references]
    known = [substitution for substitution in compared if substitution is not None]
    return known if len(known) == len(compared) else []


def states_otherwise(trace: Trace, expected: str) -> bool:
    """Return whether the answer surely says something else in the place of an expected text."""
    substitution = find_substitution(trace.query, expected, trace.stated or "")
    return substitution is not None and substitution.is_certain


def agrees_with_key(trace: Trace, verdicts: Verdicts) -> bool:
    """Return whether gold was applied and the answer states the whole answer key."""
    return isinstance(verdicts, GoldVerdicts) and measure_key_agreement(trace, verdicts) == 1


def match_answer(trace: Trace) -> bool | None:
    """Return whether the answer repeats the answer key, without a judge; None where its words do not tell.

    True: the names, numbers and words of a reference, or of every fact, stand in the answer. False: of each reference
    (without one, of the facts) a name or number that is not in the query is absent from the answer.

    >>> trace = Trace(id="1", query="What is the fee?", answer="You pay £22.00 a night.", reference="£22.00 a night.")
    >>> match_answer(trace), match_answer(replace(trace, answer="You pay £12.00 a night."))
    (True, False)
    """
    facts = trace.facts or ()
    answer = trace.stated
    if not answer or not answer.strip():
        return None
    if any(_repeats(trace, reference) for reference in trace.references):
        return True
    if facts and all(_repeats(trace, fact) for fact in facts):
        return True
    index = EntityIndex(answer)
    sources = trace.references or ((" \n".join(facts),) if facts else ())
    words = frozenset(split_words(answer))
    absent = [
        any(_is_absent(entity, index, words) for entity in _new_entities(trace.query, source)) for source in sources
    ]
    return False if absent and all(absent) else None


def _is_absent(entity: str, index: EntityIndex, words: frozenset[str]) -> bool:
    """Return whether a name or number is absent; a word that opens a key may be no name, and occur in another form."""
    return entity not in index and not (entity.isalpha() and words.issuperset(split_words(entity)))


def _repeats(trace: Trace, expected: str) -> bool:
    return repeats_words(trace.query, expected, trace.stated or "") and not states_otherwise(trace, expected)


def repeats_words(query: str, expected: str, answer: str) -> bool:
    """Return whether an answer repeats all names and numbers of a text and enough of its words, negated alike.

    What the query says already is not looked for. Without a name or number beyond it, all words are needed. Negation is
    compared in the clauses that share some of its words; "no more than" and the like negate nothing.
    """
    content_words = set(split_content_words(expected))
    new_words = content_words - set(split_words(query)) or content_words
    entities = _new_entities(query, expected)
    index = EntityIndex(answer)
    if not new_words or any(entity not in index for entity in entities):
        return False
    if _is_opposite(expected, answer):
        return False
    expected_words, answer_words = _join_clauses(expected, new_words), _join_clauses(answer, new_words)
    if bool(expected_words & NEGATIONS) != bool(answer_words & NEGATIONS):
        return False
    return len(new_words & answer_words) / len(new_words) >= (WORD_SHARE if entities else 1.0)


def _join_clauses(source: str, words: set[str]) -> set[str]:
    """Return the words of those clauses of a text that contain some of the given words."""
    clauses = (set(split_words(clause)) for clause in CLAUSE_END.split(COMPARISON.sub(" ", source)))
    return set().union(*(clause for clause in clauses if clause & words))


def _is_opposite(expected: str, answer: str) -> bool:
    """Return whether one of two texts opens with yes and the other with no."""
    return {(split_words(source) or ("",))[0] for source in (expected, answer)} == {"yes", "no"}


def _new_entities(query: str, expected: str) -> frozenset[str]:
    """Return the names and numbers of a text that the query does not name."""
    query_entities = EntityIndex(query)
    return frozenset(entity for entity in extract_entities(expected) if entity not in query_entities)
