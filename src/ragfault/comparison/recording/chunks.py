"""Chunks and citations that one run records otherwise than they were: masked, damaged, joined, or not what was read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ragfault.comparison.comparability import ASPECTS, CHUNK_ORDER, CHUNK_TEXT, LocatedMismatch
from ragfault.comparison.pairing import ChunkPair, ChunkRow, Mask, RunContents, TracePairing, load_texts
from ragfault.comparison.recording.answer_pairs import (
    CUT_SHARE,
    LEAST_PAIRS,
    SIDES,
    AnswerPair,
    mark_places,
    name_mismatch,
)
from ragfault.comparison.recording.answers import MASK_PATTERN, find_masked
from ragfault.io.runs.run import Run
from ragfault.model.records import Trace
from ragfault.model.rules import quote_matches
from ragfault.text.markup import MARKUP_SHARE
from ragfault.text.normalization import repair_encoding

# of the joined text; headings and separators are the rest
JOINED_SHARE = 0.8
# of the pairs with citations
CITED_SHARE = 0.9
# fewer pairs with another first chunk, or without, show nothing
LEAST_OTHER_FIRST = 15
# of the answers where another chunk is first are the same
SAME_ANSWER_SHARE = 0.6
# of the chunk texts that differ under one id
FORM_SHARE = 0.9
# so many of them end within a sentence
BROKEN_OFF_SHARE = 0.5
SENTENCE_ENDS = (".", "!", "?", ":", ")", "”", '"')
# of the chunks under new ids, so many within old texts mean that the corpus was re-chunked
CONTAINED_SHARE = 0.2
# texts that are looked at
MAX_TEXTS = 400
# of the lists of the side in the order of ids, at least; of the other side, at most
SORTED_SHARES = (0.98, 0.5)
# a list of two is in the order of its ids by chance
LEAST_SORTED = 3
ADDRESS_PATTERN = re.compile(r"[a-z][\w+.-]*://|www\.|/?[\w./-]+\.(?:html?|md|pdf|docx?|txt|php|aspx?)(?:[#?]|$)")
# characters; a shorter name may stand within another by chance
LEAST_NAME = 3


def find_chunk_mismatches(
    runs: tuple[Run, Run],
    contents: tuple[RunContents, RunContents],
    pairing: TracePairing,
    pairs: Sequence[AnswerPair],
    records: Sequence[Sequence[TraceRecord]],
) -> list[LocatedMismatch]:
    """Find the pairs whose chunks or citations one side records otherwise than they were read.

    Citations that name chunks otherwise than by their ids are no fault where their quotes stand there.
    """
    return [
        *_find_text_forms(runs, contents, pairing, pairs),
        *_find_other_cuts(pairs, len(pairing)),
        *_find_sorted_chunks(contents, pairing, pairs),
        *_find_other_names([[record.citations for record in side] for side in records]),
        *_find_damaged_characters([[record.damage for record in side] for side in records]),
    ]


def _find_other_cuts(pairs: Sequence[AnswerPair], size: int) -> list[LocatedMismatch]:
    """Find lists of chunks that hold the same text in the same order, cut at other places: a prompt reads the same."""
    places = [
        pair.place
        for pair in pairs
        if len(pair.chunks[0]) != len(pair.chunks[1])
        and all(pair.chunks)
        and any(_holds_all(pair.chunks[side], pair.chunks[1 - side]) for side in (0, 1))
    ]
    if len(places) < max(LEAST_PAIRS, MARKUP_SHARE * size):
        return []
    text = "the same text is recorded in other chunks on {share} of pairs: joined, or cut at other places"
    return name_mismatch(text, places, size, "chunks", CHUNK_TEXT)


def _holds_all(longer: Sequence[str], parts: Sequence[str]) -> bool:
    """Return whether one list holds all texts of a longer list in its order, and little else."""
    if len(longer) >= len(parts):
        return False
    joined, end, size = "".join(map(_remove_space, longer)), 0, 0
    for piece in map(_remove_space, parts):
        at = joined.find(piece, end)
        if at < 0:
            return False
        end, size = at + len(piece), size + len(piece)
    return size >= JOINED_SHARE * len(joined)


@lru_cache(maxsize=1 << 11)
def _remove_space(text: str) -> str:
    """Return a chunk text without white space; those of recent ones are cached, as chunks are retrieved many times."""
    return "".join(text.split())


def _find_sorted_chunks(
    contents: tuple[RunContents, RunContents], pairing: TracePairing, pairs: Sequence[AnswerPair]
) -> list[LocatedMismatch]:
    """Find the side that records the same chunks in the order of their ids, while most answers stay the same."""
    sides = list(zip(contents, (pairing.baseline, pairing.candidate), strict=True))
    ids = [[[side.keys[at].id for at in side.trace_keys[row]] for row in rows.tolist()] for side, rows in sides]
    long = [place for place in range(len(pairing)) if min(len(ids[0][place]), len(ids[1][place])) >= LEAST_SORTED]
    moved = [
        place for place in long if ids[0][place] != ids[1][place] and sorted(ids[0][place]) == sorted(ids[1][place])
    ]
    rewritten = {pair.place for pair in pairs if not pair.is_same}
    same = sum(place not in rewritten for place in moved)
    if len(moved) < LEAST_OTHER_FIRST or same < SAME_ANSWER_SHARE * len(moved):
        return []
    ordered = [sum(ids[side][place] == sorted(ids[side][place]) for place in long) / len(long) for side in (0, 1)]
    for side, name in ((1, "candidate"), (0, "baseline")):
        if ordered[side] >= SORTED_SHARES[0] and ordered[1 - side] <= SORTED_SHARES[1]:
            text = (
                f"the {name} records the same chunks in the order of their ids on {{share}} of pairs, and {same:,} of "
                f"{len(moved):,} answers are the same there: the order is not a rank"
            )
            return name_mismatch(text, moved, len(pairing), CHUNK_ORDER)
    return []


class TextForm(NamedTuple):
    """A form in which one run records the texts of chunks that the other records in full under the same ids."""

    # whether pairs of a text and that of the other run are in it
    holds: Callable[[Sequence[tuple[str, str]]], bool]
    text: str


def _are_clipped(texts: Sequence[tuple[str, str]]) -> bool:
    """Return whether texts begin the others and break off; texts to which something was added end with a sentence."""
    stems = [(text, text.removesuffix("…").removesuffix("...").rstrip(), full) for text, full in texts]
    begun = np.mean([full.startswith(stem) for _, stem, full in stems])
    broken_off = np.mean([not stem.endswith(SENTENCE_ENDS) or stem != text for text, stem, _ in stems])
    return bool(begun >= FORM_SHARE and broken_off >= BROKEN_OFF_SHARE)


TEXT_FORMS = (
    TextForm(
        _are_clipped,
        "chunk texts of the {side} are only the beginnings of the {other}'s under the same ids on {{share}} of pairs: "
        "clipped in the record, or before it",
    ),
    TextForm(
        lambda texts: float(np.mean([bool(find_masked(*both)) for both in texts])) >= FORM_SHARE,
        "chunk texts of the {side} are masked on {{share}} of pairs: in the record, or before it",
    ),
)


def _find_text_forms(
    runs: tuple[Run, Run], contents: tuple[RunContents, RunContents], pairing: TracePairing, pairs: Sequence[AnswerPair]
) -> list[LocatedMismatch]:
    """Find the side whose chunk texts are the other's under the same ids, clipped or masked, if some of them only."""
    texts = [
        {key.id: key.text for key in sorted(side.keys, key=lambda key: -key.size) if key.text} for side in contents
    ]
    differing = {name for name in texts[1] if texts[0].get(name, texts[1][name]) != texts[1][name]}
    chosen = sorted(differing)[:MAX_TEXTS]
    known = [load_texts(run, set(chosen), shortest=True) for run in runs] if chosen else []
    for side, other in ((1, 0), (0, 1)) if chosen else ():
        both = [(known[side][name], known[other][name]) for name in chosen]
        form = next((form for form in TEXT_FORMS if form.holds(both)), None)
        if form is None or _is_cut_anew(runs, texts, side):
            continue
        hit = [key.id in differing and key.text != texts[other][key.id] for key in contents[side].keys]
        rows = (pairing.candidate if side else pairing.baseline).tolist()
        touched: Mask = np.array([any(hit[at] for at in contents[side].trace_keys[row]) for row in rows], bool)
        marks = {p.place: [len(MASK_PATTERN.findall(p.answers[at])) for at in (side, other)] for p in pairs}
        answers = mark_places([place for place, count in marks.items() if count[0] > count[1]], len(pairing))
        factless = (contents[0].facts[pairing.baseline] == 0) | (contents[1].facts[pairing.candidate] == 0)
        text = form.text.format(side=SIDES[side], other=SIDES[other])
        left_out = {CHUNK_TEXT: touched, ASPECTS: touched & factless, "answer": answers}
        return [LocatedMismatch(kind="texts", text=text, pairs=touched | answers, left_out=left_out)]
    return []


