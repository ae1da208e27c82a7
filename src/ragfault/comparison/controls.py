"""Controls: a layer is blamed only for what moves more where its own output changed than where it did not.

| evidence | control | the drop is not the layer's if |
|---|---|---|
| any | `LEAST_CONTROLS` pairs on which the layer's output is the same | it fell as much there |
| any | the spread of repeated attempts of the baseline | it lies within that spread |
| of answers | pairs that retrieved the same texts | hardly any of it is there, and it does not follow the answers |
| groundedness, on other texts | new answers, judged on the old chunks | they are supported there as before |
| judged relevance of chunks | old answers, judged on the new chunks | what they rest on is still there |
| `GRADES` of answers | bad answers, where the metric moved | they are not shown to have become more |

Unchanged pairs are selected by the outcome: a cache of answers keeps them where it hits, so that a fault of generation
shows less on all pairs than on those answered anew; it is never acquitted by that, because nothing moves on a pair that
is the same in chunks and answer. A cache of both acquits retrieval on the pairs that it serves, rightly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ragfault.comparison.answer_changes import add_bad_answers, add_right_answers, is_rated, mark_bad_answers
from ragfault.comparison.attribution.edited_sources import find_replaced_ids
from ragfault.comparison.comparability import CHUNK_TEXT, read_fields
from ragfault.comparison.compare import compare_pairs
from ragfault.comparison.decision_tree import (
    BAD_ANSWERS,
    BRANCHES,
    GOLD_METRICS,
    GRADES,
    RIGHT_ANSWERS,
    TreeWalk,
    describe_change,
)
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.pairing import Mask
from ragfault.comparison.records import Comparison, LayerFault, MetricChange, RunDifference
from ragfault.comparison.settings import BisectionSettings
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.metrics.catalog import compute_score, parse_metric
from ragfault.model.protocols import Judge
from ragfault.model.records import Trace
from ragfault.stats.distributions import t_quantile
from ragfault.text.number_format import format_count

LEAST_CONTROLS = 20
"""Independent pairs whose output of a layer is the same, from which they are a control; chosen, not measured."""
CROSSED_PAIRS = 200
"""Pairs judged crosswise, at most."""
ATTEMPTS_LEVEL = 0.995
"""One-sided level at which a drop exceeds the spread of the baseline's attempts; chosen, not measured."""
FOLLOWING_SHARE = 0.5
"""Share of a drop that must follow the changed output; chosen, not measured."""

FINDS_LESS = "finds less; answers are not shown to suffer"
RANKS_LOWER = "ranks the passages lower; answers are not shown to suffer"
"""Titles of a fault of retrieval by gold without worse answers: with a fall of recall, and without."""

Layer = Literal["retrieval", "generation"]
Values = NDArray[np.float64]
LAYERS: dict[str, Layer] = {
    name: "retrieval" if branch.layer == "retrieval" else "generation" for branch in BRANCHES for name in branch.reads
}
"""Metric → the layer whose output a drop of it must follow; the key judges answers, whatever the sources say."""


class Excess(Struct, frozen=True):
    """How much more a metric moved on some pairs than on others, with the 95 % interval."""

    mean: float
    low: float
    high: float


def measure_excess(moved: Values, changed: Mask, clusters: NDArray[np.int64] | None = None) -> Excess:
    """Return the mean move on the changed pairs less that on the others, with its interval by cluster.

    The interval is that of Student's t, with the error of a difference of two means whose clusters may lie on both
    sides. Raises ValueError if either side is empty.

    >>> moved, changed = np.array([-0.9, -1.0, -1.1, 0.1, 0.0, -0.1]), np.array([True] * 3 + [False] * 3)
    >>> excess = measure_excess(moved, changed)
    >>> round(excess.mean, 2), excess.high < 0
    (-1.0, True)
    """
    if not changed.any() or changed.all():
        raise ValueError("an excess needs changed and unchanged pairs")
    weights = np.where(changed, 1.0 / changed.sum(), -1.0 / (~changed).sum())
    mean = float((weights * moved).sum())
    centers = np.where(changed, moved[changed].mean(), moved[~changed].mean())
    groups = np.unique(np.arange(len(moved)) if clusters is None else clusters, return_inverse=True)[1]
    parts = np.bincount(groups, weights * (moved - centers))
    count = len(parts)
    error = math.sqrt(count / max(1, count - 1) * float((parts**2).sum()))
    reach = t_quantile(0.975, max(1, count - 1)) * error
    return Excess(mean, mean - reach, mean + reach)


