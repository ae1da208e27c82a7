"""Evaluation: traces × judge × metrics → run."""

from ragfault.evaluation.evaluator import evaluate
from ragfault.evaluation.executors import ProcessExecutor, RayExecutor
from ragfault.evaluation.jobs import BadLineWriter
from ragfault.evaluation.rescorer import rescore
from ragfault.judges.assembly import observe_traces

__all__ = ["BadLineWriter", "ProcessExecutor", "RayExecutor", "evaluate", "observe_traces", "rescore"]
