"""Bisection of two runs into the layer that broke."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from msgspec.structs import replace

from ragfault.comparison.answer_changes import mark_unharmed, order_by_harm
from ragfault.comparison.attribution.earlier_turns import withdraw_by_turns
from ragfault.comparison.attribution.edited_sources import (
    describe_unverified_edits,
    find_lost_facts,
    place_by_texts,
    settle_decisions,
)
from ragfault.comparison.attribution.example_traces import pick_examples
from ragfault.comparison.attribution.pair_scope import PairScope
from ragfault.comparison.attribution.second_faults import find_second_faults
from ragfault.comparison.attribution.segment_search import search_segments
from ragfault.comparison.attribution.step_faults import (
    add_step_checks,
    describe_step_changes,
    has_unexplained_rise,
    order_by_cause,
    trace_to_steps,
)
from ragfault.comparison.checks.decisions import (
    decide_checks,
    describe_fault_fact,
    describe_sampled_rises,
    describe_unshown_rises,
    find_check_faults,
    find_silent_pairs,
    is_defect,
)
from ragfault.comparison.checks.table import CHECK_METRICS, is_step_metric
from ragfault.comparison.checks.values import add_checks
from ragfault.comparison.comparability import (
    describe_blocked,
    describe_other_responses,
    describe_same_answers,
    describe_uneven_loss,
    describe_unpaired_traces,
    drop_spoiled_differences,
    hides_a_fault,
)
from ragfault.comparison.compare import add_answers, compare_pairs, split_changes, split_segments
from ragfault.comparison.controls import (
    FINDS_LESS,
    RANKS_LOWER,
    WeighedDrops,
    compare_right_answers,
    find_harm,
    find_unchanged,
    place_undecided,
    suffers,
    walk_controlled,
    weigh_drops,
)
from ragfault.comparison.decision_tree import (
    BRANCHES,
    GOLD_METRICS,
    RATED_METRICS,
    RECALL_METRICS,
    STAGES_BY_BRANCH,
    STAGES_BY_LAYER,
    TreeWalk,
    bound_drop,
    describe_change,
    order_remedies,
    select_tree_metrics,
)
from ragfault.comparison.equal_depth import add_equal_depth
from ragfault.comparison.paired_runs import PairedRuns, pair_runs
from ragfault.comparison.pairing import Mask
from ragfault.comparison.records import (
    Bisection,
    BranchDecision,
    BrokenSegment,
    ChangeState,
    Comparison,
    LayerFault,
    RunDifference,
)
from ragfault.comparison.run_profile import GOLD_ID_METRICS, compare_profiles, stale_gold_share
from ragfault.comparison.settings import DEFAULT_BISECTION, BisectionSettings
from ragfault.comparison.stages.evidence import collect_evidence
from ragfault.comparison.stages.paired_traces import read_pairs
from ragfault.comparison.stages.ranking import ORDER_ALONE, rank_suspects
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.io.runs.run import AnyRun
from ragfault.model.settings import accept_fields
from ragfault.text.number_format import format_count, format_number, format_percent

TREE_SHARE, SEARCH_SHARE = 0.8, 0.18
"""Of alpha, for the metrics and checks together, and for the search for a segment; the rest is for what one side
records less often (0.001 of 0.05), so that all of them together name anything with a chance of at most alpha."""
LEAST_PROBABILITY = 0.05
"""Least probability of a suspect that the sentence of a fault names, beside the first."""
MODEL_DIFFERENCES = {"embedded": 0.07, "encoder": 0.09, "lexical": 0.22}
"""Greatest difference of groundedness by a judge between two models on answers in which people marked nothing, of
RAGTruth's six (`benchmarks/models.py --unmarked`; of `encoder` on 300 prompts)."""

VerdictSentence = tuple[Literal["fault", "no fault", "cannot tell"], str]


