"""Profiles of runs (chunk ids, lengths, models, refusals), and the differences that point to a suspect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from statistics import fmean
from typing import NamedTuple

from msgspec import Struct

from ragfault.comparison.pairing import NOT_RECORDED, RunContents
from ragfault.comparison.records import RunDifference
from ragfault.text.number_format import format_percent

# below this share of chunk ids in common, the corpus was re-chunked
SHARED_IDS_LIMIT = 0.2

GOLD_ID_METRICS = frozenset({
    "recall", "precision", "f1", "hit", "reciprocal_rank", "average_precision", "ndcg", "r_precision", "rbp", "bpref",
    "citation_precision", "citation_recall",
})  # fmt: skip
"""Metrics that read chunk ids of the gold."""


class RunProfile(Struct, frozen=True):
    """Properties of a RAG system that the traces of a run show."""

    # chunk id → a fingerprint of its text
    chunks: dict[str, int]
    documents: frozenset[str]
    # chunk ids that the gold names as relevant
    gold: frozenset[str]
    # chunks of each trace
    chunk_counts: list[int]
    # characters of the chunks
    chunk_lengths: list[int]
    # characters of the answers
    answer_lengths: list[int]
    # citations of the answers
    citation_counts: list[int]
    refusals: list[bool]
    models: frozenset[str]


def profile_run(
    contents: RunContents,
    refused: Sequence[bool | None],
    rows: Sequence[int],
    ids: Mapping[str, str],
    documents: Mapping[str, str],
) -> RunProfile:
    """Profile some rows of a run; `ids` and `documents` are the other run's names of what was renamed."""
    keys = [contents.keys[place] for row in rows for place in contents.trace_keys[row]]
    golds = [gold for row in rows if (gold := contents.gold[row]) is not None]
    answered = [row for row in rows if contents.answered[row]]
    return RunProfile(
        chunks={ids.get(key.id, key.id): key.text for key in keys},
        documents=frozenset(documents.get(key.document, key.document) for key in keys if key.document is not None),
        gold=frozenset(ids.get(name, name) for gold in golds for name, grade in gold.chunks.items() if grade > 0),
        chunk_counts=[count for row in rows if (count := int(contents.chunk_counts[row])) != NOT_RECORDED],
        chunk_lengths=[key.size for key in keys],
        answer_lengths=[int(contents.answer_sizes[row]) for row in answered],
        citation_counts=[max(0, int(contents.citation_counts[row])) for row in answered],
        refusals=[state for row in rows if (state := refused[row]) is not None],
        models=frozenset(model for row in rows if (model := contents.models[row]) is not None),
    )


def stale_gold_share(old: RunProfile, new: RunProfile) -> float | None:
    """Return the share of gold chunk ids missing from a re-chunked candidate corpus; None where it is not one."""
    return measure_stale_gold(old.chunks.keys(), new.chunks.keys(), new.gold)


def measure_stale_gold(old: Set[str], new: Set[str], gold: Set[str]) -> float | None:
    """Return the share of gold chunk ids that the candidate never retrieves, where that voids them; else None.

    Labels are void where the runs share next to no chunk ids, the gold was not renewed, and the candidate
    retrieves next to none of the ids it names.
    """
    least = min(len(old), len(new))
    if not least or len(old & new) / least >= SHARED_IDS_LIMIT or not gold:
        return None
    gone = len(gold - new) / len(gold)
    return gone if gone > 1 - SHARED_IDS_LIMIT else None


class Quantity(NamedTuple):
    """Mean of a run that points to a stage where it grew or shrank by a factor."""

    name: str
    words: str
    field: str
    factor: float
    if_risen: tuple[str, ...]
    """Suspected stages."""
    if_fallen: tuple[str, ...]

    def compare(self, old: RunProfile, new: RunProfile) -> Iterator[RunDifference]:
        """Yield the difference of two runs where there is one."""
        sides = getattr(old, self.field), getattr(new, self.field)
        if not all(sides):
            return
        before, after = map(fmean, sides)
        for word, low, high, stages in (
            ("rose", before, after, self.if_risen),
            ("fell", after, before, self.if_fallen),
        ):
            if high >= self.factor * low and high > 0:
                text = f"{self.words} {word}: {before:.3g} → {after:.3g}"
                yield RunDifference(name=self.name, baseline=before, candidate=after, text=text, suspects=stages)


