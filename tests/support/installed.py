"""Files of tests that need a library which is not always installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def skip_without(module: str, *, reason: str) -> None:
    """Skip the tests of a file if a library is not installed.

    `pytest.importorskip` would import it: each worker collects every file, and would load every library for it.
    """
    try:
        is_installed = find_spec(module) is not None
    except ModuleNotFoundError:
        is_installed = False
    if not is_installed:
        pytest.skip(reason, allow_module_level=True)