@accept_fields(BisectionSettings)
def bisect(
    baseline: AnyRun | PairedRuns, candidate: AnyRun | None = None, settings: BisectionSettings = DEFAULT_BISECTION
) -> Bisection:
    """Name the layer that broke between two runs, or say that the data cannot tell.

    The metrics of the decision tree are compared on the paired traces and corrected among themselves; the
    branches are walked in order and the first that matches is a fault. Behind it, generation is checked on the pairs
    on which it cannot be the cause, and the sources by facts that their texts lost; the fault that made most answers
    bad stands first. Gold ids that no longer describe the candidate's corpus are left out with a
    warning. The margins and alpha mean what they mean for `compare`.

    Every field is searched for the segment that a drop is confined to. Where the pairs as a
    whole show no fault, a fault of such a segment is the verdict. The chance that a fault or a segment is named where
    both runs are of one system is at most alpha, all tests together: four fifths of it are for the metrics, nearly a
    fifth for the search, and corrected p values are divided by these shares.

    Raises what `compare` raises.

    >>> import tempfile
    >>> from ragfault import Chunk, Gold, Trace, bisect, evaluate
    >>> def retrieve(number, chunk):
    ...     chunks, gold = (Chunk(id=chunk, text=f"Pier {chunk}."),), Gold(chunks={"a": 1.0})
    ...     return Trace(id=f"{number}", query=f"When does ferry {number} leave?", chunks=chunks, gold=gold)
    >>> old = [retrieve(number, "a") for number in range(40)]
    >>> new = [retrieve(number, "ab"[number % 2]) for number in range(40)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = [evaluate(side, f"{folder}/{at}", metrics=["recall"]) for at, side in enumerate((old, new))]
    ...     result = bisect(*runs)
    >>> result.verdict, result.faults[0].layer
    ('fault', 'retrieval')
    """
    return bisect_pairs(pair_runs(baseline, candidate, anyway=settings.anyway), settings)


def bisect_pairs(
    side: PairedRuns, settings: BisectionSettings = DEFAULT_BISECTION, *, pair_mask: Mask | None = None
) -> Bisection:
    """Name the layer that broke on paired runs, as `bisect` does; with a `pair_mask` on these pairs, unsearched."""
    compared = _compare_metrics(side, replace(settings, share=TREE_SHARE), pair_mask)
    walk, weighed = walk_controlled(side, compared.with_checks, compared.scope.differences, compared.scope.pairs)
    blame = _blame_layers(compared, walk)
    verdict, sentence = _word_verdict(compared, walk, weighed, blame)
    result = Bisection(
        verdict=verdict,
        sentence=sentence,
        faults=tuple(blame.faults),
        tree=tuple(blame.tree),
        comparison=add_answers(side, compared.full, compared.asked, settings.seed),
        differences=compared.scope.differences,
        needed=walk.needed if verdict == "cannot tell" else None,
    )
    return result if pair_mask is not None or blame.is_explained else _add_segments(side, result, settings)


class ComparedMetrics(NamedTuple):
    """The changes between two runs on the pairs that are asked about."""

    asked: Mask
    full: Comparison
    """All metrics and checks; those of the tree on the pairs of `scope`."""
    tree: Comparison
    """The metrics of the tree."""
    broken: Sequence[LayerFault]
    """Faults of the pipeline."""
    scope: PairScope
    """The pairs on which the pipeline answered in both runs."""

    @property
    def is_blocked(self) -> bool:
        """Return whether unlike pairs or a fault of the pipeline may explain the changes of the metrics."""
        return bool(self.broken) or any(mismatch.blocks for mismatch in self.full.mismatches)

    @property
    def with_checks(self) -> Comparison:
        """Return the metrics of the tree with the checks of the pipeline and right answers, which bound a fault."""
        others = (c for c in self.full.changes if c.metric in CHECK_METRICS or c.metric in RATED_METRICS)
        return replace(self.tree, changes=(*self.tree.changes, *others))


