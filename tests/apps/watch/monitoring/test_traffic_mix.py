"""The mix of traffic: other shares of cohorts are no fault of a layer, and hide none."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from ragfault.apps.watch.monitoring.monitor import DetectedDrop, MonitorSettings, monitor
from ragfault.apps.watch.monitoring.rollups import Observation, roll_up
from ragfault.apps.watch.monitoring.traffic_mix import describe_query_change
from ragfault.apps.watch.report.monitor import describe_drop
from ragfault.io.runs.run import MetricInfo

DAY, DAYS, SWITCH = 1440, 4, 3 * 1440
MONDAY = 4  # of 1970
LEVELS = {"fees": 0.9, "tides": 0.6}


def watch(field: str, share: float, fall: dict[str, float], before: float = 0.2) -> DetectedDrop:
    """Watch three days with a share of the queries on tides, then a day with another share and lower levels."""
    rng = np.random.default_rng(3)
    seen = []
    for minute in range(DAYS * DAY):
        late = minute >= SWITCH
        topic = "tides" if rng.random() < (share if late else before) else "fees"
        level = LEVELS[topic] - (fall.get(topic, 0.0) if late else 0.0)
        cohorts = (f"{field}={topic}",)
        value = float(rng.binomial(4, level)) / 4
        seen.append(
            Observation(
                metric="groundedness",
                trace=str(minute),
                time=60.0 * (MONDAY * DAY + minute),
                value=value,
                status="scored",
                cohorts=cohorts,
            )
        )
    options = MonitorSettings(rules=(), reference=2 * DAY)
    [drop] = monitor(roll_up(seen), [MetricInfo("groundedness", "generation")], options=options).drops
    return drop


def test_other_shares_of_a_cohort_are_no_fault_of_a_layer():
    """Where no cohort got worse and the mean fell by their shares, the sentence names the field and no layer."""
    drop = watch("metadata.topic", 0.8, {})
    assert drop.location.fault is None
    assert "at equal shares the mean moved by" in describe_drop(drop)
    assert "broke" not in describe_drop(drop)


@pytest.mark.parametrize(("before", "share"), [(0.0, 0.4), (0.6, 1.0)], ids=["tides appear", "fees vanish"])
def test_a_topic_that_appears_or_vanishes_is_no_fault_of_a_layer(before: float, share: float):
    """Where the other topic is as good as before, other queries are asked; where it got worse, a layer broke."""
    drop = watch("metadata.topic", share, {}, before)
    assert drop.location.fault is None
    assert "over the values of metadata.topic that both times have, the mean moved by" in describe_drop(drop)
    assert watch("metadata.topic", share, {"fees": 0.2, "tides": 0.2}, before).location.fault is not None


@pytest.mark.parametrize(
    ("field", "share", "fall"),
    [
        ("metadata.topic", 0.2, {"fees": 0.2, "tides": 0.2}),
        ("metadata.topic", 0.8, {"tides": 0.2}),
        ("release", 0.8, {"tides": 0.2}),
    ],
    ids=["same shares", "a cohort got worse as well", "a release got worse as well"],
)
def test_a_mix_hides_no_fault(field: str, share: float, fall: dict[str, float]):
    """The layer is named where a cohort got worse."""
    drop = watch(field, share, fall)
    assert drop.explanation is None
    assert describe_drop(drop).startswith("Generation broke")


@pytest.mark.parametrize(("before", "share"), [(0.2, 0.8), (0.2, 1.0), (0.6, 1.0)], ids=["moves", "ends", "vanishes"])
def test_a_release_that_took_over_without_getting_worse_is_named_and_no_layer(before: float, share: float):
    drop = watch("release", share, {}, before)
    assert drop.location.fault is None
    assert "the share of release=" in describe_drop(drop)
    assert "no release got worse by itself; compare those that differ" in describe_drop(drop)
    assert watch("release", share, {"tides": 0.2}, before).location.fault is not None


def test_a_new_release_that_is_worse_is_a_fault():
    assert watch("release", 1.0, {}, before=0.0).location.fault is not None


def test_an_interval_that_holds_zero_shows_its_sign():
    """A drop since which the mean recovered may be of either sign: the interval is given in its direction."""
    drop = watch("metadata.topic", 0.2, {"fees": 0.2, "tides": 0.2})
    wide = replace(drop, difference=replace(drop.difference, mean=-0.2, low=-0.5, high=0.1))
    assert "fell by 0.200 [−0.100, 0.500] since" in describe_drop(wide)


def watch_days(first: int, days: int, level: Callable[[int], float]) -> DetectedDrop:
    """Watch some days from one of 1970, with a value a minute and the first two days as the reference."""
    rng = np.random.default_rng(4)
    seen = [
        Observation(
            metric="groundedness", trace=str(at), time=60.0 * at, value=float(rng.binomial(4, level(at // DAY))) / 4
        )
        for at in range(first * DAY, (first + days) * DAY)
    ]
    options = MonitorSettings(rules=(), reference=2 * DAY)
    return monitor(roll_up(seen), [MetricInfo("groundedness", "generation")], options=options).drops[0]


def test_a_weekend_that_the_reference_lacks_is_no_fault_of_a_layer():
    """Lower values from Saturday to Sunday, after a reference of Monday and Tuesday, may be so each week."""
    drop = watch_days(MONDAY, 9, lambda day: 0.7 if (day - MONDAY) % 7 >= 5 else 0.85)
    assert drop.location.fault is None
    assert "the reference has no weekend (UTC)" in describe_drop(drop)


def test_a_drop_on_working_days_after_a_weekend_is_no_fault_of_a_layer():
    """Where the reference is a weekend alone, other days may be lower each week."""
    drop = watch_days(MONDAY + 5, 4, lambda day: 0.85 if (day - MONDAY) % 7 >= 5 else 0.7)
    assert "no day but those of a weekend" in describe_drop(drop)


@pytest.mark.parametrize(("onset", "days"), [(3, 5), (5, 9), (4, 7)], ids=["Thursday", "until Tuesday", "Friday"])
def test_a_drop_that_working_days_show_as_well_is_a_fault(onset: int, days: int):
    """A drop before the weekend, or one that lasts beyond it, is named."""
    drop = watch_days(MONDAY, days, lambda day: 0.7 if day >= MONDAY + onset else 0.85)
    assert drop.location.fault is not None


@pytest.mark.parametrize(("copies", "moved", "word"), [(60, 0.0, "may explain it"), (20, 0.0, None), (60, -0.3, None)])
def test_a_query_of_most_values_may_explain_a_drop_that_the_few_others_do_not_show(copies, moved, word):
    """Copies of one trace name no fault where the other traces show no drop; they do where those fell as well."""
    before = [(f"Q{at}", 0.5 + 0.6 * (at % 2)) for at in range(200)]
    others = [(f"Q{at}", 0.44 + 0.6 * (at % 2) + moved) for at in range(32)]
    text = describe_query_change(before, [*others, *[("Copy?", 0.4)] * copies], -0.25)
    assert (text and re.search("(may explain|explains) it", text)[0]) == word
