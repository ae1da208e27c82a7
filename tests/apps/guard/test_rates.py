"""Rates: shares of requests by rail and route, of which the last decision is what the user got."""

from __future__ import annotations

from ragfault.apps.guard.decisions import GuardDecision
from ragfault.apps.guard.rails import RailResult
from ragfault.apps.guard.rates import MAX_RAILS, MAX_ROUTES, GuardedRequest, compute_guard_rates


def decide(outcome: str, *rails: tuple[str, str], **fields: object) -> GuardDecision:
    results = tuple(RailResult(rail=rail, stage="output", outcome=seen, latency=2.0) for rail, seen in rails)  # type: ignore[arg-type]
    return GuardDecision(trace="x", outcome=outcome, results=results, latency=5.0, **fields)  # type: ignore[arg-type]


BLOCK = decide("block", ("secrets", "pass"), ("groundedness", "block"))
PASS = decide("pass", ("secrets", "pass"), ("groundedness", "pass"), promised=True)


def test_a_request_that_was_answered_after_another_attempt_is_blocked_but_did_not_abstain() -> None:
    rates = compute_guard_rates([GuardedRequest("1", "web", (BLOCK, PASS)), GuardedRequest("2", "web", (BLOCK,))])
    [total] = rates.routes
    assert (total.blocked.mean, total.abstained.mean, total.promised.mean) == (1.0, 0.5, 0.5)
    assert {rail.rail: rail.blocked.mean for rail in rates.rails} == {"groundedness": 1.0, "secrets": 0.0}
    assert total.latency_p95 > total.latency_p50 == 7.5


def test_the_rates_of_routes_add_up_and_a_rail_counts_where_it_checked() -> None:
    requests = [GuardedRequest(str(i), "web" if i % 3 else None, (BLOCK if i % 2 else PASS,)) for i in range(12)]
    requests += [
        GuardedRequest("13", "chat", (decide("pass", ("jailbreak", "pass")),)),
        GuardedRequest("14", "web", ()),
    ]
    rates = compute_guard_rates(requests)
    assert rates.requests == 13
    assert sum(row.requests for row in rates.routes[1:]) == rates.routes[0].requests == 13
    assert {(rail.rail, rail.route): rail.checked for rail in rates.rails_by_route if rail.rail != "secrets"} == {
        ("groundedness", "web"): 8,
        ("groundedness", ""): 4,
        ("jailbreak", "chat"): 1,
    }


def test_false_blocks_are_those_that_labels_call_good() -> None:
    requests = [GuardedRequest(str(i), "web", (BLOCK,)) for i in range(4)] + [GuardedRequest("9", "web", (PASS,))]
    rates = compute_guard_rates(requests, {"0": False, "1": True, "2": True, "9": False})
    assert rates.labels == 3
    assert rates.routes[0].false_blocks is not None
    assert rates.routes[0].false_blocks.n == 3
    assert round(rates.routes[0].false_blocks.mean, 3) == 0.333
    by_rail = {rail.rail: rail.false_blocks for rail in rates.rails}
    assert by_rail["secrets"] is None
    assert compute_guard_rates(requests).routes[0].false_blocks is None


def test_rails_and_routes_are_bounded_and_the_totals_are_not() -> None:
    requests = [
        GuardedRequest(str(i), f"route {i}", (decide("pass", (f"rail {i}", "pass")),)) for i in range(MAX_ROUTES + 40)
    ]
    rates = compute_guard_rates(requests)
    assert rates.routes[0].requests == MAX_ROUTES + 40
    assert len(rates.routes) == 1 + MAX_ROUTES
    assert len(rates.rails) == MAX_RAILS
    assert rates.left_out == 40 + MAX_ROUTES + 40 - MAX_RAILS
    assert compute_guard_rates([]).routes == ()


def test_a_repeated_decision_of_an_action_counts_its_rails_and_its_time_once() -> None:
    ended = decide("block", ("groundedness", "block"), action="disclaim")
    rates = compute_guard_rates([GuardedRequest("1", "web", (BLOCK, ended))])
    assert rates.routes[0].abstained.mean == 0.0
    assert rates.routes[0].latency_p50 == 5.0
    assert rates.rails[0].checked == 1