def _compare_metrics(side: PairedRuns, settings: BisectionSettings, pair_mask: Mask | None) -> ComparedMetrics:
    """Compare the metrics of the tree, the checks of the pipeline and of steps, and the defects of answers."""
    old, new = side.profiles if pair_mask is None else side.profiles_of(pair_mask)
    asked = np.ones(len(side.pairing), dtype=bool) if pair_mask is None else pair_mask
    gone, scoring = stale_gold_share(old, new), side.find_scoring_mismatch()
    add_equal_depth(side)
    names = _list_tree_metrics(side, () if scoring is None else scoring.left_out, has_lost_gold=gone is not None)
    added = [*add_checks(side), *add_step_checks(side)]
    full = compare_pairs(side, settings, metrics=[*added, *names], pair_mask=asked)
    broken = find_check_faults(side, full, [change for change in full.changes if change.metric in CHECK_METRICS])
    answered = asked & ~find_silent_pairs(side, broken)
    others, tree = split_changes(full, added.__contains__)
    if answered.sum() < asked.sum():
        tree = compare_pairs(side, settings, metrics=names if answered.any() else [], pair_mask=answered)
    rated = compare_right_answers(side, settings, answered)
    differences = drop_spoiled_differences(compare_profiles(old, new), side.mismatch_list)
    full = replace(
        full,
        changes=(*tree.changes, *rated, *others),
        mismatches=full.mismatches if scoring is None else (*full.mismatches, scoring),
        warnings=(*full.warnings, *describe_sampled_rises(full), *_describe_lost_gold(gone)),
    )
    return ComparedMetrics(asked, full, tree, broken, PairScope(side, answered, settings, differences))


def _describe_lost_gold(share: float | None) -> list[str]:
    """Describe that a share of the gold ids is gone from the corpus; nothing where none is."""
    if share is None:
        return []
    return [f"labels no longer describe the corpus: {format_percent(share)} of gold ids are gone; use gold spans"]


def _list_tree_metrics(paired: PairedRuns, left_out: Sequence[str], has_lost_gold: bool) -> list[str]:
    """Return the metrics of the tree but for those that are left out, and for gold ids where the corpus lacks some."""
    names = (name for name in paired.shared_names() if name not in left_out)
    return select_tree_metrics(name for name in names if not (has_lost_gold and metric_name(name) in GOLD_ID_METRICS))


class Blame(NamedTuple):
    """Faults of layers, and how the branches were decided."""

    faults: Sequence[LayerFault]
    """Those of most answers that became bad first."""
    tree: list[BranchDecision]
    after_turns: str | None
    """Why a drop of retrieval may follow from earlier turns, in words."""
    is_explained: bool
    """Whether that explains all that dropped."""


def _blame_layers(compared: ComparedMetrics, walk: TreeWalk) -> Blame:
    """Name the layers behind what dropped: those of the pipeline and of steps, then those that the tree names.

    Behind another fault, generation is found on the pairs on which that fault cannot be the cause, and by answers that
    became bad on the same chunks; the sources are found by the facts that their texts lost.
    """
    side, scope = compared.scope.paired, compared.scope
    faults, after_turns = [place_by_texts(scope, fault) for fault in walk.faults], None
    rulings: list[BranchDecision] = []
    if faults:
        faults, rulings = find_second_faults(scope, compared.tree, faults[0])
        faults, after_turns = withdraw_by_turns(scope, faults)
    is_explained = after_turns is not None and not faults and not compared.is_blocked
    if not compared.is_blocked:
        added = find_harm(side, faults, scope.settings, scope.pairs)
        if not faults and not added and not is_explained:
            defects = [change for change in compared.full.changes if is_defect(change.metric)]
            lost = find_lost_facts(scope) if walk.dropped("context_recall") else None
            added = find_check_faults(side, compared.full, defects) or ([] if lost is None else [lost])
            if not added and walk.undecided is not None:
                placed = place_undecided(side, walk.undecided, scope.pairs)
                added = [] if placed is None else [placed]
        faults = [*faults, *added]
    settled = settle_decisions(walk, faults, f"; {after_turns}" if after_turns else "")
    tree = [*decide_checks(compared.full), *settled, *rulings]
    steps = [change for change in compared.full.changes if is_step_metric(change.metric)]
    traced = trace_to_steps(side, faults, scope.pairs)
    faults = order_by_cause(traced, find_check_faults(side, compared.full, steps))
    broken = _describe_faults(side, trace_to_steps(side, compared.broken, compared.asked), compared.asked)
    shown = order_by_harm(side, (*broken, *_describe_faults(side, faults, scope.pairs)), compared.asked)
    return Blame(shown, tree, after_turns, is_explained)


