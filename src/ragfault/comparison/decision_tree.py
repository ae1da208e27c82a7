"""The decision tree that names the faulty layer from the metric changes of a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from ragfault.comparison.records import BranchDecision, BranchOutcome, LayerFault, MetricChange, RunDifference
from ragfault.comparison.stages.ranking import rank_suspects
from ragfault.diagnosis.score_matrix import metric_name
from ragfault.stats.distributions import t_quantile
from ragfault.text.number_format import format_number, format_signed, has_too_few

EQUAL_DEPTH = "context_relevance at equal depth"
"""context_relevance over as many chunks as both runs retrieved: a longer list alone does not lower it."""

# metrics of retrieval by gold labels
RECALL_METRICS = ("recall", "span_recall")
GOLD_METRICS = ("recall", "ndcg", "span_recall")

TREE_METRICS = (
    *GOLD_METRICS,
    "context_recall",
    "groundedness",
    "factual_accuracy",
    "completeness",
    "chunk_attribution",
    "citation_validity",
    "answer_relevance",
)
"""The metrics that the tree reads."""

RIGHT_ANSWERS = "right_answers"
"""The probability that an answer is right, by the answer key, the record, else the judge: the harm of any fault."""
BAD_ANSWERS = "bad_answers"
"""Whether an answer is bad, on the pairs with the same chunks: harm that only generation can have done."""
RATED_METRICS = (RIGHT_ANSWERS, BAD_ANSWERS)
GRADES = ("completeness", "answer_relevance")
"""Metrics that grade an answer: a fall is a fault only if answers became bad, and else a change of what answers say."""
WORDED_METRICS = (*GRADES, "factual_accuracy")
"""Metrics that a judge reads off the wording of query, key and answer. They vary with it where answers are as good, so
that harm is bounded by `RIGHT_ANSWERS` in their place."""

COST_METRICS = ("context_relevance", "chunk_utilization")
"""Metrics that fall with a longer list of chunks: a change of cost, and never a fault."""

# fewer rule nothing out, also where nothing differs on them
LEAST_PAIRS = 10
BOUND_LEVEL = 0.95
"""Confidence of the bound on a drop."""
# by so much more copies among the retrieved texts, lists hold fewer passages
MAX_COPIES = 0.05

RETRIEVER_STAGES = (
    "chunker", "embedder", "index", "index coverage", "reranker", "filter", "top-k", "score threshold",
    "query rewriter", "ingestion", "deduplication", "source documents",
)  # fmt: skip
GENERATION_STAGES = (
    "model", "prompt", "prompt assembly", "decoding", "max tokens", "refusal wording", "output schema", "answer cache",
)  # fmt: skip
SOURCE_STAGES = ("source documents", "ingestion", "index", "chunker")


STAGE_REMEDIES = {
    "max tokens": "raise the token limit of the answer",
    "refusal wording": "relax the refusal instructions of the prompt",
}
"""Stage → the remedy that is meant for it alone."""


def order_remedies(remedies: Sequence[str], stages: Sequence[str]) -> tuple[str, ...]:
    """Order the remedies of a fault by its suspected stages: that of the first comes first, those of no suspect last.

    >>> order_remedies(("raise the token limit of the answer", "lower the temperature"), ["refusal wording", "prompt"])
    ('relax the refusal instructions of the prompt', 'lower the temperature', 'raise the token limit of the answer')
    """
    first = [STAGE_REMEDIES[stage] for stage in stages[:1] if stage in STAGE_REMEDIES]
    unsuspected = {remedy for stage, remedy in STAGE_REMEDIES.items() if stage not in stages}
    return (*first, *sorted((remedy for remedy in remedies if remedy not in first), key=unsuspected.__contains__))


def select_tree_metrics(metrics: Iterable[str]) -> list[str]:
    """Select the metrics that the tree reads, the first of each name.

    >>> select_tree_metrics(["recall@5", "recall@10", "latency"])
    ['recall@5']
    """
    selected: dict[str, str] = {}
    for metric in metrics:
        name = metric_name(metric)
        if name == EQUAL_DEPTH or name in TREE_METRICS:
            selected.setdefault(name, metric)
    return list(selected.values())


class TreeBranch(Struct, frozen=True, kw_only=True):
    """Branch of the tree: when it matches, the layer at fault, and the remedies."""

    name: str
    layer: Literal["retrieval", "generation", "source data"]
    title: str
    # return the changes that make the branch match; empty: no match
    match: Callable[[TreeWalk], list[MetricChange]]
    # the metrics it rests on
    reads: tuple[str, ...]
    # stages of the pipeline in which the fault usually lies
    stages: tuple[str, ...]
    # names of the run differences that point to it
    differences: tuple[str, ...]
    remedies: tuple[str, ...]

    def build_fault(
        self, evidence: Iterable[MetricChange], differences: Iterable[RunDifference] = (), title: str | None = None
    ) -> LayerFault:
        """Build the fault of this branch, with the suspects that are usual where there is no other evidence."""
        return LayerFault(
            layer=self.layer,
            branch=self.name,
            title=title or self.title,
            evidence=tuple(evidence),
            suspects=rank_suspects(self.stages, ()),
            remedies=self.remedies,
            differences=tuple(differences),
        )


class ComparisonView(Protocol):
    """Part of a comparison that a walk reads."""

    @property
    def changes(self) -> tuple[MetricChange, ...]: ...
    @property
    def pairs(self) -> int: ...
    @property
    def same_chunks(self) -> int: ...
    @property
    def same_answers(self) -> int: ...


class TreeWalk:
    """Walk through the tree over the changes of one comparison.

    With `retrieval_unaffected`, the pairs are those whose retrieval did not get worse: retrieval counts as steady.
    """

    def __init__(
        self, comparison: ComparisonView, differences: Sequence[RunDifference], *, retrieval_unaffected: bool = False
    ) -> None:
        self.comparison, self.differences, self.retrieval_unaffected = comparison, differences, retrieval_unaffected
        self.changes = {metric_name(change.metric): change for change in comparison.changes}
        self.faults: list[LayerFault] = []
        self.decisions: list[BranchDecision] = []
        self.undecided: MetricChange | None = None
        for branch in BRANCHES:
            self._evaluate(branch)
        self.decisions.sort(key=lambda ruling: ruling.branch)

    def state_of(self, name: str) -> str | None:
        """Return the state of a metric; None where no pair measures it."""
        change = self.changes.get(name)
        return change.state if change is not None and change.n else None

    def dropped(self, *names: str) -> list[MetricChange]:
        """Return those of the metrics that dropped."""
        return [self.changes[name] for name in names if self.state_of(name) == "dropped"]

    def excludes(self, change: MetricChange) -> bool:
        """Return whether a fault that shows in a metric is ruled out."""
        return excludes_drop(change) or excludes_harm(change, self.changes.get(RIGHT_ANSWERS))

    @property
    def bounded(self) -> list[MetricChange]:
        """Return the measured changes that a bound on harm is on: right answers in place of worded metrics."""
        known = [change for change in self.comparison.changes if change.n]
        if self.state_of(RIGHT_ANSWERS) is None:
            return known
        return [change for change in known if metric_name(change.metric) not in WORDED_METRICS]

    @property
    def has_gold(self) -> bool:
        """Return whether a gold metric measures retrieval."""
        return any(self.state_of(name) is not None for name in GOLD_METRICS)

    @property
    def denied_by_gold(self) -> MetricChange | None:
        """Return the drop of the judged relevance at equal depth where every gold metric excludes a loss.

        A judge that compares words finds the chunks of one retriever more relevant than those of another that finds as
        much of what people marked.
        """
        gold = [self.changes[name] for name in GOLD_METRICS if self.state_of(name) is not None]
        judged = self.dropped(EQUAL_DEPTH)
        return judged[0] if judged and gold and all(map(excludes_drop, gold)) else None

    @property
    def retrieval_down(self) -> list[MetricChange]:
        """Return the changes that show a fault of retrieval; the same chunks on every pair, or gold, exclude one."""
        if self.comparison.same_chunks == self.comparison.pairs or self.denied_by_gold is not None:
            return []
        changes = self.dropped(*GOLD_METRICS, EQUAL_DEPTH)
        if not changes and not self.has_gold and not self.dropped("factual_accuracy"):
            changes = self.dropped("context_recall")
        return changes

    @property
    def retrieval_steady(self) -> bool:
        """Return whether retrieval is shown not to have dropped: the same chunks, or every metric steady or better."""
        if self.retrieval_unaffected or self.comparison.same_chunks == self.comparison.pairs:
            return True
        known = [self.changes[name] for name in (*GOLD_METRICS, EQUAL_DEPTH) if self.state_of(name) is not None]
        return bool(known) and all(map(excludes_drop, known))

    @property
    def fewer_chunks(self) -> bool:
        """Return whether the candidate retrieved fewer chunks, or copies, and gold does not show that none was lost."""
        known = [self.changes[name] for name in GOLD_METRICS if self.state_of(name) is not None]
        fell = any(d.name == "depth" and (d.candidate or 0.0) < (d.baseline or 0.0) for d in self.differences)
        fell |= any(difference.name == "copies" and _rise(difference) >= MAX_COPIES for difference in self.differences)
        return fell and not self.retrieval_unaffected and not (known and all(map(excludes_drop, known)))

    @property
    def verdict(self) -> Literal["fault", "no fault", "cannot tell"]:
        """Return the verdict: a fault, no fault, or that the data cannot tell."""
        if self.faults:
            return "fault"
        if self.comparison.pairs < LEAST_PAIRS:
            return "cannot tell"
        return "no fault" if self.bounded and all(map(excludes_drop, self.bounded)) else "cannot tell"

    @property
    def worst_bound(self) -> MetricChange | None:
        """Return the change with the largest drop that is not ruled out; None if one has no bound."""
        bounds = [bound_drop(change) for change in self.bounded]
        if not bounds or None in bounds or self.comparison.pairs < LEAST_PAIRS:
            return None
        return max(self.bounded, key=lambda change: bound_drop(change) or 0.0)

    @property
    def needed(self) -> int | None:
        """Return about how many pairs would decide, where these cannot."""
        if self.verdict != "cannot tell":
            return None
        unsure = [change for change in self.bounded if not excludes_drop(change)]
        return max((change.needed for change in unsure if change.needed is not None), default=None)

    def _evaluate(self, branch: TreeBranch) -> None:
        """Evaluate one branch: record a fault if it is the first to match, else the reason why not."""
        measured = [name for name in branch.reads if self.state_of(name) is not None]
        if not measured:
            why = f"{', '.join(branch.reads)} not measured"
            self._record(branch, "not measured", why)
            return
        evidence = branch.match(self)
        if evidence and branch.layer == "generation" and self.comparison.same_answers == self.comparison.pairs:
            states = "; ".join(_state_text(change) for change in evidence)
            self._record(branch, "ruled out", f"{states}, but both runs gave the same answers")
        elif evidence and self.faults:
            self._record(branch, "not reached", f"{self.faults[0].title} explains it first")
        elif evidence and branch.layer != "retrieval" and not self._is_separable(evidence):
            self.undecided = self.undecided or evidence[0]
            self._record(branch, "cannot tell", "the data cannot tell whether retrieval moved with it")
        elif evidence:
            strength = sorted(
                evidence,
                key=lambda change: (metric_name(change.metric) not in GOLD_METRICS, change.p or 0.0, change.metric),
            )
            own = [difference for difference in self.differences if difference.name in branch.differences]
            self.faults.append(branch.build_fault(strength, own))
            self._record(branch, "fault", "; ".join(_state_text(change) for change in evidence))
        else:
            states = "; ".join(_state_text(self.changes[name]) for name in measured)
            if self.dropped(*measured):
                self._decide_explained(branch, states)
                return
            unsure = not all(self.excludes(self.changes[name]) for name in measured)
            if branch is BRANCHES[0] and not unsure and self.fewer_chunks and self.verdict != "no fault":
                unsure, states = True, f"{states}, but fewer chunks are retrieved, or more copies"
            self._record(branch, "cannot tell" if unsure else "ruled out", states)

    def _decide_explained(self, branch: TreeBranch, text: str) -> None:
        """Record a branch whose metrics dropped although it does not match."""
        if branch.layer == "retrieval" and self.comparison.same_chunks == self.comparison.pairs:
            self._record(branch, "ruled out", f"{text}, but both runs retrieved the same chunks")
        elif branch is BRANCHES[0]:
            why = "gold shows no loss" if self.denied_by_gold is not None else "no other metric shows a loss"
            self._record(branch, "cannot tell", f"{text}; {why}")
        else:
            self._record(branch, "not reached", f"{text}, which an earlier branch explains")

    def _is_separable(self, evidence: Sequence[MetricChange]) -> bool:
        """Return whether a drop is not retrieval's: it is steady, or none of its metrics worsened as strongly.

        Fewer chunks may hold less of what an answer says, also where the first of them are as relevant as before.
        """
        if self.fewer_chunks:
            return False
        if self.retrieval_steady:
            return True
        strongest = min(change.p if change.p is not None else 1.0 for change in evidence)
        leaning = [
            change
            for name in (*GOLD_METRICS, EQUAL_DEPTH)
            if (change := self.changes.get(name)) is not None
            and change.difference is not None
            and change.difference.mean < -change.margin
        ]
        return all((change.p or 0.0) > max(0.05, 10 * strongest) for change in leaning)

    def _record(self, branch: TreeBranch, outcome: BranchOutcome, reason: str) -> None:
        if outcome == "ruled out" and self.comparison.pairs < LEAST_PAIRS:
            outcome, reason = "cannot tell", f"{reason}, on too few pairs to rule it out"
        self.decisions.append(BranchDecision(branch=branch.name, layer=branch.layer, outcome=outcome, why=reason))


def excludes_drop(change: MetricChange) -> bool:
    """Return whether a drop of the margin or more is ruled out: steady, better, or a bound within it."""
    if change.verdict in ("steady", "better"):
        return True
    bound = bound_drop(change)
    return change.state == "cannot tell" and bound is not None and bound < change.margin


def excludes_harm(change: MetricChange, right: MetricChange | None) -> bool:
    """Return whether a metric is a worded one, and a loss of right answers is ruled out."""
    return right is not None and bool(right.n) and metric_name(change.metric) in WORDED_METRICS and excludes_drop(right)


def bound_drop(change: MetricChange) -> float | None:
    """Return the largest change for the worse not ruled out at 95 %, at least 0; None if the pairs give no bound.

    It is one-sided, by Student's t with the error by cluster, as the gate's; the largest of the bounds of several
    metrics needs no correction, because each would have to hold.
    """
    difference = change.difference
    if change.identical:
        return 0.0
    if difference is None or has_too_few(difference) or not math.isfinite(difference.error):
        return None
    sign, end = (1.0, -difference.low) if change.better == "higher" else (-1.0, difference.high)
    bound = t_quantile(BOUND_LEVEL, difference.df) * difference.error - sign * difference.center
    # that end of the interval is cut at what the range allows
    return max(0.0, min(bound, end))


def describe_change(change: MetricChange, unit: str = "paired traces") -> str:
    """Describe a change: how far the metric fell or rose, its interval in that direction, on how many pairs, and p."""
    assert change.difference is not None
    sign = math.copysign(1.0, change.difference.mean)
    low, high = sorted(sign * end + 0.0 for end in (change.difference.low, change.difference.high))
    p = change.adjusted if change.adjusted is not None else 1.0
    word = {"dropped": "fell", "rose": "rose"}.get(change.state, "moved")
    shown = f"p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}"
    return (
        f"{change.metric} {word} by {format_number(abs(change.difference.mean))} "
        f"[{format_number(low)}, {format_number(high)}] on {change.n:,} {unit} ({shown})"
    )


def _rise(difference: RunDifference) -> float:
    return (difference.candidate or 0.0) - (difference.baseline or 0.0)


def _state_text(change: MetricChange) -> str:
    if change.difference is None:
        return f"{change.metric} not measured"
    same = " (identical)" if change.identical else ""
    return f"{change.metric} {change.state}{same} {format_signed(change.difference.mean)}"


def _match_grounded(*names: str) -> Callable[[TreeWalk], list[MetricChange]]:
    return lambda walk: [] if walk.dropped("groundedness") else walk.dropped(*names)


BRANCHES: tuple[TreeBranch, ...] = (
    TreeBranch(
        name="1 retrieval",
        layer="retrieval",
        title="the wrong chunks are retrieved",
        match=lambda walk: walk.retrieval_down,
        reads=(*GOLD_METRICS, EQUAL_DEPTH, "context_recall"),
        stages=RETRIEVER_STAGES,
        differences=("ids", "length", "documents", "copies", "depth"),
        remedies=(
            "compare the chunks of the example traces, before and after",
            "revert the last change to the chunker, embedder, index, reranker or filter",
            "use hybrid search (keywords and vectors), then rerank",
        ),
    ),
    TreeBranch(
        name="2 generation",
        layer="generation",
        title="the answers are less grounded in the chunks",
        match=lambda walk: walk.dropped("groundedness"),
        reads=("groundedness",),
        stages=("model", "prompt", "decoding", "prompt assembly"),
        differences=("model", "answers"),
        remedies=(
            "require a citation for each claim",
            "constrain generation to the chunks in the prompt",
            "lower the temperature",
            "verify the answer and drop claims that fail",
        ),
    ),
    TreeBranch(
        name="3 source data",
        layer="source data",
        title="the sources contradict the answer key",
        match=_match_grounded("factual_accuracy"),
        reads=("factual_accuracy",),
        stages=("source documents", "ingestion", "index"),
        differences=("texts",),
        remedies=(
            "compare the documents behind the example traces with the answer key",
            "remove outdated documents; filter by validity",
            "index again",
        ),
    ),
    TreeBranch(
        name="4 truncation or refusal",
        layer="generation",
        title="the answers leave out what was asked",
        match=_match_grounded("completeness"),
        reads=("completeness",),
        stages=("max tokens", "refusal wording", "prompt assembly", "prompt", "model"),
        differences=("answers", "refusals"),
        remedies=(*STAGE_REMEDIES.values(), "ask in the prompt for every part of the query to be answered"),
    ),
    TreeBranch(
        name="5 citations",
        layer="generation",
        title="citations are fabricated or misaligned",
        match=_match_grounded("chunk_attribution", "citation_validity"),
        reads=("chunk_attribution", "citation_validity"),
        stages=("output schema", "prompt", "model"),
        differences=("citations", "model"),
        remedies=(
            "fix the output schema: chunk ids and verbatim quotes only",
            "number the chunks in the prompt and check each citation before answering",
        ),
    ),
    TreeBranch(
        name="6 wandering",
        layer="generation",
        title="the answers go off topic",
        match=lambda walk: walk.dropped("answer_relevance"),
        reads=("answer_relevance",),
        stages=("prompt", "model", "refusal wording", "prompt assembly", "decoding"),
        differences=("answers", "model"),
        remedies=("forbid preamble and asides in the prompt", "ask for the answer first", "shorten the answer"),
    ),
)
"""The branches in the order of the tree; the first that matches is where to begin."""

STAGES_BY_BRANCH = {branch.name: branch.stages for branch in BRANCHES} | {
    "0 empty retrieval": ("filter", "score threshold", "index", "index coverage", "query rewriter"),
    "0 blank answer": ("max tokens", "model", "output schema", "refusal wording"),
    "0 uncited answer": ("output schema", "prompt", "model"),
}
"""Branch, or check of the pipeline → the stages in which its fault usually lies."""
STAGES_BY_LAYER = {"retrieval": RETRIEVER_STAGES, "generation": GENERATION_STAGES, "source data": SOURCE_STAGES}
"""Layer → all its stages; those that are not usual in a branch are suspected where evidence speaks for them."""
