"""Whether the shown chunks hold what a query asks for: by gold, else by the references, else by the judge."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

import numpy as np
from msgspec import Struct

from ragfault.diagnosis.causes.records import PassageSource, RetrievalSummary
from ragfault.diagnosis.score_matrix import estimate_mean
from ragfault.labels.correction import Codes
from ragfault.model.gold_evidence import measure_coverage
from ragfault.model.records import GoldVerdicts, RelevanceLevel, Trace, Verdicts
from ragfault.model.rules import RELEVANT_LEVELS, chunks_cover_query

PASSAGE_SOURCES: tuple[PassageSource, ...] = ("gold", "references", "judge")
"""Evidence that a passage was found, the surest first."""


class RetrievalOutcome(Struct, frozen=True):
    """What was retrieved for one query."""

    source: PassageSource | None = None
    """The evidence that `recall` rests on; None where it is not known."""
    recall: float = 0.0
    """The share of the gold, or of the statements of the references, that the chunks hold; by the judge 0 or 1."""
    rank: int | None = None
    """The rank of the first gold chunk, from 1; None without gold, or if no gold chunk was retrieved."""
    useful: int | None = None
    """The number of chunks of high or medium relevance; None without gold and judged chunks."""
    chunks: int = 0


def observe_retrieval(trace: Trace, verdicts: Verdicts) -> RetrievalOutcome:
    """Return what was retrieved for a query that has an answer in the corpus.

    >>> from ragfault.model.records import Chunk, Gold
    >>> chunks = (Chunk(id="a", text="On dogs."), Chunk(id="b", text="At noon."))
    >>> trace = Trace(id="1", query="When?", chunks=chunks, gold=Gold(chunks={"b": 1}))
    >>> observe_retrieval(trace, GoldVerdicts(trace="1", covered=True))
    RetrievalOutcome(source='gold', recall=1.0, rank=2, useful=1, chunks=2)
    """
    if trace.answerable is False or trace.chunks is None:
        return RetrievalOutcome()
    coverage = measure_coverage(trace) if isinstance(verdicts, GoldVerdicts) else None
    levels: Sequence[RelevanceLevel | None] = [chunk.level for chunk in verdicts.chunk or ()]
    if not levels and coverage is not None:
        levels = coverage.levels
    useful = sum(level in RELEVANT_LEVELS for level in levels) if levels else None
    total = len(trace.chunks)
    if coverage is not None:
        rank = next((place for place, level in enumerate(coverage.levels, 1) if level is not None), None)
        return RetrievalOutcome("gold", coverage.share, rank, useful, total)
    if verdicts.recall:
        recall = sum(item.covered for item in verdicts.recall) / len(verdicts.recall)
        return RetrievalOutcome("references", recall, None, useful, total)
    covers = judge_coverage(trace, verdicts)
    return RetrievalOutcome(None if covers is None else "judge", float(covers or 0), None, useful, total)


PLACES_OF_ANSWERS, PLACES_OF_REFUSALS = (0.7, 0.15, 0.15), (1 / 3, 1 / 3, 1 / 3)
"""How often the passage of a query that was answered, or refused, is shown, elsewhere and nowhere, before anything is
compared; chosen, not measured."""
LIKELY_PLACE = 0.5
"""The probability from which a passage is at a place."""


def weigh_places(verdicts: Verdicts) -> tuple[float, float]:
    """Return the probabilities that the passage of a query was shown, and retrieved for other queries only.

    >>> from ragfault.model.records import PassagePlace
    >>> weigh_places(Verdicts(trace="1", place=PassagePlace(shown=0.02, elsewhere=0.96)))
    (0.087, 0.8944)
    >>> weigh_places(Verdicts(trace="1"))
    (0.0, 0.0)
    """
    place = verdicts.place
    if place is None:
        return 0.0, 0.0
    refused = verdicts.answer is not None and verdicts.answer.refused
    known = place.shown, place.elsewhere, 1 - place.shown - place.elsewhere
    shown, elsewhere, nowhere = map(mul, known, PLACES_OF_REFUSALS if refused else PLACES_OF_ANSWERS)
    total = shown + elsewhere + nowhere
    return round(shown / total, 4), round(elsewhere / total, 4)


def judge_coverage(trace: Trace, verdicts: Verdicts) -> bool | None:
    """Return whether the shown chunks cover the query; None where only what the judge misses speaks against it.

    They do not if a part of the gold was missed and the chunks lack a statement of the reference. Without gold and
    references the chunks of the whole run tell, if they do. A judge that finds something missing beside a relevant
    chunk is wrong too often to blame retrieval by it.
    """
    covered = chunks_cover_query(trace, verdicts)
    if misses_gold(trace, verdicts) and not all(item.covered for item in verdicts.recall or ()):
        return False
    by_gold = isinstance(verdicts, GoldVerdicts) and verdicts.covered is not None
    if by_gold or verdicts.recall:
        return covered
    shown, elsewhere = weigh_places(verdicts)
    if max(shown, elsewhere) > LIKELY_PLACE:
        return shown > elsewhere
    if covered is not False:
        return covered
    relevant = any(chunk.level in RELEVANT_LEVELS for chunk in verdicts.chunk or ())
    return None if relevant else False


def misses_gold(trace: Trace, verdicts: Verdicts) -> bool:
    """Return whether gold was applied and a part of it was not retrieved, but not all."""
    if not isinstance(verdicts, GoldVerdicts) or verdicts.covered is not None or trace.answerable is False:
        return False
    coverage = measure_coverage(trace)
    return coverage is not None and coverage.retrieved == "some"


def summarize_retrieval(outcomes: Sequence[RetrievalOutcome], clusters: Codes | None = None) -> RetrievalSummary | None:
    """Summarize by the surest evidence that any trace has; None where no trace has any.

    >>> summarize_retrieval([RetrievalOutcome("gold", 1.0, 2, 1, 5)] * 10).rank
    2.0
    """
    sources = {outcome.source for outcome in outcomes}
    source = next((name for name in PASSAGE_SOURCES if name in sources), None)
    if source is None:
        return None
    chosen = np.array([outcome.source == source for outcome in outcomes], dtype=bool)
    recalls = np.array([outcome.recall for outcome in outcomes])[chosen]
    share = estimate_mean(recalls, None if clusters is None else clusters[chosen])
    ranks = [outcome.rank for outcome in outcomes if outcome.rank is not None]
    judged = [outcome for outcome in outcomes if outcome.useful is not None]
    assert share is not None  # some outcome has the source
    return RetrievalSummary(
        source=source,
        recall=share,
        rank=float(np.mean(ranks)) if ranks else None,
        useful=float(np.mean([outcome.useful for outcome in judged])) if judged else None,
        chunks=float(np.mean([outcome.chunks for outcome in judged])) if judged else None,
    )
