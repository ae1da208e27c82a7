"""Documents that the commands of tuning print as JSON."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ragfault.apps.tune.adaptation.records import AdaptationPlan, AdaptivePolicy
from ragfault.apps.tune.generators.records import GeneratorChoice
from ragfault.apps.tune.pitfalls import Pitfall
from ragfault.apps.tune.relevance import RelevanceComparison
from ragfault.apps.tune.results import TuningResult
from ragfault.apps.tune.savings import Savings
from ragfault.io.trace_reader import InputSummary
from ragfault.report.json_documents import VerbDocument
from ragfault.retrieval.stores.loss import StoreLoss


class RecordedRetrievals(Struct, frozen=True, kw_only=True):
    """Traces with what a pipeline retrieved, in a file."""

    path: str
    traces: int
    chunks: int
    """Chunks of all traces."""
    pipeline: str
    """The pipeline in a line."""


class RelevanceDocument(VerbDocument, frozen=True):
    """Relevance of chunks to a query by each judge."""

    comparison: RelevanceComparison
    gaps: tuple[float, ...]
    """For each chunk the greatest value less the least."""
    documents: tuple[tuple[str, tuple[float, ...]], ...]
    """Each document with its best chunk's relevance by each judge."""


DOCUMENTS: dict[str, tuple[Any, ...]] = {
    "tune pipeline": (TuningResult,),
    "tune generator choose": (GeneratorChoice,),
    "tune generator search": (GeneratorChoice,),
    "tune generator improve": (GeneratorChoice,),
    "tune adapt": (AdaptationPlan, AdaptivePolicy),
    "lint": (tuple[Pitfall, ...], InputSummary),
    "tune savings": (Savings,),
    "tune relevance": (RelevanceDocument,),
    "tune retrieve": (RecordedRetrievals,),
    "tune stores": (tuple[StoreLoss, ...],),
}
"""Verb → the types of its document; several where its options decide."""
