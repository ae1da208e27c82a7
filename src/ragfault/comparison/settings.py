"""Settings of comparisons: two runs, a sequence of runs, and the gate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ragfault.io.runs.run import SAMPLE_TRACES
from ragfault.model.errors import UsageError
from ragfault.model.settings import (
    ClosedShare,
    Flag,
    NaturalInt,
    OpenShare,
    PathText,
    PositiveNumber,
    Settings,
    Switch,
    TextList,
    declare,
)

if TYPE_CHECKING:
    from ragfault.io.runs.run import AnyRun
    from ragfault.labels.correction import PairedLabels
    from ragfault.labels.judges.flakiness import JudgeFlakiness
    from ragfault.labels.rubrics.proofs import RubricMeasurement

ALPHA, POWER = 0.05, 0.8
# the smallest change that matters for a metric with a range from 0 to 1
MARGIN = 0.05
MIN_COVERAGE = 0.5
"""Least share of scored traces for a threshold to pass."""

MarginTable = Annotated[dict[str, PositiveNumber], Meta(description="a table of metrics, each with a number above 0")]


def parse_margins(texts: Sequence[str]) -> dict[str, float]:
    """Parse margins by metric from texts such as `latency=50`; the value stands after the last "=".

    Raises UsageError for anything else.

    >>> parse_margins(["latency=50", "noise_sensitivity(chunks=all)=0.1"])
    {'latency': 50.0, 'noise_sensitivity(chunks=all)': 0.1}
    """
    margins = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        try:
            margin = float(value)
        except ValueError:
            margin = math.nan
        if not name.strip() or not 0 < margin < math.inf:
            raise UsageError(f"--margins {text}: write METRIC=VALUE with a value above 0, such as latency=50.")
        margins[name.strip()] = margin
    return margins


class DecisionSettings(Settings, frozen=True, kw_only=True):
    """When a change counts, in any comparison."""

    margins: Mapping[str, float] | None = declare(
        None,
        "Smallest change that matters for one metric, in its own unit.",
        MarginTable,
        Flag(metavar="METRIC=VALUE", parse=parse_margins),
    )
    alpha: float = declare(ALPHA, "Significance level over all metrics together.", OpenShare)
    power: float = declare(POWER, "Power used for the number of pairs needed.", OpenShare)
    seed: int = declare(0, "Seed of the resampling.", NaturalInt, is_key=False)
    anyway: bool = declare(False, "Compare also runs with different judges or parameters.", Switch, is_key=False)


class BisectionSettings(DecisionSettings, frozen=True, kw_only=True):
    """How two runs are bisected: `bisect` explains each field."""

    margin: float = declare(MARGIN, "Smallest change that matters, as a share of the metric's range.", OpenShare)
    share: float = declare(1.0, "Part of alpha that is left to these metrics where other tests have the rest.")


class ComparisonSettings(BisectionSettings, frozen=True, kw_only=True):
    """How two runs are compared metric by metric: `compare` explains each field."""

    metrics: Sequence[str] | None = declare(None, "Metrics, by their full text; None: all that both runs have.")


DEFAULT_BISECTION, DEFAULT_COMPARISON = BisectionSettings(), ComparisonSettings()

SAMPLE: int = declare(
    SAMPLE_TRACES,
    "Most traces to compare; of larger runs a random sample. 0: all.",
    NaturalInt,
    Flag(metavar="N"),
    is_key=False,
)


class HistorySettings(ComparisonSettings, frozen=True, kw_only=True):
    """How a sequence of runs is bisected: `history` explains each field."""

    sample: int = SAMPLE
    causes: Sequence[str] = declare(
        (),
        "Of three or more runs: follow the answers that are bad for this cause, such as not-retrieved.",
        TextList,
        Flag(names=("--cause",), metavar="NAME"),
        is_key=False,
    )


BASELINE_FIELDS = ("metrics", "margins", "max_drop", "alpha", "power", "anyway", "sample", "flakiness", "seed")
"""Fields of a gate that say nothing without a baseline."""


class GateSettings(DecisionSettings, frozen=True, kw_only=True):
    """When a run passes the gate: `gate` explains each field."""

    coverage: float = declare(MIN_COVERAGE, "Minimum share of traces with a score.", ClosedShare)
    baseline: AnyRun | None = declare(None, "Baseline run that RUN must not be worse than.", PathText, is_key=False)
    metrics: Sequence[str] | None = declare(
        None,
        "Metric to compare with the baseline.",
        TextList,
        Flag(names=("-m", "--metrics"), default="those of the decision tree"),
        is_key=False,
    )
    max_drop: float = declare(
        MARGIN, "Margin of every metric as a share of its range, or 5 % of the mean if that is unbounded.", OpenShare
    )
    sample: int = SAMPLE
    flakiness: str | Path | JudgeFlakiness | None = declare(
        None, "Judge variability measured by `ragfault judge repeat -o`; widens the intervals.", PathText, is_key=False
    )
    rubric_proof: Sequence[str | Path | RubricMeasurement] = declare(
        (),
        "Agreement of a rubric with people, by `ragfault judge rubric -o`: without it no rubric decides.",
        TextList,
        Flag(metavar="FILE"),
    )
    labels: PairedLabels = declare((None, None), "Human labels of some traces of the baseline, and of the run.")

    @property
    def set_for_baseline(self) -> tuple[str, ...]:
        """The fields that say nothing without a baseline, and that were set."""
        return tuple(name for name in BASELINE_FIELDS if getattr(self, name) != self.declared[name].default)


DEFAULT_GATE = GateSettings()


class GateTable(GateSettings, frozen=True, kw_only=True):
    """The table [gate] of the settings file: a gate, and its thresholds."""

    thresholds: Sequence[str] = declare(
        (), "Threshold with >=, >, <= or <.", TextList, Flag(names=("--threshold",), metavar="METRIC>=VALUE")
    )
