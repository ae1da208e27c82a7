"""Evaluation: traces × judge × metrics → Run; the one room where sources, judges and metrics meet."""

from ragfault.evaluation.evaluating import evaluate
from ragfault.evaluation.executors import Processes
from ragfault.evaluation.on_ray import Ray
from ragfault.evaluation.rescoring import rescore
from ragfault.evaluation.spool import Side
from ragfault.judges.observing import observe

__all__ = ["Processes", "Ray", "Side", "evaluate", "observe", "rescore"]