def _word_verdict(compared: ComparedMetrics, walk: TreeWalk, weighed: WeighedDrops, blame: Blame) -> VerdictSentence:
    """Return the verdict and its sentence: what the data show, what else may explain it, what harm is possible."""
    side, faults = compared.scope.paired, blame.faults
    if blame.is_explained and not faults:
        decided: VerdictSentence = "cannot tell", f"No layer is shown to have broken: {blame.after_turns}."
    else:
        decided = _decide_verdict(compared, walk, faults)
    verdict, sentence = _add_steps(_doubt_edits(compared, decided, faults), faults, compared.full)
    if blame.after_turns and not blame.is_explained:
        sentence = f"{sentence} Beside that, {blame.after_turns}."
    cached = describe_other_responses(side.contents, side.pairing) if faults else None
    sentence = f"{sentence} {cached}." if cached else sentence
    sentence += _doubt_models(side, faults, compared.scope.differences)
    if verdict == "fault":
        return verdict, sentence
    if weighed.open:
        verdict, sentence = "cannot tell", f"No layer is shown to have broken. {'. '.join(weighed.open)}. {sentence}"
    return verdict, sentence + "".join(f" {text[0].upper()}{text[1:]}." for text in weighed.harmless.values())


def _add_steps(decided: VerdictSentence, faults: Sequence[LayerFault], full: Comparison) -> VerdictSentence:
    """Add where among the steps the faults begin; more first faulty steps of a kind exclude "no fault"."""
    verdict, sentence = decided
    texts = [fault.step_evidence for fault in faults if fault.step_evidence and fault.step_evidence not in sentence]
    changes = describe_step_changes(full, is_named=any(fault.step for fault in faults))
    if 0 < full.pairs == full.same_answers and (any(fault.step for fault in faults) or changes):
        changes = (*changes, "the answers are the same on every pair")
    added = "".join(f" {text[0].upper()}{text[1:]}." for text in (*texts, *changes))
    if verdict == "no fault" and has_unexplained_rise(full):
        return "cannot tell", f"No layer is shown to have broken, but the data cannot tell.{added}"
    return verdict, f"{sentence}{added}"


def _doubt_models(paired: PairedRuns, faults: Sequence[LayerFault], differences: Sequence[RunDifference]) -> str:
    """Return what else may explain a small drop of groundedness by a judge alone, where the model changed; else ""."""
    change = faults[0].evidence[0] if faults else None
    if change is None or change.metric != "groundedness" or change.difference is None or change.ppi is not None:
        return ""
    judge = paired.runs[0].manifest.judge.split("/")[0]
    largest = MODEL_DIFFERENCES.get(judge, 0.0)
    if -change.difference.high >= largest or not any(difference.name == "model" for difference in differences):
        return ""
    return (
        f" The model changed: where people found no error, the judge {judge} rated one model up to {largest:g} lower "
        "than another, so label some answers of both."
    )


