"""Online evaluation: score one response at once, or every retrieval in the background."""

from ragfault.evaluation.online.background import BackgroundScorer, to_jsonl
from ragfault.evaluation.online.instrumentation import MeasuredRetriever, observe
from ragfault.evaluation.online.scorer import ScoredTrace, score_response

__all__ = ["BackgroundScorer", "MeasuredRetriever", "ScoredTrace", "observe", "score_response", "to_jsonl"]
