"""Metrics have their names of other tools wherever an app names them."""

from __future__ import annotations

from ragfault.apps.tune.trials import parse_tuning_metric
from ragfault.apps.watch.monitoring.alert_rules import parse_rules


def test_a_metric_has_its_names_of_other_tools_in_rules_and_in_a_search():
    [rule, *_] = parse_rules("builtin = false\nrule = [{metric = 'faithfulness', below = 0.6}]")
    assert rule.metric == "groundedness"
    assert str(parse_tuning_metric("hit_rate@5")) == "hit@5"
