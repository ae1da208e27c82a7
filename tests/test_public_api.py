"""Tests of the public API: exact, documented, and light to import."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import ragfault
from ragfault import errors

PUBLIC_NAMES = [
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
HEAVY_PACKAGES = ("numpy", "pyarrow", "rich", "sentencex", "rapidfuzz", "pandas", "concurrent.futures.process")


def test_the_public_names_are_exact():
    """`__all__` and `dir` list the 21 public names and, besides dunder names, nothing else."""
    assert sorted(ragfault.__all__) == sorted(PUBLIC_NAMES)
    assert [name for name in dir(ragfault) if not name.startswith("__")] == sorted(PUBLIC_NAMES)
    assert {"__version__", "__doc__"} <= set(dir(ragfault))


def test_every_public_name_has_a_docstring():
    for name in PUBLIC_NAMES:
        assert getattr(ragfault, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        _ = ragfault.no_such


@pytest.mark.parametrize("code", ["import ragfault", "from ragfault.cli import main; main(['--help'])"])
def test_start_imports_no_heavy_package(code: str):
    """`import ragfault` and `ragfault --help` import none of the heavy packages."""
    program = (
        f"import atexit, sys; names = {HEAVY_PACKAGES!r}; "
        "atexit.register(lambda: print([n for n in names if n in sys.modules], file=sys.stderr)); " + code
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert process.stderr.strip() == "[]"


def test_the_docstring_draws_the_tree_of_errors():
    """Every error is in the docstring of `errors`, inherits from RagfaultError and survives pickling."""
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, Exception):
            assert value.__name__ in (errors.__doc__ or "")
            assert issubclass(value, errors.RagfaultError)
    for error in (
        errors.UnknownName("metric", "ndgc", ["ndcg"], "hint"),
        errors.MissingExtra("bleu", "overlap"),
        errors.BadTraces([errors.BadLine("f", 1, "p")], 3),
        errors.RunError("gone"),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))