def _is_cut_anew(runs: tuple[Run, Run], texts: Sequence[Mapping[str, int]], side: int) -> bool:
    """Return whether texts under new ids of a side stand within texts of the other: few of them have an old id."""
    added = set(sorted(texts[side].keys() - texts[1 - side].keys())[:MAX_TEXTS])
    if not added:
        return False
    old = "\n".join(load_texts(runs[1 - side], set(sorted(texts[1 - side])[:MAX_TEXTS])).values())
    return float(np.mean([text in old for text in load_texts(runs[side], added).values()])) >= CONTAINED_SHARE


class DamagedTexts(NamedTuple):
    """Which texts of a trace hold characters that were read in another encoding."""

    answer: bool
    quotes: bool
    chunks: bool


class TraceRecord(NamedTuple):
    """The form in which a trace records its citations and characters."""

    citations: str | None
    """Their kind, as `_find_citation_kind` returns it."""
    damage: DamagedTexts


def read_records(runs: tuple[Run, Run], pairing: TracePairing, chunks: ChunkPair) -> list[list[TraceRecord]]:
    """Read the records of the pairs, side by side."""
    known: dict[str, bool] = {}
    sides = []
    for run, rows, lists in zip(runs, (pairing.baseline, pairing.candidate), chunks, strict=True):
        records = [
            TraceRecord(_find_citation_kind(trace, read or ()), _find_damage(trace, read or (), known))
            for trace, read in zip(run.traces(fields=["answer", "citations"]), lists, strict=True)
        ]
        sides.append([records[row] for row in rows.tolist()])
    return sides


