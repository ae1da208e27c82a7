"""Command `monitor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ragfault.model.errors import RunError, UsageError
from ragfault.options.output import add_output_options, encode_json, plan_output, render_document, write_output
from ragfault.options.runs import make_sample_option

if TYPE_CHECKING:
    from ragfault.apps.watch.monitoring.monitor import MonitorReport, MonitorSettings
    from ragfault.apps.watch.monitoring.rollups import Observation
    from ragfault.io.runs.run import Run


@click.command(
    epilog="""\b
Examples:
  ragfault monitor runs/live
  ragfault monitor runs/live-* --window 30m --window 90m --by route,release
  ragfault monitor runs/live --marks marks.jsonl --rules rules.toml -o monitor.html
  ragfault monitor runs/live --against runs/evaluated --reference 24h

Exit code 0: no alert fired; 1: one did."""
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(), metavar="RUNS...")
@click.option(
    "--window",
    "windows",
    multiple=True,
    metavar="TIME",
    help="Length of a rolling window. Repeatable.  [default: 30m, 90m, 24h]",
)
@click.option(
    "--by",
    default="route",
    show_default=True,
    help="Monitor each segment of these fields: route,release,model,metadata.KEY.",
)
@click.option(
    "--reference", metavar="TIME", help="Length of the reference period at the start.  [default: a third, up to 7d]"
)
@click.option("--rate", type=float, help="Maximum false alarms per metric and route in a month.  [default: 0.05]")
@click.option("--margin", type=float, help="Smallest drop to detect.  [default: 0.005]")
@click.option("--marks", type=click.Path(), help='Deployments as JSON Lines: {"time": "…", "text": "…"}.')
@click.option("--rules", type=click.Path(), help="TOML file of alert rules.")
@click.option(
    "--against", type=click.Path(), help="Run of an evaluation set, to measure how far traffic has drifted from it."
)
@add_output_options("html")
@make_sample_option(10_000, "traces to monitor, of all runs together")
@click.option("--full", is_flag=True, help="Also print the rolling means of every route, cohorts and drift.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the resampling.")
def monitor(
    runs: tuple[str, ...],
    windows: tuple[str, ...],
    by: str,
    reference: str | None,
    rate: float | None,
    margin: float | None,
    marks: str | None,
    rules: str | None,
    against: str | None,
    out: str | None,
    kind: str | None,
    force: bool,
    sample: int,
    full: bool,
    seed: int,
) -> int:
    """Watch RUNS whose traces have times: rolling means, drops with the layer to blame, alerts.

    Drops are detected by a sequential test: its rate of false alarms is the same however often the result is read. Each
    drop has its beginning, its size and the traces that show it. The alerts that the rules would have sent are listed.
    """
    from ragfault.apps.watch.report.monitor import summarize_monitor

    output = {"out": out, "kind": kind, "force": force}
    plan = plan_output(output, "html")
    settings = _make_settings(windows, reference, rules, {"rate": rate, "margin": margin, "seed": seed})
    report = _monitor_runs(runs, by, settings, marks, against, sample)
    write_output(
        plan, lambda kind, screen: _render_monitor(report, kind, screen, full=full), output, summarize_monitor(report)
    )
    return 1 if report.fired else 0


def _render_monitor(report: MonitorReport, kind: str, screen: bool, *, full: bool) -> str:
    from ragfault.apps.watch.report.monitor import build_first_screen, build_monitor

    if kind == "json":
        return encode_json(report)
    lead = kind == "terminal" and screen and not full
    document = build_first_screen(report) if lead else build_monitor(report)
    return render_document(document, kind, screen, "monitor", width=160)


def _monitor_runs(
    names: Sequence[str],
    by: str,
    settings: MonitorSettings,
    marks_file: str | None,
    against_run: str | None,
    sample_size: int,
) -> MonitorReport:
    """Monitor the runs as one stretch of traffic, a sample of them where they are large."""
    from ragfault.apps.watch.monitoring.monitor import CORRELATED_PAIRS, explain_by_query, load_marks, monitor
    from ragfault.apps.watch.monitoring.rollups import collect_measures, observe_runs, roll_up, sum_products
    from ragfault.diagnosis.run_table import list_text_warnings
    from ragfault.io.runs.run import Run
    from ragfault.io.runs.samples import count_population, sample_run

    opened = [Run.open(name) for name in names]
    # the same of each run
    share = sample_size / max(1, sum(run.manifest.traces for run in opened))
    if 0 < share < 1:
        opened = [sample_run(run, max(1, round(share * run.manifest.traces))) for run in opened]
    against = sample_run(Run.open(against_run), sample_size) if against_run else None
    _require_same_judge([*opened, against] if against else opened)
    marks = load_marks(marks_file) if marks_file else ()
    correlated: list[Observation] = []

    def observe() -> Iterator[Observation]:
        for observation in observe_runs(opened, [part.strip() for part in by.split(",") if part.strip()]):
            if any(observation.metric in pair for pair in CORRELATED_PAIRS):
                correlated.append(observation)
            yield observation

    measures = collect_measures(opened)
    rollups = roll_up(observe(), measures)
    products = sum_products(correlated, CORRELATED_PAIRS)
    correlated.clear()
    drift = _measure_drift(against, opened, rollups, measures, settings.seed)
    remaining = iter(rollups)
    # the largest thing in memory: the iterator alone holds it, until series are built
    del rollups
    report = monitor(remaining, measures, products=products, marks=marks, drift=drift, options=settings)
    population = count_population(opened)
    sample = sum(run.manifest.traces for run in opened) if population else 0
    untimed = sum(run.to_arrow("traces", ["time"])["time"].null_count for run in opened)
    total = f"{sum(run.manifest.traces for run in opened):,} traces"
    missing = [f"{untimed:,} of {total} have no time and are left out"] if untimed else []
    ids = [name for run in opened if len(opened) > 1 for name in run.to_arrow("traces", ["id"])["id"].to_pylist()]
    if copies := len(ids) - len(set(ids)):
        missing.append(
            f"{copies:,} traces have the id of another one of these runs: if they are the same, they count twice"
        )
    warnings = (*missing, *list_text_warnings(*opened))
    report = explain_by_query(report, opened)
    return msgspec.structs.replace(report, sample=sample, population=population, warnings=warnings)


def _require_same_judge(runs: Sequence[Run]) -> None:
    """Refuse runs that were judged by different judges: a change could be the judges'."""
    for other in runs[1:]:
        if other.manifest.judge != runs[0].manifest.judge:
            raise RunError(
                f"{runs[0].path} was judged by {runs[0].manifest.judge}, {other.path} by {other.manifest.judge}: "
                "a change over time could come from the judge. Evaluate them with one judge."
            )


