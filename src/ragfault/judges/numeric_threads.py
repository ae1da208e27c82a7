"""Numeric threads: a judge works with one, however many the process has."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any


def use_one_thread() -> AbstractContextManager[Any]:
    """Let the linear algebra of this process use one thread meanwhile, and as many as before afterwards.

    The products of a judge are so small that threads wait for each other: on two loaded cores two threads take seven
    times the processor time of one. Of several Python threads the first that ever judges sets the limit, so that none
    undoes that of another; the limit of the environment (OPENBLAS_NUM_THREADS) holds for all.
    """
    return _load_controller().limit(limits=1, user_api="blas") if "numpy" in sys.modules else nullcontext()


@cache
def _load_controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