def find_unchanged(paired: PairedRuns) -> Mapping[Layer, Mask]:
    """Return the pairs on which the output of each layer is the same.

    That of generation is the answer with its citations; that of retrieval the ids in their order, or the texts. A text
    edited under its id is the source's change; an id that stands for another passage is not the same.
    """
    replaced = find_replaced_ids(paired)
    ids = zip(paired.list_ids(0), paired.list_ids(1), strict=True)
    same_ids = [old == new and bool(old) and not replaced & set(old) for old, new in ids]
    return {
        "retrieval": np.array(same_ids, dtype=bool) | paired.pairing.same_chunks,
        "generation": paired.pairing.same_answers,
    }


class CrossedScores(Struct, frozen=True, eq=False):
    """Groundedness of pairs as they are and crosswise; NaN where a pair was not judged."""

    metric: str
    new_on_old: Values
    """Of the new answers on the old chunks, less that of the old answers there."""
    old_on_new: Values
    """Of the old answers on the new chunks, less that on the old chunks."""


_CROSSED: WeakKeyDictionary[PairedRuns, CrossedScores | None] = WeakKeyDictionary()


def judge_crossed(paired: PairedRuns) -> CrossedScores | None:
    """Judge the new answers on the old chunks and the old answers on the new chunks, where the chunks differ.

    None if the judge of the runs is not one of the package, or groundedness is not among the metrics. Each pair of
    runs is judged once.
    """
    if paired not in _CROSSED:
        _CROSSED[paired] = _judge_crossed(paired)
    return _CROSSED[paired]


def _judge_crossed(paired: PairedRuns) -> CrossedScores | None:
    name = next((name for name in paired.shared_names() if metric_name(name) == "groundedness"), None)
    judge = _load_judge(paired)
    if name is None or judge is None:
        return None
    rows = [paired.paired_rows(side) for side in (0, 1)]
    chunked = [side.chunk_counts[own] > 0 for side, own in zip(paired.contents, rows, strict=True)]
    blank = paired.contents[0].blank[rows[0]] | paired.contents[1].blank[rows[1]]
    places = np.flatnonzero(~paired.pairing.same_chunks & chunked[0] & chunked[1] & ~blank)
    if len(places) > CROSSED_PAIRS:
        places = np.sort(np.random.default_rng(0).choice(places, CROSSED_PAIRS, replace=False))
    judged: list[int] = []
    crossed: tuple[list[Trace], list[Trace]] = ([], [])
    same = paired.pairing.same_answers[places]
    for place, old, new in paired.iterate_pairs(places[~same]):
        judged.append(place)
        crossed[0].append(_swap(old, new))
        crossed[1].append(_swap(new, old))
    metric, scores = parse_metric(name), np.full((2, len(paired.pairing)), math.nan)
    for side, traces in enumerate(crossed):
        observed = zip(judged, traces, judge.observe(traces) if traces else (), strict=True)
        values = {place: compute_score(metric, trace, verdicts).value for place, trace, verdicts in observed}
        known = {place: value for place, value in values.items() if value is not None}
        scores[side, list(known)] = list(known.values())
    before, after = paired.values(name, 0), paired.values(name, 1)
    # the same answer was judged on both lists when the runs were evaluated
    scores[:, places[same]] = before[places[same]], after[places[same]]
    return CrossedScores(name, scores[0] - before, scores[1] - before)


def _swap(chunks: Trace, answer: Trace) -> Trace:
    """Return a trace with the chunks of one and the answer of the other, without what groundedness does not read."""
    return replace(chunks, answer=answer.answer, citations=None, facts=None, reference=None)


