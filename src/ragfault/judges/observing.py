"""Asking a judge: its failures are kept apart, here and on worker processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from multiprocessing.process import BaseProcess

from ragfault.errors import JudgeError, Stopped
from ragfault.ports import Judge
from ragfault.records import Trace, Verdicts

__all__ = ["observe", "ready"]


def observe(judge: Judge, traces: Sequence[Trace]) -> list[Verdicts]:
    """Ask a judge, and keep its failures apart: a batch that fails is asked again trace by trace.

    A trace on which it fails alone gets verdicts that say so (`failures={"*": reason}`). Raises Stopped where it
    cannot go on with any trace.
    """
    try:
        seen = list(judge.observe(traces))
        _matched(traces, seen)
    except Stopped:
        raise
    except Exception as error:  # noqa: BLE001 - the door to judges that users write: one bad trace, not a lost run
        if len(traces) > 1:
            return [verdicts for trace in traces for verdicts in observe(judge, [trace])]
        reason = str(error) if isinstance(error, JudgeError) else f"{type(error).__name__}: {error}"
        return [
            Verdicts(
                trace=traces[0].id, judge=judge.fingerprint, failures={"*": f"the judge failed: {reason}"}
            )
        ]
    return seen


def _matched(traces: Sequence[Trace], seen: Sequence[Verdicts]) -> None:
    """Refuse verdicts that are not one for each trace, in order."""
    if [verdicts.trace for verdicts in seen] != [trace.id for trace in traces]:
        raise JudgeError(f"it returned {len(seen)} verdicts for {len(traces)} traces, or in another order")


def ready() -> None:
    """Make a worker process ready: leave Ctrl-C to the parent, and end when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_outlive, args=(parent,), daemon=True).start()


def _outlive(parent: BaseProcess) -> None:
    """End this process when its parent has ended."""
    parent.join()
    os._exit(1)
