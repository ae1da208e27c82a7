"""The adaptive policy keeps to the floor, is estimated before it is applied, and can be taken back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from ragfault.apps.tune.adaptation.off_policy import estimate_policy, read_decisions
from ragfault.apps.tune.adaptation.policy import choose_arm, load_policy, plan_policy, revert_policy
from ragfault.apps.tune.adaptation.records import AdaptivePolicy, LoggedDecision
from ragfault.cli.commands import run_command
from ragfault.model.errors import InputError, UsageError
from ragfault.model.records import Trace


def make_log(arm: str, rewards: list[float], propensity: float = 1.0, route: str = "faq") -> list[LoggedDecision]:
    return [LoggedDecision(route=route, arm=arm, propensity=propensity, reward=reward) for reward in rewards]


def test_a_route_that_does_not_reach_its_floor_explores_nothing() -> None:
    plan = plan_policy(make_log("a", [1.0, 0.0] * 100), ["a", "b"], "a", {"faq": 0.7})
    assert plan.routes[0].policy.shares == {"a": 1.0}
    assert "is below the floor" in plan.routes[0].reason
    assert plan.changed == ()


def test_an_arm_shown_to_be_better_takes_the_place_of_the_present_one() -> None:
    log = [*make_log("a", [1.0, 1.0, 0.0] * 200, 0.5), *make_log("b", [1.0] * 400, 0.5)]
    plan = plan_policy(log, ["a", "b"], "a", {"faq": 0.5})
    assert max(plan.routes[0].policy.shares, key=plan.routes[0].policy.shares.__getitem__) == "b"
    assert plan.routes[0].least >= 0.5
    assert plan.changed == ("faq",)


def test_what_a_policy_brings_at_least_is_never_below_the_floor() -> None:
    rng = np.random.default_rng(0)
    for seed in range(20):
        log = make_log("a", (rng.random(300 + 10 * seed) < 0.85).astype(float).tolist(), 0.9)
        log += make_log("b", (rng.random(20) < 0.4).astype(float).tolist(), 0.1)
        plan = plan_policy(log, ["a", "b", "c"], "a", {"faq": 0.7}).routes[0]
        assert plan.policy.shares == {"a": 1.0} or plan.least >= 0.7 - 1e-9
        assert sum(plan.policy.shares.values()) == pytest.approx(1.0)


def test_no_route_falls_below_its_floor_while_it_adapts() -> None:
    means = {"faq": {"a": 0.8, "b": 0.95, "c": 0.1}}
    for seed in range(5):
        rng = np.random.default_rng(seed)
        log: list[LoggedDecision] = []
        policy = plan_policy(log, ["a", "b", "c"], "a", {"faq": 0.7}).policy
        for period in range(6):
            [route] = policy.routes
            assert sum(share * means["faq"][arm] for arm, share in route.shares.items()) >= route.floor
            for at in range(300):
                arm, propensity = choose_arm(policy.routes[0], f"{period} {at}")
                log += make_log(arm, [float(rng.random() < means["faq"][arm])], propensity)
            policy = plan_policy(log, ["a", "b", "c"], "a", {"faq": 0.7}).policy


def test_the_estimate_of_a_policy_corrects_for_decisions_that_depended_on_the_query() -> None:
    rng = np.random.default_rng(1)
    log = []
    for _ in range(4000):
        hard = rng.random() < 0.5
        share = 0.8 if hard else 0.2
        arm = "b" if rng.random() < share else "a"
        reward = float(rng.random() < (0.3 if hard else 0.9))
        log += make_log(arm, [reward], share if arm == "b" else 1 - share)
    plain = np.mean([row.reward for row in log if row.arm == "b"])
    estimate = estimate_policy(log, {"b": 1.0})
    assert estimate is not None
    assert plain < 0.5
    assert estimate.low <= 0.6 <= estimate.high
    notes = plan_policy(log, ["a", "b"], "a", {"faq": 0.3}).routes[0].notes
    assert any("depended on the query" in note for note in notes)


def test_policies_are_versioned_and_taken_back() -> None:
    log = [*make_log("a", [1.0, 1.0, 0.0] * 200, 0.5), *make_log("b", [1.0] * 400, 0.5)]
    first = plan_policy(log, ["a", "b"], "a", {"faq": 0.5}).policy
    second = plan_policy(log, ["a", "b"], "a", {"faq": 0.6}, before=first).policy
    assert (second.version, revert_policy(second)) == (2, first)
    assert revert_policy(first).routes[0].shares == {"a": 1.0}


def test_routes_of_the_policy_before_that_get_no_floor_stay_as_they_are() -> None:
    log = [*make_log("a", [1.0, 1.0, 0.0] * 200, 0.5), *make_log("b", [1.0] * 400, 0.5)]
    log += [replace(row, route="legal") for row in log]
    first = plan_policy(log, ["a", "b"], "a", {"faq": 0.5, "legal": 0.5}).policy
    plan = plan_policy(log, ["a", "b"], "a", {"faq": 0.6}, before=first)
    assert [(route.route, route.floor) for route in plan.policy.routes] == [("faq", 0.6), ("legal", 0.5)]
    assert plan.policy.routes[1] == first.routes[1]
    assert plan.changed == ()


def test_a_log_without_decisions_is_counted_and_a_wrong_one_refused() -> None:
    good = Trace(id="1", query="?", metadata={"arm": "a", "propensity": 0.5, "reward": 1})
    assert read_decisions([good, Trace(id="2", query="?")])[1] == 1
    with pytest.raises(InputError, match="a propensity lies in"):
        read_decisions([Trace(id="1", query="?", metadata={"arm": "a", "propensity": 0, "reward": 1})])
    with pytest.raises(UsageError, match="two arms"):
        plan_policy([], ["a"], "a", {"faq": 0.5})
    with pytest.raises(UsageError, match="no route has a floor"):
        plan_policy([], ["a", "b"], "a", {})


def test_a_plan_with_an_arm_nobody_tried_is_not_estimated() -> None:
    log = make_log("a", [0.9] * 400)
    plan = plan_policy(log, ["a", "b"], "a", {"faq": 0.7}).routes[0]
    assert plan.policy.shares["b"] > 0
    assert plan.estimate is None
    assert plan.notes == ("the value of the plan is not estimated: b has 0 logged decisions, and 10 are needed",)
    assert estimate_policy([*log, *make_log("b", [1.0] * 9, 0.1)], {"a": 0.5, "b": 0.5}) is None
    assert estimate_policy([*log, *make_log("b", [1.0] * 10, 0.1)], {"a": 0.5, "b": 0.5}) is not None


def test_equal_rewards_are_no_sign_that_a_choice_depended_on_the_query() -> None:
    for reward in (0.1, 0.8, 1.0):
        log = [row for _ in range(300) for arm in "ab" for row in make_log(arm, [reward], 0.5)]
        plan = plan_policy(log, ["a", "b"], "a", {"faq": 0.05}).routes[0]
        assert plan.notes == ()
        assert plan.estimate is not None
        assert plan.estimate.doubly_robust == pytest.approx(reward)


def test_arms_by_turns_are_estimated_at_their_means() -> None:
    log = [row for _ in range(300) for arm, reward in (("a", 0.4), ("b", 0.9)) for row in make_log(arm, [reward], 0.5)]
    estimate = estimate_policy(log, {"a": 1.0})
    assert estimate is not None
    assert estimate.doubly_robust == pytest.approx(0.4)


def test_decisions_that_are_left_out_are_counted() -> None:
    log = [*make_log("a", [1.0] * 20), *make_log("z", [1.0] * 3), *make_log("a", [1.0] * 5, route="legal")]
    assert plan_policy(log, ["a", "b"], "a", {"faq": 0.5}).notes == (
        "left out: 5 decisions on routes without a floor (legal 5)",
        "left out: 3 decisions for arms that are not named (z 3)",
    )


def test_a_note_names_the_largest_routes_alone_however_many_there_are() -> None:
    log = [*make_log("a", [1.0] * 20)]
    log += [row for at in range(1_000) for row in make_log("a", [1.0] * (2 if at < 5 else 1), route=f"r{at}")]
    note = plan_policy(log, ["a", "b"], "a", {"faq": 0.5}).notes[0]
    assert note == "left out: 1,005 decisions on routes without a floor (r0 2, r1 2, r2 2, r3 2, r4 2, 995 others 995)"
    log += [row for at in range(3_000) for row in make_log("a", [1.0], route=f"{at}" * 100)]
    note = plan_policy(log, ["a", "b"], "a", {"faq": 0.5}).notes[0]
    assert note.startswith("left out: 4,005 decisions")
    assert note.endswith(", 995 others 995, after the first 1,000 names 3,000)")
    long = plan_policy(make_log("a", [1.0], route="r" * 9_000), ["a", "b"], "a", {"faq": 0.5}).notes[0]
    assert len(long) < 200


def test_a_policy_holds_the_hundred_before_it_and_no_more() -> None:
    log, before = make_log("a", [1.0]), None
    for _ in range(104):
        before = plan_policy(log, ["a", "b"], "a", {"faq": 0.5}, before=before).policy
    versions = []
    while before is not None:
        versions.append(before.version)
        before = before.previous
    assert versions == list(range(104, 3, -1))


def test_the_verb_refuses_names_that_the_log_does_not_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def write(name: str, metadata: list[dict[str, object]]) -> str:
        rows = [{"id": str(at), "query": "When?", "route": "faq", "metadata": row} for at, row in enumerate(metadata)]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(tmp_path / name)

    log = write("log.jsonl", [{"arm": "top(5)", "propensity": 1, "reward": 1}] * 40)
    assert run_command(["tune", "adapt", log, "--arm", "top(5)", "--arm", "top5", "--floor", "faq=0.5"]) == 2
    assert 'no arm in the log "top5"' in capsys.readouterr().err
    assert run_command(["tune", "adapt", log, "--arm", "top(5)", "--new-arm", "top(9)", "--floor", "fag=0.5"]) == 2
    assert 'no route in the log "fag"' in capsys.readouterr().err
    assert run_command(["tune", "adapt", log, "--arm", "top(5)", "--new-arm", "top(9)", "--floor", "faq=0.5"]) == 0
    assert "top(9): 0 decisions" in capsys.readouterr().out
    assert (
        run_command(["tune", "adapt", write("none.jsonl", [{}] * 3), "--arm", "a", "--arm", "b", "--floor", "faq=0.5"])
        == 2
    )
    assert "none of the 3 traces is a decision" in capsys.readouterr().err


def test_the_verb_plans_writes_and_reverts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {
            "id": str(at),
            "query": "When?",
            "route": "faq",
            "metadata": {"arm": "b" if at % 2 else "a", "propensity": 0.5, "reward": 1 if at % 2 or at % 3 else 0},
        }
        for at in range(1200)
    ]
    log, policy = tmp_path / "log.jsonl", tmp_path / "policy.json"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    arguments = ["tune", "adapt", str(log), "--arm", "a", "--arm", "b"]
    assert run_command([*arguments, "--floor", "faq=0.5", "-o", str(policy)]) == 0
    assert capsys.readouterr().out.startswith("Changed: faq. 1,200 decisions")
    assert isinstance(load_policy(policy), AdaptivePolicy)
    assert run_command(["tune", "adapt", str(log), "--revert", str(policy), "-o", str(policy), "--force"]) == 0
    assert load_policy(policy).routes[0].shares == {"a": 1.0}
    assert run_command([*arguments, "--floor", "faq"]) == 2
    assert run_command(["tune", "adapt", str(log), "--floor", "faq=0.5"]) == 2
