"""View of the decisions of guards on live traffic, with what human labels say of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ragfault.apps.guard.decisions import GUARD_FIELD, parse_decisions
from ragfault.apps.guard.rates import GuardedRequest, GuardRates, compute_guard_rates
from ragfault.http.hosting import PageHost, RouteView, TimeRange
from ragfault.io.otel.guard_events import MAX_DECISIONS
from ragfault.labels.consensus import group_labels, rate_labeled_answer

# latest traces of the window that are read
MAX_REQUESTS = 20_000
# held-back answers with a label that are compared with it
MAX_LABELS = 1_000
# seconds for which computed rates are shown again
FRESH_SECONDS = 20.0


class GuardView(RouteView, frozen=True, kw_only=True):
    """Decisions of guards within a window."""

    traces: int
    """Traces of the window, with a decision or without."""
    checked: int
    """Latest traces of them, whose decisions are counted."""
    rates: GuardRates


class _Metadata(Struct, frozen=True):
    guard_decisions: list[Any] = []


class _GuardedBody(Struct, frozen=True):
    """The part of a stored trace that holds its decisions."""

    id: str
    route: str | None = None
    metadata: _Metadata = _Metadata()


def load_guard(host: PageHost, route: str | None, times: TimeRange) -> GuardView:
    """Load the rates of a range of time; those of a fixed one are not renewed."""
    window, until, is_fixed = times

    def compute() -> tuple[int, GuardRates]:
        total = host.count_traces(times, route)
        requests = _load_requests(host, route, times)
        return total, compute_guard_rates(requests, _load_labels(host, requests))

    name = f"guard {route!r} {window} {until if is_fixed else ''}"
    total, rates = host.get_cached(name, compute, FRESH_SECONDS)
    return GuardView(
        now=host.now(),
        window=window,
        until=until,
        route=route,
        traces=total,
        checked=min(total, MAX_REQUESTS),
        rates=rates,
    )


def _load_requests(host: PageHost, route: str | None, times: TimeRange) -> list[GuardedRequest]:
    """Load the requests with a decision among the latest traces of a range of time."""
    decoder = msgspec.json.Decoder(_GuardedBody)
    requests = []
    for body in host.iterate_bodies(f'"{GUARD_FIELD}":[', MAX_REQUESTS, times, route):
        try:
            record = decoder.decode(body)
        except msgspec.MsgspecError:
            # metadata of that name that is no list of decisions
            continue
        decisions = parse_decisions(record.metadata.guard_decisions[:MAX_DECISIONS])
        if decisions:
            requests.append(GuardedRequest(record.id, record.route, decisions))
    return requests


def _load_labels(host: PageHost, requests: Sequence[GuardedRequest]) -> dict[str, bool]:
    """Return of held-back answers whether labels call them bad, where all claims of that very answer were reviewed."""
    labels = group_labels(host.read_labels())
    bad: dict[str, bool] = {}
    for request in requests:
        answers = {decision.answer for decision in request.decisions if decision.outcome == "block"} - {None}
        mine = labels.get(request.id, [])
        verdicts = host.read_verdicts(request.id) if mine and answers and len(bad) < MAX_LABELS else None
        if verdicts is None or verdicts.claim is None:
            continue
        rating = rate_labeled_answer(mine, len(verdicts.claim), answers)
        if rating is not None:
            bad[request.id] = rating
    return bad
