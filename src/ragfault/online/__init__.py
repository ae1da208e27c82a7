"""Scoring beside a running system: one response at once, or every retrieval in the background."""

from ragfault.online.background import Background, to_jsonl
from ragfault.online.observing import observe
from ragfault.online.retriever import MeasuredRetriever
from ragfault.online.scoring import Scored, score_response

__all__ = ["Background", "MeasuredRetriever", "Scored", "observe", "score_response", "to_jsonl"]