def _make_settings(
    windows: Sequence[str], reference: str | None, rules: str | None, given: Mapping[str, Any]
) -> MonitorSettings:
    """Return the settings of the monitor, from the options of the command line; None stands for the default."""
    from ragfault.apps.watch.monitoring.alert_rules import load_rules, parse_minutes
    from ragfault.apps.watch.monitoring.monitor import MonitorSettings

    parsed = {name: value for name, value in given.items() if value is not None}
    if windows:
        parsed["windows"] = tuple(dict.fromkeys(map(parse_minutes, windows)))
        if min(parsed["windows"]) < 1:
            raise UsageError("a window is at least one minute: --window 30m.")
    if reference:
        parsed["reference"] = parse_minutes(reference)
    if rules:
        parsed["rules"] = load_rules(rules)
    return MonitorSettings(**parsed)


def _measure_drift(against: Run | None, runs: Sequence[Run], rollups: Any, measures: Any, seed: int) -> Any:
    """Measure how far traffic has moved from an evaluation set; None where none was named."""
    if against is None:
        return None
    from ragfault.apps.watch.monitoring.drift import measure_drift
    from ragfault.apps.watch.monitoring.windows import build_series

    queries = [text for run in runs for text in run.to_arrow("traces", ["query"])["query"].to_pylist()]
    return measure_drift(against, build_series(rollups), {measure.name: measure for measure in measures}, queries, seed)
