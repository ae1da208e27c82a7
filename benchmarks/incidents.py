"""Check the incidents of simulated weeks of live traffic: none where nothing broke, one for each fault.

    python -m benchmarks.incidents [NAME ...] [--seed 0] [--rate 0.3]

Traces with made scores go through the store and the scheduler of a server whose clock is simulated; incidents are read
over its HTTP interface. Traffic begins on a Monday, with the reference of a day, if nothing else is said. A fault
begins at hour 60 (Wednesday at noon) after a mark and lasts for six
hours. Rounds are each hour, around a fault every ten minutes. Prints for each kind of traffic the notices that
receivers would be sent, and exits 1 where they are not those expected.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fastapi.testclient import TestClient

from ragfault.apps.watch.server.app import create_app
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online.scorer import ScoredTrace
from ragfault.metrics.selection import select_metrics
from ragfault.model.records import Latency, Score, Trace, Verdicts

MONDAY = 1_900_000_000 // 604_800 * 604_800 + 4 * 86_400.0
HOUR_MINUTES, DAY_MINUTES = 60, 1440
ROUTES = ("search", "help", "shop")
METRICS = (
    *("context_relevance", "groundedness", "answer_relevance", "latency"),
    *("error", "blank_answer", "empty_retrieval"),
)
TENANTS = {"acme": 0.15, "b": 0.3, "c": 0.2, "d": 0.15, "e": 0.1, "f": 0.05, "g": 0.05}  # share of the traffic
COHORT_FIELDS = ("release", "metadata.tenant")
USUAL_LEVELS = {
    "context_relevance": 0.8, "groundedness": 0.88, "answer_relevance": 0.82, "error": 0.004, "blank_answer": 0.002,
    "empty_retrieval": 0.002, "latency": 800.0, "volume": 1.0,
}  # fmt: skip
FAULT_MINUTES = 60 * HOUR_MINUTES, 66 * HOUR_MINUTES

Levels = dict[str, float]
LevelFunction = Callable[[str, int], Levels]
"""Levels that differ from the usual ones, on a route at a minute since the beginning."""


class TrafficCase(NamedTuple):
    """A kind of traffic, and the incident that is expected."""

    levels: LevelFunction
    days: float = 10
    expected: str = ""
    """How the title of the one incident begins; empty: no incident; "?": any that names no layer and ends."""
    affected_routes: tuple[str, ...] = ROUTES[:1]
    first_day: int = 0
    fault: tuple[int, int] = FAULT_MINUTES
    """Minutes between which the fault lasts."""
    tenant: Levels | None = None
    """Levels of the tenant "acme" alone during the fault, on all routes."""
    late: int = 0  # minutes by which all traces come after their time


def is_within(minute: int, times: tuple[int, int] = FAULT_MINUTES) -> bool:
    """Return whether a minute is in a half-open range, by default that of the fault."""
    return times[0] <= minute < times[1]


def is_weekend(minute: int) -> bool:
    """Return whether a minute since a Monday is on a Saturday or Sunday."""
    return minute // DAY_MINUTES % 7 >= 5


def compute_wave(minute: int) -> float:
    """Return a sine over the day, from -1 to 1."""
    return math.sin(2 * math.pi * minute / DAY_MINUTES)


def make_case(days: int = 10, on: Iterable[str] = ROUTES, **levels: float | Callable[[int], float]) -> TrafficCase:
    """Return healthy traffic with other levels on some routes, constant or by minute."""
    routes = frozenset(on)

    def shape(route: str, minute: int) -> Levels:
        own = levels if route in routes else {}
        return {name: level if isinstance(level, float) else level(minute) for name, level in own.items()}

    return TrafficCase(shape, days)


def break_case(
    expected: str,
    affected: Iterable[str] = ROUTES[:1],
    routes: Iterable[str] | None = None,
    fault: tuple[int, int] = FAULT_MINUTES,
    **levels: float,
) -> TrafficCase:
    """Return traffic of day and night with other levels on some routes during the fault."""
    affected = tuple(affected)

    def shape(route: str, minute: int) -> Levels:
        return {"volume": 1 + 0.6 * compute_wave(minute)} | (
            levels if route in affected and is_within(minute, fault) else {}
        )

    days = -(-fault[1] // DAY_MINUTES) + 1
    return TrafficCase(shape, days, expected, affected if routes is None else tuple(routes), fault=fault)


def make_weekend_level(level: float, usual: float) -> Callable[[int], float]:
    """Return a function of the minute with one level on weekends and another on other days."""
    return lambda minute: level if is_weekend(minute) else usual


def make_step_level(minute: int, after: float, before: float) -> Callable[[int], float]:
    """Return a function of the minute with one level from a minute on, and another before."""
    return lambda at: after if at >= minute else before


RETRIEVAL_FAULT = {"context_relevance": 0.4, "groundedness": 0.6}
WEEKEND_FAULT = 126 * HOUR_MINUTES, 150 * HOUR_MINUTES  # from Saturday, 6 h
MONDAY_FAULT = 177 * HOUR_MINUTES, 183 * HOUR_MINUTES  # from 9 h
SECOND_WEEK = 228 * HOUR_MINUTES, 234 * HOUR_MINUTES  # Wednesday at noon
FIVE_MINUTES = FAULT_MINUTES[0], FAULT_MINUTES[0] + 5
CASES = {
    "constant": make_case(),
    "day and night": make_case(
        groundedness=lambda at: 0.88 + 0.04 * compute_wave(at),
        volume=lambda at: 1 + 0.7 * compute_wave(at),
        latency=lambda at: 800 * 1.3 ** compute_wave(at),
    ),
    "one noisy route": make_case(on=["help"], groundedness=lambda at: 0.7 + 0.05 * math.sin(at / 97), volume=0.3),
    "traffic starts": make_case(volume=lambda at: min(2.0, at / DAY_MINUTES)),
    "release without change": make_case(4),
    "small traffic": make_case(14, volume=0.05),
    "office hours": make_case(
        13, volume=lambda at: 2.0 if 8 <= at % DAY_MINUTES / 60 < 18 and not is_weekend(at) else 0.0
    )._replace(expected="?"),
    "backlog that clears": make_case(4),
    "a route at .6": make_case(on=["help"], groundedness=0.6, answer_relevance=0.5),
    "a route at .6 comes later": make_case(
        7, ["help"], groundedness=0.6, volume=make_step_level(3 * DAY_MINUTES, 1.0, 0.0)
    ),
    "a route ends": make_case(7, ["help"], volume=make_step_level(3 * DAY_MINUTES, 0.0, 1.0)),
    "twice the traffic": make_case(7, volume=make_step_level(3 * DAY_MINUTES, 2.5, 1.0)),
    "5 % errors on one route": make_case(on=["help"], error=0.05),
    "20 traces a day": make_case(14, volume=0.0154),
    "latency doubles by day": make_case(
        latency=lambda at: 800 * 2.0 ** compute_wave(at), volume=lambda at: 1 + 0.7 * compute_wave(at)
    ),
    "latency wanders": make_case(
        latency=lambda at: 800 * math.exp(0.35 * math.sin(at / 371) + 0.2 * math.sin(at / 2311))
    ),
    "errors at night": make_case(
        on=["help"], error=lambda at: 0.15 if 2 <= at % DAY_MINUTES / HOUR_MINUTES < 4 else 0.004
    ),
    "slow weekends": make_case(16, latency=make_weekend_level(1400.0, 800.0))._replace(expected="?"),
    "release 10 % slower": make_case(on=["search"], latency=make_step_level(FAULT_MINUTES[0], 880.0, 800.0)),
    "retrieval on one route": break_case("Retrieval broke", **RETRIEVAL_FAULT),
    "retrieval, 10 points": break_case("Retrieval broke", context_relevance=0.7, groundedness=0.8),
    "retrieval everywhere": break_case("Retrieval broke", ROUTES, **RETRIEVAL_FAULT),
    "generation everywhere": break_case("Generation broke", ROUTES, groundedness=0.5),
    "generation on one route": break_case("Generation broke", groundedness=0.6),
    "errors everywhere": break_case("More traces end in an error", ROUTES, error=0.4),
    "errors on one route": break_case("More traces end in an error", error=0.4),
    "errors, 10 points": break_case("More traces end in an error", error=0.1),
    "all traces fail": break_case("More traces end in an error", ROUTES, error=1.0),
    "timeout of five minutes": break_case("?", ROUTES, fault=FIVE_MINUTES, error=1.0),
    "blank answers": break_case("More answers are blank", blank_answer=0.4),
    "nothing is retrieved": break_case("More retrievals return no chunk", empty_retrieval=0.6, groundedness=0.4),
    "slow on one route": break_case("Traces take longer", latency=1600.0),
    "slow in the second week": break_case("Traces take longer", fault=SECOND_WEEK, latency=1600.0),
    "retrieval in the second week": break_case("Retrieval broke", fault=SECOND_WEEK, **RETRIEVAL_FAULT),
    "slow everywhere": break_case("Traces take longer", ROUTES, latency=1600.0),
    "slow and failing": break_case("More traces end in an error", latency=2400.0, error=0.3),
    "fault on a Monday": break_case("context_relevance", fault=MONDAY_FAULT, **RETRIEVAL_FAULT),
    "no traffic": break_case("No traces come in", ROUTES, (), volume=0.0),
    "errors of one tenant": break_case("More traces end in an error", (), ["cohort metadata.tenant=acme"])._replace(
        tenant={"error": 0.8}
    ),
    "an hour late": break_case("Retrieval broke", **RETRIEVAL_FAULT)._replace(late=60),
    "errors an hour late": break_case("More traces end in an error", error=0.4)._replace(late=60),
    "late without change": make_case(4)._replace(late=60),
    "wrong chunks for one tenant": break_case("Retrieval broke", (), ["cohort metadata.tenant=acme"])._replace(
        tenant=RETRIEVAL_FAULT
    ),
    "weekends": make_case(
        9,
        groundedness=make_weekend_level(0.8, 0.88),
        context_relevance=make_weekend_level(0.72, 0.8),
        volume=make_weekend_level(0.3, 1.0),
    )._replace(expected="?"),
    "fault on a weekend": TrafficCase(
        lambda route, at: RETRIEVAL_FAULT if route == "search" and is_within(at, WEEKEND_FAULT) else {},
        8,
        "context_relevance",
        fault=WEEKEND_FAULT,
    ),
    "weekends, three weeks": make_case(
        23,
        groundedness=make_weekend_level(0.8, 0.88),
        context_relevance=make_weekend_level(0.72, 0.8),
        volume=make_weekend_level(0.3, 1.0),
    )._replace(expected="?"),
    "a fault that lasts": TrafficCase(
        lambda route, at: RETRIEVAL_FAULT if route == "search" and at >= FAULT_MINUTES[0] else {}, 10, "Retrieval broke"
    ),
}
"""After a reference of a day without a weekend, another one may open incidents, which name no layer."""


class SimulatedServer:
    """A server without workers whose traffic, scores and clock are simulated."""

    def __init__(self, folder: Path, seed: int, first_day: int) -> None:
        self.begin = MONDAY + 86_400 * first_day
        self.moment = self.begin
        self.app = create_app(ServerSettings(store=folder, workers=0, metrics=METRICS), lambda: self.moment)
        self.server, self.scheduler = self.app.state.server, self.app.state.scheduler
        self.client = TestClient(self.app)
        self.measures = tuple(map(describe_metric, select_metrics(METRICS)))
        self.layers = {measure.name: measure.layer for measure in self.measures}
        self.rng, self.tenants = np.random.default_rng(seed), np.random.default_rng([seed, 1])
        self.notices: list[Any] = []
        self.waiting: list[ScoredTrace] = []
        self.count = 0

    def run_traffic(self, case: TrafficCase, name: str, rate: float) -> None:
        store, end = self.server.store, 0
        while end < case.days * DAY_MINUTES:
            first, end = (
                end,
                end + (10 if case.expected and is_within(end, (case.fault[0] - 60, case.fault[1] + 720)) else 60),
            )
            outcomes = [
                outcome
                for minute in range(max(0, first - case.late), max(0, end - case.late))
                for route in ROUTES
                for outcome in self.simulate_minute(case, route, minute, rate)
            ]
            self.moment = self.begin + 60.0 * end
            self.server.counters.add("taken", len(outcomes))
            store.append_traces([outcome.trace for outcome in outcomes])
            self.waiting += outcomes
            if name != "backlog that clears" or not is_within(end):
                store.add_outcomes(self.waiting, self.measures, COHORT_FIELDS).result()
                self.waiting = []
            if end == case.fault[0]:
                mark = {"text": "release 7", "time": datetime.fromtimestamp(self.moment, UTC).isoformat()}
                self.client.post("/v1/ragfault/marks", json=mark, headers={"host": "localhost"}).raise_for_status()
            for notice in self.scheduler.run_round():
                view = self.client.get("/incidents.json", headers={"host": "localhost"}).json()
                self.notices.append((end, notice, view))

    def simulate_minute(self, case: TrafficCase, route: str, minute: int, rate: float) -> list[ScoredTrace]:
        levels = USUAL_LEVELS | case.levels(route, minute)
        own = levels | (case.tenant or {}) if is_within(minute, case.fault) else levels
        return [
            self.simulate_trace(route, minute, levels, own) for _ in range(self.rng.poisson(rate * levels["volume"]))
        ]

    def simulate_trace(self, route: str, minute: int, levels: Levels, own: Levels) -> ScoredTrace:
        """Simulate a trace with some levels, or with those of a tenant's own."""
        self.count += 1
        tenant = str(self.tenants.choice(list(TENANTS), p=list(TENANTS.values())))
        levels = own if tenant == "acme" else levels
        id, rng = f"{route}-{minute}-{self.count}", self.rng
        latency = levels["latency"] * math.exp(0.5 * rng.normal())
        has_error, is_empty, is_blank = (
            float(rng.random() < levels[name]) for name in ("error", "empty_retrieval", "blank_answer")
        )
        answer = None if has_error else "" if is_blank else "Now."
        moment = datetime.fromtimestamp(self.begin + 60 * minute + float(rng.integers(60)), UTC)
        metadata = {"release": "7" if minute >= FAULT_MINUTES[0] else "6", "tenant": tenant}
        trace = Trace(
            id=id,
            query="When?",
            answer=answer,
            route=route,
            error="timeout" if has_error else None,
            time=moment,
            latency=Latency(total=latency),
            metadata=metadata,
        )
        values = {"latency": latency, "error": has_error}
        context_relevance, answer_relevance = (
            float(np.clip(rng.normal(levels[name], 0.15), 0, 1)) for name in ("context_relevance", "answer_relevance")
        )
        if not has_error:
            values |= {"empty_retrieval": is_empty, "blank_answer": is_blank}
            values |= {} if is_empty else {"context_relevance": context_relevance}
            grounded = rng.binomial(4, levels["groundedness"]) / 4
            values |= {} if is_blank else {"groundedness": grounded, "answer_relevance": answer_relevance}
        scores = [
            Score(trace=id, metric=name, layer=self.layers[name], status="scored", value=value)
            for name, value in values.items()
        ]
        return ScoredTrace(trace, Verdicts(trace=id, judge="made/1"), tuple(scores))


