"""Search for the segment of the pairs (route, model, document, script, any metadata field) that a drop is confined to.

Two permutation tests decide, each over all segments and metrics together (largest statistic), so that segments may
overlap: the pairs of a segment dropped (signs flipped within it), and they dropped more than the others (pairs dealt
to the segments anew).
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.records import BrokenSegment, MetricChange
from ragfault.diagnosis.score_matrix import parse_object
from ragfault.stats.differences import paired_difference
from ragfault.stats.distributions import normal_cdf
from ragfault.text.number_format import format_interval, format_percent, format_signed

MAX_FIELDS, MAX_VALUES, MAX_SEGMENTS = 30, 50, 300
MIN_PAIRS, MIN_SHARE = 15, 0.01
MIN_AGREEMENT = 0.99
"""Least share of the pairs on which both runs record the same value of a field. What follows from the answer, such as
a user's rating, differs between the runs; to choose the pairs that were rated well before would make a drop."""

# chance of naming a segment where all dropped alike
LOCATION_ALPHA = 0.05
MAX_REPORTED = 3
# at least
RESAMPLES = 999
MAX_PERMUTED_UNITS = 5_000
"""With more clusters the normal limit and Bonferroni's correction are used."""
# of the drop in a segment that may also be elsewhere where it is said to be confined
CONFINED_SHARE = 0.25
# characters of a value that are shown
MAX_NAME = 60

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Segment(Struct, frozen=True, eq=False):
    """Pairs that share the value of a field."""

    by: str
    name: str
    pair_mask: Mask