def _load_judge(paired: PairedRuns) -> Judge | None:
    """Load the judge of both runs; None if it is another one now, costs money, or was altered by a profile."""
    from ragfault.judges.loading import LOCAL_JUDGES, load_judge

    fingerprints = {run.manifest.judge for run in paired.runs}
    name = min(fingerprints).partition("/")[0]
    if len(fingerprints) > 1 or name not in LOCAL_JUDGES:
        return None
    judge = load_judge(name)
    return judge if judge.fingerprint in fingerprints else None


def control_drop(paired: PairedRuns, change: MetricChange, pair_mask: Mask) -> str | None:
    """Return why a drop is not its layer's fault, in words; None if the controls leave it to the layer.

    The table at the top of this module lists the controls. Gold is given and not judged: it needs no old answers.
    """
    layer = LAYERS.get(metric_name(change.metric))
    if layer is None:
        return None
    moved = paired.values(change.metric, 1) - paired.values(change.metric, 0)
    measured = pair_mask & np.isfinite(moved)
    # what the chunks hold is the source's to change, too
    reads_texts = metric_name(change.metric) == "context_recall"
    same = measured & (paired.pairing.same_chunks if reads_texts else find_unchanged(paired)[layer])
    clusters = paired.pairing.clusters
    groups = np.arange(len(moved)) if clusters is None else clusters
    if not _exceeds_attempts(paired, change, measured, groups):
        return f"{describe_change(change)}, which the baseline's own attempts differ by"
    output = "answers" if layer == "generation" else "retrieved chunks"
    if same.any() and not (measured & ~same).any():
        return f"{describe_change(change)}, but the {output} are the same on every pair"
    if len(np.unique(groups[same])) >= LEAST_CONTROLS:
        excess = measure_excess(moved[measured], ~same[measured], groups[measured])
        if excess.high >= 0:
            return f"{describe_change(change)}, but as much where the {output} are the same: the record, or the texts"
        if layer == "generation":
            return None
    if layer == "retrieval":
        return _control_retrieval(paired, change, measured & ~same)
    return _control_answers(paired, change, moved, measured)


def _exceeds_attempts(paired: PairedRuns, change: MetricChange, measured: Mask, groups: NDArray[np.int64]) -> bool:
    """Return whether a drop exceeds what the attempts of the baseline differ by; true where too few are repeated.

    The null is that the candidate is another set of attempts of the baseline: the variance within its queries is that
    of each attempt on both sides.
    """
    places = np.flatnonzero(measured)
    rows = [paired.paired_rows(side)[places] for side in (0, 1)]
    first = [np.unique(own, return_index=True)[1] for own in rows]
    codes = np.unique(groups[places], return_inverse=True)[1]
    counts = [np.bincount(codes[own], minlength=codes.max() + 1) for own in first]
    values, own = paired.values(change.metric, 0)[places][first[0]], codes[first[0]]
    spare = int((counts[0] - 1).sum())
    if spare < LEAST_CONTROLS or change.difference is None:
        return True
    means = np.bincount(own, values) / counts[0]
    variance = float(((values - means[own]) ** 2).sum()) / spare
    error = math.sqrt(variance * float((1 / counts[0] + 1 / counts[1]).sum())) / len(counts[0])
    return -change.difference.mean > t_quantile(ATTEMPTS_LEVEL, spare) * error


def _control_retrieval(paired: PairedRuns, change: MetricChange, changed: Mask) -> str | None:
    """Return why the judged relevance of other chunks is no fault: what the old answers rest on is still there."""
    if metric_name(change.metric) in GOLD_METRICS:
        return None
    if (paired.pairing.same_answers | ~changed).all():
        return f"{describe_change(change)}, but the answers are the same wherever other chunks were retrieved"
    crossed = judge_crossed(paired)
    lost = None if crossed is None else _find_mean(crossed.old_on_new, changed)
    if lost is None or lost.high < 0:
        return None
    return f"{describe_change(change)}, but the former answers are as well supported by the new chunks"


