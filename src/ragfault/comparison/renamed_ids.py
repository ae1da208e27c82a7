"""Gold of paired runs: re-anchored to chunks that stand under another id, and applied only where it is the same."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.comparison.pairing import ChunkKey, Mask, RunContents, TracePairing, load_texts
from ragfault.comparison.run_profile import measure_stale_gold
from ragfault.io.runs.run import Run
from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.model.gold_evidence import apply_gold_to_chunks
from ragfault.model.grouping import group_by
from ragfault.model.records import Chunk, Citation, Gold, RelevanceLevel, Trace, Verdicts
from ragfault.text.notices import Stretch

# of the phrases of the longer text; a corpus that is cut anew shares fewer
NEARLY_SAME = 0.7
# of the texts under new ids; fewer are known where the corpus was re-chunked
KNOWN_SHARE = 0.8
# texts that are searched for edits
MAX_EDITED = 20_000


class RenamedIds(Struct, frozen=True, eq=False):
    """Chunks of the candidate that the baseline has under another id or at another place of a document."""

    # place among the candidate's chunks → the baseline's chunk of the same text
    places: dict[int, ChunkKey]
    # the candidate's id → the baseline's
    ids: dict[str, str]
    # the candidate's document → the baseline's
    documents: dict[str, str]
    # ids of the baseline that another text has in the candidate
    taken: frozenset[str]
    # pairs on which such a chunk was retrieved
    pairs: Mask
    # False where some of the texts were edited besides
    same_texts: bool
    # the candidate's gold names its own chunks, and needs no re-anchoring
    has_own_gold: bool = False


def find_renamed_ids(
    runs: tuple[Run, Run], old: RunContents, new: RunContents, pairing: TracePairing
) -> RenamedIds | None:
    """Find the texts that no chunk of the candidate has under an id and place of the baseline; None for none.

    A copy beside the old id is no renaming: the text must be gone from where it was. A text that was edited under a
    new id counts where the corpus was not cut anew: nearly all texts under new ids are known.
    """
    labelled = {name for gold in old.gold if gold for name in gold.chunks}
    before, after = _group_by_text(old), _group_by_text(new)
    places: dict[int, ChunkKey] = {}
    for text, mine in after.items():
        theirs = [old.keys[at] for at in before.get(text, ())]
        spots = {_get_place(key) for key in theirs}
        if not theirs or any(_get_place(new.keys[at]) in spots for at in mine):
            continue
        chosen = next((key for key in theirs if key.id in labelled), theirs[0])
        places.update(dict.fromkeys(mine, chosen))
    edited = _find_edited(runs, old, new, places)
    places |= edited
    if not places:
        return None
    ids = {new.keys[at].id: key.id for at, key in places.items() if new.keys[at].id != key.id}
    votes = Counter((new.keys[at].document, key.document) for at, key in places.items())
    documents = {mine: theirs for (mine, theirs), _ in reversed(votes.most_common()) if mine and theirs}
    known = {key.id for key in old.keys}
    moved = {key.id for at, key in places.items() if new.keys[at].id != key.id}
    taken = frozenset(known & moved)
    rows = pairing.candidate.tolist()
    pairs = np.array(
        [any(at in places or new.keys[at].id in taken for at in new.trace_keys[row]) for row in rows], bool
    )
    other_names = {mine: theirs for mine, theirs in documents.items() if mine != theirs}
    return RenamedIds(places, ids, other_names, taken, pairs, not edited, _has_own_gold(old, new, pairing))


def _has_own_gold(old: RunContents, new: RunContents, pairing: TracePairing) -> bool:
    """Return whether the gold of the candidate was renewed: most golds that differ name chunks that it retrieves."""
    known = {key.id for key in new.keys}
    golds = [(old.gold[a], new.gold[b]) for a, b in zip(pairing.baseline, pairing.candidate, strict=True)]
    renewed = [
        bool(known.intersection(after.chunks))
        for before, after in golds
        if before is not None and after is not None and after.chunks and before.chunks != after.chunks
    ]
    return bool(renewed) and 2 * sum(renewed) >= len(renewed)


def _find_edited(
    runs: tuple[Run, Run], old: RunContents, new: RunContents, same: Collection[int]
) -> dict[int, ChunkKey]:
    """Find the texts under new ids that are edits of texts whose ids are gone; none where many are known by neither."""
    ids = {key.id for key in old.keys}, {key.id for key in new.keys}
    gone = {key.id: key for key in old.keys if key.id not in ids[1]}
    fresh = {at: key.id for at, key in enumerate(new.keys) if key.id not in ids[0] and key.text}
    unknown = {at: name for at, name in fresh.items() if at not in same}
    if not gone or not unknown or len(unknown) > MAX_EDITED:
        return {}
    phrases = {name: _split_phrases(text) for name, text in load_texts(runs[0], gone.keys()).items()}
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for name, parts in phrases.items():
        for part in parts:
            holders[part].append(name)
    texts = load_texts(runs[1], set(unknown.values()))
    edited: dict[int, ChunkKey] = {}
    for at, name in unknown.items():
        parts = _split_phrases(texts.get(name, ""))
        shared = Counter(holder for part in parts for holder in holders.get(part, ()))
        best, count = max(shared.items(), key=lambda item: item[1], default=("", 0))
        if best and count >= NEARLY_SAME * max(len(parts), len(phrases[best])):
            edited[at] = gone[best]
    known = sum(at in same or at in edited for at in fresh)
    return edited if known >= KNOWN_SHARE * len(fresh) else {}


def _split_phrases(text: str) -> frozenset[str]:
    """Return the runs of three words of a text."""
    words = text.casefold().split()
    return frozenset(" ".join(words[at : at + 3]) for at in range(max(1, len(words) - 2)))


def _group_by_text(contents: RunContents) -> dict[int, list[int]]:
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for at, key in enumerate(contents.keys):
        if key.text:
            groups[key.text].append(at)
    return groups


def _get_place(key: ChunkKey) -> tuple[str, str | None, int | None, int | None]:
    return key.id, key.document, key.start, key.end


def compare_gold(
    old: Gold | None, new: Gold | None, renamed: RenamedIds | None, known: tuple[frozenset[str], frozenset[str]]
) -> tuple[bool, bool]:
    """Return whether two golds name the same chunks, and the same spans.

    They do as they stand, or once ids and documents are renamed. Gold chunks are the same as well where the spans are
    and the corpus was re-chunked: neither run knows the ids (`known`) that the other's gold names alone.
    """
    old, new = old or Gold(), new or Gold()
    chunks = old.chunks == new.chunks
    spans = set(old.spans) == set(new.spans)
    if renamed is not None:
        chunks = chunks or _match_renamed(
            old.chunks.items(), ((renamed.ids.get(name, name), grade) for name, grade in new.chunks.items())
        )
        spans = spans or _match_renamed(
            ((span.document, (span.start, span.end, span.grade)) for span in old.spans),
            (
                (renamed.documents.get(span.document, span.document), (span.start, span.end, span.grade))
                for span in new.spans
            ),
        )
    if not chunks and spans and old.spans and old.chunks and new.chunks:
        only_old, only_new = old.chunks.keys() - new.chunks.keys(), new.chunks.keys() - old.chunks.keys()
        chunks = bool(only_old and only_new) and not (only_old & known[1] or only_new & known[0])
    return chunks, spans


def _match_renamed(old: Iterable[tuple[str, object]], new: Iterable[tuple[str, object]]) -> bool:
    """Return whether labels agree but for names that no retrieved chunk tells; those agree by their grade or place."""
    before, after = Counter(old), Counter(new)
    only_old, only_new = before - after, after - before
    return sorted(repr(value) for _, value in only_old.elements()) == sorted(
        repr(value) for _, value in only_new.elements()
    ) and not ({name for name, _ in only_new} & {name for name, _ in before})


class ScoreView(NamedTuple):
    """Metrics that are scored again on some pairs of a run, from another view of the traces than the stored scores."""

    metrics: Collection[str]
    pairs: Sequence[int]
    view: Callable[[int, Trace, Verdicts], tuple[Trace, Verdicts]]
    """What of the trace and the verdicts of a pair is scored."""


def score_view(run: Run, rows: NDArray[np.int64], view: ScoreView) -> dict[str, NDArray[np.float64]]:
    """Return the scores of each metric of a view on its pairs; NaN elsewhere and where there is no value.

    `rows` are the traces of the run in each pair. A trace is read once.
    """
    metrics = {name: parse_metric(name) for name in view.metrics}
    values = {name: np.full(len(rows), math.nan) for name in metrics}
    pairs_by_row = group_by(view.pairs, lambda pair: int(rows[pair]))
    evidence = zip(run.traces(), run.verdicts(), strict=True) if pairs_by_row else ()
    for row, (trace, verdicts) in enumerate(evidence):
        for pair in pairs_by_row.get(row, ()):
            scored = view.view(pair, trace, verdicts)
            for name, metric in metrics.items():
                value = compute_score(metric, *scored).value
                values[name][pair] = math.nan if value is None else value
    return values


def judge_alone(_: int, trace: Trace, verdicts: Verdicts) -> tuple[Trace, Verdicts]:
    """Return the trace with the verdicts of the judge, to which gold is not applied."""
    return trace, verdicts


def rename_chunks(trace: Trace, places: tuple[int, ...], renamed: RenamedIds) -> Trace:
    """Return a trace whose chunks have the baseline's ids and places, each id once."""
    used: set[str] = set()
    chunks: list[Chunk] = []
    ids: dict[str, str] = {}
    for chunk, place in zip(trace.chunks or (), places, strict=True):
        key = renamed.places.get(place)
        if key is not None and key.id not in used:
            named = replace(chunk, id=key.id, document=key.document, start=key.start, end=key.end)
        elif chunk.id in renamed.taken:
            named = replace(chunk, id=f"{chunk.id} (another text)")
        else:
            named = chunk
        used.add(named.id)
        ids[chunk.id] = named.id
        chunks.append(named)
    citations: tuple[Citation, ...] | None = None
    if trace.citations is not None:
        citations = tuple(
            replace(citation, chunk=ids.get(citation.chunk, citation.chunk)) for citation in trace.citations
        )
    return replace(trace, chunks=None if trace.chunks is None else tuple(chunks), citations=citations)


