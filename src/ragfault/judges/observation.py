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
    """A judge without verdicts: every metric that needs one is undefined.

    >>> NullJudge().observe([Trace(id="1", query="q")])[0].chunk is None
    True
    """

    offers: frozenset[VerdictKind] = frozenset()
    fingerprint = "none"

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        """Return verdicts without any part."""
        return [Verdicts(trace=trace.id, judge=self.fingerprint) for trace in traces]


def observe_traces(judge: Judge, traces: Sequence[Trace]) -> list[Verdicts]:
    """Observe traces with a judge and isolate its failures: a batch that fails is retried trace by trace.

    A trace on which the judge fails alone gets verdicts with `failures={"*": reason}`. Raises JudgeStopped if
    the judge cannot go on with any trace.
    """
    try:
        results = list(judge.observe(traces))
        _check_order(traces, results)
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
    return results


def _check_order(traces: Sequence[Trace], results: Sequence[Verdicts]) -> None:
    """Raise JudgeError unless there is one result for each trace, in order."""
    if [verdicts.trace for verdicts in results] != [trace.id for trace in traces]:
        raise JudgeError(f"it returned {len(results)} verdicts for {len(traces)} traces, or in another order")


def prepare_worker() -> None:
    """Prepare a worker process: ignore Ctrl-C, and end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def _exit_with_parent(parent: BaseProcess) -> None:
    """End this process when its parent has ended."""
    parent.join()
    os._exit(1)
