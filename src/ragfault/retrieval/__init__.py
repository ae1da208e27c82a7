"""Retrieval: stages that are plain callables on (query, hits), composed as a fold whose outcome is a trace."""

from ragfault.retrieval.pipeline import Pipeline
from ragfault.retrieval.records import Condition, Found, Hits, Query, Stage

__all__ = ["Condition", "Found", "Hits", "Pipeline", "Query", "Stage"]
