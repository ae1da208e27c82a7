"""Observe traces with a judge and isolate its failures; the null judge, which observes nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from multiprocessing.process import BaseProcess

from ragfault.errors import JudgeError, JudgeStopped
from ragfault.protocols import Judge, VerdictKind
from ragfault.records import Trace, Verdicts


class NullJudge:
    """A judge that offers no verdict: every metric that would read one is undefined.

    >>> NullJudge().observe([Trace(id="1", query="q")])[0].chunk is None
    True
    """

    offers: frozenset[VerdictKind] = frozenset()
    fingerprint = "none"

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """Verdicts without any part."""
        return [Verdicts(trace=trace.id, judge=self.fingerprint) for trace in traces]


def observe_traces(judge: Judge, traces: Sequence[Trace]) -> list[Verdicts]:
    """Ask a judge, and keep its failures apart: a batch that fails is asked again trace by trace.

    A trace on which it fails alone gets verdicts that say so (`failures={"*": reason}`). Raises Stopped where it
    cannot go on with any trace.
    """
    try:
        seen = list(judge.observe(traces))
        _check_order(traces, seen)
    except JudgeStopped:
        raise
    except Exception as error:  # noqa: BLE001 - the door to judges that users write: one bad trace, not a lost run
        if len(traces) > 1:
            return [verdicts for trace in traces for verdicts in observe_traces(judge, [trace])]
        reason = str(error) if isinstance(error, JudgeError) else f"{type(error).__name__}: {error}"
        return [
            Verdicts(
                trace=traces[0].id, judge=judge.fingerprint, failures={"*": f"the judge failed: {reason}"}
            )
        ]
    return seen


def _check_order(traces: Sequence[Trace], results: Sequence[Verdicts]) -> None:
    """Refuse verdicts that are not one for each trace, in order."""
    if [verdicts.trace for verdicts in results] != [trace.id for trace in traces]:
        raise JudgeError(f"it returned {len(results)} verdicts for {len(traces)} traces, or in another order")


def prepare_worker() -> None:
    """Make a worker process ready: leave Ctrl-C to the parent, and end when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def _exit_with_parent(parent: BaseProcess) -> None:
    """End this process when its parent has ended."""
    parent.join()
    os._exit(1)
