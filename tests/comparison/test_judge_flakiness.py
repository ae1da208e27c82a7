"""How far a judge differs from itself, and what that does to intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from endpoint import make_traces, serve_model
from ragfault.cli.commands import run_command as command
from ragfault.comparison.compare import compare
from ragfault.comparison.paired_runs import pair_runs
from ragfault.io.runs.run import MetricInfo
from ragfault.labels.judges.flakiness import (
    JudgeFlakiness,
    MetricFlakiness,
    load_flakiness,
    measure_flakiness,
    widen_intervals,
)
from ragfault.labels.judges.runner import repeat_judge
from ragfault.model.errors import BudgetExceeded, InputError, UsageError
from ragfault.model.protocols import VERDICT_KINDS, VerdictKind
from ragfault.model.records import Trace, Verdicts
from ragfault.report.json_documents import encode_document
from ragfault.stats.differences import paired_difference
from sample_runs import FixedJudge, evaluate_pairs, pair

MEASURE = MetricInfo("groundedness", "generation")


class Moody(FixedJudge):
    """A judge that says something else each time it is asked."""

    fingerprint = "moody/1"
    offers: frozenset[VerdictKind] = frozenset(VERDICT_KINDS)

    def __init__(self, moods: Sequence[Sequence[Verdicts]]) -> None:
        self._moods, self._at = moods, -1

    def observe(self, traces: Sequence[Trace]) -> list[Verdicts]:
        if traces[0].id == self._moods[0][0].trace:
            self._at += 1
        there = {item.trace: item for item in self._moods[self._at]}
        return [there[trace.id] for trace in traces]


def moods() -> tuple[list[Trace], Moody]:
    """Build seventy traces; on every second repeat the claims of two in seven are turned."""
    plain = [pair(f"t{at:02}", "h", "su") for at in range(70)]
    turned = [pair(f"t{at:02}", "h", "uu" if at % 7 < 2 else "su")[1] for at in range(70)]
    return [trace for trace, _ in plain], Moody([[seen for _, seen in plain], turned] * 3)


def test_the_spread_is_that_counted_by_hand():
    """Within-trace variance, share that moves, and the intraclass correlation of a small table."""
    flakiness = measure_flakiness("x", np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]))
    assert flakiness.deviation == pytest.approx(0.5)  # two of four have a variance of 1/2
    assert flakiness.flips == 0.5
    between = 2 * np.var([0.5, 1.0, 0.0, 0.5], ddof=1)
    assert flakiness.reliability == pytest.approx((between - 0.25) / (between + 0.25))
    assert flakiness.drift == 0.0  # both means are 1/2
    assert measure_flakiness("x", np.array([[0.0, 0.5], [0.2, 0.7]])).drift == pytest.approx(
        0.5 / math.sqrt(2), rel=1e-9
    )


def test_a_judge_that_says_the_same_is_steady():
    """A judge of the package moves no metric, and widens nothing."""
    traces, _ = moods()
    flakiness = repeat_judge("lexical", traces[:5], repeats=2)
    assert flakiness.deterministic
    assert {(metric.deviation, metric.drift, metric.flips) for metric in flakiness.metrics} == {(0.0, 0.0, 0.0)}


def test_repeats_are_counted_metric_by_metric():
    """Two in seven traces flip, and the mean of a repeat with them."""
    traces, judge = moods()
    flakiness = repeat_judge(judge, traces, repeats=4)
    output = {metric.metric: metric for metric in flakiness.metrics}
    assert (flakiness.judge, flakiness.repeats, flakiness.traces) == ("moody/1", 4, 70)
    assert output["groundedness"].flips == pytest.approx(2 / 7)
    assert output["groundedness"].drift > 0.05  # all turn at once
    assert output["refusal"].flips == 0.0
    with pytest.raises(UsageError, match="repeats"):
        repeat_judge(judge, traces, repeats=1)
    with pytest.raises(InputError, match="no trace"):
        repeat_judge(judge, [], repeats=2)


def test_a_budget_is_that_of_all_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One repeat of a judge that is paid for stays within it, three do not: together they never pass it."""
    monkeypatch.setenv("RAGFAULT_CACHE", str(tmp_path / "cache.sqlite"))
    monkeypatch.delenv("RAGFAULT_LLM_API_KEY", raising=False)
    with serve_model() as server:
        options = {"base_url": server.url, "cache": "none", "max_tokens": 300, "budget_tokens": 40_000}
        with pytest.raises(BudgetExceeded, match="budget="):
            repeat_judge("llm:m", make_traces(12), repeats=3, options=options)
        assert 20_000 < server.tokens <= 40_000
        assert repeat_judge(
            "llm:m", make_traces(12), repeats=3, options={**options, "budget_tokens": 10**6}
        ).deterministic
    assert command(["judge", "repeat", "t.jsonl", "--judge", "llm:m", "--cache", "kept.sqlite"]) == 2


