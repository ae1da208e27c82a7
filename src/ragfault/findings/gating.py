"""The gate: does a run reach the bars set for it, and is it no worse than its baseline?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from ragfault.errors import UnknownName, UsageError
from ragfault.findings.bars import Bar, decide, read_bar
from ragfault.findings.framing import Peoples, frame
from ragfault.findings.grid import Grid, open_grid
from ragfault.findings.guarding import MOST, guard
from ragfault.findings.records import Aggregate, Decision, Gate, Guarded, Result
from ragfault.findings.scorecard import aggregate
from ragfault.runs import Run
from ragfault.stats import Interval, Rectified

__all__ = ["COVERAGE", "gate"]

COVERAGE = 0.5
"""The least share of traces that must be scored for a bar to be passed."""


def gate(
    source: Run | Grid,
    bars: Iterable[Bar | str] = (),
    *,
    coverage: float = COVERAGE,
    baseline: Run | None = None,
    people: Peoples = (None, None),
    **terms: Any,
) -> Gate:
    """Decide every bar on the 95 % interval of its mean, and beside a baseline whether a metric got worse.

    A bar is passed where all of the interval reaches it, failed where none of it does; otherwise the run
    cannot tell, and the decision says about how many scored traces would, at the present mean and spread.
    A bar is not passed where scores of its metric were lost to failures: traces on which a judge fails are
    not like the others. Nor is it where less than `coverage` of the traces are scored; a bar that fails still
    fails.

    Beside a baseline a metric fails where a significant worsening beyond its margin is shown, and passes where
    one is ruled out; `terms` are those of `guard`: metrics, max_drop, margins, alpha, power, anyway, seed. The
    gate fails where any bar or metric fails, else cannot tell where any cannot. With what `people` said of some
    traces (of the baseline, of the run) all of this is decided on figures put right by it, where there are any.

    Raises UsageError for a bar that cannot be read, neither bars nor baseline, or a bar outside the metric's
    range; UnknownName for a metric that is not in the run; beside a baseline what `guard` raises.
    """
    if not 0 <= coverage <= 1:
        raise UsageError(f"coverage is a share from 0 to 1, got {coverage:g}.")
    read = [read_bar(bar) if isinstance(bar, str) else bar for bar in bars]
    if not read and baseline is None:
        raise UsageError('no bar was set. Set one (--bar "groundedness>=0.85"), or give a --baseline.')
    if terms and baseline is None:
        raise UsageError(f"{', '.join(terms)}: without a baseline there is nothing to hold this against.")
    grid = open_grid(source, people[1])
    return Gate(
        run=grid.run.path.name,
        traces=grid.traces,
        decisions=tuple(_decision(grid, bar, coverage) for bar in read),
        guarded=None if baseline is None else _guarded(baseline, grid, coverage, people, terms),
        rectification=None if grid.people is None else grid.people.made,
    )


def _guarded(baseline: Run, grid: Grid, coverage: float, people: Peoples, terms: dict[str, Any]) -> Guarded:
    anyway, flakiness = bool(terms.pop("anyway", False)), terms.pop("flakiness", None)
    side = frame(baseline, grid.run, anyway=anyway, people=people, flakiness=flakiness)
    return guard(side, coverage=coverage, **terms)


def _decision(grid: Grid, bar: Bar, coverage: float) -> Decision:
    at = _column(grid, bar)
    bar = Bar(grid.names[at], bar.sign, bar.value)
    found = aggregate(grid, at, target=bar)
    _check(bar, found)
    share = found.scored / grid.traces
    told = found.decided
    if told is None:
        return _decided(bar, found, share, "cannot tell", f"no trace is scored{_why(found)}")
    result = decide(bar, told)
    right = found.rectified if found.rectified and found.rectified.interval else None
    reason, needed = _words(result, told, right), None
    if result == "cannot tell":
        needed = _needed(bar, told if right is None else replace(told, n=right.labelled), found)
        reason = f"{reason}; {_advice(needed, 'labels' if right else 'scored traces')}"
    if found.failed and result == "pass":
        result = "cannot tell"
        reason = (
            f"{found.failed:,} scores were lost to failures{_why(found)}, and what they would have been is not "
            f"known; of the others: {reason}"
        )
    if share < coverage and result != "fail":
        result = "cannot tell"
        reason = (
            f"only {found.scored:,} of {grid.traces:,} traces are scored ({share:.0%}, and {coverage:.0%} are "
            f"asked for){_why(found)}; of these: {reason}"
        )
    return _decided(bar, found, share, result, reason, needed)


def _decided(
    bar: Bar, found: Aggregate, share: float, result: Result, reason: str, needed: int | None = None
) -> Decision:
    return Decision(bar=bar, result=result, reason=reason, aggregate=found, coverage=share, needed=needed)


def _column(grid: Grid, bar: Bar) -> int:
    """The column of the bar's metric, however it is spaced."""
    wanted = "".join(bar.metric.split())
    for at, name in enumerate(grid.names):
        if "".join(name.split()) == wanted:
            return at
    raise UnknownName(
        f"metric of {grid.run.path.name}",
        bar.metric,
        grid.names,
        hint="Compute it with: ragfault rescore",
    )


def _check(bar: Bar, found: Aggregate) -> None:
    """Refuse a bar that no value could reach or miss, such as a percentage."""
    low = -math.inf if found.low is None else found.low
    high = math.inf if found.high is None else found.high
    if not low <= bar.value <= high:
        raise UsageError(
            f"{bar}: {bar.metric} lies between {low:g} and {high:g}, so that the bar says nothing. "
            "Write a share as 0.85, not as 85."
        )


def _words(result: Result, interval: Interval, right: Rectified | None) -> str:
    where = {
        "pass": "the whole interval reaches the bar",
        "fail": "the whole interval misses the bar",
        "cannot tell": "the interval holds the bar",
    }[result]
    return (
        f"mean {_figure(interval.mean)} [{_figure(interval.low)}, {_figure(interval.high)}] "
        f"from {interval.n:,} traces{f' and {right.labelled:,} labels' if right else ''}: {where}"
    )


def _figure(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"


def _why(found: Aggregate) -> str:
    reasons = found.why_failed or found.why_undefined
    return f" ({reasons[0].text})" if reasons else ""


def _needed(bar: Bar, interval: Interval, found: Aggregate) -> int | None:
    """About how many scored traces would tell.

    The interval shrinks with the root of their number; where every value is at one end of the range, with
    their number.
    """
    gap = abs(interval.mean - bar.value)
    reach = interval.mean - interval.low if interval.mean > bar.value else interval.high - interval.mean
    if interval.clusters < 2 or gap == 0 or not math.isfinite(reach):
        return None
    power = 1 if interval.mean in (found.low, found.high) else 2
    wanted = interval.n * (reach / gap) ** power
    return max(interval.n + 1, math.ceil(wanted)) if wanted <= MOST else None


def _advice(needed: int | None, what: str) -> str:
    if needed is None:
        return f"no number of {what} that can be named would tell"
    return f"about {needed:,} {what} would tell, if mean and spread stay as they are"
