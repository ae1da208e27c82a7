"""Texts that changed under the same chunk ids: which faults they explain, and what cannot be known without a key."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from ragfault.comparison.attribution.pair_scope import PairScope
from ragfault.comparison.decision_tree import BRANCHES, EQUAL_DEPTH, TreeWalk
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.pairing import Mask
from ragfault.comparison.records import BranchDecision, BranchOutcome, LayerFault, MetricChange, RunDifference
from ragfault.comparison.stages.paired_traces import LEAST_SHARE
from ragfault.comparison.stages.text_evidence import DAMAGES, collect_words, describe_text_change, share_common_words
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.text.entities import extract_literals
from ragfault.text.number_format import format_percent

# measured where there is an answer key
KEY_METRICS = ("factual_accuracy", "context_recall")
SOURCE_BRANCH = next(branch for branch in BRANCHES if branch.layer == "source data")
GENERATION_BRANCH = next(branch for branch in BRANCHES if branch.name == "2 generation")
# share of its words that an edited text keeps
LEAST_COMMON = 0.5
FIGURE = re.compile(r"\d+")


def find_edited_pairs(paired: PairedRuns) -> Mask:
    """Return the pairs on which the candidate retrieved every chunk id of the baseline, some with an edited text.

    An id that stands for several texts in one run names a place in a list and no passage. A text that keeps less than
    half of its words is another passage.
    """
    states = {name: _is_edited(*both) for name, both in paired.passages.items()}
    pairs = [
        set(before) <= set(after) and _hold_edits([states.get(name, False) for name in before])
        for before, after in zip(paired.list_ids(0), paired.list_ids(1), strict=True)
    ]
    return np.array(pairs, dtype=bool)


def _hold_edits(states: Sequence[bool | None]) -> bool:
    return True in states and False not in states


def find_replaced_ids(paired: PairedRuns) -> set[str]:
    """Return the ids that name a place in a list, or another passage in each run, and no passage that was edited."""
    texts = paired.passages
    old, new = ({key.id for key in contents.keys} for contents in paired.contents)
    return {name for name in old & new if name not in texts or _is_edited(*texts[name]) is False}


def find_damaged_pairs(paired: PairedRuns) -> Mask:
    """Return the pairs on which a chunk that the baseline's answer draws on is retrieved again with a damaged text."""
    known = collect_words(before for before, _ in paired.passages.values())
    damaged = {
        name
        for name, (before, after) in paired.passages.items()
        if before != after and describe_text_change(before, after, known) & DAMAGES
    }
    used = [[use.used for use in verdicts.use or ()] for verdicts in paired.runs[0].verdicts()]
    rows = zip(paired.paired_rows(0).tolist(), paired.list_ids(0), paired.list_ids(1), strict=True)
    pairs = []
    for row, before, after in rows:
        read = {name for name, is_used in zip(before, used[row], strict=False) if is_used}
        pairs.append(bool(read & set(after) & damaged))
    return np.array(pairs, dtype=bool)


def _is_edited(before: str, after: str) -> bool | None:
    """Return whether a text was edited; None where it is the same, False where another one took its place."""
    if before == after:
        return None
    return share_common_words(before, after) >= LEAST_COMMON


def place_by_texts(scope: PairScope, fault: LayerFault) -> LayerFault:
    """Assign a fault to the layer that the texts of the chunks speak for; return it as it is where they do not."""
    if fault.layer == "source data":
        return _place_contradictions(scope, fault)
    if fault.layer == "generation" and fault.branch[0] in "46":
        damaged = _place_damages(scope, fault)
        if damaged is not fault:
            return damaged
    if metric_name(fault.evidence[0].metric) in ("completeness", "context_recall", EQUAL_DEPTH):
        return _place_lost_facts(scope, fault)
    return fault


def _place_contradictions(scope: PairScope, fault: LayerFault) -> LayerFault:
    """Assign a fault to generation where answers contradict the key from the same chunks, or with unsupported claims.

    The sources are not the cause on pairs whose chunks did not change, nor of claims that the chunks do not support.
    """
    metric, cause = fault.evidence[0].metric, "from the same chunks"
    [change] = scope.find_drops([metric], scope.paired.pairing.same_chunks)
    if change is None:
        cause = "with claims that their chunks do not support"
        if scope.find_drop_within(metric, _find_false_claims(scope.paired)) is None:
            return fault
    return replace(
        fault,
        layer="generation",
        branch=GENERATION_BRANCH.name,
        differences=(),
        evidence=fault.evidence if change is None else (change,),
        title=f"the answers contradict the answer key {cause}",
        remedies=GENERATION_BRANCH.remedies,
    )


def _find_false_claims(paired: PairedRuns) -> Mask:
    """Return the pairs on which either answer contradicts the key with a claim that its chunks do not support."""
    sides: list[Mask] = []
    for run, rows in zip(paired.runs, (paired.pairing.baseline, paired.pairing.candidate), strict=True):
        states = []
        for verdicts in run.verdicts():
            supported = {claim.claim for claim in verdicts.claim or () if claim.support == "supported"}
            false = {claim.claim for claim in verdicts.truth or () if claim.status == "contradicted"}
            states.append(bool(false - supported))
        sides.append(np.array(states, dtype=bool)[rows])
    return sides[0] | sides[1]


