"""Measure a tool in a process of its own: one metric after the other over all traces, with the processor time of each.

    PYTHONPATH=ROOT python -m benchmarks.costs.run_TOOL TRACES URL

The last trace warms up and is not counted. Needs nothing beyond the standard library. Connections to other machines
are refused, and their names are counted.
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

__all__ = ["MODEL", "Metrics", "measure_tool"]

MODEL = "gpt-4o-mini"
"""Known to all of the tools as one with structured output."""
LOCAL = ("127.0.0.1", "localhost", "::1")
WARMUP = "warming"
Values = "float | None | list[float | None]"
Metrics = dict[str, Callable[[dict[str, Any]], Values]]
"""Metric → its value on a trace; None, NaN or a negative number where the tool says that it has none. Several values
where one piece of work serves several metrics."""


def block_remote_hosts() -> Counter[str]:
    """Refuse connections to all hosts but this one; return a counter of the refused names."""
    refused: Counter[str] = Counter()
    resolve_any = socket.getaddrinfo

    def resolve_local(host: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name is None or name in LOCAL:
            return resolve_any(host, *rest, **more)
        refused[str(name)] += 1
        raise socket.gaierror(f"{name} is out of bounds")

    socket.getaddrinfo = resolve_local
    return refused


def announce_work(url: str, trace: int, metric: str) -> None:
    """Tell the endpoint which trace and metric come next."""
    body = json.dumps({"trace": trace, "metric": metric}).encode()
    request = urllib.request.Request(f"{url}/mark", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        answer.read()


def classify_value(value: float | None) -> str:
    """Return "lost" for a value that is missing, not finite or negative, else "scored"."""
    return "lost" if value is None or not math.isfinite(value) or value < 0 else "scored"


def measure_metric(metric: str, score: Callable[[dict[str, Any]], Any], traces: list[dict[str, Any]], url: str) -> Any:
    """Measure the processor seconds of a metric, and count the outcomes of the traces."""
    cpu_seconds, outcomes, errors = 0.0, Counter[str](), Counter[str]()
    values: list[list[float | None]] = []
    for index, trace in enumerate(traces):
        announce_work(url, index, metric)
        start = time.process_time()
        try:
            value = score(trace)
        except Exception as error:  # noqa: BLE001 - every error of a tool is a result
            outcomes["raised"] += 1
            values.append([])
            errors[f"{type(error).__name__}: {str(error)[:200]}"] += 1
        else:
            values.append(value if isinstance(value, list) else [value])
            outcomes.update(map(classify_value, values[-1]))
        cpu_seconds += time.process_time() - start
    return {"cpu": cpu_seconds, **outcomes, "errors": dict(errors), "values": values}


def measure_tool(make_metrics: Callable[[str], tuple[str, Metrics]]) -> None:
    """Measure a tool: `make_metrics` takes the URL and returns the tool with its version, and its metrics."""
    with open(sys.argv[1], encoding="utf-8") as file:
        *traces, warmup_trace = json.load(file)
    url, refused = sys.argv[2], block_remote_hosts()
    out = os.dup(1)
    os.dup2(2, 1)  # what the tools print does not belong to the result
    version, metrics = make_metrics(f"{url}/v1")
    announce_work(url, len(traces), WARMUP)
    for score in metrics.values():
        score(warmup_trace)
    figures = {name: measure_metric(name, score, traces, url) for name, score in metrics.items()}
    result = json.dumps({"version": version, "metrics": figures, "refused": dict(refused)})
    with os.fdopen(out, "w", encoding="utf-8") as file:
        file.write(result)
    os._exit(0)  # some leave threads behind that wait
