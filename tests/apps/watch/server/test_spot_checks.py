"""A better judge on a sample: drawn fairly, paid within the budget, asked once, and corrected without bias."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from installed import skip_without

skip_without("duckdb", reason="the server needs the extra `server`")
skip_without("fastapi", reason="the server needs the extra `server`")
skip_without("openai", reason="the judge that checks needs the extra `llm`")

import endpoint
from ragfault.apps.watch.server.scoring.ppi_estimates import estimate_ppi
from ragfault.apps.watch.server.scoring.spot_checks import SALT_SETTING
from ragfault.apps.watch.server.settings import ServerSettings
from ragfault.apps.watch.server.state import ServerState
from ragfault.apps.watch.server.storage.opening import open_store
from ragfault.apps.watch.server.storage.records import SpotCheck, SpotCheckCounts, SpotCheckSample
from ragfault.apps.watch.server.storage.spot_checks import SpotCheckStore
from ragfault.apps.watch.server.storage.store import TraceStore
from ragfault.evaluation.evaluator import describe_metric
from ragfault.evaluation.online.scorer import SamplingPolicy, ScoredTrace, TraceSampler, TraceScorer, draw_lot
from ragfault.io.runs.run import MetricInfo
from ragfault.metrics.selection import select_metrics
from ragfault.model.errors import UsageError
from ragfault.model.records import ClaimVerdict, Score, Trace, Verdicts
from remembered import LEXICAL
from server_process import Server
from waiting import wait_until

METRICS = "context_relevance,groundedness,answer_relevance"
GROUNDEDNESS = MetricInfo("groundedness", "generation")
UNSURE = ClaimVerdict(claim="", start=0, end=0, support="supported", p=0.5, unsure=True)
DAY = 86400.0


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAGFAULT_LLM_API_KEY", "test")


def outcome(name: str, value: float = 1.0, *, doubt: bool = False, route: str | None = None) -> ScoredTrace:
    """Build a scored trace."""
    seen = Verdicts(trace=name, claim=(UNSURE,) if doubt else ())
    scores = (Score(name, "groundedness", "generation", "scored", value),)
    return ScoredTrace(Trace(id=name, query="?", route=route), seen, scores)


# --- the draw ----------------------------------------------------------------------------------------


def test_the_sampled_share_is_the_configured_one():
    """Of many traces that nothing speaks for, the share is drawn, and the same ones whoever draws."""
    sampling = SamplingPolicy(share=0.05, first=0)
    samplers = [TraceSampler(sampling, "ab" * 16, "j") for _ in range(2)]
    draws = [[sampler.draw(outcome(str(n))).taken for n in range(20_000)] for sampler in samplers]
    assert draws[0] == draws[1]
    assert abs(np.mean(draws[0]) - 0.05) < 0.006


def test_a_larger_share_takes_in_what_a_smaller_one_took():
    """Who asks for more keeps what was drawn; who does not know the salt cannot tell what that is."""
    names = [str(n) for n in range(2000)]
    few, more = ({name for name in names if draw_lot(name, b"salt") < share} for share in (0.05, 0.1))
    assert few < more
    assert few != {name for name in names if draw_lot(name, b"other") < 0.05}


def test_traces_that_tell_more_have_a_greater_chance():
    """One that fails, one that the judge doubts and one of a new route: the greatest of their chances holds."""
    sampler = TraceSampler(SamplingPolicy(share=0.1, first=2), "00", "j", {"old": 2})
    chances = [
        sampler.draw(scored).chance
        for scored in (
            outcome("1", route="old"),
            outcome("2", doubt=True, route="old"),
            outcome("3", 0.2, doubt=True, route="old"),
            outcome("4", doubt=True, route="new"),
            outcome("5", route="new"),
            outcome("6", route="new"),
        )
    ]
    assert chances == pytest.approx([0.1, 0.2, 0.4, 0.4, 0.4, 0.1])


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5])
def test_a_share_of_none_or_more_than_all_is_refused(share: float):
    """No trace may be without a chance."""
    with pytest.raises(UsageError, match="share"):
        SamplingPolicy(share=share)


# --- the estimate ------------------------------------------------------------------------------------


def simulate_day(rng: np.random.Generator, budget: float, traces: int = 800) -> tuple[SpotCheckSample, float]:
    """Simulate a day of declining traffic, drawn by the real sampler and checked until the budget is spent."""
    claims = rng.integers(1, 9, size=traces)
    level = np.clip(rng.beta(6, 1.5, size=traces) - np.linspace(0, 0.3, traces), 0, 1)
    better = rng.binomial(claims, level) / claims
    judged = np.where(rng.uniform(size=traces) < 0.5, better, rng.permutation(better))
    doubt = rng.uniform(size=traces) < np.where(judged == better, 0.1, 0.5)
    sampler = TraceSampler(SamplingPolicy(), rng.bytes(16).hex(), "j")
    draws = [sampler.draw(outcome(str(n), float(judged[n]), doubt=bool(doubt[n]))) for n in range(traces)]
    taken = np.array([draw.taken for draw in draws])
    late = np.flatnonzero(taken & (np.cumsum(taken * claims) > budget))
    before = np.arange(traces) < (late[0] if late.size else traces)
    asked, rest = taken & before, judged[before & ~taken]
    sample = SpotCheckSample(
        metric="groundedness",
        route="",
        scored=traces,
        covered=int(before.sum()),
        failed=0,
        remainder=(rest.size, float(rest.sum()), float(rest @ rest)),
        base_values=judged[asked],
        reference_values=better[asked],
        chance=np.array([draw.chance for draw in draws])[asked],
        cost=np.full(int(asked.sum()), 0.001),
        conversation=np.zeros(int(asked.sum()), dtype=np.uint64),
    )
    return sample, float(better[before].mean())


@pytest.mark.long
@pytest.mark.parametrize("budget", [np.inf, 250.0])
def test_the_interval_holds_the_truth_as_often_as_it_says(budget: float):
    """Of 300 days with unequal chances, 95 % of the intervals hold the mean of the covered traffic, money or not."""
    rng, inside, errors, naive = np.random.default_rng(5), [], [], []
    for _ in range(300):
        sample, truth = simulate_day(rng, budget)
        estimates = estimate_ppi(sample, GROUNDEDNESS, "j")
        inside.append(estimates.low <= truth <= estimates.high)
        errors.append(estimates.mean - truth)
        naive.append(float(sample.reference_values.mean()) - truth)
    assert 0.92 <= np.mean(inside) <= 0.985
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(300) + 0.002
    assert abs(np.mean(naive)) > 4 * abs(np.mean(errors))


def test_an_estimate_says_why_there_is_none():
    """Below ten checks there is no interval, and without any not even that."""
    sample, _ = simulate_day(np.random.default_rng(1), 20.0)
    estimate = estimate_ppi(sample, GROUNDEDNESS, "j")
    assert (estimate.mean, estimate.reason) == (None, f"only {estimate.checks} checks: at least 10 are needed")
    assert 0 < estimate.covered < 1
    assert estimate.dollars == pytest.approx(0.001 * estimate.checks)
    none = estimate_ppi(sample._replace(reference_values=np.full(estimate.checks, np.nan)), GROUNDEDNESS, "j")
    assert none.reason == "no checks yet"


# --- the store ---------------------------------------------------------------------------------------


def measures(names: str = METRICS) -> tuple[MetricInfo, ...]:
    return tuple(map(describe_metric, select_metrics(names.split(","))))


def store_sample(store: TraceStore, traces: list[Trace], sampler: TraceSampler) -> SpotCheckStore:
    """Store traces, score them and draw a sample."""
    scoring = TraceScorer(LEXICAL, metrics=METRICS.split(","))
    outcomes = [scoring(outcome_) for outcome_ in traces]
    store.append_traces(traces).result()
    store.add_outcomes(outcomes, measures()).result()
    assert store.spot_checks is not None
    store.spot_checks.add_draws([sampler.draw(outcome_) for outcome_ in outcomes]).result()
    return store.spot_checks


def test_what_is_behind_an_unsettled_draw_is_not_covered(tmp_path: Path):
    """Traces before the first draw that waits or was left out are spoken of, and no others, nor what had no chance."""
    store = open_store(tmp_path / "s")
    traces = [replace(draw, time=None) for draw in endpoint.make_traces(60)]
    port = store_sample(store, traces[:50], TraceSampler(SamplingPolicy(share=0.25, first=0), "07", "j"))
    store.append_traces(traces[50:]).result()
    store.add_outcomes([TraceScorer(LEXICAL, metrics=["groundedness"])(draw) for draw in traces[50:]], ()).result()
    waiting = port.list_waiting("j")
    assert 5 < len(waiting) < 30

    def covered() -> int:
        selected = port.read_samples("j", 0.0, 1e12, "groundedness")
        assert all(entry.remainder[0] + entry.reference_values.size == entry.covered for entry in selected)
        return sum(entry.covered for entry in selected)

    assert covered() == waiting[0].number - 1
    done = [SpotCheck(trace=draw.trace.id, judge="j", time=1.0) for draw in waiting[:3]]
    port.add_checks(done, [draw.number for draw in waiting[:3]]).result()
    assert covered() == waiting[3].number - 1
    assert port.skip_waiting("j", 2.0).result() == len(waiting) - 3
    assert covered() == waiting[3].number - 1
    assert not port.list_waiting("j")
    sample = port.count_checks("j")
    assert (sample.checked, sample.left, sample.waiting) == (3, len(waiting) - 3, 0)
    assert port.list_waiting("another") == []
    store.close()


def test_what_is_forgotten_is_forgotten_with_its_checks(tmp_path: Path):
    """No verdict of a better judge outlives its trace."""
    store = open_store(tmp_path / "s")
    port = store_sample(store, endpoint.make_traces(5), TraceSampler(SamplingPolicy(share=1.0), "07", "j"))
    waiting = port.list_waiting("j")
    done = [SpotCheck(trace=trace.trace.id, judge="j", time=1.0) for trace in waiting]
    port.add_checks(done, [trace.number for trace in waiting]).result()
    assert port.read_trace_checks("3")[0].chance == 1.0
    store.delete_expired(before=time.time() + DAY).result()
    assert port.count_checks("j") == SpotCheckCounts()
    assert (port.read_trace_checks("3"), port.count_draws()) == ((), {})
    port.add_checks(done, [trace.number for trace in waiting]).result()
    assert port.count_checks("j") == SpotCheckCounts()
    store.close()


# --- the server --------------------------------------------------------------------------------------


def checking(store: Path, url: str, *options: str, share: str = "0.4") -> Server:
    """Start a server with spot checks."""
    asked = ("--check", "llm:m", "--base-url", url, "--share", share, "--price", "1,2")
    return Server(store, "--metrics", METRICS, *asked, *options)


def progress(server: Server) -> dict:
    return dict(server.ask("/overview.json").json["checking"])


def wait_for_checks(server: Server, count: int) -> dict[str, Any]:
    """Return the progress once so many traces are scored and every drawn one of them is checked."""
    # a trace counts as scored after its draw is stored
    wait_until(lambda: f"ragfault_scoring_seconds_count {count}".encode() in server.ask("/metrics").body)
    wait_until(lambda: progress(server)["checked"] and not progress(server)["waiting"])
    return progress(server)


def daily_estimate(server: Server, path: str) -> dict[str, Any]:
    """Return the estimate of mean groundedness over a day that a page states; empty without one."""
    trends = server.ask(path).json["trends"]
    [trend] = [row for row in trends if row["window"] == 24 * 60 and row["metric"] == "groundedness"]
    return trend["ppi"] or {}


@pytest.mark.long
def test_a_server_checks_its_share_and_corrects_the_means(tmp_path: Path):
    """The traces that the salt draws are checked and no others; every page states the same estimate from them."""
    with endpoint.serve_model() as better:
        server = checking(tmp_path / "s", better.url, "--budget", "10")
        traces = endpoint.make_traces(200)
        assert server.send(traces).status == 200
        progress_at_end = wait_for_checks(server, len(traces))
        checked = progress_at_end["checked"]
        # estimates are recomputed every few seconds: compare those that include every check
        wait_until(lambda: daily_estimate(server, "/overview.json").get("checks") == checked)
        wait_until(lambda: daily_estimate(server, "/metrics/groundedness.json").get("checks") == checked)
        wait_until(lambda: b"ragfault_ppi{" in server.ask("/metrics").body)
        estimate = daily_estimate(server, "/overview.json")
        assert daily_estimate(server, "/metrics/groundedness.json") == estimate
        pages = [server.ask(f"/traces/{trace.id}").body for trace in traces]
        assert sum(b"By the better judge" in page for page in pages) == checked
        assert server.end() == 0
        assert better.counts()["paid"] == 2 * checked
        assert progress_at_end["tokens"] == better.tokens
    store = open_store(tmp_path / "s")
    salt = bytes.fromhex(store.read_setting(SALT_SETTING))
    checks = {trace.id: store.spot_checks.read_trace_checks(trace.id) for trace in traces}
    store.close()
    checked_ids = {name for name, of_trace in checks.items() if of_trace}
    assert {trace.id for trace in traces if draw_lot(trace.id, salt) < 0.4} <= checked_ids
    assert len(checked_ids) == checked
    assert {checks[name][0].chance for name in checked_ids} <= {0.4, 0.8, 1.0}
    assert estimate["low"] <= estimate["mean"] <= estimate["high"]
    assert (estimate["checks"], estimate["covered"]) == (checked, 1.0)
    assert estimate["dollars"] == pytest.approx(progress_at_end["dollars"])


@pytest.mark.long
def test_the_budget_of_a_day_holds_over_restarts(tmp_path: Path):
    """What a day may come to is never passed, however often the server is started; what was left out is counted."""
    most = 60_000
    with endpoint.serve_model() as better:
        for turn in range(3):
            server = checking(
                tmp_path / "s", better.url, "--budget", f"{most} tokens", "--max-tokens", "512", share="1"
            )
            traces = [
                replace(trace, id=f"{turn}-{trace.id}") for trace in endpoint.make_traces(60, answer=f"{turn} {{n}}.")
            ]
            server.send(traces)
            count = 60 * (turn + 1)
            wait_until(lambda: progress(server)["checked"] + progress(server)["left"] == count)  # noqa: B023
            status = progress(server)
            server.end(signal.SIGTERM if turn else signal.SIGKILL)
            assert better.tokens <= status["tokens"] <= most
            if turn == 0:
                first = status
        assert first["checked"] == status["checked"] > 5
        assert status["checked"] + status["left"] == 180


@pytest.mark.long
def test_a_kill_loses_nothing_that_was_paid_for(tmp_path: Path):
    """Killed at any point, a server pays again for nothing but what was under way, and asks about all in the end."""
    at_once = 4
    with endpoint.serve_model(delay=0.02) as better:
        for turn in range(4):
            server = checking(tmp_path / "s", better.url, "--budget", "10", "--concurrency", str(at_once), share="1")
            if turn == 0:
                server.send(endpoint.make_traces(60))
                server.settled(60)
            if turn == 3:
                wait_until(lambda: progress(server)["waiting"] == 0)  # noqa: B023
                assert progress(server)["checked"] == 60
                server.end()
            else:
                least = better.counts()["calls"] + 20
                wait_until(lambda: better.counts()["calls"] >= least)  # noqa: B023
                server.end(signal.SIGKILL)
        assert better.counts()["different"] == 120
        assert sum(better.paid.values()) <= 120 + 3 * at_once
    store = open_store(tmp_path / "s")
    assert all(len(store.spot_checks.read_trace_checks(str(n))) == 1 for n in range(60))
    store.close()


def make_state(tmp_path: Path, url: str, **asking) -> ServerState:
    """Build the state of a server without scoring workers."""
    asked = {"base_url": url, "budget": 10.0, "price": (1.0, 2.0), "tries": 1, **asking}
    settings = ServerSettings(
        store=tmp_path / "s",
        workers=0,
        check="llm:m",
        share=1.0,
        check_options=asked,
        metrics=tuple(METRICS.split(",")),
    )
    return ServerState(settings, open_store(tmp_path / "s"))


def add_traces(at: ServerState, count: int, evil: int = 0) -> None:
    """Store traces, score them and draw a sample; the first `evil` of them are refused by some judges."""
    scoring = TraceScorer(LEXICAL, metrics=METRICS.split(","))
    traces = endpoint.make_traces(count)
    traces[:evil] = [replace(trace, query=f"An evil {trace.query}") for trace in traces[:evil]]
    outcomes = [scoring(trace) for trace in traces]
    at.store.append_traces([trace.trace for trace in outcomes]).result()
    at.store.add_outcomes(outcomes, measures()).result()
    assert at.spot_checker is not None
    at.spot_checker.draw_sample(outcomes).result()


@pytest.mark.long
def test_a_judge_that_is_out_of_reach_is_waited_for(tmp_path: Path):
    """While nobody answers the traces wait and the reason is told; when somebody does they are all asked about."""
    with endpoint.serve_model() as better:
        url = better.url
    at = make_state(tmp_path, url)
    at.open()
    add_traces(at, 8)
    wait_until(lambda: at.spot_checker.progress().fault is not None)
    status = at.spot_checker.progress()
    assert (status.waiting, status.checked, status.left) == (8, 0, 0)
    assert status.errors > 0
    assert "reach" in status.fault
    with endpoint.serve_model(port=int(url.split(":")[2].split("/")[0])):
        wait_until(lambda: at.spot_checker.progress().checked == 8)
        assert at.spot_checker.progress().fault is None
        at.close()


@pytest.mark.long
def test_a_trace_that_the_judge_cannot_judge_fails_alone(tmp_path: Path):
    """A trace on which the judge fails again while it answers for others is given up; the rest is not held up by it."""
    with endpoint.serve_model({"filter": 0.2}, seed=3) as better:
        at = make_state(tmp_path, better.url)
        at.open()
        add_traces(at, 30)
        wait_until(lambda: at.spot_checker.progress().waiting == 0)
        status = at.spot_checker.progress()
        at.close()
    assert status.checked + status.failed == 30
    assert status.checked > 15


class Picky(endpoint.Server):
    """An endpoint that has nothing to say of some."""

    def _fault(self, name, tries):
        return "filter" if self.evil else super()._fault(name, tries)

    async def _completion(self, headers, asked, writer):
        self.evil = "evil" in str(asked["messages"])
        return await super()._completion(headers, asked, writer)


@pytest.mark.long
def test_traces_that_the_judge_cannot_judge_keep_no_others_waiting(tmp_path: Path):
    """However many traces stand first that the judge fails on, those behind them are asked about."""
    with endpoint.serve_model(kind=Picky) as better:
        at = make_state(tmp_path, better.url, concurrency=1)
        at.open()
        add_traces(at, 12, evil=5)
        wait_until(lambda: at.spot_checker.progress().waiting == 0)
        status = at.spot_checker.progress()
        at.close()
    assert (status.checked, status.failed) == (7, 5)


# --- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"), [({"check": "llm:m"}, "budget=5"), ({"check": "llm:m", "share": 0.0}, "share")]
)
def test_settings_that_do_not_hold_together_are_refused(tmp_path: Path, options: dict, message: str):
    """A judge that is asked day and night has a budget, and a share of something."""
    with pytest.raises(UsageError, match=message):
        ServerSettings(store=tmp_path, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", "5"), "--check llm:MODEL"),
        (("--check", "lexical", "--budget", "5"), "llm:MODEL"),
        (("--check", "llm:m", "--budget", "much"), "not an amount"),
    ],
)
def test_an_invalid_command_is_reported(tmp_path: Path, options: tuple[str, ...], message: str, capsys):
    """What the command line is given for checking is held against what there is."""
    from ragfault.cli.commands import run_command

    assert run_command(["serve", "--store", str(tmp_path / "s"), "--port", "0", *options]) == 2
    assert message in capsys.readouterr().err