def _control_answers(paired: PairedRuns, change: MetricChange, moved: Values, measured: Mask) -> str | None:
    """Return why a drop of answers on other chunks is not generation's: it follows the chunks, or nothing tells."""
    if CHUNK_TEXT not in read_fields(change.metric):
        return None
    calm, total = measured & paired.pairing.same_chunks, float(moved[measured].mean())
    if calm.sum() >= LEAST_CONTROLS and moved[calm].mean() <= FOLLOWING_SHARE * total:
        return None
    crossed = judge_crossed(paired)
    if crossed is None or metric_name(change.metric) != "groundedness":
        return f"{describe_change(change)}, on other chunks on nearly every pair: the record is not ruled out"
    follows = _find_mean(crossed.new_on_old, measured)
    if follows is None or follows.mean <= FOLLOWING_SHARE * total:
        return None
    return (
        f"{describe_change(change)}, but the new answers are supported by the former chunks: the record, or retrieval"
    )


def _find_mean(values: Values, pairs: Mask) -> Excess | None:
    """Return the mean of the finite values on some pairs with its 95 % interval; None if there are fewer than two."""
    known = values[pairs & np.isfinite(values)]
    if len(known) < 2:
        return None
    reach = t_quantile(0.975, len(known) - 1) * float(known.std(ddof=1)) / math.sqrt(len(known))
    mean = float(known.mean())
    return Excess(mean, mean - reach, mean + reach)


def compare_right_answers(
    paired: PairedRuns, settings: BisectionSettings, pair_mask: Mask | None = None
) -> tuple[MetricChange, ...]:
    """Compare the right answers of both runs, apart from the metrics: a bound on harm names no layer.

    A margin that is set for a metric of answers is one for right answers as well, if it is wider.
    """
    add_right_answers(paired)
    return _compare_rated(paired, RIGHT_ANSWERS, settings, pair_mask)


def _compare_rated(
    paired: PairedRuns, name: str, settings: BisectionSettings, pair_mask: Mask | None
) -> tuple[MetricChange, ...]:
    """Compare a metric of rated answers apart from the others."""
    margins = settings.margins or {}
    wide = [margin for metric, margin in margins.items() if LAYERS.get(metric_name(metric)) == "generation"]
    widest = margins.get(RIGHT_ANSWERS, max([settings.margin, *wide]))
    return compare_pairs(paired, replace(settings, margins={name: widest}), metrics=[name], pair_mask=pair_mask).changes


def find_harm(
    paired: PairedRuns, known: Sequence[LayerFault], settings: BisectionSettings, pair_mask: Mask | None = None
) -> list[LayerFault]:
    """Return the fault of generation if significantly more answers became bad than right on the same chunks.

    None if a fault of generation is known.

    What retrieval put out is the same there, so that generation did it, whichever metric shows it. The test is
    McNemar's exact one (sign flips by cluster) and apart from the metrics: only losses are blamed, so that the metrics
    use half of their share of alpha and this test the other half. A judge that wavers takes right answers for bad ones
    as often as bad ones for right ones, and an answer that is the same on both sides is rated once.
    """
    if any(fault.layer == "generation" for fault in known):
        return []
    add_bad_answers(paired)
    [change] = _compare_rated(paired, BAD_ANSWERS, settings, pair_mask)
    if change.state != "rose":
        return []
    counts = f"{change.rose:,} answers became bad and {change.fell:,} right on the same chunks"
    branch = next(branch for branch in BRANCHES if branch.layer == "generation")
    return [replace(branch.build_fault([change], title=counts), became_bad=change.rose)]


