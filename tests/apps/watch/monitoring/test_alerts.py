"""Alerts: the laws of their states over any history, and the rules that are built in or written in TOML."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragfault.apps.watch.monitoring.alert_rules import (
    DEFAULT_RULES,
    DROP_RULE,
    AlertRule,
    RuleReading,
    load_rules,
    parse_minutes,
    parse_rules,
)
from ragfault.apps.watch.monitoring.alerts import (
    AlertState,
    AlertTransition,
    acknowledge_alert,
    add_silence,
    advance_alerts,
    clear_silences,
    worst_severity,
)
from ragfault.apps.watch.monitoring.change_detection import ReferencePeriod
from ragfault.apps.watch.monitoring.noise import NoiseModel
from ragfault.apps.watch.monitoring.rollups import Observation, roll_up
from ragfault.apps.watch.monitoring.rule_evaluation import RuleContext, evaluate_rules
from ragfault.apps.watch.monitoring.windows import DAY_MINUTES, build_series
from ragfault.io.runs.run import MetricInfo
from ragfault.model.errors import InputError, UnknownName, UsageError

LOW = AlertRule(name="low", metric="m", below=0.5, hysteresis=0.1)
SLOW = AlertRule(name="slow", metric="m", below=0.5, hysteresis=0.1, duration=3, cooldown=5)
LOUD = AlertRule(name="loud", metric="k", above=0.5, hysteresis=0.1, repeat=4)
KINDS = (LOW, SLOW, LOUD)

Seen = tuple[str | None, ...]
"""What the three rules see in one minute: bad, so-so, well, or None for too little to say."""

minute = st.tuples(*(st.sampled_from(["bad", "so-so", "well", None]) for _ in KINDS))
histories = st.lists(minute, min_size=1, max_size=40)


def reading(rule: AlertRule, seen: str | None) -> RuleReading:
    """Build the reading of a rule."""
    value = None if seen is None else {"bad": 0.4, "so-so": 0.55, "well": 0.7}[seen]
    return RuleReading(
        rule=rule, metric=rule.metric, route="web", value=value, breach=seen == "bad", recovered=seen == "well"
    )


def replay(
    history: Sequence[Seen], silenced: tuple[int, int] = (0, 0), back: bool = False
) -> tuple[AlertState, list[AlertTransition]]:
    """Return all notifications of a history, a minute a step, with a silence from one minute to another."""
    state, events = AlertState(), list[AlertTransition]()
    for at, seen in enumerate(history):
        if at == silenced[0] and silenced[1] > silenced[0]:
            state = add_silence(state, 60.0 * silenced[1])
        readings = [reading(rule, item) for rule, item in zip(KINDS, seen, strict=True)]
        state, sent = advance_alerts(state, reversed(readings) if back else readings, 60.0 * at)
        state = msgspec.json.decode(msgspec.json.encode(state), type=AlertState)
        events += sent
    return state, events


def by_rule(events: Sequence[AlertTransition]) -> dict[str, list[AlertTransition]]:
    """Group the notifications by rule."""
    groups = defaultdict(list)
    for event in events:
        groups[event.rule].append(event)
    return groups


@given(histories, st.integers(0, 20), st.integers(0, 20))
def test_nothing_fires_twice_without_resolving_in_between(history: list[Seen], start: int, size: int):
    """Of each alert firing and resolved alternate, beginning with firing, silence or not."""
    for events in by_rule(replay(history, (start, start + size))[1]).values():
        kinds = [event.kind for event in events if event.kind != "reminder"]
        assert kinds[:1] == ["firing"] or not kinds
        assert all(alert != two for alert, two in pairwise(kinds))


@given(histories)
def test_what_resolves_was_well_for_as_long_as_asked(history: list[Seen]):
    """Before each resolution the rule saw nothing but well for its whole time."""
    for name, events in by_rule(replay(history)[1]).items():
        at = [rule.name for rule in KINDS].index(name)
        for event in events:
            if event.kind == "resolved":
                last = round(event.time / 60)
                assert all(seen[at] == "well" for seen in history[last - KINDS[at].duration : last + 1])


@given(histories)
def test_what_fires_was_bad_for_as_long_as_asked(history: list[Seen]):
    """Before each firing the rule saw no minute that was not beyond its limit, save those with too little to say."""
    for name, events in by_rule(replay(history)[1]).items():
        at = [rule.name for rule in KINDS].index(name)
        for event in events:
            if event.kind == "firing":
                last = round(event.time / 60)
                part = [seen[at] for seen in history[max(0, last - KINDS[at].duration) : last + 1]]
                assert set(part) <= {"bad", None}
                assert part[-1] == "bad"


@given(histories, st.integers(0, 20), st.integers(1, 20))
def test_silence_sends_nothing(history: list[Seen], start: int, size: int):
    """No event has a time within the silence, and what stands at the end is the same as without it."""
    state, events = replay(history, (start, start + size))
    assert not any(60 * start <= event.time < 60 * (start + size) for event in events)
    loud, _ = replay(history)
    assert [(a.key, a.status) for a in state.firing] == [(a.key, a.status) for a in loud.firing]


@given(histories)
def test_rules_may_come_in_any_order(history: list[Seen]):
    """Readings in reverse give the same state and the same events."""
    assert replay(history) == replay(history, back=True)


@given(histories)
def test_a_replay_gives_the_same_events(history: list[Seen]):
    """The same history gives the same events, though the state was stored as JSON and read again after each step."""
    expected, state, events = replay(history), AlertState(), []
    for at, seen in enumerate(history):
        state, sent = advance_alerts(
            state, [reading(rule, item) for rule, item in zip(KINDS, seen, strict=True)], 60.0 * at
        )
        events += sent
    assert (state, events) == expected


@given(histories)
def test_a_cooldown_keeps_quiet(history: list[Seen]):
    """After a resolution the rule does not fire again for as long as its cooldown."""
    for events in by_rule(replay(history)[1]).values():
        for alert, two in pairwise(events):
            if (alert.kind, two.kind, alert.rule) == ("resolved", "firing", "slow"):
                assert two.time - alert.time >= 60 * SLOW.cooldown


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["so-so", "well", None]), max_size=20))
def test_what_was_never_bad_says_nothing(seen: list[str | None]):
    """Without a breach there is no event and no state."""
    assert replay([(item, item, item) for item in seen]) == (AlertState(), [])


def test_a_silenced_alert_is_sent_when_the_silence_ends():
    """A fault that outlasts the silence is told at its end, one that ended within it never."""
    bad, well = [("bad", None, None)], [("well", None, None)]
    _, events = replay(bad * 10, (0, 5))
    assert [(event.kind, event.time) for event in events] == [("firing", 300.0)]
    assert replay(bad * 3 + well * 7, (0, 5))[1] == []
    _, events = replay([*bad, *well * 9], (1, 5))
    assert [(event.kind, event.time) for event in events] == [("firing", 0.0), ("resolved", 300.0)]


def test_a_silence_covers_what_it_names():
    """A silence of one rule leaves the others alone, and can be ended."""
    state = add_silence(AlertState(), 600.0, rule="low")
    seen = [reading(LOW, "bad"), reading(LOUD, "bad")]
    state, events = advance_alerts(state, seen, 0.0)
    assert [event.rule for event in events] == ["loud"]
    assert [event.rule for event in advance_alerts(clear_silences(state), seen, 60.0)[1]] == ["low"]


def test_reminders_end_with_an_acknowledgement():
    """A rule that repeats reminds until somebody has seen it, and reminds again when it fires anew."""
    state, events = AlertState(), list[AlertTransition]()
    for at, seen in enumerate(["bad"] * 10 + ["well"] + ["bad"] * 5):
        if at == 6:
            state = acknowledge_alert(state, "ann", rule="loud")
        state, sent = advance_alerts(state, [reading(LOUD, seen)], 60.0 * at)
        events += sent
    assert [(event.kind, event.time / 60) for event in events] == [
        ("firing", 0),
        ("reminder", 4),
        ("resolved", 10),
        ("firing", 11),
        ("reminder", 15),
    ]


# --- rules ---------------------------------------------------------------------------------------------

TOML = """
[[rule]]
name = "grounded at checkout"
metric = "groundedness"
route = "checkout"
window = "90m"
below = 0.7
severity = "critical"
for = "10m"
clear = 0.02
cooldown = "1h"
repeat = "4h"
certain = true
least = 50
"""


def test_a_rule_of_toml_is_what_it_says(tmp_path: Path):
    """Every key of a rule arrives; built-in rules stay unless they are left out or replaced by name."""
    path = tmp_path / "rules.toml"
    path.write_text(TOML)
    *builtin, mine = load_rules(path)
    assert tuple(builtin) == DEFAULT_RULES
    assert mine == AlertRule(
        name="grounded at checkout",
        metric="groundedness",
        route="checkout",
        window=90,
        below=0.7,
        severity="critical",
        duration=10,
        hysteresis=0.02,
        cooldown=60,
        repeat=240,
        certain=True,
        min_values=50,
    )
    assert len(parse_rules("builtin = false\n" + TOML)) == 1
    replaced = parse_rules('[[rule]]\nname = "DROP"\nmetric = "triad"\ncalled = true\n')
    assert len(replaced) == len(DEFAULT_RULES)
    assert DROP_RULE not in replaced


def test_the_rules_shown_in_the_docs_are_read():
    """The TOML of docs/monitor.md is taken without complaint."""
    page = (Path(__file__).parents[4] / "docs/monitor.md").read_text(encoding="utf-8")
    shown = page.split("```\n# rules.toml\n", 1)[1].split("```", 1)[0]
    assert len(parse_rules(shown)) == len(DEFAULT_RULES) + 2


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("[[rule]", InputError, "is not TOML"),
        ("[[rules]]\n", UnknownName, 'Did you mean "rule"'),
        ("rule = 3", InputError, "each rule is a table"),
        ("[[rule]]\nmetrik = 'm'", UnknownName, 'Did you mean "metric"'),
        ("[[rule]]\nmetric = 'error'\nbelow = 1\nseverity = 'hihg'", UnknownName, 'Did you mean "high"'),
        ("[[rule]]\nbelow = 0.5", InputError, "names no metric"),
        ("[[rule]]\nmetric = 'error'", UsageError, "it has none"),
        ("[[rule]]\nmetric = 'error'\nbelow = 0.5\nabove = 0.6", UsageError, "it has below and above"),
        ("[[rule]]\nmetric = 'error'\nbelow = 'low'", InputError, "rule 1 of rules"),
        ("[[rule]]\nmetric = 'error'\nbelow = 0.5\nwindow = 30", InputError, 'should be a text such as "30m"'),
        ("[[rule]]\nmetric = 'error'\nbelow = 0.5\nwindow = '30s'", UsageError, "not a length of time"),
        ("[[rule]]\nmetric = 'error'\ndrop = -0.1", UsageError, "a drop is above 0"),
        ("[[rule]]\nmetric = 'error'\nbelow = 1\n[[rule]]\nmetric = 'error'\nbelow = 1", UsageError, "2 rules called"),
    ],
)
def test_a_rule_that_cannot_be_is_named(text: str, error: type[Exception], says: str):
    """What was asked, what there is, what to do."""
    with pytest.raises(error, match=says.replace("[", r"\[")):
        parse_rules(text)


def test_durations_are_integers():
    """Minutes, hours and days, and nothing else."""
    assert [parse_minutes(text) for text in ("1m", "2 h", "7d")] == [1, 120, 10_080]
    for wrong in ("", "1", "1.5h", "-3m", "3w"):
        with pytest.raises(UsageError):
            parse_minutes(wrong)


def make_series(values: Sequence[float], metric: str = "groundedness", route: str | None = "web") -> list[Observation]:
    """Build a series with one value a minute."""
    return [
        Observation(metric=metric, trace=str(at), time=60.0 * at, value=value, route=route)
        for at, value in enumerate(values)
    ]


SCORED = ("groundedness", "context_relevance", "chunk_utilization", "ndcg@10")
SCORES = {name: MetricInfo(name, "generation") for name in SCORED} | {
    "missing_context_rate": MetricInfo("missing_context_rate", "retrieval", "lower")
}


def breached(observations: Sequence[Observation], until: int, rules: Sequence[AlertRule] = DEFAULT_RULES) -> set[str]:
    """Return the rules whose limits are passed in the windows that end before a minute."""
    all_ = build_series(roll_up(observations, SCORES.values()))
    return {item.rule.name for item in evaluate_rules(rules, all_, SCORES, until) if item.breach}


def test_the_built_in_rules_are_those_of_the_definitions():
    """Each fires on the wrong side of its limit, and not on the right one."""
    falls = {"ROLLING_DROP", "ROLLING_FALL"}
    assert breached(make_series([0.6] * 30 + [0.2] * 30, "chunk_utilization"), 60) - falls == {"LOW_USAGE"}
    low_relevance = {"LOW_RELEVANCE", "WARNING_CONTEXT_RELEVANCE"}
    assert breached(make_series([0.7] * 30 + [0.55] * 30, "context_relevance"), 60) - falls == low_relevance
    assert breached(make_series([0.6] * 30 + [0.45] * 30, "chunk_utilization"), 60) - falls == set()
    assert breached(make_series([0.0, 1.0] * 15, "missing_context_rate"), 30) == {"MISSING_CONTEXT"}
    assert breached(make_series([0.8] * 30 + [0.65] * 30), 60) - falls == {"WARNING_GROUNDEDNESS"}
    assert breached(make_series([0.45] * 30), 30) == {"CRITICAL_GROUNDEDNESS"}
    assert breached(make_series([0.45] * 5), 30) == set()
    assert worst_severity(DEFAULT_RULES) == "critical"
    assert worst_severity([]) is None


def test_few_relevant_chunks_are_no_alert_where_they_are_usual():
    """A route that retrieves many chunks for each question has a low share of relevant ones from its first trace on."""
    assert breached(make_series([0.5] * 90, "context_relevance"), 90) == set()
    assert breached(make_series([0.3] * 90, "chunk_utilization"), 90) == set()
    fallen = make_series([0.7] * 60 + [0.5] * 120, "context_relevance")
    assert "LOW_RELEVANCE" in breached(fallen, 90)
    assert "LOW_RELEVANCE" in breached(fallen, 110)
    own = parse_rules("builtin = false\nrule = [{metric = 'context_relevance', below = 0.6}]")
    assert breached(make_series([0.5] * 90, "context_relevance"), 90, own) == {"context_relevance<0.6"}


def test_a_rolling_drop_is_against_the_day_before():
    """Two points less than the day before over 90 minutes is a drop, over 30 minutes five; a noisy dip is not."""
    day = [0.9, 0.8] * (DAY_MINUTES // 2)
    assert breached(make_series([*day, *[0.87, 0.77] * 45]), DAY_MINUTES + 90) == {"ROLLING_DROP"}
    assert "ROLLING_FALL" in breached(make_series([*day, *[0.84, 0.74] * 45]), DAY_MINUTES + 90)
    assert breached(make_series([*day, *day[:90]]), DAY_MINUTES + 90) == set()
    noisy = [1.0, 0.0] * (DAY_MINUTES // 2)
    assert (
        breached(make_series([*noisy, *[1.0, 0.0, 0.0, 1.0, 0.0] * 18]), DAY_MINUTES + 90) & {"ROLLING_DROP"} == set()
    )


def test_rules_find_metrics_by_name_and_route():
    """A bare name takes a metric with any cut-off; a route is one, none is every; what is not there is not seen."""
    rules = [AlertRule(name="n", metric="ndcg", below=0.5), AlertRule(name="r", metric="ndcg", route="app", below=0.5)]
    both = make_series([0.4] * 9, "ndcg@10") + make_series([0.4] * 9, "ndcg@10", "app")
    all_ = build_series(roll_up(both, SCORES.values()))
    events = [(item.rule.name, item.route) for item in evaluate_rules(rules, all_, SCORES, 9) if item.breach]
    assert sorted(events) == [("n", "app"), ("n", "web"), ("r", "app")]
    assert evaluate_rules([AlertRule(name="x", metric="nothing", below=1.0)], all_, SCORES, 9) == ()


def test_called_drops_are_read_as_such():
    """The rule of the sequential test is beyond its limit exactly while a drop is called, and names traces."""
    all_ = build_series(roll_up(make_series([0.9] * 20 + [0.1]), SCORES.values()))
    (alert,) = evaluate_rules([DROP_RULE], all_, SCORES, 21, RuleContext([("groundedness", "web")]))
    (two,) = evaluate_rules([DROP_RULE], all_, SCORES, 21)
    assert (alert.breach, alert.recovered, alert.traces[0]) == (True, False, "20")
    assert (two.breach, two.recovered) == (False, True)


def read_rules(values: Sequence[tuple[int, float]], until: int, fired: int | None = None) -> dict[str, RuleReading]:
    """Return the readings of the rolling rules from values by minute, of a metric whose noise is known.

    Alerts of both fire since a minute, where one is given.
    """
    observations = [
        Observation(metric="groundedness", trace=str(at), time=60.0 * at, value=value, route="web")
        for at, value in values
    ]
    all_ = build_series(roll_up(observations, SCORES.values()))
    noise = NoiseModel(
        mean=0.87, season=(0.0,) * 168, errors=(0.0,) * 168, variance=0.01, components=((1.0, 0.0, 60.0),), rate=0.25
    )
    period = ReferencePeriod(
        metric="groundedness",
        route="web",
        first=0,
        last=DAY_MINUTES,
        n=360,
        mean=0.87,
        floors=(0.86,),
        bets=(0.1,),
        low=0.0,
        high=1.0,
        higher_is_better=True,
        noise=noise,
    )
    rules = [rule for rule in DEFAULT_RULES if rule.name in ("ROLLING_DROP", "ROLLING_FALL")]
    since = {} if fired is None else {(rule.name, "groundedness", "web"): fired for rule in rules}
    context = RuleContext((), {("groundedness", "web"): period}, since)
    readings = evaluate_rules(rules, all_, SCORES, until, context)
    return {item.rule.name: item for item in readings if (item.metric, item.route) == ("groundedness", "web")}


def test_a_wider_window_is_not_well_by_what_was_before_the_fault():
    """Where a window has too few values and a wider one is mostly older, its last values must be well besides."""
    fault = 2 * DAY_MINUTES
    past = [(at, 0.8 + at % 8 / 70) for at in range(fault)]
    during = [*past, *((at, 0.7 + at % 16 / 140) for at in range(fault, fault + 40, 2))]
    assert not read_rules(during, fault + 40)["ROLLING_FALL"].recovered
    after = [*during, *((at, 0.8 + at % 16 / 140) for at in range(fault + 40, fault + 102, 2))]
    assert read_rules(after, fault + 102)["ROLLING_FALL"].recovered


def test_a_fault_is_over_once_the_last_values_are_well_though_windows_hold_older_ones_or_too_few():
    """Six hours of sparse traffic at .4, and 104 minutes later: well. As long as it lasts or half of it stays: not."""
    fault = DAY_MINUTES + 960
    end = fault + 360
    until = end + 104
    past = [(at, 0.8 + at % 8 / 20) for at in range(0, fault, 4)] + [
        (at, 0.3 + at % 8 / 20) for at in range(fault, end, 4)
    ]
    during = read_rules(past, end)
    assert during["ROLLING_DROP"].breach
    assert during["ROLLING_FALL"].breach
    after = read_rules([*past, *((at, 0.8 + at % 16 / 40) for at in range(end, until, 8))], until)
    assert {(own.breach, own.recovered) for own in after.values()} == {(False, True)}
    weaker = read_rules([*past, *((at, 0.6 + at % 16 / 80) for at in range(end, until, 8))], until)
    assert weaker["ROLLING_DROP"].breach
    assert not weaker["ROLLING_FALL"].recovered


def test_an_alert_does_not_recover_since_its_fault_is_part_of_the_day_before():
    """After 20 hours at .75 the day before is hardly better than now: as long as it lasts, it is not well."""
    fault = DAY_MINUTES
    end = fault + 20 * 60
    values = [(at, (0.8 if at < fault else 0.68) + at % 8 / 50) for at in range(0, end, 4)]
    assert read_rules(values, end)["ROLLING_FALL"].recovered
    assert not read_rules(values, end, fault + 60)["ROLLING_FALL"].recovered
    after = [*values, *((at, 0.8 + at % 8 / 50) for at in range(end, end + 240, 4))]
    assert read_rules(after, end + 240, fault + 60)["ROLLING_FALL"].recovered
