"""Texts that changed under the same chunk ids: which faults they explain, and what cannot be known without a key."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from ragfault.comparison.attribution.pair_scope import PairScope
from ragfault.comparison.decision_tree import BRANCHES, EQUAL_DEPTH
from ragfault.comparison.paired_runs import PairedRuns
from ragfault.comparison.pairing import Mask, load_texts
from ragfault.comparison.records import BranchDecision, LayerFault, MetricChange, RunDifference
from ragfault.comparison.stages.paired_traces import LEAST_SHARE, read_pairs
from ragfault.comparison.stages.text_evidence import (
    DAMAGES,
    collect_words,
    describe_text_change,
    find_changed_texts,
    share_common_words,
)
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
    texts = _read_passages(paired)
    passages = texts.keys()
    edited = np.zeros(len(paired.pairing), dtype=bool)
    if not passages:
        return edited
    states_by_id = {name: _is_edited(*both) for name, both in texts.items()}
    old, new = paired.contents
    rows = zip(paired.pairing.baseline.tolist(), paired.pairing.candidate.tolist(), strict=True)
    for at, (left, right) in enumerate(rows):
        before = {old.keys[place].id for place in old.trace_keys[left]}
        after = {new.keys[place].id for place in new.trace_keys[right]}
        states = [states_by_id.get(name) for name in before]
        edited[at] = before <= after and before <= passages and True in states and False not in states
    return edited


def find_replaced_ids(paired: PairedRuns) -> set[str]:
    """Return the ids that name a place in a list, or another passage in each run, and no passage that was edited."""
    texts = _read_passages(paired)
    ids = [{key.id for key in contents.keys} for contents in paired.contents]
    differing = {old.id for old in paired.contents[0].keys} & ids[1]
    return {name for name in differing if name not in texts or _is_edited(*texts[name]) is False}


def find_damaged_pairs(paired: PairedRuns) -> Mask:
    """Return the pairs on which a chunk that the baseline's answer draws on is retrieved again with a damaged text."""
    texts = _read_passages(paired)
    known = collect_words(before for before, _ in texts.values())
    damaged = {
        name
        for name, (before, after) in texts.items()
        if before != after and describe_text_change(before, after, known) & DAMAGES
    }
    old, new = paired.contents
    used = [[use.used for use in verdicts.use or ()] for verdicts in paired.runs[0].verdicts()]
    rows = zip(paired.pairing.baseline.tolist(), paired.pairing.candidate.tolist(), strict=True)
    pairs = []
    for left, right in rows:
        places = old.trace_keys[left]
        read = {old.keys[at].id for at, is_used in zip(places, used[left], strict=False) if is_used}
        after = {new.keys[at].id for at in new.trace_keys[right]}
        pairs.append(bool(read & after & damaged))
    return np.array(pairs, dtype=bool)


def _read_passages(paired: PairedRuns) -> dict[str, tuple[str, str]]:
    """Return the texts of both runs by chunk id, white space normalized, for ids that stand for one text in each."""
    ids = [Counter(key.id for key in contents.keys) for contents in paired.contents]
    passages = {name for name, count in ids[0].items() if count == 1 == ids[1][name]}
    if not passages:
        return {}
    old, new = (load_texts(run, passages) for run in paired.runs)
    return {name: (old.get(name, ""), new.get(name, "")) for name in passages}


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


def move_decision(tree: Sequence[BranchDecision], old: LayerFault, new: LayerFault) -> list[BranchDecision]:
    """Return the decisions of the tree after a fault was assigned to another branch."""
    if old.branch == new.branch:
        return list(tree)
    moved = []
    for decision in tree:
        if decision.branch == new.branch:
            why = f"{new.evidence[0].metric} dropped: {new.title}"
            moved.append(replace(decision, outcome="fault", why=why))
        elif decision.branch == old.branch:
            why = f"{old.evidence[0].metric} dropped, and {new.title} explains it"
            moved.append(replace(decision, outcome="not reached", why=why))
        else:
            why = decision.why.replace(f"{old.title} explains", f"{new.title} explains")
            moved.append(replace(decision, why=why))
    return moved


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
    texts = find_changed_texts(read_pairs(paired, pair_mask))
    other = sum(bool(_is_edited(*both)) and operator.ne(*map(_state_figures, both)) for both in texts.changed)
    if not texts.shared or other < LEAST_SHARE * texts.shared:
        return None
    return (
        f"{format_percent(other / texts.shared)} of the chunks that both runs retrieved under one id differ in their "
        "figures or units, and without an answer key nothing tells which are right"
    )