def search_segments(
    paired: PairedRuns, changes: Sequence[MetricChange], *, alpha: float, seed: int = 0
) -> list[tuple[BrokenSegment, Mask]]:
    """Search for segments in which a metric dropped, and more than elsewhere; the clearest first, each with its mask.

    Every field with 2 to 50 values is searched (at most 30), in segments of at least 15 pairs and 1 % of them. The
    chance that a run without any change is given a segment is at most `alpha`. After one is found its pairs are left
    out and the rest is searched again, so that a second segment is not the first under another name.
    """
    segments = list_segments(paired)
    known = [change for change in changes if change.n and not change.identical]
    if not segments or not known:
        return []
    drops = np.stack([_signed_changes(paired, change) for change in known], axis=1)
    clusters = paired.pairing.clusters
    units = np.arange(len(drops)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    left = np.ones(len(drops), dtype=bool)
    results: list[tuple[BrokenSegment, Mask]] = []
    while len(results) < MAX_REPORTED:
        masks = np.stack([segment.pair_mask & left for segment in segments])
        best = locate_drop(np.where(left[:, None], drops, np.nan), masks, units, alpha=alpha, seed=seed)
        if best is None:
            break
        at, column, p = best
        results.append((_describe(segments[at], known[column], drops[:, column], masks[at], left, units, p), masks[at]))
        left &= ~masks[at]
    return results


def _signed_changes(paired: PairedRuns, change: MetricChange) -> Floats:
    """Return candidate less baseline, so that a change for the worse is negative; NaN where a side is not scored."""
    sign = 1.0 if change.better == "higher" else -1.0
    return sign * (paired.values(change.metric, 1) - paired.values(change.metric, 0))


def locate_drop(
    drops: Floats, masks: NDArray[np.bool_], units: NDArray[np.int64], *, alpha: float, seed: int = 0
) -> tuple[int, int, float] | None:
    """Return the segment and metric of the drop that stands out most, with its p; None where none is shown.

    `drops` is pairs × metrics (NaN: not scored), `masks` segments × pairs, `units` the cluster of each pair. A unit
    belongs to the segments of most of its pairs. p of a drop, which is returned, is at most `alpha`, and p of a larger
    drop than elsewhere at most 0.05; each is corrected for all segments and metrics.

    >>> rng = np.random.default_rng(0)
    >>> route = np.arange(400) % 8
    >>> drops = rng.normal(0, 0.2, (400, 3)); drops[route == 5, 1] -= 0.3
    >>> locate_drop(drops, np.stack([route == at for at in range(8)]), np.arange(400), alpha=0.01)[:2]
    (5, 1)
    """
    values, weights = _sum_units(drops, units)
    members = np.stack([np.bincount(units, mask, len(values)) for mask in masks]) * 2 > np.bincount(units)
    scored = weights > 0
    least = max(MIN_PAIRS, MIN_SHARE * len(values))
    sizes = members.astype(np.float64) @ scored
    enough = (sizes >= least) & (scored.sum(axis=0) - sizes >= least)
    if not enough.any():
        return None
    size = len(values), int(enough.sum())
    inside = members.astype(np.float64)
    scale = np.sqrt(inside @ values**2)
    scale = np.where(enough & (scale > 0), scale, np.inf)

    def flip_signs(rng: np.random.Generator) -> Floats:
        return (inside @ ((rng.integers(0, 2, len(values)) * 2.0 - 1.0)[:, None] * values)) / scale

    def contrast_shuffled(rng: np.random.Generator) -> Floats:
        order = rng.permutation(len(values))
        return np.where(enough, _contrast(values[order], scored[order], inside), 0.0)

    fell = _test_smallest((inside @ values) / scale, flip_signs, size, alpha, seed)
    contrast = np.where(enough, _contrast(values, scored, inside), 0.0)
    shown = enough & (fell <= alpha)
    if shown.any():
        shown &= _test_smallest(contrast, contrast_shuffled, size, LOCATION_ALPHA, seed) <= LOCATION_ALPHA
    if not shown.any():
        return None
    at, column = np.unravel_index(int(np.where(shown, contrast, np.inf).argmin()), shown.shape)
    return int(at), int(column), float(fell[at, column])


def _test_smallest(
    observed: Floats, draw: Callable[[np.random.Generator], Floats], size: tuple[int, int], alpha: float, seed: int
) -> Floats:
    """Return p of each statistic against the smallest of all under the null hypothesis.

    `size` is the number of units and of statistics. The draws end where no p can be at most `alpha` any more.
    """
    units, tests = size
    if units > MAX_PERMUTED_UNITS:
        p_values: Floats = np.minimum(1.0, tests * np.vectorize(normal_cdf, otypes=[float])(observed))
        return p_values
    rng = np.random.default_rng(seed)
    smaller = np.zeros(observed.shape)
    draws, most = 0, max(RESAMPLES, math.ceil(5 / alpha))
    while draws < most and smaller.min() <= alpha * (most + 1):
        smaller += draw(rng).min() <= observed + 1e-9 * np.abs(observed)
        draws += 1
    p: Floats = (smaller + 1) / (draws + 1)
    return p


def _sum_units(drops: Floats, units: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
    """Return the mean change of each unit (0 where nothing is scored) and the number of its scored pairs."""
    count = int(units.max()) + 1
    scored = np.isfinite(drops)
    sums = np.stack([np.bincount(units, column, count) for column in np.where(scored, drops, 0.0).T], axis=1)
    weights = np.stack([np.bincount(units, column, count) for column in scored.T], axis=1)
    return sums / np.maximum(weights, 1), weights


def _contrast(values: Floats, scored: Mask, inside: Floats) -> Floats:
    """Return Welch's t of the mean change inside each segment against the others, segments × metrics."""
    count = inside @ scored
    sums, squares = inside @ values, inside @ values**2
    total = scored.sum(axis=0), values.sum(axis=0), (values**2).sum(axis=0)
    means, errors = [], []
    for n, first, second in ((count, sums, squares), (total[0] - count, total[1] - sums, total[2] - squares)):
        size = np.maximum(n, 1)
        means.append(first / size)
        # One changed pair more than was seen keeps a segment whose pairs all moved alike from an infinite statistic.
        errors.append((second / size - means[-1] ** 2 + total[2] / np.maximum(total[0], 1) / size) / size)
    spread = np.sqrt(np.maximum(errors[0] + errors[1], 0.0))
    return np.where(spread > 0, (means[0] - means[1]) / np.where(spread > 0, spread, 1.0), 0.0)


def _describe(
    segment: Segment, change: MetricChange, drops: Floats, mask: Mask, left: Mask, units: NDArray[np.int64], p: float
) -> BrokenSegment:
    sign = 1.0 if change.better == "higher" else -1.0
    differences = []
    for side in (mask, left & ~mask):
        rows = side & np.isfinite(drops)
        moved = sign * drops[rows]
        differences.append(paired_difference(np.zeros(len(moved)), moved, units[rows].tolist()))
    there, elsewhere = differences
    shown_elsewhere = elsewhere.high < 0 if sign > 0 else elsewhere.low > 0
    confined = not shown_elsewhere and sign * elsewhere.mean > CONFINED_SHARE * sign * there.mean
    name = segment.name if len(segment.name) <= MAX_NAME else segment.name[: MAX_NAME - 1] + "…"
    part = f"{segment.by}={name} ({format_percent(mask.sum() / len(mask))} of the pairs)"
    kind, word = ("drop", "fell") if sign > 0 else ("rise", "rose")
    amount = f"it {word} by {abs(there.mean):.3f} there"
    rest = format_interval(elsewhere, signed=True)
    if not np.isfinite([elsewhere.low, elsewhere.high]).all():
        rest = f"{format_signed(elsewhere.mean)} on {elsewhere.n:,} pairs"
    text = (
        f"The {kind} of {change.metric} is confined to {part}: {amount}; none is shown elsewhere ({rest})"
        if confined
        else f"The {kind} of {change.metric} is largest in {part}: {amount}, elsewhere it moved by {rest}"
    )
    return BrokenSegment(
        by=segment.by,
        segment=segment.name,
        metric=change.metric,
        pairs=int(mask.sum()),
        share=float(mask.sum() / len(mask)),
        difference=there,
        elsewhere=elsewhere,
        adjusted=p,
        confined=confined,
        text=text,
    )


def list_segments(paired: PairedRuns) -> list[Segment]:
    """List the segments of the pairs by every field that both runs record alike, the largest first."""
    pairs = len(paired.pairing)
    least = max(MIN_PAIRS, MIN_SHARE * pairs)
    segments = []
    for by, values in _list_fields(paired):
        counts = Counter(value for value in values if value is not None)
        if not 2 <= len(counts) <= MAX_VALUES:
            continue
        column = np.array([value if value is not None else "" for value in values], dtype=object)
        known = np.array([value is not None for value in values])
        segments += [
            Segment(by, name, known & (column == name))
            for name, count in counts.items()
            if least <= count <= pairs - least
        ]
    return sorted(segments, key=lambda segment: (-int(segment.pair_mask.sum()), segment.by, segment.name))[
        :MAX_SEGMENTS
    ]


def _list_fields(paired: PairedRuns) -> Iterator[tuple[str, list[str | None]]]:
    """Yield each field with its value for each pair; None where it is not recorded, or not alike on both sides."""
    tables = [
        run.to_arrow("traces", ["route", "model", "turn", "metadata", "query"]).take(paired.paired_rows(side))
        for side, run in enumerate(paired.runs)
    ]
    for name in ("route", "model", "turn"):
        agreed = _agree(*([None if v is None else str(v) for v in table[name].to_pylist()] for table in tables))
        if agreed is not None:
            yield name, agreed
    objects = [[parse_object(text) for text in table["metadata"].to_pylist()] for table in tables]
    keys = Counter(key for entry in objects[0] for key in entry)
    for key, _ in keys.most_common(MAX_FIELDS):
        agreed = _agree(*([_label(entry.get(key)) for entry in side] for side in objects))
        if agreed is not None:
            yield f"metadata.{key}", agreed
    yield "document", _list_documents(paired)
    yield "script of the query", [_detect_script(query) for query in tables[0]["query"].to_pylist()]


def _agree(baseline: list[str | None], candidate: list[str | None]) -> list[str | None] | None:
    """Return the values of a field that both runs record alike; None where too few are."""
    recorded = [(old, new) for old, new in zip(baseline, candidate, strict=True) if old is not None or new is not None]
    if not recorded or sum(old == new for old, new in recorded) < MIN_AGREEMENT * len(recorded):
        return None
    return [old if old == new else None for old, new in zip(baseline, candidate, strict=True)]


def _list_documents(paired: PairedRuns) -> list[str | None]:
    """Return the document of each pair: that of its gold, else of the first chunk where it is the same in both runs."""
    contents = paired.contents
    documents = {key.id: key.document for side in contents for key in side.keys if key.document is not None}
    rows = zip(*(paired.paired_rows(side).tolist() for side in (0, 1)), strict=True)
    return [_find_document(paired, documents, old, new) for old, new in rows]


def _find_document(paired: PairedRuns, documents: dict[str, str], old: int, new: int) -> str | None:
    gold = paired.contents[0].gold[old]
    if gold is not None:
        names = {span.document for span in gold.spans} | {
            documents[chunk] for chunk, grade in gold.chunks.items() if grade > 0 and chunk in documents
        }
        return names.pop() if len(names) == 1 else None
    first = [
        side.keys[side.trace_keys[row][0]].document if side.trace_keys[row] else None
        for side, row in zip(paired.contents, (old, new), strict=True)
    ]
    return first[0] if first[0] == first[1] else None


def _label(value: Any) -> str | None:
    """Return a scalar as a text; lists, objects and texts too long to be a category are none."""
    if isinstance(value, bool | int):
        return str(value).lower()
    return value if isinstance(value, str) and 0 < len(value) <= 200 else None


def _detect_script(text: str) -> str | None:
    """Return the script of most letters of a text; None where it has none.

    >>> _detect_script("Where is Κρήτη, please?"), _detect_script("Где это?")
    ('latin', 'cyrillic')
    """
    letters = [character for character in text[:400] if character.isalpha()]
    scripts = Counter(unicodedata.name(letter, "unknown").split()[0].lower() for letter in letters)
    return scripts.most_common(1)[0][0] if scripts else None
