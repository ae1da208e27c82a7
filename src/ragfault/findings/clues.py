"""Clues: the circumstances in which two runs differ, and the parts they point to."""

from __future__ import annotations

from collections.abc import Container, Iterator
from statistics import fmean

from msgspec import Struct

from ragfault.findings.changes import Clue
from ragfault.records import Trace
from ragfault.runs import Run

__all__ = ["Circumstances", "circumstances", "clues", "void"]

APART = 0.2
"""Below this share of chunk ids in common, the corpus was cut anew."""

ID_METRICS = frozenset(
    {
        "recall",
        "precision",
        "f1",
        "hit",
        "reciprocal_rank",
        "average_precision",
        "ndcg",
        "r_precision",
        "citation_precision",
        "citation_recall",
    }
)
"""Metrics that read chunk ids of the gold."""


class Circumstances(Struct):
    """What a run's traces say of the system that made them."""

    chunks: dict[str, int]
    """Chunk id → a hash of its text."""
    documents: set[str]
    gold: dict[str, frozenset[str]]
    """Trace id → the chunk ids of its gold."""
    depth: list[int]
    """Chunks of each trace."""
    lengths: list[int]
    """Characters of the chunks."""
    answers: list[int]
    """Characters of the answers."""
    cited: list[int]
    """Citations of the answers."""
    refused: list[bool]
    models: set[str]


def circumstances(run: Run, rows: Container[int] | None = None) -> Circumstances:
    """Read a run's circumstances off its traces (of some rows), a bounded number in memory at a time."""
    found = Circumstances({}, set(), {}, [], [], [], [], [], set())
    for row, trace in enumerate(run.traces()):
        if rows is None or row in rows:
            _note(found, trace)
    for row, verdicts in enumerate(run.verdicts()):
        if verdicts.answer is not None and (rows is None or row in rows):
            found.refused.append(verdicts.answer.refused)
    return found


def _note(found: Circumstances, trace: Trace) -> None:
    """Take in what one trace says."""
    if trace.chunks is not None:
        found.depth.append(len(trace.chunks))
    for chunk in trace.chunks or ():
        found.chunks[chunk.id] = hash(chunk.text)
        found.lengths.append(len(chunk.text))
        if chunk.document is not None:
            found.documents.add(chunk.document)
    if trace.answer is not None:
        found.answers.append(len(trace.answer))
        found.cited.append(len(trace.citations or ()))
    if trace.gold is not None and trace.gold.chunks:
        found.gold[trace.id] = frozenset(name for name, grade in trace.gold.chunks.items() if grade > 0)
    if trace.model is not None:
        found.models.add(trace.model)


def void(old: Circumstances, new: Circumstances) -> float | None:
    """The share of gold chunk ids that are gone from the candidate, where its corpus was cut anew; else None.

    Labels are void where the runs share next to no chunk ids, the gold was not renewed, and the candidate
    retrieves next to none of the ids it names.
    """
    ids = old.chunks.keys() & new.chunks.keys()
    least = min(len(old.chunks), len(new.chunks))
    if not least or len(ids) / least >= APART or not new.gold:
        return None
    named = set().union(*new.gold.values())
    gone = sum(name not in new.chunks for name in named) / len(named)
    return gone if gone > 1 - APART else None


def clues(old: Circumstances, new: Circumstances) -> tuple[Clue, ...]:
    """Every circumstance in which the runs differ enough to point somewhere."""
    return tuple(_corpus(old, new)) + tuple(_sizes(old, new)) + tuple(_answering(old, new))


def _corpus(old: Circumstances, new: Circumstances) -> Iterator[Clue]:
    both = old.chunks.keys() & new.chunks.keys()
    least = min(len(old.chunks), len(new.chunks))
    if both:
        other = sum(old.chunks[name] != new.chunks[name] for name in both) / len(both)
        if other > 0:
            text = f"{other:.0%} of the chunks that both runs retrieved under one id have another text"
            yield Clue(name="texts", baseline=0.0, candidate=other, text=text, suspects=("source documents",))
    if least and len(both) / least < 0.5:
        share = f"only {len(both) / least:.0%}" if both else "none"
        text = f"{share} of the chunk ids are in both runs: the corpus was cut anew"
        yield Clue(
            name="ids", baseline=None, candidate=len(both) / least, text=text, suspects=("chunker", "index")
        )
    lost = old.documents - new.documents
    if old.documents and len(lost) / len(old.documents) > 0.2:
        text = f"{len(lost)} of {len(old.documents)} documents are never retrieved any more"
        yield Clue(
            name="documents",
            baseline=float(len(old.documents)),
            candidate=float(len(new.documents)),
            text=text,
            suspects=("filter", "index"),
        )
    if old.models and new.models and old.models != new.models:
        text = f"the model changed: {', '.join(sorted(old.models))} → {', '.join(sorted(new.models))}"
        yield Clue(name="model", baseline=None, candidate=None, text=text, suspects=("model",))


def _sizes(old: Circumstances, new: Circumstances) -> Iterator[Clue]:
    yield from _ratio(
        "depth", "chunks per trace", old.depth, new.depth, 1.25, ("top-k",), ("filter", "top-k")
    )
    yield from _ratio(
        "length", "characters per chunk", old.lengths, new.lengths, 1.3, ("chunker",), ("chunker",)
    )
    copies = [_copies(each) for each in (old, new)]
    if copies[1] > copies[0] + 0.02:
        text = f"{copies[1]:.0%} of the retrieved texts stand under more than one id, {copies[0]:.0%} before"
        yield Clue(name="copies", baseline=copies[0], candidate=copies[1], text=text, suspects=("index",))


def _copies(found: Circumstances) -> float:
    """The share of chunk ids whose text stands under another id too."""
    return 1 - len(set(found.chunks.values())) / len(found.chunks) if found.chunks else 0.0


def _answering(old: Circumstances, new: Circumstances) -> Iterator[Clue]:
    yield from _ratio(
        "answers",
        "characters per answer",
        old.answers,
        new.answers,
        1.3,
        ("prompt",),
        ("max tokens", "prompt"),
    )
    yield from _ratio(
        "citations", "citations per answer", old.cited, new.cited, 1.5, ("output schema",), ("output schema",)
    )
    if old.refused and new.refused:
        before, after = fmean(old.refused), fmean(new.refused)
        if after > before + 0.02:
            text = f"{after:.0%} of the answers refuse, {before:.0%} before"
            yield Clue(
                name="refusals",
                baseline=before,
                candidate=after,
                text=text,
                suspects=("refusal wording", "prompt"),
            )


def _ratio(
    name: str,
    what: str,
    old: list[int],
    new: list[int],
    bar: float,
    more: tuple[str, ...],
    less: tuple[str, ...],
) -> Iterator[Clue]:
    """A clue where the mean of something grew or shrank by more than `bar` times."""
    if not old or not new:
        return
    before, after = fmean(old), fmean(new)
    if after >= bar * before and after > 0:
        text = f"{what} rose: {before:.3g} → {after:.3g}"
        yield Clue(name=name, baseline=before, candidate=after, text=text, suspects=more)
    elif after * bar <= before and before > 0:
        text = f"{what} fell: {before:.3g} → {after:.3g}"
        yield Clue(name=name, baseline=before, candidate=after, text=text, suspects=less)