def _describe_faults(paired: PairedRuns, faults: Sequence[LayerFault], pairs: Mask) -> Iterator[LayerFault]:
    """Yield the faults with the stages that the pairs speak for, and with examples."""
    evidence = collect_evidence(read_pairs(paired, pairs)) if faults else ()
    other_chunks = ~find_unchanged(paired)["retrieval"] & pairs
    for fault in faults:
        usual, others = STAGES_BY_BRANCH.get(fault.branch, ()), STAGES_BY_LAYER.get(fault.layer, ())
        reordered = fault.branch == BRANCHES[0].name and any(item.name == ORDER_ALONE for item in evidence)
        suspects = rank_suspects(usual, evidence, others)
        is_gold = fault.branch == BRANCHES[0].name and metric_name(fault.evidence[0].metric) in GOLD_METRICS
        title = "the same chunks stand in a worse order" if reordered else fault.title
        yield replace(
            fault,
            title=_title_harmless(fault) if is_gold and not suffers(paired, other_chunks) else title,
            suspects=suspects,
            remedies=order_remedies(fault.remedies, [suspect.stage for suspect in suspects]),
            examples=pick_examples(paired, fault),
        )


def _title_harmless(fault: LayerFault) -> str:
    """Return the title of lower gold under answers that are as good: fewer passages, or the same ones lower down."""
    fallen = {metric_name(change.metric) for change in fault.evidence if change.verdict == "worse"}
    return RANKS_LOWER if fallen.isdisjoint(RECALL_METRICS) else FINDS_LESS


def _add_segments(paired: PairedRuns, result: Bisection, settings: BisectionSettings) -> Bisection:
    """Add the segments that a drop is confined to; the fault of the first where the pairs as a whole show none.

    Nothing is searched where a mismatch of the pair may be what moved the metrics.
    """
    if any(mismatch.blocks for mismatch in result.comparison.mismatches):
        return result
    share = 1.0 if result.verdict == "fault" else SEARCH_SHARE
    located = _locate_harm(paired, result, replace(settings, alpha=share * settings.alpha))
    if not located:
        return result
    segments = tuple(replace(item.segment, adjusted=min(1.0, item.segment.adjusted / share)) for item in located)
    text = ". ".join([segments[0].text, *located[0].doubts])
    if result.verdict == "fault":
        return replace(result, sentence=f"{result.sentence} {segments[0].text}.", segments=segments)
    part = bisect_pairs(paired, settings, pair_mask=located[0].pairs)
    if part.verdict != "fault":
        return replace(result, verdict="cannot tell", sentence=f"{result.sentence} {text}.", segments=segments)
    text = f"{part.sentence} {segments[0].text}."
    return replace(result, verdict="fault", sentence=text, faults=part.faults, segments=segments, needed=None)


class LocatedHarm(NamedTuple):
    """A segment in which a metric got worse, and not only as a change without harm."""

    segment: BrokenSegment
    pairs: Mask
    doubts: tuple[str, ...]
    """Why no layer is blamed for it."""


def _locate_harm(paired: PairedRuns, result: Bisection, settings: BisectionSettings) -> list[LocatedHarm]:
    """Return the segments that a drop is confined to, but for those whose answers are not shown to suffer."""
    searched = {c.metric: c for c in result.comparison.changes if c.metric not in RATED_METRICS}
    located = []
    for segment, pairs in search_segments(paired, [*searched.values()], alpha=settings.alpha, seed=settings.seed):
        change = searched[segment.metric]
        state: ChangeState = "dropped" if change.better == "higher" else "rose"
        there = replace(
            change, state=state, difference=segment.difference, n=segment.difference.n, adjusted=segment.adjusted
        )
        weighed = weigh_drops(paired, [there], pairs)
        if not weighed.harmless:
            located.append(LocatedHarm(segment, pairs, weighed.open))
    return located


