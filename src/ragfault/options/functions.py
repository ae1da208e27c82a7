"""Functions of the user that a command line names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from ragfault.model.errors import UsageError


def load_function(name: str) -> Callable[..., Any]:
    """Load the function that `MODULE:NAME` or `FILE.py:NAME` names; a file may import what lies beside it.

    It is code that runs, so that only the user's own command line may name it. Raises UsageError where there is none.

    >>> load_function("ragfault.io.datasets.agent:answer_like_version_2").__name__
    'answer_like_version_2'
    """
    module, colon, function = name.rpartition(":")
    if not colon or not module or not function:
        raise UsageError(f"{name} names no function: write FILE.py:NAME or MODULE:NAME.")
    path = Path(module)
    folder = str(path.resolve().parent if module.endswith(".py") else Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        loaded: Any = getattr(import_module(path.stem if module.endswith(".py") else module), function, None)
    except (ImportError, SystemExit) as error:
        raise UsageError(f"{module} cannot be imported: {type(error).__name__}: {error}.") from None
    if not callable(loaded):
        raise UsageError(f"{module} has no function {function}.")
    return loaded  # type: ignore[no-any-return]
