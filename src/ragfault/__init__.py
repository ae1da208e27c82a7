"""ragfault finds the fault in a RAG system: which layer broke, on which traces, and what to change.

The whole library is a few verbs and nouns; each is imported when it is first used, so that
`import ragfault` costs next to nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragfault.evaluation import evaluate, rescore
    from ragfault.findings import bisect, compare, diagnose, find, gate, history
    from ragfault.isolation import isolate, replay
    from ragfault.metrics import metric
    from ragfault.records import Chunk, Citation, Gold, Score, Span, Trace, Verdicts
    from ragfault.runs import Run
    from ragfault.sources import read_traces, write_traces

__version__ = "0.1.0"

_HOMES = {
    "Chunk": "ragfault.records",
    "Citation": "ragfault.records",
    "Gold": "ragfault.records",
    "Run": "ragfault.runs",
    "Score": "ragfault.records",
    "Span": "ragfault.records",
    "Trace": "ragfault.records",
    "Verdicts": "ragfault.records",
    "bisect": "ragfault.findings",
    "compare": "ragfault.findings",
    "diagnose": "ragfault.findings",
    "evaluate": "ragfault.evaluation",
    "find": "ragfault.findings",
    "gate": "ragfault.findings",
    "history": "ragfault.findings",
    "isolate": "ragfault.isolation",
    "metric": "ragfault.metrics",
    "read_traces": "ragfault.sources",
    "replay": "ragfault.isolation",
    "rescore": "ragfault.evaluation",
    "write_traces": "ragfault.sources",
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
    "bisect",
    "compare",
    "diagnose",
    "evaluate",
    "find",
    "gate",
    "history",
    "isolate",
    "metric",
    "read_traces",
    "replay",
    "rescore",
    "write_traces",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'ragfault' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def load_ipython_extension(shell: object) -> None:
    """Show runs, comparisons, bisections and gates as HTML in a notebook; importing ragfault in one does it already."""
    import_module("ragfault.report.notebook").register(shell)


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    load_ipython_extension(_shell)