def describe_time(minute: float) -> str:
    return f"day {minute // DAY_MINUTES:.0f} {minute % DAY_MINUTES // 60:02.0f}:{minute % 60:02.0f}"


def check_case(name: str, case: TrafficCase, seed: int, rate: float) -> bool:
    """Run one kind of traffic; print its notices, and return whether they are those expected."""
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        simulated = SimulatedServer(Path(folder) / "store", seed, case.first_day)
        simulated.run_traffic(case, name, rate)
        simulated.server.store.close()
    opened = {notice.incident.id: notice.incident for _, notice, _ in simulated.notices}
    kinds = [notice.kind for _, notice, _ in simulated.notices]
    if not case.expected:
        is_right = not opened
    elif case.expected == "?":
        is_right = kinds.count("opened") == kinds.count("resolved") and not any(
            incident.branch for incident in opened.values()
        )
    else:
        incident = next(iter(opened.values()), None)
        is_right = (
            len(opened) == 1
            and incident is not None
            and incident.title.startswith(case.expected)
            and set(incident.routes) >= set(case.affected_routes)
            and (case.tenant or set(incident.routes) <= set(case.affected_routes))
            and kinds.count("opened") == 1
        )
    delays = [minute - case.fault[0] for minute, notice, _ in simulated.notices if notice.kind == "opened"]
    result = "right" if is_right else "WRONG" if opened or not case.expected else "undetected"
    seconds = time.process_time() - start
    ends = [minute - case.fault[1] for minute, notice, _ in simulated.notices if notice.kind == "resolved"]
    delay = f", {delays[0]} min after the fault began" if case.expected not in ("", "?") and delays else ""
    delay += f", over {ends[-1]} min after it ended" if delay and ends else ""
    print(f"{result}: {name}: {len(opened)} incidents{delay}, {simulated.count:,} traces, {seconds:.0f} s", flush=True)
    for minute, notice, view in simulated.notices:
        incident = notice.incident
        shown = sum(row["id"] == incident.id for row in [*view["open"], *view["past"]])
        onset = describe_time((incident.onset - simulated.begin) / 60)
        routes = ", ".join(route or "" for route in incident.routes)
        print(f"  {describe_time(minute)} {notice.kind}: {incident.title} | {routes} | {onset} | {incident.sentence}")
        print(f"    marks {[mark.text for mark in incident.marks]}, {len(incident.traces)} traces, shown {shown}")
    return is_right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="kinds of traffic; all if none is named")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.3, help="traces a minute of each of the three routes")
    options = parser.parse_args()
    results = [check_case(name, CASES[name], options.seed, options.rate) for name in options.names or CASES]
    print(f"{sum(results)} of {len(results)} right")
    raise SystemExit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
