"""Measure, locate and repair faults in a RAG system: which layer broke, on which traces, and what to change.

The whole library is a few verbs and nouns; each is imported when it is first used, so that
`import ragfault` costs next to nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from ragfault.version import __version__ as __version__

if TYPE_CHECKING:
    from ragfault.analysis import analyze, bisect, compare, diagnose, gate, history
    from ragfault.evaluation import evaluate, rescore
    from ragfault.evaluation.ablation import ablate, replay
    from ragfault.io import read_traces, write_traces
    from ragfault.io.runs import Run
    from ragfault.metrics import metric
    from ragfault.records import Chunk, Citation, Gold, Score, Span, Trace, Verdicts

_EXPORT_MODULES = {
    "Chunk": "ragfault.records",
    "Citation": "ragfault.records",
    "Gold": "ragfault.records",
    "Run": "ragfault.io.runs",
    "Score": "ragfault.records",
    "Span": "ragfault.records",
    "Trace": "ragfault.records",
    "Verdicts": "ragfault.records",
    "bisect": "ragfault.analysis",
    "compare": "ragfault.analysis",
    "diagnose": "ragfault.analysis",
    "evaluate": "ragfault.evaluation",
    "analyze": "ragfault.analysis",
    "gate": "ragfault.analysis",
    "history": "ragfault.analysis",
    "ablate": "ragfault.evaluation.ablation",
    "metric": "ragfault.metrics",
    "read_traces": "ragfault.io",
    "replay": "ragfault.evaluation.ablation",
    "rescore": "ragfault.evaluation",
    "write_traces": "ragfault.io",
}

__all__ = [
    "Chunk",
    "Citation",
    "Gold",
    "Run",
    "Score",
    "Span",
    "Trace",
    "Verdicts",
    "ablate",
    "analyze",
    "bisect",
    "compare",
    "diagnose",
    "evaluate",
    "gate",
    "history",
    "metric",
    "read_traces",
    "replay",
    "rescore",
    "write_traces",
]


def __getattr__(name: str) -> object:
    if name in _EXPORT_MODULES:
        value = getattr(import_module(_EXPORT_MODULES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'ragfault' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def load_ipython_extension(shell: object) -> None:
    """Show runs, comparisons, bisections and gates as HTML in a notebook; importing ragfault in one does it already."""
    import_module("ragfault.reports.html.notebook").register(shell)


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    load_ipython_extension(_shell)