def place_undecided(paired: PairedRuns, change: MetricChange, pairs: Mask) -> LayerFault | None:
    """Return the fault of retrieval that a drop on other chunks follows; None if it is not shown to follow them.

    It does if answers became bad where the former answers, which did not change, lose support by the new chunks, and
    more so than where they keep it: what they drew on is gone.
    """
    bad = mark_bad_answers(paired)
    moved = bad[:, 1] - bad[:, 0]
    crossed = judge_crossed(paired)
    if crossed is None:
        return None
    known = pairs & ~find_unchanged(paired)["retrieval"] & np.isfinite(moved) & np.isfinite(crossed.old_on_new)
    lost = known & (crossed.old_on_new < 0)
    supported = known & ~lost
    if not suffers(paired, lost) or (supported.any() and measure_excess(moved[known], lost[known]).low <= 0):
        return None
    return BRANCHES[0].build_fault([change], title="passages that the answers drew on are no longer retrieved")


def suffers(paired: PairedRuns, pairs: Mask) -> bool:
    """Return whether more answers are shown to have become bad than right on some pairs, among those that changed.

    So it is if the share of bad answers rose there, with its 95 % interval. That a judge is less sure of answers which
    it still calls right is no harm.
    """
    bad = mark_bad_answers(paired)
    move = _find_mean(bad[:, 1] - bad[:, 0], pairs & ~paired.pairing.same_answers)
    return move is not None and move.low > 0


class WeighedDrops(NamedTuple):
    """The drops that no layer is blamed for, and why: metric → what to say of it."""

    doubts: dict[str, str]
    """Drops that the controls leave to no layer."""
    unknown: dict[str, str]
    """Falls of graded metrics of which nobody knows whether they did harm."""
    harmless: dict[str, str]
    """Falls of graded metrics under answers that are not shown to suffer."""

    @property
    def open(self) -> tuple[str, ...]:
        """Return what keeps a fault from being ruled out."""
        return (*self.doubts.values(), *self.unknown.values())


def weigh_drops(paired: PairedRuns, drops: Sequence[MetricChange], pairs: Mask) -> WeighedDrops:
    """Return which drops on some pairs are no fault, of the pairs as a whole or of a segment of them.

    A fall of a graded metric is none if answers are not shown to suffer where the metric moved, down or up: what else
    became better or worse is not its doing. Whether they do is known if most of the answers that changed are rated,
    and not only by a judge: one that takes an answer for right looked at its claims, and not at what it leaves out.
    """
    doubts = {c.metric: doubt for c in drops if (doubt := control_drop(paired, c, pairs)) is not None}
    grades = [c for c in drops if metric_name(c.metric) in GRADES and c.metric not in doubts]
    if not grades or any(suffers(paired, pairs & paired.find_moved(change.metric)) for change in grades):
        # What made answers bad by one grade may well be what lowered the other.
        return WeighedDrops(doubts, {}, {})
    changed = [paired.causes[place] for place in np.flatnonzero(pairs & ~paired.pairing.same_answers).tolist()]
    known = sum(is_rated(pair) and "judge" not in {side.rating.source for side in pair} for pair in changed)
    if 2 * known > len(changed):
        return WeighedDrops(
            doubts, {}, {c.metric: f"{describe_change(c)}; answers are not shown to suffer" for c in grades}
        )
    counts = f"{known:,} of the {format_count(len(changed), 'answer')} that changed"
    why = f"a key or labels say of {counts} whether they are right, which is too few"
    return WeighedDrops(doubts, {c.metric: f"{describe_change(c)}; {why}" for c in grades}, {})


def walk_controlled(
    paired: PairedRuns,
    comparison: Comparison,
    differences: Sequence[RunDifference],
    mask: Mask,
    *,
    retrieval_unaffected: bool = False,
) -> tuple[TreeWalk, WeighedDrops]:
    """Walk the decision tree over the changes of a comparison; a drop for which no layer is to blame is left out."""
    weighed = weigh_drops(paired, [change for change in comparison.changes if change.state == "dropped"], mask)
    moved = weighed.doubts | weighed.unknown | weighed.harmless
    changes = tuple(replace(c, state="cannot tell") if c.metric in moved else c for c in comparison.changes)
    walk = TreeWalk(replace(comparison, changes=changes), differences, retrieval_unaffected=retrieval_unaffected)
    return walk, weighed
