"""The same judge on the same traces, several times: how far its metrics move."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ragfault.agreement.judging import judged
from ragfault.agreement.scores import METRICS
from ragfault.errors import InputError, UsageError
from ragfault.findings.flaking import Flakiness, flaky
from ragfault.judges import load_judge
from ragfault.metrics import parse, score
from ragfault.ports import Judge
from ragfault.records import Trace, Verdicts

__all__ = ["repeat"]


def _quiet(*_: object) -> None:
    """Tell nobody."""


def repeat(
    judge: str | Judge,
    traces: Iterable[Trace],
    *,
    k: int = 5,
    options: Mapping[str, Any] | None = None,
    metrics: Sequence[str] = METRICS[1:],
    workers: int = 1,
    progress: Callable[[int, int], None] = _quiet,
) -> Flakiness:
    """Have a judge judge traces `k` times over, and say how far each metric moves.

    A judge that asks a model is made anew for each repeat and must not keep replies (`cache="none"`): what is
    remembered is not said again. Its budget is that of all repeats together. A judge of the package always says the
    same, and so does its flakiness.

    Raises UsageError for fewer than two repeats, InputError without a trace.

    >>> from ragfault import Chunk
    >>> chunk = Chunk(id="a", text="The office opens at 7:30.")
    >>> trace = Trace(id="1", query="When does it open?", chunks=(chunk,), answer="It opens at 7:30.")
    >>> repeat("lexical", [trace], k=2).steady
    True
    """
    found = list(traces)
    if k < 2:
        raise UsageError(f"{k} repeat tells nothing of spread: judge the traces at least twice, -k 2.")
    if not found:
        raise InputError("there is no trace to judge again and again.")
    runs, name, purse = [], "", f"repeat {uuid.uuid4().hex}"
    for at in range(k):
        made = load_judge(judge, **(options or {})) if isinstance(judge, str) else judge
        name = made.fingerprint
        ours = purse if isinstance(judge, str) else None
        runs.append(judged(made, found, workers, _shifted(progress, at, k), ours)[0])
    told = (_values(text, found, runs) for text in metrics)
    rows = [(text, table) for text, table in told if len(table)]
    return Flakiness(
        judge=name,
        repeats=k,
        traces=len(found),
        metrics=tuple(flaky(text, table) for text, table in rows),
    )


def _shifted(progress: Callable[[int, int], None], at: int, k: int) -> Callable[[int, int], None]:
    """The progress of one repeat as that of all."""
    return lambda done, total: progress(at * total + done, k * total)


def _values(text: str, traces: Sequence[Trace], runs: Sequence[Sequence[Verdicts]]) -> tuple[str, Any]:
    """The values of a metric on the traces that have one in each repeat, traces by repeats."""
    metric = parse(text)
    if not metric.definition.verdicts:
        return text, np.empty((0, len(runs)))
    rows = []
    for trace, *seen in zip(traces, *runs, strict=True):
        values = [score(metric, trace, each).value for each in seen]
        if None not in values:
            rows.append(values)
    return text, np.array(rows, np.float64).reshape(-1, len(runs))
