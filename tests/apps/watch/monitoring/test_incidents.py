"""Incidents: which alerts on several routes have one cause."""

from __future__ import annotations

import pytest

from ragfault.apps.watch.monitoring.alert_rules import AlertRule
from ragfault.apps.watch.monitoring.alerts import Alert
from ragfault.apps.watch.monitoring.change_detection import FAILURES_EXPLAIN, FaultLocation
from ragfault.apps.watch.monitoring.incidents import AlertCause, Incident, IncidentSize, MarkBefore, Onset, assign_cause

HOUR = 3600.0
GROUNDED = AlertRule(name="fall", metric="groundedness", drop=0.05)


@pytest.mark.parametrize(
    ("metric", "explanation", "is_one"),
    [("groundedness", None, True), ("answer_relevance", None, False), ("groundedness", FAILURES_EXPLAIN, False)],
)
def test_an_alert_without_a_layer_yet_is_of_the_incident_of_its_metric(
    metric: str, explanation: str | None, is_one: bool
):
    """One fault after a mark for all routes is one incident, unless failing traces may explain the fall."""
    incident = Incident(
        id="1",
        title="t",
        sentence="s",
        layer="generation",
        branch="4 generation",
        routes=("a",),
        opened=11 * HOUR,
        onset=10 * HOUR,
        earliest=10 * HOUR,
        latest=10 * HOUR,
        alerts=(("fall", "groundedness", "a"),),
        size=IncidentSize(metric="groundedness", route="a", before=1, since=0.5, difference=-0.5, low=-0.5, high=-0.3),
        marks=(MarkBefore(text="release 7", time=10 * HOUR),),
    )
    cause = AlertCause(
        alert=Alert(rule=GROUNDED, metric=metric, route="b", status="firing", since=11 * HOUR),
        layer="generation",
        onset=Onset(602, 600, 605),
        detected=True,
        location=FaultLocation(fault=None, decisions=(), changes=(), explanation=explanation),
    )
    assert assign_cause([incident], cause, {}, {}, 660) == (incident if is_one else None)


def test_an_alert_of_a_metric_that_is_known_on_a_route_is_of_its_incident_whatever_onset_it_sees():
    """The rule that fires first and the test that detects later estimate the onset of one change by other values."""
    incident = Incident(
        id="1",
        title="t",
        sentence="s",
        routes=("a",),
        opened=11 * HOUR,
        onset=10 * HOUR,
        earliest=10 * HOUR,
        latest=10 * HOUR,
        alerts=(("CRITICAL_ERROR", "error", "a"),),
    )
    rule = AlertRule(name="DROP", metric="*", drop_detected=True)
    alert = Alert(rule=rule, metric="error", route="a", status="firing", since=11.5 * HOUR)
    cause = AlertCause(alert=alert, layer="operation", onset=Onset(640, 630, 650), detected=True)
    assert assign_cause([incident], cause, {}, {}, 690) == incident


@pytest.mark.parametrize(("metric", "is_one"), [("triad", True), ("citation_validity", False)])
def test_the_triad_is_of_the_incident_of_its_parts(metric: str, is_one: bool):
    """Hours after relevance fell on a route the triad is no second fault there; another metric may be one."""
    incident = Incident(
        id="1",
        title="t",
        sentence="s",
        layer="retrieval",
        routes=("a",),
        opened=11 * HOUR,
        onset=10 * HOUR,
        earliest=10 * HOUR,
        latest=10 * HOUR,
        alerts=(("DROP", "context_relevance", "a"),),
    )
    alert = Alert(rule=GROUNDED, metric=metric, route="a", status="firing", since=16 * HOUR)
    cause = AlertCause(alert=alert, layer="crosscut", onset=Onset(900, 880, 920), detected=True)
    assert assign_cause([incident], cause, {}, {}, 960) == (incident if is_one else None)
