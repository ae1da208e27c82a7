"""The mix of traffic: other shares of cohorts are no fault of a layer, and hide none."""

from __future__ import annotations

import numpy as np
import pytest

from ragfault.analysis.monitoring.monitor import DetectedDrop, MonitorOptions, monitor
from ragfault.analysis.monitoring.rollups import Observation, roll_up
from ragfault.io.runs import MetricInfo
from ragfault.reports.terminal.monitoring import describe_drop

DAY, DAYS, SWITCH = 1440, 4, 3 * 1440
LEVELS = {"fees": 0.9, "tides": 0.6}


def watch(field: str, share: float, fall: dict[str, float]) -> DetectedDrop:
    """Watch three days with a fifth of the queries on tides, then a day with another share and lower levels."""
    rng = np.random.default_rng(3)
    seen = []
    for minute in range(DAYS * DAY):
        late = minute >= SWITCH
        topic = "tides" if rng.random() < (share if late else 0.2) else "fees"
        level = LEVELS[topic] - (fall.get(topic, 0.0) if late else 0.0)
        cohorts = (f"{field}={topic}",)
        value = float(rng.binomial(4, level)) / 4
        seen.append(
            Observation(
                metric="groundedness",
                trace=str(minute),
                time=60.0 * minute,
                value=value,
                status="scored",
                cohorts=cohorts,
            )
        )
    options = MonitorOptions(rules=(), reference=2 * DAY)
    [drop] = monitor(roll_up(seen), [MetricInfo("groundedness", "generation")], options=options).drops
    return drop


def test_other_shares_of_a_cohort_are_no_fault_of_a_layer():
    """Where no cohort got worse and the mean fell by their shares, the sentence names the field and no layer."""
    drop = watch("metadata.topic", 0.8, {})
    assert drop.location.fault is None
    assert "at equal shares the mean moved by" in describe_drop(drop)
    assert "broke" not in describe_drop(drop)


@pytest.mark.parametrize(
    ("field", "share", "fall"),
    [
        ("metadata.topic", 0.2, {"fees": 0.2, "tides": 0.2}),
        ("metadata.topic", 0.8, {"tides": 0.2}),
        ("release", 0.8, {}),
    ],
    ids=["same shares", "a cohort got worse as well", "a release"],
)
def test_a_mix_hides_no_fault(field: str, share: float, fall: dict[str, float]):
    """The layer is named where a cohort got worse, and where the shares are those of versions of the system."""
    drop = watch(field, share, fall)
    assert drop.mix is None
    assert describe_drop(drop).startswith("Generation broke")