def find_other_keys(
    runs: tuple[Run, Run], contents: tuple[RunContents, RunContents], pairing: TracePairing, renamed: RenamedIds | None
) -> Mask:
    """Return the pairs on which gold is not applied: the answer keys differ, or chunks were renamed.

    Where the gold is stale, that is every pair whose gold names chunk ids and no spans.
    """
    old, new = contents
    left, right = pairing.baseline, pairing.candidate
    if not all(run.manifest.gold == "apply" for run in runs):
        return np.zeros(len(pairing), dtype=bool)
    same = [_is_same_key(old.gold[row], new.gold[other]) for row, other in zip(left, right, strict=True)]
    other: Mask = ~np.array(same, dtype=bool)
    if _has_stale_gold(old, new, {} if renamed is None else renamed.ids):
        keys = [new.gold[row] for row in right]
        other |= np.array([key is not None and bool(key.chunks) and not key.spans for key in keys], dtype=bool)
    for field in ("references", "facts", "answerable"):
        other |= getattr(old, field)[left] != getattr(new, field)[right]
    return other if renamed is None else other | renamed.pairs


def _has_stale_gold(old: RunContents, new: RunContents, ids: Mapping[str, str]) -> bool:
    """Return whether the gold of the candidate names chunks of another cut; `ids` renames those of the candidate."""
    named = {name for gold in new.gold if gold is not None for name, grade in (gold.chunks or {}).items() if grade > 0}
    left, right = ({key.id for key in side.keys} for side in (old, new))
    renamed = [{ids.get(name, name) for name in names} for names in (right, named)]
    return measure_stale_gold(left, *renamed) is not None


