"""Histories of runs: the run at which a metric broke."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragfault.analysis import history
from ragfault.errors import UsageError
from sample_runs import evaluate_system, system


def test_a_history_names_the_run_at_which_a_metric_broke(tmp_path: Path):
    """Of six runs the fourth broke grounding: the step is found, and what did not break is not accused."""
    runs = [evaluate_system(tmp_path / f"r{n}", system(150, n, grounding=0.3 if n >= 3 else 0.0)) for n in range(6)]
    comparison = history(runs, metrics=["groundedness", "completeness", "recall@3"])
    steps = {step.metric: step for step in comparison.metrics}
    assert (steps["groundedness"].state, steps["groundedness"].run) == ("dropped", "r3")
    assert steps["groundedness"].worsened
    assert steps["completeness"].run is None
    assert comparison.broken_at == "r3"
    assert comparison.traces == 150
    with pytest.raises(UsageError, match="at least 3 runs"):
        history(runs[:2])