def _decide_verdict(compared: ComparedMetrics, walk: TreeWalk, faults: Sequence[LayerFault]) -> VerdictSentence:
    """Return verdict and sentence: what stopped the pipeline first, then mismatches of the pair, then the tree."""
    full, failed = compared.full, compared.scope.paired.failed_alone
    blocked = any(mismatch.blocks for mismatch in full.mismatches)
    asides = [mismatch.sentence for mismatch in full.mismatches if not mismatch.blocks or faults]
    asides += [text for text in (describe_unpaired_traces(full, failed),) if text]
    asides += [text for text in (describe_same_answers(full),) if text and not blocked]
    asides += [] if faults else [*describe_unshown_rises(full, ["error"]), *describe_sampled_rises(full)]
    counts = "".join(f" {text[0].upper()}{text[1:]}." for text in asides)
    if faults and _is_fact(faults[0]):
        also = "; ".join(describe_fault_fact(fault) if _is_fact(fault) else fault.title for fault in faults[1:])
        return "fault", f"{describe_fault_fact(faults[0])}.{f' Also: {also}.' if also else ''}{counts}"
    if faults:
        return "fault", f"{_verdict_text(faults, walk, compared.tree)}{counts}"
    if blocked:
        return "cannot tell", f"{describe_blocked(compared.tree, full.mismatches)}{counts}"
    if walk.verdict == "no fault" and (lost := _describe_lost_scores(compared)):
        return "cannot tell", f"The data cannot tell: {lost}.{counts}"
    if walk.verdict == "no fault" and hides_a_fault(full, failed):
        return "cannot tell", f"The data cannot tell: nothing is shown on {full.pairs:,} paired traces.{counts}"
    return walk.verdict, f"{_verdict_text(faults, walk, compared.tree)}{counts}"


def _is_fact(fault: LayerFault) -> bool:
    """Return whether a fault is a share of traces: one of a check of the pipeline or of the operation of a step."""
    return fault.evidence[0].metric in CHECK_METRICS or is_step_metric(fault.evidence[0].metric)


def _describe_lost_scores(compared: ComparedMetrics) -> str | None:
    """Describe the scores that one side lost under answers that may have become bad; None if there are few."""
    paired, pairs = compared.scope.paired, compared.scope.pairs
    safe, excused = mark_unharmed(paired) & pairs, {}
    for change in compared.tree.changes:
        old, new = (np.isfinite(paired.values(change.metric, side)) for side in (0, 1))
        excused[change.metric] = int((safe & old & ~new).sum())
    return describe_uneven_loss(compared.tree.changes, compared.tree.pairs, excused)


def _doubt_edits(compared: ComparedMetrics, decided: VerdictSentence, faults: Sequence[LayerFault]) -> VerdictSentence:
    """Return verdict and sentence; without a fault the data cannot tell where nothing confirms edited figures.

    A fault is no fault of the sources for them; that they are edited is said.
    """
    scope = compared.scope
    edits = describe_unverified_edits(scope.paired, scope.pairs, compared.tree.changes, scope.differences)
    if edits is None or edits in decided[1] or any(fault.layer == "source data" for fault in faults):
        return decided
    if faults:
        return decided[0], f"{decided[1]} {edits}."
    return "cannot tell", f"{decided[1] if decided[0] == 'cannot tell' else 'The data cannot tell:'} {edits}."


def bisect_segments(
    paired: PairedRuns, by: str, settings: BisectionSettings = DEFAULT_BISECTION
) -> list[tuple[str, Bisection]]:
    """Bisect each segment of the pairs by a field of the baseline, the largest first, corrected for their number."""
    segments = split_segments(paired, by)
    shared = replace(settings, alpha=settings.alpha / max(1, len(segments)))
    bisections = []
    for name, mask in segments:
        result = bisect_pairs(paired, shared, pair_mask=mask)
        bisections.append((name, replace(result, comparison=replace(result.comparison, by=by, segment=name))))
    return bisections