def test_noise_of_single_traces_is_in_the_interval_already():
    """Where each trace errs by itself the usual interval holds the truth as often as it says; drift must be added."""
    rng, n, k = np.random.default_rng(0), 100, 5
    widened = {0.0: 0, 0.05: 0}
    wide = 0
    for drift in widened:
        for _ in range(300):
            truth = rng.normal(0.5, 0.1, n)
            days = rng.normal(0, drift, 2) if drift else np.zeros(2)
            runs = [truth + rng.normal(0, 0.1, n) + day for day in days]
            usual = paired_difference(*runs, resamples=200)
            widened[drift] += usual.low <= 0 <= usual.high
            if drift:
                again = truth[:, None] + rng.normal(0, 0.1, (n, k)) + rng.normal(0, drift, k)
                comparison = JudgeFlakiness(
                    judge="j", repeats=k, traces=n, metrics=(measure_flakiness("groundedness", again),)
                )
                (wider,) = widen_intervals([usual], [replace(MEASURE, low=None)], comparison)
                wide += wider.low <= 0 <= wider.high
    assert widened[0.0] >= 0.92 * 300
    assert widened[0.05] <= 0.6 * 300
    assert wide >= 0.88 * 300


def test_an_interval_grows_by_the_drift():
    """Twice the squared drift is added to the variance; no drift changes nothing; ends stay within the range."""
    metric, other = np.linspace(0, 1, 50), np.linspace(0, 1, 50) ** 2
    plain = paired_difference(metric, other, bounds=(0, 1))
    still = MetricFlakiness(metric="groundedness", n=50, deviation=0.2, drift=0.0, flips=0.4, reliability=0.5)
    comparison = JudgeFlakiness(judge="j", repeats=5, traces=50, metrics=(still,))
    assert widen_intervals([plain, None], [MEASURE, MEASURE], comparison) == [plain, None]
    moved = replace(comparison, metrics=(replace(still, drift=0.1),))
    (wider,) = widen_intervals([plain], [MEASURE], moved)
    assert wider.error == pytest.approx(math.hypot(plain.error, 0.1 * math.sqrt(2)))
    assert wider.low < plain.low < plain.high < wider.high
    assert wider.mean == plain.mean
    (total,) = widen_intervals([plain], [MEASURE], replace(comparison, metrics=(replace(still, drift=9.0),)))
    assert (total.low, total.high) == (-1.0, 1.0)
    assert widen_intervals([plain], [MEASURE], None) == [plain]


def test_compare_and_gate_take_the_flakiness_of_their_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A shown drop is no longer shown where the judge drifts as far; the flakiness of another judge is refused."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    old = evaluate_pairs(tmp_path / "a", [pair(f"q{at}", "h", "sss") for at in range(40)])
    new = evaluate_pairs(tmp_path / "b", [pair(f"q{at}", "h", "ssu" if at % 2 else "sss") for at in range(40)])
    output = MetricFlakiness(metric="groundedness", n=40, deviation=0.1, drift=0.2, flips=0.3, reliability=0.8)
    comparison = JudgeFlakiness(judge="told/1", repeats=5, traces=40, metrics=(output,))
    path = tmp_path / "flakiness.json"
    path.write_text(encode_document(comparison), encoding="utf-8")
    assert load_flakiness(path) == comparison
    states = [
        {metric.metric: metric.state for metric in compare(pair_runs(old, new, flakiness=item)).changes}["groundedness"]
        for item in (None, comparison)
    ]
    assert states == ["dropped", "cannot tell"]
    runs = [str(old.path), str(new.path)]
    assert command(["compare", *runs, "--flakiness", str(path)]) == 0
    # The answers are the same on every pair: only the verdicts moved, which is no change of the system.
    assert command(["gate", runs[1], "--baseline", runs[0], "-m", "groundedness"]) == 3
    assert command(["gate", runs[1], "--baseline", runs[0], "-m", "groundedness", "--flakiness", str(path)]) == 3
    capsys.readouterr()
    path.write_text(encode_document(replace(comparison, judge="other/1")), encoding="utf-8")
    assert command(["bisect", *runs, "--flakiness", str(path)]) == 2
    assert "the flakiness was measured for other/1" in capsys.readouterr().err
    path.write_text("{}", encoding="utf-8")
    assert command(["compare", *runs, "--flakiness", str(path)]) == 2
    assert "is not the output of ragfault judge repeat -o" in capsys.readouterr().err
