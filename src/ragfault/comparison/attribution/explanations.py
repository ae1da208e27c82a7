"""What explains answers that say less other than a fault of generation: texts that say less."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ragfault.comparison.attribution.edited_sources import find_edited_pairs
from ragfault.comparison.attribution.pair_scope import PairScope
from ragfault.comparison.attribution.second_faults import is_lost_with_chunks
from ragfault.comparison.decision_tree import GRADES, TreeWalk, describe_change
from ragfault.diagnosis.score_matrix import metric_name

VerdictSentence = tuple[Literal["fault", "no fault", "cannot tell"], str]


class PairedDrop(NamedTuple):
    """A drop between two runs: the walk over some of their pairs that found it."""

    scope: PairScope
    walk: TreeWalk


def explain_by_texts(drop: PairedDrop, edits: str | None) -> VerdictSentence | None:
    """Return verdict and sentence where answers say less, or leave the question, only on other texts; None elsewhere.

    Answers may follow sources that state less. Without gold a judge sees that chunks are less relevant, and hardly that
    they lack what was asked for. Groundedness and citations are judged against the chunks, whatever these say.
    """
    scope, walk = drop
    lost = walk.faults[0].evidence[0] if walk.faults else None
    if lost is None or metric_name(lost.metric) not in GRADES:
        return None
    begin = f"No layer is shown to have broken: {describe_change(lost)}, but"
    if edits and scope.find_drop_within(lost.metric, find_edited_pairs(scope.paired)):
        return "cannot tell", f"{begin} {edits}."
    if (walk.has_gold and walk.retrieval_steady) or not is_lost_with_chunks(scope, lost):
        return None
    return "cannot tell", f"{begin} only where other chunks were retrieved. Look at retrieval first."