def _place_damages(scope: PairScope, fault: LayerFault) -> LayerFault:
    """Assign a fault to the source data where answers got worse on damaged texts, and are not shown to have elsewhere.

    Words in another order or damaged characters leave every metric of retrieval as it was, and an answer repeats them.
    """
    change = scope.find_drop_within(fault.evidence[0].metric, find_damaged_pairs(scope.paired))
    if change is None:
        return fault
    return replace(
        fault,
        layer="source data",
        branch=SOURCE_BRANCH.name,
        evidence=(change,),
        differences=(),
        title="the texts of the chunks are damaged",
        remedies=("read chunks of the example traces, before and after", "index again with the loader as it was"),
    )


def _place_lost_facts(scope: PairScope, fault: LayerFault) -> LayerFault:
    """Assign a fault to the source data where the facts of the key left the texts under the same chunk ids.

    Facts and the metric of the fault must both be lost where texts changed, and the metric must not be shown to have
    dropped elsewhere; that of an answer not where its chunks hold as many facts as before, whichever chunks they are:
    an answer is cut short also where its chunks lost nothing.
    """
    metric, facts, edited = fault.evidence[0].metric, _name_facts(scope.paired), find_edited_pairs(scope.paired)
    if facts is None:
        return fault
    names = [metric, facts] if metric_name(metric) == "completeness" else [facts, metric]
    dropped = scope.find_drops(list(dict.fromkeys(names)), edited)
    affected = edited
    if metric_name(metric) == "completeness":
        affected = scope.paired.values(facts, 1) < scope.paired.values(facts, 0)
    if None in dropped or scope.find_drops([metric], ~affected) != [None]:
        return fault
    return _blame_lost_facts([change for change in dropped if change is not None], fault.differences)


def find_lost_facts(scope: PairScope) -> LayerFault | None:
    """Return the fault of sources whose texts lost facts of the key under the same chunk ids; None where none is shown.

    Neither the answers nor the ranking can be the cause: only texts are read, and only on pairs on which every chunk
    of the baseline is retrieved again.
    """
    facts = _name_facts(scope.paired)
    [change] = [None] if facts is None else scope.find_drops([facts], find_edited_pairs(scope.paired))
    return None if change is None else _blame_lost_facts([change], [d for d in scope.differences if d.name == "texts"])


def _name_facts(paired: PairedRuns) -> str | None:
    """Return the metric for the share of the key's facts that the chunks hold, as the runs name it."""
    return next((name for name in paired.shared_names() if metric_name(name) == "context_recall"), None)


def _blame_lost_facts(evidence: Sequence[MetricChange], differences: Sequence[RunDifference]) -> LayerFault:
    return SOURCE_BRANCH.build_fault(evidence, differences, "facts of the answer key left the sources")


def settle_decisions(walk: TreeWalk, faults: Sequence[LayerFault], doubt: str) -> list[BranchDecision]:
    """Return the decisions of a walk after its faults were placed in other branches, added to, or withdrawn.

    `doubt` is why one was withdrawn.
    """
    titles = {fault.branch: fault.title for fault in reversed(faults)}
    known = {fault.branch for fault in walk.faults}
    reason = doubt or (f", which {faults[0].title} explains" if faults else "")

    def settle(decision: BranchDecision) -> BranchDecision:
        if decision.branch in titles.keys() - known:
            return replace(decision, outcome="fault", why=titles[decision.branch])
        if decision.branch in known - titles.keys():
            outcome: BranchOutcome = "cannot tell" if doubt else "not reached"
            return replace(decision, outcome=outcome, why=f"{decision.why}{reason}")
        if decision.outcome == "not reached" and faults and not known <= titles.keys():
            return replace(decision, why=f"{faults[0].title} explains it first")
        return decision

    return list(map(settle, walk.decisions))


def _state_figures(text: str) -> tuple[list[str], frozenset[str]]:
    """Return the figures of a text in order, and its quantities with their units and currencies."""
    return FIGURE.findall(text), frozenset(extract_literals(text))


def describe_unverified_edits(
    paired: PairedRuns, pair_mask: Mask | None, changes: Sequence[MetricChange], differences: Sequence[RunDifference]
) -> str | None:
    """Describe other figures or units in texts under the same ids, which no answer key confirms; else None."""
    if all(difference.name != "texts" for difference in differences):
        return None
    if any(change.n and metric_name(change.metric) in KEY_METRICS for change in changes):
        return None
    places = range(len(paired.pairing)) if pair_mask is None else np.flatnonzero(pair_mask).tolist()
    ids = [{name for at in places for name in lists[at]} for lists in map(paired.list_ids, (0, 1))]
    both = [texts for name, texts in paired.passages.items() if name in ids[0] & ids[1]]
    other = sum(bool(_is_edited(*texts)) and operator.ne(*map(_state_figures, texts)) for texts in both)
    if not both or other < LEAST_SHARE * len(both):
        return None
    return (
        f"{format_percent(other / len(both))} of the chunks that both runs retrieved under one id differ in their "
        "figures or units, and without an answer key nothing tells which are right"
    )
