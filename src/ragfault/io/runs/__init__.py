"""Runs: directories that hold the result of an evaluation.

    RUN/
        manifest.json       input, judge, metrics, counts and checksums
        traces.parquet      one row per trace (the columns of `ragfault.records.Trace`)
        verdicts.parquet    one row per trace (`Verdicts`)
        scores.parquet      one row per trace and metric (`Score`)

A run can be copied, committed and uploaded; nothing in it points outside.
"""

from ragfault.io.runs.run import AnyRun, Manifest, MetricInfo, Run, open_run
from ragfault.io.runs.samples import SAMPLE_TRACES, count_population, sample_run, sample_runs
from ragfault.io.runs.writer import PartialRun, RunPlan

__all__ = [
    "SAMPLE_TRACES", "AnyRun", "Manifest", "MetricInfo", "PartialRun", "Run", "RunPlan", "count_population",
    "open_run", "sample_run", "sample_runs",
]  # fmt: skip
