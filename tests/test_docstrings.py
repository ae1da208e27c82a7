"""The examples in the docstrings of the package run, and print what is written under them."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
UNLOCKED = {f"ragfault.integrations.{name}" for name in ("deepeval", "inspect", "ragas")}
"""Modules whose library is in no lock."""
# found in the text: to import every module in every worker would take longer than the examples
MODULES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]


@pytest.mark.parametrize("name", [name for name in MODULES if name not in UNLOCKED])
def test_examples_print_what_is_written(name: str):
    """Each example of a docstring prints what the docstring says."""
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.testmod(import_module(name), optionflags=options).failed == 0
