"""Profiles of runs (chunk ids, lengths, models, refusals), and the differences that point to a suspect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from statistics import fmean

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


def compare_profiles(old: RunProfile, new: RunProfile) -> tuple[RunDifference, ...]:
    """Return every difference of the runs that points to a suspect."""
    return (
        tuple(_corpus_differences(old, new)) + tuple(_size_differences(old, new)) + tuple(_answer_differences(old, new))
    )


def _corpus_differences(old: RunProfile, new: RunProfile) -> Iterator[RunDifference]:
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
        cause = recut if any(_length_difference(old, new)) else f"other chunks are retrieved, or {recut}"
        text = f"{share} of the chunk ids are in both runs: {cause}"
        yield RunDifference(
            name="ids", baseline=None, candidate=len(both) / least, text=text, suspects=("chunker", "index")
        )
    lost = old.documents - new.documents
    if old.documents and len(lost) / len(old.documents) > 0.2:
        text = f"{len(lost)} of {len(old.documents)} documents are never retrieved any more"
        yield RunDifference(
            name="documents",
            baseline=float(len(old.documents)),
            candidate=float(len(new.documents)),
            text=text,
            suspects=("filter", "index"),
        )
    if old.models and new.models and old.models != new.models:
        text = f"the model changed: {', '.join(sorted(old.models))} → {', '.join(sorted(new.models))}"
        yield RunDifference(name="model", baseline=None, candidate=None, text=text, suspects=("model",))


def _size_differences(old: RunProfile, new: RunProfile) -> Iterator[RunDifference]:
    yield from _ratio_difference(
        "depth", "chunks per trace", old.chunk_counts, new.chunk_counts, 1.25, ("top-k",), ("filter", "top-k")
    )
    yield from _length_difference(old, new)
    # those under more than one id are copies
    texts = (profile.chunks for profile in (old, new))
    copies = [1 - len(set(chunks.values())) / len(chunks) if chunks else 0.0 for chunks in texts]
    if copies[1] > copies[0] + 0.02:
        text = (
            f"{format_percent(copies[1])} of the retrieved texts stand under more than one id, "
            f"{format_percent(copies[0])} before"
        )
        yield RunDifference(name="copies", baseline=copies[0], candidate=copies[1], text=text, suspects=("index",))


def _length_difference(old: RunProfile, new: RunProfile) -> Iterator[RunDifference]:
    yield from _ratio_difference(
        "length", "characters per chunk", old.chunk_lengths, new.chunk_lengths, 1.3, ("chunker",), ("chunker",)
    )


def _answer_differences(old: RunProfile, new: RunProfile) -> Iterator[RunDifference]:
    yield from _ratio_difference(
        "answers",
        "characters per answer",
        old.answer_lengths,
        new.answer_lengths,
        1.3,
        ("prompt",),
        ("max tokens", "prompt"),
    )
    yield from _ratio_difference(
        "citations",
        "citations per answer",
        old.citation_counts,
        new.citation_counts,
        1.5,
        ("output schema",),
        ("output schema",),
    )
    if old.refusals and new.refusals:
        before, after = fmean(old.refusals), fmean(new.refusals)
        if after > before + 0.02:
            text = f"{format_percent(after)} of the answers refuse, {format_percent(before)} before"
            yield RunDifference(
                name="refusals", baseline=before, candidate=after, text=text, suspects=("refusal wording", "prompt")
            )


def _ratio_difference(
    name: str,
    quantity: str,
    old: list[int],
    new: list[int],
    factor: float,
    rise_suspects: tuple[str, ...],
    fall_suspects: tuple[str, ...],
) -> Iterator[RunDifference]:
    """Yield a difference where a mean grew or shrank by at least `factor`."""
    if not old or not new:
        return
    before, after = fmean(old), fmean(new)
    if after >= factor * before and after > 0:
        text = f"{quantity} rose: {before:.3g} → {after:.3g}"
        yield RunDifference(name=name, baseline=before, candidate=after, text=text, suspects=rise_suspects)
    elif after * factor <= before and before > 0:
        text = f"{quantity} fell: {before:.3g} → {after:.3g}"
        yield RunDifference(name=name, baseline=before, candidate=after, text=text, suspects=fall_suspects)
