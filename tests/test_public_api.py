"""The public face: short, exact, and light to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ragfault
from ragfault import errors

LIGHT = (
    "numpy",
    "pyarrow",
    "rich",
    "altair",
    "sentencex",
    "rapidfuzz",
    "pandas",
    "concurrent.futures.process",
)


def test_the_face_is_exactly_what_it_says():
    """Every name of `__all__` is there and has a docstring; nothing else is offered."""
    assert sorted(ragfault.__all__, key=str.lower) == sorted(ragfault._EXPORT_MODULES, key=str.lower)
    for name in ragfault.__all__:
        assert getattr(ragfault, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        _ = ragfault.no_such


@pytest.mark.parametrize("what", ["import ragfault", "from ragfault.cli import run; run(['--help'])"])
def test_starting_imports_nothing_heavy(what: str):
    """`import ragfault` and `ragfault --help` load none of the heavy packages."""
    code = f"import sys; {what}; print([n for n in {LIGHT!r} if n in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_the_tree_of_errors_is_the_one_drawn():
    """Every error stands in the tree of the module's docstring and under RagfaultError, and survives pickling."""
    import pickle

    for name in errors.__all__:
        if name != "Fault":
            assert name in (errors.__doc__ or "")
            assert issubclass(getattr(errors, name), errors.RagfaultError)
    for error in (
        errors.UnknownName("metric", "ndgc", ["ndcg"], "hint"),
        errors.MissingExtra("bleu", "overlap"),
        errors.BadTraces([errors.InputFault("f", 1, "p")], 3),
        errors.RunError("gone"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
