"""The search space of a tuning run, the bounds that pipelines must keep to, and its time budget."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Literal, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from ragfault.apps.tune.results import Bound, QuestionOutcome
from ragfault.diagnosis.records import ProblemKind, Remedy
from ragfault.model.errors import UnknownName, UsageError
from ragfault.retrieval.pipeline_config import NO_EMBEDDER, PipelineConfig, check_pipeline_config
from ragfault.retrieval.stage_registry import get_stage_kind

BOUND_PATTERN = re.compile(r"\s*(\w+)\s*(<=|>=)\s*([\d.]+(?:e-?\d+)?)\s*")
DURATION_PATTERN = re.compile(r"\s*([\d.]+)\s*(s|m|min|h)?\s*")
UNIT_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, None: 60}
LOWER_IS_BETTER = ("latency_p95", "latency", "tokens")
HIGHER_IS_BETTER = ("recall", "precision", "iou")
ANSWER_FIGURES = ("cost", "latency", "latency_p95", "tokens")
"""Figures of an answer of a generator that can be bounded."""


def parse_bound(
    text: str, at_most: Sequence[str] = LOWER_IS_BETTER, at_least: Sequence[str] = HIGHER_IS_BETTER
) -> Bound:
    """Parse a bound that pipelines must meet, or generators: on the figures `at_most`, or `at_least`, a number.

    Raises UsageError where it does not follow the grammar or bounds the wrong side, UnknownName for a figure that does
    not exist.

    >>> str(parse_bound("latency_p95 <= 200"))
    'latency_p95<=200'
    """
    shape = BOUND_PATTERN.fullmatch(text)
    if shape is None:
        raise UsageError(f'cannot read "{text}". Write NAME<=NUMBER, such as latency_p95<=200 or tokens<=2000.')
    name, sign, number = shape.groups()
    if name not in (*at_most, *at_least):
        raise UnknownName("figure to be bounded", name, (*at_most, *at_least))
    if (sign == "<=") != (name in at_most):
        raise UsageError(f'"{text}" bounds the wrong side: write {name}{"<=" if name in at_most else ">="}{number}.')
    try:
        return Bound(name, sign, float(number))  # type: ignore[arg-type]
    except ValueError:
        raise UsageError(f'"{text}": {number} is not a number.') from None


def compute_figure(name: str, outcomes: Sequence[QuestionOutcome]) -> float:
    """Return a figure of outcomes: the mean, or the median or 95th percentile of the milliseconds.

    >>> one = QuestionOutcome(0.5, 1, 0.2, 0.2, 10, 400)
    >>> compute_figure("latency_p95", [one] * 4), compute_figure("tokens", [one])
    (10, 400.0)
    """
    if name in ("latency_p50", "latency_p95"):
        ordered = sorted(outcome.ms for outcome in outcomes)
        share = 0.95 if name == "latency_p95" else 0.5
        return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
    return fmean(cast(float, getattr(outcome, "ms" if name == "latency" else name)) for outcome in outcomes)


def compute_violation(bounds: Sequence[Bound], outcomes: Sequence[QuestionOutcome]) -> float:
    """Return the sum of relative violations of the bounds; 0 where all are met.

    >>> compute_violation([parse_bound("tokens<=200")], [QuestionOutcome(0.5, 1, 0.2, 0.2, 10, 400)])
    1.0
    """
    total = 0.0
    for bound in bounds:
        value = compute_figure(bound.name, outcomes)
        over = value - bound.value if bound.sign == "<=" else bound.value - value
        total += max(0.0, over) / max(abs(bound.value), 1e-9)
    return total


def parse_budget(text: str | float) -> float:
    """Return the seconds of a budget: "10m", "90s", "1h"; a bare number is minutes.

    Raises UsageError for anything else, and for 0.

    >>> parse_budget("90s"), parse_budget(2)
    (90.0, 120.0)
    """
    shape = DURATION_PATTERN.fullmatch(str(text))
    seconds = float(shape[1]) * UNIT_SECONDS[shape[2]] if shape and shape[1].count(".") < 2 and shape[1] != "." else 0.0
    if not 0 < seconds < math.inf:
        raise UsageError(f'"{text}" is not a budget. Write minutes such as 10m, or 90s, or 1h.')
    return seconds


TuningPhase = Literal["pre-processing", "retrieval", "selection"]
TUNING_PHASES: tuple[TuningPhase, ...] = get_args(TuningPhase)

PHASES_BY_PROBLEM: dict[ProblemKind, tuple[TuningPhase, ...]] = {
    "nothing_retrieved": ("pre-processing", "retrieval"),
    "nothing_relevant": ("pre-processing", "retrieval"),
    "missing_context": ("pre-processing", "retrieval"),
    "uncovered_statement": ("pre-processing", "retrieval"),
    "irrelevant_chunk": ("selection",),
}
"""Phases that can fix each kind of problem; none fixes problems of the generator."""
MIN_PROBLEM_SHARE = 0.1
"""A kind that fewer traces show than this share blames nothing."""


class SearchSpace(Struct, frozen=True, kw_only=True):
    """Options of each step."""

    chunkers: tuple[str, ...] = (
        "fixed(256, overlap=32)",
        "fixed(512, overlap=64)",
        "sentences(256)",
        "recursive(256)",
        "recursive(512)",
        "recursive(1024)",
    )
    embedders: tuple[str, ...] = ("latent",)
    retrievals: tuple[str, ...] = (
        "sparse(k=50)",
        "dense(k=50)",
        "hybrid(k=50)",
        "hybrid(k=50, method=sum)",
        "hybrid(k=50, method=sum, sparse=2.0)",
        "hybrid(k=50, method=sum, dense=2.0)",
    )
    queries: tuple[str, ...] = ("expand", "decompose")
    rerankers: tuple[str, ...] = ("rerank(embedded, depth=20)", "rerank(lexical, depth=20)")
    selections: tuple[str, ...] = ("top(5)", "top(10)", "adaptive", "diverse(10)")
    compressions: tuple[str, ...] = ("compress",)
    phases: tuple[TuningPhase, ...] = TUNING_PHASES
    """The phases that are searched; the others stay as the present configuration has them."""


def default_space(embedders: Iterable[str] | None = None) -> SearchSpace:
    """Return the default search space with the user's embedders.

    >>> default_space(["latent", "minilm"]).embedders
    ('latent', 'minilm')
    """
    space = SearchSpace()
    chosen_embedders = space.embedders if embedders is None else tuple(dict.fromkeys(embedders))
    for name in chosen_embedders:
        check_pipeline_config(PipelineConfig(embedder=name), "--embedders")
    return replace(space, embedders=tuple(name for name in chosen_embedders if name != NO_EMBEDDER))


def check_space(space: SearchSpace) -> None:
    """Refuse a space with a chunker, an embedder or a stage that does not exist, before anything is computed.

    >>> check_space(SearchSpace(chunkers=("fixd(64)",)))
    Traceback (most recent call last):
    ragfault.model.errors.UnknownName: no chunker "fixd". Did you mean "fixed"?
    """
    for name in space.chunkers:
        check_pipeline_config(PipelineConfig(chunker=name), "the space")
    for name in space.embedders:
        check_pipeline_config(PipelineConfig(embedder=name), "the space")
    for texts in (space.retrievals, space.queries, space.rerankers, space.selections, space.compressions):
        for text in texts:
            get_stage_kind(text)


def select_phases(remedies: Iterable[Remedy]) -> tuple[TuningPhase, ...]:
    """Return the phases that may fix the failures of most traces of a run; none where retrieval is not to blame."""
    phases = {
        phase
        for remedy in remedies
        if remedy.share.mean >= MIN_PROBLEM_SHARE
        for phase in PHASES_BY_PROBLEM.get(remedy.kind, ())
    }
    return tuple(phase for phase in TUNING_PHASES if phase in phases)


def list_budget_selections(bounds: Iterable[Bound]) -> tuple[str, ...]:
    """Return selections that meet a bound on tokens."""
    return tuple(f"budget({int(bound.value)})" for bound in bounds if bound.name == "tokens" and bound.value >= 1)
