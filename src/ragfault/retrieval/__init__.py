"""Retrieval pipelines: stages that are plain callables on (query, hits), run in order; the result is a trace."""