def _find_other_names(named: Sequence[Sequence[str | None]]) -> list[LocatedMismatch]:
    """Find the side whose citations name chunks by number, document or a longer name, where the other's name ids."""
    for side, name in ((1, "candidate"), (0, "baseline")):
        cited = [place for place, kind in enumerate(named[side]) if kind]
        places = [place for place in cited if named[side][place] == "other" and named[1 - side][place] == "id"]
        if len(places) >= max(LEAST_PAIRS, CITED_SHARE * len(cited)):
            # The few others lead nowhere, or their quotes do not stand in the baseline's chunks either.
            unlike = [at for at in cited if named[side][at] != "id" and named[1 - side][at] == "id"]
            mask = mark_places(unlike, len(named[0]))
            text = (
                f"citations of the {name} name chunks by number, document, address or a prefix to the id, not by id, "
                "on {share} of pairs, and most of their quotes stand there"
            )
            return [LocatedMismatch(kind="fields", text=text, pairs=mask, left_out={"citations": mask})]
    return []


def _find_citation_kind(trace: Trace, chunks: Sequence[ChunkRow]) -> str | None:
    """Return whether the citations of a trace name chunk ids, or all something else that leads to their quotes."""
    if not trace.citations or not chunks:
        return None
    ids = {chunk.id for chunk in chunks}
    if any(citation.chunk in ids for citation in trace.citations):
        return "id"
    meant: dict[str, list[str]] = {}
    for number, chunk in enumerate(chunks):
        for name in {str(number), str(number + 1), f"[{number + 1}]", chunk.document or ""}:
            meant.setdefault(name, []).append(chunk.text)
    for name in {citation.chunk for citation in trace.citations}:
        longer = [c.text for c in chunks if any(_is_name_within(part, name) for part in (c.id, c.document or ""))]
        meant.setdefault(name, []).extend(longer)
        if not meant[name] and ADDRESS_PATTERN.match(name):
            meant[name] = [chunk.text for chunk in chunks]
    all_match = all(
        meant[citation.chunk]
        and (citation.quote is None or any(quote_matches(citation.quote, text) for text in meant[citation.chunk]))
        for citation in trace.citations
    )
    return "other" if all_match else "unknown"


def _is_name_within(name: str, longer: str) -> bool:
    """Return whether a name is another one without a prefix or suffix that a separator divides from it.

    >>> _is_name_within("fees#2", "doc:fees#2"), _is_name_within("fees#2", "fees#21"), _is_name_within("2", "fees#2")
    (True, False, False)
    """
    if len(name) < LEAST_NAME or len(name) >= len(longer):
        return False
    begins, ends = longer.startswith(name), longer.endswith(name)
    return (begins and not longer[len(name)].isalnum()) or (ends and not longer[-len(name) - 1].isalnum())


def _find_damaged_characters(damaged: Sequence[Sequence[DamagedTexts]]) -> list[LocatedMismatch]:
    """Find the side whose texts were read in another encoding; its citations are left out where quotes differ for it.

    What else is measured on damaged texts is compared: readers may see them.
    """
    damage = [np.array(texts, dtype=bool).reshape(-1, 3) for texts in damaged]
    size = len(damage[0])
    for side, name in ((1, "candidate"), (0, "baseline")):
        alone = damage[side] & ~damage[1 - side]
        parts = [part for part, count in zip(DamagedTexts._fields, alone.sum(axis=0), strict=True) if count]
        mask = alone.any(axis=1)
        if mask.sum() >= max(LEAST_PAIRS, CUT_SHARE * size):
            what = " and ".join(f"{part.rstrip('s')}s" if part != "chunks" else "chunk texts" for part in parts)
            text = (
                f"{what} of the {name} hold damaged characters on {{share}} of pairs, such as Ã© for é: UTF-8 that was "
                "read in another encoding"
            )
            left_out = {"citations": alone[:, 1] != alone[:, 2]}
            return [LocatedMismatch(kind="texts", text=text, pairs=mask, left_out=left_out)]
    return []


def _find_damage(trace: Trace, chunks: Sequence[ChunkRow], known: dict[str, bool]) -> DamagedTexts:
    def is_damaged(text: str | None) -> bool:
        if not text or text.isascii():
            return False
        if text not in known:
            known[text] = repair_encoding(text) != text
        return known[text]

    return DamagedTexts(
        answer=is_damaged(trace.answer),
        quotes=any(is_damaged(citation.quote) for citation in trace.citations or ()),
        chunks=any(is_damaged(chunk.text) for chunk in chunks),
    )
