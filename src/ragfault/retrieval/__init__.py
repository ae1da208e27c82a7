"""Retrieval pipelines: stages that are plain callables on (query, hits), run in order; the result is a trace."""

from ragfault.retrieval.pipeline import FilterCondition, Hits, Pipeline, Query, Stage, StageResult

__all__ = ["FilterCondition", "Hits", "Pipeline", "Query", "Stage", "StageResult"]
