"""The table of checks: each is a paired binary metric, tested with the others, and a fault if it is shown to rise.

Checks of the pipeline stand before the tree: errors, empty retrievals, blank answers and lost citations. Defects that
answers and lists show by themselves are a fault where the tree names none, since a judge may not see them. Checks of
steps count faults of the operation of each kind of step.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from ragfault.comparison.pairing import holds_all_chunks, normalize_space
from ragfault.comparison.records import FaultLayer
from ragfault.comparison.stages.answer_evidence import repeats_itself, states_other_unit
from ragfault.diagnosis.causes.endings import OPEN_END
from ragfault.model.records import StepKind, Trace

COPIES_METRIC = "copied_chunks"
STEP_PREFIX = "steps: "
"""Begins the name of every metric of steps."""


class Check(Struct, frozen=True, kw_only=True):
    """Something that single traces show, and the fault that more of them are."""

    metric: str
    layer: FaultLayer
    branch: str
    """The branch of the decision tree to which it belongs; those that begin with 0 come before the tree."""
    title: str
    fact: str = ""
    """What is so, with places for the share of traces, that before, and p."""
    name: str = ""
    """What it counts."""
    remedies: tuple[str, ...] = ()
    """Those of the branch if there are none."""
    blocks: bool = False
    """Whether other metrics say nothing of a trace that shows it."""
    shows: Callable[[Trace, Trace], bool] | None = None
    """Whether a trace shows it, given that of the other run; None: the fingerprints of the traces tell."""
    step: StepKind | None = None
    is_cause: bool = True
    """Whether faults of layers may follow from it; otherwise it may follow from one of these."""


PIPELINE_CHECKS = (
    Check(
        metric="error",
        name="errors",
        layer="pipeline",
        branch="0 error",
        title="the pipeline fails",
        fact="The pipeline fails on {share} of traces (errors, {before} before; p {p})",
        remedies=("read the errors of the example traces", "retry or raise the time limit", "revert the last change"),
    ),
    Check(
        metric="empty_retrieval",
        name="empty retrievals",
        layer="retrieval",
        branch="0 empty retrieval",
        title="nothing is retrieved",
        fact="Retrieval returns nothing on {share} of traces ({before} before; p {p})",
        blocks=True,
        remedies=(
            "search for the queries of the example traces without filters",
            "check that the filter does not exclude every chunk and that the index holds every document",
            "lower the minimum score",
        ),
    ),
    Check(
        metric="blank_answer",
        name="blank answers",
        layer="generation",
        branch="0 blank answer",
        title="the answers are blank",
        fact="Answers are blank on {share} of traces ({before} before; p {p})",
        blocks=True,
        remedies=(
            "inspect the raw output of the model on the example traces",
            "raise the token limit of the answer",
            "check the code that parses or filters the output",
        ),
    ),
    Check(
        metric="uncited_answer",
        name="answers without citations",
        layer="generation",
        branch="0 uncited answer",
        title="citations are gone",
        fact="Citations are gone: {share} of answers cite nothing ({before} before; p {p})",
        remedies=("restore the instruction and the schema for citations", "check the code that parses them"),
    ),
)
"""In the order of the pipeline."""


def _is_unfinished(trace: Trace, other: Trace) -> bool:
    """Return whether an answer ends with a word that ends no sentence, and the other run's does not.

    >>> _is_unfinished(Trace(id="1", query="?", answer="A night costs the"), Trace(id="1", query="?", answer="£9."))
    True
    """
    ends = [bool(OPEN_END.search((side.answer or "").rstrip())) for side in (trace, other)]
    return ends == [True, False]


def _holds_copies(trace: Trace, other: Trace) -> bool:
    """Return whether a text stands twice among as many chunks as both runs retrieved."""
    depth = min(len(trace.chunks or ()), len(other.chunks or ()))
    texts = [normalize_space(chunk.text) for chunk in (trace.chunks or ())[:depth]]
    known = [text for text in texts if text]
    return len(set(known)) < len(known)


def _repeats_itself(trace: Trace, other: Trace) -> bool:
    """Return whether an answer repeats its own sentences, and not those of chunks of which its list gained copies."""
    return repeats_itself(trace) and (not _holds_copies(trace, other) or _holds_copies(other, trace))


DEFECTS = (
    Check(
        metric="echoed_chunks",
        layer="generation",
        branch="6 wandering",
        title="the answers repeat the text of all their chunks, as of the prompt",
        shows=lambda trace, _: holds_all_chunks(trace.answer or "", [chunk.text for chunk in trace.chunks or ()]),
    ),
    Check(
        metric="unfinished_answer",
        layer="generation",
        branch="4 truncation or refusal",
        title="the answers end in the middle of a sentence",
        shows=_is_unfinished,
    ),
    Check(
        metric="repeated_answer",
        layer="generation",
        branch="6 wandering",
        title="the answers repeat their own sentences",
        shows=_repeats_itself,
    ),
    Check(
        metric="unit_mismatch",
        layer="generation",
        branch="2 generation",
        title="the answers give figures in other units than the chunks",
        shows=lambda trace, _: states_other_unit(trace),
    ),
    Check(
        metric=COPIES_METRIC,
        layer="retrieval",
        branch="1 retrieval",
        title="lists of chunks hold the same text more than once",
        shows=_holds_copies,
    ),
)

STEP_FACTS: dict[str, tuple[str, bool, tuple[str, ...]]] = {
    "error": (
        "{kind} steps fail on",
        True,
        ("read the errors of the example traces", "set time limits and retries", "tell the model that it failed"),
    ),
    "wrong_call": (
        "calls of {kind} steps could not be executed on",
        True,
        ("check the schema and the description of the tool", "compare the prompt that plans the calls"),
    ),
    "repeated_call": (
        "{kind} steps repeat a call that was answered before on",
        False,
        ("show the model what it asked before", "stop after a call that returns nothing new"),
    ),
    "nothing_new": (
        "{kind} steps return what they returned to another query on",
        False,
        ("check the cache and the session of the retriever", "search for the queries of the example traces"),
    ),
    "unfounded_answer": (
        "{kind} steps answer before anything was read on",
        True,
        ("require a search before an answer", "compare the prompt that plans the steps"),
    ),
}
"""Fault of the operation of a step → what is so, whether faults of layers may follow from it, and its remedies."""
STEP_LAYERS: dict[str, FaultLayer] = {
    "rewrite": "retrieval", "memory": "retrieval", "retrieve": "retrieval", "rerank": "retrieval",
    "read": "generation", "generate": "generation", "cite": "generation",
}  # fmt: skip

CHECK_METRICS = tuple(check.metric for check in PIPELINE_CHECKS)
DEFECT_METRICS = tuple(check.metric for check in DEFECTS)
STATIC_CHECKS = {check.metric: check for check in (*PIPELINE_CHECKS, *DEFECTS)}


def is_step_metric(name: str) -> bool:
    """Tell whether a metric is one of steps."""
    return name.startswith(STEP_PREFIX)


def split_step_metric(metric: str) -> tuple[str, str]:
    """Split the name of a metric of steps into the kind of step and what is counted; empty for other metrics."""
    kind, _, fault = metric.removeprefix(STEP_PREFIX).partition(" ") if is_step_metric(metric) else ("", "", "")
    return kind, fault


def get_check(metric: str) -> Check | None:
    """Return the check that a metric is the count of; None for other metrics."""
    kind, fault = split_step_metric(metric)
    if fault not in STEP_FACTS:
        return STATIC_CHECKS.get(metric)
    fact, is_cause, remedies = STEP_FACTS[fault]
    text = fact.format(kind=kind)
    return Check(
        metric=metric,
        layer=STEP_LAYERS.get(kind, "pipeline"),
        branch=f"0 {kind} step",
        title=text.removesuffix(" on"),
        fact=f"{text[0].upper()}{text[1:]} {{share}} of traces ({{before}} before; p {{p}})",
        remedies=remedies,
        step=None if kind == "other" else kind,  # type: ignore[arg-type]
        is_cause=is_cause,
    )
