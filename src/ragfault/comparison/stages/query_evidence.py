"""Evidence on what lists have to do with their queries: names that are not found, and rewritten queries."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import fmean

from ragfault.comparison.stages.paired_traces import LEAST_SHARE, Evidence, PairedTraces, TracePair, give, ramp
from ragfault.model.records import Chunk, Trace
from ragfault.text.normalization import split_content_words
from ragfault.text.number_format import format_percent

# fewer changed lists show no habit
LEAST_LISTS = 10


def query_rules(traces: PairedTraces) -> Evidence:
    """Observe rewritten queries, and names that are not found any more."""
    yield from _rewrite_rules(traces)
    changed = [
        pair
        for pair in traces.pairs
        if pair.old.chunks and pair.new.chunks and _ids(pair.old.chunks) != _ids(pair.new.chunks)
    ]
    if len(changed) < LEAST_LISTS:
        return
    names, others = _lost_cover(changed, names=True), _lost_cover(changed, names=False)
    if names is not None and others is not None:
        text = (
            f"chunks hold {format_percent(names)} fewer of the names and figures of their query, "
            f"{format_percent(others)} fewer other words"
        )
        yield from give("names lost", ramp(names - max(0.0, others), 0.03, 0.2), text, "query rewriter")


def _ids(chunks: Sequence[Chunk]) -> list[str]:
    return [chunk.id for chunk in chunks]


def _lost_cover(pairs: Sequence[TracePair], *, names: bool) -> float | None:
    """Return by how much the share of the queries' names, or of their other words, fell that stand in the chunks."""
    lost = []
    for pair in pairs:
        words = _split_names(pair.old.query)[0 if names else 1]
        if words:
            lost.append(_cover(words, pair.old.chunks or ()) - _cover(words, pair.new.chunks or ()))
    return fmean(lost) if len(lost) >= LEAST_LISTS else None


def _split_names(query: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names and figures of a query, known by capitals after the first word and digits, and its other words.

    >>> [sorted(words) for words in _split_names("What does the Alder 300 weigh?")]
    [['300', 'alder'], ['weigh']]
    """
    names = {
        word.strip(".,;:?!\"'()").casefold()
        for at, word in enumerate(query.split())
        if any(map(str.isdigit, word)) or (at and word[:1].isupper())
    }
    words = frozenset(split_content_words(query.casefold()))
    return frozenset(name for name in names if name), words - names


def _cover(words: Collection[str], chunks: Sequence[Chunk]) -> float:
    """Return the share of the words that stand in any of the chunks."""
    text = " ".join(chunk.text for chunk in chunks).casefold()
    return fmean(word in text for word in words)


def _rewrite_rules(traces: PairedTraces) -> Evidence:
    """Observe queries that a recorded step rewrote otherwise, of first turns or after the same history."""
    alike = [pair for pair in traces.pairs if pair.old.history == pair.new.history]
    alike = [pair for pair in alike if pair.old.history or (pair.old.turn or 1) == 1]
    written = [(_rewritten(pair.old), _rewritten(pair.new)) for pair in alike]
    known = [(old, new) for old, new in written if old is not None and new is not None]
    if not known:
        return
    share = fmean(old != new for old, new in known)
    text = f"{format_percent(share)} of the recorded rewritten queries differ"
    yield from give("rewritten", ramp(share, LEAST_SHARE, 0.2), text, "query rewriter")


def _rewritten(trace: Trace) -> str | None:
    return next((step.output for step in trace.steps or () if step.kind == "rewrite" and step.output), None)
