"""Evaluation: traces × judge × metrics → Run; the one room where sources, judges and metrics meet."""

from ragfault.evaluation.evaluate import evaluate
from ragfault.evaluation.rescore import rescore
from ragfault.evaluation.spool import Side
from ragfault.evaluation.work import observe

__all__ = ["Side", "evaluate", "observe", "rescore"]
