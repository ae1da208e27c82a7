"""Export of runs to experiment trackers: MLflow, and CSV for Weights & Biases."""

from __future__ import annotations

import csv
import io
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragfault.diagnosis.run_analysis import analyze
from ragfault.io.runs.run import SAMPLE_TRACES, Run
from ragfault.model.errors import OutputError, UsageError, require_extra
from ragfault.report.builders.scorecard import build_findings
from ragfault.report.output import check_output_path, escape_csv_cell, write_report_file
from ragfault.report.renderers.markdown import render_markdown

if TYPE_CHECKING:
    from ragfault.diagnosis.records import Findings, MetricAggregate

MAX_TABLE_ROWS = 10_000
"""Maximum number of traces in a table; all of them are in the files of the run."""
MLFLOW_INVALID = re.compile(r"[^\w./: -]")
"""Characters that MLflow accepts in no name."""
TEXT_COLUMNS = ("trace", "route", "query", "answer")


def collect_parameters(findings: Findings) -> dict[str, str]:
    """Collect what a run was made by and from: version, judge, source, fingerprint, traces, and the sample measured."""
    manifest = findings.manifest
    return {
        "ragfault": manifest.ragfault,
        "judge": manifest.judge,
        "gold": manifest.gold,
        "source": ", ".join(manifest.source),
        "fingerprint": manifest.fingerprint,
        "traces": str(manifest.population or manifest.traces),
        **({"sample": str(manifest.traces)} if manifest.population else {}),
        "skipped": str(manifest.skipped),
        "created": manifest.created,
    }


def collect_metrics(findings: Findings) -> dict[str, float]:
    """Collect the figures of a run: of each metric its mean, its interval's ends, and how many scores it rests on."""
    figures: dict[str, float] = {}
    for item in findings.scorecard.aggregates:
        name = item.metric
        figures.update({f"{name}.{part}" if part else name: value for part, value in _list_values(item)})
    for health in findings.health:
        if health.interval is not None:
            figures[f"{health.layer}_health"] = health.interval.mean
    return figures


def _list_values(item: MetricAggregate) -> Iterator[tuple[str, float]]:
    if item.interval is not None:
        ends = (("", item.interval.mean), ("low", item.interval.low), ("high", item.interval.high))
        yield from ((part, value) for part, value in ends if math.isfinite(value))
    yield from (("scored", item.scored), ("undefined", item.undefined), ("failed", item.failed))


def list_trace_rows(run: Run, most: int = MAX_TABLE_ROWS) -> Iterator[dict[str, Any]]:
    """List the traces of a run with the value of each metric, None where it has none; `most` of them."""
    names = [measure.name for measure in run.manifest.metrics]
    scores = iter(run.scores())
    for trace in islice(run.traces(), most):
        values = {score.metric: score.value for score in islice(scores, len(names))}
        texts = {"trace": trace.id, "route": trace.route, "query": trace.query, "answer": trace.answer}
        yield {**texts, **{name: values.get(name) for name in names}}


def write_history(
    runs: Sequence[str | Path | Run], folder: str | Path, *, force: bool = False, sample: int = SAMPLE_TRACES
) -> list[Path]:
    """Write the CSV of runs into a folder: `history.csv`, a row for each run, and `table.csv`, a row for each trace.

    The figures of a larger run are those of a random sample, and `sample` says of how many traces; 0 takes all. A text
    that a spreadsheet would take for a formula begins with an apostrophe. Raises OutputError where a file stands there
    already (unless `force`), RunError where there is no run.
    """
    opened = [run if isinstance(run, Run) else Run.open(run) for run in runs]
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {path}: {error.strerror or error}.") from None
    for name in ("history.csv", "table.csv"):
        check_output_path(path / name, force=force)
    history = [
        {"_step": step, "name": Path(str(run.path)).name, **collect_parameters(findings), **collect_metrics(findings)}
        for step, run in enumerate(opened)
        for findings in [analyze(run, sample=sample)]
    ]
    table = [{"run": Path(str(run.path)).name, **row} for run in opened for row in list_trace_rows(run)]
    return [
        write_report_file(path / name, _encode_rows_csv(lines), force=force)
        for name, lines in (("history.csv", history), ("table.csv", table))
    ]


def _encode_rows_csv(lines: Sequence[dict[str, Any]]) -> str:
    """Encode rows as CSV, with the columns of all of them."""
    names = list(dict.fromkeys(name for line in lines for name in line))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for line in lines:
        values = (line.get(name) for name in names)
        writer.writerow([escape_csv_cell(value) if isinstance(value, str) else value for value in values])
    return out.getvalue()


def to_mlflow(
    run: str | Path | Run,
    *,
    uri: str | None = None,
    experiment: str = "ragfault",
    name: str | None = None,
    sample: int = SAMPLE_TRACES,
) -> str:
    """Log a run to MLflow as parameters, metrics, a table of traces, a report and its files; the id of MLflow's run.

    The figures of a larger run are those of a random sample, and the parameter `sample` says of how many traces; 0
    takes all. `uri` is the tracking server or store, else what `MLFLOW_TRACKING_URI` says; an experiment that is not
    there is made. A metric is called as here, with `_` for what MLflow takes in no name: `ndcg_10` for `ndcg@10`.
    MLflow's own telemetry is switched off. Raises MissingExtra without mlflow and pandas, UsageError where MLflow
    refuses.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    with require_extra("the export to MLflow", "mlflow", "pip install mlflow-skinny pandas"):
        import mlflow
        import pandas  # noqa: F401
    opened = run if isinstance(run, Run) else Run.open(run)
    findings = analyze(opened, sample=sample)
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        existing = client.get_experiment_by_name(experiment)
        experiment_id = client.create_experiment(experiment) if existing is None else existing.experiment_id
        tracked = client.create_run(experiment_id, run_name=name or Path(str(opened.path)).name)
        try:
            _log_run(client, tracked.info.run_id, opened, findings)
        except BaseException:
            client.set_terminated(tracked.info.run_id, "FAILED")
            raise
    except mlflow.exceptions.MlflowException as error:
        raise UsageError(f"MLflow refuses the run: {error}") from None
    return str(tracked.info.run_id)


def _log_run(client: Any, key: str, run: Run, findings: Findings) -> None:
    """Put a run down under the id of MLflow's."""
    from mlflow.entities import Metric, Param

    now = int(time.time() * 1000)
    parameters = [Param(name, value[:6000]) for name, value in collect_parameters(findings).items()]
    figures = [
        Metric(MLFLOW_INVALID.sub("_", name), value, now, 0) for name, value in collect_metrics(findings).items()
    ]
    client.log_batch(key, params=parameters)
    for start in range(0, len(figures), 1000):
        client.log_batch(key, metrics=figures[start : start + 1000])
    lines = list(list_trace_rows(run))
    names = [*TEXT_COLUMNS, *(measure.name for measure in run.manifest.metrics)]
    client.log_table(key, {name: [line[name] for line in lines] for name in names}, "traces.json")
    client.log_text(key, render_markdown(build_findings(findings)), "report.md")
    if isinstance(run.path, Path):
        for file in sorted(run.path.iterdir()):
            if file.is_file():
                client.log_artifact(key, str(file), "run")
    client.set_terminated(key)
