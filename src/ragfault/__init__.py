"""Measure, locate and repair faults in a RAG system: which layer broke, on which traces, and what to change.

Each public name is imported when it is first used, so that `import ragfault` stays light.
"""

import importlib as _importlib
import typing as _typing

from ragfault.version import __version__ as __version__

if _typing.TYPE_CHECKING:
    from ragfault.analysis import analyze, bisect, compare, diagnose, gate, history
    from ragfault.evaluation import evaluate, rescore
    from ragfault.evaluation.ablation import ablate, replay
    from ragfault.io import read_traces, write_traces
    from ragfault.io.runs import Run
    from ragfault.metrics import metric
    from ragfault.records import Chunk, Citation, Gold, Score, Span, Trace, Verdicts
    from ragfault.rubrics import rubric

__all__ = [
    "Chunk", "Citation", "Gold", "Run", "Score", "Span", "Trace", "Verdicts", "ablate", "analyze", "bisect", "compare",
    "diagnose", "evaluate", "gate", "history", "metric", "read_traces", "replay", "rescore", "rubric", "write_traces",
]  # fmt: skip

_EXPORT_MODULES = {
    "ragfault.analysis": {"analyze", "bisect", "compare", "diagnose", "gate", "history"},
    "ragfault.evaluation": {"evaluate", "rescore"},
    "ragfault.evaluation.ablation": {"ablate", "replay"},
    "ragfault.io": {"read_traces", "write_traces"},
    "ragfault.io.runs": {"Run"},
    "ragfault.metrics": {"metric"},
    "ragfault.records": {"Chunk", "Citation", "Gold", "Score", "Span", "Trace", "Verdicts"},
    "ragfault.rubrics": {"rubric"},
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
