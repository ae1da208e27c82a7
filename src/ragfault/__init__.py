"""Measure, locate and repair faults in a RAG system: which layer broke, on which traces, and what to change.

Each public name is imported when it is first used, so that `import ragfault` stays light.
"""

import importlib as _importlib
import typing as _typing

from ragfault.model.version import __version__ as __version__

if _typing.TYPE_CHECKING:
    from ragfault.comparison.ablation.experiment import ablate
    from ragfault.comparison.bisection import bisect
    from ragfault.comparison.compare import compare
    from ragfault.comparison.gate.gate import gate
    from ragfault.comparison.run_history import history
    from ragfault.comparison.settings import BisectionSettings, ComparisonSettings, GateSettings, HistorySettings
    from ragfault.diagnosis.run_analysis import analyze, diagnose
    from ragfault.evaluation.evaluator import evaluate
    from ragfault.evaluation.rescorer import rescore
    from ragfault.evaluation.settings import EvaluationSettings, RescoringSettings
    from ragfault.io.runs.run import Run
    from ragfault.io.trace_reader import read_traces
    from ragfault.io.trace_writer import write_traces
    from ragfault.metrics.catalog import metric
    from ragfault.model.records import Chunk, Citation, Gold, Score, Span, Trace, Verdicts
    from ragfault.model.rubrics import rubric

__all__ = [
    "BisectionSettings", "Chunk", "Citation", "ComparisonSettings", "EvaluationSettings", "GateSettings", "Gold",
    "HistorySettings", "RescoringSettings", "Run", "Score", "Span", "Trace", "Verdicts",
    "ablate", "analyze", "bisect", "compare", "diagnose", "evaluate", "gate", "history", "metric", "read_traces",
    "rescore", "rubric", "write_traces",
]  # fmt: skip

_EXPORT_MODULES = {
    "ragfault.comparison.ablation.experiment": {"ablate"},
    "ragfault.comparison.bisection": {"bisect"},
    "ragfault.comparison.compare": {"compare"},
    "ragfault.comparison.gate.gate": {"gate"},
    "ragfault.comparison.run_history": {"history"},
    "ragfault.comparison.settings": {"BisectionSettings", "ComparisonSettings", "GateSettings", "HistorySettings"},
    "ragfault.diagnosis.run_analysis": {"analyze", "diagnose"},
    "ragfault.evaluation.evaluator": {"evaluate"},
    "ragfault.evaluation.rescorer": {"rescore"},
    "ragfault.evaluation.settings": {"EvaluationSettings", "RescoringSettings"},
    "ragfault.io.runs.run": {"Run"},
    "ragfault.io.trace_reader": {"read_traces"},
    "ragfault.io.trace_writer": {"write_traces"},
    "ragfault.metrics.catalog": {"metric"},
    "ragfault.model.records": {"Chunk", "Citation", "Gold", "Score", "Span", "Trace", "Verdicts"},
    "ragfault.model.rubrics": {"rubric"},
}


def __getattr__(name: str) -> object:
    for module, names in _EXPORT_MODULES.items():
        if name in names:
            value = getattr(_importlib.import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'ragfault' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
