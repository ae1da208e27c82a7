"""Documents that the commands of evaluation sets print as JSON."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ragfault.apps.testsets.anchors import RefreshResult
from ragfault.apps.testsets.audit import CorpusAudit
from ragfault.apps.testsets.description import TestsetDescription
from ragfault.apps.testsets.difficulty import TestsetDifficulty
from ragfault.apps.testsets.making.estimates import MakingEstimate
from ragfault.apps.testsets.nuggets import NuggetCounts
from ragfault.apps.testsets.pooling import PoolEstimate
from ragfault.apps.testsets.premises import PremiseReport
from ragfault.apps.testsets.reviews import ReviewResult
from ragfault.model.records import Usage


class WrittenPool(Struct, frozen=True, kw_only=True):
    """A pool of passages in a file."""

    path: str
    items: int
    passages: int
    """Passages of all items."""
    retrievers: tuple[str, ...]


class WrittenTestset(Struct, frozen=True, kw_only=True):
    """An evaluation set that was made."""

    path: str
    items: int
    requested: int
    counts: dict[str, int]
    """Kind of question → number of items."""
    rejected: int
    """Drafts that were left out."""
    notes: tuple[str, ...]
    """Reasons of a number or a mix other than was asked for."""
    usage: Usage | None = None
    """Calls of the language model; null without one."""


class WrittenItems(Struct, frozen=True, kw_only=True):
    """An evaluation set that was written in a format."""

    path: str
    format: str
    items: int
    """Number of items written; BEIR leaves out those without gold."""


class DescribedTestset(Struct, frozen=True, kw_only=True):
    """A description of an evaluation set, and its difficulty for some systems."""

    description: TestsetDescription
    difficulty: TestsetDifficulty


class WrittenNuggets(NuggetCounts, frozen=True, kw_only=True):
    """An evaluation set that was written with nuggets."""

    path: str
    items: int


class KeyedTraces(Struct, frozen=True, kw_only=True):
    """Traces that were written with the answer key of an evaluation set."""

    path: str
    traces: int
    """Traces that were read."""
    matched: int
    """Traces that ask what an item asks."""
    unmatched: dict[str, int]
    """Reason → number of traces that were left out."""


DOCUMENTS: dict[str, tuple[Any, ...]] = {
    "testset make": (WrittenTestset, MakingEstimate),
    "testset pool": (WrittenPool, PoolEstimate),
    "testset convert": (WrittenItems,),
    "testset nuggets": (WrittenNuggets,),
    "testset key": (KeyedTraces,),
    "testset adjudicate": (ReviewResult,),
    "testset describe": (TestsetDescription, DescribedTestset),
    "testset refresh": (RefreshResult,),
    "testset audit": (CorpusAudit,),
    "testset premises": (PremiseReport,),
}
"""Verb → the types of its document."""