DEPTH = Quantity("depth", "chunks per trace", "chunk_counts", 1.25, ("top-k",), ("filter", "top-k"))
LENGTH = Quantity("length", "characters per chunk", "chunk_lengths", 1.3, ("chunker",), ("chunker",))
ANSWERS = Quantity("answers", "characters per answer", "answer_lengths", 1.3, ("prompt",), ("max tokens", "prompt"))
CITATIONS = Quantity(
    "citations", "citations per answer", "citation_counts", 1.5, ("output schema",), ("output schema",)
)
LEAST_RISE = 0.02
"""Rise of a share of chunks or answers that points to a stage."""


def compare_profiles(old: RunProfile, new: RunProfile) -> tuple[RunDifference, ...]:
    """Return every difference of the runs that points to a suspect."""
    # texts under more than one id are copies
    copies = [1 - len(set(side.chunks.values())) / len(side.chunks) if side.chunks else 0.0 for side in (old, new)]
    refusals = [fmean(side.refusals) for side in (old, new) if side.refusals]
    return (
        *_compare_corpora(old, new),
        *DEPTH.compare(old, new),
        *LENGTH.compare(old, new),
        *_find_rise("copies", copies, "retrieved texts stand under more than one id", ("index",)),
        *ANSWERS.compare(old, new),
        *CITATIONS.compare(old, new),
        *_find_rise("refusals", refusals, "answers refuse", ("refusal wording", "prompt")),
    )


def _find_rise(name: str, shares: Sequence[float], words: str, suspects: tuple[str, ...]) -> Iterator[RunDifference]:
    """Yield the difference of a share that is known on both sides and rose."""
    if len(shares) == 2 and shares[1] > shares[0] + LEAST_RISE:
        text = f"{format_percent(shares[1])} of the {words}, {format_percent(shares[0])} before"
        yield RunDifference(name=name, baseline=shares[0], candidate=shares[1], text=text, suspects=suspects)


def _compare_corpora(old: RunProfile, new: RunProfile) -> Iterator[RunDifference]:
    both = old.chunks.keys() & new.chunks.keys()
    least = min(len(old.chunks), len(new.chunks))
    if both:
        other = sum(old.chunks[name] != new.chunks[name] for name in both) / len(both)
        if other > 0:
            text = f"{format_percent(other)} of the chunks that both runs retrieved under one id have another text"
            yield RunDifference(name="texts", baseline=0.0, candidate=other, text=text, suspects=("source documents",))
    if least and len(both) / least < 0.5:
        share = f"only {format_percent(len(both) / least)}" if both else "none"
        recut = "the corpus was re-chunked"
        cause = recut if any(LENGTH.compare(old, new)) else f"other chunks are retrieved, or {recut}"
        text, suspects = f"{share} of the chunk ids are in both runs: {cause}", ("chunker", "index")
        yield RunDifference(name="ids", baseline=None, candidate=len(both) / least, text=text, suspects=suspects)
    counts, lost = [float(len(side.documents)) for side in (old, new)], len(old.documents - new.documents)
    if lost > 0.2 * counts[0]:
        text, suspects = f"{lost} of {len(old.documents)} documents are never retrieved any more", ("filter", "index")
        yield RunDifference(name="documents", baseline=counts[0], candidate=counts[1], text=text, suspects=suspects)
    if old.models and new.models and old.models != new.models:
        text = f"the model changed: {', '.join(sorted(old.models))} → {', '.join(sorted(new.models))}"
        yield RunDifference(name="model", baseline=None, candidate=None, text=text, suspects=("model",))