def _verdict_text(faults: Sequence[LayerFault], walk: TreeWalk, comparison: Comparison) -> str:
    if faults:
        also = [fault.title for fault in faults[1:]]
        return f"{describe_fault(faults[0])}{f' Also: {chr(59).join(also)}.' if also else ''}"
    if walk.verdict == "no fault":
        return f"{_describe_bound(walk, comparison)}{_describe_gains(comparison)}."
    if walk.undecided is not None:
        begin = f"{describe_change(walk.undecided)}, but the data cannot tell whether retrieval moved with it"
        return f"{begin}{_describe_other_chunks(walk)}."
    if walk.denied_by_gold is not None:
        begin = describe_change(walk.denied_by_gold)
        return f"{begin}, but the gold metrics exclude a loss: the judge and what people marked disagree."
    alone = f" ({comparison.dependence})" if comparison.dependence else ""
    if walk.worst_bound is not None:
        begin, margin = _describe_bound(walk, comparison), walk.worst_bound.margin
        bound = f"The data cannot tell: n{begin[1:]}, which is more than the margin of {margin:g}"
    else:
        least = [c for c in walk.comparison.changes if c.detectable is not None and not walk.excludes(c)]
        if not least:
            few = any(change.n for change in comparison.changes)
            what = "too few to show a change of any size" if few else "on which no metric of the tree is measured"
            return f"The data cannot tell: {format_count(comparison.pairs, 'paired trace')}{alone}, {what}."
        worst = max(least, key=lambda change: change.detectable or 0.0)
        margin = worst.margin
        bound = (
            f"No layer is shown to have broken, and {comparison.pairs:,} paired traces{alone} cannot rule it out: they "
            f"would miss a change of {worst.metric} below {worst.detectable:.2g}"
        )
    need = f"; about {walk.needed:,} would show one of {margin:g}" if walk.needed else ""
    return f"{bound}{need}."


def _describe_bound(walk: TreeWalk, comparison: Comparison) -> str:
    """Describe the largest drop of any metric that is not ruled out."""
    worst, dependence = walk.worst_bound, comparison.dependence
    pairs = f"{comparison.pairs:,} paired traces{f' ({dependence})' if dependence else ''}"
    bound = None if worst is None else bound_drop(worst)
    if worst is None or bound is None:
        return f"No layer broke: on {pairs} no metric dropped by its margin"
    if bound == 0:
        return f"No layer broke: no metric fell on {pairs}"
    return f"No layer broke by more than {format_number(bound)} ({worst.metric}, {pairs}, at 95 %)"


def _describe_other_chunks(walk: TreeWalk) -> str:
    """Describe how a corpus was re-chunked, and that its chunker is to look at first; nothing where it was not."""
    others = {difference.name: difference.text for difference in walk.differences}
    if "ids" not in others or "length" not in others:
        return ""
    return f" ({others['ids']}; {others['length']}). Look at the chunker first"


def describe_fault(fault: LayerFault, unit: str = "paired traces") -> str:
    """Return the sentence of a fault: its layer, its strongest evidence, and where to look.

    A suspect that is improbable beside the others is listed below the sentence, and not in it.
    `unit` names what the changes count: paired traces, or the traces of each of two windows.
    """
    likely = [suspect.stage for suspect in fault.suspects if suspect.probability >= LEAST_PROBABILITY]
    stages = ", ".join(likely or [suspect.stage for suspect in fault.suspects[:1]])
    lead = f"{fault.layer.capitalize()} broke ({fault.title})"
    if fault.title in (FINDS_LESS, RANKS_LOWER):
        lead = f"Retrieval {fault.title}"
    lead = f"{lead}: {describe_change(fault.evidence[0], unit)}"
    return f"{lead}; look at {stages}."


def _describe_gains(comparison: Comparison) -> str:
    """Describe the metric that is most clearly better; nothing where none is."""
    gains = [change for change in comparison.changes if change.verdict == "better"]
    best = min(gains, key=lambda change: (change.adjusted or 0.0, -change.n), default=None)
    return "" if best is None else f"; {describe_change(best)}"
