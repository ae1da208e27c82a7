"""Evidence for the stage of a pipeline that changed between two runs, from their paired traces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragfault.analysis.comparison.paired_runs import PairedRuns
from ragfault.analysis.comparison.records import StageEvidence
from ragfault.analysis.comparison.run_profile import RunProfile
from ragfault.records import Chunk, Citation, Trace, Verdicts
from ragfault.rules import quote_matches
from ragfault.text.quantities import EntityMatch, extract_quantities

MAX_PAIRS = 1_000  # pairs that are read for evidence, evenly spaced
LEAST_SHARE = 0.02  # an effect on a smaller share of the pairs is no evidence


class TracePair(NamedTuple):
    """One query in both runs, with its verdicts."""

    old: Trace
    new: Trace
    old_verdicts: Verdicts
    new_verdicts: Verdicts


class PairedTraces(NamedTuple):
    """Sample of the pairs, and the profiles of both runs."""

    pairs: Sequence[TracePair]
    profiles: tuple[RunProfile, RunProfile]


def read_pairs(paired: PairedRuns, mask: NDArray[np.bool_] | None = None) -> PairedTraces:
    """Read the traces and verdicts of at most 1,000 of the pairs, evenly spaced."""
    places = np.flatnonzero(mask) if mask is not None else np.arange(len(paired.pairing))
    if len(places) > MAX_PAIRS:
        places = places[np.linspace(0, len(places) - 1, MAX_PAIRS).astype(int)]
    sides = []
    for side in (0, 1):
        rows = paired.paired_rows(side)[places].tolist()
        chosen, run = set(rows), paired.runs[side]
        judged = {row: both for row, both in enumerate(zip(run.traces(), run.verdicts(), strict=True)) if row in chosen}
        sides.append([judged[row] for row in rows])
    pairs = [TracePair(old[0], new[0], old[1], new[1]) for old, new in zip(*sides, strict=True)]
    return PairedTraces(pairs, paired.profiles)


def collect_evidence(traces: PairedTraces) -> tuple[StageEvidence, ...]:
    """Collect all evidence that the pairs give, each with its strength and its sentence."""
    found: list[StageEvidence] = []
    for rule in RULES:
        found += [evidence for evidence in rule(traces) if evidence.strength > 0]
    return tuple(found)


Evidence = Iterator[StageEvidence]


def _ramp(value: float, low: float, high: float) -> float:
    """Return 0 up to `low`, 1 from `high` on, and in between in proportion."""
    return min(1.0, max(0.0, (value - low) / (high - low)))


def _give(name: str, strength: float, text: str, *stages: str) -> Evidence:
    for stage in stages:
        yield StageEvidence(name=name, stage=stage, strength=round(strength, 4), text=text)


# --- chunks ----------------------------------------------------------------------------------------


class _ChunkLists(NamedTuple):
    """Chunk keys of the pairs whose lists differ, the same on both sides for the same passage."""

    changed: list[tuple[TracePair, list[str], list[str]]]
    recorded: int  # pairs with recorded chunks on both sides
    same_passages: bool  # whether most passages of the smaller run are in the other


def _shared(left: Mapping[str, int] | set[int], right: Mapping[str, int] | set[int]) -> float:
    least = min(len(left), len(right))
    return len(left.keys() & right.keys() if isinstance(left, Mapping) else left & set(right)) / least if least else 0.0


def _chunk_lists(traces: PairedTraces) -> _ChunkLists:
    """Return the lists that differ; chunks are known by their ids, or by their texts where the ids are new."""
    old, new = (profile.chunks for profile in traces.profiles)
    by_id = _shared(old, new) >= 0.5
    texts = set(old.values()), set(new.values())

    def key(chunk: Chunk) -> str:
        return chunk.id if by_id else chunk.text

    lists = [
        (pair, [key(c) for c in pair.old.chunks], [key(c) for c in pair.new.chunks])
        for pair in traces.pairs
        if pair.old.chunks is not None and pair.new.chunks is not None
    ]
    same = by_id or _shared(texts[0], texts[1]) >= 0.5
    return _ChunkLists([entry for entry in lists if entry[1] != entry[2]], len(lists), same)


def _corpus_rules(traces: PairedTraces) -> Evidence:
    """Observe texts under the same id, new ids and lengths of chunks."""
    old, new = traces.profiles
    lists = _chunk_lists(traces)
    both = old.chunks.keys() & new.chunks.keys()
    other = sum(old.chunks[name] != new.chunks[name] for name in both) / len(both) if both else 0.0
    if other > 0:
        text = f"{other:.0%} of the chunks that both runs retrieved under one id have another text"
        kept = _kept_words(traces)
        yield from _give("texts", _ramp(other, 0.0, 0.1), text, "ingestion", "source documents")
        if kept is not None:
            edited = f"{text}, with {kept:.0%} of their words kept"
            yield from _give("edited", _ramp(kept, 0.7, 0.9), edited, "source documents")
            yield from _give("damaged", _ramp(0.9 - kept, 0.0, 0.3), edited, "ingestion")
    if not lists.same_passages and old.chunks and new.chunks:
        text = f"{_shared(old.chunks, new.chunks):.0%} of the chunk ids and hardly any text are in both runs"
        yield from _give("cut anew", 1.0, text, "chunker")
    if old.chunk_lengths and new.chunk_lengths:
        before, after = fmean(old.chunk_lengths), fmean(new.chunk_lengths)
        ratio = max(before, after) / max(1.0, min(before, after))
        text = f"characters per chunk: {before:.0f} → {after:.0f}"
        yield from _give("length", _ramp(ratio, 1.3, 2.0) * (not lists.same_passages), text, "chunker")
    copies = [_copy_share(traces.pairs, side) for side in (0, 1)]
    text = f"{copies[1]:.0%} of the chunks in a list repeat a text of the same list, {copies[0]:.0%} before"
    yield from _give("copies", _ramp(copies[1] - copies[0], 0.02, 0.1), text, "index")


def _kept_words(traces: PairedTraces) -> float | None:
    """Return the mean share of the words that texts changed under the same id have kept."""
    old = {chunk.id: chunk.text for pair in traces.pairs for chunk in pair.old.chunks or ()}
    shares = []
    for chunk in {chunk.id: chunk for pair in traces.pairs for chunk in pair.new.chunks or ()}.values():
        before = old.get(chunk.id)
        if before is not None and before != chunk.text:
            words = before.split(), chunk.text.split()
            most = max(1, len(words[0]), len(words[1]))
            shares.append((Counter(words[0]) & Counter(words[1])).total() / most)
    return fmean(shares) if shares else None


def _copy_share(pairs: Sequence[TracePair], side: int) -> float:
    """Return the share of retrieved chunks whose text stood earlier in the same list."""
    lists = [[chunk.text for chunk in pair[side].chunks or ()] for pair in pairs]
    total = sum(map(len, lists))
    return 1 - sum(len(set(texts)) for texts in lists) / total if total else 0.0


def _list_rules(traces: PairedTraces) -> Evidence:
    """Observe how the lists of chunks changed: order, depth, overlap and what is gone."""
    lists = _chunk_lists(traces)
    if not lists.changed or len(lists.changed) < LEAST_SHARE * lists.recorded:
        return
    share = len(lists.changed) / lists.recorded
    sets = [(set(old), set(new)) for _, old, new in lists.changed]
    ordered = fmean(old == new for old, new in sets)
    text = f"on {ordered:.0%} of the {len(sets):,} pairs whose lists changed, the same chunks stand in another order"
    yield from _give("order", _ramp(ordered, 0.3, 0.9), text, "reranker")
    before = fmean(len(old) for _, old, _ in lists.changed)
    after = fmean(len(new) for _, _, new in lists.changed)
    yield from _depth_rules(lists, before, after)
    if lists.same_passages and 0.8 * before < after < 1.25 * before:
        copies = _copy_share(traces.pairs, 1) - _copy_share(traces.pairs, 0)
        yield from _set_rules(lists, share, (1 - _ramp(ordered, 0.3, 0.9)) * (1 - _ramp(copies, 0.02, 0.1)))
    if lists.same_passages and after > 0.8 * before:
        yield from _gone_rules(traces, lists)
    yield from _filter_rules(lists)


def _set_rules(lists: _ChunkLists, share: float, part: float) -> Evidence:
    """Observe other chunks at about the same depth: on how many queries, in what order, and which chunks."""
    kept = _kept_share(lists)
    many, some = _ramp(share, 0.3, 0.9), _ramp(0.85 - share, 0.0, 0.3)
    text = f"{share:.0%} of the lists changed, and keep {kept:.0%} of their chunks at about the same length"
    yield from _give("other set", part * many, text, "embedder", "index", "reranker")
    yield from _give("mostly other", part * many * _ramp(0.6 - kept, 0.0, 0.4), text, "embedder")
    text = f"{share:.0%} of the lists changed, and the others are the same"
    yield from _give("some lists", part * some, text, "query rewriter", "filter", "index coverage")
    order = _concordance(lists)
    if order is not None:
        text = f"{order:.0%} of the chunks that stayed in a changed list keep their order"
        yield from _give("order kept", part * _ramp(order, 0.85, 0.98), text, "embedder", "index", "index coverage")
        mixed = part * _ramp(0.98 - order, 0.0, 0.25)
        yield from _give("order mixed", mixed, text, "reranker", "query rewriter")
    spread = _loss_dispersion(lists)
    if spread is not None:
        text = "some chunks are lost for most queries that retrieved them, others for hardly any"
        yield from _give("uneven loss", part * _ramp(spread, 1.5, 3.0), text, "index", "index coverage")
        text = "every chunk is lost for about the same share of the queries that retrieved it"
        yield from _give("even loss", part * _ramp(1.8 - spread, 0.0, 0.6), text, "embedder", "reranker")


def _kept_share(lists: _ChunkLists) -> float:
    shares = [len(set(old) & set(new)) / min(len(old), len(new)) for _, old, new in lists.changed if old and new]
    return fmean(shares) if shares else 0.0


def _concordance(lists: _ChunkLists) -> float | None:
    """Return the share of pairs of neighbours, among the chunks in both lists, whose order is the same."""
    same = total = 0
    for _, old, new in lists.changed:
        place = {key: at for at, key in enumerate(new)}
        ranks = [place[key] for key in dict.fromkeys(old) if key in place]
        same += sum(left < right for left, right in pairwise(ranks))
        total += max(0, len(ranks) - 1)
    return same / total if total >= 10 else None


def _loss_dispersion(lists: _ChunkLists) -> float | None:
    """Return how unevenly chunks are lost: the variance of their losses over that of an equal chance for all."""
    uses = Counter(key for _, old, _ in lists.changed for key in set(old))
    lost = Counter(key for _, old, new in lists.changed for key in set(old) - set(new))
    often = [key for key, count in uses.items() if count >= 3]
    total = sum(uses[key] for key in often)
    share = sum(lost[key] for key in often) / total if total else 0.0
    if len(often) < 8 or not 0.02 < share < 0.98:
        return None
    squares = [(lost[key] - uses[key] * share) ** 2 / (uses[key] * share * (1 - share)) for key in often]
    return sum(squares) / (len(often) - 1)


def _depth_rules(lists: _ChunkLists, before: float, after: float) -> Evidence:
    """Observe fewer or more chunks: the same number for every query, or not."""
    inside = fmean(set(new) <= set(old) or set(old) <= set(new) for _, old, new in lists.changed)
    text = f"chunks per trace: {before:.3g} → {after:.3g}; on {inside:.0%} of these pairs one list holds the other"
    counts = Counter(len(new) for _, _, new in lists.changed)
    even = counts.most_common(1)[0][1] / len(lists.changed)
    ratio = max(before, after) / max(1e-9, min(before, after))
    moved = _ramp(ratio, 1.1, 1.5) * (lists.same_passages or inside > 0.5)
    yield from _give("even depth", moved * _ramp(even, 0.6, 0.95), text, "top-k")
    if after < before:
        varied = f"{text}, and their number varies"
        uneven = moved * _ramp(0.95 - even, 0.0, 0.35)
        yield from _give("uneven depth", uneven, varied, "score threshold")
        yield from _give("uneven depth", uneven / 2, varied, "filter")
    else:
        yield from _give("deeper", moved, text, "top-k")
    empty = fmean(not new for _, _, new in lists.changed) - fmean(not old for _, old, _ in lists.changed)
    text = f"nothing is retrieved any more on {empty:.0%} of the pairs whose lists changed"
    yield from _give("empty", _ramp(empty, 0.02, 0.3), text, "filter", "score threshold", "index")


def _gone_rules(traces: PairedTraces, lists: _ChunkLists) -> Evidence:
    """Observe chunks that several queries retrieved and none does any more."""
    old, new = traces.profiles
    uses = Counter(key for _, before, _ in lists.changed for key in set(before))
    left = Counter(key for _, _, after in lists.changed for key in set(after))
    by_id = _shared(old.chunks, new.chunks) >= 0.5
    there = set(new.chunks) if by_id else set(left)
    often = [key for key, count in uses.items() if count >= 3]
    if len(often) >= 5:
        gone = fmean(key not in there for key in often)
        text = f"{gone:.0%} of the chunks that at least three queries retrieved are retrieved for none any more"
        yield from _give("gone", _ramp(gone, 0.05, 0.25), text, "index coverage")
        yield from _give("gone", _ramp(gone, 0.05, 0.25) / 2, text, "index")
    gold = {key for key in set().union(*old.gold.values()) if key in old.chunks} if old.gold else set()
    if by_id and len(gold) >= 5:
        gone = fmean(key not in new.chunks for key in gold)
        text = f"{gone:.0%} of the gold chunks that the baseline retrieved are retrieved for no query any more"
        yield from _give("gold gone", _ramp(gone, 0.05, 0.25), text, "index coverage")
        yield from _give("gold gone", _ramp(gone, 0.05, 0.25) / 2, text, "index")


def _filter_rules(lists: _ChunkLists) -> Evidence:
    """Observe lists that one document or one value of a field fills, and pairs that are hit wholly or not at all."""
    counted = [entry for entry in lists.changed if len(entry[2]) >= 3 and len(entry[1]) >= 3]
    if len(counted) < 5:
        return
    fields = Counter(name for pair, _, _ in counted for name in _chunk_fields(pair.new))
    best = (0.0, "")
    for name in (name for name, count in fields.items() if count >= 0.5 * len(counted)):
        single = [
            _is_single(pair.new.chunks or (), name) - _is_single((pair.old.chunks or ())[: len(new)], name)
            for pair, _, new in counted
        ]
        best = max(best, (fmean(single), name))
    text = f"one {best[1]} alone fills the list on {best[0]:.0%} more of the pairs whose lists changed"
    yield from _give("one value", _ramp(best[0], 0.05, 0.3), text, "filter")
    apart = fmean(not set(old) & set(new) for _, old, new in counted)
    share = len(lists.changed) / lists.recorded
    text = f"{share:.0%} of the lists changed, {apart:.0%} of these wholly, and the others not at all"
    yield from _give(
        "some wholly", _ramp(0.8 - share, 0.0, 0.3) * _ramp(apart, 0.1, 0.5), text, "filter", "query rewriter"
    )


def _chunk_fields(trace: Trace) -> set[str]:
    return {"document"} | {name for chunk in trace.chunks or () for name in chunk.metadata}


def _is_single(chunks: Sequence[Chunk], name: str) -> int:
    """Return 1 where all chunks have the same value of a field."""
    values = {str(chunk.document if name == "document" else chunk.metadata.get(name)) for chunk in chunks}
    return int(len(values) == 1 and values != {"None"})


def _rewrite_rules(traces: PairedTraces) -> Evidence:
    """Observe queries that a recorded step rewrote otherwise."""
    written = [(_rewritten(pair.old), _rewritten(pair.new)) for pair in traces.pairs]
    known = [(old, new) for old, new in written if old is not None and new is not None]
    if not known:
        return
    share = fmean(old != new for old, new in known)
    text = f"{share:.0%} of the recorded rewritten queries differ"
    yield from _give("rewritten", _ramp(share, LEAST_SHARE, 0.2), text, "query rewriter")


def _rewritten(trace: Trace) -> str | None:
    return next((step.output for step in trace.steps or () if step.kind == "rewrite" and step.output), None)


# --- answers ---------------------------------------------------------------------------------------

SENTENCE_END = re.compile(r"[.!?…:;)\]}\"'”’»|*`。！？]\s*(?:\[[^\]]*\]\s*)*$")
FIGURE = re.compile(r"\d+")
SENTENCE = re.compile(r"(?<=[.!?]) +|\n+")


def _answered(traces: PairedTraces) -> list[TracePair]:
    """Return the pairs with an answer on both sides that refuses on neither."""
    return [
        pair
        for pair in traces.pairs
        if pair.old.answer and pair.new.answer and not _refused(pair.old_verdicts) and not _refused(pair.new_verdicts)
    ]


def _refused(verdicts: Verdicts) -> bool:
    return verdicts.answer is not None and verdicts.answer.refused


def _rise(pairs: Sequence[TracePair], test: Callable[[Trace, Verdicts], float]) -> tuple[float, float]:
    """Return the mean of a property of the traces on both sides."""
    if not pairs:
        return 0.0, 0.0
    return (
        fmean(test(pair.old, pair.old_verdicts) for pair in pairs),
        fmean(test(pair.new, pair.new_verdicts) for pair in pairs),
    )


def _length_rules(traces: PairedTraces) -> Evidence:
    """Observe answers that are cut, shorter, longer, or as long but less complete."""
    pairs = _answered(traces)
    if not pairs:
        return
    before, after = _rise(pairs, lambda trace, _: float(not SENTENCE_END.search(trace.answer or "")))
    text = f"{after:.0%} of the answers end in the middle of a sentence, {before:.0%} before"
    yield from _give("cut", _ramp(after - before, LEAST_SHARE, 0.15), text, "max tokens")
    heads = fmean(len(p.new.answer or "") < len(p.old.answer or "") and _starts(p) for p in pairs)
    text = f"{heads:.0%} of the answers are the beginning of the answer before"
    yield from _give("head", _ramp(heads, 0.05, 0.3), text, "max tokens")
    lengths = [[len((pair[side].answer or "").split()) for pair in pairs] for side in (0, 1)]
    mean = fmean(lengths[0]), fmean(lengths[1])
    ratio = mean[1] / max(1.0, mean[0])
    text = f"words per answer: {mean[0]:.3g} → {mean[1]:.3g}"
    yield from _give("shorter", _ramp(1 / max(ratio, 1e-9), 1.1, 1.6), text, "max tokens", "prompt", "model")
    yield from _give("longer", _ramp(ratio, 1.1, 1.5), text, "prompt", "model")
    missing = [
        _present(pair.old_verdicts) - _present(pair.new_verdicts)
        for pair in pairs
        if pair.old.chunks == pair.new.chunks
        and len(pair.new.answer or "") >= 0.8 * len(pair.old.answer or "")
        and FIGURE.sub("#", pair.old.answer or "") != FIGURE.sub("#", pair.new.answer or "")
    ]
    share = (sum(lost > 0 for lost in missing) - sum(lost < 0 for lost in missing)) / len(pairs)
    text = f"{share:.0%} more answers lost facts than gained some, from the same chunks and at no less length"
    yield from _give("misses facts", _ramp(share, 0.03, 0.15), text, "prompt assembly")


def _starts(pair: TracePair) -> bool:
    """Return whether the new answer is the beginning of the old one, but for its last word."""
    new = (pair.new.answer or "").rstrip(" .…").rsplit(" ", 1)[0]
    return bool(new) and (pair.old.answer or "").startswith(new)


def _present(verdicts: Verdicts) -> int:
    return sum(fact.present for fact in verdicts.fact or ())


def _refusal_rules(traces: PairedTraces) -> Evidence:
    """Observe more refusals."""
    before, after = _rise(traces.pairs, lambda _, verdicts: float(_refused(verdicts)))
    text = f"{after:.0%} of the answers refuse, {before:.0%} before"
    yield from _give("refusals", _ramp(after - before, LEAST_SHARE, 0.1), text, "refusal wording")


def _prompt_rules(traces: PairedTraces) -> Evidence:
    """Observe what of the same chunks reached the prompt."""
    pairs = [pair for pair in traces.pairs if pair.old.chunks and pair.old.chunks == pair.new.chunks]
    if not pairs:
        return
    tokens = [
        (old.prompt, new.prompt)
        for pair in pairs
        if (old := pair.old.tokens) and (new := pair.new.tokens) and old.prompt and new.prompt
    ]
    if tokens:
        fewer = fmean(new < 0.97 * old for old, new in tokens)
        text = f"on {fewer:.0%} of the pairs with the same chunks, the prompt has fewer tokens"
        yield from _give("prompt tokens fewer", _ramp(fewer, 0.05, 0.3), text, "prompt assembly")
        more = fmean(new > 1.03 * old for old, new in tokens)
        text = f"on {more:.0%} of the pairs with the same chunks, the prompt has more tokens"
        yield from _give("prompt tokens more", _ramp(more, 0.3, 0.9), text, "prompt")
    first = _rise(pairs, lambda _, verdicts: float(bool(verdicts.use) and verdicts.use[0].used))  # type: ignore[index]
    last = _rise(pairs, lambda _, verdicts: float(bool(verdicts.use) and verdicts.use[-1].used))  # type: ignore[index]
    refusing = fmean(_refused(p.new_verdicts) for p in pairs) - fmean(_refused(p.old_verdicts) for p in pairs)
    for place, (before, after) in (("first", first), ("last", last)):
        text = (
            f"answers draw on the {place} chunk in {after:.0%} of the pairs with the same chunks, {before:.0%} before"
        )
        yield from _give("unused", _ramp(before - after - max(0.0, refusing), 0.05, 0.3), text, "prompt assembly")


def _wording_rules(traces: PairedTraces) -> Evidence:
    """Observe what was put before, after or into the answers."""
    pairs = [pair for pair in _answered(traces) if pair.old.answer != pair.new.answer]
    if not pairs:
        return
    added = before = figures = 0
    for pair in pairs:
        old, new = (SENTENCE.split((trace.answer or "").strip()) for trace in (pair.old, pair.new))
        before += _stands_after(old, new) - _stands_after(new, old)
        added += _is_head(old, new) - _is_head(new, old)
        figures += FIGURE.sub("#", pair.old.answer or "") == FIGURE.sub("#", pair.new.answer or "")
    every = len(_answered(traces))
    text = f"{before / every:.0%} of the answers say something before the answer of the baseline"
    yield from _give("said before", _ramp(before / every, 0.05, 0.3), text, "prompt")
    text = f"{added / every:.0%} of the answers add sentences after the answer of the baseline"
    yield from _give("said after", _ramp(added / every, 0.05, 0.3), text, "model", "prompt")
    text = f"{figures / every:.0%} of the answers differ from the baseline's in figures alone"
    yield from _give("figures", _ramp(figures / every, LEAST_SHARE, 0.1), text, "model")
    units = _rise(_answered(traces), lambda trace, _: float(states_other_unit(trace)))
    text = f"{units[1]:.0%} of the answers give a figure in a unit that their chunks do not, {units[0]:.0%} before"
    yield from _give("units", _ramp(units[1] - units[0], LEAST_SHARE, 0.1), text, "model", "prompt")
    copied = _rise(_answered(traces), _copied)
    text = f"{copied[1]:.0%} of the sentences of the answers are copied from a chunk, {copied[0]:.0%} before"
    yield from _give("copied", _ramp(copied[1] - copied[0], 0.1, 0.4), text, "prompt", "model")
    again = _rise(_answered(traces), _repeated)
    text = f"{again[1]:.0%} of the sentences repeat an earlier one of the same answer, {again[0]:.0%} before"
    yield from _give("repeated", _ramp(again[1] - again[0], LEAST_SHARE, 0.15), text, "decoding", "model")


def _stands_after(inner: Sequence[str], outer: Sequence[str]) -> bool:
    """Return whether the first sentence of one answer comes later in the other."""
    return inner[0] != outer[0] and inner[0][-25:] in " ".join(outer[1:])


def _is_head(short: Sequence[str], long: Sequence[str]) -> bool:
    """Return whether one answer, but for its last sentence, begins the other, which has more sentences."""
    return (1 < len(short) < len(long) and long[: len(short) - 1] == short[: len(short) - 1]) or (
        len(short) == 1 < len(long) and long[0] == short[0]
    )


def states_other_unit(trace: Trace) -> bool:
    """Return whether the answer gives a figure that its chunks hold in other units or currencies only.

    >>> chunk = Chunk(id="a", text="A cabin costs £9.")
    >>> states_other_unit(Trace(id="1", query="?", chunks=(chunk,), answer="It costs $9."))
    True
    """
    stated = _units_by_figure((trace.answer or "",))
    known = _units_by_figure(tuple(chunk.text for chunk in trace.chunks or ())) if stated else {}
    return any(figure in known and not units & known[figure] for figure, units in stated.items())


def _units_by_figure(texts: Sequence[str]) -> dict[str, set[str]]:
    """Return the units that stand beside each figure of the texts; bare figures are left out."""
    found: dict[str, set[str]] = {}
    for text in texts:
        matches: list[EntityMatch] = []
        extract_quantities(text, matches)
        for match in matches:
            figure, _, unit = match.form.partition(" ")
            if unit:
                found.setdefault(figure, set()).add(unit)
    return found


def _copied(trace: Trace, _: Verdicts) -> float:
    context = " ".join(chunk.text for chunk in trace.chunks or ())
    parts = [part for part in SENTENCE.split(trace.answer or "") if len(part) > 20]
    return fmean(part in context for part in parts) if parts else 0.0


def _repeated(trace: Trace, _: Verdicts) -> float:
    parts = [part for part in SENTENCE.split(trace.answer or "") if len(part) > 20]
    return 1 - len(set(parts)) / len(parts) if parts else 0.0


def _citation_rules(traces: PairedTraces) -> Evidence:
    """Observe citations of unknown chunks, changed quotes, shifted and missing citations."""
    cited = [(pair.old, pair.new) for pair in traces.pairs if pair.old.citations and pair.new.citations is not None]
    if not cited:
        return
    sides = [[(pair[at], citation) for pair in cited for citation in pair[at].citations or ()] for at in (0, 1)]
    count = [len(side) / len(cited) for side in sides]
    text = f"citations per answer: {count[0]:.3g} → {count[1]:.3g}"
    yield from _give(
        "fewer citations", _ramp(count[0] / max(count[1], 1e-9), 1.2, 2.0), text, "output schema", "prompt"
    )
    unknown = [
        _share(side, lambda trace, c: c.chunk not in {chunk.id for chunk in trace.chunks or ()}) for side in sides
    ]
    text = f"{unknown[1]:.0%} of the citations name a chunk that was not retrieved, {unknown[0]:.0%} before"
    yield from _give("unknown citations", _ramp(unknown[1] - unknown[0], LEAST_SHARE, 0.1), text, "output schema")
    false = [_share(side, _misquotes) for side in sides]
    text = f"{false[1]:.0%} of the quotes do not stand in the cited chunk, {false[0]:.0%} before"
    yield from _give("false quotes", _ramp(false[1] - false[0], LEAST_SHARE, 0.1), text, "output schema", "model")


def _share(side: Sequence[tuple[Trace, Citation]], test: Callable[[Trace, Citation], bool]) -> float:
    return fmean(test(trace, citation) for trace, citation in side) if side else 0.0


def _misquotes(trace: Trace, citation: Citation) -> bool:
    text = next((chunk.text for chunk in trace.chunks or () if chunk.id == citation.chunk), "")
    return citation.quote is not None and not quote_matches(citation.quote, text)


# --- recorded settings -------------------------------------------------------------------------------

FIELD_STAGES = {
    "embed": "embedder", "chunk": "chunker", "split": "chunker", "rerank": "reranker", "top_k": "top-k",
    "topk": "top-k", "filter": "filter", "index": "index", "rewrit": "query rewriter", "threshold": "score threshold",
    "max_tokens": "max tokens", "prompt": "prompt", "temperature": "decoding", "model": "model", "llm": "model",
    "parser": "ingestion", "loader": "ingestion", "schema": "output schema",
}  # fmt: skip
"""Words in the name of a field → the stage that it sets; the first that fits."""


def changed_fields(pairs: Sequence[TracePair]) -> dict[str, tuple[str, str]]:
    """Return the recorded fields that have one usual value in each run, another one in the candidate.

    A field differs where at most three values cover each side and no pair agrees.
    """
    names = Counter(name for pair in pairs for name in pair.new.metadata)
    columns = {name: [(p.old.metadata.get(name), p.new.metadata.get(name)) for p in pairs] for name in names}
    columns["model"] = [(pair.old.model, pair.new.model) for pair in pairs]
    changed = {}
    for name, values in columns.items():
        known = [(str(old), str(new)) for old, new in values if old is not None and new is not None]
        sides = [Counter(pair[side] for pair in known) for side in (0, 1)]
        if len(known) < 0.5 * len(values) or not known or any(len(side) > 3 for side in sides):
            continue
        if all(old != new for old, new in known):
            changed[name] = (sides[0].most_common(1)[0][0], sides[1].most_common(1)[0][0])
    return changed


def _field_rules(traces: PairedTraces) -> Evidence:
    """Observe recorded settings that differ between the runs."""
    for name, (old, new) in changed_fields(traces.pairs).items():
        stage = next((stage for word, stage in FIELD_STAGES.items() if word in name.lower()), None)
        if stage is not None:
            yield from _give("field", 1.0, f"the runs differ in {name}: {old} → {new}", stage)


RULES: tuple[Callable[[PairedTraces], Evidence], ...] = (
    _corpus_rules,
    _list_rules,
    _rewrite_rules,
    _length_rules,
    _refusal_rules,
    _prompt_rules,
    _wording_rules,
    _citation_rules,
    _field_rules,
)