def _is_same_key(old: Gold | None, new: Gold | None) -> bool:
    """Return whether two golds are the same; equal spans are, though a corpus cut anew has other chunk ids."""
    if old is None or new is None:
        return old is new
    return set(old.spans) == set(new.spans) and (old.chunks == new.chunks or bool(old.spans))


def read_chunk_levels(run: Run, rows: NDArray[np.int64], other_keys: Mask) -> Iterator[tuple[RelevanceLevel, ...]]:
    """Yield the levels of the chunks of each trace; gold is applied where the run does so and the keys are the same."""
    if run.manifest.gold != "apply" or not run.has_gold():
        yield from (tuple(chunk.level for chunk in verdicts.chunk or ()) for verdicts in run.verdicts())
        return
    alone = set(rows[other_keys].tolist())
    for row, (trace, verdicts) in enumerate(zip(run.traces(), run.verdicts(), strict=True)):
        chunks = verdicts.chunk if row in alone else apply_gold_to_chunks(trace, verdicts.chunk)
        yield tuple(chunk.level for chunk in chunks or ())


def drop_claims(verdicts: Verdicts, stretches: Sequence[Stretch]) -> Verdicts:
    """Return verdicts without the claims that lie by half or more within stretches of the answer."""
    claims = verdicts.claim or ()
    inside = [
        2 * sum(max(0, min(end, claim.end) - max(start, claim.start)) for start, end in stretches)
        >= claim.end - claim.start
        for claim in claims
    ]
    truth = verdicts.truth
    if truth is not None and len(truth) == len(claims):
        truth = tuple(item for item, drop in zip(truth, inside, strict=True) if not drop)
    rest = tuple(claim for claim, drop in zip(claims, inside, strict=True) if not drop)
    return replace(verdicts, claim=None if verdicts.claim is None else rest, truth=truth)
