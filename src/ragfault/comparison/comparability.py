"""Comparability of two runs: what they record differently, which is never called a fault of a layer.

Other queries under the same ids, edited labels, renamed ids, clipped chunk texts, and fields that one side does not
record are mismatches. Metrics that rest on a mismatched field are left out on the pairs concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from ragfault.comparison.decision_tree import RATED_METRICS, describe_change
from ragfault.comparison.pairing import NOT_RECORDED, Mask, RowIndices, RunContents, TracePairing, has_all_texts
from ragfault.comparison.records import Comparison, MetricChange, MismatchKind, PairMismatch, RunDifference
from ragfault.comparison.renamed_ids import RenamedIds, compare_gold
from ragfault.comparison.settings import MARGIN
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.metrics.catalog import get_definitions
from ragfault.stats.significance import mcnemar_test
from ragfault.text.notices import Stretch
from ragfault.text.number_format import format_percent

# stands for every field
EVERYTHING = "everything"
# the texts of the chunks, beside their ids and places
CHUNK_TEXT = "chunk texts"
# the order of the chunks, beside which they are
CHUNK_ORDER = "chunk order"
RANK_METRICS = frozenset((
    "ndcg", "reciprocal_rank", "average_precision", "r_precision", "rbp", "bpref", "context_precision",
    "context_ranking",
))  # fmt: skip
"""Metrics that read the order of the chunks, beside those cut at a depth."""
# the spans of documents in the gold, beside its chunk ids
GOLD_SPANS = "gold spans"
# what citations stand by: a claim that they name, else a sentence of the answer
CITED_CLAIMS = "cited claims"
# the answer with what surrounds what it says, such as a greeting
FULL_ANSWER = "full answer"
PART_METRICS = frozenset(("groundedness", "contradiction", "factual_accuracy", "claim_precision", "completeness"))
"""Metrics that read what an answer says claim by claim, and not the whole of it."""
# what an answer is judged by where there are no facts; a judge sees the chunks as well
ASPECTS = "aspects"
REANCHORED = "gold is re-anchored by text"
# fewer distinct queries show no habit of a logger
LEAST_QUERIES = 5
# of the traces of the baseline; with more of them missing "no fault" is not said
MISSING_SHARE = 0.1
# of the traces of a run; more without a partner are said in the verdict
UNPAIRED_SHARE = 0.05
# share of the pairs; more scores lost in the candidate than gained exclude "no fault"
MAX_NET_LOSS = MARGIN
# for citations, which a system may leave out where there are none; see TREE_SHARE
ASYMMETRY_ALPHA = 0.001


class LocatedMismatch(Struct, frozen=True, eq=False, kw_only=True):
    """Mismatch with the pairs that it concerns."""

    kind: MismatchKind
    # its sentence, with a place for the share of pairs
    text: str
    pairs: Mask
    # field → pairs on which it cannot be compared
    left_out: Mapping[str, Mask] = {}
    blocks: bool = True
    # of the answers of which the stretches are not judged
    side: int | None = None
    # pair → stretches of that answer
    stretches: Mapping[int, tuple[Stretch, ...]] = {}


def find_mismatches(
    contents: tuple[RunContents, RunContents], pairing: TracePairing, renamed: RenamedIds | None
) -> tuple[LocatedMismatch, ...]:
    """Find all mismatches of two paired runs."""
    old, new = contents
    left, right = pairing.baseline, pairing.candidate
    mismatch_items = []
    other = old.queries[left] != new.queries[right]
    if other.any():
        text = "the queries differ on {share} of pairs under the same id: these are not pairs"
        mismatch_items.append(LocatedMismatch(kind="queries", text=text, pairs=other, left_out={EVERYTHING: other}))
    if renamed is not None and renamed.pairs.any():
        text = (
            f"chunks stand under other ids or places with the same text{'' if renamed.same_texts else ', or nearly,'} "
            f"on {{share}} of pairs: {'each run has its own gold' if renamed.has_own_gold else REANCHORED}"
        )
        mismatch_items.append(LocatedMismatch(kind="ids", text=text, pairs=renamed.pairs, blocks=False))
    mismatch_items += _find_missing_fields(old, new, pairing)
    lacking = {field for mismatch in mismatch_items for field in mismatch.left_out}
    mismatch_items += _find_edited_labels(old, new, pairing, renamed, lacking)
    if pairing.other_form.mean() > MARGIN:
        text = (
            "answers differ in Markdown or talk on {share} of pairs, and in nothing else: the form of an answer is not "
            "a fault"
        )
        mismatch_items.append(LocatedMismatch(kind="texts", text=text, pairs=pairing.other_form, blocks=False))
    return tuple(mismatch_items)


def describe_mismatches(
    mismatch_items: Sequence[LocatedMismatch], mask: Mask, metrics: Sequence[str]
) -> tuple[PairMismatch, ...]:
    """Describe the mismatches on some of the pairs, with those of the metrics that are left out there.

    One on no more of the pairs than the margin blocks no verdict: they are left out, and hide no harm beyond it.
    """
    return tuple(
        PairMismatch(
            kind=mismatch.kind,
            pairs=int(mismatch.pairs[mask].sum()),
            share=float(mismatch.pairs[mask].mean()),
            sentence=mismatch.text.format(share=format_percent(float(mismatch.pairs[mask].mean()))),
            left_out=tuple(name for name in metrics if bool(left_out_pairs([mismatch], name)[mask].any())),
            blocks=mismatch.blocks and float(mismatch.pairs[mask].mean()) > MARGIN,
        )
        for mismatch in mismatch_items
        if mismatch.pairs[mask].any()
    )


def left_out_pairs(mismatch_items: Sequence[LocatedMismatch], metric: str) -> Mask:
    """Return the pairs on which a metric cannot be compared, given at least one mismatch."""
    fields = read_fields(metric)
    masks = [pairs for mismatch in mismatch_items for field, pairs in mismatch.left_out.items() if field in fields]
    none: Mask = np.zeros(len(mismatch_items[0].pairs), dtype=bool)
    return np.logical_or.reduce(masks) if masks else none


def read_fields(metric: str) -> frozenset[str]:
    """Return what a metric reads of a trace, every field if nothing is known of it.

    The relevance of an answer may rest on the chunks: some judges look at both. A metric of gold or of operation
    without a verdict reads ids, places or the number of the chunks, not their texts.
    """
    if metric in RATED_METRICS:
        # what surrounds an answer makes it neither right nor bad
        return frozenset({"answer", "chunks", "reference", "facts", CHUNK_TEXT, EVERYTHING})
    definition = get_definitions().get(metric_name(metric).split(" ", 1)[0])
    every = {"query", "history", "chunks", "answer", "citations", "reference", "facts", "gold", CHUNK_TEXT}
    fields = set(every if definition is None else definition.fields)
    if definition is not None and "chunks" in fields:
        without_text = not definition.verdicts and ("gold" in fields or definition.layer == "operation")
        fields |= set() if without_text else {CHUNK_TEXT}
    if definition is not None and "answer" in definition.verdicts:
        fields |= {ASPECTS} if "fact" in definition.verdicts else {"chunks", CHUNK_TEXT}
    if metric_name(metric) in RANK_METRICS or "@" in metric:
        fields |= {CHUNK_ORDER}
    if "answer" in fields and metric_name(metric) not in PART_METRICS:
        fields |= {FULL_ANSWER}
    if definition is not None and "citation" in definition.verdicts:
        fields |= {CITED_CLAIMS}
    if metric.startswith("span_") and "gold" in fields:
        fields = {*fields, GOLD_SPANS} - {"gold"}
    return frozenset({*fields, EVERYTHING})


def rests_on_verdicts(metric: str) -> bool:
    """Return whether a metric rests on verdicts of a judge, as one that is not in the catalogue may."""
    definition = get_definitions().get(metric_name(metric).split(" ", 1)[0])
    return definition is None or bool(definition.verdicts)


class RecordedField(NamedTuple):
    """A field, and the pairs on which each side records it."""

    name: str
    field: str
    recorded: Sequence[Mask]
    among: Mask
    """Pairs on which both sides could record it."""
    is_lacking: Callable[[Sequence[Mask]], bool] = lambda _: True
    """Whether a side lacks it by its record, given where each side records it among these pairs; not because a system
    left it out."""
    is_text: bool = False
    """Whether a judge of aspects needs it for traces without facts."""
    blocks: bool = True


def _is_never_recorded(recorded: Sequence[Mask]) -> bool:
    """Return whether a side never records a field."""
    return not all(side.any() for side in recorded)


def _is_uneven(recorded: Sequence[Mask]) -> bool:
    """Return whether one side records a field far less often than the other."""
    old, new = recorded
    return mcnemar_test(int((old & ~new).sum()), int((new & ~old).sum())) <= ASYMMETRY_ALPHA


def _find_missing_fields(old: RunContents, new: RunContents, pairing: TracePairing) -> list[LocatedMismatch]:
    """Find the pairs on which one side records a field and the other does not."""
    sides = ((old, pairing.baseline), (new, pairing.candidate))
    every = np.ones(len(pairing), dtype=bool)

    def read(name: str) -> list[RowIndices]:
        return [getattr(side, name)[rows] for side, rows in sides]

    def mark(name: str, missing: int = 0) -> list[Mask]:
        return [values != missing for values in read(name)]

    fine = ~np.logical_or(*read("errors"))
    answered = fine & ~np.logical_or(*read("blank"))
    retrieved, cited = (
        np.logical_and(*(values > 0 for values in read(f"{name}_counts"))) for name in ("chunk", "citation")
    )
    texts = [has_all_texts(old, new)[pairing.baseline], has_all_texts(new, old)[pairing.candidate]]
    gold = [np.array([side.gold[row] is not None for row in rows], dtype=bool) for side, rows in sides]
    table = (
        # No metric of the tree reads earlier turns.
        RecordedField("history", "history", mark("histories"), every, blocks=False),
        RecordedField("chunks", "chunks", mark("chunk_counts", NOT_RECORDED), fine, is_text=True),
        RecordedField("chunk texts", CHUNK_TEXT, texts, fine & retrieved, is_text=True),
        RecordedField("answers", "answer", mark("answered"), fine, _is_never_recorded),
        RecordedField(
            "citations",
            "citations",
            mark("citation_counts", NOT_RECORDED),
            answered,
            lambda recorded: _is_never_recorded(recorded) or _is_uneven(recorded),
        ),
        RecordedField("claims and quotes of citations", CITED_CLAIMS, mark("has_quotes"), answered & cited, _is_uneven),
        RecordedField("references", "reference", mark("references"), every, _is_never_recorded),
        RecordedField("facts", "facts", mark("facts"), every, _is_never_recorded),
        RecordedField("gold", "gold", gold, every, _is_never_recorded),
    )
    factless = ~np.logical_and(*mark("facts"))
    return [
        mismatch
        for row in table
        if row.is_lacking([side[row.among] for side in row.recorded])
        for mismatch in _compare_recording(row, factless)
    ]


def _compare_recording(row: RecordedField, factless: Mask) -> Iterator[LocatedMismatch]:
    """Yield the pairs on which one side records a field and the other does not."""
    old, new = row.recorded
    for pairs, side in ((row.among & old & ~new, "candidate"), (row.among & new & ~old, "baseline")):
        if pairs.any():
            verb = "is" if row.name in ("gold", "history") else "are"
            text = f"{row.name} {verb} not recorded in the {side} on {{share}} of pairs"
            left_out = {row.field: pairs}
            left_out |= {ASPECTS: pairs & factless} if row.is_text else {}
            left_out |= {GOLD_SPANS: pairs} if row.field == "gold" else {}
            yield LocatedMismatch(kind="fields", text=text, pairs=pairs, left_out=left_out, blocks=row.blocks)


def _find_edited_labels(
    old: RunContents, new: RunContents, pairing: TracePairing, renamed: RenamedIds | None, lacking: set[str]
) -> list[LocatedMismatch]:
    left, right = pairing.baseline, pairing.candidate
    known = frozenset(key.id for key in old.keys), frozenset(key.id for key in new.keys)
    same = np.array([compare_gold(old.gold[a], new.gold[b], renamed, known) for a, b in zip(left, right, strict=True)])
    masks = {
        "gold": ~same[:, 0],
        GOLD_SPANS: ~same[:, 1],
        "reference": old.references[left] != new.references[right],
        "facts": old.facts[left] != new.facts[right],
    }
    masks = {field: mask for field, mask in masks.items() if mask.any() and field not in lacking}
    if not masks:
        return []
    text = f"labels ({', '.join(masks)}) differ on {{share}} of pairs"
    return [LocatedMismatch(kind="labels", text=text, pairs=np.logical_or.reduce([*masks.values()]), left_out=masks)]


SPOILED_DIFFERENCES = {CHUNK_TEXT: ("texts", "length"), "citations": ("citations",)}
"""Field → the differences between the runs that a mismatch of it makes up."""


def drop_spoiled_differences(
    differences: Sequence[RunDifference], mismatch_items: Sequence[LocatedMismatch]
) -> tuple[RunDifference, ...]:
    """Leave out differences between the runs that are differences of the record."""
    fields = {field for mismatch in mismatch_items for field in mismatch.left_out}
    spoiled = {name for field in fields for name in SPOILED_DIFFERENCES.get(field, ())}
    return tuple(difference for difference in differences if difference.name not in spoiled)


def describe_uneven_loss(changes: Sequence[MetricChange], pairs: int, excused: Mapping[str, int]) -> str | None:
    """Describe the metric whose scores one side lost most; None where no net loss exceeds the share of its margin.

    Lost scores may be the bad ones, so that what is left cannot show that nothing broke. `excused` counts those of each
    metric under answers that did not become bad.
    """
    losses = {change.metric: change.lost[0] - change.lost[1] - excused[change.metric] for change in changes}
    worst = max(changes, key=lambda change: losses[change.metric], default=None)
    if worst is None or losses[worst.metric] <= MAX_NET_LOSS * pairs:
        return None
    return (
        f"{worst.metric} is scored on {worst.lost[0]:,} of {pairs:,} pairs in the baseline only, on {worst.lost[1]:,} "
        "in the candidate only: the scores that are gone may be the bad ones"
    )


def describe_unpaired_traces(comparison: Comparison, failed: tuple[int, int] = (0, 0)) -> str | None:
    """Describe how many traces of the candidate, or of the baseline, have no partner; None where 5 % or less.

    So many of these, of the baseline and of the candidate, `failed`.
    """
    texts = []
    for at, side in ((1, "candidate"), (0, "baseline")):
        total = comparison.pairs + comparison.unpaired[at]
        if comparison.unpaired[at] > UNPAIRED_SHARE * total:
            errors = f" ({failed[at]:,} of them errors or blank answers)" if failed[at] else ""
            texts.append(f"{comparison.unpaired[at]:,} of {total:,} traces of the {side}{errors}")
    return f"{' and '.join(texts)} have no partner and are not compared" if texts else None


def hides_a_fault(comparison: Comparison, failed: tuple[int, int] = (0, 0)) -> bool:
    """Return whether the traces without a partner may hold a fault that the pairs do not show.

    So it is where the candidate has more of them than pairs, where over a tenth of the baseline's traces are missing
    from it, since they may be those that failed, and where over 5 % of its traces failed and have no partner, more
    than of the baseline's.
    """
    missing, extra = comparison.unpaired
    shares = [count / (comparison.pairs + alone) for count, alone in zip(failed, comparison.unpaired, strict=True)]
    return (
        extra > comparison.pairs
        or missing > MISSING_SHARE * (missing + comparison.pairs)
        or shares[1] > UNPAIRED_SHARE + shares[0]
    )


def describe_same_answers(comparison: Comparison) -> str | None:
    """Describe that no answer changed where recorded chunks did; None where it is otherwise."""
    if comparison.same_answers < comparison.pairs or comparison.same_chunks == comparison.pairs:
        return None
    share = format_percent(1 - comparison.same_chunks / comparison.pairs)
    return (
        f"the answers are the same on every pair, although the recorded chunks differ on {share}: either the record of "
        "the chunks changed, or what changed does not reach the answers"
    )


def describe_other_responses(contents: tuple[RunContents, RunContents], pairing: TracePairing) -> str | None:
    """Describe chunks with answers that the baseline gave to other queries alone; None where there are few."""
    responses, asked = [], []
    for side, rows in zip(contents, (pairing.baseline, pairing.candidate), strict=True):
        responses.append(_join_fingerprints(side.chunks[rows], side.answers[rows]))
        asked.append(_join_fingerprints(responses[-1], side.queries[rows]))
    full = (contents[1].chunk_counts > 0) & ~contents[1].blank
    other = full[pairing.candidate] & np.isin(responses[1], responses[0]) & ~np.isin(asked[1], asked[0])
    if other.sum() < max(LEAST_QUERIES, MAX_NET_LOSS * len(other)):
        return None
    share = format_percent(float(np.mean(other)))
    return (
        f"On {share} of pairs chunks and answer are together those that the baseline gave to another query: look at a "
        "cache of answers"
    )


def _join_fingerprints(first: RowIndices, second: RowIndices) -> RowIndices:
    """Return a fingerprint of each row of two columns of fingerprints."""
    return first * np.int64(0x2545F4914F6CDD1D) + second


def describe_blocked(comparison: Comparison, mismatches: Sequence[PairMismatch]) -> str:
    """Describe why the runs cannot be compared in full, and what is left to compare."""
    reasons = [mismatch for mismatch in mismatches if mismatch.blocks]
    lead = "; ".join(mismatch.sentence for mismatch in reasons)
    lead = f"Not comparable: {lead}."
    if not any(change.n for change in comparison.changes) and any(
        reason.kind == "queries" and reason.share == 1 for reason in reasons
    ):
        return lead
    same_chunks, same_answers = (n == comparison.pairs for n in (comparison.same_chunks, comparison.same_answers))
    if same_chunks and same_answers:
        return f"{lead} Nothing else changed: chunks and answers are the same on every pair."
    if same_answers:
        return f"{lead} The answers are the same on every pair, which excludes generation."
    measured = any(change.n for change in comparison.changes)
    left = "The rest shows no fault." if measured else "No metric of the tree is left to compare."
    dropped = [change for change in comparison.changes if change.state == "dropped"]
    if dropped:
        worst = min(dropped, key=lambda change: change.adjusted or 0.0)
        left = f"{describe_change(worst)}, but what is left to compare cannot tell the layer."
    return (
        f"{lead} The chunks are the same on every pair, which excludes retrieval. {left}"
        if same_chunks
        else f"{lead} {left}"
    )
