"""The loop in a tool's own process: one metric after the other over all traces, with the processor time of each.

    PYTHONPATH=ROOT python -m benchmarks.costs.run_TOOL TRACES URL

The last trace is for warming, and does not count. Needs nothing beyond the standard library. No connection but to this
machine is let through; whatever else is looked up is refused and noted.
"""

from __future__ import annotations

import json
import math
import os
import socket
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from typing import Any

__all__ = ["MODEL", "Metrics", "run"]

MODEL = "gpt-4o-mini"
"""Known to all of the tools as one with structured output."""
LOCAL = ("127.0.0.1", "localhost", "::1")
WARMING = "warming"
Values = "float | None | list[float | None]"
Metrics = dict[str, Callable[[dict[str, Any]], Values]]
"""Metric → its value on a trace; None, NaN or a negative number where the tool says that it has none. Several values
where one piece of work serves several metrics."""


def alone() -> Counter[str]:
    """Refuse connections to all hosts but this one; return a counter of the refused names."""
    refused: Counter[str] = Counter()
    resolve = socket.getaddrinfo

    def guarded(host: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name is None or name in LOCAL:
            return resolve(host, *rest, **more)
        refused[str(name)] += 1
        raise socket.gaierror(f"{name} is out of bounds")

    socket.getaddrinfo = guarded
    return refused


def mark(url: str, trace: int, metric: str) -> None:
    """Tell the endpoint which trace and metric come next."""
    body = json.dumps({"trace": trace, "metric": metric}).encode()
    asked = urllib.request.Request(f"{url}/mark", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked) as answer:
        answer.read()


def ended(value: float | None) -> str:
    """Return the outcome of a trace, by its value."""
    return "lost" if value is None or not math.isfinite(value) or value < 0 else "scored"


def measured(metric: str, score: Callable[[dict[str, Any]], Any], traces: list[dict[str, Any]], url: str) -> Any:
    """Measure the processor seconds of a metric, and count the outcomes of the traces."""
    spent, ends, raised = 0.0, Counter[str](), Counter[str]()
    values: list[list[float | None]] = []
    for index, trace in enumerate(traces):
        mark(url, index, metric)
        start = time.process_time()
        try:
            value = score(trace)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is what is being looked at
            ends["raised"] += 1
            values.append([])
            raised[f"{type(error).__name__}: {str(error)[:200]}"] += 1
        else:
            values.append(value if isinstance(value, list) else [value])
            ends.update(map(ended, values[-1]))
        spent += time.process_time() - start
    return {"cpu": spent, **ends, "errors": dict(raised), "values": values}


def run(make: Callable[[str], tuple[str, Metrics]]) -> None:
    """Measure a tool: `make` gets the URL and returns the tool with its version, and its metrics."""
    with open(sys.argv[1], encoding="utf-8") as file:
        *traces, first = json.load(file)
    url, refused = sys.argv[2], alone()
    out = os.dup(1)
    os.dup2(2, 1)  # what the tools print does not belong to the result
    version, metrics = make(f"{url}/v1")
    mark(url, len(traces), WARMING)
    for score in metrics.values():
        score(first)
    figures = {name: measured(name, score, traces, url) for name, score in metrics.items()}
    result = json.dumps({"version": version, "metrics": figures, "refused": dict(refused)})
    with os.fdopen(out, "w", encoding="utf-8") as file:
        file.write(result)
    os._exit(0)  # some leave threads behind that wait
